//! Predicts the way of a packet, with the look-ups that packets take.

#![forbid(unsafe_code)]

use super::{Installed, Shared, lock};
use crate::filter::{Direction, Filter};
use crate::header::Header;
use crate::plane::{PacketSummary, Rule};
use crate::spd::SpdMatch;
use crate::trace::{DecidedBy, OneWayTrace, Trace};

impl Shared {
    pub(super) fn trace(&self, packet: &PacketSummary) -> Trace {
        let (header, filter) = (Header::described(packet), self.spd.filter());
        let leaving = self.leaving(packet, &header, &filter);
        let arriving = self.arriving(packet, &header, &filter);
        Trace { leaving, arriving, inbound_guard: false }
    }

    fn leaving(&self, packet: &PacketSummary, header: &Header, filter: &Filter) -> OneWayTrace {
        let tunnels = self.spd.covering(|rule| header.leaves_by(&rule.selectors));
        let tunnels: Vec<&Rule> = tunnels.iter().map(|entry| &entry.rule).collect();
        let (decided_by, sas) = match self.spd.find(header) {
            SpdMatch::Filter(place, _) => (by_filter(filter, place), Vec::new()),
            SpdMatch::Nothing => {
                (DecidedBy::Default(filter.default_of(packet.source.0)), Vec::new())
            }
            SpdMatch::Rule(entry) => {
                let sas = entry.service.sas();
                (by_tunnel(&entry.rule), sas.iter().map(|sa| sa.facts(header)).collect())
            }
        };
        let behind = behind(&decided_by, packet, Direction::Out, filter, &tunnels);
        OneWayTrace { decided_by, sas, behind, otherwise: Vec::new() }
    }

    fn arriving(&self, packet: &PacketSummary, header: &Header, filter: &Filter) -> OneWayTrace {
        let tunnels = self.spd.covering(|rule| header.arrives_by(&rule.selectors));
        let tunnels: Vec<&Rule> = tunnels.iter().map(|entry| &entry.rule).collect();
        let decided_by = match (filter.first(packet, Direction::In), tunnels.first()) {
            (Some((place, _)), _) => by_filter(filter, place),
            (None, Some(rule)) => by_tunnel(rule),
            (None, None) => DecidedBy::Default(filter.default_of(packet.source.0)),
        };
        let sas = match &decided_by {
            DecidedBy::Tunnel { .. } => {
                let installed = lock(&self.installed);
                let facts = installed.values().filter_map(|sa| match sa {
                    Installed::Inbound(sa) => Some(sa.facts(header)),
                    Installed::Outbound { .. } => None,
                });
                facts.filter(|sa| sa.carries).collect()
            }
            _ => Vec::new(),
        };
        let behind = behind(&decided_by, packet, Direction::In, filter, &tunnels);
        OneWayTrace { decided_by, sas, behind, otherwise: Vec::new() }
    }
}

fn by_filter(filter: &Filter, place: usize) -> DecidedBy {
    match filter.rules.get(place) {
        Some(rule) => DecidedBy::Filter { place, rule: rule.clone() },
        // The filter was replaced between two looks at it.
        None => DecidedBy::Default(filter.ipv4),
    }
}

fn by_tunnel(rule: &Rule) -> DecidedBy {
    DecidedBy::Tunnel { rule: rule.id, tunnel: rule.tunnel.clone(), trap: rule.trap, kernel: None }
}

/// The rules and tunnels that also match a packet, but come later.
fn behind(
    decided_by: &DecidedBy,
    packet: &PacketSummary,
    way: Direction,
    filter: &Filter,
    tunnels: &[&Rule],
) -> Vec<String> {
    let (first_rule, first_tunnel) = match decided_by {
        DecidedBy::Filter { place, .. } => (place + 1, None),
        DecidedBy::Tunnel { rule, .. } => (filter.rules.len(), Some(*rule)),
        DecidedBy::Always(_) | DecidedBy::RemoteNetwork { .. } | DecidedBy::Default(_) => {
            return Vec::new();
        }
    };
    let rules = filter.rules.iter().enumerate().skip(first_rule);
    let rules = rules.filter(|(_, rule)| rule.covers(packet, way));
    let tunnels = tunnels.iter().filter(|rule| Some(rule.id) > first_tunnel);
    rules
        .map(|(at, r)| r.title(at))
        .chain(tunnels.map(|r| format!("tunnel {}", r.tunnel)))
        .collect()
}
