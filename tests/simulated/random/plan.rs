//! The configuration of a random world's gateways, and the wishes of its operators.

use super::random_additional;
use ike::ticket::{KEY_LEN, TicketKey};
use ike::{Config, Encap};
use policy::{
    AdditionalKe, Group, Identity, IkeProposal, IkeTunnel, Mode, Pfs, Policy, Role, Secret,
    Selector,
};
use sim::certificates::Wallet;
use sim::chance::Chance;
use sim::host::{Side, esp_offer, ike_offer, lifetime, network};
use sim::{Behaviour, HostId, Nat, Site, World};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// The most phase 2 tunnels that a line has at any time.
pub const CHILDREN: u8 = 3;

/// A world to be: gateways and the tunnels between them, as they are configured now.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many gateways.
    pub gateways: usize,
    /// The first gateway is behind a NAT, and nobody knows its address.
    pub nat: bool,
    /// Packets go through the real datapath.
    pub encrypts: bool,
    /// Every stranger is asked for a cookie.
    pub cookies: bool,
    /// When ESP is put into UDP.
    pub encap: Encap,
    /// Gateways ask a silent peer whether it lives, after so many seconds.
    pub liveness: u64,
    /// Both sides of a tunnel prove again who they are, after so many seconds.
    pub reauthenticate: Option<u64>,
    /// Tunnels, at most one between two gateways.
    pub lines: Vec<Line>,
}

/// A phase 1 tunnel with its phase 2 tunnels.
#[derive(Clone, Debug)]
pub struct Line {
    /// Left and right gateway.
    pub ends: [usize; 2],
    /// Whether the policies have it.
    pub present: bool,
    pub children: u8,
    /// By end: starts by itself; is started by packets.
    pub auto_start: [bool; 2],
    pub on_demand: [bool; 2],
    /// The only end that may start it, where not both may.
    starter: Option<usize>,
    transport: bool,
    pfs: bool,
    /// Additional key exchanges: of the IKE SA, and of Child SAs with a key exchange.
    additional: [Vec<AdditionalKe>; 2],
    /// Sessions may be resumed with tickets.
    resumption: bool,
    /// Lifetimes of minutes rather than a day.
    short: bool,
    /// Changes so far of the phase 1 tunnel, and of each phase 2 tunnel.
    pub versions: (u64, [u64; CHILDREN as usize]),
    /// By end: phase 2 tunnels that the operator has taken down.
    pub down: [BTreeSet<u8>; 2],
}

impl Plan {
    /// Draws a plan.
    pub fn draw(chance: &mut Chance) -> Self {
        let gateways = 2 + [0, 0, 0, 1, 1, 2][chance.below(6) as usize];
        let nat = chance.happens(200);
        let mut lines = Vec::new();
        for left in 0..gateways {
            for right in left + 1..gateways {
                // Everybody has a tunnel to somebody.
                if left + 1 == right || chance.happens(300) {
                    lines.push(Line::draw(chance, [left, right], nat && left == 0));
                }
            }
        }
        let liveness = [5, 10, 30][chance.below(3) as usize];
        let encap =
            [Encap::Auto, Encap::Auto, Encap::Always, Encap::Never][chance.below(4) as usize];
        let (encrypts, cookies) = (chance.happens(100), chance.happens(100));
        let reauthenticate = None;
        Self { gateways, nat, encrypts, cookies, encap, liveness, reauthenticate, lines }
    }

    /// Draws what it has in addition.
    pub fn draw_more(&mut self, chance: &mut Chance) {
        self.reauthenticate = chance.happens(250).then(|| 60 + chance.below(600));
        for line in &mut self.lines {
            line.pfs |= chance.happens(500);
            line.additional = std::array::from_fn(|_| random_additional(chance));
        }
        for line in &mut self.lines {
            line.resumption = chance.happens(500);
        }
    }

    /// Makes the world.
    pub fn build(&self, seed: u64) -> (World, Vec<HostId>) {
        let mut world = World::new(seed);
        if self.encrypts {
            world.encrypt();
        }
        let config = Config {
            retransmit_after: Duration::from_millis(300),
            liveness_interval: Some(Duration::from_secs(self.liveness)),
            cookie_threshold: if self.cookies { 0 } else { Config::default().cookie_threshold },
            encap: self.encap,
            reauthenticate: self.reauthenticate.map(Duration::from_secs),
            ..Config::default()
        };
        let hosts: Vec<HostId> = (0..self.gateways)
            .map(|g| {
                let (name, address) = (format!("g{g}"), self.address(g));
                let (policy, config) = (self.policy(g), config.clone());
                if self.nat && g == 0 {
                    let any = Behaviour::EndpointIndependent;
                    let nat = Nat::new(IpAddr::from([203, 0, 113, 1]), any, any, 2 * MINUTE);
                    world.add_host_behind(nat, &name, address, policy, config)
                } else {
                    world.add_host(&name, address, policy, config)
                }
            })
            .collect();
        if self.lines.iter().any(|line| line.resumption) {
            // They outlive restarts.
            for (host, octet) in hosts.iter().zip(1..) {
                let key = TicketKey::new(Secret::new(vec![octet; KEY_LEN]));
                let ticket_keys = key.into_iter().collect();
                world.trust(*host, Wallet { ticket_keys, ..Wallet::default() }.trust());
            }
        }
        (world, hosts)
    }

    /// Where the policies say that a gateway is.
    pub fn address(&self, gateway: usize) -> IpAddr {
        match gateway {
            0 if self.nat => IpAddr::from([10, 0, 0, 5]),
            g => IpAddr::from([192, 0, 2, 1 + g as u8]),
        }
    }

    /// Where a gateway is when it roams.
    pub fn address_away(&self, gateway: usize) -> IpAddr {
        match gateway {
            0 if self.nat => IpAddr::from([10, 0, 0, 6]),
            g => IpAddr::from([198, 51, 100, 1 + g as u8]),
        }
    }

    /// The policy of a gateway.
    pub fn policy(&self, gateway: usize) -> Arc<Policy> {
        let of = |(number, line): (usize, &Line)| {
            let side = line.side_of(gateway).filter(|_| line.present)?;
            Some(Arc::new(self.tunnel(number, line, side)))
        };
        Arc::new(Policy { tunnels: self.lines.iter().enumerate().filter_map(of).collect() })
    }

    fn tunnel(&self, number: usize, line: &Line, side: usize) -> IkeTunnel {
        let child_life = if line.short { 5 * MINUTE } else { DAY };
        let ike_life = if line.short { 12 * MINUTE } else { DAY };
        let groups = vec![Group::Curve25519];
        let pfs = match line.pfs {
            true => Pfs {
                offer: groups.clone(),
                accept: groups.clone(),
                accept_none: false,
                additional: line.additional[1].clone(),
            },
            false => Site::default().pfs,
        };
        let ike = IkeProposal { additional: line.additional[0].clone(), ..ike_offer(&groups) };
        let site = Site {
            ike: vec![ike],
            left: self.address(line.ends[0]),
            right: self.address(line.ends[1]),
            left_roams: self.nat && line.ends[0] == 0,
            mode: if line.transport { Mode::Transport } else { Mode::Tunnel },
            children: line.children,
            pfs,
            lifetime: lifetime(ike_life + Duration::from_secs(line.versions.0)),
            resumption: line.resumption,
            auto_start: line.auto_start[side],
            on_demand: line.on_demand[side],
            role: match line.starter {
                None => Role::Both,
                Some(starter) if starter == side => Role::Initiator,
                Some(_) => Role::Responder,
            },
            ..Site::default()
        };
        let policy = site.policy([Side::Left, Side::Right][side]);
        let mut tunnel = IkeTunnel::clone(&policy.tunnels[0]);
        tunnel.name = line_name(number);
        let identity = |end: usize| Identity::Fqdn(format!("g{}.example", line.ends[end]));
        (tunnel.local.identity, tunnel.remote.identity) = (identity(side), identity(1 - side));
        for (n, child) in tunnel.children.iter_mut().enumerate() {
            let child = Arc::make_mut(child);
            child.name = child_name(number, n as u8);
            let life = child_life + Duration::from_secs(line.versions.1[n]);
            child.proposals = vec![esp_offer(policy::KeyBits::B128, lifetime(life))];
            if !line.transport {
                let (left, right) = networks(number, n as u8);
                let all = |net: [u8; 4]| vec![Selector::all_of(network(net))];
                let (local, remote) = if side == 0 { (left, right) } else { (right, left) };
                (child.local, child.remote) = (all(local), all(remote));
            }
        }
        tunnel
    }

    /// Addresses behind the left and the right end whose traffic a phase 2 tunnel carries.
    pub fn inner(&self, line: usize, n: u8) -> [IpAddr; 2] {
        let Line { transport, ends, .. } = &self.lines[line];
        if *transport {
            return ends.map(|g| self.address(g));
        }
        let (left, right) = networks(line, n);
        [left, right].map(|[a, b, c, _]| IpAddr::from([a, b, c, 9]))
    }

    /// Whether an end may start the tunnel and knows where the other is.
    pub fn may_start(&self, line: usize, side: usize) -> bool {
        let Line { ends, starter, .. } = &self.lines[line];
        starter.is_none_or(|s| s == side) && !(self.nat && side == 1 && ends[0] == 0)
    }

    /// Whether a phase 2 tunnel must be up once nothing stands in the way.
    pub fn wants_up(&self, line: usize, n: u8) -> bool {
        (0..2).any(|side| {
            let Line { auto_start, down, .. } = &self.lines[line];
            auto_start[side] && self.may_start(line, side) && !down[side].contains(&n)
        })
    }

    /// An end from which a packet must bring a phase 2 tunnel up.
    pub fn trapping_end(&self, line: usize, n: u8) -> Option<usize> {
        (0..2).find(|&side| {
            let Line { on_demand, down, .. } = &self.lines[line];
            on_demand[side] && self.may_start(line, side) && !down[side].contains(&n)
        })
    }
}

impl Line {
    fn draw(chance: &mut Chance, ends: [usize; 2], nat: bool) -> Self {
        let transport = !nat && chance.happens(150);
        Self {
            ends,
            present: true,
            children: if transport { 1 } else { 1 + chance.below(3) as u8 },
            auto_start: [chance.happens(500), chance.happens(400)],
            on_demand: [chance.happens(250), chance.happens(250)],
            starter: chance.happens(200).then(|| if nat { 0 } else { chance.below(2) as usize }),
            transport,
            pfs: chance.happens(250),
            additional: Default::default(),
            resumption: false,
            short: chance.happens(200),
            versions: Default::default(),
            down: Default::default(),
        }
    }

    /// The most phase 2 tunnels it can have.
    pub fn most_children(&self) -> u8 {
        if self.transport { 1 } else { CHILDREN }
    }

    /// The end that a gateway is, if it is one.
    pub fn side_of(&self, gateway: usize) -> Option<usize> {
        self.ends.iter().position(|&g| g == gateway)
    }
}

pub fn line_name(line: usize) -> String {
    format!("line{line}")
}

pub fn child_name(line: usize, n: u8) -> String {
    format!("line{line}net{n}")
}

fn networks(line: usize, n: u8) -> ([u8; 4], [u8; 4]) {
    let second = 100 + 2 * line as u8;
    ([10, second, n, 0], [10, second + 1, n, 0])
}
