//! Message numbering, retransmission and the kept answer, window size 1 (RFC 7296 §2.1 to §2.3).

mod frozen;

use super::message::Message;
use super::reassembly::Reassembly;
use crate::config::Config;
use crate::deadlines::{after, times};
use crate::wire::header::Header;
use crate::wire::payload::Payload;
use policy::ChildTunnel;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The class of a request by its message ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The next one: to be answered.
    New,
    /// The last one again: to be answered as before.
    Repeated,
    /// Outside the window: to be ignored.
    Foreign,
}

/// Numbers of both directions of one IKE SA. Values that exist only during an exchange have their own place in memory,
/// since exchanges take the least part of an IKE SA's life.
#[derive(Debug, Default)]
pub(crate) struct Window {
    next: u32,
    outstanding: Option<Box<Outstanding>>,
    expected: u32,
    kept: Option<Kept>,
    /// Fragments of the request that is expected.
    pub requests: Reassembly,
    /// The request that is expected: it has come, and its answer has to wait.
    pub postponed: Option<Box<Postponed>>,
    /// Fragments of the answer that is awaited.
    pub answers: Reassembly,
}

#[derive(Debug)]
struct Outstanding {
    id: u32,
    message: Message,
    /// When it was sent first.
    since: Instant,
    retransmissions: u32,
    /// Those of them since the message was last cut smaller.
    alike: u32,
    due: Instant,
}

/// A request that is answered later.
#[derive(Debug)]
pub(crate) struct Postponed {
    pub header: Header,
    pub payloads: Vec<Payload>,
    /// The address and port of this side that it came to, and those of the peer.
    pub ends: (SocketAddr, SocketAddr),
    /// Fragment 1 of it, or all of it.
    pub octets: Vec<u8>,
    pub until: Until,
}

/// When a request is answered that has to wait.
#[derive(Debug)]
pub(crate) enum Until {
    /// When the data plane is prepared for the traffic that the peer names. The rule of this phase 2 tunnel stays as
    /// long as this is there.
    Prepared(Arc<ChildTunnel>),
    /// When the peer has answered the Delete of a Child SA that this side has replaced.
    Deleted,
    Time(Instant),
}

/// The attempts to send a request. The last two values grow if it is cut smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Their number, if no answer comes.
    pub most: u32,
    /// When no more answer is awaited.
    pub given_up_at: Instant,
}

/// The last answer.
#[derive(Debug)]
struct Kept {
    message: Message,
    repetitions: u32,
}

/// A message that goes unanswered although it was sent this often again is tried in smaller fragments, and an answer
/// alike whose request still comes (RFC 7383 §2.4, §2.5.2).
const TRIES_OF_ONE_SIZE: u32 = 2;

/// With so many messages behind it an IKE SA is replaced: as many numbers again are left for that.
const WORN: u32 = 1 << 31;

/// The action of a retransmission timer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Retransmission<'a> {
    NotDue,
    Send(&'a [Vec<u8>]),
    GiveUp,
}

impl Window {
    /// A responder's window after an IKE_AUTH request with that message ID was answered.
    pub fn after_auth_answered(id: u32, answer: Message) -> Self {
        let kept = Some(Kept { message: answer, repetitions: 0 });
        Self { expected: id + 1, kept, ..Self::default() }
    }

    /// The window of a half-open IKE SA, whose IKE_SA_INIT was answered.
    pub fn of_stranger() -> Self {
        Self { expected: 1, requests: Reassembly::of_stranger(), ..Self::default() }
    }

    /// The number the next request of ours takes.
    pub fn next_id(&self) -> u32 {
        self.next
    }

    /// Returns `true` if the message IDs of either direction are running out (RFC 7296 §2.2).
    pub fn is_worn(&self) -> bool {
        self.next.max(self.expected) >= WORN
    }

    pub fn is_free(&self) -> bool {
        self.outstanding.is_none()
    }

    /// Keeps a request that is being sent for retransmission.
    pub fn sent(&mut self, now: Instant, config: &Config, message: Message) {
        let due = after(now, config.retransmit_after);
        let (id, since) = (self.next, now);
        let outstanding = Outstanding { id, message, since, retransmissions: 0, alike: 0, due };
        self.outstanding = Some(Box::new(outstanding));
        self.answers.clear();
        self.next += 1;
    }

    /// Sends the first request again under the same number (IKE_SA_INIT with a cookie or another group).
    pub fn restart(&mut self, now: Instant, config: &Config, message: Message) {
        self.next = 0;
        self.sent(now, config, message);
    }

    /// Returns `true` if a response with that message ID is awaited.
    pub fn awaits(&self, id: u32) -> bool {
        self.outstanding.as_ref().is_some_and(|o| o.id == id)
    }

    /// The awaited response has come, or is no longer wanted.
    pub fn concluded(&mut self) {
        self.outstanding = None;
        self.answers.clear();
    }

    /// Returns `true` if the next request has that message ID.
    pub fn expects(&self, id: u32) -> bool {
        self.expected == id
    }

    pub fn classify(&self, id: u32) -> Request {
        // RFC 7296 §2.2: the last number is never used, so that none comes twice.
        if id == self.expected && id < u32::MAX {
            Request::New
        } else if self.kept.is_some() && id.checked_add(1) == Some(self.expected) {
            Request::Repeated
        } else {
            Request::Foreign
        }
    }

    /// Keeps the answer to the request that was [`Request::New`] until the next one comes. Returns its datagrams.
    pub fn answered(&mut self, message: Message) -> &[Vec<u8>] {
        self.expected += 1;
        self.requests.clear();
        self.kept.insert(Kept { message, repetitions: 0 }).message.datagrams()
    }

    /// The last answer, which is asked for again. `smaller` cuts it smaller, if that can be; it is asked when the
    /// answer seems not to get through.
    pub fn repeat_answer(
        &mut self,
        smaller: impl FnOnce(&Message) -> Option<Message>,
    ) -> Option<&[Vec<u8>]> {
        let kept = self.kept.as_mut()?;
        kept.repetitions += 1;
        if kept.repetitions > TRIES_OF_ONE_SIZE
            && let Some(message) = smaller(&kept.message)
        {
            *kept = Kept { message, repetitions: 0 };
        }
        Some(kept.message.datagrams())
    }

    /// The request that is not answered.
    pub fn outstanding(&self) -> Option<&[Vec<u8>]> {
        self.outstanding.as_ref().map(|o| o.message.datagrams())
    }

    /// When the request that is expected is to be answered, if it has come and its answer waits for that.
    pub fn answer_due(&self) -> Option<Instant> {
        match self.postponed.as_ref()?.until {
            Until::Time(due) => Some(due),
            Until::Prepared(_) | Until::Deleted => None,
        }
    }

    /// The number of the request that is not answered.
    pub fn outstanding_id(&self) -> Option<u32> {
        self.outstanding.as_ref().map(|o| o.id)
    }

    /// When the outstanding request was sent first.
    pub fn waits_since(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|o| o.since)
    }

    pub fn due(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|o| o.due)
    }

    /// The number of times that the outstanding request has been sent again.
    pub fn retransmissions(&self) -> u32 {
        self.outstanding.as_ref().map_or(0, |o| o.retransmissions)
    }

    /// The attempts to send the request that is not answered.
    pub fn attempts(&self, config: &Config) -> Option<Attempts> {
        let o = self.outstanding.as_ref()?;
        let pauses = o.alike + 1..=config.retransmissions;
        let left = config.retransmissions.saturating_sub(o.alike);
        Some(Attempts {
            most: o.retransmissions + 1 + left,
            given_up_at: pauses.fold(o.due, |at, n| after(at, backoff(config.retransmit_after, n))),
        })
    }

    /// RFC 7296 §2.4: exponential, here with factor 1.8. `smaller` cuts the message smaller, if that can be; it is
    /// asked when the message seems not to get through, and then waiting starts over (RFC 7383 §2.5.2).
    pub fn retransmit(
        &mut self,
        now: Instant,
        config: &Config,
        smaller: impl FnOnce(&Message) -> Option<Message>,
    ) -> Retransmission<'_> {
        let Some(o) = self.outstanding.as_mut().filter(|o| o.due <= now) else {
            return Retransmission::NotDue;
        };
        if o.alike >= TRIES_OF_ONE_SIZE.min(config.retransmissions)
            && let Some(message) = smaller(&o.message)
        {
            o.message = message;
            o.alike = 0;
        } else if o.alike >= config.retransmissions {
            return Retransmission::GiveUp;
        } else {
            o.alike += 1;
        }
        o.retransmissions += 1;
        o.due = after(now, backoff(config.retransmit_after, o.alike));
        Retransmission::Send(o.message.datagrams())
    }
}

fn backoff(first: Duration, retransmissions: u32) -> Duration {
    times(first, 1.8f64.powi(i32::try_from(retransmissions.min(16)).unwrap_or(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_and_the_last_request_count() {
        let mut window = Window::default();
        assert_eq!(window.classify(0), Request::New);
        assert_eq!(window.classify(u32::MAX), Request::Foreign);
        window.answered(Message::unprotected(vec![1]));
        assert_eq!(window.classify(0), Request::Repeated);
        assert_eq!(window.classify(1), Request::New);
        assert_eq!(window.classify(2), Request::Foreign);
        assert_eq!(window.repeat_answer(|_| None), Some(&[vec![1]][..]));
    }

    #[test]
    fn numbers_do_not_wrap() {
        let mut window = Window { expected: u32::MAX - 1, ..Window::default() };
        assert_eq!(window.classify(u32::MAX - 1), Request::New);
        window.answered(Message::unprotected(vec![1]));
        assert_eq!(window.classify(u32::MAX - 1), Request::Repeated);
        assert_eq!(window.classify(u32::MAX), Request::Foreign);
        assert_eq!(window.classify(0), Request::Foreign);
    }

    #[test]
    fn numbers_of_either_direction_wear_out() {
        assert!(!Window { next: WORN - 1, expected: WORN - 1, ..Window::default() }.is_worn());
        assert!(Window { next: WORN, ..Window::default() }.is_worn());
        assert!(Window { expected: WORN, ..Window::default() }.is_worn());
    }

    #[test]
    fn retransmits_with_growing_pauses_and_gives_up() {
        let config = Config { retransmissions: 2, ..Config::default() };
        let mut window = Window::default();
        let start = Instant::now();
        window.sent(start, &config, Message::unprotected(vec![7]));
        assert_eq!(window.retransmit(start, &config, |_| None), Retransmission::NotDue);
        let mut pauses = Vec::new();
        let mut last = start;
        let given_up_at = start + Duration::from_millis(1000 + 1800 + 3240);
        loop {
            assert_eq!(window.attempts(&config), Some(Attempts { most: 3, given_up_at }));
            assert_eq!(window.waits_since(), Some(start));
            let due = window.due().unwrap();
            pauses.push(due - last);
            last = due;
            match window.retransmit(due, &config, |_| None) {
                Retransmission::Send(octets) => assert_eq!(octets, [vec![7]]),
                Retransmission::GiveUp => break,
                Retransmission::NotDue => panic!("due but not due"),
            }
        }
        assert_eq!(pauses, [1000, 1800, 3240].map(Duration::from_millis));
        assert!(window.awaits(0) && !window.awaits(1));
        window.concluded();
        assert_eq!(window.attempts(&config), None);
    }

    #[test]
    fn a_message_that_is_cut_smaller_has_all_its_attempts_again() {
        let config = Config { retransmissions: 2, ..Config::default() };
        let mut window = Window::default();
        let start = Instant::now();
        window.sent(start, &config, Message::unprotected(vec![7]));
        for _ in 0..2 {
            let due = window.due().unwrap();
            window.retransmit(due, &config, |_| None);
        }
        let due = window.due().unwrap();
        assert_eq!(window.attempts(&config).unwrap().most, 3);
        window.retransmit(due, &config, |_| Some(Message::unprotected(vec![8])));
        let attempts = window.attempts(&config).unwrap();
        assert_eq!((window.waits_since(), attempts.most), (Some(start), 6));
        assert_eq!(attempts.given_up_at, due + Duration::from_millis(1000 + 1800 + 3240));
    }
}
