use super::*;
use crate::plane::{Encapsulation, Limits, Path, TrafficSelectors};
use crypto::Suite;
use policy::{KeyBits, Mode, Secret};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;

fn rule(id: u32) -> Rule {
    let selectors = TrafficSelectors { local: Vec::new(), remote: Vec::new() };
    Rule { id: RuleId(id), tunnel: "net0".into(), selectors, trap: false }
}

fn inbound(id: u64, rule: u32) -> InboundSa {
    InboundSa {
        id: SaId(id),
        rule: RuleId(rule),
        spi: Spi(0x100 + id as u32),
        suite: Suite::AesGcm16(KeyBits::B128),
        key: Secret::new(vec![0; 20]),
        esn: true,
        replay_window: 64,
        mode: Mode::Tunnel,
        path: Path {
            local: ([192, 0, 2, 1], 4500).into(),
            remote: ([192, 0, 2, 2], 4500).into(),
            encapsulation: Encapsulation::Udp,
        },
        selectors: Arc::new(TrafficSelectors { local: Vec::new(), remote: Vec::new() }),
        limits: Limits::default(),
    }
}

fn outbound(id: u64, rule: u32, standby: bool) -> OutboundSa {
    let InboundSa { id, rule, spi, suite, key, esn, mode, path, selectors, limits, .. } =
        inbound(id, rule);
    OutboundSa { id, rule, spi, suite, key, esn, mode, path, selectors, limits, standby }
}

#[test]
fn the_plane_keeps_its_values_with_rules_and_sas() {
    let mut ledger = Ledger::default();
    assert!(ledger.enter_rule(rule(1), "first").is_none());
    ledger.enter_sa(SaEntry::inbound(&inbound(7, 1), 70));
    assert_eq!(
        ledger.rule_mut(RuleId(1)).map(|of_rule| std::mem::replace(of_rule, "second")),
        Some("first")
    );
    assert_eq!(ledger.sa_mut(SaId(7)).map(|of_sa| std::mem::replace(of_sa, 71)), Some(70));
    assert!(ledger.set_trap(RuleId(1)) && !ledger.set_trap(RuleId(2)));
    // Another rule of that name takes its place, with its SAs.
    let before = ledger.enter_rule(rule(1), "third").expect("the rule before");
    assert_eq!((before.extra, before.rule.trap), ("second", true));
    assert_eq!(ledger.of_rule(RuleId(1)).map(|sa| **sa).collect::<Vec<_>>(), [71]);
    assert_eq!(ledger.receiver(Spi(0x107)).map(|sa| sa.id), Some(SaId(7)));
    assert_eq!(ledger.strike_sa(SaId(7)).map(|sa| sa.extra), Some(71));
    assert!(ledger.receiver(Spi(0x107)).is_none());
    assert_eq!(ledger.strike_rule(RuleId(1)).map(|rule| rule.extra), Some("third"));
}

#[test]
fn only_an_outbound_sa_has_a_turn() {
    let mut ledger: Ledger<(), ()> = Ledger::default();
    ledger.enter_sa(SaEntry::inbound(&inbound(1, 1), ()));
    ledger.enter_sa(SaEntry::outbound(&outbound(2, 1, false), ()));
    for none in [SaId(1), SaId(3)] {
        assert_eq!(ledger.promote(none), Err(PlaneError::NoSuchSa(none)));
        assert_eq!(ledger.stand_by(none), None);
    }
    assert!(ledger.receiver(Spi(0x102)).is_none(), "it sends");
    let first = ledger.sa(SaId(2)).and_then(SaEntry::turn);
    assert!(first.is_some());
    assert_eq!(ledger.promote(SaId(2)), Ok(first));
    assert!(ledger.stand_by(SaId(2)) > first);
    assert_eq!(ledger.promote(SaId(2)), Ok(None));
}

#[derive(Clone, Debug)]
enum Step {
    Rule(u32),
    Renumber(u32, u32),
    StrikeRule(u32),
    Inbound(u64, u32),
    Outbound(u64, u32, bool),
    Promote(u64),
    StandBy(u64),
    StrikeSa(u64),
}

const RULES: Range<u32> = 0..5;
const SAS: Range<u64> = 0..8;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        RULES.prop_map(Step::Rule),
        (RULES, RULES).prop_map(|(from, to)| Step::Renumber(from, to)),
        RULES.prop_map(Step::StrikeRule),
        (SAS, RULES).prop_map(|(sa, rule)| Step::Inbound(sa, rule)),
        (SAS, RULES, any::<bool>()).prop_map(|(sa, rule, late)| Step::Outbound(sa, rule, late)),
        SAS.prop_map(Step::Promote),
        SAS.prop_map(Step::StandBy),
        SAS.prop_map(Step::StrikeSa),
    ]
}

/// The same in lists. Of the SAs that send, the last one was added or promoted last.
#[derive(Default)]
struct Lists {
    rules: Vec<u32>,
    /// Each with its rule; `true`: outbound.
    sas: Vec<(u64, u32, bool)>,
    senders: Vec<u64>,
}

impl Lists {
    fn enter(&mut self, sa: u64, rule: u32, outbound: bool) {
        self.strike(sa);
        self.sas.push((sa, rule, outbound));
        self.sas.sort_unstable();
    }

    fn strike(&mut self, sa: u64) {
        self.sas.retain(|(id, ..)| *id != sa);
        self.senders.retain(|id| *id != sa);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Rule(rule) => {
                self.rules.push(rule);
                self.rules.sort_unstable();
                self.rules.dedup();
            }
            Step::Renumber(from, to) => {
                if self.rules.contains(&from) && !self.rules.contains(&to) {
                    self.rules.retain(|rule| *rule != from);
                    self.take(Step::Rule(to));
                    let of_rule = self.sas.iter_mut().filter(|(_, rule, _)| *rule == from);
                    of_rule.for_each(|(_, rule, _)| *rule = to);
                }
            }
            Step::StrikeRule(rule) => self.rules.retain(|other| *other != rule),
            Step::Inbound(sa, rule) => self.enter(sa, rule, false),
            Step::Outbound(sa, rule, standby) => {
                self.enter(sa, rule, true);
                self.senders.extend((!standby).then_some(sa));
            }
            Step::Promote(sa) => {
                if self.sas.iter().any(|(id, _, outbound)| *id == sa && *outbound) {
                    self.senders.retain(|id| *id != sa);
                    self.senders.push(sa);
                }
            }
            Step::StandBy(sa) => self.senders.retain(|id| *id != sa),
            Step::StrikeSa(sa) => self.strike(sa),
        }
    }
}

fn take(ledger: &mut Ledger<(), ()>, step: Step) {
    match step {
        Step::Rule(id) => _ = ledger.enter_rule(rule(id), ()),
        Step::Renumber(from, to) => _ = ledger.renumber_rule(RuleId(from), RuleId(to)),
        Step::StrikeRule(id) => _ = ledger.strike_rule(RuleId(id)),
        Step::Inbound(sa, rule) => ledger.enter_sa(SaEntry::inbound(&inbound(sa, rule), ())),
        Step::Outbound(sa, rule, standby) => {
            ledger.enter_sa(SaEntry::outbound(&outbound(sa, rule, standby), ()));
        }
        Step::Promote(sa) => _ = ledger.promote(SaId(sa)),
        Step::StandBy(sa) => _ = ledger.stand_by(SaId(sa)),
        Step::StrikeSa(sa) => _ = ledger.strike_sa(SaId(sa)),
    }
}

proptest! {
    /// As lists that are searched, after any changes.
    #[test]
    fn agrees_with_lists(steps in prop::collection::vec(step(), 1..60)) {
        let (mut ledger, mut lists) = (Ledger::default(), Lists::default());
        for step in steps {
            take(&mut ledger, step.clone());
            lists.take(step);
            let rules: Vec<u32> = ledger.rules().map(|entry| entry.rule.id.0).collect();
            prop_assert_eq!(&rules, &lists.rules);
            let sas: Vec<_> = ledger.sas().map(|sa| (sa.id.0, sa.rule.0, !sa.receives())).collect();
            prop_assert_eq!(&sas, &lists.sas);
            for rule in RULES {
                let found: Vec<u64> = ledger.of_rule(RuleId(rule)).map(|sa| sa.id.0).collect();
                let searched = lists.sas.iter().filter(|sa| sa.1 == rule).map(|sa| sa.0);
                prop_assert_eq!(found, searched.collect::<Vec<_>>());
            }
            let mut senders: Vec<_> = ledger.sas().filter(|sa| sa.turn().is_some()).collect();
            senders.sort_by_key(|sa| sa.turn());
            let senders: Vec<u64> = senders.into_iter().map(|sa| sa.id.0).collect();
            prop_assert_eq!(&senders, &lists.senders);
        }
    }
}
