//! The time after which a connection sends again (RFC 6298).
//!
//! smoltcp's timer waits for a second at least. Where a thousand connections share a path, each of them loses the end of
//! a flight now and then, and those that wait for a second get less than half of the others. So this timer waits for a
//! round trip and a fifth of a second, as hosts do. When it runs out, smoltcp is told a later time than that of the stack,
//! so that smoltcp's timer has run out, too.

use crate::packet::is_later;
use smoltcp::time::Duration as StackDuration;
use std::time::{Duration, Instant};

/// At least so much longer than a round trip: a peer may delay its acknowledgment so long.
const LEAST: Duration = Duration::from_millis(200);
/// It doubles up to this (RFC 6298 §2.5).
const MOST: Duration = Duration::from_secs(60);
/// smoltcp waits no longer before it sends again, or asks whether a closed window has opened.
const LONGEST_TIMER: StackDuration = StackDuration::from_secs(60);

/// The timer of one connection.
#[derive(Debug, Default)]
pub(super) struct Retransmission {
    /// The smoothed round trip and its variation; none before the first measurement.
    trip: Option<[Duration; 2]>,
    /// The segment whose round trip is measured: the number behind it, and when it left.
    timed: Option<(u32, Instant)>,
    /// The number that the peer has acknowledged.
    acknowledged: Option<u32>,
    /// When the timer was started, while something is not acknowledged.
    since: Option<Instant>,
    /// How often it has run out since the last measurement of a round trip (RFC 6298 §5.7).
    times: u32,
    /// How far smoltcp's clock is ahead of that of the stack.
    ahead: StackDuration,
}

impl Retransmission {
    /// New octets have left, up to this number.
    pub fn sent(&mut self, up_to: u32, now: Instant) {
        self.timed.get_or_insert((up_to, now));
        self.since.get_or_insert(now);
    }

    /// Octets have left once more: an acknowledgment does not tell of which time it is (Karn's algorithm, RFC 6298 §3).
    pub fn sent_again(&mut self, now: Instant) {
        self.timed = None;
        // A probe of a peer that has acknowledged all is no reason to start.
        self.since = self.since.map(|_| now);
    }

    /// The peer has acknowledged all before this number, of octets up to another. Returns the number that it had
    /// acknowledged before. `None`: another acknowledgment is newer, or no octet had this number.
    pub fn acknowledged(&mut self, number: u32, sent_up_to: u32, now: Instant) -> Option<u32> {
        let before = self.acknowledged.unwrap_or(number);
        if is_later(before, number) || is_later(number, sent_up_to) {
            return None;
        }
        if self.acknowledged.replace(number) != Some(number) {
            self.since = (number != sent_up_to).then_some(now);
            if let Some((_, left)) = self.timed.take_if(|(end, _)| !is_later(*end, number)) {
                self.measured(now.duration_since(left));
            }
        }
        Some(before)
    }

    /// Returns `true` if it has run out twice: the peer may acknowledge nothing any more.
    pub fn is_in_vain(&self) -> bool {
        self.times > 1
    }

    /// RFC 6298 §2.2 and §2.3.
    fn measured(&mut self, trip: Duration) {
        self.times = 0;
        self.trip = Some(match self.trip {
            None => [trip, trip / 2],
            Some([smoothed, variation]) => {
                [(smoothed * 7 + trip) / 8, (variation * 3 + smoothed.abs_diff(trip)) / 4]
            }
        });
    }

    /// When the timer runs out. `None`: nothing is under way, or no round trip is known, and smoltcp's timer is alone.
    pub fn runs_out(&self) -> Option<Instant> {
        let [smoothed, variation] = self.trip?;
        let wait = smoothed + (variation * 4).max(LEAST);
        Some(self.since? + wait.saturating_mul(1 << self.times.min(16)).min(MOST))
    }

    /// If the timer has run out, has smoltcp's run out, and starts again for twice the time (RFC 6298 §5.5 and §5.6).
    /// Returns `true` if it has.
    pub fn has_run_out(&mut self, now: Instant) -> bool {
        let has = self.runs_out().is_some_and(|at| at <= now);
        if has {
            self.times += 1;
            self.ahead += LONGEST_TIMER;
            self.sent_again(now);
        }
        has
    }

    /// How far smoltcp's clock is ahead of that of the stack.
    pub fn ahead(&self) -> StackDuration {
        self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn it_waits_a_round_trip_and_a_fifth_of_a_second_and_then_twice_as_long() {
        let begun = Instant::now();
        let mut timer = Retransmission::default();
        timer.sent(1000, begun);
        assert_eq!(timer.runs_out(), None, "no round trip is known");
        timer.acknowledged(1000, 1000, begun + milliseconds(40));
        assert_eq!(timer.runs_out(), None, "nothing is under way");
        let mut now = begun + milliseconds(50);
        timer.sent(2000, now);
        for wait in [240, 480, 960] {
            assert!(!timer.has_run_out(now + milliseconds(wait - 1)));
            now += milliseconds(wait);
            assert!(timer.has_run_out(now));
        }
        // Each time, smoltcp's clock passes the longest wait of smoltcp's timer, and never goes back.
        assert_eq!(timer.ahead(), LONGEST_TIMER * 3);
        for _ in 0..100 {
            now += MOST;
            assert!(timer.has_run_out(now));
        }
        assert_eq!(timer.runs_out(), Some(now + MOST));
        // What was sent again says nothing about the round trip, which may be longer than the timer waits.
        timer.acknowledged(1500, 2000, now);
        assert_eq!(timer.runs_out(), Some(now + MOST));
        timer.acknowledged(2000, 2000, now);
        assert_eq!(timer.runs_out(), None);
        timer.sent(3000, now);
        timer.acknowledged(3000, 3000, now + milliseconds(40));
        timer.sent(4000, now);
        assert_eq!(timer.runs_out(), Some(now + milliseconds(240)));
        assert_eq!(timer.ahead(), LONGEST_TIMER * 103);
    }

    /// Of the path, for example, because the peer has moved.
    #[test]
    fn a_longer_round_trip_is_measured_after_a_while() {
        let mut now = Instant::now();
        let mut timer = Retransmission::default();
        timer.sent(1, now);
        timer.acknowledged(1, 1, now + milliseconds(20));
        let mut in_vain = 0;
        for number in 2..20 {
            timer.sent(number, now);
            let arrives = now + milliseconds(600);
            while let Some(at) = timer.runs_out().filter(|at| *at < arrives) {
                assert!(timer.has_run_out(at));
                in_vain += 1;
            }
            now = arrives;
            timer.acknowledged(number, number, now);
        }
        assert!(in_vain < 5, "{in_vain}");
    }

    #[test]
    fn a_probe_does_not_start_it() {
        let begun = Instant::now();
        let mut timer = Retransmission::default();
        timer.sent(1, begun);
        timer.acknowledged(1, 1, begun);
        timer.sent_again(begun);
        assert_eq!(timer.runs_out(), None);
    }

    #[test]
    fn it_waits_longer_where_round_trips_vary() {
        let mut now = Instant::now();
        let mut timer = Retransmission::default();
        for (number, trip) in (1..).zip([100, 900, 100, 900]) {
            timer.sent(number, now);
            now += milliseconds(trip);
            timer.acknowledged(number, number, now);
        }
        timer.sent(5, now);
        let wait = timer.runs_out().expect("it runs") - now;
        assert!(wait > milliseconds(900) && wait < milliseconds(2000), "{wait:?}");
    }

    #[test]
    fn an_acknowledgment_of_nothing_new_does_not_start_it_again() {
        let begun = Instant::now();
        let mut timer = Retransmission::default();
        timer.sent(u32::MAX, begun);
        timer.acknowledged(u32::MAX, u32::MAX, begun);
        timer.sent(1000, begun);
        let runs_out = timer.runs_out();
        assert_eq!(runs_out, Some(begun + LEAST));
        for (number, is_right) in
            [(u32::MAX, true), (u32::MAX - 1, false), (1001, false), (1 << 31, false)]
        {
            let taken = timer.acknowledged(number, 1000, begun + milliseconds(100));
            assert_eq!(taken, is_right.then_some(u32::MAX), "{number}");
            assert_eq!(timer.runs_out(), runs_out, "{number}");
        }
        timer.acknowledged(500, 1000, begun + milliseconds(100));
        assert_eq!(timer.runs_out(), Some(begun + milliseconds(100) + LEAST));
    }
}
