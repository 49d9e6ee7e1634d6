use super::segment::{FIN, SYN};
use super::*;
use proptest::prelude::*;

/// Octets of the receive buffer.
const ROOM: usize = 50_000;
const MSS: u16 = 1200;
/// The least time before something is sent again, in milliseconds.
const LEAST: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(300);
const LONGEST_TIMER: StackDuration = StackDuration::from_secs(60);

/// A segment, octet by octet.
fn octets(seq: u32, ack: u32, flags: u8, window: u16, options: &[u8], payload: usize) -> Vec<u8> {
    let mut octets = vec![4, 1, 0, 80];
    octets.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    octets.extend([((20 + options.len()) as u8 / 4) << 4, flags]);
    octets.extend(window.to_be_bytes());
    octets.extend([0; 4]);
    octets.extend(options);
    octets.resize(octets.len() + payload, 7);
    octets
}

fn pure(seq: u32, ack: u32) -> Vec<u8> {
    octets(seq, ack, ACK, 0xffff, &[], 0)
}

/// The number of the peer's first octet, and that of this end's: both wrap soon.
const THEIRS: u32 = u32::MAX - 9;
const OURS: u32 = u32::MAX - 499;

/// A connection that is established, of which neither end has sent anything.
struct Subject {
    corrections: Corrections,
    socket: Snapshot,
    now: Instant,
}

impl Subject {
    fn new() -> Self {
        let state = State::Established;
        let socket = Snapshot { state, unread: 0, capacity: ROOM, queued: 0, keep_alive: None };
        let (corrections, now) = (Corrections::new(ROOM), Instant::now());
        let mut subject = Self { corrections, socket, now };
        let syn = octets(THEIRS.wrapping_sub(1), 0, SYN, 0xffff, &[2, 4, 4, 0xb0], 0);
        subject.leaves(OURS.wrapping_sub(1), SYN | ACK, 0);
        subject.corrections.began(&Segment::read(&syn));
        subject.arrives(&pure(THEIRS, OURS));
        subject
    }

    fn arrives(&mut self, octets: &[u8]) -> Vec<Delivery> {
        let segment = Segment::read(octets);
        self.corrections.arrived(&segment, &self.socket, self.now).collect()
    }

    /// Has smoltcp send a segment. Returns the number with which it leaves.
    fn leaves(&mut self, seq: u32, flags: u8, payload: usize) -> u32 {
        let mut segment = octets(seq, THEIRS, flags, 0xffff, &[], payload);
        self.corrections.leaving(&mut segment, self.now);
        Segment::read(&segment).seq
    }

    /// Has smoltcp send so many octets for the first time.
    fn sends(&mut self, payload: usize) {
        let seq = self.corrections.sent_up_to.expect("the SYN has left");
        self.leaves(seq, ACK, payload);
        self.socket.queued += payload;
    }

    fn challenge(&self, seq: u32, flags: u8) -> Option<Delivery> {
        let reset = octets(seq, 1, flags, 0, &[], 0);
        self.corrections.challenge(&Segment::read(&reset), &self.socket)
    }

    fn is_due(&mut self) -> bool {
        self.corrections.due(&self.socket, PATIENCE, self.now)
    }

    fn due_at(&mut self) -> Option<Instant> {
        self.corrections.due_at(&self.socket, PATIENCE, self.now)
    }

    fn waits(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }
}

fn delivery(seq: u32, ack: u32) -> Delivery {
    Delivery { seq, ack, flags: ACK }
}

#[test]
fn a_reset_counts_with_the_exact_number_only_also_where_numbers_wrap() {
    let mut subject = Subject::new();
    subject.socket.unread = 20;
    assert!(!subject.corrections.has_read(5, ROOM - 20));
    // 25 octets have arrived, and then the end of the stream.
    for (state, expected) in [
        (State::Established, 15),
        (State::FinWait2, 15),
        (State::CloseWait, 16),
        (State::LastAck, 16),
    ] {
        subject.socket.state = state;
        assert_eq!(subject.challenge(expected, RST), None, "{state}");
        for guess in [expected - 1, expected + 1, expected + (1 << 31), THEIRS] {
            for flags in [RST, RST | ACK] {
                let asked = delivery(guess, OURS.wrapping_add(NEVER_SENT));
                assert_eq!(subject.challenge(guess, flags), Some(asked), "{state} and {guess}");
            }
            assert_eq!(subject.challenge(guess, ACK), None, "it is no reset");
        }
    }
    for state in [State::SynSent, State::SynReceived, State::Closed] {
        subject.socket.state = state;
        assert_eq!(subject.challenge(1, RST), None, "{state}: no number is known");
    }
}

#[test]
fn an_acknowledgment_just_outside_the_window_gets_the_expected_number() {
    let sack = [&[1, 1, 5, 10][..], &[7; 8]].concat();
    for options in [&[][..], &sack] {
        let mut subject = Subject::new();
        // The next octet has the number 0.
        subject.socket.unread = 10;
        subject.sends(1000);
        let acknowledges = |seq| octets(seq, OURS, ACK, 0xffff, options, 0);
        for seq in [1, 700, ROOM as u32] {
            assert_eq!(subject.arrives(&acknowledges(seq)), [delivery(0, OURS)], "{seq}");
        }
        // The peer also asks with it whether this end lives.
        let both = [delivery(0, OURS), delivery(u32::MAX, OURS)];
        assert_eq!(subject.arrives(&acknowledges(u32::MAX)), both);
        for seq in [0, u32::MAX - 1, ROOM as u32 + 1, 1 << 31] {
            assert_eq!(subject.arrives(&acknowledges(seq)), [delivery(seq, OURS)], "{seq}");
        }
        // Octets have the number that they have.
        let octet = octets(u32::MAX, OURS, ACK, 0xffff, options, 1);
        assert_eq!(subject.arrives(&octet), [delivery(u32::MAX, OURS)]);
        subject.socket.state = State::SynReceived;
        assert_eq!(subject.arrives(&acknowledges(u32::MAX)), [delivery(u32::MAX, OURS)]);
    }
}

#[test]
fn an_acknowledgment_of_many_segments_arrives_in_pieces() {
    let mut subject = Subject::new();
    subject.sends(12_000);
    // More waits, and only the congestion window holds it back.
    subject.socket.queued += 1;
    let parts: Vec<_> =
        (1..=10).map(|part| delivery(THEIRS, OURS.wrapping_add(part * 1200))).collect();
    assert_eq!(subject.arrives(&pure(THEIRS, OURS.wrapping_add(12_000))), parts);
    // A part of a segment is none of its own.
    subject.sends(60_000);
    let all: Vec<_> = subject.arrives(&pure(THEIRS, OURS.wrapping_add(12_000 + 2399)));
    assert_eq!(all.len(), 1);
    let all = subject.arrives(&pure(THEIRS, OURS.wrapping_add(72_000)));
    assert_eq!(all.len(), MOST_PIECES as usize);
    assert_eq!(all.last(), Some(&delivery(THEIRS, OURS.wrapping_add(72_000))));
}

#[test]
fn an_acknowledgment_is_one_where_the_congestion_window_does_not_limit() {
    // All that waits is under way.
    let mut subject = Subject::new();
    subject.sends(12_000);
    assert_eq!(subject.arrives(&pure(THEIRS, OURS.wrapping_add(12_000))).len(), 1);
    // Octets come with it.
    let mut subject = Subject::new();
    subject.sends(12_000);
    subject.socket.queued += 1;
    let octets = octets(THEIRS, OURS.wrapping_add(12_000), ACK, 0xffff, &[], 3);
    assert_eq!(subject.arrives(&octets).len(), 1);
}

#[test]
fn an_acknowledgment_of_octets_that_were_never_sent_changes_nothing() {
    let mut subject = Subject::new();
    subject.sends(12_000);
    subject.socket.queued += 1;
    let due_at = subject.due_at();
    subject.waits(40);
    for beyond in [1, NEVER_SENT, 1 << 31] {
        let ack = OURS.wrapping_add(12_000 + beyond);
        let forged = octets(THEIRS, ack, ACK, 0, &[], 0);
        // smoltcp answers it.
        assert_eq!(subject.arrives(&forged), [delivery(THEIRS, ack)]);
        assert!(!subject.corrections.is_stalled(), "{beyond}");
        assert_eq!(subject.due_at(), due_at, "{beyond}");
    }
    // Nor do those whose segment is not of this stream, or older than others.
    let far = THEIRS.wrapping_add(1 << 30);
    subject.arrives(&pure(far, OURS.wrapping_add(12_000)));
    subject.arrives(&pure(THEIRS, OURS.wrapping_sub(1)));
    // The right one still arrives in as many pieces as it covers segments.
    assert_eq!(subject.arrives(&pure(THEIRS, OURS.wrapping_add(12_000))).len(), 10);
}

#[test]
fn a_window_is_that_of_the_newest_acknowledgment() {
    let mut subject = Subject::new();
    subject.sends(3000);
    let acknowledges = |subject: &mut Subject, seq: u32, octets_: u32, window| {
        let ack = OURS.wrapping_add(octets_);
        subject.arrives(&octets(seq, ack, ACK, window, &[], 0));
        subject.corrections.is_stalled()
    };
    assert!(!acknowledges(&mut subject, THEIRS, 1000, 1));
    assert!(acknowledges(&mut subject, THEIRS, 2000, 0));
    assert!(acknowledges(&mut subject, THEIRS, 1500, 0xffff), "it was overtaken");
    assert!(acknowledges(&mut subject, THEIRS.wrapping_sub(2), 2000, 0xffff), "it is old");
    assert!(acknowledges(&mut subject, THEIRS.wrapping_add(ROOM as u32 + 1), 2000, 0xffff));
    assert!(!acknowledges(&mut subject, THEIRS, 2000, 0xffff), "it has opened");
    assert!(acknowledges(&mut subject, THEIRS, 3000, 0));
    // A peer whose question about this end's window was answered has the number before.
    assert!(!acknowledges(&mut subject, THEIRS.wrapping_sub(1), 3000, 0xffff));
}

#[test]
fn an_acknowledgment_leaves_with_the_number_behind_all_that_was_sent() {
    let mut subject = Subject::new();
    subject.sends(3000);
    let end = OURS.wrapping_add(3000);
    assert_eq!(subject.leaves(end, ACK, 0), end);
    // smoltcp begins again with the first octet: numbers of octets stay.
    let again = OURS.wrapping_add(1200);
    assert_eq!(subject.leaves(OURS, ACK, 1200), OURS);
    assert_eq!(subject.leaves(again, ACK, 0), end);
    assert_eq!(subject.leaves(again, RST | ACK, 0), end);
    assert_eq!(subject.leaves(again, RST, 0), again, "it answers a stranger");
    // Of the last octets, some were not sent before.
    assert_eq!(subject.leaves(again, ACK, 3000), again);
    assert_eq!(subject.corrections.sent_up_to(), Some(OURS.wrapping_add(4200)));
    assert_eq!(subject.leaves(again, ACK, 0), again, "smoltcp does not send again");
}

/// smoltcp asks with one octet whether a closed window has opened, and with an octet before the first whether the peer
/// lives. Neither changes the number of what follows.
#[test]
fn after_the_last_octet_smoltcp_s_number_is_the_right_one() {
    let mut subject = Subject::new();
    subject.sends(3000);
    let end = OURS.wrapping_add(3000);
    assert_eq!(subject.leaves(OURS, ACK, 3000), OURS, "all is sent again");
    for _ in 0..2 {
        assert_eq!(subject.leaves(end, ACK, 1), end, "it asks about the window");
        assert_eq!(subject.leaves(end, ACK, 0), end);
    }
    let mut subject = Subject::new();
    assert_eq!(subject.leaves(OURS.wrapping_sub(1), ACK, 1), OURS.wrapping_sub(1));
    assert_eq!(subject.due_at(), None, "nothing is under way");
    assert_eq!(subject.corrections.sent_up_to(), Some(OURS));
    // The end of the stream has a number.
    assert_eq!(subject.leaves(OURS, FIN | ACK, 10), OURS);
    assert_eq!(subject.corrections.sent_up_to(), Some(OURS.wrapping_add(11)));
}

#[test]
fn smoltcp_s_clock_goes_ahead_when_an_acknowledgment_is_late() {
    let mut subject = Subject::new();
    subject.sends(1000);
    subject.waits(40);
    subject.arrives(&pure(THEIRS, OURS.wrapping_add(1000)));
    subject.socket.queued = 0;
    assert_eq!(subject.due_at(), None);
    subject.sends(1000);
    // The SYN was answered at once, so the round trip is a mean of none and 40 ms.
    let at = subject.due_at().expect("octets are under way");
    assert!(at > subject.now + Duration::from_millis(LEAST));
    let wait = at - subject.now;
    for (times, ahead) in [(1, LONGEST_TIMER), (2, LONGEST_TIMER * 2), (4, LONGEST_TIMER * 3)] {
        assert_eq!(subject.due_at(), Some(subject.now + wait * times));
        subject.now += wait * times - Duration::from_nanos(1);
        assert!(!subject.is_due());
        assert_eq!(subject.corrections.ahead(), ahead - LONGEST_TIMER);
        subject.now += Duration::from_nanos(1);
        assert!(!subject.is_due(), "the peer may still answer");
        assert_eq!(subject.corrections.ahead(), ahead);
        assert_eq!(subject.corrections.is_stalled(), times > 1);
    }
    subject.arrives(&pure(THEIRS, OURS.wrapping_add(2000)));
    subject.socket.queued = 0;
    assert_eq!(subject.due_at(), None);
    assert_eq!(subject.corrections.ahead(), LONGEST_TIMER * 3, "it does not go back");
}

/// Karn's algorithm, RFC 6298 §3.
#[test]
fn octets_that_leave_again_start_the_timer_and_measure_nothing() {
    let mut subject = Subject::new();
    subject.sends(3000);
    let at = subject.due_at().expect("octets are under way");
    subject.waits(100);
    subject.leaves(OURS, ACK, 1200);
    assert_eq!(subject.due_at(), Some(at + Duration::from_millis(100)));
    subject.waits(10_000);
    subject.arrives(&pure(THEIRS, OURS.wrapping_add(3000)));
    subject.socket.queued = 0;
    subject.sends(1000);
    assert_eq!(subject.due_at(), Some(subject.now + Duration::from_millis(LEAST)));
}

#[test]
fn a_peer_that_owes_an_answer_has_limited_time() {
    let mut subject = Subject::new();
    let (begun, second) = (subject.now, Duration::from_secs(1));
    subject.waits(1_000_000);
    assert!(!subject.is_due() && subject.due_at().is_none(), "it owes none");
    subject.socket.keep_alive = Some(second * 20);
    assert_eq!(subject.due_at(), Some(begun + second * 1320));
    subject.socket.queued = 1;
    assert_eq!(subject.due_at(), Some(begun + second * 1300));
    subject.waits(299_000);
    // A segment near what is expected shows that it lives; one of a stranger does not.
    subject.arrives(&pure(THEIRS.wrapping_add(ROOM as u32 + 1), 0));
    assert_eq!(subject.due_at(), Some(begun + second * 1300));
    subject.arrives(&pure(THEIRS.wrapping_sub(ROOM as u32), 0));
    assert_eq!(subject.due_at(), Some(begun + second * 1599));
    // The end of the stream is asked about, too.
    (subject.socket.queued, subject.socket.keep_alive) = (0, None);
    assert_eq!(subject.due_at(), None);
    subject.socket.state = State::FinWait1;
    assert_eq!(subject.due_at(), Some(subject.now + PATIENCE));
    subject.waits(299_999);
    assert!(!subject.is_due());
    subject.waits(1);
    assert!(subject.is_due());
    (subject.socket.state, subject.socket.queued) = (State::SynSent, 1);
    assert!(
        !subject.is_due() && subject.due_at().is_none(),
        "smoltcp has the limit until the connection is established"
    );
}

#[test]
fn short_queues_are_delayed_and_only_if_the_application_allows_it() {
    let mut subject = Subject::new();
    let delays = |subject: &Subject| subject.corrections.delays(&subject.socket);
    for (queued, delayed) in [(0, true), (1199, true), (1200, false), (1201, false)] {
        subject.socket.queued = queued;
        assert_eq!(delays(&subject), delayed, "{queued}");
    }
    subject.socket.queued = 1;
    subject.corrections.nodelay = true;
    assert!(!delays(&subject));
}

#[test]
fn the_peer_is_told_of_twice_the_room_that_it_knows_of() {
    let mut subject = Subject::new();
    subject.corrections.has_told(1000);
    assert!(!subject.corrections.has_read(500, 1500));
    assert!(!subject.corrections.has_read(499, 1999));
    assert!(subject.corrections.has_read(1, 2000));
    subject.corrections.has_told(0);
    assert!(subject.corrections.has_read(1, 1), "it waits for any");
}

#[test]
fn icmp_shortens_segments_for_ten_minutes_if_it_names_octets_under_way() {
    let mut subject = Subject::new();
    subject.sends(3000);
    let under_way =
        |subject: &Subject, number| subject.corrections.is_under_way(number, &subject.socket);
    let end = OURS.wrapping_add(3000);
    for number in [OURS.wrapping_sub(1), OURS, 0, end.wrapping_sub(1)] {
        assert!(under_way(&subject, number), "{number}");
    }
    for number in [OURS.wrapping_sub(2), end, end.wrapping_add(1 << 31)] {
        assert!(!under_way(&subject, number), "{number}");
    }
    subject.corrections.path_takes(1000, subject.now);
    subject.waits(599_000);
    subject.corrections.path_takes(1100, subject.now);
    let longest = |subject: &mut Subject| subject.corrections.longest_segment(subject.now);
    assert_eq!(longest(&mut subject), 1000, "it is no longer than what the path took before");
    subject.waits(599_999);
    assert_eq!(longest(&mut subject), 1000);
    subject.waits(1);
    assert_eq!(longest(&mut subject), MSS);
    subject.corrections.path_takes(1400, subject.now);
    assert_eq!(longest(&mut subject), MSS);
}

proptest! {
    /// Whatever arrives and leaves, smoltcp is given each segment, behind parts of its acknowledgment in order.
    #[test]
    fn no_segment_harms(
        steps in proptest::collection::vec(
            (any::<bool>(), -60_000..60_000_i32, -60_000..60_000_i32, any::<u8>(), 0..3000_usize, 0..90_000_usize),
            1..100,
        ),
    ) {
        let mut subject = Subject::new();
        for (arrives, seq, ack, flags, payload, queued) in steps {
            subject.socket.queued = queued;
            subject.waits(payload as u64);
            subject.is_due();
            if !arrives {
                let sent_up_to = subject.corrections.sent_up_to.expect("the SYN has left");
                let seq = sent_up_to.wrapping_add_signed(seq.min(0));
                let end = Segment::read(&octets(seq, 0, flags, 0, &[], payload)).end();
                let left = subject.leaves(seq, flags, payload);
                let after = subject.corrections.sent_up_to.expect("the SYN has left");
                // Nothing leaves behind all that was sent, whose number never goes back.
                prop_assert!(left == seq || end == seq && left == sent_up_to);
                prop_assert!(!is_later(end, after) && !is_later(sent_up_to, after));
                continue;
            }
            let (seq, ack) = (THEIRS.wrapping_add_signed(seq), OURS.wrapping_add_signed(ack));
            let payload = payload * usize::from(flags & 0x80 != 0);
            let given = subject.arrives(&octets(seq, ack, flags, 0xffff, &[], payload));
            let whole = given.iter().position(|given| given.ack == ack).expect("the segment");
            prop_assert!(whole < MOST_PIECES as usize && given.len() <= whole + 2);
            let ascends = |pair: &[Delivery]| is_later(pair[1].ack, pair[0].ack);
            prop_assert!(given[..=whole].windows(2).all(ascends));
            prop_assert!(given.iter().all(|given| given.flags == flags));
        }
    }
}
