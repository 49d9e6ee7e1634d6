//! The filter before the rules, and what becomes of packets that are only asked about.

use super::*;
use crate::filter::{DefaultAction, Direction, FilterAction, FilterRule};
use crate::plane::PacketSummary;
use crate::trace::{DecidedBy, OneWayTrace};

const ECHO: &str = "udp 10.1.0.1:7 10.2.0.2:7";

fn filter_rule(action: FilterAction, direction: Direction, port: u16) -> FilterRule {
    let of = |mut selectors: Vec<Selector>, port: Option<u16>| {
        for selector in &mut selectors {
            selector.protocol = UDP;
            selector.ports = port.map_or(PortRange::ANY, |p| PortRange::new(p, p).expect("one"));
        }
        selectors
    };
    let traffic =
        TrafficSelectors { local: of(everything(), None), remote: of(everything(), Some(port)) };
    FilterRule { name: None, action, direction, traffic }
}

fn packet(text: &str) -> PacketSummary {
    crate::trace::parse(text).expect("a packet")
}

fn traces(datapath: &Datapath, text: &str) -> [OneWayTrace; 2] {
    let trace = datapath.clone().trace(&packet(text)).expect("it can tell");
    [trace.leaving, trace.arriving]
}

#[test]
fn the_filter_comes_before_the_tunnels() {
    let pair = Pair::new(Kind::PLAIN);
    let rules = vec![
        filter_rule(FilterAction::Discard, Direction::Out, 53),
        filter_rule(FilterAction::Bypass, Direction::Out, 54),
        filter_rule(FilterAction::Discard, Direction::In, 55),
    ];
    let filter = Arc::new(Filter { rules, ..Filter::default() });
    pair.sender.clone().set_filter(filter).expect("it has one");
    let leaves = |port| pair.protect(&sample::udp(false, (1, port), &[]));
    assert_eq!(leaves(53), Err(Discard::FilterDiscard));
    assert_eq!(leaves(54), Err(Discard::FilterBypass));
    assert!(leaves(55).is_ok(), "the other way");
    assert!(leaves(56).is_ok());
    assert_eq!(pair.count(Discard::FilterDiscard), 1);
    assert_eq!(pair.count(Discard::FilterBypass), 1);
    pair.sender.clone().set_filter(Arc::default()).expect("it has one");
    assert!(leaves(53).is_ok());
}

#[test]
fn a_trace_says_what_packets_meet() {
    let pair = Pair::new(Kind::PLAIN);
    let [leaving, _] = traces(&pair.sender, ECHO);
    let DecidedBy::Tunnel { rule, .. } = leaving.decided_by else { panic!("{leaving:?}") };
    assert_eq!(rule, RULE);
    let [sa] = leaving.sas.as_slice() else { panic!("{leaving:?}") };
    assert_eq!((sa.spi, sa.carries, sa.path), (Spi(SPI), true, Kind::PLAIN.path()));
    assert_eq!(sa.inner_mtu, {
        let Path { encapsulation, .. } = sa.path;
        crate::encap::inner_mtu(1500, sa.suite, sa.mode, encapsulation, false)
    });
    let [_, arriving] = traces(&pair.receiver, ECHO);
    assert_eq!(arriving.sas.iter().map(|sa| sa.spi).collect::<Vec<_>>(), []);
    let mut receiver = pair.receiver.clone();
    receiver.add_rule(rule_of("t", RuleId(7))).expect("a new rule");
    let [_, arriving] = traces(&pair.receiver, ECHO);
    assert_eq!(arriving.sas.iter().map(|sa| sa.spi).collect::<Vec<_>>(), [Spi(SPI)]);

    // Without the SA, and then without the rule.
    let mut sender = pair.sender.clone();
    sender.remove(OUT);
    let [leaving, _] = traces(&sender, ECHO);
    assert!(leaving.sas.is_empty() && matches!(leaving.decided_by, DecidedBy::Tunnel { .. }));
    sender.remove_rule(RULE);
    let [leaving, arriving] = traces(&sender, ECHO);
    assert_eq!(leaving.decided_by, DecidedBy::Default(DefaultAction::Permit));
    assert_eq!(arriving.decided_by, DecidedBy::Default(DefaultAction::Permit));
    let deny = Filter { ipv6: DefaultAction::Deny, ..Filter::default() };
    sender.set_filter(deny.into()).expect("it has one");
    let [leaving, _] = traces(&sender, "tcp [fd01::1]:1 [fd02::1]:2");
    assert_eq!(leaving.decided_by, DecidedBy::Default(DefaultAction::Deny));
}

fn rule_of(tunnel: &str, id: RuleId) -> Rule {
    Rule { id, tunnel: tunnel.to_owned(), ..rule(false) }
}

#[test]
fn a_trace_lists_the_rules_behind_the_one_that_decided() {
    let mut datapath = Datapath::new(Settings::default(), Instant::now());
    for (name, id) in [("first", 1), ("second", 2), ("third", 3)] {
        datapath.add_rule(rule_of(name, RuleId(id))).expect("a new rule");
    }
    let [leaving, arriving] = traces(&datapath, ECHO);
    assert_eq!(leaving.behind, ["tunnel second", "tunnel third"]);
    assert_eq!(arriving.behind, leaving.behind);
    let rules = vec![
        filter_rule(FilterAction::Bypass, Direction::Out, 7),
        filter_rule(FilterAction::Discard, Direction::Both, 7),
    ];
    datapath.set_filter(Arc::new(Filter { rules, ..Filter::default() })).expect("it has one");
    let [leaving, arriving] = traces(&datapath, ECHO);
    assert!(matches!(leaving.decided_by, DecidedBy::Filter { place: 0, .. }), "{leaving:?}");
    assert_eq!(leaving.behind, ["rule 2", "tunnel first", "tunnel second", "tunnel third"]);
    // An arriving packet comes from the remote port 7, and does not go to it.
    assert!(matches!(arriving.decided_by, DecidedBy::Filter { place: 1, .. }), "{arriving:?}");
    let [leaving, _] = traces(&datapath, "udp 10.1.0.1 10.2.0.2 fragment");
    assert!(matches!(leaving.decided_by, DecidedBy::Tunnel { .. }), "it shows no port");
}

#[test]
fn an_sa_does_not_carry_a_packet_outside_the_agreed_selectors() {
    let mut outbound = Kind::PLAIN.outbound();
    for selector in &mut Arc::make_mut(&mut outbound.selectors).local {
        selector.protocol = TCP;
    }
    let pair = Pair::with(Kind::PLAIN, outbound, Kind::PLAIN.inbound());
    let [leaving, _] = traces(&pair.sender, ECHO);
    assert!(leaving.sas.iter().all(|sa| !sa.carries) && leaving.sas.len() == 1, "{leaving:?}");
    let [leaving, _] = traces(&pair.sender, "tcp 10.1.0.1:7 10.2.0.2:7");
    assert!(leaving.sas[0].carries);
}

/// A trace tells the real outcome, for packets that are all alike but for their ports.
#[test]
fn traces_agree_with_packets() {
    let pair = Pair::new(Kind::PLAIN);
    let rules = vec![
        filter_rule(FilterAction::Discard, Direction::Both, 1),
        filter_rule(FilterAction::Bypass, Direction::Out, 2),
    ];
    pair.sender.clone().set_filter(Filter { rules, ..Filter::default() }.into()).expect("ours");
    for port in 1..4 {
        let (from, to) = sample::hosts(false);
        let [leaving, _] = traces(&pair.sender, &format!("udp {from}:9 {to}:{port}"));
        let outcome = pair.protect(&sample::udp(false, (9, port), &[]));
        let said = match leaving.decided_by {
            DecidedBy::Filter { rule, .. } if rule.action == FilterAction::Bypass => {
                Err(Discard::FilterBypass)
            }
            DecidedBy::Filter { .. } => Err(Discard::FilterDiscard),
            _ => Ok(leaving.sas[0].spi),
        };
        let done = outcome.map(|esp| Spi(u32::from_be_bytes(*esp.first_chunk().expect("an SPI"))));
        assert_eq!(done, said, "port {port}");
    }
}
