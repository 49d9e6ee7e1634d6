//! Remarks about the filter: rules that are never used, tunnels that a rule leaves nothing, and families that it denies.

use crate::remark::Told;
use esp::filter::{DefaultAction, Direction, Filter, FilterRule};
use policy::selector::covered;
use policy::{Policy, Selector};

/// A remark for each rule, and for each phase 2 tunnel, whose traffic an earlier rule covers.
pub(super) fn order(policy: &Policy, filter: &Filter) -> Vec<Told> {
    let mut remarks = Vec::new();
    for (place, rule) in filter.rules.iter().enumerate() {
        let earlier = filter.rules[..place].iter().position(|earlier| {
            earlier.direction.includes(rule.direction)
                && has(earlier, &rule.traffic.local, &rule.traffic.remote)
        });
        if let Some(by) = earlier {
            let (name, by) = (title(filter, place), title(filter, by));
            remarks.push(Told::of_daemon(format!(
                "[filter]: {name} is never used: covered by {by}, which stands before it"
            )));
        }
    }
    for child in policy.tunnels.iter().flat_map(|tunnel| &tunnel.children) {
        let by = filter.rules.iter().position(|rule| {
            rule.direction.includes(Direction::Both) && has(rule, &child.local, &child.remote)
        });
        if let Some(by) = by {
            let text = format!(
                "{} is never used: covered by {} of [filter], and its rules come before the tunnels",
                child.name,
                title(filter, by)
            );
            remarks.push(Told::of_tunnels(&[&child.name], text));
        }
    }
    remarks
}

/// A remark, if the filter of a daemon denies packets that no tunnel and no rule covers.
pub(crate) fn denial(filter: &Filter, device: &str) -> Option<Told> {
    let denied = denied(filter);
    let options: Vec<String> =
        denied.iter().map(|family| format!("--{} permit", family.to_lowercase())).collect();
    let cure = format!(
        "to undo it: vpnctl filter {}, or stop vpnd; should vpnd have crashed: nft delete table inet vpn_filter_{}",
        options.join(" "),
        device.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    );
    Some(told_of(filter, &denied)?.with_cure(cure))
}

/// The same remark about a filter that is not in force yet.
pub(super) fn denial_to_come(filter: &Filter) -> Option<Told> {
    let denied = denied(filter);
    let lines: Vec<String> =
        denied.iter().map(|family| format!("{} = \"permit\"", family.to_lowercase())).collect();
    let cure = format!(
        "for ssh, write a rule in [filter] of vpnd.toml; for everything, {} (docs/operate/filter.md)",
        lines.join(" and ")
    );
    Some(told_of(filter, &denied)?.with_cure(cure))
}

/// The families whose packets are dropped if no tunnel and no rule covers them.
fn denied(filter: &Filter) -> Vec<&'static str> {
    let actions = [("IPv4", filter.ipv4), ("IPv6", filter.ipv6)];
    let denied = actions.into_iter().filter(|(_, action)| *action == DefaultAction::Deny);
    denied.map(|(family, _)| family).collect()
}

fn told_of(filter: &Filter, denied: &[&str]) -> Option<Told> {
    if denied.is_empty() {
        return None;
    }
    let rules = match filter.rules.len() {
        0 => String::new(),
        1 => " and not its 1 rule".to_owned(),
        n => format!(" and none of its {n} rules"),
    };
    let text = format!(
        "the filter denies {}: what no tunnel{rules} covers is dropped, ssh to this host as well",
        denied.join(" and ")
    );
    Some(Told::of_daemon(text))
}

fn title(filter: &Filter, place: usize) -> String {
    filter.rules[place].title(place)
}

fn has(rule: &FilterRule, local: &[Selector], remote: &[Selector]) -> bool {
    covered(local, &rule.traffic.local) && covered(remote, &rule.traffic.remote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn remarks(rules: &str) -> Vec<String> {
        let config: Config = toml::from_str(rules).expect("a configuration");
        let text = include_str!("../../../../tests/policies/site/left.xml");
        let policy = policy::xml::read("left.xml", text).expect("the sample is valid").policy;
        let told = order(&policy, &config.filter.filter());
        told.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rule_behind_a_wider_one_is_never_used() {
        let narrow = "[[filter.rule]]\nname = \"web\"\naction = \"bypass\"\nprotocol = \"tcp\"\nremote_port = 443\n";
        let wide = "[[filter.rule]]\nname = \"tcp\"\naction = \"discard\"\nprotocol = \"tcp\"\n";
        assert_eq!(remarks(&format!("{narrow}{wide}")), [""; 0]);
        let said = remarks(&format!("{wide}{narrow}"));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("web") && said[0].contains("is never used: covered by"),
            "{said:?}"
        );
        let out = wide.replace("protocol", "direction = \"out\"\nprotocol");
        assert_eq!(remarks(&format!("{out}{narrow}")), [""; 0]);
    }

    #[test]
    fn a_rule_for_all_the_traffic_of_a_tunnel_leaves_it_nothing() {
        let all =
            "[[filter.rule]]\nname = \"all\"\naction = \"bypass\"\nremote = \"10.2.0.0/16\"\n";
        let said = remarks(all);
        assert!(
            said.len() == 1 && said[0].starts_with("site_lan is never used: covered by"),
            "{said:?}"
        );
        let in_only = all.replace("remote", "direction = \"in\"\nremote");
        assert_eq!(remarks(&in_only), [""; 0]);
    }

    #[test]
    fn a_denying_filter_is_warned_of_with_its_undoing() {
        let filter = |text: &str| {
            Config::parse("vpnd.toml".as_ref(), text).expect("a configuration").filter.filter()
        };
        assert_eq!(denial(&filter("[[filter.rule]]\naction = \"bypass\"\n"), "vpn0"), None);
        let told = denial(&filter("[filter]\nipv4 = \"deny\"\nipv6 = \"deny\"\n"), "v.0");
        let text = told.expect("a remark").to_string();
        for part in
            ["IPv4 and IPv6", "ssh", "vpnctl filter --ipv4 permit --ipv6 permit", "vpn_filter_v_0"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Without a daemon, no command of vpnctl undoes it.
        let told = denial_to_come(&filter("[filter]\nipv4 = \"deny\"\n")).expect("a remark");
        let text = told.to_string();
        assert!(text.contains("denies IPv4: ") && !text.contains("vpnctl"), "{text}");
        assert!(
            text.contains("[filter] of vpnd.toml; for everything, ipv4 = \"permit\""),
            "{text}"
        );
    }
}
