//! The filter on the host: an nftables table that drops, and routing rules that lead bypassed traffic past the device.
//!
//! Without rules and with both defaults at "permit" there is neither. The table outlives a crash, so that "deny" stays
//! closed; the next start puts its own in its place, or removes it. Without the program `nft`, a filter is refused.
//!
//! Bypassed traffic is led past the device by routing rules, not by marks, so that its source address is chosen for the
//! route it takes. The table also stays in force after a failed start.

use crate::config::{Config, Settings};
use crate::refusal::{plane_error, refused};
use crate::turns::Turns;
use esp::filter::{
    DefaultAction, Direction, FRAGMENTATION_NEEDED, Filter, FilterAction, FilterCounts, FilterRule,
    NEIGHBOURS, PACKET_TOO_BIG, Tally,
};
use esp::plane::{FilterWork, PlaneError};
use host::journal::{self, Journal};
use host::netlink::{Exception, Family, Netlink};
use host::nft::{self, Chain, Commands, Hook, Match, Rule, Statement, Table};
use host::{lacks_family, prefixes};
use policy::Selector;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The most routing rules that one filter may need: a range that is no prefix takes several.
const MAX_EXCEPTIONS: usize = 4096;

/// The filter in force.
pub struct Enforcement {
    netlink: Netlink,
    host: Arc<Host>,
    priority: u32,
    filter: Arc<Filter>,
    installed: bool,
    exceptions: Vec<Exception>,
    /// The change that is under way.
    change: Option<Change>,
    turns: Turns,
}

/// A filter that is going to be in force.
struct Change {
    filter: Arc<Filter>,
    exceptions: Vec<Exception>,
}

/// The settings that the table depends on, with its name.
struct Host {
    table: String,
    config: Arc<Config>,
}

impl Host {
    fn of(config: &Arc<Config>) -> Self {
        let table = nft::table("filter", &config.settings.device);
        Self { table, config: Arc::clone(config) }
    }
}

impl Enforcement {
    /// Puts a filter in force, and an end to what a crashed gateway has left.
    ///
    /// # Errors
    /// If the filter takes too many routing rules, the program `nft` is missing, or the system refuses something.
    pub fn start(
        config: &Arc<Config>,
        filter: &Arc<Filter>,
        journal: &mut Journal,
    ) -> Result<Self, PlaneError> {
        let mut enforcement = Self::of(config)?;
        journal.replace_exceptions();
        let outcome = enforcement.begin(filter, journal)?.run();
        enforcement.finish(outcome)?;
        Ok(enforcement)
    }

    /// The filter that another process has put in force, and that is on its record.
    ///
    /// # Errors
    /// If the filter takes too many routing rules, or the system refuses something.
    pub fn adopt(config: &Arc<Config>, filter: Arc<Filter>) -> Result<Self, PlaneError> {
        let enforcement = Self::of(config)?;
        let exceptions = exceptions(&filter, enforcement.priority)?;
        let installed = !filter.is_open();
        Ok(Self { filter, installed, exceptions, ..enforcement })
    }

    /// No filter.
    fn of(config: &Arc<Config>) -> Result<Self, PlaneError> {
        let netlink = Netlink::open().map_err(|e| refused("opening netlink".to_owned(), &e))?;
        Ok(Self {
            netlink,
            host: Arc::new(Host::of(config)),
            // That of the tunnels' rule follows.
            priority: config.settings.rule_priority.saturating_sub(1),
            filter: Arc::default(),
            installed: false,
            exceptions: Vec::new(),
            change: None,
            turns: Turns::default(),
        })
    }

    /// Returns `true` if a change is under way.
    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// The filter in force.
    pub fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Begins to replace the filter: leads bypassed traffic past the device, and returns the work with nftables. On
    /// error the former filter stays in force.
    ///
    /// # Errors
    /// If another change is under way, and as of [`start`](Self::start).
    pub fn begin(
        &mut self,
        filter: &Arc<Filter>,
        journal: &mut Journal,
    ) -> Result<FilterWork, PlaneError> {
        if self.change.is_some() {
            return Err(PlaneError::System {
                what: "changing the filter".to_owned(),
                why: "another change is under way; try again".to_owned(),
            });
        }
        let exceptions = exceptions(filter, self.priority)?;
        // Routes first: a packet that is let pass is to find its way.
        let begun = self
            .except(&self.exceptions.clone(), &exceptions, journal)
            .and_then(|()| self.fill_table(filter, journal));
        if begun.is_err() {
            self.withdraw(&exceptions, &self.exceptions.clone());
        }
        let work = begun?;
        self.change = Some(Change { filter: Arc::clone(filter), exceptions });
        Ok(work)
    }

    /// Ends the change that has begun; on error the former filter stays in force. Returns the filter in force.
    ///
    /// # Errors
    /// With the error of `outcome`.
    pub fn finish(&mut self, outcome: Result<(), PlaneError>) -> Result<Arc<Filter>, PlaneError> {
        let Some(Change { filter, exceptions }) = self.change.take() else {
            return outcome.map(|()| Arc::clone(&self.filter));
        };
        if let Err(error) = outcome {
            self.withdraw(&exceptions, &self.exceptions.clone());
            return Err(error);
        }
        let before = std::mem::replace(&mut self.exceptions, exceptions);
        self.withdraw(&before, &self.exceptions.clone());
        self.installed = !filter.is_open();
        self.filter = filter;
        Ok(Arc::clone(&self.filter))
    }

    /// The work that puts the table back which others have changed; `None` if none is needed, or a change is under way.
    pub fn table_restoration(&mut self) -> Option<FilterWork> {
        (self.installed && self.change.is_none()).then(|| self.rewrite(&Arc::clone(&self.filter)))
    }

    /// Puts the routing rules for bypassed traffic back.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn restore_routing_rules(&mut self, journal: &mut Journal) -> Result<(), PlaneError> {
        let exceptions = std::mem::take(&mut self.exceptions);
        let restored = self.except(&[], &exceptions, journal);
        self.exceptions = exceptions;
        restored
    }

    /// Reads the filter's counters, on any thread.
    pub fn counter_reader(&self) -> impl FnOnce() -> FilterCounts + Send + use<> {
        let (host, filter, installed) =
            (Arc::clone(&self.host), Arc::clone(&self.filter), self.installed);
        move || counts(&host, &filter, installed)
    }

    fn except(
        &mut self,
        before: &[Exception],
        wanted: &[Exception],
        journal: &mut Journal,
    ) -> Result<(), PlaneError> {
        if wanted.is_empty() {
            return Ok(());
        }
        journal.record(&journal::Change::Exceptions(self.priority)).map_err(plane_error)?;
        let mut families = Vec::new();
        for family in Family::BOTH {
            match self.netlink.add_landing(family, self.priority) {
                Ok(()) => families.push(family),
                Err(e) if family == Family::V6 && lacks_family(&e) => {}
                Err(e) => return Err(refused("adding a routing rule".to_owned(), &e)),
            }
        }
        let new = wanted.iter().filter(|e| !before.contains(e) && families.contains(&e.family()));
        for exception in new {
            self.netlink
                .add_exception(exception)
                .map_err(|e| refused(format!("leading {exception} past the tunnel device"), &e))?;
        }
        Ok(())
    }

    /// Withdraws routing rules that are not among those to be kept.
    fn withdraw(&mut self, exceptions: &[Exception], kept: &[Exception]) {
        for exception in exceptions.iter().filter(|e| !kept.contains(e)) {
            if let Err(error) = self.netlink.delete_exception(exception) {
                tracing::warn!(%error, "withdrawing the routing rule for {exception}");
            }
        }
    }

    fn fill_table(
        &mut self,
        filter: &Arc<Filter>,
        journal: &mut Journal,
    ) -> Result<FilterWork, PlaneError> {
        if filter.is_open() {
            let (host, turn) = (Arc::clone(&self.host), self.turns.give());
            return Ok(FilterWork::new(move || {
                turn.wait();
                nft::remove(&host.table).map_err(|e| fault(&e))
            }));
        }
        if !nft::available() {
            return Err(PlaneError::System {
                what: "filtering traffic outside of tunnels".to_owned(),
                why: "the program nft is missing; install nftables, or have both families permitted and no rules"
                    .to_owned(),
            });
        }
        journal.record(&journal::Change::Filter(self.host.table.clone())).map_err(plane_error)?;
        Ok(self.rewrite(filter))
    }

    /// The work that puts the table of a filter in the place of the present one, whose counters go on.
    fn rewrite(&mut self, filter: &Arc<Filter>) -> FilterWork {
        let (host, before, installed) =
            (Arc::clone(&self.host), Arc::clone(&self.filter), self.installed);
        let (filter, turn) = (Arc::clone(filter), self.turns.give());
        FilterWork::new(move || {
            turn.wait();
            let former = counts(&host, &before, installed);
            let tallies = filter.rules.iter().map(|rule| {
                let place = before.rules.iter().position(|r| r == rule);
                place.and_then(|at| former.rules.get(at).copied()).unwrap_or_default()
            });
            let kept = FilterCounts { rules: tallies.collect(), ..former };
            nft::run(&script(&host, &filter, &kept)).map_err(|e| fault(&e))
        })
    }
}

fn fault(error: &io::Error) -> PlaneError {
    refused("filtering with nftables".to_owned(), error)
}

/// The counters of a filter that has a table if it is `installed`.
fn counts(host: &Host, filter: &Filter, installed: bool) -> FilterCounts {
    let rules = vec![Tally::default(); filter.rules.len()];
    let mut counts = FilterCounts { rules, ..FilterCounts::default() };
    if !installed {
        return counts;
    }
    match nft::counters(&host.table) {
        Ok(text) => {
            let found = read_counters(&text);
            for (place, tally) in counts.rules.iter_mut().enumerate() {
                *tally = found.get(rule_counter(place).as_str()).copied().unwrap_or_default();
            }
            [counts.denied_ipv4, counts.denied_ipv6] =
                DENIED.map(|name| found.get(name).copied().unwrap_or_default());
        }
        Err(error) => tracing::warn!(%error, "reading the filter's counters"),
    }
    counts
}

/// Names of the counters of what no rule covers.
const DENIED: [&str; 2] = ["denied_ipv4", "denied_ipv6"];

/// The chain for packets that pass before any rule is asked.
const ALWAYS: &str = "always";
const IKE_PORT: u16 = 500;
const ESP_AND_AH: [u8; 2] = [50, 51];

fn rule_counter(place: usize) -> String {
    format!("rule_{}", place + 1)
}

/// The whole table, in place of the former.
fn script(host: &Host, filter: &Filter, counts: &FilterCounts) -> Commands {
    let Config { settings: Settings { device, mark, .. }, natt_port, .. } = &*host.config;
    let always = Rule::always(Statement::Jump(ALWAYS));
    let Verdicts { opened, protected, denied } = Verdicts::of(host, filter);
    let by_device =
        [Match::CameBy(device), Match::LeavesBy(device)].map(|m| m.then(Statement::Accept));
    let [came_by_device, leaves_by_device] = by_device.clone();
    // The first verdict ends a chain. So the packets that always pass come first, then the operator's rules, then the
    // packets of tunnels, and last the default.
    let incoming = Chain::at(Hook::Input, 0, "incoming")
        .rules([
            Match::CameBy("lo").then(Statement::Accept),
            Match::Protocol(&ESP_AND_AH).then(Statement::Accept),
            Match::UdpTo(&[IKE_PORT, *natt_port]).then(Statement::Accept),
            always.clone(),
        ])
        .rules(verdicts(filter, &[Direction::In]))
        .rules(opened.clone())
        .rules([came_by_device])
        .rules(denied.clone());
    let outgoing = Chain::at(Hook::Output, 0, "outgoing")
        .rules([
            Match::LeavesBy("lo").then(Statement::Accept),
            Match::Mark(*mark).then(Statement::Accept),
            always.clone(),
        ])
        .rules(verdicts(filter, &[Direction::Out]))
        .rules(protected.clone())
        .rules([leaves_by_device])
        .rules(denied.clone());
    let passing = Chain::at(Hook::Forward, 0, "passing")
        .rules([always])
        .rules(verdicts(filter, &[Direction::Out, Direction::In]))
        .rules(opened)
        .rules(protected)
        .rules(by_device)
        .rules(denied);
    let table = counters(Table::new(&host.table), filter, counts).empty_line();
    let table = table.chain(&chain_of_always()).chain(&incoming).chain(&outgoing).chain(&passing);
    let mut commands = Commands::default();
    commands.replace(&table);
    commands
}

/// Adds the counters, which go on from these numbers.
fn counters(table: Table, filter: &Filter, counts: &FilterCounts) -> Table {
    let names = (0..filter.rules.len()).map(rule_counter).chain(DENIED.map(str::to_owned));
    let tallies = counts.rules.iter().chain([&counts.denied_ipv4, &counts.denied_ipv6]);
    names.zip(tallies).fold(table, |table, (name, Tally { packets, bytes })| {
        table.counter(&name, *packets, *bytes)
    })
}

fn chain_of_always() -> Chain {
    let kinds: Vec<u8> = [PACKET_TOO_BIG].into_iter().chain(NEIGHBOURS).collect();
    let [kind, code] = FRAGMENTATION_NEEDED.to_be_bytes();
    let packets = [Match::Icmpv6(&kinds), Match::Icmp(kind, code)];
    Chain::new(ALWAYS).rules(packets.map(|packet| packet.then(Statement::Accept)))
}

/// Rules that several chains have.
struct Verdicts {
    /// About packets that the kernel has opened.
    opened: Option<Rule>,
    /// About packets that the kernel is going to protect, and has protected.
    protected: Vec<Rule>,
    /// About packets that no rule of the filter covers.
    denied: Vec<Rule>,
}

impl Verdicts {
    fn of(host: &Host, filter: &Filter) -> Self {
        let by_kernel = [
            Match::ToBeProtected,
            Match::Protocol(&ESP_AND_AH),
            Match::UdpFrom(&[host.config.natt_port]),
        ]
        .map(|packet| packet.then(Statement::Accept));
        let defaults = [(Family::V4, filter.ipv4, DENIED[0]), (Family::V6, filter.ipv6, DENIED[1])];
        let denied = defaults.into_iter().filter(|(_, action, _)| *action == DefaultAction::Deny);
        let denied = denied.map(|(family, _, counter)| {
            Match::Family(family).then(Statement::Count(counter)).then(Statement::Drop)
        });
        Self {
            opened: host.config.beside_kernel.then(|| Match::Opened.then(Statement::Accept)),
            protected: if host.config.beside_kernel { by_kernel.into() } else { Vec::new() },
            denied: denied.collect(),
        }
    }
}

/// The verdicts of the rules, one by one, about packets in one of these directions.
fn verdicts(filter: &Filter, ways: &[Direction]) -> Vec<Rule> {
    let mut verdicts = Vec::new();
    for (place, rule) in filter.rules.iter().enumerate() {
        let verdict = match rule.action {
            FilterAction::Bypass => Statement::Accept,
            FilterAction::Discard => Statement::Drop,
        };
        let counter = rule_counter(place);
        for way in ways.iter().filter(|way| rule.direction.includes(**way)) {
            let (local, remote) = (&rule.traffic.local, &rule.traffic.remote);
            let (from, to) = if *way == Direction::In { (remote, local) } else { (local, remote) };
            let flows = nft::flows(from, to).into_iter();
            verdicts.extend(flows.map(|flow| flow.then(Statement::Count(&counter)).then(verdict)));
        }
    }
    verdicts
}

/// The routing rules for what leaves unprotected.
fn exceptions(filter: &Filter, priority: u32) -> Result<Vec<Exception>, PlaneError> {
    let mut found = Vec::new();
    for (place, rule) in filter.rules.iter().enumerate() {
        if rule.action != FilterAction::Bypass || !rule.direction.includes(Direction::Out) {
            continue;
        }
        for (local, remote) in pairs(rule) {
            let (from, to) = (prefixes(&local.addresses), prefixes(&remote.addresses));
            if found.len() + from.len() * to.len() > MAX_EXCEPTIONS {
                return Err(PlaneError::System {
                    what: format!(
                        "leading {} of the filter past the tunnel device",
                        rule.title(place)
                    ),
                    why: "its ranges take too many routing rules; use prefixes".to_owned(),
                });
            }
            for from in from {
                found.extend(to.iter().map(|to| Exception {
                    priority,
                    from,
                    to: *to,
                    protocol: local.protocol,
                    ports: [local.ports, remote.ports],
                }));
            }
        }
    }
    Ok(found)
}

fn pairs(rule: &FilterRule) -> impl Iterator<Item = (&Selector, &Selector)> {
    let remote = &rule.traffic.remote;
    rule.traffic.local.iter().flat_map(move |local| {
        let of_family = remote
            .iter()
            .filter(|r| r.addresses.start().is_ipv4() == local.addresses.start().is_ipv4());
        of_family.map(move |r| (local, r))
    })
}

/// Reads `nft list counters`: a name, and the numbers in the line after it.
fn read_counters(text: &str) -> BTreeMap<&str, Tally> {
    let mut counters = BTreeMap::new();
    let mut name = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["counter", of, "{", ..] => name = Some(*of),
            ["packets", packets, "bytes", bytes] => {
                if let (Some(name), Ok(packets), Ok(bytes)) =
                    (name.take(), packets.parse(), bytes.parse())
                {
                    counters.insert(name, Tally { packets, bytes });
                }
            }
            _ => {}
        }
    }
    counters
}

#[cfg(test)]
mod tests;
