//! Network namespaces, the wires between them, and what is to be seen on those.
//!
//! Nothing has a name in the system: whatever happens to the test, the kernel removes it with the test's threads.

use crate::{output, until};
use namespaces::capture::{Capture, Seen};
use namespaces::isolation::Namespace;
use nix::net::if_::if_nametoindex;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A network namespace.
pub struct Space(pub Namespace);

impl Space {
    /// An empty one with its loopback device up.
    pub fn new(name: &str) -> Self {
        let space = Self(Namespace::new(name).expect("namespaces can be made"));
        // Group memberships and the like would blur what is seen on the wires.
        space.set("ipv6/conf/default/router_solicitations", "0");
        space.set("ipv6/conf/default/accept_dad", "0");
        space.ip("link set lo up");
        space
    }

    /// Does something inside.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.0.run(work)
    }

    /// Output of `ip` with these arguments.
    pub fn ip(&self, arguments: &str) -> String {
        self.sh(&format!("ip {arguments}"))
    }

    /// Output of a program with arguments that have no spaces.
    pub fn sh(&self, line: &str) -> String {
        let command = command(line);
        self.run(move || output(command))
    }

    /// Output of a program, standard error included, whether it succeeds or not.
    pub fn try_sh(&self, line: &str) -> (bool, String) {
        let mut command = command(line);
        let output = self.run(move || command.output()).expect("the program is there");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Writes a kernel setting below `/proc/sys/net`.
    pub fn set(&self, name: &str, value: &'static str) {
        let path = Path::new("/proc/sys/net").join(name);
        let written =
            self.run(move || fs::write(&path, value).map_err(|e| format!("{path:?}: {e}")));
        written.expect("the setting exists");
    }

    /// Connects two namespaces. Each end is named by the namespace, the device and its addresses with prefixes.
    pub fn connect(left: (&Self, &str, &[&str]), right: (&Self, &str, &[&str])) {
        let there = right.0.run(|| {
            let thread = nix::unistd::gettid();
            format!("/proc/{}/task/{thread}/ns/net", std::process::id())
        });
        let (device, peer) = (left.1, right.1);
        left.0.ip(&format!("link add {device} type veth peer name {peer} netns {there}"));
        for (space, device, addresses) in [left, right] {
            for address in addresses {
                let nodad = if address.contains(':') { " nodad" } else { "" };
                space.ip(&format!("address add {address} dev {device}{nodad}"));
            }
            space.ip(&format!("link set {device} up"));
        }
        for (space, device, _) in [left, right] {
            let up = || space.ip(&format!("link show {device}")).contains("LOWER_UP").then_some(());
            until("a carrier", up, || space.ip("link"));
            // The kernel gives a device its link-local address in its own time.
            let routes = || space.ip(&format!("-6 route show table local dev {device}"));
            let settled = || {
                let routes = routes();
                ["local fe80:", "multicast ff00::/8"]
                    .iter()
                    .all(|r| routes.contains(r))
                    .then_some(())
            };
            until("a link-local address", settled, routes);
        }
    }

    /// Starts to watch a device for packets in the clear.
    pub fn watch(&self, device: &'static str) -> Watch {
        let capture = self.run(move || Capture::start(if_nametoindex(device)?));
        Watch(capture.expect("a packet socket"))
    }

    /// The same for what leaves by it alone.
    pub fn watch_leaving(&self, device: &'static str) -> Watch {
        let capture = self.run(move || Capture::of_leaving(if_nametoindex(device)?));
        Watch(capture.expect("a packet socket"))
    }

    /// Everything about the network that can be set: devices, rules, all routes, nftables, kernel settings.
    pub fn state(&self) -> String {
        let mut state = String::new();
        for line in [
            "ip -br link",
            "ip rule",
            "ip -6 rule",
            "ip route show table all",
            "ip -6 route show table all",
            "nft list ruleset",
        ] {
            let (_, text) = self.try_sh(line);
            state.push_str(&format!("# {line}\n{text}"));
        }
        state
            + &self.run(|| {
                let mut settings = Vec::new();
                for root in ["/proc/sys/net/ipv4", "/proc/sys/net/ipv6"] {
                    collect(Path::new(root), &mut settings);
                }
                settings.sort();
                settings.concat()
            })
    }

    /// Compares with an earlier state; the order in which the kernel lists things does not count.
    ///
    /// # Panics
    /// Where they differ.
    pub fn is_as_before(&self, before: &str) {
        let state = self.state();
        let mut new: Vec<&str> = state.lines().collect();
        let mut gone = Vec::new();
        for line in before.lines() {
            match new.iter().position(|other| *other == line) {
                Some(index) => drop(new.swap_remove(index)),
                None => gone.push(line),
            }
        }
        let same = gone.is_empty() && new.is_empty();
        assert!(same, "not every change is undone\ngone: {gone:#?}\nnew: {new:#?}");
    }

    /// The kernel's counters of packets that it took and then lost, for a message.
    pub fn kernel_losses(&self) -> String {
        let names = [
            "Udp InErrors",
            "Udp RcvbufErrors",
            "Udp SndbufErrors",
            "Ip OutDiscards",
            "Ip OutNoRoutes",
        ];
        let counters = names.map(|name| format!("{name} {}", self.counter(name)));
        let devices = self.run(|| fs::read_to_string("/proc/thread-self/net/dev"));
        // Of the machine, in hexadecimal: the second column counts what found no room between two devices.
        let queues = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        format!("{counters:?}\n{}{queues}", devices.unwrap_or_default())
    }

    /// Whether all of `count` echo requests are answered. None is taken for lost that is merely late.
    pub fn pings(&self, options: &str, count: u32, to: &str) -> Result<(), String> {
        // With a deadline, ping sends until it has as many answers, and where one is late, one more.
        let (_, text) = self.try_sh(&format!("ping -q -c {count} -i 0.01 -w 120 {options} {to}"));
        let before = text.split(" received").next().and_then(|t| t.split_whitespace().last());
        let received = before.and_then(|number| number.parse().ok());
        if received.is_some_and(|n: u32| n >= count) { Ok(()) } else { Err(text) }
    }

    /// As [`pings`](Self::pings), and exactly `count` requests are sent: each one waits for the answer to the one
    /// before.
    pub fn echoes(&self, options: &str, count: u32, to: &str) -> Result<(), String> {
        for _ in 0..count {
            let (answered, text) = self.try_sh(&format!("ping -q -c 1 -W 120 {options} {to}"));
            if !answered {
                return Err(text);
            }
        }
        Ok(())
    }

    /// A number of `/proc/net/snmp` or `snmp6`, such as `Ip FragCreates` or `Ip6FragCreates`.
    pub fn counter(&self, name: &str) -> u64 {
        let (snmp, snmp6) = self.run(|| {
            let read = |f| fs::read_to_string(format!("/proc/thread-self/net/{f}"));
            (read("snmp").expect("there"), read("snmp6").expect("there"))
        });
        let number = |text: &str| text.parse().expect("a number");
        if let Some((protocol, field)) = name.split_once(' ') {
            let mut lines = snmp.lines().filter(|l| l.starts_with(&format!("{protocol}:")));
            let names = lines.next().expect("names").split_whitespace();
            let values = lines.next().expect("values").split_whitespace();
            let found = names.zip(values).find(|(n, _)| *n == field);
            return number(found.expect("a counter of that name").1);
        }
        let found = snmp6.lines().find_map(|l| l.strip_prefix(name)?.trim().into());
        number(found.expect("a counter of that name"))
    }
}

fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    command
}

/// Settings that change by themselves, or tell only of the whole system.
const RESTLESS: [&str; 4] = ["stat", "tcp_mem", "udp_mem", "tcp_fastopen_key"];

fn collect(directory: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, into);
        } else if !RESTLESS.iter().any(|name| path.ends_with(name))
            && let Ok(value) = fs::read_to_string(&path)
        {
            into.push(format!("{} = {}\n", path.display(), value.trim_end()));
        }
    }
}

/// A running watch on a device.
pub struct Watch(Capture);

impl Watch {
    /// Ends it: every packet that passed was ESP, IKE, or how neighbours find each other.
    ///
    /// # Panics
    /// Where something else passed.
    pub fn nothing_in_the_clear(self) -> Seen {
        let seen = self.0.finish().expect("the watch counts");
        let begins = seen.first_cleartext.as_deref().unwrap_or_default();
        let hex: String = begins.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(seen.cleartext, 0, "in the clear; the first frame begins {hex}");
        seen
    }
}
