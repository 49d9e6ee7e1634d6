//! The packets between the hosts.

use super::{Happening, World};
use crate::host::HostId;
use crate::ladder::{Fate, Label};
use crate::link::{Conditions, Content, Gate, Parcel, Passage};
use crate::nat::Nat;
use esp::plane::{Encapsulation, Path};
use ike::Datagram;
use std::time::Duration;

impl World {
    /// Sets the conditions for everyone who has none of his own.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Sets the conditions of what one host sends.
    pub fn set_conditions_from(&mut self, host: HostId, conditions: Conditions) {
        self.conditions_from.insert(host, conditions);
    }

    /// Has a host's data plane take this long between the admission of a packet and its way to the wire; IKE messages
    /// do not wait.
    pub fn set_pipeline(&mut self, host: HostId, time: Duration) {
        self.pipelines.insert(host, time);
    }

    /// Cuts a host off: nothing goes in or out any more.
    pub fn cut(&mut self, host: HostId) {
        self.note(host, "is cut off".into());
        self.hosts[host.0].cut = true;
    }

    /// Undoes every cut and makes every link good.
    pub fn heal(&mut self) {
        self.hosts.iter_mut().for_each(|h| h.cut = false);
        self.conditions_from.clear();
        self.conditions = Conditions::default();
    }

    /// Keeps back every IKE message of a host that matches, retransmissions included, until [`World::release`].
    pub fn hold(
        &mut self,
        from: HostId,
        matches: impl Fn(&Label) -> bool + Send + 'static,
    ) -> Gate {
        self.gates.hold(from, Box::new(matches))
    }

    /// How many messages a gate holds.
    pub fn held(&self, gate: Gate) -> usize {
        self.gates.held(gate).len()
    }

    /// Lets go what a gate holds, in the order sent, and what would be held later.
    pub fn release(&mut self, gate: Gate) {
        let (from, parcels) = self.gates.open(gate);
        let Some(from) = from else { return };
        for parcel in parcels {
            let delay = self.conditions_of(from).delay.start;
            self.schedule(from, parcel, delay, Fate::Released(delay));
        }
    }

    /// Takes the first message that a gate holds off the wire; the gate stays closed.
    pub fn take_first(&mut self, gate: Gate) -> Option<Parcel> {
        self.gates.take_first(gate)
    }

    /// Has a message of a host arrive that was taken off the wire.
    pub fn deliver(&mut self, from: HostId, parcel: Parcel) {
        let delay = self.conditions_of(from).delay.start;
        self.schedule(from, parcel, delay, Fate::Released(delay));
    }

    /// Throws away what a gate holds, and lets later messages through.
    pub fn discard(&mut self, gate: Gate) {
        self.gates.open(gate);
    }

    /// Drops the next so many IKE messages of a host that match.
    pub fn drop_next(
        &mut self,
        from: HostId,
        count: u32,
        matches: impl Fn(&Label) -> bool + Send + 'static,
    ) {
        self.gates.drop_next(from, count, Box::new(matches));
    }

    /// Keeps a copy of every IKE message from now on, as its sender's outermost NAT shows it.
    pub fn tap(&mut self) {
        self.tapped.get_or_insert_default();
    }

    /// Hands out the copies made since the last call.
    pub fn take_tapped(&mut self) -> Vec<Parcel> {
        self.tapped.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Has a datagram arrive that nobody in this world sent.
    pub fn inject(&mut self, delay: Duration, parcel: Parcel) {
        let from = "forger".to_owned();
        self.row(&from, &parcel, Fate::Injected);
        self.at(self.now + delay, Happening::Arrival { from, parcel });
    }

    /// The NAT in front of a host.
    ///
    /// # Panics
    /// Where there is none.
    pub fn nat(&mut self, host: HostId) -> &mut Nat {
        let nat = self.host(host).nat.expect("the scenario put the host behind a NAT");
        &mut self.nats[nat]
    }

    // ---- inside

    pub(super) fn conditions_of(&self, from: HostId) -> &Conditions {
        self.conditions_from.get(&from).unwrap_or(&self.conditions)
    }

    pub(super) fn send(&mut self, from: HostId, mut parcel: Parcel) {
        let name = self.hosts[from.0].name.clone();
        if matches!(parcel.content, Content::Ike(_)) {
            self.last_ike = self.now;
        }
        if !self.hosts[from.0].has(parcel.source.ip()) {
            self.row(&name, &parcel, Fate::Undeliverable("the source is not the sender's"));
            return;
        }
        if let Some(nat) = self.hosts[from.0].nat {
            if matches!(parcel.content, Content::Esp(_) | Content::Ah(_)) {
                self.row(&name, &parcel, Fate::Undeliverable("the NAT does not know ESP and AH"));
                return;
            }
            let (source, destination) = (parcel.source, parcel.destination);
            parcel.source = self.nats[nat].outbound(self.now, source, destination);
        }
        if let (Some(tapped), Content::Ike(_)) = (&mut self.tapped, &parcel.content) {
            tapped.push(parcel.clone());
        }
        if self.hosts[from.0].cut {
            self.row(&name, &parcel, Fate::Lost);
            return;
        }
        let parcel = match self.gates.pass(from, parcel.clone()) {
            Passage::Free(parcel) => parcel,
            Passage::Held => return self.row(&name, &parcel, Fate::Held),
            Passage::Dropped => return self.row(&name, &parcel, Fate::Dropped),
        };
        let conditions = self.conditions_of(from).clone();
        let copies = conditions.copies(&parcel.content, &mut self.chance);
        if copies.is_empty() {
            self.row(&name, &parcel, Fate::Lost);
        }
        let pipeline = match parcel.content {
            Content::Ike(_) | Content::Keepalive => Duration::ZERO,
            Content::Esp(_) | Content::EspInUdp(_) | Content::Ah(_) => {
                self.pipelines.get(&from).copied().unwrap_or_default()
            }
        };
        for (n, delay) in copies.into_iter().enumerate() {
            let delay = pipeline + delay;
            let fate = if n == 0 { Fate::Delivered(delay) } else { Fate::Repeated(delay) };
            self.schedule(from, parcel.clone(), delay, fate);
        }
    }

    pub(super) fn send_esp(&mut self, from: HostId, octets: Vec<u8>, path: Path) {
        let content = match path.encapsulation {
            Encapsulation::Native => Content::Esp(octets),
            Encapsulation::Udp => Content::EspInUdp(octets),
            Encapsulation::Ah => Content::Ah(octets),
        };
        self.send(from, Parcel { source: path.local, destination: path.remote, content });
    }

    fn schedule(&mut self, from: HostId, parcel: Parcel, delay: Duration, fate: Fate) {
        let from = self.hosts[from.0].name.clone();
        self.row(&from, &parcel, fate);
        self.at(self.now + delay, Happening::Arrival { from, parcel });
    }

    pub(super) fn arrive(&mut self, parcel: &Parcel) -> Result<(), &'static str> {
        let (source, destination) = (parcel.source, parcel.destination);
        if self.dead.contains(&source.ip()) || self.dead.contains(&destination.ip()) {
            return Err("nothing gets through there");
        }
        let nat = self.nats.iter().position(|n| n.address() == destination.ip());
        let local = match nat {
            Some(nat) => self.nats[nat].inbound(self.now, source, destination.port())?,
            None => destination,
        };
        let host = self
            .hosts
            .iter()
            .position(|h| h.has(local.ip()) && h.nat == nat)
            .ok_or("no host has the address")?;
        if self.hosts[host].cut {
            return Err("the receiver is cut off");
        }
        let now = self.instant();
        match &parcel.content {
            // A port without a socket; where a socket is, I/O swallows keepalives.
            Content::Ike(_) | Content::Keepalive | Content::EspInUdp(_)
                if ![500, self.hosts[host].config.natt_port].contains(&local.port()) =>
            {
                return Err("no socket has the port");
            }
            Content::Keepalive => {}
            Content::Ike(octets) => {
                let datagram = Datagram { local, remote: source, octets };
                self.hosts[host].engine.handle_datagram(now, datagram);
            }
            Content::Esp(octets) | Content::EspInUdp(octets) | Content::Ah(octets) => {
                let encapsulation = match parcel.content {
                    Content::Esp(_) => Encapsulation::Native,
                    Content::Ah(_) => Encapsulation::Ah,
                    _ => Encapsulation::Udp,
                };
                let path = Path { local, remote: source, encapsulation };
                let opened = self.hosts[host].engine.plane().open(now, octets, path);
                // A refused packet names its flow only to the sender; a scenario has few flows in each direction.
                match opened {
                    Ok(packet) => {
                        let flow = &mut self.flows[packet.flow.0 as usize];
                        *flow.arrived.entry(packet.number).or_default() += 1;
                    }
                    Err(reason) => self.refused(HostId(host), reason),
                }
            }
        }
        self.drain(HostId(host));
        Ok(())
    }

    fn refused(&mut self, at: HostId, reason: crate::recorder::Refusal) {
        for flow in self.flows.iter_mut().filter(|f| f.from != at) {
            *flow.refused.entry(reason).or_default() += 1;
        }
        self.note(at, format!("refuses a packet: {reason:?}"));
    }
}
