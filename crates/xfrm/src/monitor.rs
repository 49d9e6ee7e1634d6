//! The kernel's reports: packets that want an SA, SAs that reach a limit, peers that move, and changes by other
//! programs.

#![forbid(unsafe_code)]

use super::config::{Disturbance, Hooks};
use super::flow::address;
use super::known::Known;
use super::larval::Larvae;
use super::netlink::{Kernel, Netlink, messages, parse, wipe};
use super::ownership::{REQIDS, has_our_rank, templates};
use super::policies::rule_of;
use super::reports::{self, By};
use super::state::Name;
use esp::plane::{Notice, PacketSummary, PlaneError};
use netlink_packet_xfrm::monitor::AcquireMessage;
use netlink_packet_xfrm::policy::DelGetMessage;
use netlink_packet_xfrm::state::GetDumpMessage;
use netlink_packet_xfrm::{
    AF_INET, Selector, XFRM_MSG_ACQUIRE, XFRM_MSG_DELPOLICY, XFRM_MSG_DELSA, XFRM_MSG_EXPIRE,
    XFRM_MSG_FLUSHPOLICY, XFRM_MSG_FLUSHSA, XFRM_MSG_MAPPING, XFRMNLGRP_ACQUIRE, XFRMNLGRP_EXPIRE,
    XFRMNLGRP_MAPPING, XFRMNLGRP_POLICY, XFRMNLGRP_SA, XfrmAttrs, XfrmMessage,
};
use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Instant;
use zeroize::{Zeroize, Zeroizing};

/// The numbers under which the kernel knows monitors. A namespace has each but once, which keeps other planes away.
const PORTS: [u32; 2] = [0x7670_6e64, 0x7670_6e65];

/// The place of a monitor in its network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// That of a plane that has begun by itself.
    #[default]
    First,
    /// That of a plane that goes on after one at the first place.
    Second,
}

impl Place {
    /// The other place.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    fn port(self) -> u32 {
        PORTS[self as usize]
    }
}

/// Octets that wait to be read when thousands of SAs change at once.
const BUFFER: usize = 4 << 20;

/// The thread that listens. Dropping it ends the thread.
pub(super) struct Monitor {
    place: Place,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts it beside a plane that asks the kernel from this port.
    pub(super) fn start(
        place: Place,
        hooks: Hooks,
        known: &Known,
        plane: u32,
    ) -> Result<Self, PlaneError> {
        Self::listening(place, hooks, known, plane).map_err(|error| PlaneError::System {
            what: "listening to the kernel's XFRM".to_owned(),
            why: match error.raw_os_error() {
                Some(libc::EADDRINUSE) => {
                    "another kernel plane runs in this network namespace; stop it first".to_owned()
                }
                _ => error.to_string(),
            },
        })
    }

    /// Its place.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    fn listening(place: Place, hooks: Hooks, known: &Known, plane: u32) -> io::Result<Self> {
        let (stop, stopped) = UnixStream::pair()?;
        let kernel = Netlink::open()?;
        let socket = listen(place, [plane, kernel.port()])?;
        let larvae = Larvae::default();
        let listener = Listener { socket, hooks, known: known.clone(), kernel, larvae };
        let thread = std::thread::Builder::new()
            .name("xfrm-monitor".to_owned())
            .spawn(move || listener.run(&stopped))?;
        Ok(Self { place, stop: Some(stop), thread: Some(thread) })
    }
}

impl Monitor {
    /// Returns `true` if a monitor runs in the calling thread's network namespace.
    pub(super) fn runs_elsewhere() -> bool {
        PORTS.into_iter().any(|port| {
            let socket = Socket::new(NETLINK_XFRM);
            let bound = socket.and_then(|mut socket| socket.bind(&SocketAddr::new(port, 0)));
            matches!(bound, Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE))
        })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(place: Place, own: [u32; 2]) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_XFRM)?;
    socket.bind(&SocketAddr::new(place.port(), 0))?;
    socket.set_non_blocking(true)?;
    // The plane and this thread know their own changes. Reports of new SAs would contain their keys.
    reports::only(
        &socket,
        &[
            (XFRM_MSG_ACQUIRE, By::Anyone),
            (XFRM_MSG_EXPIRE, By::Anyone),
            (XFRM_MSG_MAPPING, By::Anyone),
            (XFRM_MSG_FLUSHSA, By::Anyone),
            (XFRM_MSG_FLUSHPOLICY, By::Anyone),
            (XFRM_MSG_DELSA, By::Others(own)),
            (XFRM_MSG_DELPOLICY, By::Others(own)),
        ],
    )?;
    // The host's limit may be lower; lost reports are then made good.
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
        let _ = socket.set_rx_buf_sz(BUFFER as u32);
    }
    for group in
        [XFRMNLGRP_ACQUIRE, XFRMNLGRP_EXPIRE, XFRMNLGRP_SA, XFRMNLGRP_POLICY, XFRMNLGRP_MAPPING]
    {
        socket.add_membership(group)?;
    }
    Ok(socket)
}

struct Listener {
    socket: Socket,
    hooks: Hooks,
    known: Known,
    kernel: Netlink,
    larvae: Larvae,
}

impl Listener {
    fn run(mut self, stopped: &UnixStream) {
        let mut octets = Zeroizing::new(vec![0; 1 << 16]);
        loop {
            let mut watched =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
            let wait = self.larvae.next().map(|at| {
                let left = at.saturating_duration_since(Instant::now());
                // Rather late than over and over.
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
            });
            match poll(&mut watched, wait.as_ref()) {
                Ok(_) if !watched[1].revents().is_empty() => {
                    self.larvae.remove(None, &mut self.kernel);
                    return;
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the kernel's reports about SAs are no longer heard");
                    return;
                }
            }
            self.larvae.remove(Some(Instant::now()), &mut self.kernel);
            match self.socket.recv(&mut &mut octets[..], 0) {
                Ok(length) => {
                    let length = length.min(octets.len());
                    for heard in messages(&octets[..length]) {
                        if let Some(mut message) = parse(heard.message_type(), heard.payload()) {
                            self.hear(&message);
                            wipe(&mut message);
                        }
                    }
                    octets[..length].zeroize();
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.look_at_all();
                    (self.hooks.disturbance)(Disturbance::Unknown);
                }
                Err(_) => {}
            }
        }
    }

    /// Finds out what was reported and not heard: which SAs have reached a limit.
    fn look_at_all(&mut self) {
        let known = self.known.names();
        match self.kernel.list(XfrmMessage::GetDumpSa(GetDumpMessage::default())) {
            Ok(listed) => {
                let states = listed.iter().filter_map(|message| match message {
                    XfrmMessage::AddSa(state) => Some(state),
                    _ => None,
                });
                let missed = self.known.missed(&known, states);
                missed.into_iter().for_each(|notice| (self.hooks.notice)(notice));
            }
            Err(error) => tracing::warn!(%error, "limits that SAs have reached are not known"),
        }
    }

    fn hear(&mut self, message: &XfrmMessage) {
        match message {
            XfrmMessage::Acquire(acquire) => {
                if let Some(notice) = acquired(acquire) {
                    self.larvae.add(acquire, Instant::now());
                    (self.hooks.notice)(notice);
                }
            }
            XfrmMessage::Expire(message) => {
                let (info, hard) = (&message.expire.state, message.expire.hard != 0);
                if let Some(sa) = self.known.expire(&Name::of_info(info), hard) {
                    (self.hooks.notice)(Notice::Expiring { sa, hard });
                }
            }
            XfrmMessage::Mapping(message) => {
                let map = &message.map;
                if let Some(sa) = self.known.find(&Name::of(&map.id)) {
                    let remote = (address(&map.new_saddr, map.id.family), map.new_sport).into();
                    (self.hooks.notice)(Notice::PeerMoved { sa, remote });
                }
            }
            XfrmMessage::DeleteSa(message) => {
                if let Some(sa) = self.known.find(&Name::of(&message.user_sa_id)) {
                    (self.hooks.disturbance)(Disturbance::State(sa));
                }
            }
            XfrmMessage::FlushSa(_) => (self.hooks.disturbance)(Disturbance::States),
            XfrmMessage::FlushPolicy(_) => (self.hooks.disturbance)(Disturbance::Policies),
            XfrmMessage::DeletePolicy(message) if is_ours(message) => {
                (self.hooks.disturbance)(Disturbance::Policies);
            }
            _ => {}
        }
    }
}

/// Returns `true` if a policy that is gone had this plane's priority.
fn is_ours(message: &DelGetMessage) -> bool {
    message.nlas.iter().any(|attribute| match attribute {
        XfrmAttrs::PolicyInfo(info) => has_our_rank(info),
        _ => false,
    })
}

/// The notice for a packet that met a policy of this plane and no SA.
fn acquired(message: &AcquireMessage) -> Option<Notice> {
    let (rule, _) = rule_of(message.acquire.policy.priority)?;
    let ours = templates(&message.nlas).any(|template| REQIDS.contains(&template.reqid));
    let packet = summary(&message.acquire.selector);
    ours.then_some(Notice::Acquire { rule, packet })
}

/// The packet that a selector was made of.
fn summary(selector: &Selector) -> PacketSummary {
    let [mut source, mut destination] = [
        (&selector.saddr, selector.sport, selector.sport_mask),
        (&selector.daddr, selector.dport, selector.dport_mask),
    ]
    .map(|(end, port, mask)| (address(end, selector.family), (mask == u16::MAX).then_some(port)));
    let icmp = if selector.family == AF_INET { 1 } else { super::flow::ICMPV6 };
    if selector.proto == icmp {
        // Type and code are both ends'.
        let both = source.1.zip(destination.1).map(|(kind, code)| kind << 8 | code & 0xff);
        (source.1, destination.1) = (both, both);
    }
    PacketSummary { protocol: selector.proto, source, destination }
}
