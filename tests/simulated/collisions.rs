//! Crossing, delayed and lost exchanges, message by message (RFC 7296 §2.8, §2.25).
//!
//! The scenarios have the names, and their messages the order, of strongSwan's test suites for the same collisions, so
//! that completeness can be seen: every scenario of `child_rekey`, `child_delete`, `child_create`, `ike_rekey` and
//! `ike_delete` has a test of that name in the module of that name, for each role and each nonce that may be the
//! lowest, except those of this table. Scenarios that are not in those suites stand at the end of a module.
//!
//! | scenario | why not |
//! |---|---|
//! | `*_multi_ke`, `collision_mixed` | several key exchanges in one (RFC 9370) are not spoken |
//! | `child_create::ike_auth_ke_*` | announce the key exchange of Child SAs (a draft without code point) |
//! | suite `ike_mid_sync` | synchronisation of message IDs (RFC 6311) is not spoken |
//! | suite `ike_cfg` | configuration payloads are neither asked for nor granted |
//!
//! After every message both ends' tables, SPIs and planes must fit each other, and while a tunnel is up a packet must
//! get through in either direction. Time stands still until a scenario ends, so that nothing but the messages decides.

mod child_create;
mod child_delete;
mod child_rekey;
mod ike_delete;
mod ike_rekey;

use crate::{SETTLED, SOON, calm};
use ike::Config;
use sim::host::Side;
use sim::invariant::{assert_clean_stop, bookkeeping, disagreements};
use sim::link::{Content, Parcel};
use sim::recorder::Change;
use sim::{Conditions, Exchange, Gate, HostId, Label, Site, World};
use std::time::Duration;

/// First octets of nonces: the lower of the two nonces of an exchange begins with `LOW`.
const LOW: u8 = 0x00;
const HIGH: u8 = 0xff;

/// Each of four nonces the lowest once, in the order in which they are made.
const LOWEST_OF_FOUR: [[u8; 4]; 4] = [
    [LOW, HIGH, HIGH, HIGH],
    [HIGH, LOW, HIGH, HIGH],
    [HIGH, HIGH, LOW, HIGH],
    [HIGH, HIGH, HIGH, LOW],
];

/// Each of three nonces the lowest once.
const LOWEST_OF_THREE: [[u8; 3]; 3] = [[LOW, HIGH, HIGH], [HIGH, LOW, HIGH], [HIGH, HIGH, LOW]];

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    A,
    B,
}
use Who::{A, B};

/// The kind of a message, as far as its header and length tell: the rest is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// CREATE_CHILD_SA.
    Request,
    /// CREATE_CHILD_SA with an SA.
    Success,
    TemporaryFailure,
    InvalidKe,
    ChildSaNotFound,
    /// INFORMATIONAL, or its answer, that deletes a Child SA.
    DeleteChild,
    DeleteIke,
    /// The answer with nothing in it.
    Empty,
}
use Kind::{
    ChildSaNotFound, DeleteChild, DeleteIke, Empty, InvalidKe, Request, Success, TemporaryFailure,
};

/// Octets of a message with AES-GCM-16 whose only payload has so many (RFC 7296 §3.14, RFC 5282 §3).
const fn octets_around(payload: usize) -> usize {
    const HEADER: usize = 28;
    const SK_HEADER: usize = 4;
    const IV: usize = 8;
    const PAD_LENGTH: usize = 1;
    const ICV: usize = 16;
    HEADER + SK_HEADER + IV + payload + PAD_LENGTH + ICV
}

fn kind_of(label: &Label) -> Kind {
    let empty = octets_around(0);
    // A Notify payload has 8 octets without SPI and data; a Delete payload without SPIs, too.
    let bare = octets_around(8);
    match (label.exchange, label.response) {
        (Exchange::CreateChild, false) => Request,
        (Exchange::CreateChild, true) if label.len == bare => TemporaryFailure,
        (Exchange::CreateChild, true) if label.len == bare + 2 => InvalidKe,
        (Exchange::CreateChild, true) if label.len == bare + 4 => ChildSaNotFound,
        (Exchange::CreateChild, true) => Success,
        (Exchange::Informational, true) if label.len == empty => Empty,
        (Exchange::Informational, false) if label.len == bare => DeleteIke,
        (Exchange::Informational, _) if label.len == bare + 4 => DeleteChild,
        _ => panic!("a message that no scenario expects: {label:?}"),
    }
}

/// Two gateways whose messages are handed over one by one.
struct Duel {
    world: World,
    hosts: [HostId; 2],
    gates: [Gate; 2],
    site: Site,
    /// Whether packets of `net0` must get through at any time.
    serving: bool,
    /// The Child SA that each end's own request has made: its SPI on that side.
    made: [Option<u32>; 2],
}

/// Two phase 2 tunnels: changes of one must not harm the other.
fn site() -> Site {
    Site { children: 2, ..Site::default() }
}

/// Nothing waits for the clock, which stands still.
fn at_once() -> Config {
    Config { drain: Duration::ZERO, drain_before_answer: Duration::ZERO, ..calm() }
}

impl Duel {
    /// A tunnel that this end has started.
    fn new(started_by: Who) -> Self {
        Self::between(&site(), &site(), started_by)
    }

    /// The same where the ends are configured differently; `a` has the selectors of both.
    fn between(a: &Site, b: &Site, started_by: Who) -> Self {
        let mut world = World::new(1);
        let hosts = [("A", a.left, a, Side::Left), ("B", b.right, b, Side::Right)].map(
            |(name, address, site, side)| {
                world.add_host(name, address, site.policy(side), at_once())
            },
        );
        let starter = hosts[started_by as usize];
        world.connect(starter, Site::TUNNEL);
        world.run_for(SOON);
        let at_once = Duration::ZERO..Duration::ZERO;
        world.set_conditions(Conditions { delay: at_once, ..Conditions::default() });
        let gates = hosts.map(|h| world.hold(h, |_| true));
        let mut duel =
            Self { world, hosts, gates, site: a.clone(), serving: true, made: [None; 2] };
        duel.check();
        duel
    }

    fn host(&self, who: Who) -> HostId {
        self.hosts[who as usize]
    }

    // ---- exchanges that an end begins; the nonce it makes begins with this octet

    fn rekey_child(&mut self, who: Who, nonce: u8) {
        let host = self.host(who);
        self.world.begin_nonces_with(host, Some(nonce));
        assert!(self.world.rekey(host, "net0"), "{who:?} has net0");
        self.check();
    }

    fn rekey_ike(&mut self, who: Who, nonce: u8) {
        let host = self.host(who);
        self.world.begin_nonces_with(host, Some(nonce));
        assert!(self.world.rekey(host, Site::TUNNEL), "{who:?} has an IKE SA");
        self.check();
    }

    fn delete_child(&mut self, who: Who) {
        self.serving = false;
        assert!(self.world.disconnect(self.host(who), "net0"), "{who:?} has net0");
        self.check();
    }

    fn delete_ike(&mut self, who: Who) {
        self.serving = false;
        assert!(self.world.disconnect(self.host(who), Site::TUNNEL), "{who:?} has an IKE SA");
        self.check();
    }

    // ---- messages

    /// Hands over the next message of an end, which is of this kind.
    fn pass(&mut self, from: Who, kind: Kind) {
        let parcel = self.keep(from, kind);
        self.late(from, parcel);
    }

    /// The same, to an end that makes a nonce beginning with this octet for its answer.
    fn pass_answered_with(&mut self, from: Who, kind: Kind, nonce: u8) {
        let to = self.host(other(from));
        self.world.begin_nonces_with(to, Some(nonce));
        self.pass(from, kind);
    }

    /// Takes the next message of an end off the wire.
    fn keep(&mut self, from: Who, kind: Kind) -> Parcel {
        let parcel = self.world.take_first(self.gates[from as usize]);
        let parcel = parcel.unwrap_or_else(|| panic!("{from:?} sends no {kind:?}"));
        assert_eq!(kind_of(&label_of(&parcel)), kind, "what {from:?} sends");
        parcel
    }

    /// Hands over a message that was taken off the wire.
    fn late(&mut self, from: Who, parcel: Parcel) {
        let (kind, to) = (kind_of(&label_of(&parcel)), other(from));
        let before = self.world.plane(self.host(to)).journal().len();
        self.world.deliver(self.host(from), parcel);
        self.world.run_for(Duration::ZERO);
        if kind == Success {
            let journal = self.world.plane(self.host(to)).journal();
            let made = journal[before..].iter().find_map(|change| match change {
                Change::Inbound(_, spi) => Some(spi.0),
                _ => None,
            });
            self.made[to as usize] = made.or(self.made[to as usize]);
        }
        self.check();
    }

    /// Hands over all messages of both ends, by turns.
    fn pass_all(&mut self) {
        loop {
            let mut any = false;
            for from in [A, B] {
                if let Some(parcel) = self.world.take_first(self.gates[from as usize]) {
                    any = true;
                    self.late(from, parcel);
                }
            }
            if !any {
                return;
            }
        }
    }

    /// No message is under way.
    fn silence(&self) {
        [A, B].into_iter().for_each(|who| self.silence_of(who));
    }

    /// No message of an end is under way.
    fn silence_of(&self, who: Who) {
        assert_eq!(self.world.held(self.gates[who as usize]), 0, "{who:?} has said something");
    }

    // ---- invariants

    /// Checks the state after every message.
    fn check(&mut self) {
        let mut found: Vec<String> =
            self.hosts.into_iter().flat_map(|h| bookkeeping(&mut self.world, h)).collect();
        let (a, b) = self.site.inner(0);
        for (from, source, destination) in [(A, a, b), (B, b, a)] {
            if self.serving && !self.world.probe(self.host(from), source, destination) {
                found.push(format!("a packet of {from:?} does not get through"));
            }
        }
        assert!(found.is_empty(), "inconsistent:\n  {}", found.join("\n  "));
    }

    /// The end whose request made the Child SA that serves `net0`.
    fn child_made_by(&mut self) -> Who {
        let ours = [A, B].map(|who| {
            let host = self.host(who);
            let spi = crate::child_spi(&mut self.world, host, "net0");
            self.made[who as usize] == Some(spi)
        });
        match ours {
            [true, false] => A,
            [false, true] => B,
            _ => panic!("both or neither made the Child SA that serves: {:?}", self.made),
        }
    }

    /// The end whose request made the IKE SA that serves.
    fn ike_made_by(&mut self) -> Who {
        let status = self.world.status(self.host(A));
        let sa = status.iter().find_map(|s| s.sa.as_ref()).expect("an IKE SA is up");
        if sa.initiator { A } else { B }
    }

    /// Lets the clock run: both ends agree on so many Child SAs in the end, and stop without a trace.
    fn settles_with(mut self, children: u8) {
        self.silence();
        for gate in self.gates {
            self.world.release(gate);
        }
        self.world.heal();
        self.world.run_for(SETTLED);
        let [a, b] = self.hosts;
        let mut found = disagreements(&mut self.world, a, b, children);
        found.extend(self.hosts.into_iter().flat_map(|h| bookkeeping(&mut self.world, h)));
        found.extend(self.hosts.into_iter().flat_map(|h| waiting(&self.world, h)));
        assert!(found.is_empty(), "the ends disagree:\n  {}", found.join("\n  "));
        self.check();
        assert_clean_stop(&mut self.world, a, b);
    }

    /// Lets the clock run: nothing is left of the tunnel on either end.
    fn ends(mut self) {
        self.silence();
        for gate in self.gates {
            self.world.release(gate);
        }
        self.world.heal();
        self.world.run_for(SETTLED);
        self.hosts
            .into_iter()
            .for_each(|h| sim::invariant::assert_nothing_left(&mut self.world, h));
        let [a, b] = self.hosts;
        assert_clean_stop(&mut self.world, a, b);
    }
}

/// A session at rest waits for nothing but its lifetimes.
fn waiting(world: &World, host: HostId) -> Option<String> {
    let held = world.host(host).engine.inventory();
    let rests = held.retries == 0 && held.deadlines == held.sessions && held.sessions == 1;
    (!rests).then(|| format!("{} waits for more than lifetimes: {held:?}", world.host(host).name))
}

fn other(who: Who) -> Who {
    match who {
        A => B,
        B => A,
    }
}

fn label_of(parcel: &Parcel) -> Label {
    let Content::Ike(octets) = &parcel.content else { panic!("gates hold IKE messages only") };
    Label::read(octets).expect("engines send IKE messages")
}
