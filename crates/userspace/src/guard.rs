//! The guard against traffic that should have come protected and did not (RFC 4301 §5.2).
//!
//! A packet between a rule's selectors that arrives on any interface but the tunnel device was not opened by ESP. The
//! kernel would take it; nftables drops it first. The table is built anew, atomically, whenever the rules change.

use esp::filter::{Direction, Filter};
use esp::plane::{Rule, TrafficSelectors};
use host::nft;
use std::io;

const CHAIN: &str = "unprotected";

/// Name of the table for a device.
pub(super) fn table(device: &str) -> String {
    nft::table("guard", device)
}

/// Puts the guard for these rules in place of the former one. Of the host it is to know the device, the port of ESP in UDP,
/// and whether the kernel opens packets, too.
pub(super) fn install<'a>(
    name: &str,
    host: (&str, u16, bool),
    filter: &Filter,
    rules: impl Iterator<Item = &'a Rule>,
) -> io::Result<()> {
    let mut script = base(name, host);
    script.push_str(&exempt(name, filter));
    rules.for_each(|rule| script.push_str(&drops(name, rule)));
    nft::run(&script)
}

/// Adds rules to the guard, all of them or none.
pub(super) fn extend(name: &str, rules: &[Rule]) -> io::Result<()> {
    match rules {
        [] => Ok(()),
        rules => nft::run(&rules.iter().map(|rule| drops(name, rule)).collect::<String>()),
    }
}

/// The table with everything that is let through.
fn base(name: &str, (device, port, beside_kernel): (&str, u16, bool)) -> String {
    // The kernel itself checks what it has opened against its own policies.
    let opened = if beside_kernel { "    meta ipsec exists accept\n" } else { "" };
    // Every packet of every interface comes here: most are ESP in UDP or what was opened of it, and one comparison is less
    // than a look into a set.
    //
    // Naming the table before deleting it makes the deletion succeed where there is none yet.
    //
    // Fragments but the first show no ports. Alone they are harmless, and without their first they stay alone.
    // Neighbour discovery cannot be protected: it finds the link addresses that protected packets need.
    format!(
        "table inet {name}
delete table inet {name}
table inet {name} {{
  chain {CHAIN} {{
    type filter hook prerouting priority -350; policy accept;
    udp dport {port} accept
    iifname \"{device}\" accept
    iifname \"lo\" accept
{opened}    meta l4proto {{ 50, 51 }} accept
    udp dport 500 accept
    ip frag-off & 0x1fff != 0 accept
    frag frag-off != 0 accept
    icmpv6 type {{ 133, 134, 135, 136, 137 }} accept
  }}
}}
"
    )
}

/// What the operator lets come in the clear. Those of it that an earlier rule of the filter discards end there.
fn exempt(name: &str, filter: &Filter) -> String {
    let bypassed = filter.bypasses(Direction::In);
    bypassed.map(|rule| verdicts(name, &rule.traffic, "accept")).collect()
}

/// What is dropped for a rule.
fn drops(name: &str, rule: &Rule) -> String {
    verdicts(name, &rule.selectors, "counter drop")
}

fn verdicts(name: &str, traffic: &TrafficSelectors, verdict: &str) -> String {
    nft::verdicts([name, CHAIN], (&traffic.remote, &traffic.local), verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use esp::filter::{FilterAction, FilterRule};
    use esp::plane::RuleId;
    use policy::{AddressRange, PortRange, Selector};

    fn selector(start: &str, end: &str, protocol: u8, ports: PortRange) -> Selector {
        let (start, end) = (start.parse().expect("address"), end.parse().expect("address"));
        Selector { protocol, addresses: AddressRange::new(start, end).expect("range"), ports }
    }

    fn traffic() -> TrafficSelectors {
        let https = PortRange::new(443, 443).expect("range");
        TrafficSelectors {
            local: vec![
                selector("10.1.0.0", "10.1.255.255", 0, PortRange::ANY),
                selector("fd01::1", "fd01::1", 0, PortRange::ANY),
            ],
            remote: vec![
                selector("10.2.0.7", "10.2.0.7", 6, https),
                selector("fd02::", "fd02::f", 0, PortRange::ANY),
            ],
        }
    }

    #[test]
    fn only_pairs_that_can_meet_are_dropped() {
        let rule =
            Rule { id: RuleId(1), tunnel: "t".to_owned(), selectors: traffic(), trap: false };
        assert_eq!(
            drops("g", &rule),
            "add rule inet g unprotected ip saddr 10.2.0.7 ip daddr 10.1.0.0-10.1.255.255 meta l4proto 6 \
             th sport 443-443 counter drop\n\
             add rule inet g unprotected ip6 saddr fd02::-fd02::f ip6 daddr fd01::1 counter drop\n"
        );
    }

    #[test]
    fn what_bypasses_is_let_in() {
        let rule =
            |action, direction| FilterRule { name: None, action, direction, traffic: traffic() };
        let rules = vec![
            rule(FilterAction::Discard, Direction::In),
            rule(FilterAction::Bypass, Direction::Out),
            rule(FilterAction::Bypass, Direction::In),
        ];
        let script = exempt("g", &Filter { rules, ..Filter::default() });
        assert_eq!(script.lines().count(), 2, "of the last alone: {script}");
        assert!(script.lines().all(|line| line.ends_with(" accept")), "{script}");
    }
}
