//! The plane itself: what it is started with, what it owns, and how it goes.

use super::config::Config;
use super::device::{Device, Lost};
use super::hooks::Hooks;
use super::outer::Wayfinder;
use super::receivers::Receivers;
use super::requests::Release;
use super::strays::OfReceivers;
use super::under_way::UnderWay;
use super::worker::{Shared, TunWriter};
use crypto::Suite;
use esp::datapath::frozen::FrozenDatapath;
use esp::datapath::{Datapath, Inward, Settings};
use esp::discard::Discard;
use esp::encap::inner_mtu;
use esp::gso::Gso;
use esp::plane::{Encapsulation, Filtering, Ledger, PlaneError};
use floor::port::{IkeReceiver, IkeSender, Strays};
use floor::{Floor, refused};
use host::journal::SharedJournal;
use policy::{KeyBits, Mode};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

mod capabilities;
mod data_plane;
mod frozen;

pub use frozen::FrozenUserspace;

/// The smallest MTU of a device that carries IPv6 (RFC 8200 §5).
const IPV6_MTU: u16 = 1280;

/// One sentence on a counter of [`Userspace::counters`] that is none of the datapath's.
pub fn explanation(counter: &str) -> Option<&'static str> {
    match counter {
        "unsent" => Some("Outbound: an ESP packet that the socket did not take."),
        "unwritten" => Some("Inbound: a packet that the TUN device did not take."),
        "unread" => {
            Some("Outbound: a packet that came faster than it was read, or while no SA was up.")
        }
        "unreceived" => Some("Inbound: a datagram that came faster than it was read."),
        _ => None,
    }
}

/// A running userspace plane. Dropping it undoes what it did to the host, unless [`Floor::block_on_drop`] says
/// otherwise.
pub struct Userspace {
    /// The device's settings are undone before the device goes.
    journal: SharedJournal,
    device: Option<Device>,
    shared: Arc<Shared>,
    receivers: Receivers,
    datapath: Datapath,
    /// The settings of device and routing.
    host: Arc<floor::Config>,
    config: Config,
    mtu: u16,
    ledger: Ledger<(), SaForm>,
    /// When a worker was last waited for in vain.
    stalled_at: Option<Instant>,
    /// By devices that are gone.
    lost: Lost,
    /// When the device was made again last.
    replaced_at: Option<Instant>,
    /// The reason why no packet passes: a part of this plane is missing on the host.
    fault: Option<String>,
}

/// The properties of an SA that decide how many octets protection adds to a packet.
#[derive(Clone, Copy)]
struct SaForm {
    suite: Suite,
    mode: Mode,
}

impl fmt::Debug for Userspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Userspace")
            .field("rules", &self.ledger.rules().count())
            .field("device", &self.host.settings.device)
            .field("mtu", &self.mtu)
            .finish_non_exhaustive()
    }
}

impl Userspace {
    /// Makes the device, its routing, and the sockets of ESP and AH without UDP; beside the kernel's plane, all of these
    /// come with the first rule and go with the last. Until rules are added no traffic is touched, and no thread runs
    /// before the first SA, or the first rule that waits for a packet.
    ///
    /// The calling thread's network namespace is the plane's, and that of `floor`, which ends after the plane. Needs
    /// CAP_NET_ADMIN and CAP_NET_RAW.
    ///
    /// # Errors
    /// If the system refuses something.
    pub fn start(floor: &Floor, config: Config, hooks: Hooks) -> Result<Self, PlaneError> {
        let (host, settings) = (Arc::clone(floor.config()), &config.settings);
        let receivers = Receivers::on(Arc::clone(floor.port()), host.settings.mark);
        // The commonest suite, in UDP over IPv4; SAs that need more lower it.
        let (suite, udp) = (Suite::AesGcm16(KeyBits::B256), Encapsulation::Udp);
        let derived = inner_mtu(settings.outer.mtu().into(), suite, Mode::Tunnel, udp, false);
        let mtu = settings.mtu.unwrap_or_else(|| device_mtu(derived));

        let shared = Arc::new(share(&host, &config, hooks, Beginning::New)?);
        let datapath = shared.datapath.clone();
        datapath.set_device_mtu(mtu.into());
        datapath.clone().set_filter(Arc::clone(floor.filter()))?;
        let mut plane = Self {
            journal: floor.journal().clone(),
            device: None,
            shared,
            receivers,
            datapath,
            host,
            config,
            mtu,
            ledger: Ledger::default(),
            stalled_at: None,
            lost: Lost::default(),
            replaced_at: None,
            fault: None,
        };
        if !plane.host.beside_kernel {
            plane.appear()?;
        }
        Ok(plane)
    }

    /// Sends IKE messages and keepalives from the port that ESP uses.
    pub fn ike_sender(&self) -> IkeSender {
        IkeSender::of(self.receivers.port())
    }

    /// Receives IKE messages on that port, and routers' messages about packets that were too long for them. No thread
    /// of the plane does: the caller is to wait for them, and to let these go when it ends.
    pub fn ike_receivers(&self) -> Vec<IkeReceiver> {
        let strays: Arc<dyn Strays> = Arc::new(OfReceivers::new(&self.shared));
        let mut receivers = IkeReceiver::of_port(self.receivers.port(), &strays);
        if self.config.settings.outer.learned_for.is_some() {
            receivers.extend(IkeReceiver::of_routers(&strays));
        }
        receivers
    }

    /// The mark for every socket whose packets must not enter a tunnel.
    pub fn mark(&self) -> u32 {
        self.host.settings.mark
    }

    /// MTU of the device.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The dropped packets by reason: those of [`Datapath::counters`], and those that [`explanation`] knows.
    pub fn counters(&mut self) -> BTreeMap<&'static str, u64> {
        self.config.workers.discard_unread();
        let mut counters = self.datapath.counters();
        let (unreceived, declined) = self.config.workers.lost();
        let Lost { unread: unread_before, unreceived: before, declined: declined_before } =
            self.lost;
        // Packets that come while there is no SA have an unknown SPI.
        *counters.entry(Discard::UnknownSpi.name()).or_default() += declined + declined_before;
        counters.insert("unreceived", unreceived + before);
        let routing = self.device.as_mut().map(|device| &mut device.routing);
        let unread = routing.and_then(|routing| routing.dropped().ok()).unwrap_or(0);
        counters.insert("unread", unread + unread_before);
        counters.insert("unsent", self.receivers.port().unsent());
        counters.insert("unwritten", self.shared.tun_writer.unwritten.load(Ordering::Relaxed));
        counters
    }

    /// Stops and undoes what was done to the host. Protected traffic is no longer this plane's concern: it takes
    /// whatever other routes there are.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Userspace {
    fn drop(&mut self) {
        self.config.workers.detach();
        self.journal.lock().end_device();
    }
}

/// The beginning of a datapath.
enum Beginning {
    /// Without rules and SAs.
    New,
    /// Where another process has frozen its own, at that instant.
    Frozen(FrozenDatapath, Instant),
}

/// The datapath, and what workers share.
fn share(
    host: &floor::Config,
    config: &Config,
    hooks: Hooks,
    beginning: Beginning,
) -> Result<Shared, PlaneError> {
    let release = Release::new().map_err(|e| refused("making an event descriptor".into(), &e))?;
    let release = Arc::new(release);
    let on_release: Arc<dyn Fn() + Send + Sync> = {
        let release = Arc::clone(&release);
        Arc::new(move || release.want())
    };
    let wayfinder = Wayfinder::new(host.settings.mark)
        .map_err(|e| refused("opening a socket that asks for MTUs".into(), &e))?;
    let tun_writer = Arc::new(TunWriter::default());
    let on_answer: Inward = {
        let tun_writer = Arc::clone(&tun_writer);
        Arc::new(move |packet: &[u8]| tun_writer.write(packet, Gso::NONE))
    };
    let settings = Settings {
        crypto: Arc::clone(&config.crypto),
        outer: config.settings.outer,
        system_mtu: Some(Arc::new(move |peer| wayfinder.mtu(peer))),
        natt_port: host.natt_port,
        mss_clamp: config.settings.mss_clamp,
        on_notice: Some(Arc::clone(&hooks.notice)),
        on_answer: Some(on_answer),
        on_release: Some(on_release),
    };
    let datapath = match beginning {
        Beginning::New => Datapath::new(settings, Instant::now()),
        Beginning::Frozen(frozen, then) => Datapath::import(settings, frozen, then)?,
    };
    let (under_way, failed) = (UnderWay::default(), AtomicBool::new(false));
    Ok(Shared { datapath, hooks, release, tun_writer, under_way, failed })
}

/// The device's MTU for inner packets of at most so many octets. Below what IPv6 needs, the kernel would switch IPv6
/// off; there the outer packets are fragmented instead.
fn device_mtu(inner: usize) -> u16 {
    u16::try_from(inner).unwrap_or(u16::MAX).max(IPV6_MTU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_always_carries_ipv6() {
        assert_eq!(device_mtu(0), 1280);
        assert_eq!(device_mtu(1419), 1419);
        assert_eq!(device_mtu(100_000), u16::MAX);
    }
}
