//! Two engines under way, and somebody who says anything to them, with and without their keys, at any moment.

mod certificates;
mod forger;

use crate::octets::Octets;
use esp::plane::{Notice, PacketSummary, PlaneError, RuleId, SaId, Spi};
use forger::Forger;
use ike::Config;
use policy::{AdditionalKe, Group, IkeProposal, KeyKind, Mode, Pfs, Ppk, Signature};
use sim::host::{Side, ike_offer, lifetime};
use sim::invariant::{bookkeeping, leftovers_after_stop};
use sim::link::{Conditions, Content, Gate, Parcel};
use sim::{HostId, Site, World};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// More steps than this are not taken in one run.
const STEPS: usize = 48;
/// More of anything than this cannot come of so few steps.
const MANY: usize = 16 * STEPS;
const NAMES: [&str; 4] = [Site::TUNNEL, "net0", "net1", "nothing"];

/// Reads octets as a site, and as steps of its operators, its wire, its planes and a forger. After every step tables
/// and planes fit each other and nothing has grown beyond measure; at the end both sides stop and leave nothing behind.
pub fn engine(data: &[u8]) {
    let mut input = Octets::new(data);
    let Some(mut play) = Play::new(&mut input) else { return };
    for _ in 0..STEPS {
        if play.step(&mut input).is_none() {
            break;
        }
        play.check();
    }
    play.end();
}

struct Play {
    world: World,
    site: Site,
    hosts: [HostId; 2],
    gate: Option<Gate>,
    forger: Forger,
}

impl Play {
    fn new(input: &mut Octets<'_>) -> Option<Self> {
        let (kind, wait) = (input.u8()?, input.u8()?);
        let bit = |n: u8| kind >> n & 1 == 1;
        let signature = (wait & 1 == 1).then(|| Signature {
            keys: KeyKind::ALL.to_vec(),
            use_crl: false,
            sha1: false,
        });
        // Additional key exchanges (ML-KEM would be slow here) and postquantum preshared keys, each in a quarter of the
        // runs.
        let additional = match wait >> 1 & 3 {
            0 => vec![AdditionalKe::required(vec![Group::Ecp384])],
            _ => Vec::new(),
        };
        let ids = vec![certificates::PPK.to_owned()];
        let ppk = match wait >> 3 & 7 {
            0 => Some(Ppk::required(ids)),
            1 => Some(Ppk::optional(ids)),
            _ => None,
        };
        let groups = [Group::Curve25519, Group::Ecp256];
        let pfs = Pfs {
            offer: groups[..usize::from(bit(0))].to_vec(),
            accept: groups.to_vec(),
            accept_none: !bit(0),
            additional: if bit(0) { additional.clone() } else { Vec::new() },
        };
        let site = Site {
            children: if bit(1) { 2 } else { 1 },
            mode: if bit(2) { Mode::Transport } else { Mode::Tunnel },
            ike: vec![IkeProposal { additional, ..ike_offer(&groups) }],
            pfs,
            lifetime: lifetime(Duration::from_secs(3600)),
            auto_start: bit(3),
            on_demand: bit(4),
            left_roams: bit(5),
            signature,
            ppk,
            ..Site::default()
        };
        let site = if site.mode == Mode::Transport { Site { children: 1, ..site } } else { site };
        let config = Config {
            fragment_size: bit(6).then_some(576),
            cookie_threshold: if bit(7) { 0 } else { 32 },
            half_open_limit: 40,
            ppk_before_auth: wait >> 6 & 1 == 0,
            ..Config::default()
        };
        let (mut world, left, right) = World::of_site(u64::from(kind), &site, &config);
        for (host, trust) in [left, right].into_iter().zip(certificates::sides()) {
            world.trust(host, trust);
        }
        let mut play =
            Self { world, site, hosts: [left, right], gate: None, forger: Forger::default() };
        play.world.tap();
        // Most runs start with a tunnel that is up, some with one that is coming up.
        if wait > 20 {
            play.world.connect(left, Site::TUNNEL);
            play.world.run_for(Duration::from_millis(u64::from(wait) * 2));
        }
        Some(play)
    }

    /// One step; `None` where the octets run out.
    fn step(&mut self, input: &mut Octets<'_>) -> Option<()> {
        let what = input.u8()?;
        self.forger.listen(&mut self.world);
        match what % 16 {
            0..=2 => self.wait(input),
            3 => self.command(input),
            4 => self.stranger(input),
            5 => self.forger.replay(input, &mut self.world),
            6 => self.forger.mutate(input, &mut self.world),
            7..=11 => self.forger.forge(input, &mut self.world, self.hosts),
            12 => self.notice(input),
            13 => self.wire(input),
            14 => self.plane(input),
            _ => self.upheaval(input),
        }
    }

    fn wait(&mut self, input: &mut Octets<'_>) -> Option<()> {
        self.world.run_for(Duration::from_millis(1 << input.below(21)?));
        Some(())
    }

    fn command(&mut self, input: &mut Octets<'_>) -> Option<()> {
        let host = *input.pick(&self.hosts)?;
        let name = *input.pick(&NAMES)?;
        match input.u8()? % 3 {
            0 => drop(self.world.command(host, "connect", |e, now| e.connect(now, name))),
            1 => drop(self.world.rekey(host, name)),
            _ => drop(self.world.disconnect(host, name)),
        }
        Some(())
    }

    /// Octets of somebody without keys.
    fn stranger(&mut self, input: &mut Octets<'_>) -> Option<()> {
        let (source, destination) = self.addresses(input)?;
        let len = usize::from(input.u16()? % 2048);
        let octets = input.up_to(len).to_vec();
        self.world.inject(Duration::ZERO, ike(source, destination, octets));
        Some(())
    }

    fn addresses(&self, input: &mut Octets<'_>) -> Option<(SocketAddr, SocketAddr)> {
        let hosts = [self.site.left, self.site.right];
        let (from, port) = (input.u8()?, if input.flag()? { 500 } else { 4500 });
        let to = usize::from(from & 1);
        let source = match from >> 1 {
            0..=90 => SocketAddr::new(hosts[1 - to], port),
            91..=100 => SocketAddr::new(hosts[to], port),
            other => SocketAddr::from(([198, 51, 100, other], port)),
        };
        Some((source, SocketAddr::new(hosts[to], port)))
    }

    fn notice(&mut self, input: &mut Octets<'_>) -> Option<()> {
        let host = *input.pick(&self.hosts)?;
        let plane = self.world.plane(host);
        let mut names: Vec<SaId> = plane.inbound().map(|r| r.id).collect();
        names.extend(plane.outbound().map(|s| s.id));
        names.push(SaId(u64::MAX));
        let rules: Vec<RuleId> = plane.rules().map(|r| r.id).chain([RuleId(u32::MAX)]).collect();
        let sa = *input.pick(&names)?;
        let notice = match input.u8()? % 4 {
            0 => Notice::Expiring { sa, hard: false },
            1 => Notice::Expiring { sa, hard: true },
            2 => {
                let remote = SocketAddr::from(([198, 51, 100, input.u8()?], input.u16()?));
                Notice::PeerMoved { sa, remote }
            }
            _ => {
                let (left, right) = self.site.inner(input.u8()? % 3);
                let packet = PacketSummary {
                    protocol: input.u8()?,
                    source: (left, Some(input.u16()?)),
                    destination: (right, None),
                };
                Notice::Acquire { rule: *input.pick(&rules)?, packet }
            }
        };
        self.world.command(host, "notice", |e, now| e.handle_notice(now, notice));
        Some(())
    }

    fn wire(&mut self, input: &mut Octets<'_>) -> Option<()> {
        let host = *input.pick(&self.hosts)?;
        match input.u8()? % 8 {
            0 => self.world.cut(host),
            1 => self.world.set_conditions(Conditions::bad(300)),
            2 if self.gate.is_none() => self.gate = Some(self.world.hold(host, |_| true)),
            2 | 3 => self.release(),
            4 => self.world.begin_nonces_with(host, Some(input.u8()?)),
            5 => self.world.hold_jobs(host),
            6 => drop(self.world.release_jobs(host)),
            _ => self.world.heal(),
        }
        Some(())
    }

    fn release(&mut self) {
        if let Some(gate) = self.gate.take() {
            self.world.release(gate);
        }
    }

    /// Actions of the planes: refuse an SA, or have a packet that wants through.
    fn plane(&mut self, input: &mut Octets<'_>) -> Option<()> {
        let at = input.below(2)?;
        let n = input.u8()?;
        if n & 0x80 == 0 {
            let error = PlaneError::SpiInUse(Spi(0x00be_ef00));
            self.world.plane(self.hosts[at]).refuse_next_after(usize::from(n % 4), error);
            return Some(());
        }
        let (left, right) = self.site.inner(n % 3);
        let ends = if at == 0 { (left, right) } else { (right, left) };
        self.world.probe(self.hosts[at], ends.0, ends.1);
        Some(())
    }

    /// A new policy, a restart, a stop, a successor process.
    fn upheaval(&mut self, input: &mut Octets<'_>) -> Option<()> {
        let at = input.below(2)?;
        let (host, side) = (self.hosts[at], [Side::Left, Side::Right][at]);
        match input.u8()? % 8 {
            0 => self.world.restart(host),
            1 => self.world.stop(host),
            7 => self.world.refreeze(host),
            n => {
                let mut site = self.site.clone();
                match n {
                    2 => site.children = 1 + input.u8()? % 3,
                    3 => site.secret = "another one, unknown to the peer".into(),
                    4 => site.ike = vec![ike_offer(&[Group::Ecp384])],
                    5 => site.mode = if input.flag()? { Mode::Tunnel } else { Mode::Transport },
                    _ => {}
                }
                let policy = if n == 6 { Arc::default() } else { site.policy(side) };
                self.world.replace_policy(host, policy);
            }
        }
        Some(())
    }

    fn check(&mut self) {
        for host in self.hosts {
            let found = bookkeeping(&mut self.world, host);
            assert!(found.is_empty(), "{found:?}");
            let engine = &self.world.host(host).engine;
            let held = engine.inventory();
            assert!(held.half_open <= 40, "{held:?}");
            let all = [
                held.ike_sas,
                held.child_sas,
                held.spis,
                held.delivered_spis,
                held.sessions,
                held.lingering,
                held.pending_spis,
                held.retries,
                held.deadlines,
            ];
            assert!(all.iter().all(|count| *count <= MANY), "{held:?}");
        }
    }

    fn end(&mut self) {
        self.release();
        for host in self.hosts {
            self.world.release_jobs(host);
        }
        self.world.heal();
        self.world.run_for(Duration::from_secs(300));
        self.check();
        for host in self.hosts {
            self.world.stop(host);
        }
        self.world.run_for(Duration::from_secs(600));
        for host in self.hosts {
            let found = leftovers_after_stop(&mut self.world, host);
            assert!(found.is_empty(), "{found:?}");
        }
    }
}

fn ike(source: SocketAddr, destination: SocketAddr, octets: Vec<u8>) -> Parcel {
    Parcel { source, destination, content: Content::Ike(octets) }
}
