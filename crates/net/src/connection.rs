//! One TCP connection, between the handle of the application and the task of the stack.

use crate::budget::Allotted;
use crate::clock::now;
use crate::corrections::{Corrections, Snapshot};
use crate::end::End;
use crate::incoming::Incoming;
use crate::mailbox::Mailbox;
use crate::sending::{Sending, UnderWay};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Flow {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// A connection. Its lock is held for a copy, or for a few packets.
pub(crate) struct Connection {
    pub flow: Flow,
    /// Its number, by which timers of the same moment are told apart.
    pub number: u64,
    inner: Mutex<Inner>,
    /// It waits for the task of the stack.
    waits: AtomicBool,
    /// It is among those that have their turn.
    queued: AtomicBool,
    mailbox: Arc<Mailbox>,
}

/// smoltcp's socket, alone in its set: the stack visits no other socket for its packets.
pub(crate) struct OnlySocket {
    pub set: SocketSet<'static>,
    handle: SocketHandle,
}

pub(crate) struct Inner {
    pub socket: OnlySocket,
    pub corrections: Corrections,
    /// The state when the stack last looked; `None` if the stack does not have the connection.
    pub before: Option<State>,
    pub end: Option<End>,
    /// The time at which the stack looks again, in microseconds of its clock.
    pub wakes_at: Option<u64>,
    /// The handle is gone since.
    pub orphaned: Option<Instant>,
    /// The listener that waits for it to be established.
    pub listener: Option<Weak<Incoming>>,
    under_way: UnderWay,
    /// The connection is among those that make room for others.
    pub yields: bool,
    memory: Option<Allotted>,
}

impl Inner {
    /// Takes octets to be sent, as far as there is room.
    pub fn put(&mut self, octets: &[u8]) -> usize {
        let room = self.under_way.room(self.socket_ref().send_queue()).min(octets.len());
        let put = self.socket().send_slice(&octets[..room]).unwrap_or(0);
        self.count();
        put
    }

    /// Takes note of the octets under way.
    pub fn count(&mut self) {
        // A queue is not emptied when its connection ends by a reset or unanswered.
        let waits = self.corrections.is_stalled() || self.state() == State::Closed;
        let octets = if waits { 0 } else { self.socket().send_queue() };
        self.under_way.becomes(octets);
    }

    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.socket.set.get_mut(self.socket.handle)
    }

    fn socket_ref(&self) -> &Socket<'static> {
        self.socket.set.get(self.socket.handle)
    }

    pub fn state(&self) -> State {
        self.socket_ref().state()
    }

    /// What corrections know of the socket.
    pub fn snapshot(&self) -> Snapshot {
        let socket = self.socket_ref();
        Snapshot {
            state: socket.state(),
            unread: socket.recv_queue(),
            capacity: socket.recv_capacity(),
            queued: socket.send_queue(),
            keep_alive: socket.keep_alive().map(Duration::from),
        }
    }

    /// Returns `true` if the peer has all that this end has said, nobody reads what it says, and it does not end.
    pub fn can_yield(&self) -> bool {
        self.orphaned.is_some() && self.state() == State::FinWait2
    }

    /// Ends the connection so that another one has its memory.
    pub fn makes_room(&mut self) {
        self.socket().abort();
        self.memory = None;
    }

    /// Octets that the receive buffer has room for.
    pub fn room(&self) -> usize {
        let socket = self.socket_ref();
        socket.recv_capacity() - socket.recv_queue()
    }
}

impl Connection {
    pub fn new(
        flow: Flow,
        number: u64,
        [receive, send]: [usize; 2],
        memory: Allotted,
        sending: Arc<Sending>,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        // Zeroed memory of this size takes no room before it is used.
        let [received, sent] = [receive, send].map(|octets| SocketBuffer::new(vec![0; octets]));
        let mut socket = Socket::new(received, sent);
        socket.set_congestion_control(CongestionControl::Cubic);
        let mut set = SocketSet::new(Vec::new());
        let handle = set.add(socket);
        let inner = Inner {
            socket: OnlySocket { set, handle },
            corrections: Corrections::new(receive),
            before: None,
            end: None,
            wakes_at: None,
            orphaned: None,
            listener: None,
            under_way: UnderWay::new(sending),
            yields: false,
            memory: Some(memory),
        };
        let (waits, queued) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { flow, number, inner: Mutex::new(inner), waits, queued, mailbox }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of an application's waker leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the stack look at the connection soon.
    pub fn call(self: &Arc<Self>) {
        if !self.waits.swap(true, Ordering::AcqRel) {
            self.mailbox.call(Arc::clone(self));
        }
    }

    /// The stack looks at it now.
    pub fn answered(&self) {
        self.waits.store(false, Ordering::Release);
    }

    /// Returns `true` if it was not among those that have their turn.
    pub fn queues(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// It has its turn.
    pub fn has_turn(&self) {
        self.queued.store(false, Ordering::Release);
    }

    /// The handle is gone: octets that are written are still sent, octets that were not read are refused.
    pub fn abandon(self: &Arc<Self>) {
        let mut inner = self.lock();
        inner.orphaned = Some(now());
        let unread = inner.socket().recv_queue() > 0;
        // The peer's last octets are acknowledged at once, so that the connection can be forgotten.
        inner.socket().set_ack_delay(None);
        match inner.state() {
            State::SynSent => inner.socket().abort(),
            _ if unread => inner.socket().abort(),
            _ => inner.socket().close(),
        }
        drop(inner);
        self.call();
    }
}

pub(crate) fn stack_duration(duration: Duration) -> smoltcp::time::Duration {
    smoltcp::time::Duration::from_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
