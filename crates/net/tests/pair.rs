//! Two networks in one process, and a wire that loses and reorders datagrams.

mod ends;

use ends::{PATIENCE, connected, exchange, faulty, octets, pair, perfect, rekey, unconnected};
use esp::plane::{DataPlane, SaId};
use net::{ConnectError, Network};
use proptest::prelude::*;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn streams_carry_octets_both_ways() {
    for ipv6 in [false, true] {
        let ends = pair(perfect(), |_| {});
        let streams = connected(&ends, ipv6).await;
        exchange(streams, [3 << 20, 1 << 20]).await;
        assert_eq!(ends[0].plane.counters()["replayed"], 0);
    }
}

#[tokio::test]
async fn streams_survive_a_faulty_wire() {
    let ends = pair(faulty(7, 50), |_| {});
    let streams = connected(&ends, false).await;
    exchange(streams, [300_000, 200_000]).await;
}

#[tokio::test]
async fn streams_survive_rekeys() {
    let mut ends = pair(perfect(), |_| {});
    let [left, right] = connected(&ends, true).await;
    let (mut reader, _kept) = right.into_split();
    let (_kept_too, mut writer) = left.into_split();
    let sent = octets(1 << 20, 9);
    let expected = sent.clone();
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.expect("read");
        assert!(received == expected);
    });
    for (generation, part) in (2..).zip(sent.chunks(100_000)) {
        writer.write_all(part).await.expect("written");
        rekey(&mut ends, generation);
        ends.iter_mut().for_each(|end| {
            let old = u64::from(generation - 1);
            end.plane.remove(SaId(old * 2 + 1)).expect("it was there");
        });
    }
    drop(writer);
    tokio::time::timeout(PATIENCE, reading).await.expect("in time").expect("no panic");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn octets_arrive_whatever_the_wire_does(seed: u64, sizes in [0..60_000usize, 0..60_000usize], ipv6: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let ends = pair(faulty(seed, 20), |_| {});
            let streams = connected(&ends, ipv6).await;
            exchange(streams, sizes).await;
        });
    }
}

#[tokio::test]
async fn nobody_listens_so_the_connection_is_refused() {
    let ends = pair(perfect(), |_| {});
    let to = SocketAddr::new(ends[1].address(false), 81);
    let refused = ends[0].network.connect_to(to).await.expect_err("nobody listens");
    assert!(matches!(refused, ConnectError::Refused { remote } if remote == to), "{refused}");
}

#[tokio::test]
async fn traffic_that_no_tunnel_covers_is_refused_at_once() {
    let ends = pair(perfect(), |_| {});
    let elsewhere = "198.51.100.1:443".parse().expect("an address");
    let refused = ends[0].network.connect_to(elsewhere).await.expect_err("no tunnel");
    let told = refused.to_string();
    assert!(told.contains("198.51.100.1:443") && told.contains("10.2.0.0/24 (site)"), "{told}");
    let socket = ends[0].network.bind_udp("0.0.0.0:0".parse().expect("any")).expect("free");
    let refused = socket.send_to(b"leak?", elsewhere).await.expect_err("no tunnel");
    assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
}

#[tokio::test]
async fn a_connection_waits_for_its_tunnel() {
    let mut ends = unconnected(perfect(), |_| {});
    let listener = ends[1].network.listen("0.0.0.0:80".parse().expect("any")).expect("free");
    let to = SocketAddr::new(ends[1].address(false), 80);
    let network = ends[0].network.clone();
    let connecting = tokio::spawn(async move { network.connect_to(to).await });
    tokio::task::yield_now().await;
    assert!(!connecting.is_finished());
    rekey(&mut ends, 1);
    let (_stream, _) = listener.accept().await.expect("accepted");
    connecting.await.expect("no panic").expect("connected");
}

#[tokio::test]
async fn a_tunnel_that_fails_gives_its_reason() {
    let ends = unconnected(perfect(), |_| {});
    ends[0].network.start_tunnels_with(Box::new(|name| {
        Box::pin(async move {
            let error = std::io::Error::other(format!("no answer for {name}"));
            Err(Arc::new(error) as Arc<dyn std::error::Error + Send + Sync>)
        })
    }));
    let to = SocketAddr::new(ends[1].address(false), 80);
    let failed = ends[0].network.connect_to(to).await.expect_err("it failed");
    assert_eq!(failed.to_string(), "tunnel site: no answer for site");
}

#[tokio::test]
async fn the_end_of_the_plane_is_the_end_of_its_sockets() {
    let [left, right] = pair(perfect(), |_| {});
    let ends = [left, right];
    let [mut one, mut two] = connected(&ends, false).await;
    let [left, right] = ends;
    let (network, listening) = (left.network.clone(), left.network.clone());
    let listener = listening.listen("0.0.0.0:7".parse().expect("any")).expect("free");
    let waiting = tokio::spawn(async move { listener.accept().await.map(drop) });
    drop(left);
    let mut octet = [0];
    let error = one.read(&mut octet).await.expect_err("it has stopped");
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    assert_eq!(
        waiting.await.expect("no panic").expect_err("ended").kind(),
        ErrorKind::NotConnected
    );
    let to = SocketAddr::new(right.address(false), 80);
    let error = network.connect_to(to).await.expect_err("it has stopped");
    assert!(matches!(error, ConnectError::Stopped), "{error}");
    drop(right);
    assert!(two.read(&mut octet).await.is_err());
}

#[tokio::test]
async fn datagrams_of_every_size_pass() {
    for ipv6 in [false, true] {
        let ends = pair(perfect(), |_| {});
        let any = if ipv6 { "[::]:0" } else { "0.0.0.0:0" }.parse().expect("any");
        let [left, right] = ends.each_ref().map(|end| end.network.bind_udp(any).expect("free"));
        let to = SocketAddr::new(ends[1].address(ipv6), right.local_addr().port());
        for len in [0, 1, 1000, 1400, 9000, 60_000] {
            let payload = octets(len, 11);
            left.send_to(&payload, to).await.expect("sent");
            let (received, from, at) = right.receive().await.expect("received");
            assert!(received == payload, "{} of {len}", received.len());
            assert_eq!((from.ip(), at), (ends[0].address(ipv6), ends[1].address(ipv6)));
            right.send_to(&received, from).await.expect("sent");
            let mut buffer = vec![0; len + 1];
            let (len, _) = left.recv_from(&mut buffer).await.expect("answered");
            assert!(buffer[..len] == payload);
        }
        drop(right);
        left.send_to(b"to nobody", to).await.expect("sent");
        let refused = left.receive().await.expect_err("the port is closed");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}

/// A server of DNS, for names of one address. The answer for `long.example` does not fit in UDP.
async fn serve_names(network: Network, address: [u8; 4]) {
    let any = "0.0.0.0:53".parse().expect("any");
    let datagrams = network.bind_udp(any).expect("free");
    let listener = network.listen(any).expect("free");
    let answer = move |query: &[u8], short: bool| {
        let mut answer = query.to_vec();
        answer[2] = 0x80 | if short { 2 } else { 0 };
        let is_v4 = query[query.len() - 3] == 1;
        match query {
            q if q.windows(7).any(|w| w == b"nowhere") => answer[3] = 3,
            _ if short || !is_v4 => {}
            _ => {
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
                answer.extend(address);
            }
        }
        answer
    };
    loop {
        tokio::select! {
            Ok((query, from, _)) = datagrams.receive() => {
                let short = query.windows(4).any(|w| w == b"long");
                datagrams.send_to(&answer(&query, short), from).await.expect("sent");
            }
            Ok((mut stream, _)) = listener.accept() => {
                let mut query = vec![0; stream.read_u16().await.expect("read").into()];
                stream.read_exact(&mut query).await.expect("read");
                let answer = answer(&query, false);
                stream.write_u16(answer.len() as u16).await.expect("written");
                stream.write_all(&answer).await.expect("written");
            }
        }
    }
}

#[tokio::test]
async fn names_are_asked_behind_the_tunnel() {
    let ends = pair(perfect(), |settings| {
        settings.name_servers = vec!["10.2.0.1:53".parse().expect("an address")];
    });
    let network = &ends[0].network;
    let serving = tokio::spawn(serve_names(ends[1].network.clone(), [10, 2, 0, 1]));
    let listener = ends[1].network.listen("0.0.0.0:80".parse().expect("any")).expect("free");
    for name in ["db.example", "long.example"] {
        let to = format!("{name}:80");
        let (stream, accepted) = tokio::join!(network.connect(&to), listener.accept());
        assert_eq!(stream.expect("connected").peer_addr(), SocketAddr::from(([10, 2, 0, 1], 80)));
        accepted.expect("accepted");
    }
    let told = network.resolve("nowhere.example").await.expect_err("no such name").to_string();
    assert_eq!(told, "name nowhere.example: there is no such name");
    let told = network.connect("db.example").await.expect_err("no port").to_string();
    assert!(told.contains("NAME:PORT"), "{told}");
    serving.abort();
}

#[tokio::test]
async fn echo_requests_are_answered() {
    let ends = pair(perfect(), |_| {});
    for ipv6 in [false, true] {
        let there = ends[1].address(ipv6);
        ends[0].network.ping(there, PATIENCE).await.expect("answered");
    }
}

#[tokio::test]
async fn a_thousand_connections_get_their_share() {
    echo_over_many(1000, 20_000, 1 << 30).await;
}

#[tokio::test]
async fn connections_that_send_more_than_their_share_get_on() {
    // Each may have 32 KiB under way.
    echo_over_many(100, 200_000, 16 << 20).await;
}

/// Sends octets over so many connections at once, and back.
async fn echo_over_many(connections: usize, number: usize, memory: usize) {
    let ends = pair(perfect(), |settings| {
        (settings.backlog, settings.memory) = (connections, memory);
    });
    let listener = ends[1].network.listen("0.0.0.0:80".parse().expect("any")).expect("free");
    let to = SocketAddr::new(ends[1].address(false), 80);
    let served = tokio::spawn(async move {
        let mut serving = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let (stream, _) = listener.accept().await.expect("accepted");
            let (mut reader, mut writer) = stream.into_split();
            serving.spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
        }
        while let Some(copied) = serving.join_next().await {
            assert_eq!(copied.expect("no panic").expect("copied"), number as u64);
        }
    });
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..connections {
        let network = ends[0].network.clone();
        clients.spawn(async move {
            let stream = network.connect_to(to).await.expect("connected");
            let (mut reader, mut writer) = stream.into_split();
            let sent = octets(number, client as u64);
            let writes = async {
                writer.write_all(&sent).await.expect("written");
                writer.shutdown().await.expect("shut down");
            };
            // All buffers together hold less than is sent.
            let mut back = Vec::new();
            let (_, read) = tokio::join!(writes, reader.read_to_end(&mut back));
            read.expect("read");
            assert!(back == sent, "connection {client}");
        });
    }
    while let Some(done) = clients.join_next().await {
        done.expect("no panic");
    }
    tokio::time::timeout(PATIENCE, served).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn memory_is_bounded_and_comes_back() {
    let ends = pair(perfect(), |settings| settings.memory = 1 << 20);
    let listener = ends[1].network.listen("0.0.0.0:80".parse().expect("any")).expect("free");
    let to = SocketAddr::new(ends[1].address(false), 80);
    let mut open = Vec::new();
    let refused = loop {
        match ends[0].network.connect_to(to).await {
            Ok(stream) => open.push((stream, listener.accept().await.expect("accepted"))),
            Err(error) => break error,
        }
        assert!(open.len() < 100);
    };
    assert!(matches!(refused, ConnectError::Exhausted { lacking: "memory", .. }), "{refused}");
    drop(open);
    // Both ends give back what they had once the other one has agreed.
    let again = async {
        while ends[0].network.connect_to(to).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("in time");
}

#[tokio::test]
async fn connections_that_are_over_take_no_memory() {
    // Ten at most at a time.
    let ends = pair(perfect(), |settings| settings.memory = 10 * (64 << 10));
    let listener = ends[1].network.listen("0.0.0.0:80".parse().expect("any")).expect("free");
    let to = SocketAddr::new(ends[1].address(false), 80);
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut octets = Vec::new();
            stream.read_to_end(&mut octets).await.expect("read");
        }
    });
    for round in 0..200 {
        let mut stream = loop {
            match ends[0].network.connect_to(to).await {
                Ok(stream) => break stream,
                // The peer has not closed the one before yet.
                Err(ConnectError::Exhausted { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{round}: {error}"),
            }
        };
        // This end closes first.
        stream.shutdown().await.expect("shut down");
        let mut octets = Vec::new();
        stream.read_to_end(&mut octets).await.expect("read");
    }
    serving.abort();
}

#[tokio::test]
async fn a_stream_dropped_unread_resets_the_connection() {
    let ends = pair(perfect(), |_| {});
    let [mut left, mut right] = connected(&ends, false).await;
    left.write_all(b"never read").await.expect("written");
    let mut some = [0; 1];
    right.read_exact(&mut some).await.expect("it has come");
    drop(right);
    let error = left.read(&mut some).await.expect_err("reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
