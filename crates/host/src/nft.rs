//! nftables' program, and the scripts that it carries out.
//!
//! A script is made of values, so that no other file has to know how nftables writes them: [`Commands`] for [`Table`]s
//! with [`Chain`]s, whose [`Rule`]s have conditions ([`Match`]) and [`Statement`]s. A [`Key`] says which fields of a
//! packet are looked up in a set, and an [`Element`] has their values. Names come from this program, and are written as
//! they are.

mod commands;
mod listener;
mod log;
mod matches;
mod owner;
mod rule;
mod set;
mod tables;
mod watch;

pub use commands::Commands;
pub use log::Log;
pub use matches::{AddressType, Match, Matches};
pub use owner::{End, Owner, Process, keep_script};
pub use rule::{Rule, Statement};
pub use set::{Element, Field, Key, Value};
pub use tables::{Chain, Hook, Table};
pub use watch::Watch;

use policy::{PortRange, Selector};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The possible paths of the program; the last one is that of NixOS. PATH is not used, since this runs with privileges.
const NFT: [&str; 5] = [
    "/usr/sbin/nft",
    "/sbin/nft",
    "/usr/bin/nft",
    "/usr/local/sbin/nft",
    "/run/current-system/sw/bin/nft",
];

/// The time after which the program is killed: key management waits for it. Before the program ends, it waits for the
/// kernel to free what a former transaction has removed, which took half a minute on a host whose processors were all
/// busy.
const DEADLINE: Duration = Duration::from_secs(120);

/// The program's file, if this process is to run no other one.
static KEPT: OnceLock<Option<File>> = OnceLock::new();

/// The process that runs the program, if it is not this one.
static RUNNER: OnceLock<&'static dyn Runner> = OnceLock::new();

/// The last processes of the program that this one has started, or has had started, with the time of their end. Their
/// changes are no others'.
static OWN_PROCESSES: Mutex<Vec<(u32, Option<Instant>)>> = Mutex::new(Vec::new());
/// The kernel may tell of a change some time after its process has ended. Later another process may have the number.
const KEPT_AFTER_END: Duration = Duration::from_secs(30);

/// A process that runs the program for this one, which need not be able to start programs then.
pub trait Runner: Send + Sync {
    /// Returns `true` if it has the program.
    fn has_program(&self) -> bool;

    /// Runs the program as [`run_here`] does.
    fn run(
        &self,
        arguments: &[&str],
        input: &str,
        started: &mut dyn FnMut(u32),
    ) -> io::Result<String>;

    /// Starts a process that is to own a table, as [`Process::start`] does.
    fn own(&self, table: &str) -> io::Result<Box<dyn Owner>>;
}

/// Has another process run the program for the life of this one.
pub fn leave_to(runner: &'static dyn Runner) {
    // Nobody does so twice.
    let _ = RUNNER.set(runner);
}

/// Name of a table for a device.
pub fn table(purpose: &str, device: &str) -> String {
    let device: String =
        device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("vpn_{purpose}_{device}")
}

/// Opens the program's file for the life of this process, which runs no other one from then on: an upgrade puts another
/// file in its place, which a confined process may not execute. `None`: this host does not have the program.
pub fn keep_program() -> Option<&'static File> {
    KEPT.get_or_init(|| NFT.into_iter().find_map(|path| File::open(path).ok())).as_ref()
}

/// Returns `true` if this host has the program.
pub fn available() -> bool {
    RUNNER.get().map_or_else(|| program().is_some(), |runner| runner.has_program())
}

/// Returns `true` if this host has the program, and a kernel that takes its tables.
pub fn works() -> bool {
    takes(&probe([]))
}

/// Whether rules can tell packets that the kernel's IPsec protects from others. If nothing else works either, it is not
/// known to be otherwise.
pub fn knows_ipsec() -> bool {
    takes(&probe(ipsec())) || !works()
}

/// Whether rules can log packets to a [group](Log).
pub fn knows_log() -> bool {
    takes(&probe([logging()]))
}

/// Rules that a kernel without XFRM has no words for.
fn ipsec() -> [Rule; 2] {
    [Match::ToBeProtected, Match::Opened].map(|protection| protection.then(Statement::Accept))
}

/// A rule that logs packets, some of them.
fn logging() -> Rule {
    let log = Statement::Log { group: 1, octets: 1 };
    Rule::always(Statement::Limit { rate: 1, burst: None }).then(log)
}

/// A table that is never put in force, with a chain of these rules if there are any.
fn probe<const N: usize>(rules: [Rule; N]) -> Commands {
    let table = Table::new("vpn_probe");
    let mut commands = Commands::default();
    commands.declare(&match rules.is_empty() {
        true => table,
        false => table.chain(&Chain::new("probe").rules(rules)),
    });
    commands
}

/// Whether the program and the kernel would take a script. Nothing is changed.
fn takes(script: &str) -> bool {
    // A refusal may have any cause once.
    (0..2).any(|_| start(&["-c", "-f", "-"], script).is_ok())
}

/// Carries out a script, all of it or nothing.
pub fn run(script: &str) -> io::Result<()> {
    start(&["-f", "-"], script).map(drop)
}

/// Starts a process that is to own a table, in the network namespace of the calling thread.
///
/// # Errors
/// If this host has no `nft`, or the system refuses it.
pub fn own(table: &str) -> io::Result<Box<dyn Owner>> {
    match RUNNER.get() {
        Some(runner) => runner.own(table),
        None => Ok(Box::new(Process::start(table)?)),
    }
}

/// Removes a table, if it is there.
pub fn remove(name: &str) -> io::Result<()> {
    if !available() {
        return Ok(());
    }
    let mut removal = Commands::default();
    removal.remove(name);
    match run(&removal) {
        Err(error) if is_of_a_kernel_without_tables(&error) => Ok(()),
        outcome => outcome,
    }
}

/// Whether the kernel lacks nftables (EPROTONOSUPPORT), or its family inet (EOPNOTSUPP).
fn is_of_a_kernel_without_tables(error: &io::Error) -> bool {
    let text = error.to_string();
    ["Protocol not supported", "Operation not supported"].iter().any(|words| text.contains(words))
}

/// Whether the system has a table. If nft cannot tell, there is none.
pub fn exists(table: &str) -> bool {
    available() && counters(table).is_ok()
}

/// The program's listing of the named counters of all tables.
pub fn all_counters() -> io::Result<String> {
    start(&["list", "counters"], "")
}

/// The program's listing of the named counters of a table.
pub fn counters(table: &str) -> io::Result<String> {
    start(&["list", "counters", "table", "inet", table], "")
}

/// The program's listing of all rules as JSON, without the elements of named sets.
pub fn ruleset() -> io::Result<String> {
    start(&["-j", "-t", "list", "ruleset"], "")
}

/// Conditions for what goes from any of `from` to any of `to`: one for each pair that can meet.
pub fn flows(from: &[Selector], to: &[Selector]) -> Vec<Matches> {
    let pairs = from.iter().flat_map(|f| {
        to.iter()
            .filter(move |t| {
                f.addresses.start().is_ipv4() == t.addresses.start().is_ipv4()
                    && (f.protocol == 0 || t.protocol == 0 || f.protocol == t.protocol)
            })
            .map(move |t| (f, t))
    });
    pairs.map(|(from, to)| flow(from, to)).collect()
}

/// Addresses, protocol and ports; types and codes of ICMP are not told.
fn flow(from: &Selector, to: &Selector) -> Matches {
    let flow = Match::Source(from.addresses).and(Match::Destination(to.addresses));
    let protocol = from.protocol.max(to.protocol);
    if protocol == 0 {
        return flow;
    }
    let mut flow = flow.and(Match::Protocol(&[protocol]));
    if matches!(protocol, 6 | 17 | 33 | 132 | 136) {
        if from.ports != PortRange::ANY {
            flow = flow.and(Match::SourcePort(from.ports));
        }
        if to.ports != PortRange::ANY {
            flow = flow.and(Match::DestinationPort(to.ports));
        }
    }
    flow
}

fn start(arguments: &[&str], input: &str) -> io::Result<String> {
    let mut process = None;
    // `is_own` waits until the number of the process is known.
    let mut processes = Some(own_processes());
    let mut started = |number| {
        let Some(mut processes) = processes.take() else { return };
        add_own(&mut processes, number);
        process = Some(number);
    };
    let outcome = match RUNNER.get() {
        Some(runner) => runner.run(arguments, input, &mut started),
        None => run_here(arguments, input, &mut started),
    };
    drop(processes);
    process.into_iter().for_each(ended);
    outcome
}

/// Runs the program as a child of this process, and returns its output. `started` is told the number of the child.
///
/// # Errors
/// If the program is not installed, fails, or takes too long.
pub fn run_here(
    arguments: &[&str],
    input: &str,
    started: &mut dyn FnMut(u32),
) -> io::Result<String> {
    let program = program().ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, "nftables' program nft is not installed")
    })?;
    let (reader, mut writer) = io::pipe()?;
    // The system's limit may be lower.
    let _ = fcntl_setpipe_size(&writer, input.len());
    let room = fcntl_getpipe_size(&writer)?.min(input.len());
    let (begin, rest) = input.as_bytes().split_at(room);
    // The program carries out the lines that it has got if this process is killed, so it begins with as much as
    // possible.
    writer.write_all(begin)?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(reader).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    started(child.id());
    drop(command);
    let output = kill_after(DEADLINE, child, |child| {
        // Its complaint says more than the broken pipe of a program that has ended.
        let _ = writer.write_all(rest);
        drop(writer);
        child.wait_with_output()
    });
    let output = output.map_err(|e| io::Error::new(e.kind(), format!("nft: {e}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("nft: {}", complaint.lines().next().unwrap_or("no reason given"))))
}

/// Waits for a child, and kills it if that takes longer than `deadline`.
fn kill_after<T>(
    deadline: Duration,
    mut child: Child,
    wait: impl FnOnce(Child) -> io::Result<T>,
) -> io::Result<T> {
    let watchdog = Watchdog::start(&child, deadline).inspect_err(|_| _ = child.kill())?;
    let result = wait(child);
    if watchdog.end() { Err(late(deadline)) } else { result }
}

fn late(deadline: Duration) -> io::Error {
    let text = format!("it took longer than {} s", deadline.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// A thread that kills a child after a while.
struct Watchdog {
    ended: mpsc::Sender<()>,
    thread: JoinHandle<bool>,
}

impl Watchdog {
    fn start(child: &Child, deadline: Duration) -> io::Result<Self> {
        // Not its number, which another process may have by then.
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let (ended, end) = mpsc::channel::<()>();
        let thread =
            std::thread::Builder::new().name("nft-deadline".to_owned()).spawn(move || {
                let late = end.recv_timeout(deadline) == Err(RecvTimeoutError::Timeout);
                if late {
                    // It may have ended just now.
                    let _ = pidfd_send_signal(process, Signal::KILL);
                }
                late
            })?;
        Ok(Self { ended, thread })
    }

    /// Ends the watch. Returns `true` if the child was late.
    fn end(self) -> bool {
        drop(self.ended);
        self.thread.join().unwrap_or(false)
    }
}

/// The changes of this process are no others', until some time after its [end](ended).
fn add_own(processes: &mut Vec<(u32, Option<Instant>)>, process: u32) {
    processes.retain(|(_, end)| end.is_none_or(|end| end.elapsed() < KEPT_AFTER_END));
    processes.push((process, None));
}

/// A process has ended, and its number is free.
fn ended(process: u32) {
    let now = Instant::now();
    own_processes()
        .iter_mut()
        .filter(|(id, end)| *id == process && end.is_none())
        .for_each(|(_, end)| *end = Some(now));
}

fn is_own(process: u32) -> bool {
    own_processes()
        .iter()
        .any(|(id, end)| *id == process && end.is_none_or(|end| end.elapsed() < KEPT_AFTER_END))
}

fn own_processes() -> MutexGuard<'static, Vec<(u32, Option<Instant>)>> {
    OWN_PROCESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of the program; `None` if this host does not have it.
pub fn program() -> Option<PathBuf> {
    match KEPT.get() {
        Some(kept) => {
            kept.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()).into())
        }
        None => NFT.into_iter().map(PathBuf::from).find(|path| path.exists()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::AddressRange;

    #[test]
    fn a_program_that_hangs_is_killed() {
        let child = Command::new("/bin/sleep").arg("1000").spawn().expect("it is there");
        let waited = kill_after(Duration::from_millis(20), child, |mut child| child.wait());
        assert_eq!(waited.expect_err("it never ends").kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_program_that_ends_is_waited_for() {
        let child = Command::new("/bin/true").spawn().expect("it is there");
        let waited = kill_after(Duration::from_secs(1000), child, |mut child| child.wait());
        assert!(waited.expect("it ends").success());
    }

    #[test]
    fn a_process_of_this_one_is_known_for_a_while() {
        // No process has this number.
        let process = 4_000_000_002;
        add_own(&mut own_processes(), process);
        assert!(is_own(process));
        ended(process);
        assert!(is_own(process), "the kernel may tell of its change now");
        let long_ago =
            Instant::now().checked_sub(KEPT_AFTER_END).expect("the host runs for longer");
        for (id, end) in own_processes().iter_mut() {
            *end = if *id == process { Some(long_ago) } else { *end };
        }
        assert!(!is_own(process), "another process may have the number");
    }

    #[test]
    fn the_scripts_of_probes_and_of_a_removal_are_as_expected() {
        assert_eq!(&*probe([]), "table inet vpn_probe {\n}\n");
        let ipsec = "table inet vpn_probe {\n  chain probe {\n    rt ipsec exists accept\n    meta ipsec exists accept\n  }\n}\n";
        assert_eq!(&*probe(super::ipsec()), ipsec);
        let log = "table inet vpn_probe {\n  chain probe {\n    limit rate 1/second log group 1 snaplen 1 queue-threshold 1\n  }\n}\n";
        assert_eq!(&*probe([logging()]), log);
        let mut removal = Commands::default();
        removal.remove("t");
        assert_eq!(&*removal, "table inet t\ndelete table inet t\n");
    }

    #[test]
    fn the_expressions_of_flows_are_as_expected() {
        let selector = |start: &str, end: &str, protocol, (first, last)| {
            let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
            Selector {
                protocol,
                addresses: AddressRange::new(start, end).expect("range"),
                ports: PortRange::new(first, last).expect("range"),
            }
        };
        let any = (0, u16::MAX);
        let from = [
            selector("192.0.2.1", "192.0.2.1", 6, (22, 22)),
            selector("10.1.0.0", "10.1.0.9", 0, any),
            selector("2001:db8::1", "2001:db8::ffff", 58, (128 << 8, (128 << 8) + 255)),
        ];
        let to = [
            selector("198.51.100.0", "198.51.100.2", 0, any),
            selector("10.2.0.0", "10.2.255.255", 17, (53, 54)),
            selector("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 0, any),
        ];
        let expected = [
            "ip saddr 192.0.2.1 ip daddr 198.51.100.0-198.51.100.2 meta l4proto 6 th sport 22-22",
            "ip saddr 10.1.0.0-10.1.0.9 ip daddr 198.51.100.0-198.51.100.2",
            "ip saddr 10.1.0.0-10.1.0.9 ip daddr 10.2.0.0-10.2.255.255 meta l4proto 17 th dport 53-54",
            "ip6 saddr 2001:db8::1-2001:db8::ffff ip6 daddr ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff meta l4proto 58",
        ];
        let flows = flows(&from, &to);
        assert_eq!(flows.iter().map(Matches::to_string).collect::<Vec<_>>(), expected);
        let mut commands = Commands::default();
        for flow in flows {
            commands.add_rule(["t", "c"], &flow.then(Statement::Drop));
        }
        let rules = expected.map(|flow| format!("add rule inet t c {flow} drop\n")).concat();
        assert_eq!(&*commands, rules);
    }

    #[test]
    fn table_names_are_plain() {
        assert_eq!(table("guard", "vpn0"), "vpn_guard_vpn0");
        assert_eq!(table("filter", "a.b-c; drop"), "vpn_filter_a_b_c__drop");
    }
}
