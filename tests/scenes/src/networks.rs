//! Two networks, each behind its gateway.

use testkit::policies;
use testkit::space::Space;

/// The addresses of the gateways, by family.
pub const OUTER: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];
/// The addresses of the hosts behind the gateways, by family.
pub const HOSTS: [[&str; 2]; 2] = [["10.1.0.7", "10.2.0.7"], ["fd01::7", "fd02::7"]];

/// The sample for two sites with a second pair of networks, of IPv6.
pub fn policy(seen_from: usize, outer_v6: bool) -> String {
    let sample = policies::SITE[seen_from];
    let from = sample.find("<IPSecTunnel ").expect("the sample has one");
    let to =
        from + sample[from..].find("</IPSecTunnel>").expect("it ends") + "</IPSecTunnel>".len();
    let mut second = policies::changed(&sample[from..to], "site_lan", "site_lan6");
    second = policies::changed(&second, "IPV4_Address_Range", "IPV6_Address_Range");
    for number in ["1", "2"] {
        let (first, last) = (format!("10.{number}.0.0\""), format!("10.{number}.0.255\""));
        second = policies::changed(&second, &first, &format!("fd0{number}::\""));
        second = policies::changed(&second, &last, &format!("fd0{number}::ffff:ffff:ffff:ffff\""));
    }
    let mut text = policies::changed(sample, "</AIX_VPN>", &format!("{second}</AIX_VPN>"));
    if outer_v6 {
        text = policies::changed(&text, "IPV4_Address Value", "IPV6_Address Value");
        for (four, six) in OUTER[0].iter().zip(OUTER[1]) {
            text = policies::changed(&text, &format!("\"{four}\""), &format!("\"{six}\""));
        }
    }
    text
}

/// Has a host forward packets.
pub fn forward(space: &Space) {
    space.set("ipv4/ip_forward", "1");
    space.set("ipv6/conf/all/forwarding", "1");
}

/// A host in the network of each gateway.
pub fn hosts(gateways: [&Space; 2]) -> [Space; 2] {
    let hosts = [Space::new("left host"), Space::new("right host")];
    for (end, (gateway, host)) in gateways.into_iter().zip(&hosts).enumerate() {
        let number = end + 1;
        forward(gateway);
        Space::connect(
            (gateway, "lan", &[&format!("10.{number}.0.1/24"), &format!("fd0{number}::1/64")]),
            (host, "lan", &[&format!("{}/24", HOSTS[0][end]), &format!("{}/64", HOSTS[1][end])]),
        );
        host.ip(&format!("route add default via 10.{number}.0.1"));
        host.ip(&format!("-6 route add default via fd0{number}::1"));
    }
    hosts
}
