//! Corrections of smoltcp's TCP, from outside: what smoltcp is given of a segment that has arrived, how a segment of
//! smoltcp leaves, and which time smoltcp is told.
//!
//! smoltcp has no setting for any of these. So a connection looks at each segment on both ways, and at the clock. It
//! knows nothing of smoltcp but a [`Snapshot`] of the socket.
//!
//! | smoltcp 0.14 | the correction | its place |
//! |---|---|---|
//! | takes any reset within the window | a number that is not exactly the expected one is asked about (RFC 9293 §3.10.7.4) | [`challenge`](Corrections::challenge) |
//! | does not look at an acknowledgment whose number is just outside the window | it gets the expected number | [`arrived`](Corrections::arrived) |
//! | lets one acknowledgment of many segments grow the congestion window by one | it arrives in pieces | [`arrived`](Corrections::arrived) |
//! | acknowledges with an old number while it sends again | the acknowledgment gets the number behind all that was sent | [`leaving`](Corrections::leaving) |
//! | does not know the MTU of the path | the datapath cuts super-packets by it | [`leaving`](Corrections::leaving) |
//! | waits for a second before it sends again | a timer of 200 ms sets its clock ahead | [`due`](Corrections::due) |
//! | ends streams on which neither end has anything to say, if it has a time limit | the limit is here | [`due`](Corrections::due) |
//! | holds back the end of a long queue, if it delays anything | it delays short queues only | [`delays`](Corrections::delays) |
//!
//! The tests in `corrections/needed.rs` show the left column with smoltcp alone, but for the MTU, of which it has no
//! notion. If a later version does better, they fail, and the correction can go.

mod retransmission;
pub(crate) mod segment;

use crate::packet::is_later;
use retransmission::Retransmission;
use segment::{ACK, Delivery, RST, Segment, put_seq};
use smoltcp::socket::tcp::State;
use smoltcp::time::Duration as StackDuration;
use std::time::{Duration, Instant};

/// Acknowledgments that stand for one that covers many segments.
const MOST_PIECES: u32 = 32;
/// The path of a connection may have changed by then, and longer segments are tried again (RFC 1191 §6.3, RFC 8201 §4).
const PATH_MTU_AGE: Duration = Duration::from_secs(600);
/// No acknowledgment that is so far behind all that was sent can be right.
const NEVER_SENT: u32 = 1 << 30;

/// smoltcp's socket at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub state: State,
    /// Octets that have arrived in order and were not read.
    pub unread: usize,
    /// Octets that the receive buffer can have.
    pub capacity: usize,
    /// Octets to be sent that are not acknowledged.
    pub queued: usize,
    /// The interval of probes of an idle peer.
    pub keep_alive: Option<Duration>,
}

/// A peer owes an answer to this. One that owes none may have nothing to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Octets, or the end of the stream.
    Sent,
    /// Probes in this interval.
    Probe(Duration),
}

/// The corrections of one connection.
#[derive(Debug)]
pub(crate) struct Corrections {
    /// Octets of the longest segment that the peer takes.
    segment_len: u16,
    /// The same for the path, if ICMP has told, and since when.
    segment_limit: Option<(u16, Instant)>,
    /// The sequence number of the peer's first octet, once its SYN was taken.
    first: Option<u32>,
    /// Octets that the application has read, modulo 2³².
    read: u32,
    /// Octets of the receive buffer that were free when the stack last told the peer.
    told: usize,
    /// The question that the peer has not answered, and the time since which it has not.
    asked: Option<(Question, Instant)>,
    /// The sequence number behind all that was sent (RFC 9293 §3.3.1, SND.NXT).
    sent_up_to: Option<u32>,
    /// smoltcp sends octets again, and has not come to the last of them.
    rewound: bool,
    retransmission: Retransmission,
    /// The peer takes no more for now.
    window_closed: bool,
    /// A little is sent at once, although something sent before is not acknowledged.
    pub nodelay: bool,
}

impl Snapshot {
    /// Both ends have each other's sequence numbers.
    fn is_synchronized(&self) -> bool {
        use State::{Closed, Listen, SynReceived, SynSent};
        ![Closed, Listen, SynSent, SynReceived].contains(&self.state)
    }

    /// The question that the socket has for the peer.
    fn question(&self) -> Option<Question> {
        use State::{Closing, FinWait1, LastAck};
        let ending = [FinWait1, Closing, LastAck].contains(&self.state);
        match self.keep_alive {
            _ if !self.is_synchronized() => None,
            _ if ending || self.queued > 0 => Some(Question::Sent),
            interval => interval.map(Question::Probe),
        }
    }
}

/// Segments that arrive.
impl Corrections {
    /// `room`: octets of the receive buffer.
    pub fn new(room: usize) -> Self {
        Self {
            segment_len: 536,
            segment_limit: None,
            first: None,
            read: 0,
            told: room,
            asked: None,
            sent_up_to: None,
            rewound: false,
            retransmission: Retransmission::default(),
            window_closed: false,
            nodelay: false,
        }
    }

    /// The sequence number of the next octet from the peer (RFC 9293 §3.3.1, RCV.NXT).
    fn expected(&self, socket: &Snapshot) -> Option<u32> {
        use State::{CloseWait, Closing, LastAck, TimeWait};
        let ended = [CloseWait, Closing, LastAck, TimeWait].contains(&socket.state);
        let arrived = self.read.wrapping_add(socket.unread as u32).wrapping_add(ended.into());
        Some(self.first?.wrapping_add(arrived))
    }

    /// For a reset that a stranger may have guessed, because its number is not exactly the expected one: the segment
    /// that smoltcp is given in its place, so that the peer is asked by an acknowledgment of all that has arrived
    /// (RFC 9293 §3.10.7.4). smoltcp sends one, at most once a second, for an acknowledgment of octets that were never
    /// sent.
    pub fn challenge(&self, segment: &Segment<'_>, socket: &Snapshot) -> Option<Delivery> {
        let expected = self.expected(socket).filter(|_| socket.is_synchronized())?;
        let guessed = segment.flags & RST != 0 && segment.seq != expected;
        let ack = self.sent_up_to?.wrapping_add(NEVER_SENT);
        guessed.then_some(Delivery { seq: segment.seq, ack, flags: ACK })
    }

    /// The segments that smoltcp is given for one that has arrived, in this order.
    pub fn arrived(
        &mut self,
        segment: &Segment<'_>,
        socket: &Snapshot,
        now: Instant,
    ) -> impl Iterator<Item = Delivery> + use<> {
        self.hears(segment.seq, socket, now);
        let expected = self.renumbers(segment, socket);
        let whole = Delivery { seq: expected.unwrap_or(segment.seq), ..segment.delivery() };
        let acknowledged = self.acknowledges(segment, whole.seq, socket, now);
        let pieces = acknowledged
            .filter(|_| segment.is_pure_ack())
            .map(|before| self.pieces([before, segment.ack], socket.queued));
        // With the number before the expected one, a peer also asks whether this end lives.
        let asks = expected.is_some_and(|expected| is_later(expected, segment.seq));
        let probe = asks.then_some(segment.delivery());
        let pieces = pieces.into_iter().flatten().map(move |ack| Delivery { ack, ..whole });
        pieces.chain([whole]).chain(probe)
    }

    /// The peer's SYN was taken. No later one counts.
    pub fn began(&mut self, syn: &Segment<'_>) {
        self.segment_len = syn.maximum_segment_size();
        self.first = Some(syn.seq.wrapping_add(1));
    }

    /// The peer has sent a segment with this sequence number: it lives.
    fn hears(&mut self, number: u32, socket: &Snapshot, now: Instant) {
        let is_near = self.expected(socket).is_some_and(|expected| {
            let distance = (number.wrapping_sub(expected) as i32).unsigned_abs();
            u64::from(distance) <= socket.capacity as u64
        });
        if let Some((_, since)) = self.asked.as_mut().filter(|_| is_near) {
            *since = now;
        }
    }

    /// The number with which smoltcp looks at an acknowledgment, if it would not look at this one. It takes
    /// neither the number behind a window that is full, nor the one before the octet with which the peer has asked
    /// whether a closed window has opened. Two ends that both have such a number would stand still, so their
    /// acknowledgments are valid (RFC 9293 §3.10.7.4).
    fn renumbers(&self, segment: &Segment<'_>, socket: &Snapshot) -> Option<u32> {
        let expected = self.expected(socket).filter(|_| socket.is_synchronized())?;
        let ahead = u64::from(segment.seq.wrapping_sub(expected));
        let is_behind = (1..=socket.capacity as u64).contains(&ahead);
        let is_before = segment.seq == expected.wrapping_sub(1);
        (segment.is_pure_ack() && (is_behind || is_before)).then_some(expected)
    }

    /// The segment may acknowledge octets, and tell a window. Returns the number that was acknowledged before. `None`: it
    /// does not, its acknowledgment is old or wrong, or the segment is an older one or goes too far, so that smoltcp
    /// does not look at it either.
    fn acknowledges(
        &mut self,
        segment: &Segment<'_>,
        seq: u32,
        socket: &Snapshot,
        now: Instant,
    ) -> Option<u32> {
        let most = socket.capacity as u64;
        let is_acceptable = self.expected(socket).is_none_or(|expected| {
            let begins = seq.wrapping_sub(expected);
            let ends = begins.wrapping_add(segment.payload.unwrap_or(0));
            u64::from(begins) <= most || (1..=most).contains(&u64::from(ends))
        });
        let counts = segment.flags & ACK != 0 && is_acceptable;
        let sent_up_to = self.sent_up_to.filter(|_| counts)?;
        let before = self.retransmission.acknowledged(segment.ack, sent_up_to, now)?;
        self.window_closed = segment.window == 0;
        Some(before)
    }

    /// An acknowledgment of many segments lets the congestion window grow by one (RFC 5681 §3.1), because without
    /// offload each few segments have one of their own. So it is given to smoltcp in pieces, as if it had come so
    /// (RFC 3465). The last piece is the acknowledgment itself.
    fn pieces(
        &self,
        [before, number]: [u32; 2],
        queued: usize,
    ) -> impl Iterator<Item = u32> + use<> {
        let covered = number.wrapping_sub(before);
        let in_flight = self.sent_up_to.map_or(0, |end| end.wrapping_sub(before));
        // Otherwise something else than the congestion window limits sending.
        let limits = u32::try_from(queued).unwrap_or(u32::MAX) > in_flight;
        let pieces = match limits {
            true => (covered / u32::from(self.segment_len)).min(MOST_PIECES),
            false => 0,
        };
        (1..pieces).map(move |index| before.wrapping_add(covered / pieces * index))
    }
}

/// Segments that leave.
impl Corrections {
    /// Notes a segment of smoltcp, and corrects its number. Returns how many octets of payload may leave in one piece.
    ///
    /// A segment that only acknowledges or resets gets the number of the octet that is sent next. smoltcp would give it
    /// the number of the octet that is sent *again* next, which a peer that has received it takes for an old segment: it
    /// would not look at the acknowledgment (RFC 9293 §3.10.7.4). If both ends sent again, neither would ever learn of
    /// what has arrived. Otherwise smoltcp's number is the right one: that of the octet with which it asks whether a
    /// closed window has opened, as long as the peer has not taken that octet.
    pub fn leaving(&mut self, octets: &mut [u8], now: Instant) -> u16 {
        let segment = Segment::read(octets);
        let (seq, flags, end) = (segment.seq, segment.flags, segment.end());
        match self.sent_up_to {
            // A reset of a connection that has never begun has the number that a stranger has acknowledged.
            Some(before) if end == seq => {
                if self.rewound && flags & ACK != 0 && is_later(before, end) {
                    put_seq(octets, before);
                }
            }
            None if end == seq => {}
            Some(before) if !is_later(end, before) => {
                self.rewound = end != before;
                self.retransmission.sent_again(now);
            }
            _ => {
                self.sent_up_to = Some(end);
                self.rewound = false;
                self.retransmission.sent(end, now);
            }
        }
        self.longest_segment(now)
    }

    /// Octets of the longest segment that both the peer and the path take.
    pub fn longest_segment(&mut self, now: Instant) -> u16 {
        if self.segment_limit.is_some_and(|(_, since)| now.duration_since(since) >= PATH_MTU_AGE) {
            self.segment_limit = None;
        }
        self.segment_limit.map_or(self.segment_len, |(limit, _)| limit.min(self.segment_len))
    }

    /// ICMP has told that the path takes no more octets of payload than this.
    pub fn path_takes(&mut self, octets: u16, now: Instant) {
        self.segment_limit = Some((octets.min(self.longest_segment(now)), now));
    }

    /// Returns `true` if an octet with this number is under way, or the beginning or the end of the stream.
    pub fn is_under_way(&self, number: u32, socket: &Snapshot) -> bool {
        let back = self.sent_up_to.map(|end| u64::from(end.wrapping_sub(number)));
        back.is_some_and(|back| (1..=socket.queued as u64 + 1).contains(&back))
    }

    /// The sequence number behind all that was sent.
    #[cfg(test)]
    pub fn sent_up_to(&self) -> Option<u32> {
        self.sent_up_to
    }

    /// Whether smoltcp delays a little (RFC 9293 §3.7.4). It would hold back the last octets that do not fill a segment,
    /// however long the queue in front of them.
    pub fn delays(&self, socket: &Snapshot) -> bool {
        socket.queued < usize::from(self.segment_len) && !self.nodelay
    }

    /// Returns `true` if the peer takes nothing for now: its window is closed, or it has not answered for long.
    pub fn is_stalled(&self) -> bool {
        self.window_closed || self.retransmission.is_in_vain()
    }
}

/// Time, and the application.
impl Corrections {
    /// How far smoltcp's clock is ahead of that of the stack.
    pub fn ahead(&self) -> StackDuration {
        self.retransmission.ahead()
    }

    /// Has smoltcp send again if it is time. Returns `true` if the peer has not answered in time: the connection is over.
    ///
    /// `patience`: the time that the peer has.
    pub fn due(&mut self, socket: &Snapshot, patience: Duration, now: Instant) -> bool {
        self.retransmission.has_run_out(now);
        self.deadline(socket, patience, now).is_some_and(|at| at <= now)
    }

    /// When something becomes [`due`](Self::due).
    pub fn due_at(
        &mut self,
        socket: &Snapshot,
        patience: Duration,
        now: Instant,
    ) -> Option<Instant> {
        let deadline = self.deadline(socket, patience, now);
        [deadline, self.retransmission.runs_out()].into_iter().flatten().min()
    }

    /// The time until which the peer has to answer. smoltcp has a time limit of its own, but ends with it streams on
    /// which neither end has anything to say.
    fn deadline(&mut self, socket: &Snapshot, patience: Duration, now: Instant) -> Option<Instant> {
        let question = socket.question();
        if self.asked.map(|(question, _)| question) != question {
            self.asked = question.map(|question| (question, now));
        }
        let (question, since) = self.asked?;
        since.checked_add(match question {
            Question::Sent => patience,
            Question::Probe(interval) => interval.saturating_add(patience),
        })
    }

    /// The stack has told the peer of so much room in the receive buffer, if there was anything to tell.
    pub fn has_told(&mut self, room: usize) {
        self.told = room;
    }

    /// The application has read octets, and there is so much room now. Returns `true` if the peer is to be told: there is
    /// twice as much as it knows of.
    pub fn has_read(&mut self, octets: usize, room: usize) -> bool {
        self.read = self.read.wrapping_add(octets as u32);
        room / 2 >= self.told
    }
}

#[cfg(test)]
mod needed;
#[cfg(test)]
mod tests;
