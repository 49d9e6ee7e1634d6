//! Programs in C and Python that use handles from several threads, cancel, and leave early. Their peer is a socket at a
//! loopback address that answers nothing, a second gateway in the process, or they have a stub in the place of the library.
#![forbid(unsafe_code)]

use libtest_mimic::{Completion, Trial};
use std::ffi::OsStr;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tempfile::TempDir;
use testkit::{Need, missing, output, test, without};
use vpn::policy::{Policy, Role, Secret, Site};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const LIBRARY: &str = "libvpn_ffi.so";
const PYTHON: &str = "/usr/bin/python3";

const C: &[Need] = &[Need::Program("cc")];
const CHECKED: &[Need] = &[Need::Program("cc"), Need::Program("valgrind")];
const INTERPRETED: &[Need] = &[Need::File(PYTHON)];
const STUBBED: &[Need] = &[Need::Program("cc"), Need::File(PYTHON)];

fn main() -> ExitCode {
    testkit::run(vec![
        with_peer("threads in C close what others use", C, 1, |peer| {
            assert_eq!(lifetimes(&[], peer), LIFETIMES);
        }),
        // At night: valgrind takes its time.
        with_peer("threads in C close what others use, under valgrind", CHECKED, 2, |peer| {
            assert_eq!(lifetimes(VALGRIND, peer), LIFETIMES);
        })
        .with_ignored_flag(true),
        with_peer(
            "a program in Python leaves a tunnel whose peer is absent",
            INTERPRETED,
            3,
            absent,
        ),
        with_peer("a program in C waits for its peer at an address", C, 4, met),
        with_peer("a program in Python listens at an address", INTERPRETED, 5, listens),
        test("a program in Python that cancels leaves nothing in the library", STUBBED, stubbed),
    ])
}

/// A test with a peer that answers nothing, at an address of the loopback device that no other run has at the same
/// time.
fn with_peer(name: &str, needs: &'static [Need], number: u8, work: fn(&str)) -> Trial {
    Trial::ignorable_test(name, move || {
        if let Some(reason) = missing(needs) {
            return without(&reason);
        }
        let id = std::process::id();
        let peer = format!("127.{}.{}.{}", 64 + number, id / 250 % 250, id % 250 + 1);
        if let Err(error) = UdpSocket::bind((peer.as_str(), 4500)) {
            return without(&format!("UDP port 4500 of {peer} cannot be used: {error}"));
        }
        work(&peer);
        Ok(Completion::Completed)
    })
}

/// The lines of `lifetimes.c`.
const LIFETIMES: &str = "closed meanwhile\nused afterwards\nended early\nclosed by all\n";
const VALGRIND: &[&str] = &["valgrind", "--quiet", "--error-exitcode=9", "--fair-sched=yes"];

/// The library beside this program, where cargo puts it.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program is a file");
    program.with_file_name(LIBRARY)
}

/// A tunnel between these addresses, and between these networks.
fn tunnel(name: &str, ends: [&str; 2], networks: [&str; 2]) -> Site {
    Policy::site_to_site(name)
        .local(ends[0])
        .remote(ends[1])
        .psk(Secret::new(b"nobody has this key".to_vec()))
        .protect(networks[0], networks[1])
}

fn write(tunnel: Site, path: &Path) {
    let policy = tunnel.build().expect("it is valid");
    let text = policy.to_xml().expect("it can be written");
    fs::write(path, text.as_bytes()).expect("writable");
}

const NETWORKS: [&str; 2] = ["10.1.0.0/24", "10.2.0.0/24"];

/// A directory with a policy whose peer is at this address.
fn prepared(peer: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let absent = tunnel("absent", ["127.0.0.1", peer], NETWORKS);
    write(absent, &directory.path().join("policy.xml"));
    directory
}

/// A directory with the policies of two ends. The second one begins, and it has the address behind the first one's.
fn mirrored(address: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (beginning, last) = address.rsplit_once('.').expect("an address");
    let other = format!("{beginning}.{}", last.parse::<u8>().expect("a number") + 1);
    let waits = tunnel("waits", [address, &other], NETWORKS).role(Role::Responder);
    write(waits, &directory.path().join("own.xml"));
    let [near, far] = NETWORKS;
    let begins = tunnel("begins", [&other, address], [far, near]).role(Role::Initiator);
    write(begins, &directory.path().join("peer.xml"));
    directory
}

fn compiled(source: &str, arguments: &[&str], to: &Path) {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-pthread", "-o"]);
    cc.arg(to).arg(Path::new(CRATE).join("tests").join(source)).args(arguments);
    output(cc);
}

/// Runs `lifetimes.c` under a checker, and returns its lines.
fn lifetimes(checker: &[&str], peer: &str) -> String {
    let directory = prepared(peer);
    let policy = directory.path().join("policy.xml");
    program(checker, "lifetimes", &directory, &[policy.as_os_str(), peer.as_ref()])
}

/// Compiles a program in C and runs it under a checker. Returns its lines.
fn program(checker: &[&str], name: &str, directory: &TempDir, arguments: &[&OsStr]) -> String {
    let program = directory.path().join(name);
    compiled(&format!("{name}.c"), &[library().to_str().expect("text")], &program);
    let words = checker.iter().map(AsRef::as_ref).chain([program.as_os_str()]);
    let words: Vec<&OsStr> = words.chain(arguments.iter().copied()).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("LD_LIBRARY_PATH", library().parent().expect("a directory"));
    output(command)
}

fn met(address: &str) {
    let directory = mirrored(address);
    let [own, peer] = ["own.xml", "peer.xml"].map(|name| directory.path().join(name));
    let arguments = [own.as_os_str(), peer.as_os_str(), address.as_ref()];
    let lines = program(&[], "listening", &directory, &arguments);
    assert_eq!(lines, "met\ntaken\nrefused\n");
}

fn listens(address: &str) {
    let directory = mirrored(address);
    let policy = directory.path().join("own.xml");
    let lines = python("listening.py", &[policy.to_str().expect("text"), address], &library());
    assert_eq!(lines, "listened\n");
}

/// Runs a program in Python with the module.
fn python(name: &str, arguments: &[&str], library: &Path) -> String {
    let mut command = Command::new(PYTHON);
    command.arg("-B").arg(Path::new(CRATE).join("tests").join(name)).args(arguments);
    command.env("PYTHONPATH", Path::new(CRATE).join("python")).env("VPN_LIBRARY", library);
    output(command)
}

fn absent(peer: &str) {
    let directory = prepared(peer);
    let policy = directory.path().join("policy.xml");
    let lines = python("absent.py", &[policy.to_str().expect("text"), peer], &library());
    assert_eq!(lines, "left ten times\n");
}

fn stubbed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let stub = directory.path().join("stub.so");
    compiled("stub.c", &["-shared", "-fPIC"], &stub);
    assert_eq!(python("stubbed.py", &[], &stub), "nothing stays\n");
}
