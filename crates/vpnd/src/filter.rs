//! The filter in words: what another one would change.

mod settings;

pub use settings::{FilterSettings, KeptDefaults};

use control::protocol::FilterChange;
use esp::filter::{DefaultAction, Filter, FilterAction, FilterRule};

/// The differences between two filters.
pub fn changes(before: &Filter, after: &Filter) -> Vec<FilterChange> {
    let mut changes = Vec::new();
    let denies = [after.ipv4, after.ipv6].contains(&DefaultAction::Deny);
    for (family, old, new) in [("IPv4", before.ipv4, after.ipv4), ("IPv6", before.ipv6, after.ipv6)]
    {
        if old != new {
            let message =
                format!("{family} that nothing covers: {}, now {}", old.name(), new.name());
            changes.push(change("changed", message, new == DefaultAction::Deny));
        }
    }
    for (place, rule) in before.rules.iter().enumerate() {
        if !after.rules.contains(rule) {
            let passed = rule.action == FilterAction::Bypass && may_be_ssh(rule);
            let message = format!("{}: {rule}", rule.title(place));
            changes.push(change("removed", message, denies && passed));
        }
    }
    for (place, rule) in after.rules.iter().enumerate() {
        if !before.rules.contains(rule) {
            let drops = rule.action == FilterAction::Discard && may_be_ssh(rule);
            let message = format!("{}: {rule}", rule.title(place));
            changes.push(change("added", message, drops));
        }
    }
    let [old, new] = [(before, after), (after, before)].map(|(filter, other)| {
        let stay = filter.rules.iter().filter(|rule| other.rules.contains(rule));
        stay.collect::<Vec<_>>()
    });
    if old != new {
        let drops = new.iter().any(|r| r.action == FilterAction::Discard && may_be_ssh(r));
        let message = "the rules that stay come in another order".to_owned();
        changes.push(change("reordered", message, drops));
    }
    changes
}

fn change(effect: &str, message: String, may_shut_out: bool) -> FilterChange {
    FilterChange { effect: effect.to_owned(), message, may_shut_out }
}

/// Returns `true` if a rule may cover ssh from another host to this one, in either direction.
fn may_be_ssh(rule: &FilterRule) -> bool {
    const TCP: u8 = 6;
    const SSH: u16 = 22;
    // Clients use ports that need no privileges.
    const FIRST_OF_CLIENTS: u16 = 1024;
    let [mut local, mut remote] = [&rule.traffic.local, &rule.traffic.remote]
        .map(|side| side.iter().filter(|selector| matches!(selector.protocol, 0 | TCP)));
    local.any(|here| here.ports.contains(SSH))
        && remote.any(|there| there.ports.end() >= FIRST_OF_CLIENTS)
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
