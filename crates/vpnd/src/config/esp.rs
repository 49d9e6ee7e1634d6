//! `[esp]`

use super::workers;
use ::control::protocol::DEFAULT_STORE;
use ::esp::path_mtu::{self, Outer};
use floor::{DEFAULT_DEVICE, DEFAULT_STATE_DIR, KernelOffload};
use serde::Deserialize;
use settings::{Judged, Named, Span, Times, word};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use userspace::Wait;
use userspace::workers::{Affinity, Count, Schedule, Settings};
use vpn::GuardSettings;
use vpn::planes::Choice;
use xfrm::placement::{self, Wanted};

settings::section! {
    /// `[esp]`: the data plane.
    pub struct Esp = "esp" {
        /// Who protects packets: "userspace" (vpnd), "xfrm" (the kernel), or "auto" (the kernel where it can, otherwise vpnd; the
        /// log and "vpnctl status" give the reason). docs/operate/planes.md lists the differences.
        pub dataplane: Named<Choice> = Named::default();
        /// Size of the anti-replay window, in packets: a packet that is this far behind the newest one is refused. 0 turns the
        /// check off.
        pub replay_window: u32 = ::ike::Config::default().replay_window;
        /// When ESP goes in UDP (port 4500) instead of IP protocol 50. "auto": with a NAT on the path, and also without one between
        /// two vpnd that both have UDP segmentation offload, because UDP is faster there; firewalls on the way then see UDP only.
        /// "always": also without a NAT. "never": only with a NAT on the path, as RFC 7296 section 2.23 has it.
        /// "vpnctl status NAME" shows which one a tunnel uses.
        pub encap: Encap = Encap::Auto, written word;
        /// Octets of the longest packet that the networks between the peers carry. Lower it if a network on the way carries less and
        /// sends no ICMP about it: otherwise large packets vanish. Raise it if all networks carry more, for example 9000.
        pub outer_mtu: u16 = Outer::default().mtu(), range SMALLEST_MTU..=u16::MAX;
        /// The Don't Fragment bit of outer IPv4 headers in tunnel mode: "set" (path MTU discovery), "clear" (routers fragment
        /// packets that are too long for them) or "copy" (as in the inner packet). See docs/understand/datapath.md.
        pub df: Df = Df::Set, written word;
        /// How long vpnd remembers a path MTU that a router has reported: "2m" to "24h". "off": vpnd ignores such reports.
        pub path_mtu_lifetime: Span = Span(Outer::default().learned_for), range LIFETIMES;
        /// The offload that vpnd asks of network cards for SAs in the kernel (docs/operate/offload.md): "off", "crypto"
        /// (the cryptography), "packet" (all ESP processing), or "auto" (packet, otherwise crypto). If the card refuses
        /// an SA, the kernel handles it in software; "vpnctl offload" shows the reason.
        #[serde(deserialize_with = "workers::by_name")]
        pub offload: Wanted = Wanted::default(), written word;
        /// The network card. Empty: the one through which packets to the peer leave.
        pub offload_device: String = String::new();
        /// Name of the TUN device.
        pub device: String = DEFAULT_DEVICE.to_owned(), range Judged(device_name);
        /// Directory in which vpnd records its changes to the system, so that the next start can undo them after a crash.
        pub state_dir: PathBuf = PathBuf::from(DEFAULT_STATE_DIR);
        /// File in which vpnd writes down what the guard holds (docs/operate/planes.md), so that it is guarded also at
        /// a boot at which the policy cannot be read. Empty: guard.DEVICE in /var/lib/vpnd, or in state_dir if that is
        /// another directory than /run/vpnd.
        guard_file: PathBuf = PathBuf::new();
        /// File in which vpnd records the sequence numbers used by SAs without IKE (see the end of this file), so that no number is
        /// used twice after a restart.
        pub sequences: PathBuf = PathBuf::from(vpn::manual::DEFAULT_LEDGER);
        /// The next four settings are about the threads that carry packets: docs/operate/workers.md. "vpnctl workers
        /// set" changes them while vpnd runs. Number of threads: "auto", or a number up to 64.
        #[serde(deserialize_with = "workers::count")]
        pub workers: Count = Count::default(), written workers::count_in_toml;
        /// "run-to-completion": one thread does all the work on a packet. "pipeline": one thread reads, and all of them encrypt.
        #[serde(deserialize_with = "workers::by_name")]
        pub schedule: Schedule = Schedule::default(), written workers::name_in_toml;
        /// A thread without packets sleeps ("event"), polls without sleeping ("poll": no delay for a wake-up, but a whole core is
        /// busy), or polls for a moment and then sleeps ("adaptive").
        #[serde(deserialize_with = "workers::by_name")]
        pub wait: Wait = Wait::default(), written workers::name_in_toml;
        /// CPUs for the threads, as in [0, 2]: the first thread runs on CPU 0, the second on CPU 2. Empty: any CPU.
        #[serde(deserialize_with = "workers::affinity")]
        pub affinity: Affinity = Affinity::default(), written workers::affinity_in_toml;
        /// Segmentation offloads of the kernel that vpnd leaves unused, for drivers that get them wrong: "device-offload" (TUN
        /// device), "udp-segmentation" (sending), "udp-gro" (receiving). Without them, throughput is far lower.
        #[serde(deserialize_with = "workers::without")]
        pub without: BTreeSet<KernelOffload> = BTreeSet::new(), written workers::without_in_toml;
    }
}

/// Every host accepts packets of 576 octets over IPv4 (RFC 791 §3.1).
const SMALLEST_MTU: u16 = 576;
/// RFC 1191 §6.3: not more than once in two minutes; ten are usual.
const LIFETIMES: Times =
    Times::between(Duration::from_secs(120), Duration::from_secs(86_400)).or_off();

fn device_name(name: &str) -> Result<(), &'static str> {
    if name.contains('"') {
        return Err(
            "nftables cannot name a device with a quotation mark in its rules: leave it out",
        );
    }
    let valid = (1..=15).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'/' | b':' | b'%'))
        && !matches!(name, "." | ".." | "all" | "default");
    let rule = "a device name has 1 to 15 printable characters without blanks, / : and %";
    valid.then_some(()).ok_or(rule)
}

/// The bit Don't Fragment of outer IPv4 headers in tunnel mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Df {
    /// Set.
    #[default]
    Set,
    /// Not set.
    Clear,
    /// As in the inner header.
    Copy,
}

impl From<Df> for path_mtu::Df {
    fn from(df: Df) -> Self {
        match df {
            Df::Set => Self::Set,
            Df::Clear => Self::Clear,
            Df::Copy => Self::Copy,
        }
    }
}

/// UDP encapsulation of ESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encap {
    /// If there is a NAT, or UDP is faster.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Only if there is a NAT.
    Never,
}

impl Esp {
    /// A configuration of IKE with the settings of this section that peers negotiate.
    pub(super) fn ike(&self, config: ::ike::Config) -> ::ike::Config {
        ::ike::Config {
            replay_window: self.replay_window,
            encap: match self.encap {
                Encap::Auto => ::ike::Encap::Auto,
                Encap::Always => ::ike::Encap::Always,
                Encap::Never => ::ike::Encap::Never,
            },
            ..config
        }
    }

    /// The settings that hold for all planes.
    pub(super) fn floor(&self) -> floor::Settings {
        floor::Settings {
            device: self.device.clone(),
            state_dir: self.state_dir.clone(),
            without: self.without.clone(),
            ..floor::Settings::default()
        }
    }

    /// The userspace plane.
    pub(super) fn userspace(&self) -> userspace::Settings {
        userspace::Settings {
            outer: Outer {
                mtu: Some(self.outer_mtu),
                df: self.df.into(),
                learned_for: self.path_mtu_lifetime.0,
            },
            ..userspace::Settings::default()
        }
    }

    /// The guard, as far as this section describes it.
    pub(super) fn guard(&self) -> GuardSettings {
        GuardSettings { file: Some(self.guard_file()), ..GuardSettings::default() }
    }

    /// The threads that carry packets.
    pub(super) fn threads(&self) -> Settings {
        Settings {
            workers: self.workers,
            schedule: self.schedule,
            wait: self.wait,
            affinity: self.affinity.clone(),
        }
    }

    /// The offload of tunnels without settings of their own.
    pub(super) fn placement(&self) -> placement::Choice {
        let device = (!self.offload_device.is_empty()).then(|| self.offload_device.clone());
        placement::Choice { wanted: self.offload, device }
    }

    /// The file with the guard that was in force last, by which the tunnels are guarded if the policy cannot be read. A
    /// gateway with a state directory of its own has it there.
    pub fn guard_file(&self) -> PathBuf {
        if !self.guard_file.as_os_str().is_empty() {
            return self.guard_file.clone();
        }
        let of_host = self.state_dir == Path::new(DEFAULT_STATE_DIR);
        let directory = if of_host { Path::new(DEFAULT_STORE) } else { &self.state_dir };
        directory.join(format!("guard.{}", self.device))
    }
}
