//! The host's packet filter: whether its rules let a packet pass, and whether they change its addresses.
//!
//! The rules are read and not changed, and no packet is sent. A rule may ask for something that is not known of the
//! packet, or that this code does not understand. Then both answers count as possible, and the fate of the packet may
//! be unknown.

mod expression;
mod read;

use expression::{Match, statement_of};
use policy::AddressRange;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// Where in the kernel a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// It has arrived.
    Prerouting,
    /// It is for this host.
    Input,
    /// It is for another host.
    Forward,
    /// This host has made it.
    Output,
    /// It is about to leave.
    Postrouting,
}

/// A packet, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The device by which it arrives; `None` where there is none, or it is not known.
    pub arrives: Option<String>,
    /// The device by which it leaves.
    pub leaves: Option<String>,
    /// Its source is one of these addresses.
    pub source: AddressRange,
    /// Its destination is one of these addresses, of the same family.
    pub destination: AddressRange,
    /// Its protocol, with both ports where it has such; `None`: any.
    pub protocol: Option<(u8, Option<(u16, u16)>)>,
    /// It belongs to a flow that the kernel knows.
    pub established: bool,
    /// `nft` does not show for which state of a flow a rule of `iptables` asks. It is taken to be that of flows that
    /// the kernel knows, as nearly all such rules have it.
    pub guessed: bool,
}

/// The fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// No rule drops it.
    Passes,
    /// It is not known whether this drops it.
    Unknown(Place),
    /// This drops it, whatever is not known of it.
    Dropped(Place),
}

/// A rule, or the policy of a chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Family, table and chain, as `nft list chain` takes them.
    pub chain: String,
    /// The handle of the rule, as `nft -a` shows it; `None`: the chain's policy.
    pub rule: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Some(handle) => {
                write!(f, "the rule with handle {handle} in the chain {}", self.chain)
            }
            None => write!(f, "the policy of the chain {}", self.chain),
        }
    }
}

/// The rules of nftables, which include those of `iptables-nft`, without the tables of this program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Firewall {
    bases: Vec<Base>,
    chains: BTreeMap<Key, Vec<Rule>>,
    /// The reason why not all rules are known.
    pub unread: Option<String>,
}

/// Family, table and name of a chain.
type Key = (String, String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    key: Key,
    hook: Hook,
    priority: i64,
    drops: bool,
    /// It translates addresses, and drops nothing.
    translates: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    handle: u64,
    expressions: Vec<Value>,
}

/// The most chains that can be behind one another; the kernel allows no more.
const DEPTH: usize = 16;

/// The possible results of rules for a packet.
#[derive(Clone, Debug, Default)]
struct Outcomes {
    accepted: bool,
    dropped: Option<Place>,
    /// The packet goes on behind them.
    on: bool,
    /// It goes on behind their chain.
    returned: bool,
}

impl Outcomes {
    fn on() -> Self {
        Self { on: true, ..Self::default() }
    }

    fn accept() -> Self {
        Self { accepted: true, ..Self::default() }
    }

    fn drop(place: Place) -> Self {
        Self { dropped: Some(place), ..Self::default() }
    }

    fn any(place: Place) -> Self {
        Self { accepted: true, dropped: Some(place), on: true, returned: false }
    }

    /// Adds the results that are possible beside these.
    fn or(&mut self, other: Self) {
        self.accepted |= other.accepted;
        self.dropped = self.dropped.take().or(other.dropped);
        self.on |= other.on;
        self.returned |= other.returned;
    }
}

impl Firewall {
    /// Rules that could not be read for this reason.
    pub fn not_read(reason: String) -> Self {
        Self { unread: Some(reason), ..Self::default() }
    }

    /// Returns what becomes of a packet at a hook.
    pub fn fate(&self, hook: Hook, packet: &Packet) -> Fate {
        self.outcome(hook, packet, false)
    }

    /// Whether a rule gives a packet at a hook a source that is none of its own, which counts as [`Fate::Dropped`]
    /// here.
    pub fn translation(&self, hook: Hook, packet: &Packet) -> Fate {
        self.outcome(hook, packet, true)
    }

    fn outcome(&self, hook: Hook, packet: &Packet, translates: bool) -> Fate {
        let family = if packet.source.start().is_ipv4() { "ip" } else { "ip6" };
        let of_hook = self.bases.iter().filter(|base| base.hook == hook);
        let asked = of_hook.filter(|base| {
            base.translates == translates && ["inet", family].contains(&base.key.0.as_str())
        });
        let mut unknown = None;
        for base in asked {
            let Outcomes { accepted, dropped, on, .. } = self.of_base(base, packet);
            match dropped {
                Some(place) if !accepted && !on => return Fate::Dropped(place),
                Some(place) => unknown = unknown.or(Some(place)),
                None => {}
            }
        }
        unknown.map_or(Fate::Passes, Fate::Unknown)
    }

    fn of_base(&self, base: &Base, packet: &Packet) -> Outcomes {
        let mut outcomes = self.of_chain(&base.key, packet, DEPTH);
        if outcomes.on || outcomes.returned {
            let (on, returned) = (!base.drops, false);
            let dropped = base.drops.then(|| Place { chain: shown(&base.key), rule: None });
            outcomes.dropped = outcomes.dropped.take().or(dropped);
            outcomes = Outcomes { on, returned, ..outcomes };
        }
        outcomes
    }

    fn of_chain(&self, key: &Key, packet: &Packet, depth: usize) -> Outcomes {
        let mut total = Outcomes::default();
        for rule in self.chains.get(key).into_iter().flatten() {
            let mut outcomes = self.of_rule(key, rule, packet, depth);
            let goes_on = std::mem::take(&mut outcomes.on);
            total.or(outcomes);
            if !goes_on {
                return total;
            }
        }
        total.on = true;
        total
    }

    fn of_rule(&self, key: &Key, rule: &Rule, packet: &Packet, depth: usize) -> Outcomes {
        let mut certain = true;
        for expression in &rule.expressions {
            let outcomes = match statement_of(expression, packet) {
                expression::Statement::Nothing => continue,
                expression::Statement::Condition(Match::Yes) => continue,
                expression::Statement::Condition(Match::No) => return Outcomes::on(),
                expression::Statement::Condition(Match::Unknown) => {
                    certain = false;
                    continue;
                }
                expression::Statement::Verdicts(verdicts) => {
                    let mut total = Outcomes::default();
                    for (verdict, sure) in verdicts {
                        total.or(self.of_verdict(key, verdict, packet, depth, place(key, rule)));
                        if sure {
                            break;
                        }
                    }
                    total
                }
                expression::Statement::Unknown => {
                    certain = false;
                    Outcomes::any(place(key, rule))
                }
            };
            return match certain {
                true => outcomes,
                false => {
                    let mut total = Outcomes::on();
                    total.or(outcomes);
                    total
                }
            };
        }
        Outcomes::on()
    }

    fn of_verdict(
        &self,
        key: &Key,
        verdict: expression::Verdict<'_>,
        packet: &Packet,
        depth: usize,
        place: Place,
    ) -> Outcomes {
        use expression::Verdict;
        match verdict {
            Verdict::Accept => Outcomes::accept(),
            Verdict::Drop => Outcomes::drop(place),
            Verdict::On => Outcomes::on(),
            Verdict::Return => Outcomes { returned: true, ..Outcomes::default() },
            Verdict::Jump(name) => {
                let mut outcomes = self
                    .of_chain_named(name, key, packet, depth)
                    .unwrap_or_else(|| Outcomes::any(place));
                outcomes.on |= std::mem::take(&mut outcomes.returned);
                outcomes
            }
            Verdict::Goto(name) => {
                let mut outcomes = self
                    .of_chain_named(name, key, packet, depth)
                    .unwrap_or_else(|| Outcomes::any(place));
                outcomes.returned |= std::mem::take(&mut outcomes.on);
                outcomes
            }
            Verdict::Unknown => Outcomes::any(place),
        }
    }

    /// The outcomes of a chain in the table of `key`; `None` if the table has no such chain, or no further jump is
    /// followed (`depth` is 0).
    fn of_chain_named(
        &self,
        name: &str,
        key: &Key,
        packet: &Packet,
        depth: usize,
    ) -> Option<Outcomes> {
        let key = (key.0.clone(), key.1.clone(), name.to_owned());
        let known = self.chains.contains_key(&key) && depth > 0;
        known.then(|| self.of_chain(&key, packet, depth.saturating_sub(1)))
    }
}

fn shown((family, table, chain): &Key) -> String {
    format!("{family} {table} {chain}")
}

fn place(key: &Key, rule: &Rule) -> Place {
    Place { chain: shown(key), rule: Some(rule.handle) }
}

#[cfg(test)]
mod tests;
