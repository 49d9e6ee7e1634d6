//! Tunnel mode between two networks, each behind its gateway: four namespaces in a row.

use libtest_mimic::Trial;
use scenes::networks::{HOSTS, hosts, policy};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use testkit::gateway::{Gateway, PATIENT};
use testkit::space::Space;
use testkit::traffic::Stream;
use testkit::{BUFFERS, PINGED, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("two networks, ESP in UDP over IPv4", PINGED, || over([4, 4], "auto")),
        test("two networks, ESP natively over IPv4", PINGED, || over([4, 4], "never")),
        test("two networks, ESP natively over IPv6", PINGED, || over([6, 6], "never")),
    ]
}

fn over([outer, _]: [u8; 2], encap: &str) {
    let ike = format!("{PATIENT}\n");
    let esp = format!("encap = {encap:?}");
    let gateway = |name, end| Gateway::new(name, &policy(end, outer == 6), &ike, &esp);
    let mut gateways = [gateway("left", 0), gateway("right", 1)];
    let hosts = hosts([&gateways[0].space, &gateways[1].space]);
    let wire = [["192.0.2.1/24", "2001:db8::1/64"], ["192.0.2.2/24", "2001:db8::2/64"]];
    Space::connect((&gateways[0].space, "wire", &wire[0]), (&gateways[1].space, "wire", &wire[1]));
    let watch = gateways[1].space.watch("wire");
    gateways.iter_mut().for_each(Gateway::start);
    let [left, right] = &gateways;

    // Forwarded traffic is stopped, too, while the tunnel is down.
    for addresses in HOSTS {
        let (answered, _) = hosts[0].try_sh(&format!("ping -q -c 1 -W 0.2 {}", addresses[1]));
        assert!(!answered, "{} answers without a tunnel", addresses[1]);
    }

    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    for child in ["site_lan", "site_lan6"] {
        let native = left.child_sa(child)["encapsulation"] == "native";
        assert_eq!(native, encap == "never", "{}", left.child_sa(child));
    }
    let mtu = left.space.run(|| std::fs::read_to_string("/proc/sys/net/ipv6/conf/vpn0/mtu"));
    let mtu: u32 = mtu.expect("the device is there").trim().parse().expect("a number");

    for [from, to] in HOSTS {
        let addresses = [from, to].map(|a| a.parse::<IpAddr>().expect("an address"));
        let headers = if addresses[0].is_ipv4() { 40 } else { 60 };
        let mss = segment_size(&hosts, addresses);
        // Of the size in the handshake, the timestamps in every segment take twelve.
        assert_eq!(mss, [mtu - headers - 12; 2], "TCP is told of the tunnel's MTU {mtu}");

        hosts[1].pings("", 20, from).expect("echoes");
        // RFC 4301 §5.1.2.1: each gateway forwards, which takes one hop, and the tunnel takes none.
        hosts[0].pings("-t 3", 1, to).expect("two gateways are on the way");
        let (answered, text) = hosts[0].try_sh(&format!("ping -c 1 -W 0.3 -t 2 {to}"));
        assert!(!answered, "{text}");
        // The largest packet that fits goes through; the gateway reports one that does not fit.
        let largest = mtu - (headers - 20) - 8;
        hosts[0].pings(&format!("-M do -s {largest}"), 3, to).expect("echoes");
        let (answered, told) =
            hosts[0].try_sh(&format!("ping -c 1 -W 120 -M do -s {} {to}", largest + 1));
        assert!(
            !answered && told.contains(&format!("mtu = {mtu}"))
                || told.contains(&format!("mtu={mtu}")),
            "{told}"
        );

        let ends = ((&hosts[0].0, addresses[0]), (&hosts[1].0, addresses[1]));
        let stream = Stream::start(ends.0, ends.1, 0).expect("a connection");
        let enough = || (stream.received() > 3_000_000).then_some(());
        until("three megabytes", enough, || format!("{} arrived", stream.received()));
        stream.finish().expect("every octet is right");
    }

    for gateway in [left, right] {
        for counter in ["Ip FragCreates", "Ip ReasmReqds", "Ip6FragCreates", "Ip6ReasmReqds"] {
            assert_eq!(gateway.space.counter(counter), 0, "{}: {counter}", gateway.name);
        }
        // Except packets that were stopped before the tunnel was up, and the kernel's messages to neighbours, which a
        // tunnel does not have.
        let lost = gateway.discards().into_iter();
        let lost = lost.filter(|(reason, _)| {
            let expected = ["esp.no_sa", "esp.no_policy"].iter().chain(&BUFFERS);
            reason.starts_with("esp.") && !expected.into_iter().any(|name| name == reason)
        });
        assert_eq!(lost.collect::<Vec<_>>(), [], "{}", gateway.name);
        for child in ["site_lan", "site_lan6"] {
            assert!(gateway.child_sa(child)["packets_in"].as_u64() > Some(20));
        }
    }
    gateways.iter_mut().for_each(Gateway::stop);
    watch.nothing_in_the_clear();
}

/// The segment size that both ends of a fresh connection take.
fn segment_size(hosts: &[Space; 2], [from, to]: [IpAddr; 2]) -> [u32; 2] {
    let listener = hosts[1].run(move || TcpListener::bind((to, 0))).expect("an address");
    let target = listener.local_addr().expect("bound");
    let caller = hosts[0].run(move || {
        let domain = socket2::Domain::for_address(target);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.bind(&SocketAddr::new(from, 0).into())?;
        socket.connect(&target.into())?;
        Ok::<TcpStream, std::io::Error>(socket.into())
    });
    let caller = caller.expect("the handshake passes");
    let (called, _) = listener.accept().expect("it has come");
    [&caller, &called].map(|end| socket2::SockRef::from(end).tcp_mss().expect("a size"))
}
