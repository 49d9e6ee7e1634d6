//! Packets to ESP and back, without I/O: the SAD and the SPD, and the two directions over them.

#![forbid(unsafe_code)]

use crate::cipher::Provider;
use crate::discard::Discard;
use crate::offload::Offload;
use crate::plane::{
    DataPlane, InboundSa, Notice, OutboundSa, Path, PlaneError, Rule, RuleId, SaId, Usage,
};
use crate::queue::{ReceiveQueue, SendQueue};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// How a [`Datapath`] works.
#[derive(Clone)]
pub struct Settings {
    /// Where ciphers come from.
    pub provider: Provider,
    /// Octets of the longest outer packet: decides the MSS that TCP connections are held to.
    pub outer_mtu: usize,
    /// Whether the MSS option of SYNs is lowered to what fits the tunnel.
    pub mss_clamp: bool,
    /// Called with every notice, on the thread that caused it; without it they wait in [`Datapath::take_notices`].
    pub on_notice: Option<Arc<dyn Fn(Notice) + Send + Sync>>,
    /// Called when kept packets may go: who owns the sockets is to call [`Datapath::flush_held`].
    pub on_release: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            provider: Provider::default(),
            outer_mtu: 1500,
            mss_clamp: true,
            on_notice: None,
            on_release: None,
        }
    }
}

/// How an ESP packet arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Between which addresses, and how.
    pub path: Path,
    /// DSCP and ECN of the outer header, where the socket tells.
    pub tos: Option<u8>,
    /// TTL or hop limit of the outer header, where the socket tells.
    pub ttl: Option<u8>,
}

/// The pure packet work of the userspace plane. Clones share everything.
#[derive(Clone)]
pub struct Datapath {
    #[expect(dead_code)]
    settings: Arc<Settings>,
}

impl Datapath {
    /// Makes a datapath without rules and SAs, which therefore drops everything.
    pub fn new(settings: Settings, now: Instant) -> Self {
        let _ = now;
        Self { settings: Arc::new(settings) }
    }

    /// Protects a packet from the TUN device, or each segment of a super-packet, and appends the ESP packets to
    /// `queue`. `packet` is scratch space: what it holds afterwards is undefined. A packet that is kept until an SA
    /// arrives ([`Rule::trap`]) is a success, too.
    pub fn encapsulate(
        &self,
        now: Instant,
        packet: &mut [u8],
        offload: Offload,
        queue: &mut SendQueue,
    ) -> Result<(), Discard> {
        let _ = (now, packet, offload, queue);
        unimplemented!()
    }

    /// Opens an ESP packet (from the SPI on) and appends the inner packet to `queue`.
    pub fn decapsulate(
        &self,
        now: Instant,
        datagram: &[u8],
        arrival: Arrival,
        queue: &mut ReceiveQueue,
    ) -> Result<(), Discard> {
        let _ = (now, datagram, arrival, queue);
        unimplemented!()
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
        let _ = (now, datagrams, segment_len, arrival, queue);
        unimplemented!()
    }

    /// Protects the packets that were kept for SAs which have arrived since.
    pub fn flush_held(&self, now: Instant, queue: &mut SendQueue) {
        let _ = (now, queue);
        unimplemented!()
    }

    /// The notices since the last call, oldest first; always empty with [`Settings::on_notice`].
    pub fn take_notices(&self) -> Vec<Notice> {
        unimplemented!()
    }

    /// How many packets were dropped, by reason: every [`Discard::name`], also those that never happened.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        unimplemented!()
    }
}

impl DataPlane for Datapath {
    fn add_rule(&mut self, _rule: Rule) -> Result<(), PlaneError> {
        unimplemented!()
    }

    fn remove_rule(&mut self, _rule: RuleId) {
        unimplemented!()
    }

    fn add_inbound(&mut self, _sa: InboundSa) -> Result<(), PlaneError> {
        unimplemented!()
    }

    fn add_outbound(&mut self, _sa: OutboundSa) -> Result<(), PlaneError> {
        unimplemented!()
    }

    fn promote(&mut self, _sa: SaId) -> Result<(), PlaneError> {
        unimplemented!()
    }

    fn relocate(&mut self, _sa: SaId, _path: Path) -> Result<(), PlaneError> {
        unimplemented!()
    }

    fn remove(&mut self, _sa: SaId) {
        unimplemented!()
    }

    fn usage(&mut self, _sa: SaId) -> Option<Usage> {
        unimplemented!()
    }
}
