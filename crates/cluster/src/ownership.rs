//! One node: its claims, and how long it may rely on them.

mod output;
mod service;
mod waivers;

use crate::moment::Moment;
use crate::rank::rank;
use crate::settings::{InvalidSettings, Settings};
use crate::store::{
    Answer, Attempt, Claim, Lease, Life, Member, NodeId, Record, Request, Revision, ServiceId, View,
};
use service::{Change, Reading, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use waivers::Waivers;

pub use output::{Output, RequestId, Standing};
pub use waivers::{Ask, Waiver};

/// Requests whose answers may still come. An answer to an older one is ignored.
const MOST_IN_FLIGHT: usize = 64;

/// The pause between reads that a watch asks for.
const HINT_PAUSE: Duration = Duration::from_millis(20);

/// A node of the cluster.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    me: NodeId,
    life: Life,
    now: Moment,
    /// Nothing is claimed before: an earlier life may have waived its claims.
    claims_from: Moment,
    willing: bool,
    /// The number under which this life's claims take effect.
    attempt: u64,
    /// The store has the number. `None`: it never had one of this life, and claims of an earlier life may still take effect.
    confirmed: Option<bool>,
    lease: Option<Lease>,
    lease_due: Moment,
    read_at: Option<Moment>,
    read_due: Moment,
    /// When the last request was sent that the store has answered with something up to date.
    heard: Moment,
    /// The highest revision, and when it was learned.
    newest: (Revision, Moment),
    members_at: Revision,
    members: Vec<Member>,
    services: BTreeMap<ServiceId, State>,
    waivers: Waivers,
    in_flight: BTreeMap<RequestId, InFlight>,
    last_request: u64,
    out: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    kind: Kind,
    sent: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Grant,
    KeepAlive(Lease),
    Claim(Claim),
    Other,
}

impl Node {
    /// Makes a node that has just started. `life` is random.
    ///
    /// # Errors
    /// If the settings do not fit each other.
    pub fn new(
        settings: Settings,
        me: NodeId,
        life: Life,
        now: Moment,
    ) -> Result<Self, InvalidSettings> {
        settings.validate()?;
        Ok(Self {
            settings,
            me,
            life,
            now,
            claims_from: now.after(Settings::awaited(settings.waiver)),
            willing: true,
            attempt: 1,
            confirmed: None,
            lease: None,
            lease_due: now,
            read_at: None,
            read_due: now,
            heard: now,
            newest: (Revision(0), now),
            members_at: Revision(0),
            members: Vec::new(),
            services: BTreeMap::new(),
            waivers: Waivers::default(),
            in_flight: BTreeMap::new(),
            last_request: 0,
            out: VecDeque::new(),
        })
    }

    /// The store has answered.
    pub fn handle_answer(&mut self, now: Moment, id: RequestId, answer: Answer) {
        self.now = now;
        let Some(InFlight { kind, sent }) = self.in_flight.remove(&id) else { return };
        match (kind, answer) {
            (Kind::Read, Answer::View(view)) => self.take_view(sent, &view),
            (Kind::Grant, Answer::Granted(lease)) => self.lease = Some(lease),
            (Kind::KeepAlive(lease), Answer::Kept(false)) if self.lease == Some(lease) => {
                self.lease = None;
                self.lease_due = now;
            }
            (Kind::Claim(claim), Answer::Claimed(at, epoch)) if self.awaits(claim.service, id) => {
                let Claim { service, node, life, attempt, .. } = claim;
                let (in_force, released) = (true, false);
                let record = Record { at, epoch, node, life, attempt, in_force, released };
                self.claimed(service, sent, record);
            }
            (Kind::Claim(claim), Answer::Refused) if self.awaits(claim.service, id) => {
                self.services.insert(claim.service, State::Unknown);
                self.hear(sent);
                self.read_due = now;
            }
            _ => {}
        }
        self.turn();
    }

    /// A watch of the store tells of a change: reads soon. Lost, late and needless hints do no harm.
    pub fn handle_hint(&mut self, now: Moment) {
        self.now = now;
        let soon = self.read_at.map_or(now, |at| at.after(HINT_PAUSE));
        self.read_due = self.read_due.min(soon);
        self.turn();
    }

    /// Another node asks to waive claims. The caller has made sure that the question is from this node.
    pub fn handle_ask(&mut self, now: Moment, from: NodeId, ask: &Ask) {
        self.now = now;
        let is_member = self.members.iter().any(|member| member.node == from);
        if !is_member || !self.is_store_away() || self.confirmed.is_none() {
            return;
        }
        let services: BTreeSet<ServiceId> =
            ask.services.iter().copied().filter(|service| self.is_free_of(*service)).collect();
        for service in &services {
            self.waivers.give(now, &self.settings, *service);
        }
        if !services.is_empty() {
            let (life, round) = (ask.life, ask.round);
            let waiver = Waiver { life, round, services: services.into_iter().collect() };
            self.out.push_back(Output::Waive { to: from, waiver });
        }
    }

    /// Another node has waived claims. The caller has made sure that the promise is from this node.
    pub fn handle_waiver(&mut self, now: Moment, from: NodeId, waiver: &Waiver) {
        self.now = now;
        if waiver.life == self.life {
            self.waivers.take(from, waiver);
            self.rely_on_waivers();
        }
        self.turn();
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.now = now;
        self.turn();
    }

    /// A node that is not willing releases all services and claims none.
    pub fn set_willing(&mut self, now: Moment, willing: bool) {
        self.now = now;
        self.willing = willing;
        if !willing {
            let held: Vec<ServiceId> = self.held().map(|(service, _)| service).collect();
            held.into_iter().for_each(|service| self.give_up(service));
        }
        self.turn();
    }

    /// Gives up a service. Another node may claim it at once; so may this one, if it comes first in the order.
    pub fn release(&mut self, now: Moment, service: ServiceId) {
        self.now = now;
        self.give_up(service);
        self.turn();
    }

    /// The next effect.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn deadline(&self) -> Moment {
        let mut deadline = self.read_due.min(self.lease_due);
        for (service, state) in &self.services {
            let due = match state {
                State::Vacant { .. } => self.claim_due(*service, state),
                State::Claiming { claim, sent, .. } if claim.attempt == self.attempt => {
                    Some(sent.after(self.settings.claim_patience))
                }
                _ => None,
            };
            // A request that is overdue waits for its answer.
            deadline = due.filter(|due| *due > self.now).map_or(deadline, |due| deadline.min(due));
        }
        match self.ask_due() {
            Some(due) => deadline.min(due),
            None => deadline,
        }
    }

    /// The standing of a service, as this node knows it.
    pub fn standing(&self, service: ServiceId) -> Standing {
        match self.services.get(&service) {
            None | Some(State::Unknown) => Standing::Unknown,
            Some(State::Owned(node)) => Standing::Owned(*node),
            Some(State::Vacant { .. }) => Standing::Vacant,
            Some(State::Claiming { .. }) => Standing::Claiming,
            Some(State::Held { claim, fence }) => {
                Standing::Held { epoch: claim.epoch, until: *fence }
            }
            Some(State::Releasing { .. }) => Standing::Releasing,
        }
    }

    /// Returns `true` if the store has not answered for a while.
    pub fn is_store_away(&self) -> bool {
        self.now.since(self.heard) >= self.settings.away_after
    }

    /// Returns `true` if no claim of this node for a service may take effect.
    fn is_free_of(&self, service: ServiceId) -> bool {
        matches!(self.services.get(&service), Some(State::Owned(_) | State::Vacant { .. }))
    }

    /// The store has answered a request with something up to date.
    fn hear(&mut self, sent: Moment) {
        if self.may_be_restored() {
            self.interrupt();
        }
        self.heard = self.heard.max(sent);
    }

    /// Returns `true` if the store has been silent for so long that it may have been restored from a backup.
    fn may_be_restored(&self) -> bool {
        self.now.since(self.heard) > Settings::relied(self.settings.restore)
    }

    /// The store may have been restored from a backup. Its revisions may mean something else from now on.
    fn interrupt(&mut self) {
        self.services.values_mut().for_each(|state| state.interrupt(self.now));
    }

    fn take_view(&mut self, sent: Moment, view: &View) {
        let (newest, learned) = self.newest;
        if view.revision < newest {
            if sent <= learned {
                return; // A late answer.
            }
            self.out.push_back(Output::StoreWentBack { from: newest, to: view.revision });
            self.interrupt();
        }
        if view.revision != newest {
            self.newest = (view.revision, self.now);
        }
        self.hear(sent);
        self.members_at = view.members_at;
        self.members.clone_from(&view.members);
        self.reconcile(view);
        let reading = Reading { sent, received: self.now, attempt: view.attempt, life: self.life };
        for (service, record) in &view.services {
            let state = self.services.entry(*service).or_default();
            let change = state.see(reading, *record, &self.settings);
            self.tell(*service, change);
        }
        self.forget_removed(view);
    }

    /// Brings the store's notes about this node up to date.
    fn reconcile(&mut self, view: &View) {
        let Attempt { at, life, number } = view.attempt;
        let is_confirmed = (life, number) == (self.life, self.attempt);
        if is_confirmed || self.confirmed.is_some() {
            self.confirmed = Some(is_confirmed);
        }
        if !is_confirmed {
            let (node, life, number) = (self.me, self.life, self.attempt);
            self.request(Kind::Other, Request::Attempt { node, seen: at, life, number });
        }
        if self.own_membership().is_some_and(|own| own.acknowledged < view.members_at) {
            let members_at = view.members_at;
            self.request(Kind::Other, Request::Acknowledge { node: self.me, members_at });
        }
    }

    fn tell(&mut self, service: ServiceId, change: Change) {
        match change {
            Change::None => {}
            Change::Taken => {
                if let Some(State::Held { claim, fence }) = self.services.get(&service) {
                    self.out.push_back(Output::Taken { service, claim: *claim });
                    self.out.push_back(Output::Fence { service, until: *fence });
                }
            }
            Change::Extended(until) => self.out.push_back(Output::Fence { service, until }),
            Change::Lost => self.lose(service),
            Change::Unused(claim) => {
                self.request(Kind::Other, Request::Release { service, claim });
            }
        }
    }

    fn lose(&mut self, service: ServiceId) {
        self.out.push_back(Output::Fence { service, until: Moment::ZERO });
        self.out.push_back(Output::Lost { service });
    }

    /// Services that the cluster does not have any more.
    fn forget_removed(&mut self, view: &View) {
        let removed: Vec<ServiceId> =
            self.services.keys().copied().filter(|s| !view.services.contains_key(s)).collect();
        for service in removed {
            if let Some(State::Held { .. }) = self.services.remove(&service) {
                self.lose(service);
            }
        }
    }

    /// Returns `true` if this is the claim under way, and not an earlier one.
    fn awaits(&self, service: ServiceId, id: RequestId) -> bool {
        let state = self.services.get(&service);
        matches!(state, Some(State::Claiming { request, .. }) if *request == id)
    }

    fn claimed(&mut self, service: ServiceId, sent: Moment, claim: Record) {
        let fence = sent.after(Settings::relied(self.settings.hold));
        self.services.insert(service, State::Held { claim, fence });
        self.hear(sent);
        if claim.at > self.newest.0 {
            self.newest = (claim.at, self.now);
        }
        self.tell(service, Change::Taken);
    }

    fn give_up(&mut self, service: ServiceId) {
        let Some(State::Held { claim, .. }) = self.services.get(&service) else { return };
        let claim = *claim;
        self.services.insert(service, State::Releasing { claim });
        self.lose(service);
        self.request(Kind::Other, Request::Release { service, claim });
    }

    /// Does what is due.
    fn turn(&mut self) {
        if self.now >= self.read_due {
            self.read_at = Some(self.now);
            self.read_due = self.now.after(self.settings.read_every);
            self.request(Kind::Read, Request::Read { node: self.me });
        }
        if self.now >= self.lease_due {
            self.lease_due = self.now.after(self.settings.lease / 4);
            let (kind, request) = match self.lease {
                Some(lease) => (Kind::KeepAlive(lease), Request::KeepAlive(lease)),
                None => (Kind::Grant, Request::Grant { ttl: self.settings.lease }),
            };
            self.request(kind, request);
        }
        self.withdraw_claims();
        self.claim_vacant();
        if self.ask_due().is_some_and(|due| due <= self.now) {
            self.ask();
        }
    }

    /// Makes sure that claims without an answer do not take effect later: the next read that shows the new number decides.
    fn withdraw_claims(&mut self) {
        let any_is_overdue = self.services.values().any(|state| {
            matches!(state, State::Claiming { claim, sent, .. }
                if claim.attempt == self.attempt
                    && self.now >= sent.after(self.settings.claim_patience))
        });
        if any_is_overdue {
            self.attempt += 1;
            self.confirmed = self.confirmed.map(|_| false);
        }
    }

    fn claim_vacant(&mut self) {
        let (true, Some(true), Some(lease)) = (self.willing, self.confirmed, self.lease) else {
            return;
        };
        if self.may_be_restored() {
            return;
        }
        let Some(Member { joined, .. }) = self.own_membership().copied() else { return };
        // Others must know that this node may claim: they ask it to waive. What they have acknowledged stays so, unless the store
        // is restored.
        let all_know = (self.members.iter())
            .all(|member| member.node == self.me || member.acknowledged >= joined);
        if !all_know {
            return;
        }
        let due: Vec<(ServiceId, Claim, Moment)> = (self.services.iter())
            .filter(|(service, state)| {
                self.claim_due(**service, state).is_some_and(|due| due <= self.now)
            })
            .filter_map(|(service, state)| {
                let State::Vacant { since, last } = state else { return None };
                let claim = Claim {
                    service: *service,
                    node: self.me,
                    life: self.life,
                    attempt: self.attempt,
                    lease,
                    seen: *last,
                    members_at: self.members_at,
                };
                Some((*service, claim, *since))
            })
            .collect();
        for (service, claim, since) in due {
            let request = self.request(Kind::Claim(claim), Request::Claim(claim));
            let sent = self.now;
            self.services.insert(service, State::Claiming { request, claim, since, sent });
        }
    }

    /// When this node may claim a service that has no owner.
    fn claim_due(&self, service: ServiceId, state: &State) -> Option<Moment> {
        let unfenced = state.unfenced_at(self.life, &self.settings)?;
        let members = self.members.iter().map(|member| member.node);
        let later = self.settings.rank_step.saturating_mul(rank(service, self.me, members));
        let due = unfenced.after(later);
        Some(due.max(self.claims_from).max(self.waivers.given_until(service)))
    }

    /// When the other members are to be asked, if the store stays away.
    fn ask_due(&self) -> Option<Moment> {
        self.held().next()?;
        let away = self.heard.after(self.settings.away_after);
        let again = self.waivers.asked_at().map(|at| at.after(self.settings.ask_every()));
        Some(again.map_or(away, |again| again.max(away)))
    }

    fn ask(&mut self) {
        let held: Vec<(ServiceId, Record)> = self.held().collect();
        let others = self.members.iter().map(|member| member.node).filter(|node| *node != self.me);
        let others: BTreeSet<NodeId> = others.collect();
        let ask = self.waivers.begin(self.now, self.life, &held, &others);
        for to in others {
            self.out.push_back(Output::Ask { to, ask: ask.clone() });
        }
        // Nobody else can claim in a cluster of one.
        self.rely_on_waivers();
    }

    fn rely_on_waivers(&mut self) {
        for extension in self.waivers.extensions(&self.settings) {
            if let Some(State::Held { claim, fence }) = self.services.get_mut(&extension.service)
                && *claim == extension.claim
                && *fence < extension.until
            {
                *fence = extension.until;
                let (service, until) = (extension.service, extension.until);
                self.out.push_back(Output::Fence { service, until });
            }
        }
    }

    fn held(&self) -> impl Iterator<Item = (ServiceId, Record)> {
        self.services.iter().filter_map(|(service, state)| match state {
            State::Held { claim, .. } => Some((*service, *claim)),
            _ => None,
        })
    }

    fn own_membership(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.node == self.me)
    }

    fn request(&mut self, kind: Kind, request: Request) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        if self.in_flight.len() == MOST_IN_FLIGHT {
            self.in_flight.pop_first();
        }
        self.in_flight.insert(id, InFlight { kind, sent: self.now });
        self.out.push_back(Output::Request { id, request });
        id
    }
}
