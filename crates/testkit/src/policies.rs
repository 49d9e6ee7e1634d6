//! Policies: the vendor's sample as printed, the samples of this repository, and what tests make of them.

/// The vendor's sample: transport mode between 192.0.2.10 and 192.0.2.20, seen from the first.
pub const VENDOR: &str = include_str!("../../policy/fixtures/vendor_sample.xml");

/// The sample for two sites, seen from both.
pub const SITE: [&str; 2] = [
    include_str!("../../../tests/policies/site/left.xml"),
    include_str!("../../../tests/policies/site/right.xml"),
];

/// The addresses of [`VENDOR`].
pub const VENDOR_ADDRESSES: [&str; 2] = ["192.0.2.10", "192.0.2.20"];

/// The vendor's sample, seen from both ends.
pub fn vendor() -> [String; 2] {
    let [here, there] = VENDOR_ADDRESSES;
    [VENDOR.to_owned(), exchange(VENDOR, here, there)]
}

/// The sample for two sites.
pub fn site() -> [String; 2] {
    SITE.map(str::to_owned)
}

/// The addresses of [`SITE`], and those that [`site_with`] puts in their place over IPv6.
pub const SITE_ADDRESSES: [[&str; 2]; 2] =
    [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];

/// The sample for two sites, seen from one end, with another `IPSecESPProtocol` or `IPSecAHProtocol`; in transport mode
/// the gateways themselves are what is protected.
pub fn site_with(seen_from: usize, v6: bool, transport: bool, protocol: &str) -> String {
    let sample = SITE[seen_from];
    let from = sample.find("<IPSecESPProtocol").expect("the sample has one");
    let to = from + sample[from..].find("/>").expect("it ends") + 2;
    let mut text = changed(sample, &sample[from..to], protocol);
    if transport {
        for (number, address) in (1..).zip(SITE_ADDRESSES[0]) {
            let (first, last) = (format!("10.{number}.0.0\""), format!("10.{number}.0.255\""));
            text = changed(&text, &first, &format!("{address}\""));
            text = changed(&text, &last, &format!("{address}\""));
        }
        if v6 {
            text = changed(&text, "IPV4_Address_Range", "IPV6_Address_Range");
        }
    }
    if v6 {
        text = changed(&text, "IPV4_Address Value", "IPV6_Address Value");
        for (four, six) in SITE_ADDRESSES[0].iter().zip(SITE_ADDRESSES[1]) {
            text = changed(&text, &format!("\"{four}\""), &format!("\"{six}\""));
        }
    }
    text
}

/// Puts `a` where `b` is, and the other way round.
pub fn exchange(text: &str, a: &str, b: &str) -> String {
    assert!(text.contains(a) && text.contains(b), "nothing to exchange");
    text.replace(a, "\0").replace(b, a).replace('\0', b)
}

/// Replaces what must be there.
pub fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in the policy");
    text.replace(from, to)
}

/// The sample for two sites made one for a gateway, `hub`, and a guest that begins from any address, seen from both.
/// The guest has this name, a network that begins like this, and an address of its own; the gateway has an address of
/// its own and one under which the guest knows it.
pub fn guest(name: &str, net: &str, own: &str, hub: [&str; 2]) -> [String; 2] {
    let identity = |name: &str, address: Option<&str>| {
        let inner = address.map(|a| format!("<IPV4_Address Value=\"{a}\"/>")).unwrap_or_default();
        format!("<FQDN Value=\"{name}.example\">{inner}</FQDN>")
    };
    let sides = [
        (0, [("hub", Some(hub[0])), (name, None)], "Responder"),
        (1, [(name, Some(own)), ("hub", Some(hub[1]))], "Both"),
    ];
    sides.map(|(end, [local, remote], role)| {
        let addresses = [["192.0.2.1", "192.0.2.2"], ["192.0.2.2", "192.0.2.1"]][end];
        let named = |address: &str| format!("<IPV4_Address Value=\"{address}\"/>");
        let mut text = SITE[end].replace("site", name).replace("10.2.0.", net);
        for (key, (name, address)) in addresses.into_iter().zip([local, remote]) {
            text = changed(
                &text,
                &format!("Identity>{}", named(key)),
                &format!("Identity>{}", identity(name, address)),
            );
        }
        text = changed(
            &text,
            &format!("<PK_IPV4_Address Value=\"{}\"/>", addresses[1]),
            &format!("<PK_FQDN Value=\"{}.example\"/>", remote.0),
        );
        changed(&text, "Role=\"Both\"", &format!("Role=\"{role}\""))
    })
}

/// One policy with what several have.
pub fn together(policies: &[&str]) -> String {
    let body = |policy: &&str| {
        let from = policy.find("<IKEProtection").expect("it has one");
        policy[from..policy.find("</AIX_VPN>").expect("it ends")].to_owned()
    };
    let bodies: String = policies.iter().map(body).collect();
    format!("<AIX_VPN Version=\"2.1\">{bodies}</AIX_VPN>")
}
