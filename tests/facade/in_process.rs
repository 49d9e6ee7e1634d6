//! Sockets over tunnels, of a gateway inside of a process.

use crate::side::{CHILD, FAR, Side, TUNNEL, quick};
use libtest_mimic::Trial;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as HostListener, UdpSocket as HostUdp};
use std::time::Duration;
use testkit::{GATEWAYS, PINGED, test};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vpn::net::{ConnectError, Network};
use vpn::{Gateway, StartError};

pub fn trials() -> Vec<Trial> {
    vec![
        test("sockets of a process reach a host behind the peer", GATEWAYS, reach),
        test("a host behind the peer reaches a listener of a process", PINGED, is_reached),
        test(
            "a stream of a process outlives rekeys and a tunnel that is made again",
            GATEWAYS,
            outlives,
        ),
        test("a stream of a process outlives a change of address", GATEWAYS, moves),
        test("a tunnel that does not come up gives its reason to connect", GATEWAYS, reason),
    ]
}

/// Octets of a stream: more than any buffer on the way.
const OCTETS: usize = 8 << 20;

fn start(side: &Side) -> Result<(Gateway, Network), StartError> {
    let builder = Gateway::builder(side.policy.clone()).ike(quick()).in_process();
    side.run(builder.start())
}

fn octets(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 16) as u8).collect()
}

/// A host that sends back each stream.
fn echoes(side: &Side) -> SocketAddr {
    let listener = side.space.run(|| HostListener::bind((FAR, 0))).expect("free");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a descriptor");
                // The client has compared what came back; its gateway may end before its stream.
                let _ = std::io::copy(&mut &stream, &mut writer);
            });
        }
    });
    address
}

fn reach() {
    let [left, right] = Side::pair();
    let peer = right.start(right.builder()).expect("started");
    let to = echoes(&right);
    let before = left.space.state();
    let watch = right.space.watch("wire");
    let (gateway, network) = start(&left).expect("started");
    left.space.is_as_before(&before);
    let datagrams = right.space.run(|| HostUdp::bind((FAR, 0))).expect("free");
    let udp_port = datagrams.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_535];
        while let Ok((len, from)) = datagrams.recv_from(&mut buffer) {
            datagrams.send_to(&buffer[..len], from).expect("sent");
        }
    });
    left.run(async move {
        // It starts the tunnel.
        let stream = network.connect(&to.to_string()).await.expect("connected");
        assert_eq!(stream.local_addr().ip().to_string(), "10.1.0.1");
        let (mut reader, mut writer) = stream.into_split();
        let sent = octets(OCTETS);
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.expect("written");
            writer.shutdown().await.expect("shut down");
        });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.expect("read");
        writing.await.expect("no panic");
        assert!(received == octets(OCTETS), "{} octets", received.len());

        network.ping(to.ip(), Duration::from_secs(60)).await.expect("answered");
        let socket = network.bind_udp("0.0.0.0:0".parse().expect("any")).expect("free");
        for len in [1, 1300, 5000] {
            socket.send_to(&octets(len), udp_port).await.expect("sent");
            let (received, from, _) = socket.receive().await.expect("received");
            assert!(received == octets(len) && from == udp_port);
        }
        let closed = SocketAddr::new(to.ip(), 1);
        let error = network.connect_to(closed).await.expect_err("nobody listens");
        assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
        let error = network.connect("198.51.100.7:80").await.expect_err("no tunnel covers it");
        assert!(error.to_string().contains("10.2.0.0/24 (site_lan)"), "{error}");
        gateway.stop().await;
        let error = network.connect_to(to).await.expect_err("it has stopped");
        assert!(matches!(error, ConnectError::Stopped), "{error}");
    });
    left.space.is_as_before(&before);
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
}

fn is_reached() {
    let [left, right] = Side::pair();
    let peer = right.start(right.builder()).expect("started");
    let (gateway, network) = start(&left).expect("started");
    let listener = network.listen("0.0.0.0:8080".parse().expect("any")).expect("free");
    let gateway = left.run(async move {
        gateway.tunnel(TUNNEL).activate().await.expect("up");
        gateway
    });
    assert!(right.reaches("10.1.0.1"), "the stack answers an echo request");
    let serving = left.spawn(async move {
        let (mut stream, peer) = listener.accept().await.expect("accepted");
        assert_eq!(peer.ip().to_string(), FAR);
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.expect("read");
        stream.write_all(&received).await.expect("written");
    });
    let back = right.space.run(|| {
        let mut stream = std::net::TcpStream::connect("10.1.0.1:8080").expect("connected");
        let sent = octets(100_000);
        stream.write_all(&sent).expect("written");
        stream.shutdown(std::net::Shutdown::Write).expect("shut down");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("read");
        back
    });
    assert!(back == octets(100_000), "{} octets", back.len());
    left.run(async move {
        serving.await.expect("no panic");
        gateway.stop().await;
    });
    right.run(async move { peer.stop().await });
}

fn outlives() {
    let [left, right] = Side::pair();
    let peer = right.start(right.builder()).expect("started");
    let to = echoes(&right);
    let (gateway, network) = start(&left).expect("started");
    left.run(async move {
        let mut stream = network.connect_to(to).await.expect("connected");
        let all = octets(1 << 20);
        for (round, part) in all.chunks(all.len() / 6).enumerate() {
            // The data is still under way during the change.
            stream.write_all(part).await.expect("written");
            match round {
                0 | 3 => gateway.tunnel(CHILD).rekey().await.expect("rekeyed"),
                1 | 4 => gateway.tunnel(TUNNEL).rekey().await.expect("rekeyed"),
                2 => {
                    gateway.tunnel(TUNNEL).deactivate().await.expect("gone");
                    gateway.tunnel(TUNNEL).activate().await.expect("up again");
                }
                _ => {}
            }
            let mut back = vec![0; part.len()];
            stream.read_exact(&mut back).await.expect("read");
            assert!(back == part, "round {round}");
        }
        gateway.stop().await;
    });
    right.run(async move { peer.stop().await });
}

fn moves() {
    let [left, right] = Side::pair();
    let peer = right.start(right.builder()).expect("started");
    let to = echoes(&right);
    let (gateway, network) = start(&left).expect("started");
    let stream = left.run(async move {
        let mut stream = network.connect_to(to).await.expect("connected");
        stream.write_all(&octets(50_000)).await.expect("written");
        let mut back = vec![0; 50_000];
        stream.read_exact(&mut back).await.expect("read");
        stream
    });
    left.space.ip("address del 192.0.2.1/24 dev wire");
    left.space.ip("address add 192.0.2.7/24 dev wire");
    left.run(async move {
        let mut stream = stream;
        let sent = octets(500_000);
        stream.write_all(&sent).await.expect("written");
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).await.expect("read");
        assert!(back == sent);
        let status = gateway.tunnels().status().await.expect("running");
        let sa = status[0].sa.clone().expect("up");
        assert_eq!(sa.local.ip().to_string(), "192.0.2.7");
        gateway.stop().await;
    });
    right.run(async move { peer.stop().await });
}

fn reason() {
    let [left, right] = Side::pair();
    // Nobody listens at the peer.
    let (gateway, network) = start(&left).expect("started");
    left.run(async move {
        let to = SocketAddr::new(FAR.parse().expect("an address"), 80);
        let error = network.connect_to(to).await.expect_err("no tunnel");
        let told = error.to_string();
        assert!(told.starts_with("tunnel site_lan: ") && told.contains("192.0.2.2"), "{told}");
        gateway.stop().await;
    });
    drop(right);
}
