//! The filter in words: what it shuts out, and what another one would change.

use control::protocol::FilterChange;
use esp::filter::{DefaultAction, Filter};

/// A warning, if the filter denies packets that no tunnel and no rule covers.
pub fn warning(filter: &Filter, device: &str) -> Option<String> {
    let denied: Vec<&str> = [("IPv4", filter.ipv4), ("IPv6", filter.ipv6)]
        .iter()
        .filter(|(_, action)| *action == DefaultAction::Deny)
        .map(|(family, _)| *family)
        .collect();
    let options: Vec<String> =
        denied.iter().map(|family| format!("--{} permit", family.to_lowercase())).collect();
    (!denied.is_empty()).then(|| {
        format!(
            "the filter denies {}: what no tunnel{} covers is dropped, ssh to this host as well; \
             to undo it: vpnctl filter {}, or stop vpnd; \
             should vpnd have crashed: nft delete table inet vpn_filter_{}",
            denied.join(" and "),
            match filter.rules.len() {
                0 => String::new(),
                1 => " and not its 1 rule".to_owned(),
                n => format!(" and none of its {n} rules"),
            },
            options.join(" "),
            device.replace(|c: char| !c.is_ascii_alphanumeric(), "_"),
        )
    })
}

/// The differences between two filters.
pub fn changes(before: &Filter, after: &Filter) -> Vec<FilterChange> {
    let mut changes = Vec::new();
    let mut tell = |effect: &str, message| {
        changes.push(FilterChange { effect: effect.to_owned(), message });
    };
    for (family, old, new) in [("IPv4", before.ipv4, after.ipv4), ("IPv6", before.ipv6, after.ipv6)]
    {
        if old != new {
            let message =
                format!("{family} that nothing covers: {}, now {}", old.name(), new.name());
            tell("changed", message);
        }
    }
    let text = |filter: &Filter, place: usize| {
        let rule = &filter.rules[place];
        format!("{}: {rule}", rule.title(place))
    };
    for (place, rule) in before.rules.iter().enumerate() {
        if !after.rules.contains(rule) {
            tell("removed", text(before, place));
        }
    }
    for (place, rule) in after.rules.iter().enumerate() {
        if !before.rules.contains(rule) {
            tell("added", text(after, place));
        }
    }
    let stay = |of: &Filter, other: &Filter| -> Vec<_> {
        of.rules.iter().filter(|rule| other.rules.contains(rule)).cloned().collect()
    };
    if stay(before, after) != stay(after, before) {
        tell("reordered", "the rules that stay come in another order".to_owned());
    }
    changes
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
    fn who_denies_is_told_how_to_undo_it() {
        assert_eq!(warning(&filter(SSH), "vpn0"), None);
        let text = warning(&filter("[filter]\nipv4 = \"deny\"\nipv6 = \"deny\"\n"), "v.0");
        let text = text.expect("a warning");
        for part in
            ["IPv4 and IPv6", "ssh", "vpnctl filter --ipv4 permit --ipv6 permit", "vpn_filter_v_0"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
