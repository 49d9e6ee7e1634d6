//! The actions in a random world.

use super::plan::{Plan, child_name, line_name};
use esp::families::{Families, Family};
use sim::chance::Chance;
use sim::invariant::bookkeeping;
use sim::{Conditions, Exchange, Gate, HostId, World};
use std::time::Duration;

/// An end of a tunnel: the line's number, and 0 for its left or 1 for its right end.
type End = (usize, usize);

/// Something that happens. An action that does not apply at the moment does nothing, so that any part of a history is
/// one, too.
#[derive(Clone, Debug)]
pub enum Action {
    /// A command, of one phase 2 tunnel or the whole.
    Connect(End, Option<u8>),
    Disconnect(End, Option<u8>),
    /// Of the IKE SA or a Child SA.
    Rekey(End, Option<u8>),
    /// Both ends at once, of either kind each.
    Cross(usize, [Option<u8>; 2]),
    /// A packet wants to go from an end to the other.
    Packet(End, u8),
    /// A gateway is cut off.
    Cut(usize),
    /// A gateway's packets are lost or repeated so many times of 1,000, and reordered.
    Weather(usize, u32),
    /// All cuts and bad links end.
    Heal,
    /// A gateway's messages of a kind are kept back.
    Hold(usize, Held),
    /// The oldest hold ends; the messages that it kept arrive, or do not.
    Release {
        lost: bool,
    },
    /// The NAT forgets its mappings.
    RebootNat,
    /// A gateway has another address than the policies say, or again the one they say.
    Roam {
        gateway: usize,
        away: bool,
    },
    /// A gateway is started again, with or without a Delete before.
    Restart {
        gateway: usize,
        stops_first: bool,
    },
    /// Much time passes.
    Idle(Duration),
    /// Both sides of a tunnel prove again who they are.
    Reauthenticate(End),
    /// A gateway has IPsec of IPv4, and with it all of its tunnels, switched off, or on again.
    Families {
        gateway: usize,
        off: bool,
    },
    /// The policies change on both ends, on one of them earlier.
    Change {
        line: usize,
        change: Change,
        first: usize,
        gap: Duration,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum Held {
    All,
    Requests,
    Answers,
    CreateChild,
    Informational,
}

#[derive(Clone, Copy, Debug)]
pub enum Change {
    AddChild,
    RemoveChild,
    /// Another lifetime.
    AlterChild(u8),
    AlterTunnel,
    RemoveOrAdd,
}

/// An action and the time until the next.
#[derive(Clone, Debug)]
pub struct Step {
    pub action: Action,
    pub pause: Duration,
}

/// Draws what happens in a world.
pub fn draw(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let steps = 4 + chance.below(16);
    (0..steps)
        .map(|_| {
            let action = draw_action(chance, plan);
            let millis = [0, 0, 5, 15, 40, 100, 400, 2000, 20_000][chance.below(9) as usize];
            Step { action, pause: Duration::from_millis(millis) }
        })
        .collect()
}

/// Draws what happens in addition, each time at some place among the others.
pub fn draw_more(chance: &mut Chance, plan: &Plan, steps: &mut Vec<Step>) {
    for _ in 0..chance.below(5) {
        let line = chance.below(plan.lines.len() as u64) as usize;
        let end = (line, chance.below(2) as usize);
        let gateway = chance.below(plan.gateways as u64) as usize;
        let action = match chance.below(5) {
            0..3 => Action::Reauthenticate(end),
            _ => Action::Families { gateway, off: chance.happens(600) },
        };
        let millis = [0, 0, 15, 40, 2000][chance.below(5) as usize];
        let place = chance.below(steps.len() as u64 + 1) as usize;
        steps.insert(place, Step { action, pause: Duration::from_millis(millis) });
    }
}

fn draw_action(chance: &mut Chance, plan: &Plan) -> Action {
    let line = chance.below(plan.lines.len() as u64) as usize;
    let end = (line, chance.below(2) as usize);
    let gateway = chance.below(plan.gateways as u64) as usize;
    let any_child = chance.below(3) as u8;
    let part = |chance: &mut Chance| chance.happens(600).then(|| chance.below(3) as u8);
    match chance.below(100) {
        0..14 => Action::Connect(end, part(chance)),
        14..22 => Action::Disconnect(end, part(chance)),
        22..36 => Action::Rekey(end, part(chance)),
        36..46 => Action::Cross(line, [part(chance), part(chance)]),
        46..54 => Action::Packet(end, any_child),
        54..58 => Action::Cut(gateway),
        58..66 => Action::Weather(gateway, chance.below(400) as u32),
        66..72 => Action::Heal,
        72..78 => {
            use Held::*;
            let held = [All, Requests, Answers, CreateChild, Informational];
            Action::Hold(gateway, held[chance.below(5) as usize])
        }
        78..83 => Action::Release { lost: chance.happens(300) },
        83..84 => Action::RebootNat,
        84..87 => Action::Roam { gateway, away: chance.happens(700) },
        87..90 => Action::Restart { gateway, stops_first: chance.happens(400) },
        90..93 => {
            let seconds = [20, 60, 200, 400, 900][chance.below(5) as usize];
            Action::Idle(Duration::from_secs(seconds))
        }
        _ => {
            let change = match chance.below(5) {
                0 => Change::AddChild,
                1 => Change::RemoveChild,
                2 => Change::AlterChild(any_child),
                3 => Change::AlterTunnel,
                _ => Change::RemoveOrAdd,
            };
            let gap = Duration::from_millis([0, 5, 50, 1000, 30_000][chance.below(5) as usize]);
            Action::Change { line, change, first: chance.below(2) as usize, gap }
        }
    }
}

/// A world, its plan, and the messages that are kept back.
pub struct History {
    pub world: World,
    pub hosts: Vec<HostId>,
    pub plan: Plan,
    gates: Vec<Gate>,
}

impl History {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let (world, hosts) = plan.build(seed);
        Self { world, hosts, plan, gates: Vec::new() }
    }

    /// Lets a step happen. The tables of all gateways fit their planes after any step.
    pub fn step(&mut self, step: &Step) -> Result<(), Vec<String>> {
        self.act(&step.action);
        self.world.run_for(step.pause);
        let found: Vec<String> =
            self.hosts.iter().flat_map(|h| bookkeeping(&mut self.world, *h)).collect();
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Connect(end, part) => self.connect(*end, *part),
            Action::Disconnect(end, part) => self.disconnect(*end, *part),
            Action::Rekey(end, part) => self.rekey(*end, *part),
            Action::Cross(line, parts) => {
                (0..2).for_each(|side| self.rekey((*line, side), parts[side]));
            }
            Action::Packet(end, n) => self.packet(*end, *n),
            Action::Cut(gateway) => self.world.cut(self.hosts[*gateway]),
            Action::Weather(gateway, permille) => {
                let conditions = Conditions::bad(*permille);
                self.world.set_conditions_from(self.hosts[*gateway], conditions);
            }
            Action::Heal => self.world.heal(),
            Action::Hold(gateway, held) => {
                let held = *held;
                let matches = move |l: &sim::Label| match held {
                    Held::All => true,
                    Held::Requests => !l.response,
                    Held::Answers => l.response,
                    Held::CreateChild => l.exchange == Exchange::CreateChild,
                    Held::Informational => l.exchange == Exchange::Informational,
                };
                self.gates.push(self.world.hold(self.hosts[*gateway], matches));
            }
            Action::Release { lost } => {
                if !self.gates.is_empty() {
                    let gate = self.gates.remove(0);
                    if *lost { self.world.discard(gate) } else { self.world.release(gate) }
                }
            }
            Action::RebootNat => {
                if self.plan.nat {
                    self.world.nat(self.hosts[0]).reboot();
                }
            }
            Action::Roam { gateway, away } => self.roam(*gateway, *away),
            Action::Restart { gateway, stops_first } => self.restart(*gateway, *stops_first),
            Action::Idle(time) => self.world.run_for(*time),
            Action::Reauthenticate(end) => self.reauthenticate(*end),
            Action::Families { gateway, off } => self.switch(*gateway, *off),
            Action::Change { line, change, first, gap } => {
                self.change(*line, *change, *first, *gap);
            }
        }
    }

    fn host(&self, (line, side): End) -> HostId {
        self.hosts[self.plan.lines[line].ends[side]]
    }

    /// Phase 2 tunnels that a command means.
    fn meant(&self, line: usize, part: Option<u8>) -> Option<(String, Vec<u8>)> {
        let l = &self.plan.lines[line];
        match part {
            _ if !l.present => None,
            None => Some((line_name(line), (0..l.children).collect())),
            Some(n) if n < l.children => Some((child_name(line, n), vec![n])),
            Some(_) => None,
        }
    }

    fn connect(&mut self, end: End, part: Option<u8>) {
        let (line, side) = end;
        let Some((name, meant)) = self.meant(line, part) else { return };
        if !self.plan.may_start(line, side) || !self.has_families(self.host(end)) {
            return;
        }
        self.world.connect(self.host(end), &name);
        self.plan.lines[line].down[side].retain(|n| !meant.contains(n));
    }

    fn disconnect(&mut self, end: End, part: Option<u8>) {
        let (line, side) = end;
        let Some((name, meant)) = self.meant(line, part) else { return };
        self.world.disconnect(self.host(end), &name);
        self.plan.lines[line].down[side].extend(meant);
    }

    fn rekey(&mut self, end: End, part: Option<u8>) {
        if let Some((name, _)) = self.meant(end.0, part) {
            self.world.rekey(self.host(end), &name);
        }
    }

    fn reauthenticate(&mut self, end: End) {
        if let Some((name, _)) = self.meant(end.0, None) {
            let again = |e: &mut ike::Engine<_>, now| e.reauthenticate(now, &name);
            // It may not be up.
            let _ = self.world.command(self.host(end), &format!("reauthenticate {name}"), again);
        }
    }

    fn has_families(&self, host: HostId) -> bool {
        self.world.host(host).engine.families() == Families::default()
    }

    fn switch(&mut self, gateway: usize, off: bool) {
        let families = Families::default().with(Family::Ipv4, !off);
        let text = if off { "switch IPv4 off" } else { "switch IPv4 on" };
        let switch = |e: &mut ike::Engine<_>, now| e.set_families(now, families);
        self.world.command(self.hosts[gateway], text, switch).expect("the plane can");
    }

    /// Sends one packet and tells whether it arrived.
    pub fn packet_arrives(&mut self, end: End, n: u8) -> bool {
        let inner = self.plan.inner(end.0, n);
        self.world.probe(self.host(end), inner[end.1], inner[1 - end.1])
    }

    fn packet(&mut self, end: End, n: u8) {
        if self.meant(end.0, Some(n)).is_some() {
            self.packet_arrives(end, n);
        }
    }

    fn roam(&mut self, gateway: usize, away: bool) {
        let address = match away {
            true => self.plan.address_away(gateway),
            false => self.plan.address(gateway),
        };
        let host = self.hosts[gateway];
        if self.world.host(host).address != address {
            self.world.readdress(host, &[address]);
        }
    }

    fn restart(&mut self, gateway: usize, stops_first: bool) {
        let host = self.hosts[gateway];
        if stops_first {
            self.world.stop(host);
            let limit = Duration::from_secs(5);
            self.world.run_until(limit, |w| w.host(host).engine.is_idle());
        }
        self.world.restart(host);
        for line in &mut self.plan.lines {
            if let Some(side) = line.side_of(gateway) {
                line.down[side].clear();
            }
        }
    }

    fn change(&mut self, line: usize, change: Change, first: usize, gap: Duration) {
        let l = &mut self.plan.lines[line];
        let fresh: Vec<u8> = match change {
            Change::RemoveOrAdd => {
                l.present = !l.present;
                (0..l.children).collect()
            }
            _ if !l.present => return,
            Change::AddChild if l.children < l.most_children() => {
                l.children += 1;
                vec![l.children - 1]
            }
            Change::RemoveChild if l.children > 1 => {
                l.children -= 1;
                vec![l.children]
            }
            Change::AlterChild(n) if n < l.children => {
                l.versions.1[usize::from(n)] += 1;
                vec![]
            }
            Change::AlterTunnel => {
                l.versions.0 += 1;
                vec![]
            }
            Change::AddChild | Change::RemoveChild | Change::AlterChild(_) => return,
        };
        for side in [first, 1 - first] {
            let gateway = self.plan.lines[line].ends[side];
            let policy = self.plan.policy(gateway);
            self.world.replace_policy(self.hosts[gateway], policy);
            // A tunnel that is new to the policy is not one that the operator has taken down.
            self.plan.lines[line].down[side].retain(|n| !fresh.contains(n));
            if side == first {
                self.world.run_for(gap);
            }
        }
    }

    /// Everything that stood in the way is gone.
    pub fn calm_down(&mut self) {
        for gate in std::mem::take(&mut self.gates) {
            self.world.release(gate);
        }
        self.world.heal();
        for gateway in 0..self.plan.gateways {
            self.roam(gateway, false);
            if !self.has_families(self.hosts[gateway]) {
                self.switch(gateway, false);
            }
        }
    }
}
