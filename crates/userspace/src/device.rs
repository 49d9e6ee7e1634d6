//! The plane's parts on the host while there are rules: the device with its first queue pair, and routes.

use super::config::Config;
use super::queue_pair::QueuePair;
use super::raw_sockets::RawSockets;
use super::receivers::Receivers;
use super::tun::{Framing, Tun};
use super::tun_routes::{RoutingNumbers, TunRoutes};
use super::worker::Shared;
use super::workers::FrozenWorkers;
use esp::plane::{PlaneError, Rule};
use floor::{KernelOffload, plane_error, refused};
use host::handover::Descriptors;
use host::journal::Journal;
use host::netlink::{Family, Netlink};
use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

/// Packets that wait for a worker, in each queue of the device: as many as other network devices have by default, twice
/// those of a TUN device. At 200,000 packets per second it takes as long as a worker may have to wait for a core.
const WAITING: u32 = 1000;

/// A device, and what leads traffic to it. [`Device::end`] or [`Device::give_way`] undoes it.
pub(super) struct Device {
    // Declared in the order in which they are to go: the host's settings, then the device.
    pub routing: TunRoutes,
    queue_pair: Arc<QueuePair>,
}

/// The state of a device, as another process goes on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrozenDevice {
    /// The form of its packets.
    pub framing: Framing,
    /// The host has IPv6.
    pub ipv6: bool,
    /// The workers that serve it.
    pub workers: FrozenWorkers,
}

/// The losses of devices that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets that were not read from it.
    pub unread: u64,
    /// Datagrams that full sockets had no room for.
    pub unreceived: u64,
    /// Datagrams that came while no SA was up.
    pub declined: u64,
}

impl AddAssign for Lost {
    fn add_assign(&mut self, more: Self) {
        self.unread += more.unread;
        self.unreceived += more.unreceived;
        self.declined += more.declined;
    }
}

impl Device {
    /// Creates the device and its routing table, and has the workers serve it.
    pub(super) fn start(
        host: &floor::Settings,
        config: &Config,
        mtu: u16,
        receivers: &mut Receivers,
        shared: &Arc<Shared>,
        journal: &mut Journal,
    ) -> Result<Self, PlaneError> {
        let device = &host.device;
        // Another plane may have begun to use the table since this one has started.
        journal.claim(&host.state_dir, host.table).map_err(plane_error)?;
        let raw = receivers.raw()?;
        let tun = Tun::create(device, host.uses(KernelOffload::DeviceOffload))?;
        let (netlink, index) =
            configure(device, mtu).map_err(|e| refused(format!("setting up {device}"), &e))?;
        let routing = TunRoutes::start(netlink, index, numbers(host), journal)?;
        let queue_pair = Arc::new(QueuePair::first(tun, receivers.port(), &raw)?);
        config.workers.attach(device, Arc::clone(shared), Arc::clone(&queue_pair))?;
        shared.tun_writer.set_queue_pair(&queue_pair);
        Ok(Self { routing, queue_pair })
    }

    /// The device of another process, with what leads the traffic of these rules to it. Nothing is changed on the host.
    ///
    /// # Errors
    /// If a descriptor is missing, or the device is gone.
    pub(super) fn adopt<'a>(
        host: &floor::Settings,
        config: &Config,
        frozen: &FrozenDevice,
        (receivers, raw): (&Receivers, &Arc<RawSockets>),
        shared: &Arc<Shared>,
        rules: impl Iterator<Item = &'a Rule>,
        from: &mut Descriptors,
    ) -> Result<Self, PlaneError> {
        let FrozenDevice { framing, ipv6, workers } = frozen;
        let device = &host.device;
        let (netlink, index) =
            find(device).map_err(|e| refused(format!("taking over {device}"), &e))?;
        let families = Family::BOTH.into_iter().filter(|f| *f == Family::V4 || *ipv6).collect();
        let routing = TunRoutes::adopt(netlink, index, numbers(host), families, rules);
        let mut queue_pairs = Vec::new();
        for (number, fragmenting) in workers.fragmenting.iter().enumerate() {
            let (of, port) = ((device.as_str(), *framing), receivers.port());
            let queue_pair = QueuePair::adopt(number, of, *fragmenting, port, raw, from)?;
            queue_pairs.push(Arc::new(queue_pair));
        }
        let queue_pair = queue_pairs.first().map(Arc::clone);
        let queue_pair = queue_pair.ok_or_else(|| PlaneError::System {
            what: format!("taking over {device}"),
            why: "it has no queue".to_owned(),
        })?;
        config.workers.adopt(device, Arc::clone(shared), queue_pairs, workers)?;
        shared.tun_writer.set_queue_pair(&queue_pair);
        Ok(Self { routing, queue_pair })
    }

    /// The state of the device, whose workers are frozen so.
    pub(super) fn frozen(&self, workers: FrozenWorkers) -> FrozenDevice {
        FrozenDevice {
            framing: self.queue_pair.tun.framing(),
            ipv6: self.routing.families().contains(&Family::V6),
            workers,
        }
    }

    /// Takes everything off the host again.
    pub(super) fn end(self, config: &Config, journal: &mut Journal) -> Lost {
        let lost = self.detach(config);
        journal.undo_device();
        lost
    }

    /// Makes room for another device. The routes that hold the traffic back meanwhile stay, and so do the routing
    /// rules.
    pub(super) fn give_way(self, config: &Config, journal: &mut Journal) -> Lost {
        let lost = self.detach(config);
        journal.undo_settings();
        lost
    }

    fn detach(mut self, config: &Config) -> Lost {
        let unread = self.routing.dropped().unwrap_or(0);
        let (unreceived, declined) = config.workers.lost();
        config.workers.detach();
        Lost { unread, unreceived, declined }
    }
}

fn numbers(host: &floor::Settings) -> RoutingNumbers {
    RoutingNumbers { mark: host.mark, table: host.table, priority: host.rule_priority }
}

/// Finds the device.
fn find(device: &str) -> io::Result<(Netlink, u32)> {
    let mut netlink = Netlink::open()?;
    let index = netlink.link_index(device)?;
    Ok((netlink, index.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?))
}

/// Brings the device up, with nothing of its own on it: no addresses, no router discovery, no redirects.
fn configure(device: &str, mtu: u16) -> io::Result<(Netlink, u32)> {
    let (mut netlink, index) = find(device)?;
    // They go with the device, and none is vital: a family may be missing.
    for (setting, value) in [
        // Packets whose reverse path is the device pass even strict filtering; loose spares the odd asymmetric case.
        ("ipv4", "rp_filter", "2"),
        ("ipv4", "send_redirects", "0"),
        ("ipv6", "addr_gen_mode", "1"),
        ("ipv6", "accept_ra", "0"),
    ]
    .map(|(family, name, value)| (format!("/proc/sys/net/{family}/conf/{device}/{name}"), value))
    {
        if let Err(error) = std::fs::write(&setting, value) {
            tracing::debug!(%error, setting, "not set");
        }
    }
    if let Err(error) = netlink.set_queue(index, WAITING) {
        tracing::debug!(%error, "the queue of the device stays as it is");
    }
    netlink.set_mtu(index, mtu)?;
    netlink.set_up(index)?;
    Ok((netlink, index))
}
