//! Facts in, findings out.

use super::shadow::Shadow;
use super::subject::Flow;
use super::*;
use esp::filter::{Direction, FilterAction, FilterRule};
use esp::plane::{Encapsulation, TrafficSelectors};
use host_facts::firewall::Firewall;
use host_facts::{Attachment, Family, Prefix, RouteLookup};
use policy::{AddressRange, Mode, Selector};
use std::net::IpAddr;
use std::time::Duration;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn range(text: &str) -> AddressRange {
    match text.split_once('/') {
        Some((start, length)) => {
            let length = length.parse().expect("a length");
            AddressRange::subnet(address(start), length).expect("a subnet")
        }
        None => address(text).into(),
    }
}

fn selectors(networks: &[&str]) -> Vec<Selector> {
    networks.iter().map(|network| Selector::all_of(range(network))).collect()
}

/// A tunnel between two networks, through which packets pass in both directions.
fn site() -> Subject {
    let flow = Flow { packets: 9, bytes: 756, idle: Some(Duration::from_secs(1)) };
    let (local, remote) = (selectors(&["10.1.0.0/24"]), selectors(&["10.2.0.0/24"]));
    Subject {
        child: "site_lan".to_owned(),
        mode: Mode::Tunnel,
        asked: Some([local.clone(), remote.clone()]),
        local,
        remote,
        wanted: None,
        shadowed_by: None,
        device: Some("vpn0".to_owned()),
        ends: ["192.0.2.1:4500", "192.0.2.2:4500"].map(|end| end.parse().expect("an end")),
        encapsulation: Encapsulation::Native,
        inbound: flow,
        outbound: flow,
        refused: 0,
        unprotected: None,
        is_peer_silent: false,
    }
}

fn between(local: &str, remote: &str) -> Subject {
    let (local, remote) = (selectors(&[local]), selectors(&[remote]));
    Subject { asked: Some([local.clone(), remote.clone()]), local, remote, ..site() }
}

/// A gateway with the network 10.1.0.0/24 on lan0, that is in order.
fn gateway() -> HostFacts {
    let mut host = HostFacts::default();
    attach(&mut host, "192.0.2.1", 24, "wire");
    attach(&mut host, "10.1.0.1", 24, "lan0");
    for subject in
        [site(), between("10.1.0.0/16", "10.2.0.0/16"), between("10.9.0.0/24", "fd02::/64")]
    {
        for destination in questions(&[subject], 7).destinations {
            lead(&mut host, &destination.to_string(), "wire", true);
        }
    }
    for last in ["1", "2", "3", "254"] {
        lead(&mut host, &format!("10.2.0.{last}"), "vpn0", false);
        lead(&mut host, &format!("10.1.0.{last}"), "lan0", false);
    }
    own(&mut host, "10.1.0.1");
    for marked in [false, true] {
        let route = RouteLookup { device: "wire".to_owned(), own: false, default: false };
        host.routes.insert((address("192.0.2.2"), marked), Some(route));
    }
    for device in ["all", "vpn0", "wire", "lan0"] {
        for family in Family::BOTH {
            host.forwarding.insert((family, device.to_owned()), true);
        }
        host.rp_filter.insert(device.to_owned(), 0);
    }
    host
}

fn attach(host: &mut HostFacts, own: &str, length: u8, device: &str) {
    let (address, device) = (address(own), device.to_owned());
    let network = Prefix::holding(address, length);
    host.attachments.push(Attachment { address, network, device });
}

fn lead(host: &mut HostFacts, to: &str, device: &str, default: bool) {
    let route = RouteLookup { device: device.to_owned(), own: false, default };
    host.routes.insert((address(to), false), Some(route));
}

fn own(host: &mut HostFacts, to: &str) {
    let route = RouteLookup { device: "lo".to_owned(), own: true, default: false };
    host.routes.insert((address(to), false), Some(route));
}

fn detach(host: &mut HostFacts, device: &str) {
    host.attachments.retain(|attachment| attachment.device != device);
}

/// The kinds of findings, and whether each is certain.
fn found(subject: &Subject, host: &HostFacts) -> Vec<(&'static str, bool)> {
    judge(subject, host, None).iter().map(|f| (f.kind.name(), f.certain)).collect()
}

fn only(subject: &Subject, host: &HostFacts) -> Finding {
    let mut findings = judge(subject, host, None);
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[test]
fn a_host_in_order_has_no_findings() {
    assert_eq!(judge(&site(), &gateway(), None), []);
    // Of a host about which nothing is known, nothing is told.
    assert_eq!(judge(&site(), &HostFacts::default(), None), []);
    let kernel = Subject { device: None, ..site() };
    assert_eq!(judge(&kernel, &HostFacts::default(), None), []);
}

#[test]
fn forwarding_that_is_off_is_told_with_its_cure() {
    let mut host = gateway();
    for device in ["all", "vpn0", "wire", "lan0"] {
        host.forwarding.insert((Family::V4, device.to_owned()), false);
    }
    let finding = only(&site(), &host);
    assert_eq!((finding.kind, finding.certain), (FindingKind::Forwarding, true));
    assert!(finding.message.contains("net.ipv4.ip_forward is 0"), "{}", finding.message);
    assert!(finding.message.contains("10.1.0.0/24"), "{}", finding.message);
    assert_eq!(finding.cure[0], "sysctl -w net.ipv4.ip_forward=1");
    // A tunnel of this host alone needs no forwarding.
    assert_eq!(found(&between("10.1.0.1", "10.2.0.0/24"), &host), []);
    let transport = Subject { mode: Mode::Transport, ..site() };
    assert_eq!(found(&transport, &host), []);
}

#[test]
fn a_single_device_may_not_forward() {
    let mut host = gateway();
    host.forwarding.insert((Family::V4, "lan0".to_owned()), false);
    let finding = only(&site(), &host);
    assert_eq!(finding.cure[0], "sysctl -w net.ipv4.conf.lan0.forwarding=1");
    // Another one does not matter.
    let mut host = gateway();
    host.forwarding.insert((Family::V4, "wire".to_owned()), false);
    assert_eq!(found(&site(), &host), []);
    let in_kernel = Subject { device: None, ..site() };
    assert_eq!(found(&in_kernel, &host), [("forwarding", true)], "its packets arrive there");
}

#[test]
fn ipv6_is_forwarded_by_a_setting_of_its_own() {
    let mut host = gateway();
    attach(&mut host, "fd01::1", 64, "lan0");
    host.forwarding.insert((Family::V6, "all".to_owned()), false);
    let finding = only(&between("fd01::/64", "fd03::/64"), &host);
    assert_eq!(finding.cure[0], "sysctl -w net.ipv6.conf.all.forwarding=1");
    assert_eq!(found(&site(), &host), []);
}

#[test]
fn a_network_without_a_route_is_told() {
    let mut host = gateway();
    detach(&mut host, "lan0");
    for last in ["1", "2", "3", "254"] {
        lead(&mut host, &format!("10.1.0.{last}"), "wire", true);
    }
    let finding = only(&site(), &host);
    assert_eq!((finding.kind, finding.certain), (FindingKind::NoRouteBehind, false));
    assert!(finding.message.contains("only the default route (by wire)"), "{}", finding.message);
    for last in ["1", "2", "3", "254"] {
        host.routes.insert((address(&format!("10.1.0.{last}")), false), None);
    }
    let finding = only(&site(), &host);
    assert!(finding.certain && finding.message.contains("no route of this host"), "{finding:?}");
    // One router behind is enough.
    lead(&mut host, "10.1.0.254", "wire", false);
    assert_eq!(found(&site(), &host), []);
}

#[test]
fn a_host_that_is_all_there_is_needs_no_network() {
    let mut host = gateway();
    detach(&mut host, "lan0");
    attach(&mut host, "10.1.0.1", 32, "lo");
    for last in ["2", "3", "254"] {
        lead(&mut host, &format!("10.1.0.{last}"), "wire", true);
    }
    host.forwarding.insert((Family::V4, "vpn0".to_owned()), false);
    assert_eq!(found(&site(), &host), []);
}

#[test]
fn a_part_of_a_larger_network_is_behind() {
    let host = gateway();
    assert_eq!(found(&between("10.1.0.0/16", "10.2.0.0/24"), &host), []);
}

#[test]
fn the_same_network_on_both_sides_is_told() {
    let host = gateway();
    let twice = between("10.2.0.0/24", "10.2.0.0/24");
    assert!(
        found(&twice, &host).contains(&("duplicate_subnet", true)),
        "{:?}",
        found(&twice, &host)
    );
    // A branch within the network of the hub is reached by the more specific route.
    let hub = between("10.0.0.0/8", "10.2.0.0/24");
    assert_eq!(found(&hub, &host), []);
    assert_eq!(found(&between("0.0.0.0/0", "10.2.0.0/24"), &host), []);
    // The branch sees it the other way round: packets to its own hosts enter the tunnel.
    let mut host = gateway();
    attach(&mut host, "10.3.0.1", 24, "lan1");
    let branch = between("10.3.0.0/24", "10.0.0.0/8");
    assert!(found(&branch, &host).contains(&("duplicate_subnet", false)));
    lead(&mut host, "10.3.0.2", "vpn0", false);
    assert!(found(&branch, &host).contains(&("duplicate_subnet", true)));
    let mut host = gateway();
    attach(&mut host, "10.2.0.77", 24, "lan1");
    let finding = only(&site(), &host);
    assert_eq!(finding.kind, FindingKind::DuplicateSubnet);
    assert!(finding.message.contains("10.2.0.77 (lan1)"), "{}", finding.message);
    // Traffic that a bypass rule keeps out of the tunnel does no harm.
    let traffic = TrafficSelectors {
        local: selectors(&["10.2.0.0/24"]),
        remote: selectors(&["10.2.0.0/24"]),
    };
    let (action, direction) = (FilterAction::Bypass, Direction::Both);
    let rule = FilterRule { name: None, action, direction, traffic };
    let filter = Filter { rules: vec![rule], ..Filter::default() };
    assert_eq!(judge(&site(), &host, Some(&filter)), []);
}

#[test]
fn packets_that_another_rule_diverts_are_told() {
    let mut host = gateway();
    lead(&mut host, "10.2.0.1", "wire", true);
    let finding = only(&site(), &host);
    assert_eq!((finding.kind, finding.certain), (FindingKind::Route, true));
    assert!(finding.message.contains("10.2.0.1 of the remote network 10.2.0.0/24 leaves by wire"));
    let in_kernel = Subject { device: None, ..site() };
    assert_eq!(found(&in_kernel, &host), [], "any route leads to the policies of the kernel");
    host.routes.insert((address("10.2.0.1"), false), None);
    let finding = only(&in_kernel, &host);
    assert_eq!(finding.cure, ["ip route add 10.2.0.0/24 dev wire"]);
}

#[test]
fn a_strict_reverse_path_filter_is_told_only_where_it_drops() {
    let mut host = gateway();
    for device in ["wire", "vpn0", "lan0"] {
        host.rp_filter.insert(device.to_owned(), 1);
    }
    assert_eq!(found(&site(), &host), [], "the way back is the way there");
    // The peer's own address is in the remote network.
    lead(&mut host, "192.0.2.2", "vpn0", false);
    let finding = only(&site(), &host);
    assert_eq!((finding.kind, finding.certain), (FindingKind::RpFilter, true));
    assert_eq!(finding.cure[0], "sysctl -w net.ipv4.conf.wire.rp_filter=2");
    host.rp_filter.insert("wire".to_owned(), 2);
    assert_eq!(found(&site(), &host), []);
}

fn firewall(hook: &str, policy: &str, rules: &str) -> Firewall {
    Firewall::parse(&format!(
        r#"{{"nftables": [{{"chain": {{"family": "ip", "table": "filter", "name": "C", "handle": 1,
            "type": "filter", "hook": "{hook}", "prio": 0, "policy": "{policy}"}}}}{rules}]}}"#
    ))
}

fn rule(expressions: &str) -> String {
    format!(
        r#", {{"rule": {{"family": "ip", "table": "filter", "chain": "C", "handle": 9, "expr": [{expressions}]}}}}"#
    )
}

const KNOWN: &str = r#"{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"accept": null}"#;

/// A chain that changes sources, with these rules.
fn nat(rules: &str) -> Firewall {
    Firewall::parse(&format!(
        r#"{{"nftables": [{{"chain": {{"family": "ip", "table": "filter", "name": "C", "handle": 1,
            "type": "nat", "hook": "postrouting", "prio": 100, "policy": "accept"}}}}{rules}]}}"#
    ))
}

#[test]
fn a_rule_that_changes_the_source_is_told_with_its_exception() {
    let by = |device: &str| {
        let name =
            r#"{"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "DEVICE"}}"#;
        rule(&(name.replace("DEVICE", device) + r#", {"snat": {"addr": "192.0.2.1"}}"#))
    };
    let mut host = gateway();
    let in_kernel = Subject { device: None, ..site() };
    for (subject, device) in [(&site(), "vpn0"), (&in_kernel, "wire")] {
        host.firewall = nat(&by(device));
        let finding = only(subject, &host);
        assert_eq!((finding.kind, finding.certain), (FindingKind::Nat, true));
        let rule = "the rule with handle 9 in the chain ip filter C";
        assert!(finding.message.contains(rule), "{}", finding.message);
        let exception =
            "nft insert rule ip filter C ip saddr 10.1.0.0/24 ip daddr 10.2.0.0/24 accept";
        assert!(finding.cure[1].ends_with(exception), "{:?}", finding.cure);
    }
    assert_eq!(found(&site(), &host), [], "of the other device");
    let silent = Subject { inbound: Flow::default(), ..site() };
    host.firewall = nat(&rule(r#"{"snat": {"addr": "10.1.0.9"}}"#));
    assert_eq!(found(&site(), &host), [], "the tunnel holds the address");
    // The address of the device may be in the tunnel. iptables shows the name alone.
    let targets =
        [r#"{"masquerade": null}"#, r#"{"xt": {"type": "target", "name": "MASQUERADE"}}"#];
    for target in targets {
        host.firewall = nat(&rule(target));
        assert_eq!(found(&site(), &host), []);
        assert!(found(&silent, &host).contains(&("nat", false)));
    }
    let accept = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}},
        "right": {"prefix": {"addr": "10.2.0.0", "len": 24}}}}, {"accept": null}"#;
    host.firewall = nat(&(rule(accept) + &by("vpn0")));
    assert_eq!(found(&site(), &host), [], "the exception stands before it");
    host.firewall =
        nat(&rule(r#"{"snat": {"addr": {"payload": {"protocol": "ip", "field": "saddr"}}}}"#));
    assert_eq!(found(&site(), &host), [], "it stays as it is");
    // It is not known which packets a set holds.
    let set = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@lan"}}"#;
    host.firewall = nat(&rule(&format!(r#"{set}, {{"snat": {{"addr": "192.0.2.1"}}}}"#)));
    assert_eq!(found(&site(), &host), []);
    assert!(found(&silent, &host).contains(&("nat", false)));
}

#[test]
fn a_chain_that_drops_everything_is_told() {
    let mut host = gateway();
    host.firewall = firewall("forward", "drop", "");
    let finding = only(&site(), &host);
    assert_eq!((finding.kind, finding.certain), (FindingKind::Firewall, true));
    assert!(finding.message.contains("the policy of the chain ip filter C"), "{}", finding.message);
    assert!(finding.message.contains("from 10.2.0.0/24 to 10.1.0.0/24"), "{}", finding.message);
    for way in ["iifname", "oifname"] {
        let cure = format!("let them pass: nft insert rule ip filter C {way} vpn0 accept");
        assert!(finding.cure.contains(&cure), "{:?}", finding.cure);
    }
    // Nobody is behind: nothing is forwarded.
    assert_eq!(found(&between("10.1.0.1", "10.2.0.0/24"), &host), []);
    // Flows cannot begin on either side.
    host.firewall = firewall("forward", "drop", &rule(KNOWN));
    assert_eq!(found(&site(), &host), [("firewall", true)]);
}

#[test]
fn a_chain_that_lets_one_side_begin_is_in_order() {
    let begins = r#"{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "lan0"}}, {"accept": null}"#;
    let mut host = gateway();
    host.firewall = firewall("forward", "drop", &(rule(KNOWN) + &rule(begins)));
    assert_eq!(found(&site(), &host), []);
    // Where packets are lost, it may be the cause.
    let inbound = Flow { idle: None, ..Flow::default() };
    let silent = Subject { inbound, ..site() };
    assert_eq!(found(&silent, &host), [("firewall", false), ("one_way", false)]);
}

#[test]
fn rules_of_iptables_that_likely_drop_are_told_while_nothing_passes() {
    let known = r#"{"xt": {"type": "match", "name": "conntrack"}}, {"accept": null}"#;
    let refused = r#"{"xt": {"type": "target", "name": "REJECT"}}"#;
    let mut host = gateway();
    host.firewall = firewall("forward", "accept", &(rule(known) + &rule(refused)));
    assert_eq!(found(&site(), &host), [], "packets pass");
    let quiet = Subject { inbound: flow(0, None), outbound: flow(9, Some(60)), ..site() };
    let quiet = Subject { inbound: flow(9, Some(60)), ..quiet };
    assert_eq!(found(&quiet, &host), [("firewall", false)]);
    let message = &only(&quiet, &host).message;
    assert!(message.contains("may drop packets from 10.2.0.0/24 to 10.1.0.0/24"), "{message}");
    host.firewall = firewall("forward", "accept", &rule(refused));
    assert_eq!(found(&site(), &host), [("firewall", true)]);
}

#[test]
fn a_rule_against_esp_is_told() {
    let drop = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "protocol"}}, "right": "esp"}}, {"drop": null}"#;
    let mut host = gateway();
    host.firewall = firewall("input", "accept", &rule(drop));
    let finding = only(&site(), &host);
    assert!(
        finding.message.contains("ESP (IP protocol 50) from the peer 192.0.2.2"),
        "{finding:?}"
    );
    assert!(finding.message.contains("handle 9"), "{finding:?}");
    let in_udp = Subject { encapsulation: Encapsulation::Udp, ..site() };
    assert_eq!(found(&in_udp, &host), []);
}

#[test]
fn rules_that_cannot_be_read_are_told_only_if_packets_are_lost() {
    let mut host = gateway();
    host.firewall.unread = Some("nft is not installed".to_owned());
    assert_eq!(found(&site(), &host), []);
    let silent = Subject { inbound: flow(0, None), ..site() };
    assert_eq!(found(&silent, &host), [("firewall", false), ("one_way", false)]);
}

#[test]
fn this_hosts_own_packets_may_be_dropped() {
    let mut host = gateway();
    host.firewall = firewall(
        "input",
        "drop",
        &rule(
            r#"{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "wire"}}, {"accept": null}"#,
        ),
    );
    let finding = only(&site(), &host);
    assert!(finding.message.contains("this host's own address 10.1.0.1"), "{}", finding.message);
}

fn flow(packets: u64, idle: Option<u64>) -> Flow {
    Flow { packets, bytes: packets * 84, idle: idle.map(Duration::from_secs) }
}

#[test]
fn packets_in_one_direction_are_told() {
    let told = |inbound, outbound| {
        let subject = Subject { inbound, outbound, ..site() };
        judge(&subject, &gateway(), None).first().map(|f| (f.kind, f.message.clone()))
    };
    // An answer may still come.
    assert_eq!(told(flow(0, None), flow(0, None)), None);
    assert_eq!(told(flow(0, None), flow(1, Some(0))), None);
    assert_eq!(told(flow(5, Some(9)), flow(9, Some(0))), None);
    let (kind, message) = told(flow(0, None), flow(3, Some(4))).expect("a finding");
    assert_eq!(kind, FindingKind::OneWay);
    assert_eq!(
        message,
        "this side has sent 3 packets (252 octets), the last one 4 s ago, and nothing has ever come in"
    );
    let (_, message) = told(flow(0, None), flow(5, Some(0))).expect("a finding");
    assert!(message.contains("nothing has ever come in"), "{message}");
    let (_, message) = told(flow(5, Some(40)), flow(9, Some(2))).expect("a finding");
    assert!(message.starts_with("nothing has come in for 40 s"), "{message}");
    let (_, message) = told(flow(7, Some(1)), flow(0, None)).expect("a finding");
    assert_eq!(
        message,
        "7 packets (588 octets) have come in, the last one 1 s ago, and this side has never sent anything"
    );
}

#[test]
fn each_direction_that_has_stopped_is_told_with_the_sums_of_both() {
    let told = |inbound, outbound, refused| {
        let subject = Subject { inbound, outbound, refused, ..site() };
        judge(&subject, &gateway(), None).first().map(|f| f.message.clone()).expect("a finding")
    };
    assert_eq!(
        told(flow(5, Some(40)), flow(9, Some(2)), 0),
        "nothing has come in for 40 s, while this side went on sending until 2 s ago: 9 packets (756 octets) out, \
         5 packets (420 octets) in since the tunnel came up"
    );
    assert_eq!(
        told(flow(7, Some(1)), flow(5, Some(60)), 2),
        "this side has sent nothing for 60 s, while packets went on coming in until 1 s ago: 5 packets (420 octets) out, \
         7 packets (588 octets) in since the tunnel came up; 2 packets were refused (vpnctl counters says why)"
    );
}

#[test]
fn answers_that_stop_to_come_are_a_reason_to_probe() {
    let cure = |inbound| {
        let subject = Subject { inbound, outbound: flow(9, Some(1)), ..site() };
        only(&subject, &gateway()).cure.swap_remove(0)
    };
    assert!(cure(flow(5, Some(40))).ends_with("large ones are lost: vpnctl probe site_lan"));
    assert!(!cure(flow(0, None)).contains("probe"), "small packets do not pass, either");
}

#[test]
fn firewalls_are_not_blamed_for_a_peer_that_does_not_answer() {
    let stopped = Subject { inbound: flow(5, Some(40)), outbound: flow(9, Some(2)), ..site() };
    assert_eq!(found(&stopped, &gateway()), [("one_way", false)]);
    let silent = Subject { is_peer_silent: true, ..stopped };
    assert_eq!(found(&silent, &gateway()), []);
}

#[test]
fn esp_without_udp_has_a_cure_of_its_own() {
    let lost = Subject { inbound: flow(0, None), outbound: flow(9, Some(1)), refused: 2, ..site() };
    let finding = only(&lost, &gateway());
    assert!(finding.cure.iter().any(|cure| cure.contains("encap = \"always\"")), "{finding:?}");
    assert!(finding.message.ends_with("2 packets were refused (vpnctl counters says why)"));
    let in_udp = Subject { encapsulation: Encapsulation::Udp, ..lost };
    let finding = only(&in_udp, &gateway());
    assert!(finding.cure.iter().all(|cure| !cure.contains("encap")), "{finding:?}");
}

#[test]
fn less_traffic_than_the_policy_names_is_told() {
    let asked = |local: &[&str], remote: &[&str]| Subject {
        asked: Some([selectors(local), selectors(remote)]),
        ..site()
    };
    let finding = only(&asked(&["10.1.0.0/24"], &["10.2.0.0/16"]), &gateway());
    assert_eq!(finding.kind, FindingKind::Narrowed);
    assert!(
        finding.message.contains("remote traffic 10.2.0.0/24, where the policy names 10.2.0.0/16"),
        "{}",
        finding.message
    );
    // The same traffic in other pieces, and more than the policy names.
    assert_eq!(found(&asked(&["10.1.0.0/25"], &["10.2.0.7"]), &gateway()), []);
    let pieces = Subject {
        remote: selectors(&["10.2.0.128/25", "10.2.0.0/25"]),
        ..asked(&["10.1.0.0/24"], &["10.2.0.0/24"])
    };
    assert_eq!(traffic::narrowed(&pieces), None);
    let generic = Subject { asked: None, ..site() };
    assert_eq!(traffic::narrowed(&generic), None);
}

#[test]
fn a_peer_that_wants_several_tunnels_in_one_child_sa_is_told() {
    let wanted = [selectors(&["10.1.0.0/24"]), selectors(&["10.2.0.0/24", "10.3.0.0/24"])];
    let subject = Subject { wanted: Some(wanted), ..site() };
    let finding = only(&subject, &gateway());
    assert_eq!(finding.kind, FindingKind::Narrowed);
    let told = "asked for 10.1.0.0/24 to 10.2.0.0/24, 10.3.0.0/24 in one Child SA";
    assert!(finding.message.contains(told), "{}", finding.message);
}

#[test]
fn findings_that_are_certain_come_first() {
    let mut host = gateway();
    for device in ["all", "vpn0", "lan0"] {
        host.forwarding.insert((Family::V4, device.to_owned()), false);
    }
    let silent = Subject { inbound: flow(0, None), ..site() };
    assert_eq!(found(&silent, &host), [("forwarding", true), ("one_way", false)]);
}

#[test]
fn a_tunnel_that_no_packet_takes_is_told() {
    let shadow = |same, carriers: Option<[&str; 2]>| Subject {
        shadowed_by: Some(Shadow {
            child: "wide".to_owned(),
            same,
            carriers: carriers.map(|names| names.map(str::to_owned)),
        }),
        ..site()
    };
    let finding = only(&shadow(false, None), &gateway());
    assert_eq!((finding.kind, finding.certain), (FindingKind::Shadowed, true));
    assert!(finding.message.contains("wide takes every packet of site_lan"), "{}", finding.message);
    assert_eq!(finding.cure, ["write site_lan before wide in the policy, then: vpnctl reload"]);
    let finding = only(&shadow(false, Some(["site", "all"])), &gateway());
    let order = "write the IKETunnel site before all in the policy, then: vpnctl reload";
    assert_eq!(finding.cure, [order]);
    let finding = only(&shadow(true, None), &gateway());
    assert!(finding.cure[0].contains("remove one of them"));
}
