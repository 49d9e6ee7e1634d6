//! What the host has of the plane while there are rules: the device with its first queue_pair, routes, and the guard.

use super::config::Config;
use super::filter::Enforcement;
use super::guard;
use super::offering::Offering;
use super::queue_pair::QueuePair;
use super::refusal::{plane_error, refused};
use super::socket::Port;
use super::tun::Tun;
use super::tun_routes::TunRoutes;
use super::worker::Shared;
use esp::plane::{PlaneError, Rule};
use host::journal::{Change, Journal};
use host::netlink::Netlink;
use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

/// Packets that wait for a worker, in each queue of the device: as many as other network devices have by default, twice those
/// of a TUN device. At 200,000 packets per second it takes as long as a worker may have to wait for a core.
const WAITING: u32 = 1000;

/// A device, and what leads traffic to it. [`Device::end`] undoes it.
pub(super) struct Device {
    // Declared in the order in which they are to go: the host's settings, then the device.
    pub routing: TunRoutes,
    /// The guard's table; `None` where there is none.
    guard: Option<String>,
    _queue_pair: Arc<QueuePair>,
}

/// What a plane lost by a device that is gone.
#[derive(Clone, Copy, Default)]
pub(super) struct Lost {
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
    /// Creates the device and the routing table, which is empty at first, and has the workers serve it.
    pub(super) fn start(
        config: &Config,
        mtu: u16,
        port: &Arc<Port>,
        shared: &Arc<Shared>,
        journal: &mut Journal,
    ) -> Result<Self, PlaneError> {
        // Another plane may have begun to use the table since this one has started.
        journal.claim(&config.state_dir, config.table).map_err(plane_error)?;
        let tun = Tun::create(&config.device, !config.without.contains(&Offering::DeviceOffload))?;
        let (netlink, index) = configure(&config.device, mtu)
            .map_err(|e| refused(format!("setting up {}", config.device), &e))?;
        let numbers = (config.mark, config.table, config.rule_priority);
        let routing = TunRoutes::start(netlink, index, numbers, journal)?;
        let queue_pair = Arc::new(QueuePair::first(tun, port)?);
        config.workers.attach(&config.device, Arc::clone(shared), Arc::clone(&queue_pair))?;
        shared.inside.is_at(&queue_pair);
        Ok(Self { routing, guard: None, _queue_pair: queue_pair })
    }

    /// Takes everything off the host again.
    pub(super) fn end(mut self, config: &Config, journal: &mut Journal) -> Lost {
        let unread = self.routing.dropped().unwrap_or(0);
        let (unreceived, declined) = config.workers.lost();
        config.workers.detach();
        journal.undo_device();
        Lost { unread, unreceived, declined }
    }

    /// Whether cleartext that should have been protected is dropped (RFC 4301 §5.2).
    pub(super) fn has_guard(&self) -> bool {
        self.guard.is_some()
    }

    /// Puts the guard in force, where it is wanted and to be had.
    pub(super) fn start_guard(
        &mut self,
        config: &Config,
        enforcement: &Enforcement,
        journal: &mut Journal,
    ) -> Result<(), PlaneError> {
        if !config.inbound_guard {
            return Ok(());
        }
        let name = guard::table(&config.device);
        journal.record(&Change::Guard(name.clone())).map_err(plane_error)?;
        match install_guard(&name, config, enforcement, std::iter::empty()) {
            Ok(()) => self.guard = Some(name),
            Err(error) => {
                journal.forget(&Change::Guard(name));
                tracing::warn!(
                    %error,
                    "no inbound guard: cleartext that should be protected is not dropped; install nftables for it"
                );
            }
        }
        Ok(())
    }

    /// Guards these rules, too: all of them or none.
    pub(super) fn extend_guard(&self, rules: &[Rule]) -> io::Result<()> {
        self.guard.as_ref().map_or(Ok(()), |name| guard::extend(name, rules))
    }

    /// Guards these rules and no others.
    pub(super) fn rebuild_guard<'a>(
        &self,
        config: &Config,
        enforcement: &Enforcement,
        rules: impl Iterator<Item = &'a Rule>,
    ) {
        let Some(name) = &self.guard else { return };
        if let Err(error) = install_guard(name, config, enforcement, rules) {
            tracing::warn!(%error, "the inbound guard still drops cleartext of a rule that is gone");
        }
    }
}

fn install_guard<'a>(
    name: &str,
    config: &Config,
    enforcement: &Enforcement,
    rules: impl Iterator<Item = &'a Rule>,
) -> io::Result<()> {
    let host = (config.device.as_str(), config.natt_port, config.beside_kernel);
    guard::install(name, host, enforcement.filter(), rules)
}

/// Brings the device up, with nothing of its own on it: no addresses, no router discovery, no redirects.
fn configure(device: &str, mtu: u16) -> io::Result<(Netlink, u32)> {
    let mut netlink = Netlink::open()?;
    let index =
        netlink.link_index(device)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    // They go with the device, and none is vital: a family may be missing.
    for (setting, value) in [
        // Whose reverse path is the device passes even strict filtering; loose spares the odd asymmetric case.
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
