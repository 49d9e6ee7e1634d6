//! `vpnctl policy convert`: each setting means in the policy what it meant to the daemon that read the file.

use super::convert::{Memory, file};
use convert::source::File;
use convert::{Converted, Finding, Format, Loss, Options, convert};
use policy::{Group, Identity, IkeEncryption, IkeTunnel, Policy};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;
use terminal::report::Colour;
use vpnd::check;
use vpnd::config::Config;

const SECRETS: &str = ": PSK \"shared-key-for-all-tests\"\n";

fn read(
    format: Format,
    text: &str,
    secrets: &str,
    options: &Options,
    files: &mut Memory,
) -> Result<Converted, Finding> {
    let secrets: Option<File> = Some(file("ipsec.secrets", secrets));
    convert(format, file("ipsec.conf", text), secrets, files, options)
}

/// Converts an ipsec.conf; its own words decide the dialect.
fn ipsec(text: &str) -> Converted {
    with(text, &Options::default())
}

fn with(text: &str, options: &Options) -> Converted {
    read(Format::Ipsec, text, SECRETS, options, &mut Memory::default()).expect("it can be read")
}

fn swanctl(text: &str, options: &Options) -> Converted {
    let text = format!("{text}\nsecrets {{ ike {{ secret = shared-key-for-all-tests }} }}\n");
    let read = convert(
        Format::Swanctl,
        file("swanctl.conf", &text),
        None,
        &mut Memory::default(),
        options,
    );
    read.expect("it can be read")
}

/// The policy as `vpnd` reads it.
fn policy(converted: &Converted) -> Policy {
    let report = converted.report();
    let read = policy::xml::read("policy.xml", &converted.xml);
    read.unwrap_or_else(|refused| panic!("{refused}\n{report}")).policy
}

fn only(converted: &Converted) -> IkeTunnel {
    let policy = policy(converted);
    assert_eq!(policy.tunnels.len(), 1, "{}", converted.report());
    (*policy.tunnels[0]).clone()
}

fn told(converted: &Converted, loss: Loss, text: &str) -> bool {
    converted.findings.iter().any(|f| f.loss == loss && f.message.contains(text))
}

/// A conn between 192.0.2.1 and 192.0.2.2, with more lines.
fn conn(lines: &str) -> String {
    format!(
        "conn net\n\tauthby=secret\n\tleft=192.0.2.1\n\tright=192.0.2.2\n\tleftsubnet=10.1.0.0/24\n\
         \trightsubnet=10.2.0.0/24\n\tauto=start\n{lines}"
    )
}

const STRONGSWAN: &str = "\tike=aes256-sha256-ecp256!\n\tesp=aes256gcm16-ecp256!\n";

#[test]
fn an_ike_of_libreswan_without_a_group_has_its_default_groups() {
    let lines = "\tikev2=insist\n\tike=aes_gcm256-sha2_256\n\tesp=aes_gcm256\n";
    let converted = ipsec(&conn(lines));
    let tunnel = only(&converted);
    let [proposal] = tunnel.proposals.as_slice() else { panic!("{:?}", tunnel.proposals) };
    assert_eq!(proposal.encryption, [IkeEncryption::AesGcm16(policy::KeyBits::B256)]);
    assert_eq!(proposal.prf, [policy::Prf::HmacSha2_256]);
    for group in [Group::Ecp256, Group::Modp2048, Group::Curve25519] {
        assert!(proposal.groups.contains(&group), "{:?}", proposal.groups);
    }
    assert!(told(&converted, Loss::Changed, "default groups"), "{}", converted.report());
    // strongSwan refuses such a proposal, and so does the conversion of its file.
    let charon = ipsec(&conn("\tcloseaction=restart\n\tike=aes256-sha256\n\tesp=aes256gcm16!\n"));
    assert!(charon.is_empty() && charon.is_incomplete(), "{}", charon.report());
}

#[test]
fn pfs_of_libreswan_takes_the_first_group_of_ike() {
    let lines =
        "\tikev2=insist\n\tike=aes256-sha2_256;dh19,aes256-sha2_256;dh14\n\tesp=aes256-sha2_256\n";
    for pfs in ["", "\tpfs=yes\n"] {
        let converted = ipsec(&conn(&format!("{lines}{pfs}")));
        let pfs = only(&converted).children[0].pfs.clone();
        assert_eq!(pfs.offer, [Group::Ecp256]);
        assert_eq!(pfs.accept, [Group::Ecp256, Group::Modp2048], "those of the IKE SA");
        assert!(!pfs.accept_none);
        assert!(told(&converted, Loss::Changed, "the first of ike"), "{}", converted.report());
    }
    let never = only(&ipsec(&conn(&format!("{lines}\tpfs=no\n")))).children[0].pfs.clone();
    assert!(never.offer.is_empty() && never.accept.is_empty() && never.accept_none);
    let named = "\tikev2=insist\n\tike=aes256-sha2_256;dh19\n\tesp=aes256-sha2_256;dh20\n";
    let named = only(&ipsec(&conn(named))).children[0].pfs.clone();
    assert_eq!((named.offer, named.accept_none), (vec![Group::Ecp384], false));
}

#[test]
fn a_side_named_by_the_address_of_its_nat_keeps_its_own() {
    let lines = "\tleftid=198.51.100.86\n\tikev2=insist\n\tike=aes256-sha2_256;dh19\n";
    let tunnel = only(&ipsec(&conn(lines)));
    assert_eq!(tunnel.local.identity, Identity::Ipv4([198, 51, 100, 86].into()));
    assert_eq!(tunnel.local.address, Some([192, 0, 2, 1].into()));
    assert_eq!(tunnel.remote.address, tunnel.remote.identity.address());
    let text = "connections { site { version = 2\n local_addrs = 10.0.0.61\n remote_addrs = 192.0.2.2\n \
                local { auth = psk\n id = 198.51.100.86 }\n remote { auth = psk\n id = 203.0.113.9 }\n \
                proposals = aes256-sha256-ecp256\n children { net { local_ts = 10.1.0.0/24\n \
                remote_ts = 10.2.0.0/24\n esp_proposals = aes256gcm16-ecp256 } } } }";
    let tunnel = only(&swanctl(text, &Options::default()));
    let sides = [&tunnel.local, &tunnel.remote]
        .map(|side| (side.identity.to_string(), side.address.map(|address| address.to_string())));
    let told = |identity: &str, at: &str| (identity.to_owned(), Some(at.to_owned()));
    assert_eq!(sides, [told("198.51.100.86", "10.0.0.61"), told("203.0.113.9", "192.0.2.2")]);
    // The other end is where it says, and reaches this one at the address of the NAT.
    let peer = only(&swanctl(text, &Options { peer: true, ..Options::default() }));
    assert_eq!(peer.local.address, peer.local.identity.address());
    assert_eq!(peer.remote.identity.to_string(), "198.51.100.86");
    assert_eq!(peer.remote.address, peer.remote.identity.address());
}

#[test]
fn text_in_brackets_is_a_key_id_of_libreswan() {
    let lines =
        "\tleftid=@[branch-7]\n\trightid=\"@[hub]\"\n\tikev2=insist\n\tike=aes256-sha2_256;dh19\n";
    let secrets = "@[branch-7] @[hub] : PSK \"of these two\"\n@[hub] : PSK \"of another\"\n";
    let read =
        read(Format::Ipsec, &conn(lines), secrets, &Options::default(), &mut Memory::default());
    let tunnel = only(&read.expect("it can be read"));
    assert_eq!(tunnel.local.identity, Identity::KeyId(b"branch-7".to_vec()));
    assert_eq!(tunnel.remote.identity, Identity::KeyId(b"hub".to_vec()));
    let policy::Credential::PresharedKey(key) = &tunnel.credential else { panic!("a key") };
    assert_eq!(key.expose(), b"of these two");
}

#[test]
fn a_default_behind_a_proposal_fills_what_is_left() {
    let text = "connections { a { local_addrs = 192.0.2.1
        remote_addrs = 192.0.2.2
        proposals = aes128-sha1-modp1024, default
        local { auth = psk } remote { auth = psk }
        children { c { local_ts = 10.1.0.0/16
        remote_ts = 10.2.0.0/16
        esp_proposals = aes128-sha1, default } } } }";
    let converted = swanctl(text, &Options::default());
    let proposals = only(&converted).proposals.clone();
    assert!((2..=policy::MAX_PROPOSALS).contains(&proposals.len()), "{}", proposals.len());
    assert_eq!(proposals[0].groups, [Group::Modp1024], "that of the file is the first");
    let has = |test: &dyn Fn(&policy::IkeProposal) -> bool| proposals.iter().any(test);
    for group in [Group::Modp2048, Group::Ecp256, Group::Curve25519, Group::Ecp384] {
        assert!(has(&|p| p.groups == [group]), "{group:?}");
    }
    assert!(has(&|p| p.integrity.is_empty()), "an AEAD cipher");
    assert!(has(&|p| p.integrity == [policy::Integrity::HmacSha2_256_128]));
    assert!(told(&converted, Loss::Changed, "proposals"), "{}", converted.report());
}

#[test]
fn the_side_with_this_address_is_this_side() {
    let options = Options { local_address: "192.0.2.2".parse().ok(), ..Options::default() };
    let text = conn(STRONGSWAN);
    let converted = with(&text, &options);
    let tunnel = only(&converted);
    assert_eq!(tunnel.local.address, options.local_address);
    assert_eq!(tunnel.children[0].local[0].to_string(), "10.2.0.0/24");
    assert!(told(&converted, Loss::Changed, "--local-address"), "{}", converted.report());
    // The other end of that is the first one again.
    let peer = with(&text, &Options { peer: true, ..options });
    assert_eq!(only(&peer).local.address, "192.0.2.1".parse().ok());
    // An option that is of no use is told.
    let other = Options { local_address: "198.51.100.9".parse().ok(), ..Options::default() };
    let converted = with(&text, &other);
    assert_eq!(only(&converted).local.address, "192.0.2.1".parse().ok());
    assert!(told(&converted, Loss::Changed, "--local-address"), "{}", converted.report());
    // swanctl.conf has a local and a remote side, and no daemon exchanges them.
    let text = "connections { a { local_addrs = 192.0.2.1
        remote_addrs = 192.0.2.2
        local { auth = psk } remote { auth = psk } children { c { } } } }";
    let refused = swanctl(text, &options);
    assert!(refused.is_empty() && told(&refused, Loss::LeftOut, "--local-address"));
}

#[test]
fn a_tunnel_that_no_longer_starts_is_a_loss() {
    let lines = format!("\trightid=@gate.example.net\n{STRONGSWAN}");
    let text = conn(&lines).replace("right=192.0.2.2", "right=gate.example.net");
    let converted = ipsec(&text);
    assert_eq!(only(&converted).role, policy::Role::Responder);
    assert!(converted.is_incomplete(), "{}", converted.report());
    assert!(converted.summary().contains("1 function lost"), "{}", converted.summary());
    // The routes chose this side's address.
    let text = conn(&lines).replace("left=192.0.2.1", "left=%defaultroute\n\tleftid=@a.example");
    assert!(ipsec(&text).is_incomplete());
    let options = Options { local_address: "192.0.2.1".parse().ok(), ..Options::default() };
    assert!(!with(&text, &options).is_incomplete());
    // Neither daemon could start this one.
    let text = conn(&lines).replace("right=192.0.2.2", "right=%any");
    assert!(!ipsec(&text).is_incomplete(), "{}", ipsec(&text).report());
    let waits = conn(&lines).replace("right=192.0.2.2", "right=gate.example.net");
    let waits = ipsec(&waits.replace("auto=start", "auto=add"));
    assert!(!waits.is_incomplete(), "{}", waits.report());
}

#[test]
fn a_colon_at_the_end_of_an_address_is_not_the_separator() {
    let text = "conn v6\n\tauthby=secret\n\tleft=2001:db8:1:3::\n\tright=2001:db8:9::5\n\
                \ttype=transport\n\tauto=start\n\tike=aes256-sha256-ecp256!\n";
    for secrets in [
        "2001:db8:1:3:: 2001:db8:9::5: PSK \"here-is-a-secret\"\n",
        "2001:db8:1:3:: 2001:db8:9::5 : PSK \"here-is-a-secret\"\n",
        "2001:db8:9::5 2001:db8:1:3::: psk \"here-is-a-secret\"\n",
        "2001:db8:1:3:: 2001:db8:9::5 :PSK \"here-is-a-secret\"\n",
        ":PSK \"here-is-a-secret\"\n",
    ] {
        let read = read(Format::Ipsec, text, secrets, &Options::default(), &mut Memory::default());
        let tunnel = only(&read.expect(secrets));
        let policy::Credential::PresharedKey(key) = &tunnel.credential else { panic!("a key") };
        assert_eq!(key.expose(), b"here-is-a-secret", "{secrets}");
    }
}

#[test]
fn of_addresses_of_both_families_the_two_sides_take_one_family() {
    let text = |local: &str, remote: &str| {
        format!(
            "connections {{ a {{ local_addrs = {local}\n remote_addrs = {remote}
             local {{ auth = psk\n id = a.example }} remote {{ auth = psk\n id = b.example }}
             children {{ c {{ local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 }} }} }} }}"
        )
    };
    for (local, remote, here, there) in [
        ("192.0.2.1, 2001:db8::1", "2001:db8::2", "2001:db8::1", "2001:db8::2"),
        ("192.0.2.1", "2001:db8::2, 192.0.2.2", "192.0.2.1", "192.0.2.2"),
        ("2001:db8::1, 192.0.2.1", "192.0.2.2, 2001:db8::2", "2001:db8::1", "2001:db8::2"),
    ] {
        let converted = swanctl(&text(local, remote), &Options::default());
        let tunnel = only(&converted);
        let addresses = [tunnel.local.address, tunnel.remote.address];
        assert_eq!(addresses, [here.parse().ok(), there.parse().ok()], "{local} {remote}");
        assert!(told(&converted, Loss::Changed, "of several addresses"), "{}", converted.report());
    }
    let options = Options { local_address: "192.0.2.9".parse().ok(), ..Options::default() };
    let tunnel = only(&swanctl(&text("192.0.2.1, 192.0.2.9", "192.0.2.2"), &options));
    assert_eq!(tunnel.local.address, options.local_address, "the one that the option names");
    let none = swanctl(&text("192.0.2.1", "2001:db8::2"), &Options::default());
    assert!(none.is_empty() && none.is_incomplete());
}

#[test]
fn a_side_at_a_link_local_address_is_told() {
    let text = |local: &str, remote: &str| {
        format!(
            "connections {{ a {{ local_addrs = {local}\n remote_addrs = {remote}
             local {{ auth = psk\n id = a.example }} remote {{ auth = psk\n id = b.example }}
             children {{ c {{ local_ts = 10.1.0.0/24\n remote_ts = 10.2.0.0/24 }} }} }} }}"
        )
    };
    for (local, remote) in
        [("fe80::1%eth0", "fe80::2%eth0"), ("2001:db8::1", "fe80::2"), ("fe80::1", "2001:db8::2")]
    {
        let converted = swanctl(&text(local, remote), &Options::default());
        assert!(converted.is_empty() && converted.is_incomplete(), "{local} {remote}");
        let words = "is a link-local address, to which vpnd does not send";
        assert!(converted.report().contains(words), "{}", converted.report());
    }
    // Of several addresses, another one is taken.
    let converted = swanctl(&text("2001:db8::1", "fe80::2%eth0, 2001:db8::2"), &Options::default());
    assert_eq!(only(&converted).remote.address, "2001:db8::2".parse().ok());
    assert!(told(&converted, Loss::Dropped, "fe80::2%eth0"), "{}", converted.report());
    let options = Options { local_address: "2001:db8::1".parse().ok(), ..Options::default() };
    let converted = swanctl(&text("fe80::1%eth0", "2001:db8::2"), &options);
    assert_eq!(only(&converted).local.address, options.local_address);
    let of_link = Options { local_address: "fe80::1".parse().ok(), ..Options::default() };
    let converted = swanctl(&text("%any", "2001:db8::2"), &of_link);
    assert!(converted.is_empty() && converted.report().contains("--local-address fe80::1"));
    // An IPv4 address within one of IPv6 is that IPv4 address.
    let converted = swanctl(&text("192.0.2.1", "::ffff:192.0.2.2"), &Options::default());
    assert_eq!(only(&converted).remote.address, "192.0.2.2".parse().ok());
}

#[test]
fn an_include_may_be_indented_and_one_without_files_is_told() {
    let site = conn(STRONGSWAN);
    let part = "\tauto=start\n".to_owned();
    let mut files = Memory(vec![("site.cnf", site.clone()), ("part", part)]);
    let options = Options::default();
    let mut ipsec =
        |text: &str| read(Format::Ipsec, text, SECRETS, &options, &mut files).expect(text);
    let indented = ipsec("config setup\n\tuniqueids=no\n\tinclude site.cnf\n");
    assert_eq!(indented.tunnels, (1, 1), "{}", indented.report());
    // An included file goes on in the open block, as if it stood there.
    let without = site.replace("\tauto=start\n", "\tinclude \"part\"\n");
    assert_eq!(ipsec(&without).tunnels, (1, 1));
    let mut files = Memory(vec![("more.secrets", SECRETS.to_owned())]);
    let secrets = "192.0.2.9 : PSK \"another\"\n\tinclude more.secrets\n";
    let named = read(Format::Ipsec, &site, secrets, &options, &mut files).expect("readable");
    assert_eq!(named.tunnels, (1, 1), "{}", named.report());
    let ipsec = |text: &str| {
        let mut files = Memory::default();
        read(Format::Ipsec, text, SECRETS, &options, &mut files).expect(text)
    };
    let absent = ipsec(&format!("{site}include /etc/vpn.d/branches-*.conf\n"));
    assert_eq!(absent.tunnels, (1, 1));
    let message = "include /etc/vpn.d/branches-*.conf";
    assert!(told(&absent, Loss::Dropped, message), "{}", absent.report());
    let found = absent.findings.iter().find(|f| f.message.contains(message));
    assert_eq!(found.map(|f| f.location.line), Some(1 + site.lines().count()));
}

#[test]
fn a_name_that_is_an_address_in_text_is_converted() {
    for (id, identity) in [
        ("fqdn:192.0.2.2", Identity::Fqdn("192.0.2.2".into())),
        ("@192.0.2.2", Identity::Fqdn("192.0.2.2".into())),
        ("\"@the hub\"", Identity::Fqdn("the hub".into())),
        ("email:ops", Identity::UserFqdn("ops".into())),
    ] {
        let converted = ipsec(&conn(&format!("\trightid={id}\n{STRONGSWAN}")));
        assert_eq!(only(&converted).remote.identity, identity, "{}", converted.report());
    }
}

#[test]
fn the_dialect_is_recognised_or_said() {
    let read_as = |lines: &str| {
        let converted = ipsec(&conn(lines));
        let guess = told(&converted, Loss::Changed, "does not show whether");
        (converted.read_as.map(|why| why.contains("libreswan's")), guess)
    };
    for libreswan in
        ["narrowing=yes", "ikev2=insist", "dpdaction=restart_by_peer", "esp=aes_gcm256"]
    {
        assert_eq!(read_as(&format!("\t{libreswan}\n")), (Some(true), false), "{libreswan}");
    }
    for strongswan in
        ["closeaction=restart", "leftauth=psk\n\trightauth=psk", "ike=aes256-sha256-ecp256!"]
    {
        assert_eq!(read_as(&format!("\t{strongswan}\n")), (Some(false), false), "{strongswan}");
    }
    // Words of both: more of them decide, and that is no certainty.
    assert_eq!(read_as("\tikev2=insist\n\tcloseaction=none\n\tnarrowing=no\n"), (Some(true), true));
    // No word of either. It makes a difference only if a group is missing.
    assert_eq!(read_as("\tike=aes256-sha256-modp2048\n\tesp=aes256-sha256\n"), (None, true));
    let whole = "\tike=aes256-sha256-modp2048\n\tesp=aes256-sha256-modp2048\n";
    assert_eq!(read_as(whole), (None, false));

    let text = conn("\tike=aes256-sha256-modp2048\n\tesp=aes256-sha256\n");
    for (format, groups) in
        [(Format::Strongswan, vec![]), (Format::Libreswan, vec![Group::Modp2048])]
    {
        let options = Options::default();
        let converted = read(format, &text, SECRETS, &options, &mut Memory::default());
        let converted = converted.expect("it can be read");
        assert_eq!(converted.read_as, None);
        assert!(!told(&converted, Loss::Changed, "does not show whether"));
        assert_eq!(only(&converted).children[0].pfs.offer, groups, "{format:?}");
    }
}

#[test]
fn libreswan_has_its_own_defaults() {
    let converted = ipsec(&conn("\tikev2=insist\n"));
    let tunnel = only(&converted);
    assert_eq!(tunnel.lifetime.hard.as_secs(), 8 * 3600);
    let child = &tunnel.children[0];
    assert_eq!(child.proposals[0].lifetime.hard.as_secs(), 8 * 3600);
    assert!(child.proposals[0].esn && !child.proposals[1].esn, "either, 64 bits first");
    assert!(child.pfs.accept.contains(&Group::Modp2048) && !child.pfs.accept_none);
    // A name without @ is the address of a host.
    let named = ipsec(&conn("\tikev2=insist\n\trightid=gate.example\n"));
    assert_eq!(
        only(&named).remote.identity,
        "192.0.2.2".parse::<std::net::IpAddr>().map(Into::into).expect("an address")
    );
    assert!(told(&named, Loss::Changed, "which libreswan looks up"), "{}", named.report());
    // Ciphers without a length, with both.
    let lengths = ipsec(&conn("\tikev2=insist\n\tike=aes_gcm-sha2;dh19\n\tesp=aes-sha2;dh19\n"));
    assert_eq!(only(&lengths).proposals[0].encryption.len(), 2);
}

/// A value of a setting, or none.
fn maybe(name: &'static str, values: &'static [&'static str]) -> impl Strategy<Value = String> {
    let value = prop::sample::select(values);
    prop::option::of(value)
        .prop_map(move |value| value.map(|v| format!("{name}={v}\n")).unwrap_or_default())
}

const ADDRESSES: &[&str] = &[
    "192.0.2.1",
    "192.0.2.2",
    "2001:db8::1",
    "fe80::1",
    "%any",
    "gate.example",
    "192.0.2.1, 2001:db8::3",
    "0.0.0.0",
    "192.0.2.0/24",
    "255.255.255.255",
    "%defaultroute",
];
const IDENTITIES: &[&str] = &[
    "@a.example",
    "A.EXAMPLE",
    "@[key]",
    "@#00ff",
    "@#6b6579",
    "192.0.2.1",
    "198.51.100.1",
    "fqdn:192.0.2.9",
    "\"the hub\"",
    "ops",
    "ops@example.net",
    "keyid:x",
    "\"C=NL, CN=a\"",
    "%any",
    "*.example.net",
    "@é",
];
const IKE: &[&str] = &[
    "default",
    "aes128-sha1-modp1024, default",
    "aes256-sha256-ecp256",
    "aes256gcm16",
    "aes_gcm256-sha2_256",
    "aes128-aes192-aes256-sha1-sha256-sha384-sha512-prfsha1-prfsha256-modp2048-ecp256-x25519",
    "aes256gcm16-prfsha256-ecp256-ke1_mlkem768-ke2_mlkem1024-ke2_none, default",
    "aes+aes_gcm;dh14",
    "null-md5-modp1024",
    "aes256-sha256-ecp256-ke2_mlkem768",
];
const ESP: &[&str] = &[
    "default",
    "aes256gcm16-x25519",
    "aes_gcm-null",
    "null-sha1",
    "aes256gmac",
    "aes128-sha1, default",
    "aes128-aes192-aes256-aes128gcm16-aes256gcm16-sha1-sha256-sha384-sha512-aesxcbc-aescmac-esn-noesn",
    "aes256-sha256-modp2048-modpnone",
    "aes-sha2_256;dh19,aes_gcm",
    "chacha20poly1305-esn",
];
const TRAFFIC: &[&str] = &[
    "10.1.0.0/16",
    "10.1.0.0/16,10.3.0.0/16",
    "2001:db8:1::/48",
    "dynamic",
    "10.1.0.5-10.1.0.9",
    "0.0.0.0/0",
    "10.1.0.1[tcp/80]",
    "10.1.0.0/24[udp]",
    "10.1.0.1[icmp/8]",
    "10.1.0.1[47/5]",
    "::/0,0.0.0.0/0",
];

fn ipsec_conf() -> impl Strategy<Value = String> {
    let side = |which: &'static str| {
        let names: [&'static str; 3] = match which {
            "left" => ["left", "leftid", "leftsubnet"],
            _ => ["right", "rightid", "rightsubnet"],
        };
        (maybe(names[0], ADDRESSES), maybe(names[1], IDENTITIES), maybe(names[2], TRAFFIC))
    };
    let phases =
        (maybe("ike", IKE), maybe("esp", ESP), maybe("ah", &["sha256", "aes128gmac", "md5"]));
    let others = (
        maybe("authby", &["secret", "rsasig", "ecdsa,rsa", "pubkey"]),
        maybe("type", &["tunnel", "transport"]),
        maybe("auto", &["start", "add", "route", "up"]),
        maybe("ikelifetime", &["1s", "60", "3h", "99999999999", "0"]),
        maybe("lifetime", &["1s", "1h", "9999999d"]),
        maybe("margintime", &["0s", "9m", "99d"]),
        maybe("lifebytes", &["1", "5g", "99999999999999"]),
        maybe("mark", &["5", "0x7/0xff", "%unique"]),
        maybe("pfs", &["yes", "no"]),
        maybe("ikev2", &["insist"]),
    );
    let conn =
        (side("left"), side("right"), phases, others).prop_map(|(left, right, phases, o)| {
            let settings =
                [left.0, left.1, left.2, right.0, right.1, right.2, phases.0, phases.1, phases.2];
            let others = [o.0, o.1, o.2, o.3, o.4, o.5, o.6, o.7, o.8, o.9];
            let lines = settings.iter().chain(&others).filter(|line| !line.is_empty());
            lines.map(|line| format!("\t{line}")).collect::<String>()
        });
    prop::collection::vec(conn, 1..4).prop_map(|conns| {
        let named = conns.iter().enumerate();
        named.map(|(at, conn)| format!("conn c{at}\n\tauto=start\n{conn}")).collect()
    })
}

/// The same for swanctl.conf, from the same words.
fn swanctl_conf() -> impl Strategy<Value = String> {
    let connection = (
        (
            maybe("local_addrs", ADDRESSES),
            maybe("remote_addrs", ADDRESSES),
            maybe("proposals", IKE),
        ),
        (maybe("id", IDENTITIES), maybe("id", IDENTITIES)),
        prop::sample::select(&["psk", "pubkey", "rsa", "ecdsa-256"][..]),
        (maybe("local_ts", TRAFFIC), maybe("remote_ts", TRAFFIC), maybe("esp_proposals", ESP)),
        (
            maybe("mode", &["tunnel", "transport"]),
            maybe("start_action", &["start", "trap", "none"]),
            maybe("rekey_time", &["0", "1s", "1h", "999999999"]),
            maybe("life_bytes", &["1", "7g"]),
            maybe("if_id_in", &["7", "8"]),
            maybe("mark_in", &["1", "3/3"]),
        ),
    );
    prop::collection::vec(connection, 1..4).prop_map(|connections| {
        let mut text = "connections {\n".to_owned();
        for (at, (c, ids, auth, child, more)) in connections.into_iter().enumerate() {
            text.push_str(&format!(
                "c{at} {{\n{}{}{}local {{\nauth={auth}\n{}}}\nremote {{\nauth={auth}\n{}}}\nchildren {{ c {{\n{}{}{}{}{}{}{}{}{}}} }} }}\n",
                c.0, c.1, c.2, ids.0, ids.1, child.0, child.1, child.2, more.0, more.1, more.2, more.3, more.4, more.5
            ));
        }
        text + "}\nsecrets { ike { secret = shared-key-for-all-tests } }\n"
    })
}

/// Refuses a conversion that writes a policy which `vpnd check` refuses, with the settings that go with it, or of which
/// `vpnd check` says more or fewer tunnels that are never used than the conversion did.
pub(crate) fn is_checked(converted: &Converted, text: &str) -> Result<(), TestCaseError> {
    let settings: Config = toml::from_str(&converted.settings)
        .map_err(|error| TestCaseError::fail(format!("{error}\n{}", converted.settings)))?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("policy.xml");
    std::fs::write(&path, converted.xml.as_bytes()).expect("writable");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, private).expect("ours");
    let mut config = settings;
    config.certificates.directory = directory.path().to_owned();
    let (format, colour) = (terminal::delegated::Format::Human, Colour(false));
    let request = check::Request { file: &path, config: &config, lenient: false, format, colour };
    let outcome = check::check(&request);
    prop_assert!(outcome.is_good, "{text}\n{}\n{}", outcome.errors, converted.report());
    let unused = converted.findings.iter().filter(|f| f.loss == Loss::NeverUsed).count();
    let told = outcome.errors.matches(" is never used: ").count();
    prop_assert_eq!(told, unused, "{}\n{}\n{}", text, outcome.errors, converted.report());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_conversion_is_refused_by_check(
        ipsec in ipsec_conf(), swanctl in swanctl_conf(), peer in any::<bool>(),
        own in prop::option::of(prop::sample::select(&["192.0.2.1", "192.0.2.2", "2001:db8::9"][..])),
    ) {
        let options = Options { local_address: own.and_then(|own| own.parse().ok()), peer };
        for (format, text) in [
            (Format::Ipsec, &ipsec),
            (Format::Strongswan, &ipsec),
            (Format::Libreswan, &ipsec),
            (Format::Swanctl, &swanctl),
        ] {
            let converted = read(format, text, SECRETS, &options, &mut Memory::default());
            is_checked(&converted.expect("sound syntax"), text)?;
        }
    }
}

/// Two tunnels to two peers, for all traffic. `lines`: further lines of each.
fn routed(format: Format, lines: [&str; 2]) -> Converted {
    let conns = (1..).zip(lines).map(|(n, lines)| match format {
        Format::Swanctl => format!(
            "c{n} {{ local_addrs = 192.0.2.9\nremote_addrs = 192.0.2.{n}\nlocal {{ auth = psk }}\n\
             remote {{ auth = psk }}\nchildren {{ c{n} {{ local_ts = 0.0.0.0/0\nremote_ts = 0.0.0.0/0\n{lines} }} }} }}\n"
        ),
        _ => format!(
            "conn c{n}\n\tauthby=secret\n\tleft=192.0.2.9\n\tright=192.0.2.{n}\n\tleftsubnet=0.0.0.0/0\n\
             \trightsubnet=0.0.0.0/0\n\tauto=start\n\t{lines}\n"
        ),
    });
    let conns: String = conns.collect();
    let options = Options { local_address: "192.0.2.9".parse().ok(), ..Options::default() };
    match format {
        Format::Swanctl => swanctl(&format!("connections {{\n{conns}}}\n"), &options),
        _ => read(format, &conns, SECRETS, &options, &mut Memory::default()).expect("sound syntax"),
    }
}

/// Routes by marks and interfaces, as samples of clouds have them.
#[test]
fn tunnels_for_all_traffic_are_both_used_if_marks_or_interfaces_tell_them_apart() {
    let apart = [
        (Format::Libreswan, ["mark=5/0xffffffff", "mark=6/0xffffffff"]),
        (Format::Strongswan, ["mark=100", "mark=200"]),
        (Format::Swanctl, ["if_id_in = 1\nif_id_out = 1", "if_id_in = 2\nif_id_out = 2"]),
        (Format::Swanctl, ["mark_in = 1\nmark_out = 1", "if_id_in = 2\nif_id_out = 2"]),
        // Packets without the mark are left for the other one, wherever it stands.
        (Format::Swanctl, ["", "mark_in = 1\nmark_out = 1"]),
    ];
    for (format, lines) in apart {
        let converted = routed(format, lines);
        let told = converted.findings.iter().any(|finding| finding.loss == Loss::NeverUsed);
        assert!(!told, "{}", converted.report());
        is_checked(&converted, "").unwrap_or_else(|error| panic!("{error}"));
    }
    for (format, lines) in [
        (Format::Libreswan, ["mark=5/0xffffffff", "mark=5/0xffffffff"]),
        (Format::Swanctl, ["if_id_in = 1\nif_id_out = 1", "if_id_in = 1\nif_id_out = 1"]),
        (Format::Strongswan, ["", ""]),
        // The one without an interface is in userspace, where it takes all packets.
        (Format::Swanctl, ["", "if_id_in = 2\nif_id_out = 2"]),
    ] {
        let converted = routed(format, lines);
        assert!(told(&converted, Loss::NeverUsed, "covered by"), "{}", converted.report());
        is_checked(&converted, "").unwrap_or_else(|error| panic!("{error}"));
    }
}
