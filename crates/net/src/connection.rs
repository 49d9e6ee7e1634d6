//! One TCP connection, between the handle of the application and the task of the stack.

use crate::budget::Allotted;
use crate::clock::now;
use crate::end::End;
use crate::incoming::Incoming;
use crate::mailbox::Mailbox;
use crate::retransmission::Retransmission;
use crate::sending::Sending;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The path of a connection may have changed by then, and longer segments are tried again (RFC 1191 §6.3, RFC 8201 §4).
const PATH_MTU_AGE: Duration = Duration::from_secs(600);

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

/// A peer owes an answer to this. One that owes none may have nothing to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// Octets, or the end of the stream.
    Sent,
    /// Probes in this interval.
    Probe(Duration),
}

pub(crate) struct Inner {
    /// A set of one: the stack visits no other socket for its packets.
    pub set: SocketSet<'static>,
    handle: SocketHandle,
    /// The stack has it.
    pub opened: bool,
    pub end: Option<End>,
    /// The state when the stack last looked.
    pub before: State,
    /// The time at which the stack looks again, in microseconds of its clock.
    pub wakes_at: Option<u64>,
    /// Octets of the receive buffer that were free when the stack last told the peer.
    pub told: usize,
    /// The handle is gone since.
    pub orphaned: Option<Instant>,
    /// The listener that waits for it to be established.
    pub listener: Option<Weak<Incoming>>,
    /// Octets of the longest segment that the peer takes.
    pub segment_len: u16,
    /// The same for the path, if ICMP has told, and since when.
    pub segment_limit: Option<(u16, Instant)>,
    /// The sequence number of the peer's first octet, once its SYN was taken.
    pub first: Option<u32>,
    /// Octets that the application has read, modulo 2³².
    pub read: u32,
    /// The question that the peer has not answered, and the time since which it has not.
    pub asked: Option<(Question, Instant)>,
    /// The last acknowledgment number of the peer, and the sequence number behind the last octet sent.
    pub acknowledged: Option<u32>,
    pub sent_up_to: Option<u32>,
    /// smoltcp sends octets again, and has not come to the last of them.
    pub rewound: bool,
    pub retransmission: Retransmission,
    /// smoltcp is told a later time than that of the stack, by so much, so that its timers have run out.
    pub ahead: smoltcp::time::Duration,
    pub nodelay: bool,
    /// The peer takes no more for now.
    pub window_closed: bool,
    /// Octets of it that are counted among those under way.
    counted: usize,
    sending: Arc<Sending>,
    /// The connection is among those that make room for others.
    pub yields: bool,
    memory: Option<Allotted>,
}

impl Inner {
    /// Takes octets to be sent, as far as there is room.
    pub fn put(&mut self, octets: &[u8]) -> usize {
        let queued = self.socket().send_queue();
        let room = self.sending.room(queued).min(octets.len());
        let put = self.socket().send_slice(&octets[..room]).unwrap_or(0);
        self.count();
        put
    }

    /// Takes note of the octets under way.
    pub fn count(&mut self) {
        // A queue is not emptied when its connection ends by a reset or unanswered.
        let is_over = self.state() == State::Closed;
        let waits = self.window_closed || self.retransmission.is_in_vain() || is_over;
        let now = if waits { 0 } else { self.socket().send_queue() };
        self.sending.changes([std::mem::replace(&mut self.counted, now), now]);
    }

    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.set.get_mut(self.handle)
    }

    pub fn state(&self) -> State {
        self.set.get::<Socket<'_>>(self.handle).state()
    }

    /// Both ends have each other's sequence numbers.
    fn is_synchronized(&self) -> bool {
        use State::{Closed, Listen, SynReceived, SynSent};
        ![Closed, Listen, SynSent, SynReceived].contains(&self.state())
    }

    /// The sequence number of the next octet from the peer (RFC 9293 §3.3.1, RCV.NXT).
    fn expected(&mut self) -> Option<u32> {
        use State::{CloseWait, Closing, LastAck, TimeWait};
        let ended = [CloseWait, Closing, LastAck, TimeWait].contains(&self.state());
        let unread = self.socket().recv_queue() as u32;
        Some(self.first?.wrapping_add(self.read).wrapping_add(unread).wrapping_add(ended.into()))
    }

    /// Returns `true` for the sequence number of a reset that a stranger may have guessed, because it is not exactly
    /// the expected one (RFC 9293 §3.10.7.4).
    pub fn is_guess(&mut self, number: u32) -> bool {
        self.is_synchronized() && self.expected().is_some_and(|expected| expected != number)
    }

    /// The peer has sent an acknowledgment of the octets before a number, with such a window, in a segment from one
    /// sequence number up to another. smoltcp looks at none of an older segment, nor of one that goes too far.
    pub fn acknowledges(&mut self, segment: [u32; 2], number: u32, window: u16, now: Instant) {
        let most = self.socket().recv_capacity() as u64;
        let is_acceptable = self.expected().is_none_or(|expected| {
            let [begins, ends] = segment.map(|at| u64::from(at.wrapping_sub(expected)));
            begins <= most || (1..=most).contains(&ends)
        });
        let Some(sent_up_to) = self.sent_up_to.filter(|_| is_acceptable) else { return };
        if self.retransmission.acknowledged(number, sent_up_to, now) {
            self.window_closed = window == 0;
        }
    }

    /// The number with which smoltcp looks at a segment without octets, if it would not look at this one. It takes
    /// neither the number behind a window that is full, nor the one before the octet with which the peer has asked
    /// whether a closed window has opened. Two ends that both have such a number would stand still, so their
    /// acknowledgments are valid (RFC 9293 §3.10.7.4).
    pub fn renumbers(&mut self, number: u32) -> Option<u32> {
        let most = self.socket().recv_capacity() as u64;
        let expected = self.expected().filter(|_| self.is_synchronized())?;
        let ahead = u64::from(number.wrapping_sub(expected));
        ((1..=most).contains(&ahead) || number == expected.wrapping_sub(1)).then_some(expected)
    }

    /// The peer has sent a segment with this sequence number: it lives.
    pub fn hears(&mut self, number: u32, now: Instant) {
        let most = self.socket().recv_capacity() as u64;
        let is_near = self.expected().is_some_and(|expected| {
            u64::from((number.wrapping_sub(expected) as i32).unsigned_abs()) <= most
        });
        if let Some((_, since)) = self.asked.as_mut().filter(|_| is_near) {
            *since = now;
        }
    }

    /// Updates [`asked`](Self::asked), and returns it. smoltcp has a time limit of its own, but ends with it streams on
    /// which neither end has anything to say.
    pub fn asks(&mut self, now: Instant) -> Option<(Question, Instant)> {
        let question = if self.is_synchronized() { self.question() } else { None };
        if self.asked.map(|(question, _)| question) != question {
            self.asked = question.map(|question| (question, now));
        }
        self.asked
    }

    fn question(&mut self) -> Option<Question> {
        use State::{Closing, FinWait1, LastAck};
        let ending = [FinWait1, Closing, LastAck].contains(&self.state());
        let socket = self.socket();
        match socket.keep_alive() {
            _ if ending || socket.send_queue() > 0 => Some(Question::Sent),
            interval => interval.map(|interval| Question::Probe(interval.into())),
        }
    }

    /// Octets of the longest segment that both the peer and the path take.
    pub fn longest_segment(&mut self, now: Instant) -> u16 {
        if self.segment_limit.is_some_and(|(_, since)| now.duration_since(since) >= PATH_MTU_AGE) {
            self.segment_limit = None;
        }
        self.segment_limit.map_or(self.segment_len, |(limit, _)| limit.min(self.segment_len))
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
    pub fn room(&mut self) -> usize {
        let socket = self.socket();
        socket.recv_capacity() - socket.recv_queue()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.sending.changes([self.counted, 0]);
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
        let buffer = |octets| SocketBuffer::new(vec![0; octets]);
        let mut socket = Socket::new(buffer(receive), buffer(send));
        socket.set_congestion_control(CongestionControl::Cubic);
        let mut set = SocketSet::new(Vec::new());
        let handle = set.add(socket);
        let inner = Inner {
            set,
            handle,
            opened: false,
            end: None,
            before: State::Closed,
            wakes_at: None,
            told: receive,
            orphaned: None,
            listener: None,
            segment_len: 536,
            segment_limit: None,
            first: None,
            read: 0,
            asked: None,
            acknowledged: None,
            sent_up_to: None,
            rewound: false,
            retransmission: Retransmission::default(),
            ahead: smoltcp::time::Duration::ZERO,
            nodelay: false,
            window_closed: false,
            counted: 0,
            sending,
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
