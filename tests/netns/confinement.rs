//! The confinement of `vpnd start`: the kernel's report on its threads, and the calls that such a thread can still
//! make.

mod raw;

use crate::site::{hosts, passes, two};
use libtest_mimic::{Completion, Failed, Trial};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::{get_dumpable, set_dumpable};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, UnixAddr, connect, sendto, socket,
    socketpair,
};
use nix::unistd::{Pid, getppid};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use testkit::{GATEWAYS, test, trial, without};
use vpnd::daemon::confinement::{Paths, confine};
use vpnd::daemon::helper;

/// With this variable in the environment, the test program is the confined process: its value is a directory, in which
/// `read` and `write` are its own.
const CHILD: &str = "VPN_TEST_CONFINED";

/// With this variable, it has no helper.
const ALONE: &str = "VPN_TEST_ALONE";

pub fn trials() -> Vec<Trial> {
    vec![
        test("every thread of vpnd is confined", GATEWAYS, every_thread_of_vpnd_is_confined),
        trial("a confined thread reaches no other file or program", GATEWAYS, || {
            reaches_nothing_else(false)
        }),
        trial("without its helper, a confined thread reaches nft alone", GATEWAYS, || {
            reaches_nothing_else(true)
        }),
        trial("a daemon that crashes dumps no core", GATEWAYS, dumps_no_core),
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
    let process = overview["pid"].as_u64().expect("a number");
    assert!(confined(process) > 2, "the runtime and the workers have threads");
    // The one that runs nft.
    let helpers = helpers_of(process);
    assert_eq!(helpers.len(), 1, "{helpers:?}");
    for helper in helpers {
        confined(helper);
    }
    let in_force = overview["confinement"]["in_force"].as_array().expect("a list");
    for part in ["no_new_privs", "capabilities", "seccomp", "a helper for nft", "fixed code"] {
        assert!(in_force.iter().any(|found| found == part), "{overview}");
    }
    let status = left.ctl_ok(&["status"]);
    assert!(status.contains("  confined       by no_new_privs, "), "{status}");
}

/// Checks that each thread of a process is confined, and returns the number of threads.
fn confined(process: u64) -> usize {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    // A thread may end meanwhile.
    let statuses = tasks.flatten().filter_map(|t| fs::read_to_string(t.path().join("status")).ok());
    let check = |status: String| {
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
    };
    statuses.map(check).count()
}

/// The processes that a daemon has started.
pub fn helpers_of(process: u64) -> Vec<u64> {
    let parent = format!("PPid:\t{process}\n");
    let numbers = fs::read_dir("/proc").expect("readable").flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |process: &u64| {
        let status = fs::read_to_string(format!("/proc/{process}/status"));
        status.is_ok_and(|status| status.contains(&parent))
    };
    numbers.filter(is_child).collect()
}

fn reaches_nothing_else(alone: bool) -> Result<Completion, Failed> {
    let place = tempfile::tempdir()?;
    for directory in ["read", "write", "other"] {
        fs::create_dir(place.path().join(directory))?;
        fs::write(place.path().join(directory).join("file"), "text")?;
    }
    fs::copy("/bin/sh", place.path().join("write/sh"))?;
    fs::write(place.path().join("write/script"), "no syntax")?;
    // Services of others, whose sockets every process of root may connect to.
    let _streams = UnixListener::bind(place.path().join("write/streams"))?;
    let _datagrams = UnixDatagram::bind(place.path().join("write/datagrams"))?;
    let name = abstract_name(place.path())?;
    let _abstract = (UnixListener::bind_addr(&name)?, UnixDatagram::bind_addr(&name)?);
    let mut child = Command::new(std::env::current_exe()?);
    child.env(CHILD, place.path());
    if alone {
        child.env(ALONE, "");
    }
    let output = child.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(reason) = text.lines().find(|line| line.starts_with("Landlock: ")) {
        return without(reason);
    }
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.ends_with("in full\n"), "{text}");
    Ok(Completion::Completed)
}

/// A name without a file, by that of a directory.
fn abstract_name(place: &Path) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(place.as_os_str().as_encoded_bytes())
}

fn dumps_no_core() -> Result<Completion, Failed> {
    let [mut left, _] = two();
    let mut unlimited = Command::new("/bin/sh");
    let inner = left.command();
    unlimited
        .args(["-c", "ulimit -c unlimited && exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(left.path(""));
    left.start_as(unlimited);
    let overview = left.json(&["status", "--json"]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", overview["pid"]))?;
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("listed");
    assert_eq!(core.split_whitespace().filter(|word| *word == "0").count(), 2, "{limits}");
    left.signal(Signal::SIGABRT);
    let status = left.wait();
    assert_eq!(status.signal(), Some(Signal::SIGABRT as i32));
    assert!(!status.core_dumped(), "{status}");
    // Another program does.
    let mut other = Command::new("/bin/sh");
    other.args(["-c", "ulimit -c unlimited && kill -ABRT $$"]).current_dir(left.path(""));
    if !other.status()?.core_dumped() {
        return without("this host writes no core dumps of any program");
    }
    Ok(Completion::Completed)
}

/// The confined process, if this is one. It fails at the first attempt with another outcome than expected.
pub fn child() -> Option<ExitCode> {
    let place = std::env::var_os(CHILD)?;
    let place = Path::new(&place);
    let paths = Paths {
        read: vec![place.join("read")],
        write: vec![place.join("write")],
        sockets: Vec::new(),
    };
    set_dumpable(false).expect("always possible");
    let open = |kind| socket(AddressFamily::Unix, kind, SockFlag::empty(), None).expect("it may");
    let before = [SockType::Stream, SockType::Datagram].map(open);
    let alone = std::env::var_os(ALONE).is_some();
    let helper = match alone {
        true => Err("there is none".to_owned()),
        false => helper::start(env!("CARGO_BIN_EXE_vpnd")).map_err(|error| error.to_string()),
    };
    let mut confinement = confine(&paths, helper);
    confinement.forbid_new_code();
    let needed = |part: &&String| {
        alone && ["a helper for nft: ", "fixed code: "].iter().any(|name| part.starts_with(name))
    };
    let (needed, missing): (Vec<_>, Vec<_>) = confinement.info().missing.iter().partition(needed);
    assert_eq!(needed.len(), if alone { 2 } else { 0 });
    for missing in &missing {
        println!("{missing}");
    }
    if !missing.is_empty() {
        return Some(ExitCode::FAILURE);
    }
    // As a thread that reads a peer's messages.
    std::thread::scope(|scope| {
        let attempts = scope.spawn(|| {
            attempt(place);
            attempt_programs(place);
            if !alone {
                attempt_code(place);
            }
            attempt_sockets(place, &before);
            attempt_system_calls();
        });
        attempts.join().expect("every outcome is as expected")
    });
    println!("in full");
    Some(ExitCode::SUCCESS)
}

fn denied(what: &str, outcome: io::Result<()>) {
    let error = outcome.expect_err(what);
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{what}: {error}");
}

/// Files and privileges.
fn attempt(place: &Path) {
    // Its own files.
    assert_eq!(fs::read_to_string(place.join("read/file")).expect("readable"), "text");
    fs::write(place.join("write/new"), "text").expect("writable");
    fs::rename(place.join("write/new"), place.join("write/file")).expect("replaceable");
    fs::remove_file(place.join("write/file")).expect("removable");
    File::open("/dev/net/tun").expect("readable");
    fs::read_to_string("/proc/thread-self/status").expect("readable");

    // Files of others.
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
    let memory = File::options().write(true).open("/proc/self/mem");
    denied("its own memory, code included", memory.map(drop));
    denied("a preloaded library", fs::write("/etc/ld.so.preload", ""));

    // Privileges.
    let status = fs::read_to_string("/proc/thread-self/status").expect("readable");
    assert!(status.contains("CapEff:\t0000000000003400\n"), "{status}");
}

/// Programs, of which only nft runs.
fn attempt_programs(place: &Path) {
    let written = place.join("write/sh");
    let program = |path: &Path| Command::new(path).arg("--version").output().map(drop);
    denied("a shell", program(Path::new("/bin/sh")));
    denied("a copy of a shell", program(&written));
    denied("vpnctl", program(Path::new(testkit::vpnctl())));
    denied("ip", program(Path::new("/sbin/ip")));
    if host::nft::available() {
        // It starts, and has what it takes to ask the kernel.
        let error = host::nft::counters("there_is_no_such_table").expect_err("there is none");
        assert!(error.to_string().contains("No such file"), "{error}");
        let error = host::nft::run("include \"/etc/passwd\"\n").expect_err("it cannot read that");
        assert!(!error.to_string().contains("root:"), "{error}");
    }
}

/// Code that was not there at the start.
fn attempt_code(place: &Path) {
    let written = place.join("write/sh");
    for linker in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"] {
        denied("a linker", Command::new(linker).arg(&written).output().map(drop));
    }
    refused("execve", raw::call(libc::SYS_execve));
    refused("execveat", raw::call(libc::SYS_execveat));
    let file = File::open(&written).expect("readable");
    refused("code out of a file", raw::map_as_code(Some(&file)));
    refused("code out of nothing", raw::map_as_code(None));
    refused("code out of data", raw::turn_into_code());
    refused("code out of shared memory", raw::call(libc::SYS_shmat));

    if host::nft::available() {
        // nft reads nothing that the confined process has written.
        let script = format!("include \"{}\"\n", place.join("write/script").display());
        let error = host::nft::run(&script).expect_err("it cannot read that").to_string();
        assert!(!error.contains("syntax"), "{error}");
    }
}

fn refused<T>(what: &str, outcome: nix::Result<T>) {
    assert_eq!(outcome.map(drop), Err(Errno::EPERM), "{what}");
}

/// Other programs' sockets. `before`: a stream and a datagram socket that were opened before the confinement.
fn attempt_sockets(place: &Path, before: &[OwnedFd; 2]) {
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        socket(family, SockType::Datagram, SockFlag::empty(), None).expect("it may");
    }
    for family in [AddressFamily::Packet, AddressFamily::Vsock, AddressFamily::Alg] {
        refused("a socket", socket(family, SockType::Raw, SockFlag::empty(), None));
    }
    for protocol in [SockProtocol::NetlinkKObjectUEvent, SockProtocol::NetlinkAudit] {
        let opened = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::empty(), protocol);
        refused("netlink to other programs", opened);
    }
    for protocol in [SockProtocol::NetlinkRoute, SockProtocol::NetlinkNetFilter] {
        let opened = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::empty(), protocol);
        opened.expect("it may");
    }
    for kind in [SockType::Stream, SockType::Datagram, SockType::SeqPacket, SockType::Raw] {
        for flags in [SockFlag::empty(), SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK] {
            refused("a Unix socket", socket(AddressFamily::Unix, kind, flags, None));
            let pair = socketpair(AddressFamily::Unix, kind, None, flags);
            // Threads wake each other by them.
            match kind {
                SockType::Stream => drop(pair.expect("it may")),
                _ => refused("a pair from which every socket can be reached", pair),
            }
        }
    }
    let [streams, datagrams] = ["write/streams", "write/datagrams"].map(|name| place.join(name));
    let services = ["/run/systemd/private", "/run/dbus/system_bus_socket", "/run/docker.sock"];
    for path in services.map(Path::new).into_iter().chain([streams.as_path()]) {
        denied("a connection", UnixStream::connect(path).map(drop));
    }
    // Neither of those that it has can be connected to another socket.
    let name = abstract_name(place).expect("short");
    denied("an abstract name", UnixStream::connect_addr(&name).map(drop));
    let [streams, datagrams] =
        [&streams, &datagrams].map(|path| UnixAddr::new(path).expect("short"));
    let (one, other) = UnixStream::pair().expect("it may");
    drop(other);
    assert_eq!(connect(one.as_raw_fd(), &streams), Err(Errno::EISCONN));
    let sent = sendto(one.as_raw_fd(), b"x", &datagrams, MsgFlags::MSG_NOSIGNAL);
    assert!(sent.is_err(), "a stream has no other addresses");
    let name = UnixAddr::new_abstract(place.as_os_str().as_encoded_bytes()).expect("short");
    for socket in before {
        refused("an abstract name by an older socket", connect(socket.as_raw_fd(), &name));
    }
}

/// Other programs and the kernel.
fn attempt_system_calls() {
    refused("a signal to another process", kill(getppid(), None));
    refused("ptrace", nix::sys::ptrace::attach(Pid::this()));
    refused("mount", mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REMOUNT, None::<&str>));
    for namespace in [CloneFlags::CLONE_NEWUSER, CloneFlags::CLONE_NEWNET] {
        refused("unshare", unshare(namespace));
    }
    let own = File::open("/proc/thread-self/ns/net").expect("readable");
    refused("setns", setns(&own, CloneFlags::CLONE_NEWNET));
    for (what, number) in [
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("bpf", libc::SYS_bpf),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("kexec_load", libc::SYS_kexec_load),
        ("init_module", libc::SYS_init_module),
        ("finit_module", libc::SYS_finit_module),
        ("delete_module", libc::SYS_delete_module),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("keyctl", libc::SYS_keyctl),
        ("syslog", libc::SYS_syslog),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("memfd_create", libc::SYS_memfd_create),
        ("reboot", libc::SYS_reboot),
        ("pivot_root", libc::SYS_pivot_root),
        ("chroot", libc::SYS_chroot),
        ("fsopen", libc::SYS_fsopen),
        ("open_tree", libc::SYS_open_tree),
    ] {
        refused(what, raw::call(number));
    }
    // A system call that no list names is not there.
    for (what, number) in [
        ("inotify_init1", libc::SYS_inotify_init1),
        ("msgget", libc::SYS_msgget),
        ("timer_create", libc::SYS_timer_create),
        ("setuid", libc::SYS_setuid),
        ("capset", libc::SYS_capset),
        ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
        // Calls of tomorrow, and those of the x32 interface.
        ("a new call", 5000),
        ("another interface", 0x4000_0000 | libc::SYS_getpid),
    ] {
        assert_eq!(raw::call(number), Err(Errno::ENOSYS), "{what}");
    }
    for (what, request) in [("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541c)] {
        refused(what, raw::ask_terminal(request));
    }
    // Core dumps stay off.
    refused("core dumps", set_dumpable(true));
    assert_eq!(get_dumpable(), Ok(false));
}
