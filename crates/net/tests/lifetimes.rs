//! Futures and handles that are dropped, peers that fall silent, and the end of everything, in virtual time.

mod ends;

use ends::{End, PATIENCE, connected, octets, pair, perfect, unconnected};
use net::datagrams::{Fate, Wire};
use net::{ConnectError, TcpStream};
use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DAY: Duration = Duration::from_secs(86_400);

/// A wire that can be cut.
fn cable() -> (Wire, Arc<AtomicBool>) {
    let cut = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&cut);
    (Arc::new(move |_| if seen.load(Relaxed) { Fate::Lost } else { Fate::Arrives }), cut)
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

fn at(end: &End, port: u16) -> SocketAddr {
    SocketAddr::new(end.address(false), port)
}

/// Polls a future once, which must not be ready, and drops it.
fn gives_up<T>(future: impl Future<Output = T>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(pin!(future).poll(&mut context).is_pending());
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

async fn reads_to_end(mut stream: TcpStream) -> std::io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    in_time(stream.read_to_end(&mut octets)).await.map(|_| octets)
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_is_given_up_leaves_nothing_behind() {
    let (wire, cut) = cable();
    // One connection has room.
    let ends = pair(wire, |settings| settings.memory = 64 << 10);
    let listener = ends[1].network.listen(any(80)).expect("free");
    let to = at(&ends[1], 80);
    cut.store(true, Relaxed);
    for _ in 0..20 {
        let connecting = async {
            loop {
                match ends[0].network.connect_to(to).await {
                    Err(ConnectError::Exhausted { .. }) => tokio::task::yield_now().await,
                    outcome => break outcome,
                }
            }
        };
        let second = Duration::from_secs(1);
        assert!(tokio::time::timeout(second, connecting).await.is_err(), "nobody answers");
    }
    cut.store(false, Relaxed);
    let connecting = async {
        while ends[0].network.connect_to(to).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let (_, accepted) = in_time(async { tokio::join!(connecting, listener.accept()) }).await;
    accepted.expect("accepted");
}

#[tokio::test(start_paused = true)]
async fn closed_connections_make_room_for_others_though_their_peers_do_not_end_them() {
    // Eight connections have room at the end that opens them.
    let ends = pair(perfect(), |settings| {
        if settings.seed == 1 {
            settings.memory = 8 * (64 << 10);
        }
    });
    let listener = ends[1].network.listen(any(80)).expect("free");
    let mut kept = Vec::new();
    for number in 0..100 {
        let mut stream = in_time(ends[0].network.connect_to(at(&ends[1], 80)))
            .await
            .unwrap_or_else(|error| panic!("connection {number}: {error}"));
        let (mut peer, _) = in_time(listener.accept()).await.expect("accepted");
        stream.write_all(b"all").await.expect("written");
        drop(stream);
        let mut octets = Vec::new();
        in_time(peer.read_to_end(&mut octets)).await.expect("in order");
        assert_eq!(octets, b"all");
        // The peer's system acknowledges the end.
        tokio::time::sleep(Duration::from_secs(1)).await;
        kept.push(peer);
    }
}

#[tokio::test(start_paused = true)]
async fn an_accept_that_is_given_up_loses_no_connection() {
    let ends = pair(perfect(), |_| {});
    let listener = ends[1].network.listen(any(80)).expect("free");
    gives_up(listener.accept());
    let to = at(&ends[1], 80);
    let _stream = {
        // It is told of the connection, and dropped before it looks.
        let mut accepting = pin!(listener.accept());
        let mut context = Context::from_waker(Waker::noop());
        assert!(accepting.as_mut().poll(&mut context).is_pending());
        let stream = ends[0].network.connect_to(to).await.expect("connected");
        tokio::time::sleep(Duration::from_secs(1)).await;
        stream
    };
    in_time(listener.accept()).await.expect("accepted");
}

#[tokio::test(start_paused = true)]
async fn reads_and_writes_that_are_given_up_lose_and_repeat_no_octet() {
    let ends = pair(perfect(), |settings| {
        settings.send_buffer = 4096;
        settings.receive_buffer = 4096;
    });
    let [mut left, mut right] = connected(&ends, false).await;
    gives_up(right.read_u8());
    let sent = octets(100_000, 5);
    let (mut taken, mut received) = (0, Vec::<u8>::new());
    let mut buffer = [0; 700];
    while received.len() < sent.len() {
        // Both sides are dropped whenever they would have to wait.
        tokio::select! {
            biased;
            written = left.write(&sent[taken..]), if taken < sent.len() => taken += written.expect("written"),
            () = tokio::task::yield_now() => {}
        }
        tokio::select! {
            biased;
            read = right.read(&mut buffer) => received.extend(&buffer[..read.expect("read")]),
            () = tokio::task::yield_now() => {}
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!(received == sent);
    drop(left);
    assert_eq!(in_time(right.read(&mut buffer)).await.expect("the end"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_datagram_that_nobody_waits_for_any_more_is_received_later() {
    let ends = pair(perfect(), |_| {});
    let [left, right] = ends.each_ref().map(|end| end.network.bind_udp(any(0)).expect("free"));
    let to = at(&ends[1], right.local_addr().port());
    gives_up(right.receive());
    {
        let mut receiving = pin!(right.receive());
        let mut context = Context::from_waker(Waker::noop());
        assert!(receiving.as_mut().poll(&mut context).is_pending());
        left.send_to(b"once", to).await.expect("sent");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(in_time(right.receive()).await.expect("received").0, b"once");
}

#[tokio::test(start_paused = true)]
async fn an_echo_that_is_given_up_does_not_disturb_the_next() {
    let ends = pair(perfect(), |_| {});
    let there = ends[1].address(false);
    for _ in 0..10 {
        gives_up(ends[0].network.ping(there, PATIENCE));
        in_time(ends[0].network.ping(there, PATIENCE)).await.expect("answered");
    }
}

#[tokio::test(start_paused = true)]
async fn octets_of_a_dropped_stream_arrive_and_then_its_end() {
    let ends = pair(perfect(), |_| {});
    let [mut left, right] = connected(&ends, false).await;
    let sent = octets(200_000, 3);
    left.write_all(&sent).await.expect("written");
    drop(left);
    assert!(reads_to_end(right).await.expect("read") == sent);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_half_ends_its_own_direction_only() {
    let ends = pair(perfect(), |_| {});
    let [left, mut right] = connected(&ends, false).await;
    let (mut reader, writer) = left.into_split();
    drop(writer);
    assert_eq!(in_time(right.read(&mut [0])).await.expect("the end"), 0);
    right.write_all(b"still").await.expect("written");
    let mut octets = [0; 5];
    in_time(reader.read_exact(&mut octets)).await.expect("read");
    drop((reader, right));

    let [left, right] = connected(&ends, false).await;
    let (reader, mut writer) = left.into_split();
    drop(reader);
    writer.write_all(b"still").await.expect("written");
    drop(writer);
    assert_eq!(reads_to_end(right).await.expect("read"), b"still");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_listener_ends_its_connections_and_releases_its_port() {
    let ends = pair(perfect(), |_| {});
    let to = at(&ends[1], 80);
    let listener = ends[1].network.listen(any(80)).expect("free");
    let taken = ends[1].network.listen(any(80)).expect_err("taken");
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let mut waiting = ends[0].network.connect_to(to).await.expect("connected");
    waiting.write_all(b"nobody reads this").await.expect("written");
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(listener);
    let error = in_time(waiting.read(&mut [0])).await.expect_err("reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let refused = in_time(ends[0].network.connect_to(to)).await.expect_err("nobody listens");
    assert!(matches!(refused, ConnectError::Refused { .. }), "{refused}");
    let listener = ends[1].network.listen(any(80)).expect("free again");
    let (connected, accepted) = tokio::join!(ends[0].network.connect_to(to), listener.accept());
    connected.expect("connected");
    accepted.expect("accepted");
}

#[tokio::test(start_paused = true)]
async fn a_socket_of_every_address_has_the_port_of_a_dropped_one_of_a_single_address() {
    let ends = pair(perfect(), |_| {});
    let (network, to) = (&ends[1].network, at(&ends[1], 80));
    let every = network.listen(any(80)).expect("free");
    drop(network.listen(to).expect("an address is another one than every address"));
    let (connected, accepted) =
        in_time(async { tokio::join!(ends[0].network.connect_to(to), every.accept()) }).await;
    connected.expect("connected");
    accepted.expect("accepted");

    let every = network.bind_udp(any(80)).expect("free");
    drop(network.bind_udp(to).expect("likewise"));
    let sender = ends[0].network.bind_udp(any(0)).expect("free");
    sender.send_to(b"for the other one", to).await.expect("sent");
    assert_eq!(in_time(every.receive()).await.expect("received").0, b"for the other one");
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_lives_for_days_and_then_carries_octets() {
    let ends = pair(perfect(), |_| {});
    let [mut left, mut right] = connected(&ends, false).await;
    for (round, octet) in (0..3).zip(b'a'..) {
        tokio::time::sleep(DAY).await;
        left.write_u8(octet).await.unwrap_or_else(|error| panic!("day {round}: {error}"));
        let read = in_time(right.read_u8()).await;
        assert_eq!(read.unwrap_or_else(|error| panic!("day {round}: {error}")), octet);
    }
    tokio::time::sleep(DAY).await;
    // Its end does not come late, either.
    drop(left);
    assert_eq!(in_time(right.read(&mut [0])).await.expect("the end"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_acknowledge_ends_the_stream() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    let [mut left, _right] = connected(&ends, false).await;
    tokio::time::sleep(DAY).await;
    cut.store(true, Relaxed);
    let begun = tokio::time::Instant::now();
    left.write_all(b"into the void").await.expect("written");
    let error = left.read(&mut [0]).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // In virtual time, a limit is exact.
    let waited = begun.elapsed().as_secs();
    assert!((300..=301).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_acknowledges_late_keeps_the_stream() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    let [mut left, right] = connected(&ends, false).await;
    let sent = octets(2_000_000, 3);
    let expected = sent.clone();
    let reading = tokio::spawn(async move {
        let mut octets = Vec::new();
        let mut right = right;
        right.read_to_end(&mut octets).await.map(|_| octets == expected)
    });
    // The tunnel is down three times, 200 of the 300 seconds each.
    for part in sent.chunks(sent.len().div_ceil(3)) {
        cut.store(true, Relaxed);
        let (written, ()) = tokio::join!(left.write_all(part), async {
            tokio::time::sleep(Duration::from_secs(200)).await;
            cut.store(false, Relaxed);
            // The timer of TCP is at 60 seconds by then.
            tokio::time::sleep(Duration::from_secs(90)).await;
        });
        written.expect("written");
    }
    drop(left);
    assert!(in_time(reading).await.expect("no panic").expect("read"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_for_a_day_keeps_the_stream() {
    let ends = pair(perfect(), |_| {});
    let [mut left, mut right] = connected(&ends, false).await;
    let sent = octets(3_000_000, 3);
    let expected = sent.clone();
    // More than the buffers of both ends take.
    let writing = tokio::spawn(async move { left.write_all(&sent).await });
    tokio::time::sleep(DAY).await;
    assert!(!writing.is_finished());
    let mut received = Vec::new();
    in_time(right.read_to_end(&mut received)).await.expect("read");
    writing.await.expect("no panic").expect("written");
    assert!(received == expected);
}

/// The windows of both ends are closed, so each asks the other from time to time whether there is room again.
#[tokio::test(start_paused = true)]
async fn ends_that_both_have_not_read_for_an_hour_go_on() {
    let ends = pair(perfect(), |_| {});
    let halves = connected(&ends, false).await.map(TcpStream::into_split);
    let sent = [octets(3_000_000, 3), octets(3_000_000, 5)];
    let (mut readers, mut writing) = (Vec::new(), Vec::new());
    for ((reader, mut writer), sent) in halves.into_iter().zip(sent.clone()) {
        readers.push(reader);
        writing.push(tokio::spawn(async move {
            writer.write_all(&sent).await.expect("written");
            writer.shutdown().await.expect("shut down");
        }));
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(writing.iter().all(|writing| !writing.is_finished()));
    // One end reads on, and only then the other.
    for (mut reader, expected) in readers.into_iter().rev().zip(sent) {
        let mut received = Vec::new();
        in_time(reader.read_to_end(&mut received)).await.expect("read");
        assert!(received == expected);
        writing.remove(0).await.expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_a_probe_ends_the_stream() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    let [mut left, _right] = connected(&ends, false).await;
    tokio::time::sleep(DAY).await;
    // Longer than the time that the peer has for an answer.
    for interval in [Duration::from_secs(900), Duration::from_secs(60)] {
        left.set_keep_alive(Some(interval));
        let silence = tokio::time::timeout(DAY, left.read(&mut [0])).await;
        assert!(silence.is_err(), "the peer answers the probes, and sends nothing");
    }
    cut.store(true, Relaxed);
    let begun = tokio::time::Instant::now();
    let error = left.read(&mut [0]).await.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let waited = begun.elapsed().as_secs();
    assert!((300..=361).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_is_told_from_one_that_refuses() {
    let (wire, cut) = cable();
    let ends = pair(wire, |_| {});
    cut.store(true, Relaxed);
    let begun = tokio::time::Instant::now();
    let error = ends[0].network.connect_to(at(&ends[1], 80)).await.expect_err("nobody answers");
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    let waited = begun.elapsed().as_secs();
    assert!((30..=31).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn pending_calls_end_with_the_gateway() {
    let (wire, cut) = cable();
    let [left, right] = pair(wire, |_| {});
    let there = right.address(false);
    cut.store(true, Relaxed);
    let network = left.network.clone();
    let pinging = tokio::spawn(async move { network.ping(there, DAY).await });
    let network = left.network.clone();
    let connecting = tokio::spawn(async move { network.connect_to((there, 80).into()).await });
    let socket = left.network.bind_udp(any(0)).expect("free");
    let receiving = tokio::spawn(async move { socket.receive().await.map(drop) });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(left.plane);
    let error = in_time(pinging).await.expect("no panic").expect_err("stopped");
    assert!(matches!(error, ConnectError::Stopped), "{error}");
    let error = in_time(connecting).await.expect("no panic").expect_err("stopped");
    assert!(matches!(error, ConnectError::Stopped), "{error}");
    let error = in_time(receiving).await.expect("no panic").expect_err("stopped");
    assert_eq!(error.kind(), ErrorKind::NotConnected);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_whose_start_never_ends_ends_with_the_gateway() {
    let [left, right] = unconnected(perfect(), |_| {});
    left.network.start_tunnels_with(Box::new(|_| Box::pin(std::future::pending())));
    let (network, to) = (left.network.clone(), at(&right, 80));
    let connecting = tokio::spawn(async move { network.connect_to(to).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(left.plane);
    let error = in_time(connecting).await.expect("no panic").expect_err("stopped");
    assert!(matches!(error, ConnectError::Stopped), "{error}");
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().expect("a runtime")
}

#[test]
fn sockets_fail_if_the_runtime_of_their_network_is_gone() {
    let runtime_of_network = runtime();
    let (ends, [mut left, _right], listener) = runtime_of_network.block_on(async {
        let ends = pair(perfect(), |_| {});
        let streams = connected(&ends, false).await;
        let listener = ends[0].network.listen(any(7)).expect("free");
        (ends, streams, listener)
    });
    drop(runtime_of_network);
    runtime().block_on(async {
        let error = in_time(left.read(&mut [0])).await.expect_err("stopped");
        assert_eq!(error.kind(), ErrorKind::NotConnected);
        assert_eq!(left.write(b"x").await.expect_err("stopped").kind(), ErrorKind::NotConnected);
        in_time(listener.accept()).await.expect_err("stopped");
        let error =
            in_time(ends[0].network.connect_to(at(&ends[1], 80))).await.expect_err("stopped");
        assert!(matches!(error, ConnectError::Stopped), "{error}");
    });
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_woken_by_the_end_of_the_network() {
    let ends = pair(perfect(), |_| {});
    let [mut left, _right] = connected(&ends, false).await;
    let reading = tokio::spawn(async move { left.read_u8().await });
    tokio::task::yield_now().await;
    let [one, other] = ends;
    drop((one.plane, other.plane));
    let error = in_time(reading).await.expect("no panic").expect_err("stopped");
    assert_eq!(error.kind(), ErrorKind::NotConnected);
}
