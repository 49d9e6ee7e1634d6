//! One gateway with very many peers: policies for both sides, and two engines that hand each other their datagrams. All
//! peers live in one engine; each has an address, an identity and a network of its own.

use crate::host::{esp_offer, ike_offer, lifetime};
use esp::datapath::{Datapath, Settings};
use ike::event::Event;
use ike::{Config, Engine};
use ike::{Datagram, Output, Transmit};
use policy::{
    AddressRange, ChildTunnel, Credential, Endpoint, Group, Identity, IkeTunnel, KeyBits, Mode,
    Pfs, Policy, Role, Secret, Selector,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The property by which the gateway knows its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownBy {
    /// Their addresses.
    Address,
    /// Their identities: every tunnel takes any address.
    Identity,
}

/// How many peers, and what they negotiate.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Phase 1 tunnels, each with one phase 2 tunnel.
    pub tunnels: u32,
    /// The property by which the gateway knows its peers.
    pub known_by: KnownBy,
    /// The key exchange of IKE SAs.
    pub group: Group,
    /// The key exchange of Child SAs' rekeys.
    pub pfs: Option<Group>,
}

/// One of the two engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The gateway.
    Hub,
    /// The peers.
    Spokes,
}

const HUB: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

impl Plan {
    /// X25519 and nothing else, known by identity.
    pub fn of(tunnels: u32) -> Self {
        Self { tunnels, known_by: KnownBy::Identity, group: Group::Curve25519, pfs: None }
    }

    /// Name of a phase 1 tunnel, on both sides.
    pub fn tunnel(n: u32) -> String {
        format!("spoke{n}")
    }

    /// Name of a phase 2 tunnel, on both sides.
    pub fn child(n: u32) -> String {
        format!("net{n}")
    }

    /// Where a peer is.
    pub fn address(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(u32::from_be_bytes([100, 64, 0, 0]) + n).into()
    }

    /// A host behind the gateway, and one behind a peer.
    pub fn inner(n: u32) -> (IpAddr, IpAddr) {
        let behind = u32::from_be_bytes([10, 128, 0, 0]) + n * 4;
        (IpAddr::from([10, 0, 0, 7]), Ipv4Addr::from_bits(behind + 1).into())
    }

    /// The policy of one end.
    pub fn policy(&self, end: End) -> Arc<Policy> {
        Arc::new(Policy {
            tunnels: (0..self.tunnels).map(|n| Arc::new(self.define(end, n))).collect(),
        })
    }

    fn define(&self, end: End, n: u32) -> IkeTunnel {
        let day = lifetime(Duration::from_secs(86_400));
        let hub = Endpoint { address: Some(HUB), identity: Identity::Fqdn("hub.example".into()) };
        let known = end == End::Spokes || self.known_by == KnownBy::Address;
        let spoke = Endpoint {
            address: known.then(|| Self::address(n)),
            identity: Identity::Fqdn(format!("spoke{n}.example")),
        };
        let behind = u32::from_be_bytes([10, 128, 0, 0]) + n * 4;
        let range = |first: u32, last: u32| {
            let (first, last) = (Ipv4Addr::from_bits(first), Ipv4Addr::from_bits(last));
            AddressRange::new(first.into(), last.into()).expect("ascending, of one family")
        };
        let here = u32::from_be_bytes([10, 0, 0, 0]);
        let hub_net = vec![Selector::all_of(range(here, here + 255))];
        let spoke_net = vec![Selector::all_of(range(behind, behind + 3))];
        let ((local, remote), (local_net, remote_net)) = match end {
            End::Hub => ((hub, spoke), (hub_net, spoke_net)),
            End::Spokes => ((spoke, hub), (spoke_net, hub_net)),
        };
        IkeTunnel {
            name: Self::tunnel(n),
            role: Role::Both,
            local,
            remote,
            credential: Credential::PresharedKey(Secret::new(format!("secret {n}").into())),
            proposals: vec![ike_offer(&[self.group])],
            lifetime: day,
            auto_start: false,
            children: vec![Arc::new(ChildTunnel {
                name: Self::child(n),
                role: Role::Both,
                mode: Mode::Tunnel,
                local: local_net,
                remote: remote_net,
                proposals: vec![esp_offer(KeyBits::B128, day)],
                pfs: Pfs {
                    offer: self.pfs.into_iter().collect(),
                    accept: self.pfs.into_iter().collect(),
                    accept_none: self.pfs.is_none(),
                    additional: Vec::new(),
                },
                auto_start: false,
                on_demand: false,
            })],
            resumption: false,
            generic: None,
            ppk: None,
        }
    }
}

/// A gateway and its peers, with real datapaths.
pub struct Fleet {
    /// The gateway.
    pub hub: Engine<Datapath>,
    /// Its peers.
    pub spokes: Engine<Datapath>,
}

/// Datagrams on their way.
pub type Mail = Vec<Transmit>;

impl Fleet {
    /// Starts both engines; no tunnel is up yet.
    pub fn new(plan: &Plan, config: &Config, now: Instant) -> Self {
        let start = |end, seed| Self::start(plan.policy(end), config, now, seed);
        Self { hub: start(End::Hub, [1; 32]), spokes: start(End::Spokes, [2; 32]) }
    }

    /// Starts one engine.
    pub fn start(
        policy: Arc<Policy>,
        config: &Config,
        now: Instant,
        seed: [u8; 32],
    ) -> Engine<Datapath> {
        let plane = Datapath::new(Settings::default(), now);
        Engine::new(policy, config.clone(), plane, seed, now)
            .expect("the scenario's policy and configuration are valid")
    }

    /// One of the two.
    pub fn engine(&mut self, end: End) -> &mut Engine<Datapath> {
        match end {
            End::Hub => &mut self.hub,
            End::Spokes => &mut self.spokes,
        }
    }

    /// The datagrams that an end has to send; its events go to `told`.
    pub fn collect(&mut self, end: End, told: &mut Vec<Event>) -> Mail {
        let engine = self.engine(end);
        let mut mail = Mail::new();
        loop {
            match engine.poll() {
                Output::Transmit(transmit) => mail.push(transmit),
                Output::Event(event) => told.push(event),
                Output::Job(job) => unreachable!("tunnels of a fleet have preshared keys: {job:?}"),
                Output::Wait(_) => return mail,
            }
        }
    }

    /// Hands datagrams to an end.
    pub fn deliver(&mut self, now: Instant, end: End, mail: &Mail) {
        for sent in mail {
            let datagram =
                Datagram { local: sent.remote, remote: sent.local, octets: &sent.octets };
            self.engine(end).handle_datagram(now, datagram);
        }
    }

    /// Lets both talk until neither has anything to say. Returns what happened at the spokes.
    pub fn settle(&mut self, now: Instant) -> Vec<Event> {
        let mut told = Vec::new();
        loop {
            let to_hub = self.collect(End::Spokes, &mut told);
            self.deliver(now, End::Hub, &to_hub);
            let to_spokes = self.collect(End::Hub, &mut Vec::new());
            self.deliver(now, End::Spokes, &to_spokes);
            if to_hub.is_empty() && to_spokes.is_empty() {
                return told;
            }
        }
    }
}
