//! The parts of a network that handles and the task of the stack share.

use crate::budget::Budget;
use crate::connection::{Connection, Flow};
use crate::incoming::Incoming;
use crate::mailbox::Mailbox;
use crate::received::Datagrams;
use crate::routes::Routes;
use crate::sending::Sending;
use crate::settings::Settings;
use policy::PortRange;
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::oneshot;

/// The first of the ports that this end chooses (RFC 6335 §6).
const FIRST_DYNAMIC: u16 = 49_152;

pub(crate) struct Shared {
    pub settings: Settings,
    pub routes: Arc<Routes>,
    pub mailbox: Arc<Mailbox>,
    pub counts: Counts,
    budget: Budget,
    pub sending: Arc<Sending>,
    sockets: Mutex<Sockets>,
    /// Connections that make room for others, the oldest first.
    yielding: Mutex<VecDeque<Weak<Connection>>>,
    numbers: Numbers,
}

/// There is no memory for one more connection.
#[derive(Debug)]
pub(crate) struct NoRoom;

impl Shared {
    pub fn new(settings: Settings, routes: Arc<Routes>, mailbox: Arc<Mailbox>) -> Self {
        let budget = Budget::new(settings.memory);
        let numbers = Numbers::new(settings.seed);
        let sending = Arc::new(Sending::new(settings.memory));
        let (sockets, yielding, counts) = (Mutex::default(), Mutex::default(), Counts::default());
        Self { settings, routes, mailbox, counts, budget, sending, sockets, yielding, numbers }
    }

    pub fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn yielding(&self) -> MutexGuard<'_, VecDeque<Weak<Connection>>> {
        self.yielding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection makes room for others from here on.
    pub fn yields(&self, connection: &Arc<Connection>) {
        let mut yielding = self.yielding();
        // Those that have ended by themselves since.
        while yielding.front().is_some_and(|oldest| oldest.strong_count() == 0) {
            yielding.pop_front();
        }
        yielding.push_back(Arc::downgrade(connection));
    }

    /// Ends the oldest of the connections that make room. `false`: there is none.
    fn make_room(&self) -> bool {
        loop {
            let Some(oldest) = self.yielding().pop_front() else { return false };
            let Some(oldest) = oldest.upgrade() else { continue };
            let mut inner = oldest.lock();
            if inner.can_yield() {
                inner.makes_room();
                drop(inner);
                oldest.call();
                return true;
            }
        }
    }

    /// Makes a connection that the stack does not have yet.
    pub fn connection(&self, flow: Flow) -> Result<Arc<Connection>, NoRoom> {
        let Settings { receive_buffer, send_buffer, .. } = self.settings;
        let (sizes, memory) = loop {
            match self.budget.allot([receive_buffer, send_buffer]) {
                Some(allotted) => break allotted,
                None if self.make_room() => {}
                None => return Err(NoRoom),
            }
        };
        let (sending, mailbox) = (Arc::clone(&self.sending), Arc::clone(&self.mailbox));
        let number = self.numbers.next();
        Ok(Arc::new(Connection::new(flow, number, sizes, memory, sending, mailbox)))
    }

    /// A number that nobody can guess.
    pub fn random(&self) -> u64 {
        self.numbers.random()
    }

    /// Takes a port for a connection. `None`: all are taken.
    pub fn take_port(&self, source: IpAddr, ports: PortRange, remote: SocketAddr) -> Option<Flow> {
        let mut sockets = self.sockets();
        let mut flows =
            self.ports(ports).map(|port| Flow { local: SocketAddr::new(source, port), remote });
        let free = flows.find(|flow| !sockets.tcp.contains(flow))?;
        sockets.tcp.insert(free);
        Some(free)
    }

    /// The ports that this end may choose, in a random order of which each one is equally likely to be the first.
    pub fn ports(&self, allowed: PortRange) -> impl Iterator<Item = u16> + use<> {
        let dynamic = PortRange::new(FIRST_DYNAMIC, u16::MAX);
        let range = dynamic.and_then(|dynamic| dynamic.intersection(&allowed)).unwrap_or(allowed);
        let count = u32::from(range.end() - range.start()) + 1;
        let begin = (self.random() % u64::from(count)) as u32;
        (0..count).map(move |i| range.start() + ((begin + i) % count) as u16).filter(|p| *p != 0)
    }
}

/// Random numbers from one seed: the keyed hash of a counter.
struct Numbers {
    key: RandomState,
    seed: u64,
    count: AtomicU64,
}

impl Numbers {
    fn new(seed: u64) -> Self {
        Self { key: RandomState::new(), seed, count: AtomicU64::new(0) }
    }

    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    fn random(&self) -> u64 {
        self.key.hash_one((self.seed, self.next()))
    }
}

/// The owners of ports, and the waiters for echoes.
#[derive(Default)]
pub(crate) struct Sockets {
    tcp: HashSet<Flow>,
    listeners: ByPort<Incoming>,
    udp: ByPort<Datagrams>,
    echoes: HashMap<(IpAddr, (u16, u16)), oneshot::Sender<()>>,
}

/// Sockets of one kind, by their ports.
type ByPort<T> = BTreeMap<u16, Vec<(Option<IpAddr>, Weak<T>)>>;

fn find<T>(sockets: &ByPort<T>, local: SocketAddr) -> Option<Arc<T>> {
    let all = sockets.get(&local.port())?;
    [Some(local.ip()), None].into_iter().find_map(|wanted| {
        let mut sockets = all.iter().filter(|(address, _)| *address == wanted);
        // One that was dropped may still stand here.
        sockets.find_map(|(_, socket)| socket.upgrade())
    })
}

/// `false`: another one has it.
fn claim<T>(sockets: &mut ByPort<T>, local: SocketAddr, socket: &Arc<T>) -> bool {
    let address = Some(local.ip()).filter(|address| !address.is_unspecified());
    let all = sockets.entry(local.port()).or_default();
    all.retain(|(_, socket)| socket.strong_count() > 0);
    let free = all.iter().all(|(taken, _)| *taken != address);
    if free {
        all.push((address, Arc::downgrade(socket)));
    }
    free
}

impl Sockets {
    /// A connection is over.
    pub fn forget(&mut self, flow: Flow) {
        self.tcp.remove(&flow);
    }

    /// A connection is over, and its ports stay reserved.
    pub fn keep(&mut self, flow: Flow) {
        self.tcp.insert(flow);
    }

    /// Returns `true` if somebody has, or recently had, a connection of these ports.
    pub fn is_known(&self, flow: Flow) -> bool {
        self.tcp.contains(&flow)
    }

    pub fn listener(&self, local: SocketAddr) -> Option<Arc<Incoming>> {
        find(&self.listeners, local)
    }

    pub fn listen(&mut self, local: SocketAddr, listener: &Arc<Incoming>) -> bool {
        claim(&mut self.listeners, local, listener)
    }

    pub fn udp(&self, local: SocketAddr) -> Option<Arc<Datagrams>> {
        find(&self.udp, local)
    }

    pub fn bind(&mut self, local: SocketAddr, socket: &Arc<Datagrams>) -> bool {
        claim(&mut self.udp, local, socket)
    }

    /// Waits for an echo reply.
    pub fn expect(&mut self, from: IpAddr, name: (u16, u16)) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        self.echoes.retain(|_, waiting| !waiting.is_closed());
        self.echoes.insert((from, name), tell);
        told
    }

    /// An echo reply has come.
    pub fn answered(&mut self, from: IpAddr, name: (u16, u16)) {
        if let Some(waiting) = self.echoes.remove(&(from, name)) {
            let _ = waiting.send(());
        }
    }
}

/// Packets that came out of a tunnel and were dropped.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    damaged: AtomicU64,
    not_ours: AtomicU64,
    too_many: AtomicU64,
}

impl Counts {
    pub fn damaged(&self) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
    }

    pub fn not_ours(&self) {
        self.not_ours.fetch_add(1, Ordering::Relaxed);
    }

    pub fn too_many(&self) {
        self.too_many.fetch_add(1, Ordering::Relaxed);
    }

    pub fn table(&self) -> BTreeMap<&'static str, u64> {
        let counts = [
            ("net_checksum", &self.damaged),
            ("net_not_own_address", &self.not_ours),
            ("net_queue_full", &self.too_many),
        ];
        counts.into_iter().map(|(name, count)| (name, count.load(Ordering::Relaxed))).collect()
    }
}
