use super::super::tests::{ANY, assert_expected, selector};
use super::*;

const PLAIN: GuardedTraffic = GuardedTraffic { mark: None, by_card: false };

fn members(local: Selector, remote: Selector, properties: GuardedTraffic) -> Vec<Member> {
    let traffic = TrafficSelectors { local: vec![local], remote: vec![remote] };
    Member::all(&traffic, properties, false)
}

fn nets(remote: &str, properties: GuardedTraffic) -> [Member; 2] {
    let end = remote.replace(".0", ".255");
    let (local, remote) =
        (selector("10.1.0.1", "10.1.0.1", 0, ANY), selector(remote, &end, 0, ANY));
    members(local, remote, properties).try_into().expect("one prefix, leaving and own")
}

#[test]
fn flows_of_one_shape_share_a_set_and_come_and_go_alone() {
    let mut sets = Sets::new(["g", "h"]);
    let [first, _] = &nets("10.2.1.0", PLAIN);
    let [second, _] = &nets("10.2.2.0", PLAIN);
    let of_first = "add element inet g out_ip_32_24 { 10.1.0.1 . 10.2.1.0 }\n";
    assert_eq!(
        &*sets.add(first).guard,
        format!(
            "add set inet g out_ip_32_24 {{ type ipv4_addr . ipv4_addr; }}\n\
             add rule inet g protected_before ip saddr & 255.255.255.255 . ip daddr & 255.255.255.0 \
             @out_ip_32_24 meta mark set meta mark or 0x80000000\n\
             add rule inet g leaving ip saddr & 255.255.255.255 . ip daddr & 255.255.255.0 @out_ip_32_24 \
             goto unprotected_leaving\n{of_first}"
        )
    );
    let of_second = of_first.replace(".2.1.", ".2.2.");
    assert_eq!(&*sets.add(second).guard, of_second);
    assert!(sets.add(first).is_empty(), "it is there already");
    assert_eq!(sets.remove(first), Some(Script::default()), "another rule wants it");
    let removed = sets.remove(first).expect("without building the table again");
    assert_eq!(&*removed.guard, of_first.replace("add", "delete"));
    assert_eq!(&*removed.held, of_first.replace("add", "delete").replace("inet g", "inet h"));
    let all = sets.all().guard;
    assert!(all.ends_with(&of_second), "{all}");
    let removed = sets.remove(second).expect("without building the table again");
    assert_eq!(&*removed.guard, of_second.replace("add", "delete"));
    assert!(sets.is_empty());
    assert_eq!(&*sets.add(second).guard, of_second, "the empty set is still there");
    let _ = sets.remove(second);
    assert!(sets.all().is_empty(), "a new table has no empty set");
}

#[test]
fn the_held_table_has_the_flows_that_leave_and_sets_no_mark() {
    let traffic = TrafficSelectors {
        local: vec![selector("10.1.0.0", "10.1.255.255", 0, ANY)],
        remote: vec![selector("10.2.0.0", "10.2.0.255", 6, (443, 443))],
    };
    for by_card in [false, true] {
        let properties = GuardedTraffic { mark: None, by_card };
        let mut sets = Sets::new(["g", "h"]);
        let members = Member::all(&traffic, properties, true).into_iter();
        let script: Script = members.map(|member| sets.add(&member)).collect();
        let of_held = |line: &String| {
            let absent =
                ["g protected_", "g lost ", "g own_by", "g handed_", "g arriving ", "inet g in_"];
            !absent.iter().any(|part| line.contains(part))
        };
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.replace("inet h", "inet g"));
            lines.filter(of_held).collect()
        };
        assert_eq!(lines(&script.held), lines(&script.guard));
        assert!(!script.held.contains("mark set"), "{script:?}");
        assert_eq!(script.held.contains("_card accept"), by_card, "{script:?}");
        let all = lines(&sets.all().held);
        for line in lines(&script.held) {
            assert!(all.contains(&line), "{line}: {all:?}");
        }
    }
}

#[test]
fn a_card_s_packets_are_known_again() {
    let mut sets = Sets::new(["g", "h"]);
    let [flow, _] = &nets("10.2.1.0", GuardedTraffic { by_card: true, ..PLAIN });
    let script = sets.add(flow).guard;
    let rules: Vec<&str> = script.lines().filter(|line| line.contains("_card ")).collect();
    let [_, protected, kept, before, after, unprotected, _] = rules[..] else { panic!("{script}") };
    for set in [protected, kept] {
        let key = "@out_ip_32_24_card meta mark set meta mark or 0x80000000";
        assert!(set.ends_with(key), "{set}");
    }
    assert!(before.ends_with("meta mark and 0x80000000 == 0x80000000 accept"), "{before}");
    assert!(after.ends_with("meta mark set meta mark and 0x7fffffff accept"), "{after}");
    assert!(unprotected.ends_with("goto unprotected_leaving"), "{unprotected}");
}

#[test]
fn this_host_sends_to_a_remote_network_from_no_address() {
    let mut sets = Sets::new(["g", "h"]);
    let remote = || selector("10.2.0.0", "10.2.0.255", 6, (443, 443));
    let here = |from, to| members(selector(from, to, 6, ANY), remote(), PLAIN);
    let (one, two) = (here("10.1.0.0", "10.1.0.255"), here("10.3.0.0", "10.3.0.255"));
    let script: Commands = one.iter().map(|member| sets.add(member).guard).collect();
    let key =
        "meta l4proto 6 ip daddr & 255.255.255.0 . th dport & 0xffff @own_ip_24_proto_6_dport_ffff";
    for rule in [
        format!("own {key} goto sent_here\n"),
        format!("own_by_device {key} fib saddr type local goto unprotected_leaving\n"),
        format!("lost {key} counter name translated_leaving drop\n"),
    ] {
        assert!(script.contains(&rule), "{script}");
    }
    assert!(script.contains("@own_ip_24_proto_6_fragment goto sent_here"), "{script}");
    let added: Commands = two.iter().map(|member| sets.add(member).guard).collect();
    assert!(!added.contains("own_"), "both tunnels share the destination: {added}");
    let gone = sets.remove_all(&one).expect("without building the table again").guard;
    assert!(!gone.contains("own_"), "the other tunnel has it: {gone}");
}

#[test]
fn protocols_ports_types_and_marks_are_looked_up_under_masks() {
    let told = |local: Selector, remote: Selector, mark| {
        let properties = GuardedTraffic { mark, by_card: false };
        let mut sets = Sets::new(["g", "h"]);
        members(local, remote, properties)
            .iter()
            .map(|member| sets.add(member).guard)
            .collect::<Commands>()
    };
    let web = told(
        selector("fd01::1", "fd01::1", 6, (80, 81)),
        selector("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 6, ANY),
        Some((0x2011, 0xff)),
    );
    let name = "out_ip6_128_0_proto_6_sport_fffe_mark_ff";
    assert!(
        web.contains(&format!("{name} {{ type ipv6_addr . ipv6_addr . inet_service . mark; }}")),
        "{web}"
    );
    let key = "meta l4proto 6 ip6 saddr & ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff . ip6 daddr & :: . \
               th sport & 0xfffe . meta mark & 0xff";
    assert!(web.contains(&format!("leaving {key} @{name} goto unprotected_leaving")), "{web}");
    assert!(web.contains(&format!("{name} {{ fd01::1 . :: . 80 . 0x11 }}")), "{web}");

    let echo = told(
        selector("10.1.0.1", "10.1.0.1", 1, (8 << 8, (8 << 8) + 255)),
        selector("10.2.0.1", "10.2.0.1", 1, ANY),
        None,
    );
    assert!(echo.contains(". th sport & 0xff00 @"), "{echo}");
    assert!(echo.contains("{ 10.1.0.1 . 10.2.0.1 . 2048 }"), "{echo}");
}

#[test]
fn fragments_without_ports_are_claimed_on_their_way_out() {
    let https = selector("10.2.0.7", "10.2.0.7", 6, (443, 443));
    let members = members(selector("10.1.0.0", "10.1.255.255", 0, ANY), https, PLAIN);
    let mut sets = Sets::new(["g", "h"]);
    let script: Commands = members.iter().map(|member| sets.add(member).guard).collect();
    let rule = "leaving meta l4proto 6 ip frag-off & 0x1fff != 0 ip saddr & 255.255.0.0 . ip daddr & 255.255.255.255 @";
    assert!(script.contains(rule), "{script}");
}

#[test]
fn traffic_that_arrives_has_the_ends_exchanged() {
    let traffic = TrafficSelectors {
        local: vec![selector("10.1.0.0", "10.1.255.255", 0, ANY)],
        remote: vec![selector("10.2.0.7", "10.2.0.7", 6, (443, 443))],
    };
    let mut sets = Sets::new(["g", "h"]);
    let members = Member::all(&traffic, PLAIN, true);
    let script: Commands = members.iter().map(|member| sets.add(member).guard).collect();
    let element =
        "add element inet g in_ip_32_16_proto_6_sport_ffff { 10.2.0.7 . 10.1.0.0 . 443 }\n";
    assert!(script.contains(element), "{script}");
    let marked = GuardedTraffic { mark: Some((1, 1)), by_card: false };
    let members = Member::all(&traffic, marked, true);
    assert!(
        !members.iter().any(
            |m| matches!(m, Member::Element(shape, _) if shape.class == PacketClass::Arriving)
        )
    );
}

#[test]
fn ranges_of_too_many_flows_get_a_rule_of_their_own() {
    let local = selector("10.1.0.1", "10.1.255.254", 6, (1, 65_534));
    let members = members(local, selector("10.2.0.1", "10.2.0.1", 6, ANY), PLAIN);
    let mut sets = Sets::new(["g", "h"]);
    let script: Commands = members.iter().map(|member| sets.add(member).guard).collect();
    let to = "ip daddr 10.2.0.1 meta l4proto 6 th sport 1-65534";
    let anywhere = format!("ip saddr 0.0.0.0-255.255.255.255 {to}");
    let expected = [
        format!("leaving ip saddr 10.1.0.1-10.1.255.254 {to} goto unprotected_leaving"),
        format!("own_by_device {anywhere} fib saddr type local goto unprotected_leaving"),
        format!("lost {anywhere} counter name translated_leaving drop"),
        format!("own {anywhere} goto sent_here"),
    ];
    assert_eq!(&*script, expected.map(|rule| format!("add rule inet g {rule}\n")).concat());
    assert_eq!(sets.remove(&members[0]), None, "rules of a chain have no names");
}

/// A part of an expected file.
fn part(title: &str, text: &str) -> String {
    format!("# {title}\n{text}")
}

/// Both parts about a change of the two tables.
fn parts(what: &str, script: Option<Script>) -> String {
    let again = || "# it is built again\n".to_owned();
    let texts = script.map_or_else(
        || [again(), again()],
        |script| [script.guard.to_string(), script.held.to_string()],
    );
    let [guard, held] = texts;
    part(&format!("{what} the guard"), &guard) + &part(&format!("{what} the held table"), &held)
}

#[test]
fn the_sets_of_rules_are_as_expected() {
    let here = || selector("10.1.0.0", "10.1.0.255", 0, ANY);
    let there = |protocol, ports| selector("10.2.0.0", "10.2.0.255", protocol, ports);
    let here_v6 = || selector("fd01::", "fd01::ffff:ffff:ffff:ffff:ffff", 0, ANY);
    let there_v6 = || selector("fd03::", "fd03::ffff:ffff:ffff:ffff", 0, ANY);
    let marked = |value, mask| GuardedTraffic { mark: Some((value, mask)), by_card: false };
    let card = GuardedTraffic { mark: None, by_card: true };
    let echo = (8 << 8, (8 << 8) + 255);
    let long = (1, 65_534);
    let everywhere = selector("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 6, ANY);
    let cases = [
        (
            "networks",
            vec![
                (vec![here()], vec![there(0, ANY)], PLAIN, true),
                (
                    vec![here()],
                    vec![selector("10.3.0.0", "10.3.0.255", 0, ANY), there_v6()],
                    PLAIN,
                    true,
                ),
                (
                    vec![here_v6(), selector("10.1.0.7", "10.1.0.7", 0, ANY)],
                    vec![there_v6()],
                    PLAIN,
                    true,
                ),
            ],
        ),
        (
            "ports",
            vec![
                (vec![here()], vec![there(6, (443, 443))], PLAIN, true),
                (
                    vec![selector("10.1.0.0", "10.1.0.255", 6, (80, 81))],
                    vec![there(0, ANY)],
                    PLAIN,
                    true,
                ),
                (
                    vec![selector("10.1.0.1", "10.1.0.1", 1, echo)],
                    vec![selector("10.2.0.1", "10.2.0.1", 1, ANY)],
                    PLAIN,
                    true,
                ),
            ],
        ),
        (
            "marks",
            vec![
                (
                    vec![selector("fd01::1", "fd01::1", 6, (80, 81))],
                    vec![everywhere],
                    marked(0x2011, 0xff),
                    true,
                ),
                (vec![here()], vec![there(0, ANY)], marked(0x8000_0001, 0x8000_0001), true),
            ],
        ),
        (
            "cards",
            vec![
                (vec![here()], vec![there(0, ANY)], card, true),
                (
                    vec![here_v6()],
                    vec![selector("fd02::", "fd02::ffff:ffff:ffff:ffff:ffff", 17, (53, 53))],
                    card,
                    false,
                ),
            ],
        ),
        (
            "ranges",
            vec![
                (
                    vec![selector("10.1.0.1", "10.1.255.254", 6, long)],
                    vec![selector("10.2.0.1", "10.2.0.1", 6, ANY)],
                    PLAIN,
                    true,
                ),
                (
                    vec![selector("fd01::1", "fd01::fffe", 0, ANY)],
                    vec![selector("fd02::1", "fd02::fffe", 0, ANY)],
                    card,
                    false,
                ),
            ],
        ),
    ];
    for (name, rules) in cases {
        let rules: Vec<Vec<Member>> = rules
            .into_iter()
            .map(|(local, remote, properties, arriving)| {
                Member::all(&TrafficSelectors { local, remote }, properties, arriving)
            })
            .collect();
        let mut sets = Sets::new(["vpn_guard_vpn0", "vpn_held_vpn0"]);
        let mut text = String::new();
        for (place, members) in rules.iter().enumerate() {
            let added: Script = members.iter().map(|member| sets.add(member)).collect();
            text += &parts(&format!("rule {} is added to", place + 1), Some(added));
        }
        text += &parts("all of", Some(sets.all()));
        text += &parts("rule 1 is removed from", sets.remove_all(&rules[0]));
        assert_expected(&format!("{name}-sets.nft"), &text);
    }
}
