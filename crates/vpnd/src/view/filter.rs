//! The filter: traffic outside tunnels.

use control::protocol::{Count, DefaultAction, FilterInfo, FilterRuleInfo};
use esp::filter::{self, FilterStatus, Tally};
use std::path::Path;

/// Shows the filter in force and how often each rule has decided. `kept`: the file of the defaults that outlive a
/// restart.
pub fn filter(status: &FilterStatus, kept: &Path) -> FilterInfo {
    let FilterStatus { filter, counts, inbound_guard } = status;
    let tallies = counts.rules.iter().copied().chain(std::iter::repeat(Tally::default()));
    let rules = filter.rules.iter().zip(tallies).enumerate();
    let rules = rules.map(|(place, (rule, tally))| FilterRuleInfo {
        number: place + 1,
        name: rule.name.clone(),
        action: rule.action.name().to_owned(),
        direction: rule.direction.name().to_owned(),
        local: rule.traffic.local.iter().map(ToString::to_string).collect(),
        remote: rule.traffic.remote.iter().map(ToString::to_string).collect(),
        decided: count(tally),
    });
    FilterInfo {
        ipv4: filter.ipv4.name().to_owned(),
        ipv6: filter.ipv6.name().to_owned(),
        rules: rules.collect(),
        denied_ipv4: count(counts.denied_ipv4),
        denied_ipv6: count(counts.denied_ipv6),
        undo_in_seconds: None,
        inbound_guard: *inbound_guard,
        file: Some(kept.display().to_string()),
    }
}

fn count(Tally { packets, bytes }: Tally) -> Count {
    Count { packets, bytes }
}

/// Reads the fate of packets that no rule and no tunnel covers.
pub fn default_action(action: DefaultAction) -> filter::DefaultAction {
    match action {
        DefaultAction::Permit => filter::DefaultAction::Permit,
        DefaultAction::Deny => filter::DefaultAction::Deny,
    }
}
