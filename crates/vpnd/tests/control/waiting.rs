//! Commands that wait for a daemon that does not answer.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Begins to activate a tunnel.
fn activate(socket: &Path, arguments: &str) -> Child {
    let mut command = Command::new(testkit::vpnctl());
    command.arg("--control").arg(socket).arg("activate").args(arguments.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

fn end(child: Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ends");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

#[test]
fn ctrl_c_ends_the_wait_for_a_daemon_that_does_not_answer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("control.sock");
    let listener = UnixListener::bind(&socket).expect("a free path");
    let child = activate(&socket, "site");
    // The command itself, and the question how far it is, for whose answer it waits now.
    let connections = ["Activate", "Why"].map(|asked| {
        let (stream, _) = listener.accept().expect("a connection");
        let mut request = String::new();
        BufReader::new(&stream).read_line(&mut request).expect("a request");
        assert!(request.to_lowercase().contains(&asked.to_lowercase()), "{request}");
        stream
    });
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("it runs");
    let (status, text) = end(child);
    assert!(status == Some(130) && text.contains("interrupted"), "{status:?} {text}");
    drop(connections);
}

#[test]
fn patience_ends_though_a_daemon_does_not_answer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("control.sock");
    let _listener = UnixListener::bind(&socket).expect("a free path");
    let (status, text) = end(activate(&socket, "--timeout 2 site"));
    assert!(status == Some(4) && text.contains("not done after 2s"), "{status:?} {text}");
}
