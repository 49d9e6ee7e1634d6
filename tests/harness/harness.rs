//! What the tests of the binaries share: what they need of this machine, and how they say that it is missing.

// Each test target uses its part.
#![allow(dead_code)]

pub mod gateway;
pub mod policies;
pub mod space;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// What a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The rights of root.
    Root,
    /// Network namespaces of its own.
    Namespaces,
    /// Namespaces for ordinary users.
    UserNamespaces,
    /// The TUN driver.
    Tun,
    /// A program in the search path.
    Program(&'static str),
    /// A file that is not in the search path.
    File(&'static str),
    /// A daemon of another kind in its root directory, which `tests/peers` makes; and a file that it has there.
    Peer(&'static str, &'static str),
    /// Each of these.
    All(&'static [Need]),
}

/// Where `tests/peers` puts its root directories.
pub const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers");

/// What two gateways in namespaces need.
pub const GATEWAYS: &[Need] = &[Need::Root, Need::Namespaces, Need::Tun, Need::Program("ip")];

/// The same, which are pinged.
pub const PINGED: &[Need] = &[Need::All(GATEWAYS), Need::Program("ping")];

/// The same, with a packet filter between or around them.
pub const FILTERED: &[Need] = &[Need::All(PINGED), Need::Program("nft")];

impl Need {
    /// Why it cannot be met on this machine; `None`: it can.
    fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!nix::unistd::geteuid().is_root()).then(|| "not run as root".to_owned()),
            Self::Namespaces => {
                lab::isolation::Namespace::new("probe").err().map(|e| e.to_string())
            }
            Self::UserNamespaces => {
                use std::os::unix::process::CommandExt;
                let mut probe = Command::new("unshare");
                let probe = probe.args(["--user", "--net", "true"]).uid(65_534).gid(65_534);
                let works = probe.output().is_ok_and(|output| output.status.success());
                (!works).then(|| "ordinary users cannot make namespaces".to_owned())
            }
            Self::Tun => std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/net/tun")
                .err()
                .map(|e| format!("cannot open /dev/net/tun: {e}")),
            Self::Program(name) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let found = std::env::split_paths(&path).any(|d| d.join(name).is_file());
                (!found).then(|| format!("no program {name}"))
            }
            Self::Peer(name, file) => {
                let found = Path::new(PEERS).join(name).join(file).exists();
                (!found).then(|| format!("no {name} in target/peers; tests/peers makes it"))
            }
            Self::All(needs) => missing(needs),
            Self::File(path) => (!Path::new(path).exists()).then(|| format!("no file {path}")),
        }
    }
}

/// A test. Where one of its needs is missing it is reported as ignored, with the reason; with
/// `VPN_TEST_REQUIRE=all` in the environment it fails.
pub fn test(name: &str, needs: &'static [Need], work: impl FnOnce() + Send + 'static) -> Trial {
    let title = name.to_owned();
    Trial::ignorable_test(name, move || {
        if let Some(why) = unavailable(needs) {
            return Ok(leave_out(&why));
        }
        if let Some(reason) = missing(needs) {
            return without(&reason);
        }
        let began = Instant::now();
        work();
        if std::env::var_os("VPN_TEST_SHOW").is_some() {
            eprintln!("{:.1} s: {title}", began.elapsed().as_secs_f64());
        }
        Ok(Completion::Completed)
    })
}

/// Why one of these needs cannot be met on this machine.
pub fn missing(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| need.missing())
}

/// Why nobody can have one of these daemons at present, as `tests/peers` has found: Debian's archive does not give it.
pub fn unavailable(needs: &[Need]) -> Option<String> {
    needs.iter().find_map(|need| match need {
        Need::Peer(name, file) if !Path::new(PEERS).join(name).join(file).exists() => {
            let why = std::fs::read_to_string(Path::new(PEERS).join(format!("{name}.unavailable")));
            why.ok().map(|why| why.trim().to_owned())
        }
        Need::All(needs) => unavailable(needs),
        _ => None,
    })
}

/// The outcome of a test whose peer is [`unavailable`]: it is left out even where no test may be.
pub fn leave_out(reason: &str) -> Completion {
    left_out::note(reason, 1);
    Completion::ignored_with(reason)
}

/// The outcome of a test that cannot run.
pub fn without(reason: &str) -> Result<Completion, Failed> {
    if left_out::is_forbidden() {
        return Err(format!("required, but {reason}").into());
    }
    left_out::note(reason, 1);
    Ok(Completion::ignored_with(reason))
}

/// Runs the tests that the command line asks for. They wait more than they compute, so that four of them run at the same
/// time on each processor, unless the command line says otherwise.
pub fn run(trials: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some(processors * 4));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// After this long, something that is waited for is taken never to happen. No test depends on it: it only ends one that hangs.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Discards of a data plane that only the host's buffers cause: before a packet is protected, while it is sent, and when it
/// has come. They depend on how busy the host is.
pub const BUFFERS: [&str; 3] = ["esp.unread", "esp.unsent", "esp.unreceived"];

/// Most packets that the kernel carries, and drops, as one (UDP_MAX_SEGMENTS of linux/udp.h).
pub const TOGETHER: u64 = 128;

/// Packets, or what the kernel carries as one, that this host dropped on the way from one namespace to another: the second
/// column of each CPU's line. All namespaces have these queues in common.
pub fn backlog_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").expect("every kernel has it");
    let column = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(column).sum()
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// Where there is none in time; `what` and what `otherwise` tells go into the message.
pub fn until<T>(
    what: &str,
    mut look: impl FnMut() -> Option<T>,
    otherwise: impl FnOnce() -> String,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}\n{}", otherwise());
        // Between two looks others may have the processor; nothing depends on how long.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Standard output of a command.
///
/// # Panics
/// Where it fails.
pub fn output(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}
