//! AH between two gateways: packets of protocol 51 in either mode and family, whole and unaltered.

use libtest_mimic::Trial;
use std::net::{IpAddr, UdpSocket};
use testkit::gateway::{Gateway, PATIENT};
use testkit::space::Space;
use testkit::traffic::Stream;
use testkit::{Need, PATIENCE, PINGED, policies, test, until};

const NEEDS: &[Need] = &[Need::All(PINGED), Need::Program("python3")];

pub fn trials() -> Vec<Trial> {
    vec![
        test("AH with GMAC in tunnel mode over IPv4", NEEDS, || {
            over(4, "Tunnel", "AH_AES_256_GMAC")
        }),
        test("AH with HMAC in tunnel mode over IPv6", NEEDS, || over(6, "Tunnel", "AH_SHA2_256")),
        test("AH with HMAC in transport mode over IPv4", NEEDS, || over(4, "Transport", "AH_SHA")),
        test("AH with GMAC in transport mode over IPv6", NEEDS, || {
            over(6, "Transport", "AH_AES_128_GMAC");
        }),
    ]
}

const INNER: [&str; 2] = ["10.1.0.1", "10.2.0.1"];

/// A datagram behind options for every hop and for the destination, of which some may change on the way: the kernel
/// takes them off before it hands AH over, and tells of them.
fn extension_headers(left: &Gateway, right: &Gateway, to: &str) {
    let address: IpAddr = to.parse().expect("an address");
    let socket = right.space.run(move || UdpSocket::bind((address, 0))).expect("an address");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket takes it");
    let port = socket.local_addr().expect("bound").port();
    let script = left.path("options.py");
    // IPV6_HOPOPTS and IPV6_DSTOPTS: the kernel fills in what follows each.
    let text = format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
         s.setsockopt(41, 54, bytes([0, 0, 5, 2, 0, 0, 1, 0]))\n\
         s.setsockopt(41, 59, bytes([0, 1, 0x3e, 2, 1, 2, 0x1e, 6, 1, 2, 3, 4, 5, 6, 1, 0]))\n\
         s.sendto(b'behind options', ('{to}', {port}))\n"
    );
    std::fs::write(&script, text).expect("writable");
    let (sent, said) = left.space.try_sh(&format!("python3 {}", script.display()));
    assert!(sent, "{said}");
    let mut packet = [0; 64];
    let length = socket.recv(&mut packet).unwrap_or_else(|error| {
        panic!("{error}; {:?} {:?}", left.discards(), right.discards());
    });
    assert_eq!(&packet[..length], b"behind options");
}

fn over(family: u8, mode: &str, algorithm: &str) {
    let ah = format!(
        "<IPSecAHProtocol AH_Authentication=\"{algorithm}\" AH_EncapsulationMode=\"{mode}\"
         AH_ExtendedSeqNum=\"1\" AH_KeyRefreshKB=\"0\" AH_KeyRefreshMinutes=\"60\"/>"
    );
    let policy = |end| policies::site_with(end, family == 6, mode == "Transport", &ah);
    let gateway = |name, end| Gateway::new(name, &policy(end), PATIENT, "");
    let mut gateways = [gateway("left", 0), gateway("right", 1)];
    let wire = [["192.0.2.1/24", "2001:db8::1/64"], ["192.0.2.2/24", "2001:db8::2/64"]];
    Space::connect((&gateways[0].space, "wire", &wire[0]), (&gateways[1].space, "wire", &wire[1]));
    for (gateway, address) in gateways.iter().zip(INNER) {
        gateway.space.ip(&format!("address add {address}/32 dev lo"));
    }
    gateways.iter_mut().for_each(Gateway::start);
    let [left, right] = &gateways;
    let [from, to] = match (mode, family) {
        ("Tunnel", _) => INNER,
        (_, 4) => policies::SITE_ADDRESSES[0],
        _ => policies::SITE_ADDRESSES[1],
    };
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    for gateway in [left, right] {
        let sa = gateway.child_sa("site_lan");
        assert_eq!(sa["encapsulation"], "ah", "{sa}");
        assert!(sa["suite"].as_str().is_some_and(|suite| suite.starts_with("AH/")), "{sa}");
    }
    // Every size up to what the device takes, and the keys changed meanwhile.
    let source = format!("-I {from}");
    for size in [0, 1, 999, 1200] {
        left.space.pings(&format!("{source} -s {size}"), 3, to).expect("echoes");
    }
    match (mode, family) {
        ("Transport", 4) => left.space.pings("-R", 1, to).expect("echoes with Record Route"),
        ("Transport", _) => extension_headers(left, right, to),
        _ => {}
    }
    let addresses = [from, to].map(|a| a.parse::<IpAddr>().expect("an address"));
    let ends = ((&left.space.0, addresses[0]), (&right.space.0, addresses[1]));
    let stream = Stream::start(ends.0, ends.1, 0).expect("a connection");
    for octets in [500_000, 1_000_000] {
        let enough = || (stream.received() > octets).then_some(());
        until("traffic", enough, || format!("{} arrived", stream.received()));
        left.ctl_ok(&["rekey", "site_lan"]);
    }
    stream.finish().expect("every octet is right");
    for gateway in [left, right] {
        let lost = gateway.discards().into_iter();
        let lost = lost.filter(|(reason, _)| {
            reason.starts_with("esp.") && !["esp.no_sa", "esp.no_policy"].contains(&reason.as_str())
        });
        assert_eq!(lost.collect::<Vec<_>>(), [], "{}", gateway.name);
        assert!(gateway.child_sa("site_lan")["packets_in"].as_u64() > Some(20));
    }
    gateways.iter_mut().for_each(Gateway::stop);
}
