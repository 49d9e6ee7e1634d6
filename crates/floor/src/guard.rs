//! The nftables table that keeps the traffic of the tunnels from passing in the clear, whatever state they are in.
//!
//! The table follows from the definition of the tunnels, not from their SAs, routes or policies. A packet that a rule
//! claims leaves this host in one of three ways: by the TUN device, with a transformation of the kernel
//! (`rt ipsec exists`), or as ESP or IKE of this daemon. Every other way ends in a counted drop. A packet that a rule
//! claims and that arrives without protection is dropped too (RFC 4301 §5.2).
//!
//! A rule also claims this host's own packets to its remote network, from any source address: a socket without a source
//! address gets one outside of the selectors while the tunnel's route is away. nftables knows these packets by the lack
//! of a device by which they have come; packets that a device has made, such as a tunnel device, are known by their
//! source.
//!
//! The table is the first thing that a start puts in force, in one transaction in place of what a crash has left, and
//! the last thing that an orderly end removes. A rule enters the table before a plane gets it and leaves the table
//! after the plane has removed it, so that nothing that a plane does, and no error of a plane, opens a gap.
//!
//! Packets are looked at before and after the translation of their source address: masquerading neither hides nor makes
//! a tunnel's traffic. A packet that the kernel was going to protect can lose its transformation there, as it has
//! another source then. So the table sets the highest bit of the mark (`sets.rs`) before the translation, and drops a
//! packet to a remote network that has the bit and no transformation after it. It clears the bit of packets that have
//! one.
//!
//! With packet offload, a packet passes nftables twice. The second time its route has no transformation, although a
//! policy covers it, because the card has yet to protect it. So the table leaves the bit set the first time, and
//! accepts a packet with it the second time.
//!
//! # The held table
//!
//! Another program can remove the guard, and some milliseconds pass until it is put back. So a second table has the
//! same flows, and drops the same packets that are about to leave. It belongs to a process ([`nft::Owner`]):
//! `nft flush ruleset` passes over it, nobody else can change it, and it goes with the process. A gateway has one while
//! it runs, and `vpnd guard --watch` has another one while no gateway runs. A gateway that goes on after another one has
//! a table of another name, so that it is there before the former one goes with its process.
//!
//! Both tables come from one function. The held table looks at a packet after the guard, so that it has packets to drop
//! only while the guard is away. To cost a packet little, it has one chain, after the translation of addresses, and it
//! changes no mark. So it lets pass, for the milliseconds until the guard is back:
//!
//! - forwarded packets that get another source by a rule which is not flushed with nftables, such as one of
//!   `iptables-legacy`
//! - packets of this host that a device has made, from an address outside of the selectors
//! - packets of a tunnel whose packets a card may protect, from an address inside of the selectors: the kernel's
//!   policies hold them
//!
//! Before Linux 5.12 there is no such table: routes and policies alone hold the traffic until the guard is put back.
//!
//! # Exceptions
//!
//! Two kinds of tunnels have no entry in the tables:
//!
//! - With an `if_id`: the XFRM interface sends nothing without a policy.
//! - With a `mark` and packet offload (`offload = "packet"` or `"auto"`): **nftables does not drop their packets**. The
//!   mark decides which tunnel a packet takes, so that the table cannot use a bit of it. While the policies of such a
//!   tunnel are missing, its packets leave in the clear. `docs/operate/planes.md` tells operators to use an `if_id` or
//!   `offload = "crypto"`.

#![forbid(unsafe_code)]

mod dropped;
mod hold;
mod holder;
mod sets;
mod surroundings;
mod tables;
mod writer;

pub use dropped::Dropped;
pub use hold::Hold;
pub use holder::{HeldTable, Holder};
pub use surroundings::{GuardedTraffic, Surroundings};
pub use writer::{OnLoss, Written};

use esp::filter::Filter;
use esp::plane::{PlaneError, Rule, RuleId};
use host::nft;
use sets::{Layer, Member, Script, Sets};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tables::base;
use writer::{State, Writer};

/// The guarded rules, and their table. Dropping it removes the table, unless it is to be [kept](Self::keep_on_drop), or
/// the operator [holds](Hold) it.
pub struct Guard {
    surroundings: Surroundings,
    table: String,
    /// The name of the held table.
    held: String,
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
    /// Another process may go on with the table.
    is_frozen: bool,
    /// The guard that is there is the same one: its counters go on.
    counts_on: bool,
    /// The group to which it logs packets, if somebody hears of them.
    logs: Option<u16>,
    hold: Hold,
}

/// At a start, further attempts to put a table in force that nftables has refused.
const MORE_ATTEMPTS: usize = 2;

impl Guard {
    /// Puts the guard of these rules in force, in place of the one that a crashed or ended daemon has left. Until
    /// [`Guard::stop_expecting`] they stay guarded, whatever is added or removed. After `on_loss`, [`Guard::begin_restoring`] is to be
    /// called.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start<'a>(
        surroundings: Surroundings,
        hold: Hold,
        holder: Holder,
        filter: &Arc<Filter>,
        defined: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>,
        on_loss: OnLoss,
    ) -> io::Result<Self> {
        let mut guard = Self::new(surroundings, hold, holder, filter, on_loss)?;
        let _ = guard.add_defined(defined);
        guard.put_in_force();
        Ok(guard)
    }

    /// The guard of these rules, which planes have, and which another process has put in force. Nothing is changed until
    /// it is [thawed](Self::thaw): then it takes the place of the one of that process, whose counters go on. The held
    /// table of `holder` is to be another one than that process has.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn adopt<'a>(
        surroundings: Surroundings,
        hold: Hold,
        holder: Holder,
        filter: &Arc<Filter>,
        rules: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>,
        on_loss: OnLoss,
    ) -> io::Result<Self> {
        let mut guard = Self::new(surroundings, hold, holder, filter, on_loss)?;
        guard.is_frozen = true;
        guard.counts_on = true;
        guard.kept = false;
        for (rule, properties) in rules {
            let members = guard.members(rule, properties);
            // They enter the table with it.
            let _ = guard.put(rule.id, members);
        }
        Ok(guard)
    }

    fn new(
        surroundings: Surroundings,
        hold: Hold,
        holder: Holder,
        filter: &Arc<Filter>,
        on_loss: OnLoss,
    ) -> io::Result<Self> {
        let table = table(&surroundings.device);
        let held = holder.purpose().map(|purpose| nft::table(purpose, &surroundings.device));
        let writer = Writer::start(held.clone(), on_loss)?;
        let held = held.unwrap_or_default();
        Ok(Self {
            sets: Sets::new([&table, &held]),
            // A start that fails leaves a host that was blocked as it is.
            kept: nft::exists(&table),
            table,
            held,
            filter: Arc::clone(filter),
            rules: BTreeMap::new(),
            defined: Vec::new(),
            entering: writer.nothing(),
            preparing: BTreeMap::new(),
            superseded: Vec::new(),
            restoring: None,
            is_frozen: false,
            counts_on: holder == Holder::Watch,
            logs: match holder {
                Holder::Gateway { logs: true, held } => Some(held.log_group()),
                _ => None,
            },
            writer,
            hold,
            surroundings,
        })
    }

    /// Puts the table in force for the first time.
    fn put_in_force(&mut self) {
        self.replace().wait();
        for _ in 0..MORE_ATTEMPTS {
            match self.writer.state() {
                State::Refused(_) => {}
                // The answer to the question whether it works may have failed, too.
                State::Unusable(_) if nft::available() => {}
                _ => break,
            }
            // A kernel without XFRM has no words for it.
            self.surroundings.kernel = self.surroundings.kernel && nft::knows_ipsec();
            self.replace().wait();
        }
    }

    /// Dropping this leaves the table as it is from now on, for the other process that goes on with it.
    ///
    /// # Errors
    /// If a change is under way, which could come behind those of that process.
    pub fn freeze(&mut self) -> Result<(), PlaneError> {
        if !self.writer.all_given().is_done() {
            return Err(PlaneError::System {
                what: format!("handing the table {} of nftables over", self.table),
                why: "a change of it is under way; try again".to_owned(),
            });
        }
        self.is_frozen = true;
        Ok(())
    }

    /// This process goes on with the table, and no other. If another process has put it in force, this one replaces it,
    /// and waits for that.
    pub fn thaw(&mut self) {
        self.is_frozen = false;
        if self.writer.state() == State::Unneeded {
            self.put_in_force();
        }
    }

    /// Whether the guard can tell the packets that the kernel protects from others. If not, it drops them.
    pub fn knows_kernel(&self) -> bool {
        self.surroundings.kernel
    }

    /// Begins to guard rules that the engine is going to add, until [`Guard::stop_expecting`].
    pub fn expect<'a>(
        &mut self,
        rules: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>,
    ) -> Written {
        let script = self.add_defined(rules);
        self.entering = self.tell(Some(script));
        self.entering.clone()
    }

    /// The engine has added the rules of the policy: from now on they alone are guarded. Returns all changes so far.
    pub fn stop_expecting(&mut self) -> Written {
        let defined = std::mem::take(&mut self.defined);
        let script = self.sets.remove_all(&defined);
        let _ = self.tell(script);
        self.writer.all_given()
    }

    /// If nftables has refused to guard expected rules, begins to build the table again.
    pub fn retry_preparation(&mut self) -> Option<Written> {
        (self.writer.state() == State::Outdated).then(|| {
            self.entering = self.replace();
            self.entering.clone()
        })
    }

    /// Begins to guard a rule that is going to be added. Returns `true` once it is guarded, or nftables has refused the
    /// whole table. `false`: `ready` is called on another thread, and then this is to be called again.
    pub fn prepare(
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

    /// Guards these rules; stops guarding a rule that comes without properties. Waits for nothing if the rules were
    /// expected or prepared. Once the planes have them, [`Guard::let_go`] is to be called.
    pub fn cover<'a>(&mut self, rules: impl Iterator<Item = (&'a Rule, Option<GuardedTraffic>)>) {
        let mut script = Script::default();
        for (rule, properties) in rules {
            let members = self.members(rule, properties);
            script.extend([self.put(rule.id, members)]);
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
    pub fn let_go(&mut self) {
        let superseded = std::mem::take(&mut self.superseded);
        let script = self.sets.remove_all(&superseded);
        let _later = self.tell(script);
    }

    /// Stops guarding these rules, some time later.
    pub fn uncover(&mut self, rules: &[RuleId]) {
        for rule in rules {
            self.preparing.remove(rule);
            self.superseded.extend(self.rules.remove(rule).unwrap_or_default());
        }
        self.let_go();
    }

    /// Gives a rule another name.
    pub fn rename(&mut self, rule: RuleId, to: RuleId) {
        if let Some(members) = self.rules.remove(&rule) {
            self.rules.insert(to, members);
        }
        if let Some(entering) = self.preparing.remove(&rule) {
            self.preparing.insert(to, entering);
        }
    }

    /// Begins to accept the traffic that the filter's bypass rules accept.
    pub fn set_filter(&mut self, filter: &Arc<Filter>) -> Written {
        self.filter = Arc::clone(filter);
        match self.writer.state() {
            State::Unneeded => self.writer.nothing(),
            _ => self.replace(),
        }
    }

    /// Begins to build the table again that others have changed or removed. `ready` is called on another thread when
    /// [`Guard::take_restored`] has the result; it is not called if there is no table.
    pub fn begin_restoring(&mut self, ready: impl FnOnce() + Send + 'static) {
        if self.writer.state() != State::Unneeded {
            self.restoring = Some(self.replace());
            self.writer.tell_when_done(ready);
        }
    }

    /// Takes the result of [`Guard::begin_restoring`], if it is there: whether there is a table.
    pub fn take_restored(&mut self) -> Option<Result<bool, PlaneError>> {
        let _done = self.restoring.take_if(|restoring| restoring.is_done())?;
        match self.writer.state() {
            // It was so before.
            State::Unusable(_) => Some(Ok(false)),
            _ => Some(self.in_force()),
        }
    }

    /// Whether cleartext that should have been protected is dropped when it arrives.
    pub fn drops_cleartext(&self) -> bool {
        let refused = matches!(self.writer.state(), State::Refused(_) | State::Unusable(_));
        self.surroundings.inbound && !refused && nft::available()
    }

    /// The name of the table, if it is in force.
    pub fn table_in_force(&self) -> Option<&str> {
        matches!(self.writer.state(), State::InForce | State::Outdated).then_some(&self.table)
    }

    /// Returns `true` if the table is in force, or there is nothing to guard.
    ///
    /// # Errors
    /// If nftables has refused the table.
    pub fn in_force(&self) -> Result<bool, PlaneError> {
        match self.writer.state() {
            State::Unneeded => Ok(false),
            State::InForce | State::Outdated => Ok(true),
            State::Refused(why) | State::Unusable(why) => Err(PlaneError::System {
                what: format!("putting the table {} of nftables in force", self.table),
                why,
            }),
        }
    }

    /// Builds the table again, as it was.
    ///
    /// # Errors
    /// If nftables refuses it.
    pub fn restore_now(&mut self) -> Result<bool, PlaneError> {
        self.replace().wait();
        self.in_force()
    }

    /// Decides whether dropping this leaves the table in force.
    pub fn keep_on_drop(&mut self, kept: bool) {
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
    ) -> Script {
        let members: Vec<_> =
            rules.flat_map(|(rule, properties)| self.members(rule, properties)).collect();
        let script = members.iter().map(|member| self.sets.add(member)).collect();
        self.defined.extend(members);
        script
    }

    /// Guards a rule's members, and its former ones until [`Guard::let_go`]. Returns the commands for nftables.
    fn put(&mut self, rule: RuleId, members: Vec<Member>) -> Script {
        let added = members.iter().map(|member| self.sets.add(member)).collect();
        let before = match members.is_empty() {
            true => self.rules.remove(&rule),
            false => self.rules.insert(rule, members),
        };
        self.superseded.extend(before.unwrap_or_default());
        added
    }

    /// Has nftables carry out these commands, or build the whole table if there are none.
    fn tell(&mut self, script: Option<Script>) -> Written {
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
        let counted = self.counts_on || self.table_in_force().is_some();
        let (tables, surroundings) =
            ([self.table.clone(), self.held.clone()], self.surroundings.clone());
        let (filter, members, logs) = (Arc::clone(&self.filter), self.sets.all(), self.logs);
        self.writer.replace(move || {
            let [guard, held] = &tables;
            let dropped = if counted { Dropped::of(guard) } else { Dropped::default() };
            let script = Script::of(|layer| match layer {
                Layer::Guard => base(guard, layer, &surroundings, &filter, &dropped, logs),
                // The guard counts on where it had stopped.
                Layer::Held => base(held, layer, &surroundings, &filter, &Dropped::default(), None),
            });
            [script, members].into_iter().collect()
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
        // The held table has gone with the writer.
        if may_be_there
            && !self.kept
            && !self.is_frozen
            && self.hold.since().is_none()
            && !std::thread::panicking()
            && let Err(error) = nft::remove(&self.table)
        {
            tracing::warn!(%error, table = self.table, "a table stays in nftables");
        }
    }
}

/// Name of the table for a device.
pub fn table(device: &str) -> String {
    nft::table("guard", device)
}

#[cfg(test)]
mod tests;
