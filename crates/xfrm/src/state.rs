//! An SA in the kernel's terms.

#![forbid(unsafe_code)]

use super::algorithm;
use super::flow::{Flow, address, family, wire};
use super::offload::Offload;
use crypto::Suite;
use esp::plane::{Encapsulation, Limits, Path, PlaneError, Spi, Usage};
use netlink_packet_xfrm::state::{DelGetMessage, ModifyMessage};
use netlink_packet_xfrm::{
    Address, EncapTmpl, IPPROTO_AH, IPPROTO_ESP, Id, LifetimeConfig, Mark, ReplayEsn,
    UDP_ENCAP_ESPINUDP, UserSaId, UserSaInfo, XFRM_INF, XFRM_MODE_TRANSPORT, XFRM_MODE_TUNNEL,
    XFRM_STATE_AF_UNSPEC, XFRM_STATE_ALIGN4, XFRM_STATE_ESN, XfrmAttrs,
};
use policy::{Binding, Mode, Secret};
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

/// Packets of the largest anti-replay window the kernel has (XFRMA_REPLAY_ESN_MAX of linux/xfrm.h).
pub(super) const LARGEST_WINDOW: u32 = 4096;

/// Packets of the largest window that needs no attribute of its own.
const SMALL_WINDOW: u32 = 32;

/// The sequence number of 32 bits at which a rekey should start: as many are left as in the userspace plane.
const FEW_LEFT: u64 = u32::MAX as u64 - (1 << 29);

/// The fields by which the kernel finds an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub destination: IpAddr,
    pub spi: u32,
    /// ESP or AH.
    pub protocol: u8,
}

impl Name {
    pub(super) fn of(id: &UserSaId) -> Self {
        let destination = address(&id.daddr, id.family);
        Self { destination, spi: id.spi, protocol: id.proto }
    }

    pub(super) fn of_info(info: &UserSaInfo) -> Self {
        let destination = address(&info.id.daddr, info.family);
        Self { destination, spi: info.id.spi, protocol: info.id.proto }
    }

    /// Names the SA to the kernel.
    pub(super) fn message(&self, binding: &Binding) -> DelGetMessage {
        let user_sa_id = UserSaId {
            daddr: Address::from_ip(&self.destination),
            spi: self.spi,
            family: family(self.destination),
            proto: self.protocol,
        };
        DelGetMessage { user_sa_id, nlas: binding_mark(*binding).into_iter().collect() }
    }
}

/// The attributes of a policy, or of an SA that sends, for a binding.
pub(super) fn binding_attributes(binding: Binding) -> Vec<XfrmAttrs> {
    binding_mark(binding).into_iter().chain(binding.if_id.map(XfrmAttrs::IfId)).collect()
}

/// The attribute of its mark alone.
pub(super) fn binding_mark(binding: Binding) -> Option<XfrmAttrs> {
    binding.mark.map(|(value, mask)| XfrmAttrs::Mark(Mark { value, mask }))
}

/// The attributes that bind a policy or an SA to a mark or an interface.
pub(super) fn binding_in(attributes: &[XfrmAttrs]) -> Vec<XfrmAttrs> {
    attributes
        .iter()
        .filter(|a| matches!(a, XfrmAttrs::Mark(_) | XfrmAttrs::IfId(_)))
        .cloned()
        .collect()
}

/// Names an SA that the kernel has shown.
pub(super) fn name_of(info: &UserSaInfo, attributes: &[XfrmAttrs]) -> DelGetMessage {
    let user_sa_id = UserSaId {
        daddr: info.id.daddr,
        spi: info.id.spi,
        family: info.family,
        proto: info.id.proto,
    };
    let mark = attributes.iter().filter(|a| matches!(a, XfrmAttrs::Mark(_))).cloned();
    DelGetMessage { user_sa_id, nlas: mark.collect() }
}

/// Everything but the keys, of either direction.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub inbound: bool,
    pub spi: Spi,
    pub suite: Suite,
    pub esn: bool,
    /// 0 for an SA that sends.
    pub replay_window: u32,
    pub mode: Mode,
    pub path: Path,
    /// The traffic, where it is a single flow in the direction of the SA.
    pub flow: Option<Flow>,
    pub limits: Limits,
    /// The sequence number behind which it began where it is now.
    pub base: u64,
    /// The last sequence number that it may use for now, if its keeper has set one.
    pub allowed: Option<u64>,
    pub reqid: u32,
    pub binding: Binding,
    pub offload: Option<Offload>,
}

impl Form {
    pub(super) fn protocol(&self) -> u8 {
        protocol(self.suite)
    }

    /// Source and destination of its outer packets.
    pub(super) fn ends(&self) -> (IpAddr, IpAddr) {
        let (local, remote) = (self.path.local.ip(), self.path.remote.ip());
        if self.inbound { (remote, local) } else { (local, remote) }
    }

    pub(super) fn name(&self) -> Name {
        Name { destination: self.ends().1, spi: self.spi.0, protocol: self.protocol() }
    }

    /// The message that adds it to the kernel. With `replay`, as the kernel gave it, its sequence numbers continue.
    pub(super) fn message(
        &self,
        key: &Secret,
        replay: Option<XfrmAttrs>,
    ) -> Result<ModifyMessage, PlaneError> {
        let (source, destination) = self.ends();
        let mut info = UserSaInfo {
            id: Id {
                daddr: Address::from_ip(&destination),
                spi: self.spi.0,
                proto: self.protocol(),
            },
            saddr: Address::from_ip(&source),
            lifetime_cfg: self.lifetime(),
            reqid: self.reqid,
            family: family(destination),
            mode: mode(self.mode),
            ..UserSaInfo::default()
        };
        // The kernel checks a packet that a card has decrypted, and that GRO has not seen, against the selector before
        // the packet leaves the tunnel.
        let by_card = self.offload.is_some_and(|offload| !offload.packet);
        match self.flow.filter(|_| self.mode == Mode::Transport || !by_card) {
            Some(flow) => info.selector = wire(&flow),
            // Either family inside.
            None if self.mode == Mode::Tunnel => info.flags |= XFRM_STATE_AF_UNSPEC,
            None => {}
        }
        // Else the kernel pads the ICV over IPv4 as over IPv6 (RFC 4302 §3.3.3.2.1).
        if self.suite.is_ah() && destination.is_ipv4() {
            info.flags |= XFRM_STATE_ALIGN4;
        }
        let mut nlas = Vec::new();
        let window = self.replay_window.min(LARGEST_WINDOW);
        if self.esn {
            info.flags |= XFRM_STATE_ESN;
        }
        match replay {
            Some(attribute) => nlas.push(attribute),
            None if self.esn && self.inbound && window == 0 => {
                return Err(PlaneError::System {
                    what: format!("giving SA {} to the kernel", self.spi),
                    why: "with extended sequence numbers the kernel needs a replay window; set esp.replay_window"
                        .to_owned(),
                });
            }
            // Of one that sends, too, although it has no use for it.
            None if self.esn => nlas.push(replay_of(window.max(SMALL_WINDOW))),
            None if window > SMALL_WINDOW => nlas.push(replay_of(window)),
            None => {}
        }
        // Only where no attribute says it.
        if nlas.is_empty() || matches!(nlas[..], [XfrmAttrs::ReplayState(_)]) {
            info.replay_window = u8::try_from(window).unwrap_or(SMALL_WINDOW as u8);
        }
        if self.path.encapsulation == Encapsulation::Udp {
            let (local, remote) = (self.path.local.port(), self.path.remote.port());
            let (sport, dport) = if self.inbound { (remote, local) } else { (local, remote) };
            nlas.push(XfrmAttrs::EncapsulationTemplate(EncapTmpl {
                encap_type: UDP_ENCAP_ESPINUDP,
                encap_sport: sport,
                encap_dport: dport,
                encap_oa: Address::default(),
            }));
            if self.inbound {
                // A peer that has moved is told of once a second, not with every packet.
                nlas.push(XfrmAttrs::MappingTimeThreshold(1));
            }
        }
        match (self.inbound, self.binding.mark) {
            // An arriving packet has none yet: its SPI finds the SA, which marks the opened packet for the policy.
            (true, Some((value, mask))) => {
                nlas.extend([XfrmAttrs::MarkVal(value), XfrmAttrs::MarkMask(mask)]);
                nlas.extend(self.binding.if_id.map(XfrmAttrs::IfId));
            }
            _ => nlas.extend(binding_attributes(self.binding)),
        }
        nlas.extend(self.offload.map(|offload| offload.attribute(self.inbound)));
        nlas.extend(algorithm::attributes(self.suite, key.expose())?);
        Ok(ModifyMessage { user_sa_info: info, nlas })
    }

    /// The kernel counts from the moment at which it has received the SA.
    fn lifetime(&self) -> LifetimeConfig {
        let Limits { soft_bytes, hard_bytes } = self.limits;
        let mut lifetime = LifetimeConfig {
            soft_byte_limit: soft_bytes.unwrap_or(XFRM_INF),
            hard_byte_limit: hard_bytes.unwrap_or(XFRM_INF),
            soft_packet_limit: XFRM_INF,
            hard_packet_limit: XFRM_INF,
            ..LifetimeConfig::default()
        };
        // The kernel stops at the last sequence number without a word: a limit of packets tells of it.
        if !self.inbound && !self.esn {
            lifetime.soft_packet_limit = FEW_LEFT.saturating_sub(self.base);
            lifetime.hard_packet_limit = u64::from(u32::MAX).saturating_sub(self.base);
        }
        if let Some(allowed) = self.allowed {
            let left = allowed.saturating_sub(self.base);
            lifetime.hard_packet_limit = lifetime.hard_packet_limit.min(left);
        }
        lifetime
    }

    /// The message that changes the limits of an SA that the kernel has. It has a key as well, and numbers: those are
    /// for the case that the kernel has only a note that a packet has asked for the SA.
    pub(super) fn update(&self, key: &Secret, beyond: u64) -> Result<ModifyMessage, PlaneError> {
        // A card that has the SA does not have to make room for it a second time.
        let form = Self { offload: None, ..self.clone() };
        form.message(key, Some(replay_from(&form, beyond)))
    }

    /// Returns `true` if a sequence number is so high that a rekey should start. The kernel's own limit of packets
    /// tells of it later than that, or never: the kernel counts a super-packet that a card cuts up as one packet.
    pub(super) fn has_few_numbers_behind(&self, sequence: u64) -> bool {
        !self.inbound && !self.esn && sequence >= FEW_LEFT
    }
}

pub(super) fn mode(mode: Mode) -> u8 {
    match mode {
        Mode::Transport => XFRM_MODE_TRANSPORT,
        Mode::Tunnel => XFRM_MODE_TUNNEL,
    }
}

/// IP protocol number of a suite's packets.
pub(super) fn protocol(suite: Suite) -> u8 {
    if suite.is_ah() { IPPROTO_AH } else { IPPROTO_ESP }
}

/// A window in which nothing has come yet; the kernel takes the bits that are left out for zero.
fn replay_of(window: u32) -> XfrmAttrs {
    let words = window.div_ceil(u32::BITS);
    XfrmAttrs::ReplayStateEsn(ReplayEsn {
        bmp_len: words,
        replay_window: window,
        ..ReplayEsn::default()
    })
}

/// Returns `true` if this is no SA but the kernel's note that a packet has asked for one (a larval state). It has the
/// SPI that the policy names, and says nothing about sequence numbers.
pub(super) fn is_larval(state: &ModifyMessage) -> bool {
    !state.nlas.iter().any(|attribute| {
        matches!(
            attribute,
            XfrmAttrs::EncryptionAlgAead(_)
                | XfrmAttrs::EncryptionAlg(_)
                | XfrmAttrs::AuthenticationAlg(_)
                | XfrmAttrs::AuthenticationAlgTrunc(_)
        )
    })
}

/// The sequence numbers of an SA as the kernel has them.
pub(super) fn replay_of_state(state: &ModifyMessage) -> Option<XfrmAttrs> {
    state
        .nlas
        .iter()
        .find(|a| matches!(a, XfrmAttrs::ReplayStateEsn(_) | XfrmAttrs::ReplayState(_)))
        .cloned()
}

/// Sequence numbers of an SA that has sent, or received, those up to one.
pub(super) fn replay_from(form: &Form, seen: u64) -> XfrmAttrs {
    let window = form.replay_window.clamp(SMALL_WINDOW, LARGEST_WINDOW);
    let words = window.div_ceil(u32::BITS);
    let mut replay = ReplayEsn { bmp_len: words, replay_window: window, ..ReplayEsn::default() };
    let (high, low) = match form.esn {
        true => ((seen >> 32) as u32, (seen & 0xffff_ffff) as u32),
        false => (0, u32::try_from(seen).unwrap_or(u32::MAX)),
    };
    match form.inbound {
        true => (replay.seq_hi, replay.seq) = (high, low),
        false => (replay.oseq_hi, replay.oseq) = (high, low),
    }
    if form.inbound {
        // None up to there again.
        replay.bmp = vec![u32::MAX; replay.bmp_len as usize];
    }
    XfrmAttrs::ReplayStateEsn(replay)
}

/// The last sequence number that an SA has used, or the highest that it has received.
pub(super) fn last_sequence(state: &ModifyMessage, inbound: bool) -> Option<u64> {
    state.nlas.iter().find_map(|attribute| number_in(attribute, inbound))
}

fn number_in(attribute: &XfrmAttrs, inbound: bool) -> Option<u64> {
    let (high, low) = match (attribute, inbound) {
        (XfrmAttrs::ReplayStateEsn(replay), true) => (replay.seq_hi, replay.seq),
        (XfrmAttrs::ReplayStateEsn(replay), false) => (replay.oseq_hi, replay.oseq),
        (XfrmAttrs::ReplayState(replay), true) => (0, replay.seq),
        (XfrmAttrs::ReplayState(replay), false) => (0, replay.oseq),
        _ => return None,
    };
    Some(u64::from(high) << 32 | u64::from(low))
}

/// The kernel's counters of an SA. The kernel leaves out the IP header in transport mode, which is added, and remembers
/// whole seconds.
pub(super) fn usage(state: &ModifyMessage, now: Instant, clock: SystemTime) -> Usage {
    let info = &state.user_sa_info;
    let header =
        match (info.mode == mode(Mode::Transport), info.family == netlink_packet_xfrm::AF_INET) {
            (false, _) => 0,
            (true, true) => 20,
            (true, false) => 40,
        };
    let packets = info.lifetime_cur.packets;
    let last = state.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::LastUsed(seconds) => Some(*seconds),
        _ => None,
    });
    // Kernels that keep no time of the last use know that of the first.
    let last = last.unwrap_or(info.lifetime_cur.use_time);
    let last_used = (packets > 0).then(|| {
        let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(last));
        let ago = at.and_then(|at| clock.duration_since(at).ok()).unwrap_or_default();
        now.checked_sub(ago).unwrap_or(now)
    });
    let stats = &info.stats;
    Usage {
        packets,
        bytes: info.lifetime_cur.bytes + header * packets,
        last_used,
        refused: [stats.replay_window, stats.replay, stats.integrity_failed]
            .iter()
            .map(|n| u64::from(*n))
            .sum(),
    }
}
