//! Traffic through the gateways.

use super::{Happening, World};
use crate::host::HostId;
use crate::recorder::Verdict;
use crate::traffic::{Flow, FlowId, InnerPacket};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

impl World {
    /// Starts a flow of numbered packets from behind a gateway, one at once and then one per interval.
    pub fn start_flow(
        &mut self,
        from: HostId,
        source: IpAddr,
        destination: IpAddr,
        every: Duration,
    ) -> FlowId {
        let id = FlowId(u32::try_from(self.flows.len()).expect("a scenario has few flows"));
        self.flows.push(Flow {
            from,
            ends: (SocketAddr::new(source, 40_000), SocketAddr::new(destination, 40_000)),
            every: Some(every),
            offered: 0,
            without_sa: 0,
            in_the_clear: 0,
            arrived: BTreeMap::new(),
            refused: BTreeMap::new(),
        });
        self.at(self.now, Happening::Packet(id));
        id
    }

    /// Ends a flow; packets under way arrive.
    pub fn stop_flow(&mut self, flow: FlowId) {
        self.flows[flow.0 as usize].every = None;
    }

    /// The account of a flow.
    pub fn flow(&self, flow: FlowId) -> &Flow {
        &self.flows[flow.0 as usize]
    }

    /// Packets of all flows that could be read on their way, or that a plane would have let out as they are.
    pub fn in_the_clear(&self) -> u64 {
        self.flows.iter().map(|f| f.in_the_clear).sum()
    }

    /// Sends one packet and tells whether it arrived.
    pub fn probe(&mut self, from: HostId, source: IpAddr, destination: IpAddr) -> bool {
        let flow = self.start_flow(from, source, destination, Duration::ZERO);
        self.run_for(Duration::ZERO);
        self.stop_flow(flow);
        let pipeline = self.pipelines.get(&from).copied().unwrap_or_default();
        let conditions = self.conditions_of(from);
        let limit = pipeline + conditions.esp_behind + conditions.delay.end * 2;
        self.run_until(limit, |w| w.flow(flow).arrived.contains_key(&0))
    }

    pub(super) fn offer(&mut self, id: FlowId) {
        let now = self.instant();
        let flow = &mut self.flows[id.0 as usize];
        let Some(every) = flow.every else { return };
        let (from, (source, destination)) = (flow.from, flow.ends);
        let packet = InnerPacket { source, destination, flow: id, number: flow.offered };
        flow.offered += 1;
        match self.hosts[from.0].engine.plane().protect(now, &packet) {
            Verdict::Protected { octets, path } => {
                if self.encrypts && packet.shows_in(&octets) {
                    self.flows[id.0 as usize].in_the_clear += 1;
                }
                self.send_esp(from, octets, path);
            }
            Verdict::Kept => {}
            Verdict::NoSa => self.flows[id.0 as usize].without_sa += 1,
            Verdict::NoRule => self.flows[id.0 as usize].in_the_clear += 1,
        }
        self.drain(from);
        match every {
            // A single packet.
            Duration::ZERO => self.stop_flow(id),
            every => self.at(self.now + every, Happening::Packet(id)),
        }
    }
}
