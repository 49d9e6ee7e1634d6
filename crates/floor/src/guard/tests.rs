use super::dropped::{packets, section};
use super::*;
use esp::filter::{Direction, FilterAction, FilterRule};
use esp::plane::TrafficSelectors;
use policy::{AddressRange, PortRange, Selector};
use std::fs;
use std::path::Path;

pub(super) const ANY: (u16, u16) = (0, u16::MAX);

pub(super) fn selector(start: &str, end: &str, protocol: u8, ports: (u16, u16)) -> Selector {
    let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
    let addresses = AddressRange::new(start, end).expect("range");
    Selector { protocol, addresses, ports: PortRange::new(ports.0, ports.1).expect("range") }
}

/// Compares a script with the file of this name. `UPDATE_EXPECTED=1` writes the file, for review.
pub(super) fn assert_expected(name: &str, script: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guard/expected");
    let path = directory.join(name);
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, script).expect("writable");
    }
    let expected = fs::read_to_string(&path).expect("a file with the expected script");
    assert!(script == expected, "{} has another script than this one:\n{script}", path.display());
}

/// Rules of each action and direction, of both families, with ports, and with the types of ICMP.
fn exceptions() -> Filter {
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
    let rules = vec![
        rule(FilterAction::Bypass, Direction::Both, &[host], &[networks]),
        rule(FilterAction::Discard, Direction::In, &[host], &[networks]),
        rule(FilterAction::Bypass, Direction::Out, &[host, host_v6], &[network_v6, networks]),
        rule(FilterAction::Bypass, Direction::In, &[echo], &[anywhere]),
    ];
    Filter { rules, ..Filter::default() }
}

#[test]
fn both_tables_are_as_expected() {
    let kernel = Surroundings {
        device: "vpn0".to_owned(),
        mark: 0x76,
        natt_port: 4500,
        inbound: true,
        kernel: true,
    };
    let userspace = Surroundings {
        device: "a.b-c".to_owned(),
        mark: 7,
        natt_port: 4501,
        inbound: false,
        kernel: false,
    };
    let counted = Dropped { leaving: 7, arriving: 2, translated: 5, ..Dropped::default() };
    for (name, surroundings, filter, dropped, logs) in [
        ("kernel", &kernel, Filter::default(), Dropped::default(), Some(4500)),
        ("userspace", &userspace, Filter::default(), counted, None),
        ("bypass", &kernel, exceptions(), Dropped::default(), None),
    ] {
        let device = &surroundings.device;
        let guard = base(&table(device), Layer::Guard, surroundings, &filter, &dropped, logs);
        assert_expected(&format!("{name}-guard.nft"), &guard);
        let held = nft::table("held", device);
        let held = base(&held, Layer::Held, surroundings, &filter, &Dropped::default(), None);
        assert_expected(&format!("{name}-held.nft"), &held);
    }
}

#[test]
fn counters_are_read() {
    let text = "table inet g {\n\tcounter unprotected_leaving {\n\t\tpackets 7 bytes 588\n\t}\n\
                \tcounter unprotected_arriving {\n\t\tpackets 2 bytes 84\n\t}\n}\n";
    assert_eq!(packets(text, "unprotected_leaving"), Some(7));
    assert_eq!(packets(text, "unprotected_arriving"), Some(2));
    assert_eq!(packets(text, "leaving"), None);
    let both = "table inet a {\n\tcounter c {\n\t\tpackets 1 bytes 2\n\t}\n}\ntable inet g { # progname nft\n\
                \tcounter d {\n\t\tpackets 3 bytes 4\n\t}\n}\n";
    let [a, g, none] = ["a", "g", "b"].map(|table| section(both, table));
    assert_eq!(a.and_then(|a| packets(a, "c")), Some(1));
    assert_eq!(a.and_then(|a| packets(a, "d")), None);
    assert_eq!(g.and_then(|g| packets(g, "d")), Some(3));
    assert_eq!(none, None);
}

#[test]
fn drops_are_counted_while_the_guard_is_away() {
    let counter =
        |name, packets| format!("\tcounter {name} {{\n\t\tpackets {packets} bytes 9\n\t}}\n");
    let table = |name, counters: &str| format!("table inet {name} {{\n{counters}}}\n");
    let held = table("vpn_held_vpn0", &counter("unprotected_leaving", 3))
        + &table("vpn_held2_vpn0", &counter("unprotected_leaving", 6))
        + &table("vpn_watch_vpn0", &counter("unprotected_leaving", 4))
        + &table("vpn_held_vpn1", &counter("unprotected_leaving", 8));
    let away = Dropped::read(&held, "vpn_guard_vpn0");
    assert_eq!(away, Dropped { leaving: 13, ..Dropped::default() });
    let guard = counter("unprotected_leaving", 1)
        + &counter("unprotected_arriving", 2)
        + &counter("translated_leaving", 5);
    let there = Dropped::read(&(table("vpn_guard_vpn0", &guard) + &held), "vpn_guard_vpn0");
    assert_eq!(there, Dropped { in_force: true, leaving: 14, arriving: 2, translated: 5 });
}

#[test]
fn the_held_table_lets_pass_what_the_guard_lets_pass() {
    let surroundings = Surroundings {
        device: "vpn0".to_owned(),
        mark: 7,
        natt_port: 4500,
        inbound: true,
        kernel: true,
    };
    let [guard, held] = [Layer::Guard, Layer::Held].map(|layer| {
        base("g", layer, &surroundings, &Filter::default(), &Dropped::default(), None)
    });
    assert!(!held.contains("mark set") && !held.contains("hook prerouting"), "{held}");
    let known = [
        ("  flags owner", ""),
        ("priority 301;", "priority 300;"),
        ("    rt ipsec exists accept", "    rt ipsec exists goto protected_"),
    ];
    for line in held.lines() {
        let of_guard =
            known.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
        assert!(guard.contains(&of_guard), "{line}");
    }
}
