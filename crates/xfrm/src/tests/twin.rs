//! The plane on a kernel in memory: the SAs and policies that it leaves there, and its behaviour when the kernel refuses.

use super::*;
use crate::policies::RULES;
use crate::state::is_larval;
use esp::plane::{DataPlane, ManualKeying, ReplayCounters, TrafficSelectors};
use netlink_packet_xfrm::state::{DelGetMessage, ModifyMessage};
use netlink_packet_xfrm::{Mark, UserPolicyInfo, UserTemplate, XFRM_POLICY_BLOCK};
use policy::{AddressRange, Selector};
use std::sync::Mutex;

/// SAs by SPI and policies by direction and selector, as the kernel keeps them.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) states: BTreeMap<u32, ModifyMessage>,
    pub(super) policies: Vec<Kept>,
    pub(super) card: Option<SimulatedCard>,
    /// How many orders are carried out before one is refused, and then all others again.
    pub(super) refuse_after: Option<usize>,
    /// Packets leave all the time: where a policy names an SA that is not there, they leave a note in its place.
    pub(super) busy: bool,
}

impl Tables {
    fn packets_leave(&mut self) {
        let wanted = self.policies.iter().filter(|(info, ..)| {
            self.busy
                && info.direction == PolicyDirection::Out.number()
                && info.action != XFRM_POLICY_BLOCK
        });
        let spis: Vec<u32> =
            wanted.filter_map(|(_, template, ..)| Some(template.as_ref()?.id.spi)).collect();
        for spi in spis.into_iter().filter(|spi| *spi != 0) {
            let mut larva = ModifyMessage::default();
            larva.user_sa_info.id.spi = spi;
            self.states.entry(spi).or_insert(larva);
        }
    }
}

/// A policy, its template and mark, and whether the card has it.
pub(super) type Kept = (UserPolicyInfo, Option<UserTemplate>, Option<Mark>, bool);

/// A network card with offload.
#[derive(Clone, Copy)]
pub(super) struct SimulatedCard {
    /// For how many SAs of each direction.
    pub room: usize,
    /// Whether it does packet offload.
    pub packet: bool,
    /// Whether it takes policies.
    pub policies: bool,
    /// Whether its driver declines crypto offload, of which the kernel says nothing.
    pub declines: bool,
    /// For how many addresses of inbound SAs.
    pub addresses: usize,
}

/// Its index.
pub(super) const CARD: u32 = 4;

/// The offload that is asked of the card: whether packet offload, and whether for inbound packets.
fn asked(nlas: &[XfrmAttrs]) -> Option<(bool, bool)> {
    nlas.iter().find_map(|a| match a {
        XfrmAttrs::OffloadDevice(o) => Some((o.flags & 4 != 0, o.flags & 2 != 0)),
        _ => None,
    })
}

fn mark(nlas: &[XfrmAttrs]) -> Option<Mark> {
    nlas.iter().find_map(|a| match a {
        XfrmAttrs::Mark(mark) => Some(*mark),
        _ => None,
    })
}

#[derive(Clone, Default)]
pub(super) struct Twin(Arc<Mutex<Tables>>);

impl Twin {
    pub(super) fn tables(&self) -> std::sync::MutexGuard<'_, Tables> {
        self.0.lock().expect("no test panics with it")
    }

    /// Takes the card out, with all that it has.
    pub(super) fn pull_card(&self) {
        let mut tables = self.tables();
        tables.card = None;
        tables.states.retain(|_, state| asked(&state.nlas).is_none());
        tables.policies.retain(|(.., in_card)| !in_card);
    }

    /// How many SAs the card has in packet and in crypto offload.
    pub(super) fn in_card(&self) -> [usize; 2] {
        let tables = self.tables();
        let of = |wanted| {
            let asked = tables.states.values().filter_map(|state| asked(&state.nlas));
            asked.filter(|(packet, _)| *packet == wanted).count()
        };
        [of(true), of(false)]
    }

    /// Whether every packet that leaves is dropped or protected, whatever its mark.
    pub(super) fn is_tight(&self) -> bool {
        let tables = self.tables();
        let out = || {
            tables.policies.iter().filter(|(i, ..)| i.direction == PolicyDirection::Out.number())
        };
        let any = out().any(|(_, _, mark, _)| mark.is_none());
        let halves: BTreeSet<u32> =
            out().filter_map(|(_, _, mark, _)| Some(mark.as_ref()?.value)).collect();
        any || halves == BTreeSet::from([0, 1 << 31])
    }

    /// Whether the policies of one direction drop IPv4, and whether they drop IPv6. Those of neighbour discovery do not
    /// count, which always passes.
    pub(super) fn blocked(&self, direction: PolicyDirection) -> [bool; 2] {
        let tables = self.tables();
        [libc::AF_INET, libc::AF_INET6].map(|family| {
            let of_family = tables.policies.iter().filter(|(info, ..)| {
                info.direction == direction.number()
                    && i32::from(info.selector.family) == family
                    && info.selector.proto == 0
            });
            let mut first: Vec<_> = of_family.map(|(i, ..)| (i.priority, i.action)).collect();
            first.sort_unstable();
            first.first().is_some_and(|(_, action)| *action == XFRM_POLICY_BLOCK)
        })
    }

    /// Whether a policy that lets packets in comes before all that drop them.
    pub(super) fn lets_in(&self) -> bool {
        let tables = self.tables();
        let first = |drops: bool| {
            let arriving = tables
                .policies
                .iter()
                .filter(|(i, ..)| i.direction == PolicyDirection::In.number());
            let alike = arriving.filter(|(i, ..)| (i.action == XFRM_POLICY_BLOCK) == drops);
            alike.map(|(i, ..)| i.priority).min()
        };
        first(false).is_some_and(|lets| first(true).is_none_or(|drops| lets < drops))
    }

    /// So many packets leave by the SA 0x201, each with its number.
    fn sent(&self, packets: u32) {
        let mut tables = self.tables();
        let state = tables.states.get_mut(&0x201).expect("it is there");
        state.user_sa_info.lifetime_cur.packets += u64::from(packets);
        for attribute in &mut state.nlas {
            if let XfrmAttrs::ReplayStateEsn(replay) = attribute {
                replay.oseq += packets;
            }
        }
    }

    pub(super) fn spis(&self) -> Vec<u32> {
        self.tables().states.keys().copied().collect()
    }

    /// The policies of a direction: the SPI that a template names, or 0 for any; `None` where packets are dropped.
    pub(super) fn policy(&self, direction: PolicyDirection) -> Vec<Option<u32>> {
        let tables = self.tables();
        let of_way = tables
            .policies
            .iter()
            .filter(|(info, _, mark, _)| info.direction == direction.number() && mark.is_none());
        of_way
            .map(|(info, template, ..)| match info.action {
                XFRM_POLICY_BLOCK => None,
                _ => Some(template.as_ref().expect("nothing passes in the clear").id.spi),
            })
            .collect()
    }
}

fn refused(errno: i32) -> Refused {
    Refused { errno, text: "no".to_owned() }
}

impl Kernel for Twin {
    fn order(&mut self, message: XfrmMessage) -> Result<(), Refused> {
        let mut tables = self.tables();
        tables.packets_leave();
        match &mut tables.refuse_after {
            Some(0) => {
                tables.refuse_after = None;
                return Err(refused(libc::ENOMEM));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        match message {
            XfrmMessage::AddSa(mut state) => {
                let spi = state.user_sa_info.id.spi;
                if let Some((packet, inbound)) = asked(&state.nlas) {
                    let card = tables.card.ok_or(refused(libc::EINVAL))?;
                    let same = |s: &&ModifyMessage| {
                        asked(&s.nlas).is_some_and(|(_, other)| other == inbound)
                    };
                    if packet && !card.packet {
                        return Err(refused(libc::EINVAL));
                    }
                    if tables.states.values().filter(same).count() >= card.room {
                        return Err(refused(libc::ENOSPC));
                    }
                    let address = |state: &ModifyMessage| state.user_sa_info.id.daddr.addr;
                    let there: BTreeSet<_> =
                        tables.states.values().filter(same).map(address).collect();
                    let is_new = inbound && !there.contains(&address(&state));
                    if is_new && there.len() >= card.addresses {
                        return Err(refused(libc::ENOSPC));
                    }
                    if card.declines && !packet {
                        state.nlas.retain(|a| !matches!(a, XfrmAttrs::OffloadDevice(_)));
                    }
                }
                if tables.states.contains_key(&spi) {
                    return Err(refused(libc::EEXIST));
                }
                tables.states.insert(spi, state);
            }
            XfrmMessage::UpdateSa(state) => {
                let there = tables.states.get_mut(&state.user_sa_info.id.spi);
                let there = there.ok_or(refused(libc::ESRCH))?;
                match is_larval(there) {
                    true => *there = state,
                    // Keys, numbers and the card stay as they are (xfrm_state_update of the kernel).
                    false => there.user_sa_info.lifetime_cfg = state.user_sa_info.lifetime_cfg,
                }
            }
            XfrmMessage::DeleteSa(name) => {
                tables.states.remove(&name.user_sa_id.spi).ok_or(refused(libc::ESRCH))?;
            }
            XfrmMessage::UpdatePolicy(policy) => {
                let info = policy.user_policy_info;
                let template = policy.nlas.iter().find_map(|a| match a {
                    XfrmAttrs::Template(templates) => templates.first().cloned(),
                    _ => None,
                });
                let (own, in_card) = (mark(&policy.nlas), asked(&policy.nlas).is_some());
                if in_card && !tables.card.is_some_and(|card| card.policies) {
                    return Err(refused(libc::EOPNOTSUPP));
                }
                tables.policies.retain(|(i, _, mark, _)| {
                    (i.selector, i.direction, *mark) != (info.selector, info.direction, own)
                });
                tables.policies.push((info, template, own, in_card));
            }
            XfrmMessage::DeletePolicy(policy) => {
                let id = policy.user_policy_id;
                let (before, own) = (tables.policies.len(), mark(&policy.nlas));
                tables.policies.retain(|(i, _, mark, _)| {
                    (i.selector, i.direction, *mark) != (id.selector, id.direction, own)
                });
                if tables.policies.len() == before {
                    return Err(refused(libc::ENOENT));
                }
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn ask(&mut self, message: XfrmMessage) -> Result<XfrmMessage, Refused> {
        let mut tables = self.tables();
        tables.packets_leave();
        match message {
            XfrmMessage::GetSa(name) => {
                let state = tables.states.get(&name.user_sa_id.spi).ok_or(refused(libc::ESRCH))?;
                Ok(XfrmMessage::AddSa(state.clone()))
            }
            XfrmMessage::GetPolicy(policy) => {
                let id = policy.user_policy_id;
                let own = mark(&policy.nlas);
                let same = |(i, _, mark, _): &&Kept| {
                    (i.selector, i.direction, *mark) == (id.selector, id.direction, own)
                };
                let found = tables.policies.iter().find(same).ok_or(refused(libc::ENOENT))?;
                let (user_policy_info, nlas) = (found.0, Vec::new());
                Ok(XfrmMessage::AddPolicy(netlink_packet_xfrm::policy::ModifyMessage {
                    user_policy_info,
                    nlas,
                }))
            }
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self, sa: DelGetMessage) -> Result<Option<ModifyMessage>, Refused> {
        let ended = self.tables().states.get(&sa.user_sa_id.spi).cloned();
        self.order(XfrmMessage::DeleteSa(sa))?;
        Ok(ended)
    }

    fn list(&mut self, message: XfrmMessage) -> Result<Vec<XfrmMessage>, Refused> {
        let tables = self.tables();
        let states = tables.states.values().rev().cloned().map(XfrmMessage::AddSa);
        let policies = tables.policies.iter().rev().map(|(info, template, mark, _)| {
            let template = template.iter().map(|t| XfrmAttrs::Template(vec![*t]));
            let nlas = template.chain(mark.map(XfrmAttrs::Mark)).collect();
            let user_policy_info = *info;
            XfrmMessage::AddPolicy(netlink_packet_xfrm::policy::ModifyMessage {
                user_policy_info,
                nlas,
            })
        });
        Ok(match message {
            XfrmMessage::GetDumpSa(_) => states.collect(),
            XfrmMessage::GetPolicy(_) => policies.collect(),
            other => panic!("{other:?}"),
        })
    }
}

const RULE: RuleId = RuleId(3);

fn net(third: u8) -> Selector {
    let range = AddressRange::new([10, third, 0, 0].into(), [10, third, 0, 255].into());
    Selector::all_of(range.expect("a range"))
}

fn traffic() -> TrafficSelectors {
    TrafficSelectors { local: vec![net(1)], remote: vec![net(2)] }
}

pub(super) fn rule() -> Rule {
    Rule { id: RULE, tunnel: "branch".to_owned(), selectors: traffic(), trap: false }
}

fn path() -> Path {
    Path {
        local: ([192, 0, 2, 1], 4500).into(),
        remote: ([192, 0, 2, 2], 4500).into(),
        encapsulation: Encapsulation::Native,
    }
}

pub(super) fn inbound(id: u64, spi: u32) -> InboundSa {
    InboundSa {
        id: SaId(id),
        rule: RULE,
        spi: Spi(spi),
        suite: Suite::AesGcm16(KeyBits::B256),
        key: aead_key(),
        esn: true,
        replay_window: 128,
        mode: Mode::Tunnel,
        path: path(),
        selectors: traffic().into(),
        limits: Limits::default(),
    }
}

pub(super) fn outbound(id: u64, spi: u32, standby: bool) -> OutboundSa {
    OutboundSa {
        id: SaId(id),
        rule: RULE,
        spi: Spi(spi),
        suite: Suite::AesGcm16(KeyBits::B256),
        key: aead_key(),
        esn: true,
        mode: Mode::Tunnel,
        path: path(),
        selectors: traffic().into(),
        limits: Limits::default(),
        standby,
    }
}

pub(super) fn plane() -> (Xfrm, Twin) {
    let twin = Twin::default();
    let kernel = Box::new(twin.clone());
    (Xfrm::on(kernel, Config::default(), Known::default(), None), twin)
}

#[test]
fn traffic_of_a_rule_is_blocked_until_an_sa_serves_it_and_when_it_goes() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    for direction in [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward] {
        assert_eq!(twin.policy(direction), [None]);
    }
    plane.add_inbound(inbound(1, 0x101)).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    assert_eq!(twin.spis(), [0x101, 0x201]);
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
    assert_eq!(
        (twin.policy(PolicyDirection::In), twin.policy(PolicyDirection::Forward)),
        (vec![Some(0)], vec![Some(0)])
    );
    plane.remove(SaId(2));
    plane.remove(SaId(1));
    for direction in [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward] {
        assert_eq!(twin.policy(direction), [None]);
    }
    plane.remove_rule(RULE);
    assert!(twin.tables().policies.is_empty());
}

#[test]
fn an_sa_in_standby_is_used_once_it_is_promoted() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_outbound(outbound(1, 0x201, false)).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x202, true)).expect("the kernel can");
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
    plane.promote(SaId(2)).expect("the kernel can");
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x202)]);
    plane.remove(SaId(2));
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
    assert_eq!(plane.promote(SaId(2)), Err(PlaneError::NoSuchSa(SaId(2))));
}

#[test]
fn a_rule_of_another_name_keeps_its_sas() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_inbound(inbound(1, 0x101)).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    plane.renumber_rule(RULE, RuleId(8));
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
    let priorities: BTreeSet<u32> =
        twin.tables().policies.iter().map(|(i, ..)| i.priority).collect();
    assert_eq!(priorities, [RULES + 16].into());
    drop(plane);
    assert!(twin.tables().policies.is_empty() && twin.spis().is_empty());
}

#[test]
fn an_sa_that_moves_keeps_its_sequence_numbers() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    for attribute in &mut twin.tables().states.get_mut(&0x201).expect("it is there").nlas {
        if let XfrmAttrs::ReplayStateEsn(replay) = attribute {
            (replay.oseq_hi, replay.oseq) = (4, u32::MAX);
        }
    }
    let moved = Path { remote: ([192, 0, 2, 9], 4500).into(), ..path() };
    plane.relocate(SaId(2), moved).expect("the kernel can");
    let state = plane.read_back(SaId(2)).expect("it is there");
    assert_eq!(state.user_sa_info.id.daddr.to_ipv4().to_string(), "192.0.2.9");
    let numbers = state.nlas.iter().find_map(|a| match a {
        XfrmAttrs::ReplayStateEsn(replay) => Some((replay.oseq_hi, replay.oseq)),
        _ => None,
    });
    assert_eq!(numbers, Some((4, u32::MAX)));
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
}

#[test]
fn a_refusal_at_any_point_leaves_nothing_and_leaks_nothing() {
    for refuse_after in 0.. {
        let (mut plane, twin) = plane();
        twin.tables().refuse_after = Some(refuse_after);
        if plane.add_rule(rule()).is_err() {
            assert!(twin.tables().policies.is_empty(), "after {refuse_after}");
            continue;
        }
        let outcome = plane
            .add_inbound(inbound(1, 0x101))
            .and_then(|()| plane.add_outbound(outbound(2, 0x201, false)));
        if outcome.is_ok() {
            assert!(refuse_after > 5, "{refuse_after}");
            return;
        }
        // Of the SA that was refused nothing is left, and the traffic is dropped.
        assert_eq!(twin.policy(PolicyDirection::Out), [None], "after {refuse_after}");
        assert!(!twin.spis().contains(&0x201), "after {refuse_after}");
        drop(plane);
        assert!(twin.tables().policies.is_empty(), "after {refuse_after}");
        assert!(twin.spis().is_empty(), "after {refuse_after}");
    }
}

#[test]
fn sas_and_policies_that_others_removed_are_put_back() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_inbound(inbound(1, 0x101)).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    twin.tables().states.clear();
    twin.tables().policies.clear();
    assert_eq!(plane.restore_missing(), Ok((2, 3)));
    assert_eq!(twin.spis(), [0x101, 0x201]);
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
    assert_eq!(plane.restore_missing(), Ok((0, 0)));
}

#[test]
fn an_sa_goes_on_after_the_number_that_was_used_last() {
    for (esn, used) in [(false, 7), (true, (3 << 32) + 5)] {
        let (mut plane, _twin) = plane();
        plane.add_rule(rule()).expect("the kernel can");
        plane.add_outbound(OutboundSa { esn, ..outbound(2, 0x201, true) }).expect("the kernel can");
        plane.resume(SaId(2), used).expect("it waits");
        assert_eq!(plane.last_sequence(SaId(2)), Some(used));
        plane.promote(SaId(2)).expect("the kernel can");
        plane.resume(SaId(2), used).expect_err("it sends");
    }
}

/// The numbers of an SA in the kernel, and whether every bit of its window is set.
fn numbers(twin: &Twin, spi: u32, inbound: bool) -> (u64, bool) {
    let state = &twin.tables().states[&spi];
    let replay = state.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::ReplayStateEsn(replay) => Some(replay.clone()),
        _ => None,
    });
    let replay = replay.expect("it has numbers");
    let last = crate::state::last_sequence(state, inbound).expect("it has numbers");
    let whole = replay.bmp.len() * 32 >= replay.replay_window as usize;
    (last, whole && replay.bmp.iter().all(|word| *word == u32::MAX))
}

#[test]
fn an_sa_goes_on_behind_the_numbers_that_it_skips() {
    for esn in [false, true] {
        let (mut plane, twin) = plane();
        plane.add_rule(rule()).expect("the kernel can");
        plane.add_inbound(InboundSa { esn, ..inbound(1, 0x101) }).expect("the kernel can");
        plane.add_outbound(OutboundSa { esn, ..outbound(2, 0x201, true) }).expect("it can");
        plane.resume(SaId(2), 3).expect("it waits");
        plane.promote(SaId(2)).expect("the kernel can");
        twin.sent(60);
        plane.skip(SaId(2), 1 << 30).expect("the kernel can");
        assert_eq!(numbers(&twin, 0x201, false).0, 63 + (1 << 30));
        assert_eq!(plane.last_sequence(SaId(2)), Some(63 + (1 << 30)));
        assert_eq!(plane.usage(SaId(2)).expect("it is there").packets, 60);
        assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
        plane.skip(SaId(1), 500).expect("the kernel can");
        assert_eq!(numbers(&twin, 0x101, true), (500, true));
        plane.skip(SaId(2), u64::MAX).expect("the kernel can");
        let highest = if esn { u64::MAX } else { u32::MAX.into() };
        assert_eq!(numbers(&twin, 0x201, false).0, highest);
        assert_eq!(plane.skip(SaId(3), 1), Err(PlaneError::NoSuchSa(SaId(3))));
    }
}

#[test]
fn an_sa_without_a_window_has_none_after_numbers_are_skipped() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    let off = InboundSa { esn: false, replay_window: 0, ..inbound(1, 0x101) };
    plane.add_inbound(off).expect("the kernel can");
    plane.skip(SaId(1), 500).expect("there is nothing to do");
    let state = &twin.tables().states[&0x101];
    assert_eq!((state.user_sa_info.replay_window, crate::state::replay_of_state(state)), (0, None));
}

/// How many packets the kernel still lets an SA send.
fn left(twin: &Twin) -> u64 {
    let lifetime = twin.tables().states[&0x201].user_sa_info;
    lifetime.lifetime_cfg.hard_packet_limit - lifetime.lifetime_cur.packets
}

#[test]
fn the_kernel_ends_at_the_last_number_that_is_allowed() {
    for (esn, used) in [(false, 7), (true, (3 << 32) + 5)] {
        let (mut plane, twin) = plane();
        plane.add_rule(rule()).expect("the kernel can");
        plane.add_outbound(OutboundSa { esn, ..outbound(2, 0x201, true) }).expect("the kernel can");
        plane.resume(SaId(2), used).expect("it waits");
        plane.allow(SaId(2), used + 100).expect("the kernel can");
        assert_eq!((left(&twin), plane.last_sequence(SaId(2))), (100, Some(used)));
        plane.promote(SaId(2)).expect("the kernel can");
        // Sixty packets later, the limit is raised, and nothing else is changed.
        twin.sent(60);
        plane.allow(SaId(2), used + 150).expect("the kernel can");
        assert_eq!((left(&twin), plane.last_sequence(SaId(2))), (90, Some(used + 60)));
        assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
        // Moved, it has those that are left.
        let moved = Path { remote: ([192, 0, 2, 9], 4500).into(), ..path() };
        plane.relocate(SaId(2), moved).expect("the kernel can");
        assert_eq!((left(&twin), plane.last_sequence(SaId(2))), (90, Some(used + 60)));
        assert_eq!(plane.retire(SaId(2)), Some(used + 60));
        assert_eq!(plane.retire(SaId(2)), None);
    }
}

#[test]
fn an_sa_that_the_kernel_has_ended_at_its_limit_goes_on_behind_it() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_outbound(OutboundSa { esn: false, ..outbound(2, 0x201, false) }).expect("it can");
    plane.allow(SaId(2), 100).expect("the kernel can");
    for heard in [true, false] {
        let limit = plane.last_sequence(SaId(2)).expect("it is there").max(100);
        let ended = plane.ledger.sa(SaId(2)).expect("an SA").form.name();
        twin.tables().states.clear();
        if heard {
            plane.known.expire(&ended, true);
            assert_eq!(plane.last_sequence(SaId(2)), Some(limit), "it may have used all");
            assert_eq!(plane.restore_missing(), Ok((0, 0)));
        }
        // Once the kernel refuses.
        twin.tables().refuse_after = Some(0);
        plane.allow(SaId(2), limit + 50).expect_err("refused");
        twin.tables().refuse_after = None;
        plane.allow(SaId(2), limit + 50).expect("the kernel can");
        assert_eq!((left(&twin), plane.last_sequence(SaId(2))), (50, Some(limit)));
        assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
        twin.sent(50);
        plane.usage(SaId(2));
    }
}

/// The kernel counts a super-packet once if a card cuts it up, and stops too late.
#[test]
fn an_sa_that_is_seen_behind_its_limit_is_paused_until_that_is_raised() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    plane.allow(SaId(2), 100).expect("the kernel can");
    for attribute in &mut twin.tables().states.get_mut(&0x201).expect("it is there").nlas {
        if let XfrmAttrs::ReplayStateEsn(replay) = attribute {
            replay.oseq = 100;
        }
    }
    assert_eq!(plane.last_sequence(SaId(2)), Some(100));
    plane.allow(SaId(2), 100).expect("the kernel can");
    assert_eq!(twin.policy(PolicyDirection::Out), [None]);
    plane.allow(SaId(2), 101).expect("the kernel can");
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
}
