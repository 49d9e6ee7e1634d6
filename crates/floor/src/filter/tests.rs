use super::*;
use esp::plane::TrafficSelectors;
use policy::{AddressRange, PortRange};
use std::fs;
use std::path::Path;

fn rule(action: FilterAction, direction: Direction) -> FilterRule {
    let of = |start: &str, end: &str, ports| Selector {
        protocol: 6,
        addresses: AddressRange::new(
            start.parse().expect("an address"),
            end.parse().expect("an address"),
        )
        .expect("a range"),
        ports,
    };
    let ssh = PortRange::new(22, 22).expect("a range");
    let traffic = TrafficSelectors {
        local: vec![of("192.0.2.1", "192.0.2.1", ssh)],
        remote: vec![of("198.51.100.0", "198.51.100.2", PortRange::ANY)],
    };
    FilterRule { name: None, action, direction, traffic }
}

#[test]
fn each_chain_has_the_rules_of_its_way() {
    let rules = vec![
        rule(FilterAction::Bypass, Direction::Both),
        rule(FilterAction::Discard, Direction::In),
    ];
    let filter = Filter { rules, ipv4: DefaultAction::Deny, ..Filter::default() };
    let into =
        "ip saddr 198.51.100.0-198.51.100.2 ip daddr 192.0.2.1 meta l4proto 6 th dport 22-22";
    let out = "ip saddr 192.0.2.1 ip daddr 198.51.100.0-198.51.100.2 meta l4proto 6 th sport 22-22";
    let first = |flow| format!("{flow} counter name rule_1 accept");
    let second = format!("{into} counter name rule_2 drop");
    let texts = |ways: &[Direction]| {
        verdicts(&filter, ways).iter().map(Rule::to_string).collect::<Vec<_>>()
    };
    assert_eq!(texts(&[Direction::In]), [first(into), second.clone()]);
    assert_eq!(texts(&[Direction::Out]), [first(out)]);
    assert_eq!(texts(&[Direction::Out, Direction::In]), [first(out), first(into), second]);

    let host = host("vpn0", 0x76, 4500, false);
    let counts = FilterCounts {
        rules: vec![Tally { packets: 3, bytes: 180 }, Tally::default()],
        ..FilterCounts::default()
    };
    let script = script(&host, &filter, &counts);
    assert!(script.contains("counter rule_1 { packets 3 bytes 180 }"), "{script}");
    assert_eq!(script.matches("meta nfproto ipv4 counter name denied_ipv4 drop").count(), 3);
    assert!(!script.contains("nfproto ipv6"), "{script}");
}

#[test]
fn only_what_leaves_unprotected_is_led_past_the_device() {
    let of = |action, direction| {
        let filter = Filter { rules: vec![rule(action, direction)], ..Filter::default() };
        let found = exceptions(&filter, 4499).expect("few");
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = ["192.0.2.1/32 to 198.51.100.0/31", "192.0.2.1/32 to 198.51.100.2/32"];
    assert_eq!(of(FilterAction::Bypass, Direction::Both), expected);
    assert_eq!(of(FilterAction::Bypass, Direction::Out), expected);
    assert!(of(FilterAction::Bypass, Direction::In).is_empty());
    assert!(of(FilterAction::Discard, Direction::Both).is_empty());
}

#[test]
fn counters_are_read() {
    let text =
        "table inet t {\n\tcounter rule_1 {\n\t\tpackets 5 bytes 420\n\t}\n\tcounter x {\n\t}\n}\n";
    let tally = Tally { packets: 5, bytes: 420 };
    assert_eq!(read_counters(text), BTreeMap::from([("rule_1", tally)]));
}

fn host(device: &str, mark: u32, natt_port: u16, beside_kernel: bool) -> Host {
    let settings = Settings { device: device.to_owned(), mark, ..Settings::default() };
    Host::of(&Arc::new(Config { settings, natt_port, beside_kernel }))
}

fn selector(start: &str, end: &str, protocol: u8, ports: (u16, u16)) -> Selector {
    let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
    let addresses = AddressRange::new(start, end).expect("range");
    Selector { protocol, addresses, ports: PortRange::new(ports.0, ports.1).expect("range") }
}

/// Rules of each action and direction, of both families, with ports, and with the types of ICMP.
fn sample_rules() -> Vec<FilterRule> {
    const ANY: (u16, u16) = (0, u16::MAX);
    let host = selector("192.0.2.1", "192.0.2.1", 6, (22, 22));
    let networks = selector("198.51.100.0", "198.51.100.2", 6, ANY);
    let host_v6 = selector("2001:db8::1", "2001:db8::1", 0, ANY);
    let network_v6 = selector("2001:db8:1::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff", 0, ANY);
    let echo = selector("192.0.2.1", "192.0.2.1", 1, (8 << 8, (8 << 8) + 255));
    let anywhere = selector("0.0.0.0", "255.255.255.255", 1, ANY);
    let rule = |action, direction, local: &[Selector], remote: &[Selector]| {
        let traffic = TrafficSelectors { local: local.to_vec(), remote: remote.to_vec() };
        FilterRule { name: None, action, direction, traffic }
    };
    vec![
        rule(FilterAction::Bypass, Direction::Both, &[host], &[networks]),
        rule(FilterAction::Discard, Direction::In, &[host], &[networks]),
        rule(FilterAction::Bypass, Direction::Out, &[host, host_v6], &[network_v6, networks]),
        rule(FilterAction::Bypass, Direction::In, &[echo], &[anywhere]),
    ]
}

/// `UPDATE_EXPECTED=1` writes the files, for review.
#[test]
fn the_tables_are_as_expected() {
    let filter = |rules, ipv4, ipv6| Filter { rules, ipv4, ipv6 };
    let (permit, deny) = (DefaultAction::Permit, DefaultAction::Deny);
    let none = Tally::default;
    let [one, several, many] =
        [(1, 60), (3, 180), (9, 900)].map(|(packets, bytes)| Tally { packets, bytes });
    let closed = FilterCounts { rules: vec![], denied_ipv4: several, denied_ipv6: none() };
    let rules = FilterCounts {
        rules: vec![several, none(), one, none()],
        denied_ipv4: many,
        denied_ipv6: none(),
    };
    let zero = FilterCounts { rules: vec![none(); 4], ..FilterCounts::default() };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/filter/expected");
    for (name, host, filter, counts) in [
        ("closed", host("vpn0", 0x76, 4500, true), filter(vec![], deny, deny), closed),
        ("rules", host("a.b-c", 7, 4501, false), filter(sample_rules(), deny, permit), rules),
        ("both-planes", host("vpn0", 0x76, 4500, true), filter(sample_rules(), permit, deny), zero),
    ] {
        let script = script(&host, &filter, &counts).to_string();
        let path = directory.join(name).with_extension("nft");
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&path, &script).expect("writable");
        }
        let expected = fs::read_to_string(&path).expect("a file with the expected script");
        assert!(
            script == expected,
            "{} has another script than this one:\n{script}",
            path.display()
        );
    }
}
