//! The examples, run as their first lines say.

use crate::side::{FAR, Side};
use libtest_mimic::{Completion, Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::{FILTERED, missing, without};

pub fn trials() -> Vec<Trial> {
    [
        ("the example of a gateway brings a tunnel up", "gateway", runs as Run),
        ("the example of a connection reaches a host behind the peer", "connect", connects),
    ]
    .map(|(title, name, run)| {
        Trial::ignorable_test(title, move || {
            let example = example(name);
            match missing(FILTERED) {
                Some(reason) => without(&reason),
                None if !example.exists() => without("it is not built; cargo build --examples"),
                None => run(&example),
            }
        })
    })
    .into()
}

/// Plays an example.
type Run = fn(&Path) -> Result<Completion, Failed>;

/// Where cargo puts an example.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_vpnd")).with_file_name("examples").join(name)
}

fn runs(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let mut command = Command::new(example);
    command.arg("tests/policies/site/left.xml").stdout(Stdio::piped());
    // The sample is in the workspace's directory, above that of this package.
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let mut process = left.space.run(move || command.spawn()).expect("it is built");
    let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
    let mut lines = String::new();
    while !lines.contains("site: ") {
        assert_ne!(output.read_line(&mut lines).expect("text"), 0, "it has ended\n{lines}");
    }
    assert!(lines.contains("site: up\n"), "{lines}");
    assert!(left.reaches(FAR));
    let id = Pid::from_raw(i32::try_from(process.id()).expect("a process"));
    kill(id, Signal::SIGINT).expect("ours");
    output.read_to_string(&mut lines).expect("text");
    assert!(process.wait().expect("a child of ours").success(), "{lines}");
    assert!(lines.ends_with("stopped\n"), "{lines}");
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}

fn connects(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let listener = right.space.run(|| TcpListener::bind((FAR, 0))).expect("free");
    let to = listener.local_addr().expect("bound").to_string();
    let echoing = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accepted");
        std::io::copy(&mut &stream, &mut &stream).expect("copied");
    });
    let mut command = Command::new(example);
    command.args(["tests/policies/site/left.xml", &to]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = left.space.run(move || command.spawn()).expect("it is built");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(b"through the tunnel").expect("written");
    drop(input);
    let output = process.wait_with_output().expect("a child of ours");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"through the tunnel", "{told}");
    assert!(told.contains("connected from 10.1.0.1:"), "{told}");
    echoing.join().expect("no panic");
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}
