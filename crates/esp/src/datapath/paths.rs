//! Packets that are too long for the path, or cannot be sent as they are: path MTUs are learned here, and the senders
//! of such packets are told.

#![forbid(unsafe_code)]

use super::{Datapath, Installed, Shared, lock};
use crate::discard::Discard;
use crate::encap::Room;
use crate::gso::{Gso, Segmentation};
use crate::header::{Fragment, Header};
use crate::icmp;
use crate::path_mtu::{FrozenPath, Outer, Paths, TooBig};
use crate::plane::{Path, PlaneError, SaId, Spi};
use crate::rate::Bucket;
use crate::reassembly::Reassembly;
use crate::spd::Verdict;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The burst of messages to senders, and the time between later ones (RFC 4443 §2.4 (f)).
const ANSWERS: u32 = 128;
const ANSWER_EVERY: Duration = Duration::from_millis(1);

/// More answers than this are not kept; an owner that never takes them loses the newest.
const MAX_ANSWERS: usize = 256;

/// The state of a datapath beside its SAs. A packet that fits never reads it.
pub(super) struct Surroundings {
    paths: Mutex<Paths>,
    /// The time of the next check of a path, in nanoseconds since the epoch; `u64::MAX`: never.
    next_age: AtomicU64,
    tellable: Mutex<Bucket>,
    answers: Mutex<Vec<Vec<u8>>>,
    fragments: Mutex<Reassembly>,
    defragmented: DefragCounts,
    /// The number of SAs that send in transport mode. Without any, fragments are not collected.
    transports: AtomicUsize,
}

impl Surroundings {
    pub(super) fn new() -> Self {
        Self {
            paths: Mutex::default(),
            next_age: AtomicU64::new(u64::MAX),
            tellable: Mutex::new(Bucket::new(ANSWERS, ANSWER_EVERY)),
            answers: Mutex::default(),
            fragments: Mutex::default(),
            defragmented: DefragCounts::default(),
            transports: AtomicUsize::new(0),
        }
    }
}

/// The fragments of this host's own packets that were collected, and the packets that came of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// Fragments that were taken in.
    pub fragments: u64,
    /// Octets of these.
    pub octets: u64,
    /// Packets that were put together.
    pub packets: u64,
}

#[derive(Default)]
struct DefragCounts {
    fragments: AtomicU64,
    octets: AtomicU64,
    packets: AtomicU64,
}

/// The decision about a refused packet, after a second look.
pub(super) enum Retry {
    /// It is refused.
    Refused(Discard),
    /// It may be tried once more: the knowledge of its path was out of date.
    Again,
    /// It was the last fragment of this packet.
    Whole(Vec<u8>),
    /// It is a fragment, and kept.
    Kept,
}

impl Datapath {
    /// Takes an ICMP message in IPv4 from the network, from the IP header on. Only a message about the length of an ESP
    /// or AH packet counts; all others are ignored.
    ///
    /// # Errors
    /// Where such a message is not believed, which is counted.
    pub fn take_icmp_v4(&self, now: Instant, packet: &[u8]) -> Result<(), Discard> {
        self.learn(now, icmp::read_v4(packet, self.0.settings.natt_port))
    }

    /// The same for ICMPv6, from the ICMP header on; its checksum must have been checked.
    ///
    /// # Errors
    /// Where such a message is not believed, which is counted.
    pub fn take_icmp_v6(&self, now: Instant, message: &[u8]) -> Result<(), Discard> {
        self.learn(now, icmp::read_v6(message, self.0.settings.natt_port))
    }

    fn learn(&self, now: Instant, told: Option<TooBig>) -> Result<(), Discard> {
        let shared = &*self.0;
        match (told, shared.settings.outer.learned_for) {
            (Some(told), Some(lifetime)) => shared
                .learn(shared.since_epoch(now), &told, lifetime)
                .map_err(|discard| shared.counters.count(discard)),
            _ => Ok(()),
        }
    }

    /// Forgets what networks said too long ago. Packets that were refused for it do the same; TCP, which is told at the
    /// beginning of a connection, profits from a call now and then.
    pub fn age_paths(&self, now: Instant) {
        self.0.age_paths(self.0.since_epoch(now));
    }

    /// The fragments that were collected for SAs in transport mode.
    pub fn defragmented(&self) -> Defragmented {
        let counts = &self.0.surroundings.defragmented;
        let [fragments, octets, packets] =
            [&counts.fragments, &counts.octets, &counts.packets].map(|count| count.load(Relaxed));
        Defragmented { fragments, octets, packets }
    }

    /// ICMP messages for the hosts behind the tunnel since the last call, oldest first; always empty with
    /// [`Settings::on_answer`](super::Settings::on_answer).
    pub fn take_answers(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *lock(&self.0.surroundings.answers))
    }
}

impl Shared {
    /// The limits for packets of an SA on this path.
    pub(super) fn room(&self, path: &Path) -> Room {
        let settings = &self.settings;
        let (known, learned) = lock(&self.surroundings.paths).mtu(path.remote.ip());
        Room {
            outer_mtu: if settings.mss_clamp { settings.outer.mtu().into() } else { 0 },
            path_mtu: known.min(settings.outer.longest()),
            learned: learned && known < settings.outer.longest(),
            device_mtu: self.device_mtu.load(Relaxed),
            df: settings.outer.df,
        }
    }

    /// An SA comes to a path; `spi` is that of one that sends.
    pub(super) fn enter_path(&self, path: &Path, sa: SaId, spi: Option<Spi>) {
        let mut paths = lock(&self.surroundings.paths);
        if paths.enter(path.remote.ip(), sa, spi, &|peer| self.system_mtu(peer)) {
            self.surroundings.next_age.store(0, Relaxed);
        }
    }

    pub(super) fn leave_path(&self, path: &Path, sa: SaId, spi: Option<Spi>) {
        lock(&self.surroundings.paths).leave(path.remote.ip(), sa, spi);
    }

    /// The paths to all peers.
    pub(super) fn frozen_paths(&self) -> Vec<FrozenPath> {
        lock(&self.surroundings.paths).frozen()
    }

    /// Goes on with paths; no SA is there yet.
    ///
    /// # Errors
    /// If no network can have said that of a path.
    pub(super) fn go_on_with_paths(&self, frozen: Vec<FrozenPath>) -> Result<(), PlaneError> {
        let mut paths = lock(&self.surroundings.paths);
        for path in frozen {
            if !paths.go_on(path) {
                return Err(PlaneError::System {
                    what: format!("going on with the path to {}", path.peer),
                    why: "its MTU is none that a path can have".into(),
                });
            }
        }
        Ok(())
    }

    /// All SAs have come to their paths.
    pub(super) fn settle_paths(&self) {
        let mut paths = lock(&self.surroundings.paths);
        paths.forget_unused();
        let next = paths.next_age().map_or(u64::MAX, nanos);
        self.surroundings.next_age.store(next, Relaxed);
    }

    pub(super) fn count_transports(&self, change: impl FnOnce(&AtomicUsize)) {
        change(&self.surroundings.transports);
    }

    /// The MTU that the system knows for a peer, if it is below the configured one.
    fn system_mtu(&self, peer: IpAddr) -> Option<usize> {
        let ask = self.settings.system_mtu.as_ref()?;
        ask(peer).filter(|mtu| *mtu < self.settings.outer.longest())
    }

    fn learn(&self, now: Duration, told: &TooBig, lifetime: Duration) -> Result<(), Discard> {
        let installed = lock(&self.installed);
        let (paths, at_most) = (&self.surroundings.paths, self.settings.outer.longest());
        let changed = lock(paths).learn(now, told, lifetime, at_most)?;
        self.surroundings.next_age.fetch_min(nanos(now.saturating_add(lifetime)), Relaxed);
        if !changed.is_empty() {
            tracing::info!(peer = %told.peer, mtu = told.mtu, "the path carries less");
        }
        changed.iter().filter_map(|sa| installed.get(sa)).for_each(|sa| self.refit(sa));
        Ok(())
    }

    /// Returns whether an SA's packets may be longer now.
    fn age_paths(&self, now: Duration) -> bool {
        if self.surroundings.next_age.load(Relaxed) > now.as_nanos() as u64 {
            return false;
        }
        let installed = lock(&self.installed);
        let lifetime = self.settings.outer.learned_for.unwrap_or(Outer::LEARNED_FOR);
        let changed = {
            let mut paths = lock(&self.surroundings.paths);
            let changed = paths.age(now, lifetime, &|peer| self.system_mtu(peer));
            let next = paths.next_age().map_or(u64::MAX, nanos);
            self.surroundings.next_age.store(next, Relaxed);
            changed
        };
        changed.iter().filter_map(|sa| installed.get(sa)).for_each(|sa| self.refit(sa));
        !changed.is_empty()
    }

    /// Has an SA follow a change of its path, or of the device.
    pub(super) fn refit(&self, sa: &Installed) {
        match sa {
            Installed::Inbound(sa) => sa.refit(self.room(&sa.path())),
            Installed::Outbound { sa, .. } => sa.refit(self.room(&sa.path())),
        }
    }

    /// A second look at a packet that was refused.
    #[cold]
    pub(super) fn retry(
        &self,
        now: Duration,
        refused: Discard,
        packet: &mut [u8],
        gso: Gso,
    ) -> Retry {
        match refused {
            Discard::TooBig if self.age_paths(now) => Retry::Again,
            Discard::TooBig => Retry::Refused(self.tell_too_big(now, packet, gso)),
            Discard::TransportFragment => self.keep_fragment(now, packet, refused),
            // A later fragment shows no ports for a rule to go by; the whole packet does.
            Discard::NoPolicy if self.surroundings.transports.load(Relaxed) > 0 => {
                self.keep_fragment(now, packet, refused)
            }
            _ => Retry::Refused(refused),
        }
    }

    fn keep_fragment(&self, now: Duration, packet: &[u8], refused: Discard) -> Retry {
        let header = Header::parse(packet);
        let Some(header) = header.filter(|h| h.fragment != Fragment::Whole) else {
            return Retry::Refused(refused);
        };
        let shows_ports = header.fragment != Fragment::Later;
        if refused == Discard::NoPolicy
            && (shows_ports || !self.is_transport_peer(header.destination()))
        {
            return Retry::Refused(refused);
        }
        let taken = lock(&self.surroundings.fragments).take(now, packet, &header, &|| {
            self.counters.count(Discard::TransportFragment);
        });
        let counts = &self.surroundings.defragmented;
        if let Ok(whole) = &taken {
            counts.fragments.fetch_add(1, Relaxed);
            counts.octets.fetch_add(packet.len() as u64, Relaxed);
            counts.packets.fetch_add(u64::from(whole.is_some()), Relaxed);
        }
        match taken {
            Ok(Some(whole)) => Retry::Whole(whole),
            Ok(None) => Retry::Kept,
            Err(discard) => Retry::Refused(discard),
        }
    }

    fn is_transport_peer(&self, peer: IpAddr) -> bool {
        lock(&self.installed).values().any(|sa| match sa {
            Installed::Outbound { sa, .. } => sa.transports_to(peer),
            Installed::Inbound(_) => false,
        })
    }

    fn tell_too_big(&self, now: Duration, packet: &mut [u8], gso: Gso) -> Discard {
        if !lock(&self.surroundings.tellable).take(now) {
            return Discard::TooBigUntold;
        }
        let Some(mut header) = Header::parse(packet) else { return Discard::TooBigUntold };
        if gso.segmentation != Segmentation::None {
            header.len = packet.len();
        }
        let Verdict::Protect(sa) = self.spd.lookup(&header) else { return Discard::TooBigUntold };
        let Some(answer) = sa.told_too_big(packet, &header, gso) else {
            return Discard::TooBigUntold;
        };
        match &self.settings.on_answer {
            Some(hook) => hook(&answer),
            None => {
                let mut answers = lock(&self.surroundings.answers);
                if answers.len() < MAX_ANSWERS {
                    answers.push(answer);
                }
            }
        }
        Discard::TooBig
    }
}

/// As a number; a moment after the year 2500 is the largest one.
fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}
