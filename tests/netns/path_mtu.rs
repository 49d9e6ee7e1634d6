//! Two networks whose gateways have a router between them that carries less than they think: one that says so, and one
//! that keeps it to itself.

use libtest_mimic::Trial;
use scenes::narrow::{ESP, NARROW, Protocol, Row};
use scenes::networks::{self, HOSTS};
use testkit::gateway::Gateway;
use testkit::{FILTERED, Need, PINGED, test, until};

/// Where a router writes a message of its own.
const FORGING: &[Need] = &[Need::All(PINGED), Need::Program("python3")];

pub fn trials() -> Vec<Trial> {
    vec![
        test("path MTU: a router says so, UDP over IPv4", FILTERED, || learned(4, "auto", ESP)),
        test("path MTU: a router says so, natively over IPv4", FILTERED, || {
            learned(4, "never", ESP)
        }),
        test("path MTU: a router says so, natively over IPv6", FILTERED, || {
            learned(6, "never", ESP)
        }),
        test("path MTU: a router says so, AH over IPv4", FILTERED, || learned(4, "auto", AH)),
        test("path MTU: what was forged for the kernel is not believed", FORGING, forged),
        test("path MTU: a black hole, and outer_mtu", FILTERED, black_hole),
        test("path MTU: routers fragment with df = clear", FILTERED, fragmented_on_the_way),
    ]
}

const AH: Protocol = |policy| {
    let from = policy.find("<IPSecESPProtocol").expect("the policy has ESP");
    let to = from + policy[from..].find("/>").expect("it ends") + 2;
    let ah =
        "<IPSecAHProtocol AH_Authentication=\"AH_AES_256_GMAC\" AH_EncapsulationMode=\"Tunnel\"
        AH_ExtendedSeqNum=\"1\" AH_KeyRefreshKB=\"0\" AH_KeyRefreshMinutes=\"60\"/>";
    [&policy[..from], ah, &policy[to..]].concat()
};

fn child_of(to: &str) -> &'static str {
    if to.contains(':') { "site_lan6" } else { "site_lan" }
}

fn learned(outer: u8, encap: &str, protocol: Protocol) {
    let mut row = Row::new(outer, &format!("encap = {encap:?}"), protocol);
    row.start();
    let left = &row.gateways[0];
    let number = |child: &str, field: &str| left.child_sa(child)[field].as_u64().expect("a number");
    let before = number("site_lan", "inner_mtu");
    assert_eq!(number("site_lan", "path_mtu"), 1500);
    assert_eq!(left.child_sa("site_lan")["path_mtu_learned"], false);

    // The first that is too long is lost, and the router tells the gateway, which tells the host of the next.
    let told = || {
        let (_, _) = row.hosts[0].try_sh(&format!(
            "ping -c 1 -W 0.1 -M do -s {} {}",
            before - 28,
            HOSTS[0][1]
        ));
        (number("site_lan", "path_mtu") == NARROW).then_some(())
    };
    until("the gateway learns", told, || left.ctl_ok(&["status", "site"]));
    assert_eq!(left.child_sa("site_lan")["path_mtu_learned"], true);
    let text = left.ctl_ok(&["status", "site"]);
    assert!(text.contains("1400 on the way to the peer, as a router there has said"), "{text}");

    for [from, to] in HOSTS {
        let inner = number(child_of(to), "inner_mtu");
        assert!(inner < before && inner > 1280, "{inner}");
        // The gateway reports a packet that does not fit any more, in the name of the far host.
        let fresh = if to.contains(':') { "-I fd01::7" } else { "" };
        let saying = || {
            let (answered, text) = row.ping(&format!("-W 1 -M do {fresh}"), inner + 1, to);
            assert!(!answered, "{text}");
            let said = [format!("mtu = {inner}"), format!("mtu={inner}"), format!("mtu: {inner}")];
            said.iter().any(|said| text.contains(said)).then_some(())
        };
        until("the host is told", saying, String::new);
        let largest = inner - if to.contains(':') { 48 } else { 28 };
        row.hosts[0].pings(&format!("-M do -s {largest}"), 5, to).expect("what fits passes");
        row.stream(0, [from, to]);
        row.stream(1, [from, to]);
    }
    // A packet that may be fragmented is, before ESP: nobody between the gateways needs to. The right gateway learns by
    // the answers.
    let passes = || row.ping("-W 1 -M dont", 4000, HOSTS[0][1]).0.then_some(());
    until("a large packet to pass", passes, || left.ctl_ok(&["counters"]));
    assert_eq!(row.router.counter("Ip FragCreates"), 0);
    let sums = || ["Ip ReasmReqds", "Ip6ReasmReqds"].map(|name| left.space.counter(name));
    let before = sums();
    assert!(row.ping("-M dont", 4000, HOSTS[0][1]).0);
    assert_eq!(sums(), before, "the gateway has nothing to put together");
    let discards = left.discards();
    assert!(discards.iter().any(|(name, _)| name == "esp.too_big"), "{discards:?}");
    row.stop();
}

/// An ICMP message that quotes a datagram of IKE, whose ports everybody knows, makes the kernel take the path for
/// narrow.
fn forged() {
    let mut row = Row::new(4, "", ESP);
    let [own, peer] = networks::OUTER[0];
    let script = row.gateways[0].path("forged.py");
    let text = format!(
        "import socket, struct\n\
         def sum(b):\n    s = 0\n    for n in struct.unpack('!%dH' % (len(b) // 2), b): s += n\n    while s >> 16: s = (s & 0xffff) + (s >> 16)\n    return ~s & 0xffff\n\
         ip = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 1500, 1, 0x4000, 64, 17, 0, socket.inet_aton('{own}'), socket.inet_aton('{peer}'))\n\
         quoted = ip[:10] + struct.pack('!H', sum(ip)) + ip[12:] + struct.pack('!HHHH', 4500, 4500, 1480, 0)\n\
         icmp = struct.pack('!BBHHH', 3, 4, 0, 0, 600) + quoted\n\
         icmp = icmp[:2] + struct.pack('!H', sum(icmp)) + icmp[4:]\n\
         socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(icmp, ('{own}', 0))\n"
    );
    std::fs::write(&script, text).expect("writable");
    row.gateways.iter_mut().for_each(Gateway::start);
    let (sent, said) = row.router.try_sh(&format!("python3 {}", script.display()));
    assert!(sent, "{said}");
    let left = &row.gateways[0];
    let believed =
        || left.space.sh(&format!("ip route get {peer}")).contains("mtu 600").then_some(());
    until("the kernel to believe it", believed, String::new);
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    let sa = left.child_sa("site_lan");
    assert_eq!((&sa["path_mtu"], &sa["path_mtu_learned"]), (&1500.into(), &false.into()), "{sa}");
    row.stop();
}

fn black_hole() {
    let mut row = Row::new(4, &format!("outer_mtu = {NARROW}"), ESP);
    row.router.sh("nft add table inet silent");
    row.router.sh("nft add chain inet silent out { type filter hook output priority 0 ; }");
    row.router.sh("nft add rule inet silent out meta l4proto { icmp, icmpv6 } drop");
    row.start();
    let left = &row.gateways[0];
    for [from, to] in HOSTS {
        let inner = left.child_sa(child_of(to))["inner_mtu"].as_u64().expect("a number");
        let largest = inner - if to.contains(':') { 48 } else { 28 };
        row.hosts[0].pings(&format!("-M do -s {largest}"), 3, to).expect("what fits passes");
        row.stream(0, [from, to]);
        row.stream(1, [from, to]);
    }
    assert_eq!(left.child_sa("site_lan")["path_mtu_learned"], false);
    row.stop();
}

fn fragmented_on_the_way() {
    for df in ["clear", "copy"] {
        let mut row = Row::new(4, &format!("df = {df:?}\nencap = \"never\""), ESP);
        row.start();
        let inner = row.gateways[0].child_sa("site_lan")["inner_mtu"].as_u64().expect("a number");
        let (answered, text) = row.ping("-M dont", inner, HOSTS[0][1]);
        assert!(answered, "{df}: {text}");
        assert!(row.router.counter("Ip FragCreates") > 0, "{df}: the router had nothing to do");
        // Said in the inner packet, it is said outside with "copy".
        let wait = if df == "clear" { "" } else { "-W 1" };
        let (answered, text) = row.ping(&format!("-M do {wait}"), inner, HOSTS[0][1]);
        assert_eq!(answered, df == "clear", "{df}: {text}");
        row.stop();
    }
}
