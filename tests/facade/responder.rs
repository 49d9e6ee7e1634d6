//! Programs that embed a gateway in their process, and peers that begin with them.

use crate::side::{CHILD, FAR, Side, TUNNEL, quick};
use libtest_mimic::Trial;
use policy::{Policy, Role};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use testkit::{GATEWAYS, policies, test};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vpn::ike::EventKind;
use vpn::net::Network;
use vpn::{Gateway, StartError};

pub fn trials() -> Vec<Trial> {
    vec![
        test("of two programs with the library either begins", GATEWAYS, either_begins),
        test("two programs with the library meet on one host", GATEWAYS, on_one_host),
        test("a gateway begins with a program on port 500", GATEWAYS, begins_on_500),
        test(
            "a program leaves the ports of a gateway on its host alone",
            GATEWAYS,
            beside_a_gateway,
        ),
        test("a gateway names the program that has its port", GATEWAYS, before_a_gateway),
        test("a connection that nobody can begin fails with the reason", GATEWAYS, in_vain),
        test("a program listens for the peers of a policy that comes later", GATEWAYS, later),
    ]
}

/// The addresses of the two ends in their tunnels.
const INNER: [&str; 2] = ["10.1.0.1", FAR];
const HTTP: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(300);

fn start(side: &Side) -> (Gateway, Network) {
    let builder = Gateway::builder(side.policy.clone()).ike(quick()).in_process();
    side.run(builder.start()).expect("started")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

/// A policy whose only tunnel gives this role to its side.
fn with_role(policy: &Policy, role: Role) -> Policy {
    let mut policy = policy.clone();
    policy.tunnels.iter_mut().for_each(|tunnel| Arc::make_mut(tunnel).role = role);
    policy
}

/// Sends octets through the tunnel and back.
async fn echo(from: &Network, to: &Network, address: &str) {
    let listener = to.listen(SocketAddr::new(ip(address), HTTP)).expect("free");
    let echoing = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("accepted");
        let (mut reader, mut writer) = stream.into_split();
        tokio::io::copy(&mut reader, &mut writer).await.expect("copied");
        writer.shutdown().await.expect("shut down");
    });
    let mut stream = from.connect_to(SocketAddr::new(ip(address), HTTP)).await.expect("connected");
    stream.write_all(b"through the tunnel").await.expect("written");
    stream.shutdown().await.expect("shut down");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.expect("read");
    assert_eq!(back, b"through the tunnel");
    echoing.await.expect("no panic");
}

fn either_begins() {
    for begins in [0, 1] {
        let sides = Side::pair();
        let watch = sides[1].space.watch("wire");
        let [left, right] = [0, 1].map(|side| start(&sides[side]));
        let [first, second] = if begins == 0 { [left, right] } else { [right, left] };
        sides[begins].run(async move {
            first.0.tunnel(TUNNEL).activate().await.expect("up");
            let status = first.0.tunnel(TUNNEL).status().await.expect("running").expect("known");
            let sa = status.sa.expect("up");
            assert!(sa.initiator, "this side has begun");
            echo(&first.1, &second.1, INNER[1 - begins]).await;
            first.0.stop().await;
            second.0.stop().await;
        });
        watch.nothing_in_the_clear();
    }
}

/// The sample between two addresses of the loopback device.
fn of_loopback() -> [Policy; 2] {
    policies::site().map(|text| {
        let text = policies::changed(&text, "192.0.2.1\"", "127.0.0.2\"");
        let text = policies::changed(&text, "192.0.2.2\"", "127.0.0.3\"");
        policy::xml::read("site", &text).expect("valid").policy
    })
}

fn on_one_host() {
    for begins in [0, 1] {
        let [side, _other] = Side::pair();
        let policies = of_loopback();
        let (space, mut started) = (&side.space, Vec::new());
        for policy in policies {
            let builder = Gateway::builder(policy).ike(quick()).in_process();
            started.push(side.run(builder.start()).expect("started"));
        }
        let gateways: Vec<Gateway> = started.iter().map(|(gateway, _)| gateway.clone()).collect();
        let names = started.iter().map(|(gateway, _)| gateway.listening().expect("UDP").at);
        assert_eq!(
            names.collect::<Vec<_>>(),
            [2, 3].map(|n| vec![at(&format!("127.0.0.{n}:4500")), at(&format!("127.0.0.{n}:500"))])
        );
        let begun = gateways[begins].clone();
        side.run(async move {
            begun.tunnel(TUNNEL).activate().await.expect("up");
            echo(&started[begins].1, &started[1 - begins].1, INNER[1 - begins]).await;
        });
        // News of the host's addresses, among which those of the loopback device are not.
        space.ip("address add 192.0.2.77/32 dev wire");
        let begun = gateways[begins].clone();
        side.run(async move {
            begun.tunnel(TUNNEL).rekey().await.expect("rekeyed");
            let status = begun.tunnel(TUNNEL).status().await.expect("running").expect("known");
            let own = ["127.0.0.2:4500", "127.0.0.3:4500"][begins];
            assert_eq!(status.sa.expect("up").local, at(own));
            for gateway in gateways {
                gateway.stop().await;
            }
        });
    }
}

fn begins_on_500() {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let (gateway, network) = start(&left);
    let listening = gateway.listening().expect("UDP");
    assert_eq!(listening.at, [at("192.0.2.1:4500"), at("192.0.2.1:500")], "{listening}");
    assert!(listening.refused.is_empty() && listening.unreachable.is_empty(), "{listening:?}");
    let peer = right.start(right.builder()).expect("started");
    let begins = peer.clone();
    right.run(async move {
        begins.tunnel(TUNNEL).activate().await.expect("up");
        begins.tunnel(CHILD).rekey().await.expect("rekeyed");
        begins.tunnel(TUNNEL).rekey().await.expect("rekeyed");
    });
    left.run(async move {
        network.ping(ip(FAR), PATIENCE).await.expect("answered");
        gateway.stop().await;
    });
    right.run(async move { peer.stop().await });
    watch.nothing_in_the_clear();
}

fn beside_a_gateway() {
    let [left, right] = Side::pair();
    // The gateway of the host, which has the ports at all addresses.
    let host = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder()).expect("started");
    let builder = Gateway::builder(left.policy.clone()).ike(quick()).in_process();
    let mut events = builder.subscribe();
    let (gateway, network) = left.run(builder.start()).expect("it begins without the port");
    let listening = gateway.listening().expect("UDP");
    assert!(listening.at.is_empty(), "{listening}");
    let told = &listening.unreachable[TUNNEL];
    let begin = "the peer cannot begin, only this side can begin: this side cannot listen on UDP 192.0.2.1:4500: ";
    assert!(told.starts_with(begin), "{told}");
    assert!(told.contains("this process has it already"), "{told}");
    let event = events.try_recv().expect("the first event");
    assert_eq!((event.tunnel.as_str(), &event.kind), (TUNNEL, &EventKind::Warning(told.clone())));
    // Whoever insists is refused.
    let insisting = Gateway::builder(left.policy.clone()).in_process().listen([ip("192.0.2.1")]);
    let error = left.run(insisting.start()).expect_err("the port is taken");
    assert!(matches!(error, StartError::Listen(_)), "{error}");
    let absent = Gateway::builder(left.policy.clone()).in_process().listen([ip("192.0.2.99")]);
    let error = left.run(absent.start()).expect_err("no address of this host");
    assert!(error.to_string().contains("; it is not an address of this host. Choose"), "{error}");
    let none = Gateway::builder(left.policy.clone()).in_process().listen([]);
    let (quiet, _) = left.run(none.start()).expect("started");
    assert!(quiet.listening().expect("UDP").unreachable.is_empty());
    left.run(async move {
        quiet.stop().await;
        network.ping(ip(FAR), PATIENCE).await.expect("this side begins");
        gateway.stop().await;
    });
    // The host's gateway still hears its peer.
    right.run(async move {
        peer.tunnel(TUNNEL).activate().await.expect("up");
        peer.stop().await;
    });
    left.run(async move { host.stop().await });
}

fn before_a_gateway() {
    let [left, _right] = Side::pair();
    let (gateway, _network) = start(&left);
    let error = left.start(left.builder()).expect_err("the port is taken");
    let StartError::Socket(taken) = &error else { panic!("{error}") };
    assert_eq!(taken.holder.as_ref().map(|process| process.id), Some(std::process::id()));
    left.run(async move { gateway.stop().await });
    let host = left.start(left.builder()).expect("the ports are free again");
    left.run(async move { host.stop().await });
}

fn in_vain() {
    let [left, _right] = Side::pair();
    let host = left.start(left.builder()).expect("started");
    let policy = with_role(&left.policy, Role::Responder);
    let (gateway, network) =
        left.run(Gateway::builder(policy).in_process().start()).expect("started");
    left.run(async move {
        let error = network.connect_to(SocketAddr::new(ip(FAR), HTTP)).await.expect_err("in vain");
        let told = error.to_string();
        let reason = "tunnel site_lan: the peer cannot begin, this side may not, so the tunnel cannot come up: \
                      this side cannot listen on UDP 192.0.2.1:4500: ";
        assert!(told.starts_with(reason), "{told}");
        gateway.stop().await;
        host.stop().await;
    });
}

fn later() {
    let [left, right] = Side::pair();
    let policy = with_role(&left.policy, Role::Initiator);
    let builder = Gateway::builder(policy).ike(quick()).in_process();
    let (gateway, network) = left.run(builder.start()).expect("started");
    let listening = gateway.listening().expect("UDP");
    assert!(listening.at.is_empty() && listening.unreachable.is_empty(), "{listening:?}");
    let mut new = with_role(&left.policy, Role::Responder);
    // It is completed, too.
    new.tunnels.iter_mut().for_each(|tunnel| Arc::make_mut(tunnel).local.address = None);
    let (peer, _other) = start(&right);
    let replaced = gateway.clone();
    left.run(async move { replaced.replace_policy(new).await.expect("valid") });
    assert_eq!(gateway.listening().expect("UDP").at[0], at("192.0.2.1:4500"));
    let begins = peer.clone();
    right.run(async move { begins.tunnel(TUNNEL).activate().await.expect("up") });
    left.run(async move {
        network.ping(ip(FAR), PATIENCE).await.expect("answered");
        gateway.stop().await;
    });
    right.run(async move { peer.stop().await });
}
