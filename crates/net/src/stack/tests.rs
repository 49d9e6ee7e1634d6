use super::*;
use crate::corrections::segment::{ACK, RST, SYN};
use crate::incoming::Incoming;
use crate::mailbox::Mailbox;
use crate::routes::Routes;
use crate::settings::Settings;
use esp::datapath::{self, Datapath};
use proptest::prelude::*;
use std::net::SocketAddr;

const BACKLOG: usize = 16;
const OWN: &str = "10.1.0.1";

/// A stack with one listener, without any SA: its packets are dropped.
fn stack() -> (Stack, Arc<Incoming>) {
    let now = Instant::now();
    let routes = Arc::new(Routes::new(vec![OWN.parse().expect("an address")]));
    let settings = Settings { backlog: BACKLOG, ..Settings::new(1) };
    let shared = Arc::new(Shared::new(settings, routes, Arc::new(Mailbox::new())));
    let incoming = Arc::new(Incoming::new(BACKLOG));
    let local = SocketAddr::new(OWN.parse().expect("an address"), 80);
    assert!(shared.sockets().listen(local, &incoming));
    let datapath = Datapath::new(datapath::Settings::default(), now);
    (Stack::new(shared, Outlet::new(&datapath, now)), incoming)
}

/// A packet with a header that is right, and anything behind it.
fn packet(protocol: u8, fragment: u16, port: u16, flags: u8, mut upper: Vec<u8>) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 2, 0, 7, 10, 1, 0, 1];
    if upper.len() >= 20 && protocol == TCP {
        upper[2..4].copy_from_slice(&port.to_be_bytes());
        // Most headers are of a length that fits.
        upper[12] = upper[12] % 0x70 + 0x40;
        upper[13] = flags;
    }
    packet.extend(upper);
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    let sum = !smoltcp::wire::checksum::data(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

proptest! {
    #[test]
    fn no_packet_harms(packets in proptest::collection::vec(
        (
            proptest::sample::select(vec![1_u8, 6, 6, 6, 17, 58, 44]),
            proptest::sample::select(vec![0_u16, 0, 0, 0, 0x2000, 0x2001, 5]),
            proptest::sample::select(vec![80_u16, 81]),
            proptest::sample::select(vec![2_u8, 2, 0x10, 0x18, 0x11, 4, 0x14, 0xff, 0]),
            proptest::collection::vec(any::<u8>(), 0..120),
        ),
        1..200,
    )) {
        let (mut stack, _incoming) = stack();
        let verified = Gso { checksum_verified: true, ..Gso::NONE };
        for (protocol, fragment, port, flags, upper) in packets {
            stack.take(&packet(protocol, fragment, port, flags, upper), verified);
            stack.send();
            stack.outlet.queue.clear();
            prop_assert!(stack.connections.len() <= BACKLOG);
        }
    }
}

#[test]
fn strangers_cannot_open_more_than_the_backlog() {
    let (mut stack, incoming) = stack();
    (1..=1000).for_each(|from| stack.take(&syn(from), VERIFIED));
    assert_eq!(stack.connections.len(), BACKLOG);
    assert!(!incoming.has_room());
    assert_eq!(stack.shared.counts.table()["net_queue_full"], 1000 - BACKLOG as u64);
}

/// A SYN from a port.
fn syn(from: u16) -> Vec<u8> {
    let mut upper = vec![0; 20];
    upper[..2].copy_from_slice(&from.to_be_bytes());
    // Five words of header; the test's packet adds four.
    upper[12] = 0x10;
    packet(TCP, 0, 80, SYN, upper)
}

#[test]
fn strangers_that_do_not_answer_make_room_for_others() {
    let (mut stack, incoming) = stack();
    let is_there =
        |stack: &Stack, from: u16| stack.connections.keys().any(|flow| flow.remote.port() == from);
    (1..=100).for_each(|from| stack.take(&syn(from), VERIFIED));
    stack.send();
    stack.take(&syn(PEER), VERIFIED);
    assert!(!is_there(&stack, PEER), "an answer may still come");
    stack.now_is(stack.outlet.now + Duration::from_secs(3));
    let (connection, ours) = opened(&mut stack);
    assert!(is_there(&stack, PEER) && !is_there(&stack, 1) && is_there(&stack, 2));
    assert_eq!(stack.connections.len(), BACKLOG);
    // Those that went leave nothing behind, and the others go on.
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    stack.send();
    assert_eq!(connection.lock().state(), State::Established);
    assert!(incoming.take().is_some_and(|ready| Arc::ptr_eq(&ready, &connection)));
    assert!(incoming.has_room());
}

#[test]
fn an_error_of_icmp_names_a_segment_that_is_under_way() {
    let (mut stack, _incoming) = stack();
    let (connection, ours) = opened(&mut stack);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    let too_long = |number: u32| {
        let mut upper = vec![3, 4, 0, 0, 0, 0, 2, 0x80];
        // 10.1.0.1 to 10.2.0.7, TCP
        upper.extend([0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, TCP, 0, 0, 10, 1, 0, 1, 10, 2, 0, 7]);
        upper.extend([80_u16.to_be_bytes(), PEER.to_be_bytes()].concat());
        upper.extend(number.to_be_bytes());
        packet(ICMP, 0, 0, 0, upper)
    };
    let sent = ours.wrapping_sub(1);
    let longest = |stack: &Stack| connection.lock().corrections.longest_segment(stack.outlet.now);
    for forged in [sent.wrapping_sub(2), ours, sent.wrapping_add(1 << 31)] {
        stack.take(&too_long(forged), VERIFIED);
        assert_eq!(longest(&stack), 1200);
    }
    stack.take(&too_long(sent), VERIFIED);
    assert_eq!(longest(&stack), 640 - 40);
    // RFC 1191 §6.3
    let told = stack.outlet.now;
    for (seconds, octets) in [(599, 640 - 40), (600, 1200)] {
        stack.now_is(told + Duration::from_secs(seconds));
        assert_eq!(longest(&stack), octets);
    }
}

const PEER: u16 = 1025;
const VERIFIED: Gso = Gso { checksum_verified: true, ..Gso::NONE };

/// A segment of the peer without payload.
fn segment(seq: u32, ack: u32, flags: u8, mss: Option<u16>) -> Vec<u8> {
    packet(TCP, 0, 80, flags, header(seq, ack, mss))
}

fn header(seq: u32, ack: u32, mss: Option<u16>) -> Vec<u8> {
    let mut upper = vec![0; 20];
    upper[..2].copy_from_slice(&PEER.to_be_bytes());
    upper[4..8].copy_from_slice(&seq.to_be_bytes());
    upper[8..12].copy_from_slice(&ack.to_be_bytes());
    // Words of header; the test's packet adds four.
    upper[12] = if mss.is_some() { 0x20 } else { 0x10 };
    upper[14..16].fill(0xff);
    upper.extend(mss.into_iter().flat_map(|mss| [[2, 4], mss.to_be_bytes()].concat()));
    upper
}

/// Has the peer open a connection, whose first octet has the number 1001. Returns it with the number that this end
/// expects to be acknowledged.
fn opened(stack: &mut Stack) -> (Arc<Connection>, u32) {
    stack.take(&segment(1000, 0, SYN, Some(1200)), VERIFIED);
    stack.send();
    let of_peer = |flow: &&Flow| flow.remote.port() == PEER;
    let flow = *stack.connections.keys().find(of_peer).expect("it has begun");
    let connection = Arc::clone(&stack.connections[&flow]);
    let ours = connection.lock().corrections.sent_up_to().expect("the SYN is acknowledged");
    (connection, ours)
}

#[test]
fn only_the_exact_number_resets_a_connection() {
    let (mut stack, _incoming) = stack();
    let (connection, ours) = opened(&mut stack);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    stack.send();
    let guesses = (0..32).flat_map(|bit| [1001 + (1 << bit), 1001_u32.wrapping_sub(1 << bit)]);
    for guess in guesses {
        for flags in [RST, RST | ACK] {
            stack.take(&segment(guess, ours, flags, None), VERIFIED);
            stack.send();
            assert_eq!(connection.lock().state(), State::Established, "{guess}");
        }
    }
    stack.take(&segment(1001, 0, RST, None), VERIFIED);
    assert!(stack.connections.is_empty());
    assert_eq!(connection.lock().end, Some(End::Reset));
}

/// Though its application still has it, and octets that were not sent are in its queue.
#[test]
fn a_connection_that_waits_or_is_over_leaves_the_path_to_those_that_send() {
    let (mut stack, _incoming) = stack();
    let (connection, ours) = opened(&mut stack);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    stack.send();
    let sending = Arc::clone(&stack.shared.sending);
    assert_eq!(connection.lock().put(&[7; 100_000]), 100_000);
    assert_eq!(sending.queued(), 100_000);
    let mut closed = header(1001, ours, None);
    closed[14..16].fill(0);
    stack.take(&packet(TCP, 0, 80, ACK, closed), VERIFIED);
    assert_eq!(sending.queued(), 0);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    assert_eq!(sending.queued(), 100_000);
    stack.take(&segment(1001, 0, RST, None), VERIFIED);
    assert_eq!(connection.lock().end, Some(End::Reset));
    assert_eq!(sending.queued(), 0);
}

/// Sequence and acknowledgment number of a segment.
fn numbers(packet: &[u8]) -> [u32; 2] {
    let parsed = packet::parse(packet).expect("a packet");
    [4, 8].map(|at| packet::long(parsed.upper(packet), at))
}

/// While an end sends again what the peer may have, the peer would take such an acknowledgment for an old segment. If
/// both do, neither ever learns of what has arrived.
#[test]
fn an_acknowledgment_has_the_number_behind_all_that_was_sent() {
    let (mut stack, _incoming) = stack();
    let (connection, ours) = opened(&mut stack);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    assert_eq!(connection.lock().put(&[7; 2000]), 2000);
    stack.activate(&connection);
    stack.send();
    // The timer of TCP runs out, and one segment is sent again. The round trip was none.
    let left = stack.outlet.now;
    assert_eq!(stack.wakes_at(), Some(left + Duration::from_millis(200)));
    stack.now_is(left + Duration::from_millis(199));
    stack.outlet.take_last();
    stack.send();
    assert_eq!(stack.outlet.take_last(), None);
    stack.now_is(left + Duration::from_millis(200));
    stack.send();
    let again = stack.outlet.take_last().expect("sent again");
    assert_eq!((numbers(&again), again.len()), ([ours, 1001], 20 + 20 + 1200));
    // An octet behind one that is lost is acknowledged at once.
    let mut early = header(1002, ours, None);
    early.push(9);
    stack.take(&packet(TCP, 0, 80, ACK, early), VERIFIED);
    let answer = stack.outlet.take_last().expect("an acknowledgment");
    assert_eq!(numbers(&answer), [ours + 2000, 1001]);
    // So is the reset of a connection that is given up, which the peer would take for a stranger's guess.
    connection.abandon();
    connection.lock().socket().abort();
    stack.work(Job::Look(Arc::clone(&connection)));
    stack.send();
    let reset = stack.outlet.take_last().expect("a reset");
    assert_eq!(numbers(&reset), [ours + 2000, 1001]);
}

/// RFC 9293 Figure 10: an acknowledgment of a connection that this end does not have any more. It is answered by a reset.
#[test]
fn a_reset_does_not_change_the_numbers_of_a_connection() {
    let (mut stack, _incoming) = stack();
    let (own, remote) = (OWN.parse().expect("an address"), SocketAddr::from(([10, 2, 0, 7], PEER)));
    let flow = Flow { local: SocketAddr::new(own, 80), remote };
    let connection = stack.shared.connection(flow).expect("memory");
    stack.work(Job::Open(Arc::clone(&connection)));
    stack.send();
    let sent = stack.outlet.take_last().expect("a SYN");
    let [first, _] = numbers(&sent);
    for stranger in [first.wrapping_add(1000), first.wrapping_add((1 << 31) + 1000)] {
        stack.take(&segment(500, stranger, ACK, None), VERIFIED);
        let reset = stack.outlet.take_last().expect("a reset");
        assert_eq!(numbers(&reset)[0], stranger);
    }
    stack.take(&segment(1000, first.wrapping_add(1), SYN | ACK, Some(1200)), VERIFIED);
    stack.send();
    assert_eq!(connection.lock().state(), State::Established);
    let answer = stack.outlet.take_last().expect("an acknowledgment");
    assert_eq!(numbers(&answer), [first.wrapping_add(1), 1001]);
}

/// Its number is that behind a window that is full, or that of an octet which asked whether a closed window has opened.
#[test]
fn an_acknowledgment_counts_though_no_octet_could_have_its_number() {
    for number in [-1, 1 << 20] {
        let (mut stack, _incoming) = stack();
        let (connection, ours) = opened(&mut stack);
        let mut closed = header(1001, ours, None);
        closed[14..16].fill(0);
        stack.take(&packet(TCP, 0, 80, ACK, closed), VERIFIED);
        assert_eq!(connection.lock().put(&[7; 1000]), 1000);
        stack.activate(&connection);
        stack.outlet.take_last();
        stack.send();
        assert_eq!(stack.outlet.take_last(), None, "the window is closed");
        assert_eq!(connection.lock().socket().recv_capacity(), 1 << 20);
        let number = 1001_u32.wrapping_add_signed(number);
        stack.take(&segment(number, ours, ACK, None), VERIFIED);
        stack.send();
        let sent = stack.outlet.take_last().expect("the window has opened");
        assert_eq!((numbers(&sent), sent.len()), ([ours, 1001], 20 + 20 + 1000));
    }
}

/// RFC 9293 §3.8.4
#[test]
fn a_peer_that_asks_whether_this_end_lives_is_answered() {
    let (mut stack, _incoming) = stack();
    let (_connection, ours) = opened(&mut stack);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    stack.send();
    stack.outlet.take_last();
    stack.take(&segment(1000, ours, ACK, None), VERIFIED);
    let answer = stack.outlet.take_last().expect("an acknowledgment");
    assert_eq!(numbers(&answer), [ours, 1001]);
}

#[test]
fn a_guessed_reset_is_asked_about() {
    let (mut stack, _incoming) = stack();
    let (connection, ours) = opened(&mut stack);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    stack.send();
    stack.outlet.take_last();
    stack.take(&segment(1002, 0, RST, None), VERIFIED);
    let asked = stack.outlet.take_last().expect("an acknowledgment");
    assert_eq!(numbers(&asked), [ours, 1001]);
    stack.take(&segment(1003, 0, RST, None), VERIFIED);
    assert_eq!(stack.outlet.take_last(), None, "one in a second");
    assert_eq!(connection.lock().state(), State::Established);
}

#[test]
fn a_syn_of_a_stranger_does_not_shorten_segments() {
    let (mut stack, _incoming) = stack();
    let (connection, ours) = opened(&mut stack);
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    for seq in [1000, 1001, 1_000_000] {
        stack.take(&segment(seq, 0, SYN, Some(48)), VERIFIED);
        stack.send();
    }
    assert_eq!(connection.lock().corrections.longest_segment(stack.outlet.now), 1200);
}

#[test]
fn a_connection_that_is_ready_after_its_listener_is_reset() {
    let (mut stack, incoming) = stack();
    let (connection, ours) = opened(&mut stack);
    // The stack has the listener in its hands while the application drops it.
    assert!(incoming.close().is_empty());
    stack.take(&segment(1001, ours, ACK, None), VERIFIED);
    stack.send();
    assert_eq!(connection.lock().state(), State::Closed);
    assert!(stack.connections.is_empty() && incoming.take().is_none());
}

#[test]
fn ports_that_stay_reserved_take_bounded_memory() {
    let (mut stack, _incoming) = stack();
    let flow = |peer: u32| {
        let remote = SocketAddr::from((std::net::Ipv4Addr::from(peer), PEER));
        Flow { local: SocketAddr::from(([10, 1, 0, 1], 80)), remote }
    };
    let count = MOST_PAST as u32 + 10;
    (0..count).for_each(|peer| stack.reserve(flow(peer)));
    assert_eq!(stack.past.len(), MOST_PAST);
    let sockets = stack.shared.sockets();
    assert!(!sockets.is_known(flow(9)) && sockets.is_known(flow(10)));
}

#[test]
fn a_connection_that_is_given_up_releases_its_port() {
    let (mut stack, _incoming) = stack();
    let remote = SocketAddr::from(([10, 2, 0, 7], 443));
    let ports = policy::PortRange::ANY;
    let own = OWN.parse().expect("an address");
    let flow = stack.shared.take_port(own, ports, remote).expect("a port");
    let connection = stack.shared.connection(flow).expect("memory");
    stack.work(Job::Open(Arc::clone(&connection)));
    stack.send();
    assert!(stack.shared.sockets().is_known(flow));
    connection.abandon();
    stack.work(Job::Look(Arc::clone(&connection)));
    stack.send();
    assert!(!stack.shared.sockets().is_known(flow) && stack.connections.is_empty());
    // The task, the queue of turns and the timers have let go of its buffers.
    stack.shared.mailbox.take();
    assert_eq!(Arc::strong_count(&connection), 1);
}

#[test]
fn a_stack_that_has_stopped_keeps_no_connection() {
    let (mut stack, _incoming) = stack();
    let (connection, _) = opened(&mut stack);
    stack.shared.mailbox.close();
    stack.stop();
    connection.abandon();
    assert_eq!(Arc::strong_count(&connection), 1);
}
