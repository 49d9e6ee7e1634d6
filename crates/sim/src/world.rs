//! Hosts, the wire between them, and the order in which things happen.

mod certificates;
mod flows;
mod wire;

use crate::chance::Chance;
use crate::host::{Host, HostId, Side, Site};
use crate::ladder::{Fate, Label, Ladder, Row, Subject};
use crate::link::{Conditions, Content, Gates, Parcel};
use crate::nat::Nat;
use crate::recorder::Recorder;
use crate::traffic::{Flow, FlowId};
use esp::datapath::{Datapath, Settings};
use frozen::Frozen;
use ike::event::{Event, EventKind};
use ike::status::IkeStatus;
use ike::wire::header::Header;
use ike::wire::payload::Payload;
use ike::wire::protected;
use ike::{Config, Engine, Output};
use policy::Policy;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More happenings than this at one instant mean that an engine's deadline never passes or that hosts answer each other
/// without end.
const BUSY: u32 = 20_000;

/// A closed world with its own clock.
///
/// Dropped by a panic, it prints its seed and its ladder.
pub struct World {
    seed: u64,
    chance: Chance,
    base: Instant,
    now: Duration,
    hosts: Vec<Host>,
    starts: u64,
    nats: Vec<Nat>,
    conditions: Conditions,
    conditions_from: BTreeMap<HostId, Conditions>,
    /// Time between the admission of a packet and its way to the wire.
    pipelines: BTreeMap<HostId, Duration>,
    gates: Gates,
    agenda: BTreeMap<(Duration, u64), Happening>,
    sequence: u64,
    busy: u32,
    flows: Vec<Flow>,
    ladder: Ladder,
    tapped: Option<Vec<Parcel>>,
    last_ike: Duration,
    encrypts: bool,
    dead: BTreeSet<IpAddr>,
    /// The hosts whose engines are frozen and thawed after each happening.
    refreezes: BTreeSet<HostId>,
}

enum Happening {
    Arrival { from: String, parcel: Parcel },
    Packet(FlowId),
}

impl World {
    /// Makes an empty world; the same seed and the same calls make the same history.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            chance: Chance::new(seed, 0),
            base: first_instant(),
            now: Duration::ZERO,
            hosts: Vec::new(),
            starts: 0,
            nats: Vec::new(),
            conditions: Conditions::default(),
            conditions_from: BTreeMap::new(),
            pipelines: BTreeMap::new(),
            gates: Gates::default(),
            agenda: BTreeMap::new(),
            sequence: 0,
            busy: 0,
            flows: Vec::new(),
            ladder: Ladder::default(),
            tapped: None,
            last_ike: Duration::ZERO,
            encrypts: false,
            dead: BTreeSet::new(),
            refreezes: BTreeSet::new(),
        }
    }

    /// Makes a world with the two gateways of a site on a good link.
    pub fn of_site(seed: u64, site: &Site, config: &Config) -> (Self, HostId, HostId) {
        let mut world = Self::new(seed);
        let left = world.add_host("left", site.left, site.policy(Side::Left), config.clone());
        let right = world.add_host("right", site.right, site.policy(Side::Right), config.clone());
        (world, left, right)
    }

    /// As [`World::of_site`], and packets go through the real datapath.
    pub fn of_site_encrypting(seed: u64, site: &Site, config: &Config) -> (Self, HostId, HostId) {
        let mut world = Self::new(seed);
        world.encrypt();
        let left = world.add_host("left", site.left, site.policy(Side::Left), config.clone());
        let right = world.add_host("right", site.right, site.policy(Side::Right), config.clone());
        (world, left, right)
    }

    // ---- building

    /// Gives the hosts added from now on the real datapath.
    pub fn encrypt(&mut self) {
        self.encrypts = true;
    }

    /// Starts a host with a public address.
    pub fn add_host(
        &mut self,
        name: &str,
        address: IpAddr,
        policy: Arc<Policy>,
        config: Config,
    ) -> HostId {
        self.add(name, address, policy, config, None)
    }

    /// Starts a host behind a NAT of its own.
    pub fn add_host_behind(
        &mut self,
        nat: Nat,
        name: &str,
        address: IpAddr,
        policy: Arc<Policy>,
        config: Config,
    ) -> HostId {
        self.nats.push(nat);
        self.add(name, address, policy, config, Some(self.nats.len() - 1))
    }

    /// Starts a host behind the NAT that another host is behind.
    ///
    /// # Panics
    /// Where that one is behind none.
    pub fn add_host_beside(
        &mut self,
        neighbour: HostId,
        name: &str,
        address: IpAddr,
        policy: Arc<Policy>,
        config: Config,
    ) -> HostId {
        let nat = self.host(neighbour).nat;
        assert!(nat.is_some(), "the scenario puts the neighbour behind a NAT");
        self.add(name, address, policy, config, nat)
    }

    fn add(
        &mut self,
        name: &str,
        address: IpAddr,
        policy: Arc<Policy>,
        config: Config,
        nat: Option<usize>,
    ) -> HostId {
        let engine = self.start_engine(&policy, &config);
        self.hosts.push(Host {
            name: name.into(),
            address,
            others: Vec::new(),
            policy,
            config,
            engine,
            trust: Arc::default(),
            crls: BTreeMap::new(),
            kept_crls: BTreeMap::new(),
            fetched: Vec::new(),
            held_jobs: None,
            events: Vec::new(),
            nat,
            cut: false,
        });
        let id = HostId(self.hosts.len() - 1);
        self.tell_addresses(id);
        id
    }

    fn start_engine(&mut self, policy: &Arc<Policy>, config: &Config) -> Engine<Recorder> {
        self.starts += 1;
        let seed = Chance::new(self.seed, self.starts).seed();
        let plane = match self.encrypts {
            true => Recorder::over(Datapath::new(Settings::default(), self.instant())),
            false => Recorder::default(),
        };
        let mut engine =
            Engine::new(Arc::clone(policy), config.clone(), plane, seed, self.instant())
                .expect("the scenario's policy and configuration are valid");
        engine.set_clock(self.instant(), self.unix_time());
        engine
    }

    // ---- time

    /// The virtual time since the world began.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The virtual time as engines are told it.
    pub fn instant(&self) -> Instant {
        self.base + self.now
    }

    /// Lets the next thing happen, if it is due by `until`; otherwise moves the clock there and returns false.
    pub fn step(&mut self, until: Duration) -> bool {
        let arrival = self.agenda.keys().next().map(|&(at, _)| at);
        let deadline = (0..self.hosts.len())
            .filter_map(|h| self.hosts[h].engine.deadline().map(|d| (d.at, h)))
            .min()
            .map(|(at, h)| (at.saturating_duration_since(self.base), h));
        let next = arrival.into_iter().chain(deadline.map(|(at, _)| at)).min();
        let Some(next) = next.filter(|&at| at.max(self.now) <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.busy = if next > self.now { 0 } else { self.busy + 1 };
        self.now = self.now.max(next);
        if self.busy > BUSY {
            panic!("{BUSY} happenings without time passing; next deadline {:?}", self.deadlines());
        }
        match (arrival, deadline) {
            (arrival, Some((at, host))) if arrival.is_none_or(|a| at < a) => {
                let now = self.instant();
                self.hosts[host].engine.handle_timeout(now);
                self.drain(HostId(host));
            }
            _ => self.happen(),
        }
        self.refreeze_some();
        true
    }

    /// Lets everything happen that is due within this time.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
    }

    /// Lets things happen until the condition holds; false if it does not within this time.
    pub fn run_until(
        &mut self,
        limit: Duration,
        mut condition: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let until = self.now + limit;
        loop {
            if condition(self) {
                return true;
            }
            if !self.step(until) {
                return condition(self);
            }
        }
    }

    /// Lets things happen until no IKE message has been sent for this time; false if that is not so within the limit.
    pub fn run_until_quiet(&mut self, quiet: Duration, limit: Duration) -> bool {
        let until = self.now + limit;
        let since = self.now;
        loop {
            let next = self.last_ike.max(since) + quiet;
            if !self.step(next.min(until)) && self.now >= self.last_ike.max(since) + quiet {
                return true;
            }
            if self.now >= until {
                return false;
            }
        }
    }

    /// Every engine's next deadline: host, time from now and reason.
    pub fn deadlines(&self) -> Vec<(String, Duration, &'static str)> {
        let now = self.instant();
        let deadline = |h: &Host| {
            let deadline = h.engine.deadline()?;
            Some((h.name.clone(), deadline.at.saturating_duration_since(now), deadline.reason))
        };
        self.hosts.iter().filter_map(deadline).collect()
    }

    // ---- hosts

    /// A host.
    pub fn host(&self, host: HostId) -> &Host {
        &self.hosts[host.0]
    }

    /// The status of a host's engine.
    pub fn status(&mut self, host: HostId) -> Vec<IkeStatus> {
        let now = self.instant();
        self.hosts[host.0].engine.status(now)
    }

    /// The state of a tunnel of a host, or of a phase 2 tunnel alone.
    pub fn status_of(&mut self, host: HostId, name: &str) -> Option<IkeStatus> {
        let now = self.instant();
        self.hosts[host.0].engine.status_of(now, name)
    }

    /// The plane of a host.
    pub fn plane(&mut self, host: HostId) -> &mut Recorder {
        self.hosts[host.0].engine.plane()
    }

    /// Gives a host's engine a command, and sends what it wants sent.
    pub fn command<R>(
        &mut self,
        host: HostId,
        text: &str,
        command: impl FnOnce(&mut Engine<Recorder>, Instant) -> R,
    ) -> R {
        self.note(host, format!("command: {text}"));
        let now = self.instant();
        let result = command(&mut self.hosts[host.0].engine, now);
        self.drain(host);
        self.refreeze_some();
        result
    }

    /// Starts a tunnel.
    ///
    /// # Panics
    /// Where the engine refuses the command; the scenario is wrong.
    pub fn connect(&mut self, host: HostId, name: &str) {
        let result = self.command(host, &format!("connect {name}"), |e, now| e.connect(now, name));
        result.expect("the scenario connects what its policy lets it connect");
    }

    /// Rekeys a tunnel that may have gone meanwhile.
    pub fn rekey(&mut self, host: HostId, name: &str) -> bool {
        self.command(host, &format!("rekey {name}"), |e, now| e.rekey(now, name)).is_ok()
    }

    /// Deletes a tunnel that may have gone meanwhile.
    pub fn disconnect(&mut self, host: HostId, name: &str) -> bool {
        self.command(host, &format!("disconnect {name}"), |e, now| e.disconnect(now, name)).is_ok()
    }

    /// Deletes everything on a host.
    pub fn stop(&mut self, host: HostId) {
        self.command(host, "stop", |e, now| e.stop(now));
    }

    /// Replaces the policy of a host, also for when it is restarted.
    pub fn replace_policy(&mut self, host: HostId, policy: Arc<Policy>) {
        self.hosts[host.0].policy = Arc::clone(&policy);
        self.command(host, "replace policy", |e, now| e.replace_policy(now, policy))
            .expect("the scenario's policy is valid");
    }

    /// Starts a host again with the policy it had: everything it knew is lost, and nobody is told.
    pub fn restart(&mut self, host: HostId) {
        self.note(host, "restarts without a word".into());
        let (policy, config) =
            (Arc::clone(&self.host(host).policy), self.host(host).config.clone());
        let mut engine = self.start_engine(&policy, &config);
        engine.replace_trust(Arc::clone(&self.hosts[host.0].trust));
        self.hosts[host.0].held_jobs = None;
        self.hosts[host.0].engine = engine;
        self.tell_addresses(host);
    }

    /// Freezes and thaws the engine of a host after each happening from now on.
    pub fn refreeze_always(&mut self, host: HostId) {
        self.refreezes.insert(host);
    }

    fn refreeze_some(&mut self) {
        self.refreezes.clone().into_iter().for_each(|host| self.refreeze(host));
    }

    /// Freezes a host's engine and datapath, and has those go on that are thawed from them, with the random numbers that
    /// the former engine would have drawn. Work with certificates that was kept waiting is given up; the thawed engine
    /// hands it out again. The ladder tells nothing of it.
    ///
    /// # Panics
    /// If the engine cannot be thawed, or is another one then.
    pub fn refreeze(&mut self, host: HostId) {
        let now = self.instant();
        let frozen = freeze(&self.hosts[host.0].engine, now);
        let received = Frozen::of_octets(frozen.octets().to_vec()).expect("it was frozen just now");
        let from = received.read("an engine").expect("its head was read just now");
        let Host { engine, policy, config, trust, held_jobs, .. } = &mut self.hosts[host.0];
        let before = engine.inventory();
        let mut plane = std::mem::take(engine.plane());
        plane.refreeze(now);
        let (policy, trust) = (Arc::clone(policy), Arc::clone(trust));
        let thawed = Engine::thaw(from, policy, trust, config.clone(), plane, [0; 32], now);
        let mut former = std::mem::replace(engine, thawed.expect("it was frozen just now"));
        engine.draw_as(&mut former);
        assert_eq!(engine.inventory(), before, "the thawed engine has other tables");
        if let Some(held) = held_jobs {
            held.clear();
        }
        self.drain(host);
    }

    /// Has a host's nonces begin with this octet from now on: of crossing exchanges the one with the lowest nonce
    /// loses.
    pub fn begin_nonces_with(&mut self, host: HostId, octet: Option<u8>) {
        self.hosts[host.0].engine.begin_nonces_with(octet);
    }

    /// Reads a message that is for an IKE SA of a host.
    pub fn overhear(&mut self, host: HostId, octets: &[u8]) -> Option<(Header, Vec<Payload>)> {
        self.hosts[host.0].engine.overhear(octets)
    }

    /// Protects a message as if a host had made it; `None` where the header names none of its IKE SAs.
    pub fn forge(
        &mut self,
        host: HostId,
        header: &Header,
        content: &protected::Content,
        room: usize,
    ) -> Option<Vec<Vec<u8>>> {
        self.hosts[host.0].engine.forge(header, content, room)
    }

    /// Gives a host other addresses, and its engine notice of them. Its routes lead everywhere from the first address
    /// of the family in question.
    ///
    /// # Panics
    /// Where there is none.
    pub fn readdress(&mut self, host: HostId, addresses: &[IpAddr]) {
        self.note(host, format!("has the addresses {addresses:?}"));
        let (first, others) = addresses.split_first().expect("a host has an address");
        self.hosts[host.0].address = *first;
        self.hosts[host.0].others = others.to_vec();
        self.tell_addresses(host);
    }

    /// Puts a host behind a NAT of its own, or behind none; nobody is told.
    pub fn put_behind(&mut self, host: HostId, nat: Option<Nat>) {
        self.hosts[host.0].nat = nat.map(|nat| {
            self.nats.push(nat);
            self.nats.len() - 1
        });
    }

    /// Makes an address unreachable, or reachable again; nobody is told.
    pub fn set_dead(&mut self, address: IpAddr, dead: bool) {
        match dead {
            true => self.dead.insert(address),
            false => self.dead.remove(&address),
        };
    }

    fn tell_addresses(&mut self, host: HostId) {
        let now = self.instant();
        let Host { address, others, engine, .. } = &mut self.hosts[host.0];
        let all: Vec<IpAddr> = std::iter::once(*address).chain(others.clone()).collect();
        engine.handle_addresses(now, &all, &mut |remote| {
            all.iter().copied().find(|a| a.is_ipv4() == remote.is_ipv4())
        });
        self.drain(host);
    }

    /// Events of a host that satisfy a condition.
    pub fn count_events(&self, host: HostId, condition: impl Fn(&EventKind) -> bool) -> usize {
        self.host(host).events.iter().filter(|(_, e)| condition(&e.kind)).count()
    }

    /// A number of the world's own chance, for scenarios that decide something at random.
    pub fn chance(&mut self) -> &mut Chance {
        &mut self.chance
    }

    /// The ladder of all that has happened so far.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    // ---- inside

    fn at(&mut self, at: Duration, happening: Happening) {
        self.sequence += 1;
        self.agenda.insert((at, self.sequence), happening);
    }

    fn note(&mut self, host: HostId, text: String) {
        let host = self.hosts[host.0].name.clone();
        self.ladder.push(Row::Note { at: self.now, host, text });
    }

    fn row(&mut self, from: &str, parcel: &Parcel, fate: Fate) {
        let subject = match &parcel.content {
            Content::Ike(octets) => match Label::read(octets) {
                Some(label) => Subject::Ike(label),
                None => Subject::Junk(octets.len()),
            },
            Content::Keepalive => Subject::Keepalive,
            // Traffic would bury what a reader looks for; its account is the flow's.
            Content::Esp(_) | Content::EspInUdp(_) | Content::Ah(_) => return,
        };
        let owner = |h: &&Host| {
            let nat = h.nat.map(|n| self.nats[n].address());
            h.has(parcel.destination.ip()) || nat == Some(parcel.destination.ip())
        };
        let to = self.hosts.iter().find(owner);
        let to = to.map_or_else(|| parcel.destination.to_string(), |h| h.name.clone());
        self.ladder.push(Row::Message { at: self.now, from: from.into(), to, subject, fate });
    }

    /// Takes everything an engine has to say.
    fn drain(&mut self, host: HostId) {
        loop {
            match self.hosts[host.0].engine.poll() {
                Output::Transmit(transmit) => {
                    let content = match transmit.keepalive {
                        true => Content::Keepalive,
                        false => Content::Ike(transmit.octets),
                    };
                    let (source, destination) = (transmit.local, transmit.remote);
                    self.send(host, Parcel { source, destination, content });
                }
                Output::Job(job) => self.take_job(host, job),
                Output::Event(event) => self.record(host, event),
                Output::Wait(_) => break,
            }
        }
        let now = self.instant();
        let released = self.plane(host).take_released(now);
        released.into_iter().for_each(|(octets, path)| self.send_esp(host, octets, path));
        let engine = &mut self.hosts[host.0].engine;
        let notices = engine.plane().take_notices();
        if !notices.is_empty() {
            notices.into_iter().for_each(|n| engine.handle_notice(now, n));
            self.drain(host);
        }
    }

    fn record(&mut self, host: HostId, event: Event) {
        self.note(host, event.to_string());
        let now = self.now;
        self.hosts[host.0].events.push((now, event));
    }

    fn happen(&mut self) {
        match self.agenda.pop_first() {
            Some((_, Happening::Arrival { from, parcel })) => {
                if let Err(why) = self.arrive(&parcel) {
                    self.row(&from, &parcel, Fate::Undeliverable(why));
                }
            }
            Some((_, Happening::Packet(flow))) => self.offer(flow),
            None => {}
        }
    }
}

fn freeze(engine: &Engine<Recorder>, now: Instant) -> Frozen {
    let mut outcome = Ok(());
    let frozen = Frozen::write(|to| outcome = engine.freeze(now, to));
    outcome.expect("a world hands all outputs out before anything else happens");
    frozen
}

/// There is no other way to an instant; only differences from it mean anything.
#[expect(
    clippy::disallowed_methods,
    reason = "engines are told the time as instants, and the first one must come from somewhere"
)]
pub(crate) fn first_instant() -> Instant {
    Instant::now()
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, ladder) = (self.seed, &self.ladder);
            eprintln!("\nseed {seed}, at {:.3} s\n{ladder}", self.now.as_secs_f64());
            for host in &self.hosts {
                eprintln!("{} discarded {:?}", host.name, host.engine.discards());
            }
        }
    }
}
