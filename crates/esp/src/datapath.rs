//! Packets to ESP and back, without I/O: the SAD and the SPD, and the two directions over them.

#![forbid(unsafe_code)]

use crate::discard::{Counters, Discard};
use crate::families::FamilySwitch;
use crate::gso::{Gso, Segmentation};
use crate::header::Header;
use crate::inbound::Inbound;
use crate::outbound::{Outbound, Unsent};
use crate::plane::{Notice, Path, SaId, Spi, Usage};
use crate::queue::{Coalesce, ReceiveQueue, SendQueue};
use crate::sad::{Found, Sad};
use crate::spd::{Entry, Service, Spd, Verdict};
use crypto::{KeyedSa, KeyedSas, Suite};
use early::Early;
use paths::{Retry, Surroundings};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod data_plane;
mod early;
pub mod frozen;
mod paths;
mod sender;
mod settings;
pub mod stages;

pub use crate::queue::SaLookups;
pub use crate::sa::Arrival;
pub use crate::spd::Lookups;
pub use paths::Defragmented;
pub use sender::Sender;
pub use settings::{Inward, Settings};

/// The pure packet work of the userspace plane. Clones share everything.
#[derive(Clone)]
pub struct Datapath(Arc<Shared>);

impl fmt::Debug for Datapath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datapath").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

struct Shared {
    settings: Settings,
    /// The zero of all times in the datapath.
    epoch: Instant,
    counters: Counters,
    sad: Sad,
    /// The inbound SAs of AH, whose SPIs are other ones (RFC 4301 §4.1).
    ah_sad: Sad,
    early: Early,
    spd: Spd,
    /// The address families that tunnels may use; the SPD and the inbound SAs have it, too.
    families: Arc<FamilySwitch>,
    /// Octets of the longest packet that the device takes.
    device_mtu: AtomicUsize,
    surroundings: Surroundings,
    /// No SA seals or takes a packet. It changes while `installed` is locked; packets ask their SA instead.
    frozen: AtomicBool,
    /// Every SA by name. Its lock makes changes happen one at a time; packets never take it.
    installed: Mutex<BTreeMap<SaId, Installed>>,
    /// Rules with kept packets that an SA has arrived for.
    releasable: Mutex<Vec<Arc<Service>>>,
    notices: Mutex<VecDeque<Notice>>,
}

/// A packet from the device that looks for its SA.
struct Outgoing<'p> {
    packet: &'p mut [u8],
    gso: Gso,
    /// The packet of which `packet` was the last fragment. It replaces `packet`.
    joined: Option<Vec<u8>>,
}

impl<'p> Outgoing<'p> {
    fn new(packet: &'p mut [u8], gso: Gso) -> Self {
        Self { packet, gso, joined: None }
    }

    fn octets(&mut self) -> &mut [u8] {
        self.joined.as_deref_mut().unwrap_or(self.packet)
    }
}

enum Installed {
    Inbound(Arc<Inbound>),
    Outbound { sa: Arc<Outbound>, service: Arc<Service> },
}

impl Installed {
    fn operated(&self) -> &dyn KeyedSa {
        match self {
            Self::Inbound(sa) => &**sa,
            Self::Outbound { sa, .. } => &**sa,
        }
    }

    fn usage(&self, epoch: Instant) -> Usage {
        match self {
            Self::Inbound(sa) => sa.usage(epoch),
            Self::Outbound { sa, .. } => sa.usage(epoch),
        }
    }
}

/// More notices than this are not kept; an owner that never takes them loses the newest.
const MAX_NOTICES: usize = 4096;

impl Datapath {
    /// Makes a datapath without rules and SAs, which therefore drops everything.
    pub fn new(settings: Settings, now: Instant) -> Self {
        let families = Arc::<FamilySwitch>::default();
        let shared = Arc::new(Shared {
            settings,
            epoch: now,
            counters: Counters::new(),
            sad: Sad::new(),
            ah_sad: Sad::new(),
            early: Early::default(),
            spd: Spd::new(Arc::clone(&families)),
            families,
            device_mtu: AtomicUsize::new(usize::MAX),
            surroundings: Surroundings::new(),
            frozen: AtomicBool::new(false),
            installed: Mutex::default(),
            releasable: Mutex::default(),
            notices: Mutex::default(),
        });
        shared.settings.crypto.enlist(Arc::downgrade(&shared) as _);
        Self(shared)
    }

    /// Takes note of the MTU of the device whose packets it protects: TCP is told of nothing that would not fit.
    pub fn set_device_mtu(&self, mtu: usize) {
        let installed = lock(&self.0.installed);
        self.0.device_mtu.store(mtu, Relaxed);
        installed.values().for_each(|sa| self.0.refit(sa));
    }

    /// Protects a packet from the TUN device, or each segment of a super-packet, and appends the ESP packets to
    /// `queue`. `packet` is scratch space: its contents are undefined afterwards. A packet that is kept until an SA
    /// arrives ([`Rule::trap`](crate::plane::Rule::trap)) is a success, too.
    pub fn encapsulate(
        &self,
        now: Instant,
        packet: &mut [u8],
        gso: Gso,
        queue: &mut SendQueue,
    ) -> Result<(), Discard> {
        let shared = &*self.0;
        shared.encapsulate(now, packet, gso, queue, &mut |header| shared.spd.lookup(header))
    }

    /// Opens an ESP packet (from the SPI on) and appends the inner packet to `queue`. A packet that is kept until its
    /// SA arrives ([`EarlyPackets`](crate::plane::EarlyPackets)) is a success, too.
    pub fn decapsulate(
        &self,
        now: Instant,
        datagram: &[u8],
        arrival: Arrival,
        queue: &mut ReceiveQueue,
    ) -> Result<(), Discard> {
        let shared = &*self.0;
        let found = shared.find_or_keep(datagram, &arrival);
        queue.looked_up(SaLookups::of(matches!(found, Ok(Some(_)))));
        found
            .and_then(|sa| {
                let Some(sa) = sa else { return Ok(()) };
                let mut receiving = sa.receive();
                let outcome = receiving.open(shared.since_epoch(now), datagram, &arrival, queue);
                receiving.finish(&|notice| shared.notify(notice));
                outcome
            })
            .map_err(|discard| shared.counters.count(discard))
    }

    /// Checks a packet with AH, cut before it by [`ah::split`](crate::ah::split), and appends what it covers to
    /// `queue`.
    pub fn decapsulate_ah(
        &self,
        now: Instant,
        packet: (&[u8], &[u8]),
        arrival: Arrival,
        queue: &mut ReceiveQueue,
    ) -> Result<(), Discard> {
        let shared = &*self.0;
        let now = shared.since_epoch(now);
        let spi = packet.1.get(4..8).and_then(<[u8]>::first_chunk).ok_or(Discard::AhHeader);
        spi.and_then(|spi| {
            let sa = shared.ah_sad.find(Spi(u32::from_be_bytes(*spi)), &arrival.path);
            queue.looked_up(SaLookups::of(sa.is_some()));
            sa.ok_or(Discard::UnknownSpi)
        })
        .and_then(|sa| {
            let mut receiving = sa.receive();
            let outcome = receiving.open_ah(now, packet, &arrival, queue);
            receiving.finish(&|notice| shared.notify(notice));
            outcome
        })
        .map_err(|discard| shared.counters.count(discard))
    }

    /// Opens several ESP packets that arrived together: each `segment_len` octets, the last may be shorter, as UDP GRO
    /// hands them over. Returns how many were accepted; the others are counted.
    pub fn decapsulate_run(
        &self,
        now: Instant,
        datagrams: &[u8],
        segment_len: usize,
        arrival: Arrival,
        queue: &mut ReceiveQueue,
    ) -> usize {
        let shared = &*self.0;
        let since_epoch = shared.since_epoch(now);
        let segment_len = segment_len.max(1);
        let mut accepted = 0;
        shared.prefetch(datagrams.chunks(segment_len));
        let lookups = shared.for_each_run(datagrams, segment_len, &arrival, |sa, _, run| {
            let mut receiving = sa.receive();
            for datagram in run.chunks(segment_len) {
                match receiving.open(since_epoch, datagram, &arrival, queue) {
                    Ok(()) => accepted += 1,
                    Err(discard) => _ = shared.counters.count(discard),
                }
            }
            receiving.finish(&|notice| shared.notify(notice));
        });
        queue.looked_up(lookups);
        accepted
    }

    /// Protects the packets that were kept for SAs which have arrived since.
    pub fn flush_held(&self, now: Instant, queue: &mut SendQueue) {
        let shared = &*self.0;
        if shared.frozen.load(Relaxed) {
            return;
        }
        let since_epoch = shared.since_epoch(now);
        // A statement of its own, so that the lock is free again: protecting a packet may need it.
        let releasable = std::mem::take(&mut *lock(&shared.releasable));
        for service in releasable {
            // An SA that has gone again leaves them to the next one.
            while service.is_served()
                && let Some(mut packet) = service.release()
            {
                if packet.is_stale(since_epoch) {
                    shared.counters.count(Discard::HoldExpired);
                    service.count_unserved();
                    continue;
                }
                // Counted there; there is nobody else to tell.
                _ = self.encapsulate(now, &mut packet.octets, packet.gso, queue);
            }
        }
    }

    /// Returns `true` if an SA serves such a packet.
    pub(crate) fn is_protected(&self, header: &Header) -> bool {
        matches!(self.0.spd.lookup(header), Verdict::Protect(_))
    }

    /// Returns `true` if an SA of ESP receives with that SPI.
    pub(crate) fn receives(&self, spi: Spi) -> bool {
        self.0.sad.find_any(spi).is_some()
    }

    /// The notices since the last call, oldest first; always empty with [`Settings::on_notice`].
    pub fn take_notices(&self) -> Vec<Notice> {
        lock(&self.0.notices).drain(..).collect()
    }

    /// The packets that were dropped because no SA served them, by tunnel; without the tunnels that have dropped none.
    pub fn unserved(&self) -> BTreeMap<String, u64> {
        self.0.spd.unserved()
    }

    /// The dropped packets by reason: every [`Discard::name`], also those that never happened.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.0.counters.table()
    }
}

impl Shared {
    /// Decides about a packet from the device, whose SA `look_up` knows: returns the SA that is to protect it, or `None`
    /// if nothing is sent now. Both schedules decide here, and only here. If the SA refuses the packet,
    /// [`try_again`](Self::try_again) says whether the decision is to be made once more.
    ///
    /// # Errors
    /// The reason why the packet is dropped, which has been counted.
    // Inlined: packets that are protected at once must not pay for the other schedule.
    #[inline(always)]
    fn choose_sa(
        &self,
        now: Duration,
        packet: &mut Outgoing<'_>,
        look_up: &mut impl FnMut(&Header) -> Verdict,
    ) -> Result<Option<(Arc<Outbound>, Header)>, Discard> {
        loop {
            let gso = packet.gso;
            let octets = packet.octets();
            let chosen = describe(octets, gso).and_then(|header| match look_up(&header) {
                Verdict::Protect(sa) => Ok(Some((sa, header))),
                Verdict::NoSa(entry) => self.miss(now, &entry, octets, &header, gso).map(|()| None),
                Verdict::Drop(discard) => Err(discard),
            });
            match chosen {
                Ok(chosen) => return Ok(chosen),
                Err(discard) if self.try_again(now, packet, discard.into())? => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// Returns `true` if a packet that was not sent is to be tried once more, `false` if it is kept. A fragment that was
    /// the last of its packet becomes that packet.
    ///
    /// # Errors
    /// The reason why the packet is dropped, which has been counted.
    fn try_again(
        &self,
        now: Duration,
        packet: &mut Outgoing<'_>,
        unsent: Unsent,
    ) -> Result<bool, Discard> {
        let refused = match unsent {
            // The SA is not found again: it was taken from its rule before it was closed.
            Unsent::Gone => return Ok(true),
            Unsent::Refused(discard) => discard,
        };
        let gso = packet.gso;
        match self.retry(now, refused, packet.octets(), gso) {
            Retry::Refused(discard) => Err(self.counters.count(discard)),
            Retry::Again => Ok(true),
            Retry::Whole(joined) => {
                (packet.joined, packet.gso) = (Some(joined), Gso::NONE);
                Ok(true)
            }
            Retry::Kept => Ok(false),
        }
    }

    /// Chooses the SA of a packet, which seals it at once.
    #[inline(always)]
    fn encapsulate(
        &self,
        now: Instant,
        packet: &mut [u8],
        gso: Gso,
        queue: &mut SendQueue,
        look_up: &mut impl FnMut(&Header) -> Verdict,
    ) -> Result<(), Discard> {
        let now = self.since_epoch(now);
        let mut packet = Outgoing::new(packet, gso);
        while let Some((sa, header)) = self.choose_sa(now, &mut packet, look_up)? {
            let gso = packet.gso;
            let sent = sa.protect(now, packet.octets(), &header, gso, queue, &|notice| {
                self.notify(notice);
            });
            match sent {
                Ok(()) => break,
                Err(unsent) if self.try_again(now, &mut packet, unsent)? => {}
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Cuts datagrams that arrived together into runs of one SA each, and hands `each` the SA, the offset of its run,
    /// and the run. Datagrams of no SA are counted, or kept for an SA that is to come. Returns the number of both.
    fn for_each_run<'d>(
        &self,
        datagrams: &'d [u8],
        segment_len: usize,
        arrival: &Arrival,
        mut each: impl FnMut(&Arc<Inbound>, usize, &'d [u8]),
    ) -> SaLookups {
        let mut rest = datagrams;
        let mut lookups = SaLookups::default();
        while !rest.is_empty() {
            let first = &rest[..segment_len.min(rest.len())];
            let sa = match self.find_or_keep(first, arrival) {
                Ok(Some(sa)) => sa,
                outcome => {
                    outcome.err().map(|discard| self.counters.count(discard));
                    lookups.unknown += 1;
                    rest = &rest[first.len()..];
                    continue;
                }
            };
            let spi = sa.spi.0.to_be_bytes();
            let same = rest.chunks(segment_len).take_while(|datagram| datagram.starts_with(&spi));
            let (count, len) = same.fold((0, 0), |(count, len), d| (count + 1, len + d.len()));
            lookups.found += count;
            let (run, tail) = rest.split_at(len);
            let offset = datagrams.len() - rest.len();
            rest = tail;
            each(&sa, offset, run);
        }
        lookups
    }

    /// A rule without an SA: drop, or ask for one and keep the packet.
    fn miss(
        &self,
        now: Duration,
        entry: &Entry,
        packet: &[u8],
        header: &Header,
        gso: Gso,
    ) -> Result<(), Discard> {
        let Entry { rule, service } = entry;
        if self.frozen.load(Relaxed) {
            // The process that goes on has copies of those that are kept.
            return Err(Discard::Frozen);
        }
        if !rule.trap {
            service.count_unserved();
            return Err(Discard::NoSa);
        }
        // Asked first: the notice may bring an SA at once, which then is to find this packet kept.
        let served = service.is_served();
        if service.may_acquire(now) {
            self.notify(Notice::Acquire { rule: rule.id, packet: header.summary() });
        }
        // Other SAs of the rule serve other traffic; none is to come for this packet by itself.
        if served {
            service.count_unserved();
            return Err(Discard::NoSa);
        }
        let held = service.hold(now, packet, gso, &|discard| {
            service.count_unserved();
            self.counters.count(discard);
        });
        held.inspect_err(|_| service.count_unserved())?;
        // An SA may have arrived between the look-up and now, and found nothing to release.
        if service.is_served() {
            self.release(service);
        }
        Ok(())
    }

    fn sad(&self, suite: Suite) -> &Sad {
        if suite.is_ah() { &self.ah_sad } else { &self.sad }
    }

    fn find(&self, datagram: &[u8], path: &Path) -> Result<Found, Discard> {
        let spi = datagram.first_chunk().ok_or(Discard::InboundTruncated)?;
        self.sad.find(Spi(u32::from_be_bytes(*spi)), path).ok_or(Discard::UnknownSpi)
    }

    /// The same. `None`: the packet is kept until its SA is there.
    #[inline]
    fn find_or_keep(&self, datagram: &[u8], arrival: &Arrival) -> Result<Option<Found>, Discard> {
        match self.find(datagram, &arrival.path) {
            Err(Discard::UnknownSpi) => self.keep(datagram, arrival),
            found => found.map(Some),
        }
    }

    #[cold]
    fn keep(&self, datagram: &[u8], arrival: &Arrival) -> Result<Option<Found>, Discard> {
        let spi = datagram.first_chunk().ok_or(Discard::InboundTruncated)?;
        if self.frozen.load(Relaxed) {
            return Err(Discard::Frozen);
        }
        if self.early.keep(Spi(u32::from_be_bytes(*spi)), datagram, arrival) {
            return Ok(None);
        }
        // It may have arrived between the look-up and now.
        self.find(datagram, &arrival.path).map(Some)
    }

    /// Opens the packets that came before this SA, and passes on what is in them.
    fn open_early(&self, sa: &Inbound) {
        let early = self.early.take(sa.spi);
        if early.is_empty() {
            return;
        }
        let now = self.since_epoch(Instant::now());
        let mut queue = ReceiveQueue::new(0, Coalesce::default());
        let mut receiving = sa.receive();
        for kept in &early {
            if let Err(discard) = receiving.open(now, &kept.octets, &kept.arrival, &mut queue) {
                self.counters.count(discard);
            }
        }
        receiving.finish(&|notice| self.notify(notice));
        if let Some(pass_on) = &self.settings.on_answer {
            queue.packets().for_each(|(packet, _)| pass_on(packet));
        }
    }

    /// Has the SAs of datagrams that came together be in the cache, where these are not of one alone.
    fn prefetch<'a>(&self, datagrams: impl DoubleEndedIterator<Item = &'a [u8]> + Clone) {
        let spis = datagrams.filter_map(|datagram| datagram.first_chunk().copied());
        if spis.clone().next() != spis.clone().next_back() {
            self.sad.prefetch(spis.map(|spi| Spi(u32::from_be_bytes(spi))));
        }
    }

    fn notify(&self, notice: Notice) {
        if let Some(hook) = &self.settings.on_notice {
            return hook(notice);
        }
        let mut notices = lock(&self.notices);
        if notices.len() < MAX_NOTICES {
            notices.push_back(notice);
        }
    }

    fn release(&self, service: &Arc<Service>) {
        lock(&self.releasable).push(Arc::clone(service));
        if let Some(hook) = &self.settings.on_release {
            hook();
        }
    }

    /// Lets an SA serve its rule.
    fn serve(&self, service: &Arc<Service>, sa: &Arc<Outbound>) {
        service.put_first(Arc::clone(sa));
        self.spd.changed();
        if service.holds_packets() {
            self.release(service);
        }
    }

    fn since_epoch(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.epoch)
    }
}

impl KeyedSas for Shared {
    fn each(&self, visit: &mut dyn FnMut(&dyn KeyedSa)) {
        lock(&self.installed).values().for_each(|sa| visit(sa.operated()));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.each(&mut |sa| self.settings.crypto.attribute(sa));
    }
}

fn describe(packet: &[u8], gso: Gso) -> Result<Header, Discard> {
    let mut header = Header::parse(packet).ok_or(Discard::OutboundMalformed)?;
    if gso.segmentation != Segmentation::None {
        header.len = packet.len();
    }
    Ok(header)
}

/// A thread that panicked left nothing half done under any of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
mod trace;
