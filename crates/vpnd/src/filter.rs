//! The filter in words: what another one would change.

mod settings;

pub use settings::{FilterSettings, KeptDefaults};

use control::protocol::FilterChange;
use esp::filter::{DefaultAction, Filter, FilterAction, FilterRule};
use policy::Selector;

/// The differences between two filters.
pub fn changes(before: &Filter, after: &Filter) -> Vec<FilterChange> {
    let mut changes = Vec::new();
    let mut tell = |effect: &str, message, may_shut_out| {
        changes.push(FilterChange { effect: effect.to_owned(), message, may_shut_out });
    };
    let denies = [after.ipv4, after.ipv6].contains(&DefaultAction::Deny);
    for (family, old, new) in [("IPv4", before.ipv4, after.ipv4), ("IPv6", before.ipv6, after.ipv6)]
    {
        if old != new {
            let message =
                format!("{family} that nothing covers: {}, now {}", old.name(), new.name());
            tell("changed", message, new == DefaultAction::Deny);
        }
    }
    let text = |filter: &Filter, place: usize| {
        let rule = &filter.rules[place];
        format!("{}: {rule}", rule.title(place))
    };
    for (place, rule) in before.rules.iter().enumerate() {
        if !after.rules.contains(rule) {
            let passed = rule.action == FilterAction::Bypass && may_be_ssh(rule);
            tell("removed", text(before, place), denies && passed);
        }
    }
    for (place, rule) in after.rules.iter().enumerate() {
        if !before.rules.contains(rule) {
            let drops = rule.action == FilterAction::Discard && may_be_ssh(rule);
            tell("added", text(after, place), drops);
        }
    }
    let stay = |of: &Filter, other: &Filter| -> Vec<_> {
        of.rules.iter().filter(|rule| other.rules.contains(rule)).cloned().collect()
    };
    let (old, new) = (stay(before, after), stay(after, before));
    if old != new {
        let drops = new.iter().any(|r| r.action == FilterAction::Discard && may_be_ssh(r));
        tell("reordered", "the rules that stay come in another order".to_owned(), drops);
    }
    changes
}

/// Returns `true` if a rule may cover ssh from another host to this one, in either direction.
fn may_be_ssh(rule: &FilterRule) -> bool {
    const TCP: u8 = 6;
    const SSH: u16 = 22;
    // Clients use ports that need no privileges.
    const FIRST_OF_CLIENTS: u16 = 1024;
    let is_tcp = |selector: &Selector| matches!(selector.protocol, 0 | TCP);
    let here = |s: &Selector| is_tcp(s) && s.ports.contains(SSH);
    let there = |s: &Selector| is_tcp(s) && s.ports.end() >= FIRST_OF_CLIENTS;
    rule.traffic.local.iter().any(here) && rule.traffic.remote.iter().any(there)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use std::path::Path;

    fn filter(text: &str) -> Filter {
        Config::parse(Path::new("vpnd.toml"), text).expect("valid").filter.filter()
    }

    const SSH: &str = "[[filter.rule]]\nname = \"ssh\"\naction = \"bypass\"\nprotocol = \"tcp\"\nlocal_port = 22\n";
    const LAN: &str = "[[filter.rule]]\naction = \"discard\"\nremote = \"10.0.0.0/8\"\n";

    #[test]
    fn the_difference_is_told() {
        let told = |before: &str, after: &str| {
            let changes = changes(&filter(before), &filter(after));
            changes.iter().map(|c| format!("{} {}", c.effect, c.message)).collect::<Vec<_>>()
        };
        assert!(told(SSH, SSH).is_empty());
        let both = format!("{SSH}{LAN}");
        assert_eq!(told(SSH, &both), ["added rule 2: discard 0.0.0.0/0 <> 10.0.0.0/8"]);
        assert_eq!(told(&both, LAN), ["removed rule 1 (ssh): bypass any[tcp/22] <> any[tcp]"]);
        let reordered = told(&both, &format!("{LAN}{SSH}"));
        assert_eq!(reordered, ["reordered the rules that stay come in another order"]);
        let deny = told("", "[filter]\nipv6 = \"deny\"\n");
        assert_eq!(deny, ["changed IPv6 that nothing covers: permit, now deny"]);
    }

    #[test]
    fn changes_that_may_drop_ssh_are_marked() {
        let marked = |before: &str, after: &str| {
            let changes = changes(&filter(before), &filter(after));
            changes.iter().map(|change| change.may_shut_out).collect::<Vec<_>>()
        };
        let (deny, discard) =
            ("[filter]\nipv6 = \"deny\"\n", "[[filter.rule]]\naction = \"discard\"\n");
        assert_eq!(marked("", deny), [true]);
        assert_eq!(marked(deny, ""), [false]);
        assert_eq!(marked("", SSH), [false]);
        assert_eq!(marked(SSH, ""), [false], "everything else passes, too");
        assert_eq!(marked(&format!("{deny}{SSH}"), deny), [true]);
        assert_eq!(marked("", LAN), [true], "ssh from there");
        assert_eq!(marked(LAN, ""), [false]);
        for other in [
            "protocol = \"udp\"",
            "protocol = \"tcp\"\nlocal_port = 80",
            "protocol = \"tcp\"\nremote_port = 25",
        ] {
            assert_eq!(marked("", &format!("{discard}{other}\n")), [false], "{other}");
        }
        let tcp = format!("{discard}protocol = \"tcp\"\nlocal_port = \"1-1023\"\n");
        assert_eq!(marked("", &tcp), [true]);
        assert_eq!(marked(&format!("{SSH}{tcp}"), &format!("{tcp}{SSH}")), [true], "reordered");
    }
}
