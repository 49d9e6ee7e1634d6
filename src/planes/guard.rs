//! The nftables table that keeps the traffic of the tunnels from passing in the clear, whatever state they are in.
//!
//! The table follows from the definition of the tunnels, not from their SAs, routes or policies. A packet that a rule claims
//! leaves this host in one of three ways: by the TUN device, with a transformation of the kernel (`rt ipsec exists`), or as
//! ESP or IKE of this daemon. Every other way ends in a counted drop. A packet that a rule claims and that arrives without
//! protection is dropped too (RFC 4301 §5.2).
//!
//! A rule also claims what this host itself sends to its remote network, from whatever address: a socket without a source
//! address gets one outside of the selectors while the tunnel's route is away. nftables knows these packets by the lack of a
//! device by which they have come; packets that a device has made, such as a tunnel device, are known by their source.
//!
//! The table is the first thing that a start puts in force, in one transaction in place of what a crash has left, and the last
//! thing that an orderly end removes. A rule enters the table before a plane gets it and leaves the table after the plane has
//! removed it, so that nothing that a plane does, and no error of a plane, opens a gap.
//!
//! Packets are looked at before and after the translation of their source address: masquerading neither hides nor makes a
//! tunnel's traffic. A packet that the kernel was going to protect can lose its transformation there, as it has another source
//! then. So the table sets the highest bit of the mark ([`sets`]) before the translation, and drops a packet to a remote
//! network that has the bit and no transformation after it. It clears the bit of the others.
//!
//! With packet offload, a packet passes nftables twice. The second time its route has no transformation, although a policy
//! covers it, because the card has yet to protect it. So the table leaves the bit set the first time, and accepts a packet with
//! it the second time.
//!
//! Two kinds of tunnels have no entry in the table:
//!
//! - With an `if_id`: the XFRM interface sends nothing without a policy.
//! - With a `mark` and packet offload (`offload = "packet"` or `"auto"`): **nftables does not drop their packets**. The mark
//!   decides which tunnel a packet takes, so that the table cannot use a bit of it. While the policies of such a tunnel are
//!   missing, its packets leave in the clear. `docs/planes.md` tells operators to use an `if_id` or `offload = "crypto"`.

#![forbid(unsafe_code)]

mod hold;
mod sets;
mod writer;

pub(crate) use hold::Hold;
pub(super) use writer::{OnRefusal, Written};

use esp::filter::{Direction, Filter};
use esp::plane::{PlaneError, Rule, RuleId};
use host::nft;
use sets::{HANDED, LOST, Member, OWN_BY_DEVICE, PROTECTED, SEEN, Sets, TRANSLATED, Way};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use writer::{State, Writer};

/// Priorities of the chains in postrouting: before the translation of source addresses, and after it.
const BEFORE_NAT: i32 = 90;
const AFTER_NAT: i32 = 300;

/// The properties of a tunnel, beside its selectors, that decide how the table recognises its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GuardedTraffic {
    /// Value and mask of their mark.
    pub mark: Option<(u32, u32)>,
    /// A card may protect the packets (packet offload).
    pub by_card: bool,
}

/// The parts of the configuration that decide which packets pass.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// The userspace plane's TUN device: packets that leave by it are protected there.
    pub device: String,
    /// The mark of this daemon's own packets.
    pub mark: u32,
    /// The port of ESP in UDP.
    pub natt_port: u16,
    /// Whether cleartext that arrives is dropped, too.
    pub inbound: bool,
    /// Whether the kernel may protect packets.
    pub kernel: bool,
}

/// The guarded rules, and their table. Dropping it removes the table, unless it is to be [kept](Self::keep_on_drop), or the
/// operator [holds](Hold) it.
pub(super) struct Guard {
    surroundings: Surroundings,
    table: String,
    filter: Arc<Filter>,
    rules: BTreeMap<RuleId, Vec<Member>>,
    /// The tunnels of the policy, until the engine has added their rules.
    defined: Vec<Member>,
    /// The change with which the last of `defined` enter the table.
    entering: Written,
    /// Rules that are going to be added, with the changes by which they enter the table.
    preparing: BTreeMap<RuleId, Written>,
    /// The former members of rules that a plane is about to replace.
    superseded: Vec<Member>,
    /// The change that puts back a table which others have changed.
    restoring: Option<Written>,
    sets: Sets,
    writer: Writer,
    kept: bool,
    hold: Hold,
}

/// At a start, further attempts to put a table in force that nftables has refused.
const MORE_ATTEMPTS: usize = 2;

impl Guard {
    /// Puts the guard of these rules in force, in place of the one that a crashed or ended daemon has left. Until
    /// [`Guard::settle`] they stay guarded, whatever is added or removed. `on_refusal` is called on another thread when
    /// nftables refuses a change: [`Guard::restore`] is to be called then.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start<'a>(
        surroundings: Surroundings,
        hold: Hold,
        filter: &Arc<Filter>,
        defined: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>,
        on_refusal: OnRefusal,
    ) -> io::Result<Self> {
        let table = table(&surroundings.device);
        let writer = Writer::start(on_refusal)?;
        let mut guard = Self {
            sets: Sets::new(&table),
            // A start that fails leaves a host that was blocked as it is.
            kept: nft::exists(&table),
            table,
            filter: Arc::clone(filter),
            rules: BTreeMap::new(),
            defined: Vec::new(),
            entering: writer.nothing(),
            preparing: BTreeMap::new(),
            superseded: Vec::new(),
            restoring: None,
            writer,
            hold,
            surroundings,
        };
        let _ = guard.add_defined(defined);
        guard.replace().wait();
        for _ in 0..MORE_ATTEMPTS {
            match guard.writer.state() {
                State::Refused(_) => {}
                // The answer to the question whether it works may have failed, too.
                State::Unusable(_) if nft::available() => {}
                _ => break,
            }
            // A kernel without XFRM has no words for it.
            guard.surroundings.kernel = guard.surroundings.kernel && nft::knows_ipsec();
            guard.replace().wait();
        }
        Ok(guard)
    }

    /// Whether the guard can tell the packets that the kernel protects from others. If not, it drops them.
    pub(super) fn knows_kernel(&self) -> bool {
        self.surroundings.kernel
    }

    /// Begins to guard rules that the engine is going to add, until [`Guard::settle`].
    pub(super) fn expect<'a>(
        &mut self,
        rules: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>,
    ) -> Written {
        let script = self.add_defined(rules);
        self.entering = self.tell(Some(script));
        self.entering.clone()
    }

    /// The engine has added the rules of the policy: from now on they alone are guarded. Returns all changes so far.
    pub(super) fn settle(&mut self) -> Written {
        let defined = std::mem::take(&mut self.defined);
        let script = self.sets.remove_all(&defined);
        let _ = self.tell(script);
        self.writer.all_given()
    }

    /// If nftables has refused to guard expected rules, begins to build the table again.
    pub(super) fn make_up(&mut self) -> Option<Written> {
        (self.writer.state() == State::Outdated).then(|| {
            self.entering = self.replace();
            self.entering.clone()
        })
    }

    /// Begins to guard a rule that is going to be added. Returns `true` once it is guarded, or nftables has refused the whole
    /// table. `false`: `ready` is called on another thread, and then this is to be called again.
    pub(super) fn prepare(
        &mut self,
        rule: &Rule,
        properties: Option<GuardedTraffic>,
        ready: impl FnOnce() + Send + 'static,
    ) -> bool {
        let members = self.members(rule, properties);
        if self.rules.get(&rule.id).map_or(&[][..], Vec::as_slice) != members {
            let script = self.put(rule.id, members);
            let _entering = self.tell(Some(script));
        } else {
            match self.preparing.get(&rule.id) {
                Some(entering) if !entering.is_done() => return false,
                Some(_) if self.writer.state() == State::Outdated => _ = self.replace(),
                _ => {
                    self.preparing.remove(&rule.id);
                    return true;
                }
            }
        }
        // Also earlier ones: they may bring members that this rule shares with others.
        let entering = self.writer.all_given();
        if entering.is_done() {
            return true;
        }
        self.preparing.insert(rule.id, entering);
        self.writer.tell_when_done(ready);
        false
    }

    /// Guards these rules; stops guarding a rule that comes without properties. Waits for nothing if the rules were expected or
    /// prepared. Once the planes have them, [`Guard::let_go`] is to be called.
    pub(super) fn cover<'a>(
        &mut self,
        rules: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>,
    ) {
        let mut script = String::new();
        for (rule, properties) in rules {
            let members = self.members(rule, properties);
            script += &self.put(rule.id, members);
            self.preparing.remove(&rule.id).into_iter().for_each(|entering| entering.wait());
        }
        self.tell(Some(script)).wait();
        // Their members may be those of expected rules.
        self.entering.wait();
        if self.writer.state() == State::Outdated {
            self.replace().wait();
        }
    }

    /// Stops guarding, some time later, the traffic that the rules which were added last had before.
    pub(super) fn let_go(&mut self) {
        let superseded = std::mem::take(&mut self.superseded);
        let script = self.sets.remove_all(&superseded);
        let _later = self.tell(script);
    }

    /// Stops guarding these rules, some time later.
    pub(super) fn uncover(&mut self, rules: &[RuleId]) {
        for rule in rules {
            self.preparing.remove(rule);
            self.superseded.extend(self.rules.remove(rule).unwrap_or_default());
        }
        self.let_go();
    }

    /// Gives a rule another name.
    pub(super) fn rename(&mut self, rule: RuleId, to: RuleId) {
        if let Some(members) = self.rules.remove(&rule) {
            self.rules.insert(to, members);
        }
        if let Some(entering) = self.preparing.remove(&rule) {
            self.preparing.insert(to, entering);
        }
    }

    /// Begins to accept the traffic that the filter's bypass rules accept.
    pub(super) fn set_filter(&mut self, filter: &Arc<Filter>) -> Written {
        self.filter = Arc::clone(filter);
        match self.writer.state() {
            State::Unneeded => self.writer.nothing(),
            _ => self.replace(),
        }
    }

    /// Begins to build the table again that others have changed or removed. `ready` is called on another thread when
    /// [`Guard::restored`] has the result; it is not called if there is no table.
    pub(super) fn restore(&mut self, ready: impl FnOnce() + Send + 'static) {
        if self.writer.state() != State::Unneeded {
            self.restoring = Some(self.replace());
            self.writer.tell_when_done(ready);
        }
    }

    /// Takes the result of [`Guard::restore`], if it is there: whether there is a table.
    pub(super) fn restored(&mut self) -> Option<Result<bool, PlaneError>> {
        let _done = self.restoring.take_if(|restoring| restoring.is_done())?;
        match self.writer.state() {
            // It was so before.
            State::Unusable(_) => Some(Ok(false)),
            _ => Some(self.in_force()),
        }
    }

    /// Whether cleartext that should have been protected is dropped when it arrives.
    pub(super) fn drops_cleartext(&self) -> bool {
        let refused = matches!(self.writer.state(), State::Refused(_) | State::Unusable(_));
        self.surroundings.inbound && !refused && nft::available()
    }

    /// The name of the table, if it is in force.
    pub(super) fn table_in_force(&self) -> Option<&str> {
        matches!(self.writer.state(), State::InForce | State::Outdated).then_some(&self.table)
    }

    /// Returns `true` if the table is in force, or there is nothing to guard.
    ///
    /// # Errors
    /// If nftables has refused the table.
    pub(super) fn in_force(&self) -> Result<bool, PlaneError> {
        match self.writer.state() {
            State::Unneeded => Ok(false),
            State::InForce | State::Outdated => Ok(true),
            State::Refused(why) | State::Unusable(why) => Err(PlaneError::System {
                what: format!("putting the table {} of nftables in force", self.table),
                why,
            }),
        }
    }

    /// Decides whether dropping this leaves the table in force.
    pub(super) fn keep_on_drop(&mut self, kept: bool) {
        self.kept = kept;
    }

    fn members(&self, rule: &Rule, properties: Option<GuardedTraffic>) -> Vec<Member> {
        let inbound = self.surroundings.inbound;
        properties.map_or_else(Vec::new, |p| Member::all(&rule.selectors, p, inbound))
    }

    /// Adds the members of rules that the engine is going to add. Returns the commands for nftables.
    fn add_defined<'a>(
        &mut self,
        rules: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>,
    ) -> String {
        let members: Vec<_> =
            rules.flat_map(|(rule, properties)| self.members(rule, properties)).collect();
        let script = members.iter().map(|member| self.sets.add(member)).collect();
        self.defined.extend(members);
        script
    }

    /// Guards a rule's members, and its former ones until [`Guard::let_go`]. Returns the commands for nftables.
    fn put(&mut self, rule: RuleId, members: Vec<Member>) -> String {
        let added = members.iter().map(|member| self.sets.add(member)).collect();
        let before = match members.is_empty() {
            true => self.rules.remove(&rule),
            false => self.rules.insert(rule, members),
        };
        self.superseded.extend(before.unwrap_or_default());
        added
    }

    /// Has nftables carry out these commands, or build the whole table if there are none.
    fn tell(&mut self, script: Option<String>) -> Written {
        match script {
            Some(script) if script.is_empty() => self.writer.nothing(),
            Some(script) if self.writer.state() == State::InForce => self.writer.change(script),
            // The next attempt to put the table in force has it, too.
            Some(_) if matches!(self.writer.state(), State::Refused(_)) => self.writer.nothing(),
            _ => self.replace(),
        }
    }

    /// Begins to build the whole table, in one transaction in place of the former one.
    fn replace(&mut self) -> Written {
        if self.sets.is_empty() && self.writer.state() == State::Unneeded && !self.kept {
            return self.writer.nothing();
        }
        let counted = self.table_in_force().is_some();
        let (table, surroundings) = (self.table.clone(), self.surroundings.clone());
        let (filter, members) = (Arc::clone(&self.filter), self.sets.all());
        self.writer.replace(move || {
            let dropped = counted.then(|| dropped(&table)).flatten().unwrap_or_default();
            base(&table, &surroundings, &filter, dropped) + &members
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.writer.finish();
        // After a panic, as if the process had been killed: traffic stops, and the next start replaces the table.
        let may_be_there = match self.writer.state() {
            State::Unneeded => false,
            State::Unusable(_) => nft::available(),
            _ => true,
        };
        if may_be_there
            && !self.kept
            && self.hold.since().is_none()
            && !std::thread::panicking()
            && let Err(error) = nft::remove(&self.table)
        {
            tracing::warn!(%error, table = self.table, "a table stays in nftables");
        }
    }
}

/// Name of the table for a device.
pub(crate) fn table(device: &str) -> String {
    nft::table("guard", device)
}

/// Packets that the table of this name has dropped: those that were about to leave, those that arrived, and those whose address
/// was changed. `None`: the table is not there.
pub(crate) fn dropped(table: &str) -> Option<[u64; 3]> {
    let text = nft::counters(table).ok()?;
    let counters = [Way::Leaving.unprotected(), Way::Arriving.unprotected(), TRANSLATED];
    Some(counters.map(|counter| packets(&text, counter).unwrap_or(0)))
}

/// The packets of a named counter in nft's words.
fn packets(text: &str, counter: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!("counter {counter} {{"))?;
    rest.split_whitespace().skip_while(|word| *word != "packets").nth(1)?.parse().ok()
}

/// The table without members: what passes in any case, and what is dropped of the claimed packets.
fn base(
    name: &str,
    surroundings: &Surroundings,
    filter: &Filter,
    [left, arrived, translated]: [u64; 3],
) -> String {
    let Surroundings { device, mark, natt_port, inbound, kernel } = surroundings;
    let [protected_before, protected_after] = PROTECTED;
    let transformed = |protected: &str| match kernel {
        true => format!("    rt ipsec exists goto {protected}\n"),
        false => String::new(),
    };
    // Another user can have the port while this daemon does not run. The kernel's own ESP in UDP shows whoever sent what it
    // protects.
    let natt = match kernel {
        true => format!("udp sport {natt_port} fib saddr type local accept"),
        false => format!("udp sport {natt_port} meta skuid 0 fib saddr type local accept"),
    };
    let opened = if *kernel { "    meta ipsec exists accept\n" } else { "" };
    let former = nft::table("kernel", device);
    let [handed_before, handed_after] = HANDED;
    let [out, into] = [Way::Leaving, Way::Arriving];
    let (out_claims, out_drop) = (out.claims(), out.unprotected());
    let (in_claims, in_drop) = (into.claims(), into.unprotected());
    let own = Way::Own.claims();
    let seen = format!("meta mark and {SEEN:#x} == {SEEN:#x}");
    let clear = !SEEN;
    let hook = |chain: &str, priority: i32, protected: &str, handed: &str, rest: &str| {
        let transformed = transformed(protected);
        format!(
            "  chain {chain} {{
    type filter hook postrouting priority {priority}; policy accept;
    oifname \"{device}\" accept
    meta mark {mark:#x} accept
    oifname \"lo\" accept
{transformed}    jump {handed}
{rest}  }}
"
        )
    };
    // A packet of this host has come by no device, unless a device has made it.
    let before = format!("    jump {out_claims}\n    iif != 0 goto {OWN_BY_DEVICE}\n");
    // A frame that a bridge forwards has no such device here, either, and no address of this host.
    let after = format!(
        "    {seen} jump translated\n    jump {out_claims}\n    iif 0 fib saddr type local goto {own}\n"
    );
    let hooks = hook("before_translation", BEFORE_NAT, protected_before, handed_before, &before)
        + &hook("after_translation", AFTER_NAT, protected_after, handed_after, &after);
    // Packets of interfaces other than the tunnel device were not opened by the userspace plane. The kernel checks the packets
    // that it has opened itself.
    let arriving = if *inbound {
        format!(
            "  chain prerouting {{
    type filter hook prerouting priority -350; policy accept;
    iifname \"{device}\" accept
    iifname \"lo\" accept
{opened}    goto {in_claims}
  }}
"
        )
    } else {
        String::new()
    };
    let bypass = |way: Way, direction: Direction| {
        let mut rules = String::new();
        for rule in filter.bypasses(direction) {
            let (local, remote) = (&rule.traffic.local, &rule.traffic.remote);
            let flows = match way {
                Way::Leaving | Way::Own => nft::flows(local, remote),
                Way::Arriving => nft::flows(remote, local),
            };
            for flow in flows {
                // Writing to a String cannot fail.
                let _ = writeln!(rules, "    {flow} accept");
            }
        }
        rules
    };
    let (bypass_out, bypass_in) = (bypass(out, Direction::Out), bypass(into, Direction::In));
    // Naming the table before deleting it makes the deletion succeed where there is none yet.
    //
    // Claimed packets that pass: IKE and ESP of this host itself; neighbour discovery, which finds the link addresses that
    // protected packets need; on arrival fragments other than the first, which show no ports and never become a packet if
    // their first one is dropped.
    format!(
        "table inet {former}
delete table inet {former}
table inet {name}
delete table inet {name}
table inet {name} {{
  counter {out_drop} {{ packets {left} bytes 0 }}
  counter {in_drop} {{ packets {arrived} bytes 0 }}
  counter {TRANSLATED} {{ packets {translated} bytes 0 }}
  chain {protected_before} {{
  }}
  chain {protected_after} {{
    {seen} meta mark set meta mark and {clear:#x}
  }}
  chain {LOST} {{
  }}
  chain translated {{
    meta mark set meta mark and {clear:#x}
    jump {LOST}
    meta mark set meta mark or {SEEN:#x}
  }}
  chain {handed_before} {{
  }}
  chain {handed_after} {{
  }}
  chain {out_drop} {{
    meta l4proto {{ 50, 51 }} fib saddr type local accept
    udp sport 500 fib saddr type local accept
    {natt}
    ip6 hoplimit 255 icmpv6 type {{ 133, 134, 135, 136, 137 }} accept
    ip6 hoplimit 1 icmpv6 type {{ 130, 131, 132, 143 }} accept
    ip ttl 1 meta l4proto 2 accept
    ip daddr 0.0.0.0/0 udp sport . udp dport {{ 68 . 67, 67 . 67, 67 . 68 }} fib saddr type local accept
    ip6 daddr ::/0 udp sport . udp dport {{ 546 . 547, 547 . 547, 547 . 546 }} fib saddr type local accept
{bypass_out}    counter name {out_drop} drop
  }}
  chain {in_drop} {{
    meta l4proto {{ 50, 51 }} fib daddr type local accept
    udp dport {{ 500, {natt_port} }} fib daddr type local accept
    ip frag-off & 0x1fff != 0 accept
    frag frag-off != 0 accept
    ip6 hoplimit 255 icmpv6 type {{ 133, 134, 135, 136, 137 }} accept
{bypass_in}    counter name {in_drop} drop
  }}
  chain {out_claims} {{
  }}
  chain {own} {{
  }}
  chain {OWN_BY_DEVICE} {{
  }}
  chain {in_claims} {{
  }}
{hooks}{arriving}}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read() {
        let text = "table inet g {\n\tcounter unprotected_leaving {\n\t\tpackets 7 bytes 588\n\t}\n\
                    \tcounter unprotected_arriving {\n\t\tpackets 2 bytes 84\n\t}\n}\n";
        assert_eq!(packets(text, "unprotected_leaving"), Some(7));
        assert_eq!(packets(text, "unprotected_arriving"), Some(2));
        assert_eq!(packets(text, "leaving"), None);
    }
}
