//! The confinement of `vpnd start`: what the kernel says about its threads, and what such a thread can still do.

use crate::site::{hosts, passes, two};
use cli::daemon::confinement::{Paths, confine};
use libtest_mimic::{Completion, Failed, Trial};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::kill;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{Pid, getppid};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use testkit::{GATEWAYS, missing, test, without};

/// With this variable in the environment, the test program is the confined process: its value is a directory, in which
/// `read` and `write` are its own.
const CHILD: &str = "VPN_TEST_CONFINED";

pub fn trials() -> Vec<Trial> {
    vec![
        test("every thread of vpnd is confined", GATEWAYS, every_thread_of_vpnd_is_confined),
        Trial::ignorable_test(
            "a confined thread reaches no other file or program",
            reaches_nothing_else,
        ),
    ]
}

fn every_thread_of_vpnd_is_confined() {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    left.ctl_ok(&["reload"]);
    passes(&hosts(&left, &right), b"protected");
    let overview = left.json(&["status", "--json"]);
    let tasks = format!("/proc/{}/task", overview["pid"]);
    let tasks: Vec<_> =
        fs::read_dir(tasks).expect("it runs").map(|task| task.expect("a task").path()).collect();
    assert!(tasks.len() > 2, "the runtime and the workers have threads");
    for task in tasks {
        let status = fs::read_to_string(task.join("status")).expect("root reads it");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name} in {status}")).trim().to_owned()
        };
        assert_eq!(field("NoNewPrivs:"), "1", "{status}");
        assert_eq!(field("Seccomp:"), "2", "{status}");
        for set in ["CapBnd:", "CapPrm:", "CapEff:"] {
            assert_eq!(field(set), "0000000000003400", "{status}");
        }
        for set in ["CapInh:", "CapAmb:"] {
            assert_eq!(field(set), "0000000000000000", "{status}");
        }
    }
    let in_force = overview["confinement"]["in_force"].as_array().expect("a list");
    for part in ["no_new_privs", "capabilities", "seccomp"] {
        assert!(in_force.iter().any(|found| found == part), "{overview}");
    }
    let status = left.ctl_ok(&["status"]);
    assert!(status.contains("  confined       by no_new_privs, "), "{status}");
}

fn reaches_nothing_else() -> Result<Completion, Failed> {
    if let Some(reason) = missing(GATEWAYS) {
        return without(&reason);
    }
    let place = tempfile::tempdir()?;
    for directory in ["read", "write", "other"] {
        fs::create_dir(place.path().join(directory))?;
        fs::write(place.path().join(directory).join("file"), "text")?;
    }
    fs::copy("/bin/sh", place.path().join("write/sh"))?;
    let mut child = Command::new(std::env::current_exe()?);
    let output = child.env(CHILD, place.path()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(reason) = text.lines().find(|line| line.starts_with("Landlock: ")) {
        return without(reason);
    }
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("in full\n"), "{text}");
    Ok(Completion::Completed)
}

/// The confined process, if this is one. It fails at the first attempt with another outcome than expected.
pub fn child() -> Option<ExitCode> {
    let place = std::env::var_os(CHILD)?;
    let place = Path::new(&place);
    let paths = Paths { read: vec![place.join("read")], write: vec![place.join("write")] };
    let confinement = confine(&paths);
    for missing in &confinement.info().missing {
        println!("{missing}");
    }
    if !confinement.info().missing.is_empty() {
        return Some(ExitCode::FAILURE);
    }
    // As a thread that reads a peer's messages.
    std::thread::scope(|scope| {
        scope.spawn(|| attempt(place)).join().expect("every outcome is as expected")
    });
    println!("in full");
    Some(ExitCode::SUCCESS)
}

fn attempt(place: &Path) {
    // Its own files.
    assert_eq!(fs::read_to_string(place.join("read/file")).expect("readable"), "text");
    fs::write(place.join("write/new"), "text").expect("writable");
    fs::rename(place.join("write/new"), place.join("write/file")).expect("replaceable");
    fs::remove_file(place.join("write/file")).expect("removable");
    File::open("/dev/net/tun").expect("readable");
    fs::read_to_string("/proc/thread-self/status").expect("readable");

    // Files of others.
    let denied = |what: &str, outcome: io::Result<()>| {
        let error = outcome.expect_err(what);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{what}: {error}");
    };
    for path in
        ["/etc/shadow", "/etc/passwd", "/bin/sh", "/root", "/proc/1/environ", "/proc/1/cmdline"]
    {
        denied(path, File::open(path).map(drop));
    }
    denied("a read elsewhere", File::open(place.join("other/file")).map(drop));
    denied("a file elsewhere", fs::write(place.join("other/new"), ""));
    denied("a removal elsewhere", fs::remove_file(place.join("other/file")));
    denied("a link out", fs::rename(place.join("write/sh"), place.join("read/sh")));
    denied("a file beside those to read", fs::write(place.join("read/new"), ""));
    denied("a setting of the kernel", fs::write("/proc/sys/kernel/core_pattern", "|/bin/sh"));
    denied("a preloaded library", fs::write("/etc/ld.so.preload", ""));

    // Programs.
    let program = |path: &Path| Command::new(path).arg("--version").output().map(drop);
    denied("a shell", program(Path::new("/bin/sh")));
    denied("a copy of a shell", program(&place.join("write/sh")));
    denied("vpnctl", program(Path::new(env!("CARGO_BIN_EXE_vpnctl"))));
    denied("ip", program(Path::new("/sbin/ip")));
    if host::nft::available() {
        // It starts, and still has what it takes to ask the kernel.
        let error = host::nft::counters("there_is_no_such_table").expect_err("there is none");
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    // Processes and system calls.
    let refused = |what: &str, outcome: nix::Result<()>| {
        assert_eq!(outcome, Err(Errno::EPERM), "{what}");
    };
    refused("a signal to another process", kill(getppid(), None));
    refused("ptrace", nix::sys::ptrace::attach(Pid::this()));
    refused("mount", mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REMOUNT, None::<&str>));
    for namespace in [CloneFlags::CLONE_NEWUSER, CloneFlags::CLONE_NEWNET] {
        refused("unshare", unshare(namespace));
    }
    let own = File::open("/proc/thread-self/ns/net").expect("readable");
    refused("setns", setns(&own, CloneFlags::CLONE_NEWNET));
    for family in [AddressFamily::Packet, AddressFamily::Vsock, AddressFamily::Alg] {
        let opened = socket(family, SockType::Raw, SockFlag::empty(), None);
        refused("a socket", opened.map(drop));
    }
    for family in [AddressFamily::Inet, AddressFamily::Inet6, AddressFamily::Unix] {
        socket(family, SockType::Datagram, SockFlag::empty(), None).expect("it may");
    }
    // Privileges.
    let status = fs::read_to_string("/proc/thread-self/status").expect("readable");
    assert!(status.contains("CapEff:\t0000000000003400\n"), "{status}");
}
