//! Message numbering, retransmission and the kept answer, window size 1 (RFC 7296 §2.1 to §2.3).

use crate::Config;
use std::time::{Duration, Instant};

/// What a request's number says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The next one: to be answered.
    New,
    /// The last one again: to be answered as before.
    Repeated,
    /// Outside the window: to be ignored.
    Foreign,
}

/// Numbers of both directions of one IKE SA.
#[derive(Debug, Default)]
pub(crate) struct Window {
    next: u32,
    outstanding: Option<Outstanding>,
    expected: u32,
    answer: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Outstanding {
    id: u32,
    octets: Vec<u8>,
    retransmissions: u32,
    due: Instant,
}

/// What a retransmission timer does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Retransmission<'a> {
    NotDue,
    Send(&'a [u8]),
    GiveUp,
}

impl Window {
    /// A responder's window after IKE_SA_INIT and IKE_AUTH were answered.
    pub fn after_auth_answered(answer: Vec<u8>) -> Self {
        Self { expected: 2, answer: Some(answer), ..Self::default() }
    }

    /// The number the next request of ours takes.
    pub fn next_id(&self) -> u32 {
        self.next
    }

    pub fn is_free(&self) -> bool {
        self.outstanding.is_none()
    }

    /// Keeps a request that is being sent for retransmission.
    pub fn sent(&mut self, now: Instant, config: &Config, octets: Vec<u8>) {
        let due = now + config.retransmit_after;
        self.outstanding = Some(Outstanding { id: self.next, octets, retransmissions: 0, due });
        self.next += 1;
    }

    /// Sends the first request anew under the same number (IKE_SA_INIT with a cookie or another group).
    pub fn restart(&mut self, now: Instant, config: &Config, octets: Vec<u8>) {
        self.next = 0;
        self.sent(now, config, octets);
    }

    /// Whether a response of that number is awaited.
    pub fn awaits(&self, id: u32) -> bool {
        self.outstanding.as_ref().is_some_and(|o| o.id == id)
    }

    /// The awaited response has come, or is no longer wanted.
    pub fn concluded(&mut self) {
        self.outstanding = None;
    }

    pub fn classify(&self, id: u32) -> Request {
        // RFC 7296 §2.2: the last number is never used, so that none comes twice.
        if id == self.expected && id < u32::MAX {
            Request::New
        } else if self.answer.is_some() && id.checked_add(1) == Some(self.expected) {
            Request::Repeated
        } else {
            Request::Foreign
        }
    }

    /// Keeps the answer to the request that was [`Request::New`] until the next one comes.
    pub fn answered(&mut self, octets: Vec<u8>) {
        self.expected += 1;
        self.answer = Some(octets);
    }

    pub fn kept_answer(&self) -> Option<&[u8]> {
        self.answer.as_deref()
    }

    pub fn due(&self) -> Option<Instant> {
        self.outstanding.as_ref().map(|o| o.due)
    }

    /// How many times the outstanding request has been sent again.
    pub fn retransmissions(&self) -> u32 {
        self.outstanding.as_ref().map_or(0, |o| o.retransmissions)
    }

    /// RFC 7296 §2.4: exponential, here with factor 1.8.
    pub fn retransmit(&mut self, now: Instant, config: &Config) -> Retransmission<'_> {
        match &mut self.outstanding {
            Some(o) if o.due <= now => {
                if o.retransmissions >= config.retransmissions {
                    return Retransmission::GiveUp;
                }
                o.retransmissions += 1;
                o.due = now + backoff(config.retransmit_after, o.retransmissions);
                Retransmission::Send(&o.octets)
            }
            _ => Retransmission::NotDue,
        }
    }
}

fn backoff(first: Duration, retransmissions: u32) -> Duration {
    first.mul_f64(1.8f64.powi(i32::try_from(retransmissions.min(16)).unwrap_or(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_and_the_last_request_count() {
        let mut window = Window::default();
        assert_eq!(window.classify(0), Request::New);
        assert_eq!(window.classify(u32::MAX), Request::Foreign);
        window.answered(vec![1]);
        assert_eq!(window.classify(0), Request::Repeated);
        assert_eq!(window.classify(1), Request::New);
        assert_eq!(window.classify(2), Request::Foreign);
        assert_eq!(window.kept_answer(), Some(&[1][..]));
    }

    #[test]
    fn numbers_do_not_wrap() {
        let mut window = Window { expected: u32::MAX - 1, ..Window::default() };
        assert_eq!(window.classify(u32::MAX - 1), Request::New);
        window.answered(vec![1]);
        assert_eq!(window.classify(u32::MAX - 1), Request::Repeated);
        assert_eq!(window.classify(u32::MAX), Request::Foreign);
        assert_eq!(window.classify(0), Request::Foreign);
    }

    #[test]
    fn retransmits_with_growing_pauses_and_gives_up() {
        let config = Config { retransmissions: 2, ..Config::default() };
        let mut window = Window::default();
        let start = Instant::now();
        window.sent(start, &config, vec![7]);
        assert_eq!(window.retransmit(start, &config), Retransmission::NotDue);
        let mut pauses = Vec::new();
        let mut last = start;
        loop {
            let due = window.due().unwrap();
            pauses.push(due - last);
            last = due;
            match window.retransmit(due, &config) {
                Retransmission::Send(octets) => assert_eq!(octets, [7]),
                Retransmission::GiveUp => break,
                Retransmission::NotDue => panic!("due but not due"),
            }
        }
        assert_eq!(pauses, [1000, 1800, 3240].map(Duration::from_millis));
        assert!(window.awaits(0) && !window.awaits(1));
    }
}
