use super::*;
use serde_json::json;
use std::net::IpAddr;

fn range(network: &str) -> AddressRange {
    let (address, length) = network.split_once('/').expect("a prefix");
    let address: IpAddr = address.parse().expect("an address");
    AddressRange::subnet(address, length.parse().expect("a length")).expect("a subnet")
}

/// A packet from the tunnel to the network behind.
fn inward() -> Packet {
    Packet {
        arrives: Some("vpn0".to_owned()),
        leaves: Some("lan0".to_owned()),
        source: range("10.2.0.0/24"),
        destination: range("10.1.0.0/24"),
        protocol: None,
        established: false,
        guessed: false,
    }
}

fn chain(policy: &str) -> Value {
    json!({"chain": {"family": "inet", "table": "t", "name": "forward", "handle": 1,
        "type": "filter", "hook": "forward", "prio": 0, "policy": policy}})
}

fn plain(name: &str) -> Value {
    json!({"chain": {"family": "inet", "table": "t", "name": name, "handle": 2}})
}

fn rule_of(chain: &str, handle: u64, expr: Value) -> Value {
    json!({"rule": {"family": "inet", "table": "t", "chain": chain, "handle": handle, "expr": expr}})
}

fn fate(policy: &str, rules: &[&Value], packet: &Packet) -> Fate {
    let rules = (10..).zip(rules).map(|(handle, expr)| rule_of("forward", handle, (*expr).clone()));
    let mut all = vec![json!({"metainfo": {"version": "1.0.6"}}), chain(policy)];
    all.extend(rules);
    Firewall::parse(&json!({ "nftables": all }).to_string()).fate(Hook::Forward, packet)
}

fn compared(left: Value, op: &str, right: Value) -> Value {
    json!({"match": {"op": op, "left": left, "right": right}})
}

fn meta(key: &str) -> Value {
    json!({"meta": {"key": key}})
}

fn field(protocol: &str, field: &str) -> Value {
    json!({"payload": {"protocol": protocol, "field": field}})
}

fn dropped(rule: Option<u64>) -> Fate {
    Fate::Dropped(Place { chain: "inet t forward".to_owned(), rule })
}

fn unknown(rule: Option<u64>) -> Fate {
    Fate::Unknown(Place { chain: "inet t forward".to_owned(), rule })
}

#[test]
fn a_policy_drops_what_no_rule_accepts() {
    let packet = inward();
    assert_eq!(fate("accept", &[], &packet), Fate::Passes);
    assert_eq!(fate("drop", &[], &packet), dropped(None));
    let accept = |left, right| json!([compared(left, "==", right), {"accept": null}]);
    for rule in [
        json!([{"counter": {"packets": 0, "bytes": 0}}, {"accept": null}]),
        accept(meta("iifname"), json!("vpn0")),
        accept(meta("iifname"), json!("vpn*")),
        accept(meta("oifname"), json!({"set": ["eth9", "lan0"]})),
        accept(meta("nfproto"), json!("ipv4")),
        accept(field("ip", "saddr"), json!({"prefix": {"addr": "10.0.0.0", "len": 8}})),
        accept(field("ip", "daddr"), json!({"range": ["10.1.0.0", "10.1.0.255"]})),
        json!([compared(meta("iifname"), "!=", json!("wan0")), {"accept": null}]),
    ] {
        assert_eq!(fate("drop", &[&rule], &packet), Fate::Passes, "{rule}");
    }
    for rule in [
        accept(meta("iifname"), json!("eth*")),
        accept(field("ip6", "saddr"), json!("fd00::1")),
        accept(field("ip", "saddr"), json!({"prefix": {"addr": "10.3.0.0", "len": 16}})),
    ] {
        assert_eq!(fate("drop", &[&rule], &packet), dropped(None), "{rule}");
    }
}

#[test]
fn a_rule_that_asks_for_the_unknown_decides_nothing() {
    let packet = inward();
    let port = compared(field("tcp", "dport"), "==", json!(443));
    let part =
        compared(field("ip", "saddr"), "==", json!({"prefix": {"addr": "10.2.0.0", "len": 25}}));
    let set = compared(meta("iifname"), "==", json!("@lan"));
    for condition in
        [port, part, set, json!({"limit": {"rate": 5, "per": "second"}}), json!({"xt": null})]
    {
        let accept = json!([condition, {"accept": null}]);
        assert!(matches!(fate("drop", &[&accept], &packet), Fate::Unknown(_)), "{condition}");
        let drop = json!([condition, {"drop": null}]);
        assert_eq!(fate("accept", &[&drop], &packet), unknown(Some(10)), "{condition}");
    }
    // Behind it, a sure rule decides.
    let refused = json!([{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]);
    let open = json!([{"accept": null}]);
    let limited = json!([{"limit": {"rate": 5, "per": "second"}}, {"drop": null}]);
    assert_eq!(fate("accept", &[&limited, &refused], &packet), dropped(Some(10)));
    assert_eq!(fate("drop", &[&limited, &open], &packet), unknown(Some(10)));
}

#[test]
fn flows_that_are_known_may_pass_where_new_ones_do_not() {
    let state = |words: Value| compared(json!({"ct": {"key": "state"}}), "in", words);
    let known = json!([state(json!(["established", "related"])), {"accept": null}]);
    let reply = Packet { established: true, ..inward() };
    assert_eq!(fate("drop", &[&known], &reply), Fate::Passes);
    assert_eq!(fate("drop", &[&known], &inward()), dropped(None));
    let map = json!([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [
        ["established", {"accept": null}], ["invalid", {"drop": null}]]}}}]);
    assert_eq!(fate("drop", &[&map], &reply), Fate::Passes);
    assert_eq!(fate("drop", &[&map], &inward()), dropped(None));
    let mark = json!([{"vmap": {"key": {"ct": {"key": "mark"}}, "data": {"set": [[1, {"accept": null}]]}}}]);
    assert!(matches!(fate("drop", &[&mark], &reply), Fate::Unknown(_)));
}

#[test]
fn extensions_of_iptables_are_known_by_their_names() {
    let xt = |kind: &str, name: &str| json!({"xt": {"type": kind, "name": name}});
    let counter = json!({"counter": {"packets": 3, "bytes": 252}});
    let known = json!([xt("match", "conntrack"), counter, {"accept": null}]);
    let log = json!([xt("match", "comment"), xt("target", "LOG")]);
    let refused = json!([counter, xt("target", "REJECT")]);
    assert_eq!(fate("accept", &[&log, &refused], &inward()), dropped(Some(11)));
    assert_eq!(fate("accept", &[&known, &refused], &inward()), unknown(Some(11)));
    let guessed = Packet { guessed: true, ..inward() };
    assert_eq!(fate("accept", &[&known, &refused], &guessed), dropped(Some(11)));
    let reply = Packet { established: true, ..guessed };
    assert_eq!(fate("accept", &[&known, &refused], &reply), Fate::Passes);
    let hashed = json!([xt("match", "hashlimit"), {"drop": null}]);
    assert_eq!(fate("accept", &[&hashed], &inward()), unknown(Some(10)));
    let other = json!([xt("target", "TARPIT")]);
    assert_eq!(fate("accept", &[&other], &inward()), unknown(Some(10)));
}

#[test]
fn chains_are_followed() {
    let jump = |name: &str| json!([{"jump": {"target": name}}]);
    let go = |name: &str| json!([{"goto": {"target": name}}]);
    let fate = |rules: &[(&str, Value)]| {
        let mut all = vec![chain("drop"), plain("a"), plain("b")];
        all.extend((10..).zip(rules).map(|(n, (chain, expr))| rule_of(chain, n, expr.clone())));
        Firewall::parse(&json!({ "nftables": all }).to_string()).fate(Hook::Forward, &inward())
    };
    let accept = json!([{"accept": null}]);
    let back = json!([{"return": null}]);
    assert_eq!(fate(&[("forward", jump("a")), ("a", accept.clone())]), Fate::Passes);
    assert_eq!(fate(&[("forward", jump("a")), ("a", back.clone())]), dropped(None));
    let rest = ("forward", accept.clone());
    assert_eq!(fate(&[("forward", jump("a")), ("a", back), rest.clone()]), Fate::Passes);
    assert_eq!(fate(&[("forward", go("a")), rest.clone()]), dropped(None), "goto does not return");
    let place = Place { chain: "inet t b".to_owned(), rule: Some(12) };
    let deep = [("forward", jump("a")), ("a", jump("b")), ("b", json!([{"drop": null}])), rest];
    assert_eq!(fate(&deep), Fate::Dropped(place));
    // The kernel has no circles; a listing may have anything.
    let circle = [("forward", jump("a")), ("a", jump("b")), ("b", jump("a"))];
    assert!(matches!(fate(&circle), Fate::Unknown(_)));
}

#[test]
fn verdict_maps_are_looked_up() {
    let map =
        |elements: Value| json!([{"vmap": {"key": meta("iifname"), "data": {"set": elements}}}]);
    let packet = inward();
    let ours = map(json!([["lo", {"drop": null}], ["vpn0", {"accept": null}]]));
    assert_eq!(fate("drop", &[&ours], &packet), Fate::Passes);
    let others = map(json!([["lo", {"accept": null}]]));
    assert_eq!(fate("drop", &[&others], &packet), dropped(None));
    let named = json!([{"vmap": {"key": meta("iifname"), "data": "@zones"}}]);
    assert!(matches!(fate("drop", &[&named], &packet), Fate::Unknown(_)));
}

#[test]
fn protocols_and_ports_are_compared() {
    let esp = Packet { protocol: Some((50, None)), ..inward() };
    let udp = Packet { protocol: Some((17, Some((4500, 4500)))), ..inward() };
    let drop = |left, right| json!([compared(left, "==", right), {"drop": null}]);
    assert_eq!(fate("accept", &[&drop(meta("l4proto"), json!("esp"))], &esp), dropped(Some(10)));
    assert_eq!(
        fate("accept", &[&drop(field("ip", "protocol"), json!(50))], &esp),
        dropped(Some(10))
    );
    assert_eq!(fate("accept", &[&drop(meta("l4proto"), json!("esp"))], &udp), Fate::Passes);
    let port = drop(field("udp", "dport"), json!({"set": [500, {"range": [4500, 4501]}]}));
    assert_eq!(fate("accept", &[&port], &udp), dropped(Some(10)));
    assert_eq!(fate("accept", &[&port], &esp), Fate::Passes);
    let any = drop(field("th", "dport"), json!(4500));
    assert_eq!(fate("accept", &[&any], &udp), dropped(Some(10)));
}

#[test]
fn tables_of_this_program_and_of_other_families_do_not_count() {
    for (family, table) in [("inet", "vpn_guard_vpn0"), ("ip6", "filter"), ("bridge", "filter")] {
        let text = json!({"nftables": [{"chain": {"family": family, "table": table, "name": "c",
            "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}}]});
        let firewall = Firewall::parse(&text.to_string());
        assert_eq!(firewall.fate(Hook::Forward, &inward()), Fate::Passes, "{family} {table}");
    }
    assert!(Firewall::parse("no JSON").unread.is_some());
}
