//! Remembered flows, against searching for each packet.

use super::*;
use crate::filter::{Direction, FilterAction, FilterRule};

fn spi(outcome: Result<Vec<Vec<u8>>, Discard>) -> Result<u32, Discard> {
    outcome.map(|packets| u32::from_be_bytes(*packets[0].first_chunk().expect("an SPI")))
}

/// Changes all that decides about a packet.
#[derive(Clone, Debug)]
enum Step {
    AddRule(u32, u16),
    RemoveRule(u32),
    RenameRule(u32, u32),
    AddSa { id: u64, rule: u32, tcp_only: bool, port: u16, standby: bool },
    Promote(u64),
    RemoveSa(u64),
    Filter(Option<(FilterAction, u16)>),
    Send { tcp: bool, port: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    let action = prop_oneof![Just(FilterAction::Discard), Just(FilterAction::Bypass)];
    prop_oneof![
        2 => (0..4_u32, 0..3_u16).prop_map(|(id, port)| Step::AddRule(id, port)),
        1 => (0..4_u32).prop_map(Step::RemoveRule),
        1 => (0..4_u32, 0..4_u32).prop_map(|(from, to)| Step::RenameRule(from, to)),
        3 => (0..6_u64, 0..4_u32, any::<bool>(), 0..3_u16, any::<bool>()).prop_map(
            |(id, rule, tcp_only, port, standby)| Step::AddSa { id, rule, tcp_only, port, standby }
        ),
        1 => (0..6_u64).prop_map(Step::Promote),
        2 => (0..6_u64).prop_map(Step::RemoveSa),
        1 => prop::option::of((action, 0..3_u16)).prop_map(Step::Filter),
        10 => (any::<bool>(), 0..3_u16).prop_map(|(tcp, port)| Step::Send { tcp, port }),
    ]
}

fn for_port(port: u16) -> TrafficSelectors {
    let mut selectors = between_any();
    for selector in &mut selectors.remote {
        // 0 stands for any.
        if port > 0 {
            selector.ports = PortRange::new(port, port).expect("ordered");
        }
    }
    selectors
}

proptest! {
    #[test]
    fn a_remembered_lookup_finds_the_same_as_a_search(steps in prop::collection::vec(step(), 1..80)) {
        let now = Instant::now();
        let mut datapath = Datapath::new(Settings::default(), now);
        let mut sender = datapath.sender();
        for step in steps {
            // The reason why a change is refused does not matter here.
            match step {
                Step::AddRule(id, port) => {
                    let selectors = for_port(port);
                    _ = datapath.add_rule(Rule { id: RuleId(id), selectors, ..rule(false) });
                }
                Step::RemoveRule(id) => datapath.remove_rule(RuleId(id)),
                Step::RenameRule(from, to) => {
                    if datapath.0.spd.rule(RuleId(to)).is_none() {
                        datapath.renumber_rule(RuleId(from), RuleId(to));
                    }
                }
                Step::AddSa { id, rule, tcp_only, port, standby } => {
                    let mut selectors = for_port(port);
                    selectors.local.iter_mut().filter(|_| tcp_only).for_each(|s| s.protocol = TCP);
                    _ = datapath.add_outbound(OutboundSa {
                        id: SaId(id),
                        rule: RuleId(rule),
                        spi: Spi(SPI + id as u32),
                        selectors: selectors.into(),
                        standby,
                        ..Kind::PLAIN.outbound()
                    });
                }
                Step::Promote(id) => _ = datapath.promote(SaId(id)),
                Step::RemoveSa(id) => _ = datapath.remove(SaId(id)),
                Step::Filter(action) => {
                    let rules = action.map(|(action, port)| FilterRule {
                        name: None,
                        action,
                        direction: Direction::Both,
                        traffic: for_port(port),
                    });
                    let filter = Filter { rules: rules.into_iter().collect(), ..Filter::default() };
                    datapath.set_filter(Arc::new(filter)).expect("it has one");
                }
                Step::Send { tcp, port } => {
                    let packet = match tcp {
                        true => sample::tcp(false, 1, ACK, &[], &[]),
                        false => sample::udp(false, (9, port), &[]),
                    };
                    sender.prefetch([&packet[..], &[]].into_iter());
                    let (mut one, mut other) = (SendQueue::new(0), SendQueue::new(0));
                    let searched = datapath.encapsulate(now, &mut packet.clone(), Gso::NONE, &mut one);
                    let looked_up = sender.encapsulate(now, &mut packet.clone(), Gso::NONE, &mut other);
                    prop_assert_eq!(
                        spi(searched.map(|()| datagrams(&one))),
                        spi(looked_up.map(|()| datagrams(&other)))
                    );
                }
            }
        }
    }
}

#[test]
fn a_flow_is_searched_for_once_and_again_after_a_change() {
    let pair = Pair::new(Kind::PLAIN);
    let lookups = || lock(&pair.way_out).take_lookups();
    let send = |port| pair.protect(&sample::udp(false, (1, port), &[])).map(drop);
    // Nothing depends on ports.
    for port in [2, 2, 3] {
        send(port).expect("an SA");
    }
    assert_eq!(lookups(), Lookups { known: 2, searched: 1 });
    pair.sender.clone().add_rule(Rule { id: RuleId(9), ..rule(false) }).expect("a new rule");
    for port in [2, 3, 2] {
        send(port).expect("an SA");
    }
    assert_eq!(lookups(), Lookups { known: 2, searched: 1 });
    name_a_port(&pair);
    for port in [2, 3, 2] {
        send(port).expect("an SA");
    }
    assert_eq!(lookups(), Lookups { known: 1, searched: 2 });
}

/// Adds a rule for one port, behind those that there are.
fn name_a_port(pair: &Pair) {
    let selectors = for_port(1);
    let rule = Rule { id: RuleId(10), selectors, ..rule(false) };
    pair.sender.clone().add_rule(rule).expect("a new rule");
}

#[test]
fn more_flows_than_there_are_places_for() {
    let pair = Pair::new(Kind::PLAIN);
    name_a_port(&pair);
    let mut sender = pair.sender.sender();
    let mut look_up = |flows: std::ops::Range<u32>| {
        for flow in flows {
            let packet = sample::udp(false, ((flow >> 16) as u16, flow as u16), &[]);
            assert!(sender.is_protected(&Header::parse(&packet).expect("whole")));
        }
        sender.take_lookups()
    };
    assert_eq!(look_up(0..20_000), Lookups { known: 0, searched: 20_000 });
    // As many as there are SAs find their places again.
    assert!((19_000..=20_000).contains(&look_up(0..20_000).known));
    assert_eq!(look_up(20_000..80_000).known, 0);
    // The newest take the places of the oldest, where there is none for all.
    let Lookups { known, searched } = look_up(0..80_000);
    assert_eq!(known + searched, 80_000);
    assert!((1..65_536).contains(&known), "{known}");
}

#[test]
fn the_keys_of_an_sa_go_with_it_and_not_with_the_next_packet() {
    let pair = Pair::new(Kind::PLAIN);
    pair.protect(&sample::udp(false, (1, 2), &[])).expect("an SA");
    let sa = Arc::downgrade(&pair.outbound());
    pair.sender.clone().remove(OUT);
    assert_eq!(sa.strong_count(), 0);
}
