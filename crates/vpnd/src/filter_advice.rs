//! Remarks about rules of the filter: those that are never used, and tunnels that a rule leaves nothing.

use esp::filter::{Direction, Filter, FilterRule};
use policy::selector::covered;
use policy::{Policy, Selector};

/// A remark for each rule, and for each phase 2 tunnel, whose traffic an earlier rule covers.
pub fn of(policy: &Policy, filter: &Filter) -> Vec<String> {
    let mut remarks = Vec::new();
    for (place, rule) in filter.rules.iter().enumerate() {
        let earlier = filter.rules[..place].iter().position(|earlier| {
            earlier.direction.includes(rule.direction)
                && has(earlier, &rule.traffic.local, &rule.traffic.remote)
        });
        if let Some(by) = earlier {
            let (name, by) = (title(filter, place), title(filter, by));
            remarks.push(format!(
                "[filter]: {name} is never used: covered by {by}, which stands before it"
            ));
        }
    }
    for child in policy.tunnels.iter().flat_map(|tunnel| &tunnel.children) {
        let by = filter.rules.iter().position(|rule| {
            rule.direction.includes(Direction::Both) && has(rule, &child.local, &child.remote)
        });
        if let Some(by) = by {
            remarks.push(format!(
                "{} is never used: covered by {} of [filter], and its rules come before the tunnels",
                child.name,
                title(filter, by)
            ));
        }
    }
    remarks
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
        let text = include_str!("../../../tests/policies/site/left.xml");
        let policy = policy::xml::read("left.xml", text).expect("the sample is valid").policy;
        of(&policy, &config.filter.filter())
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
}
