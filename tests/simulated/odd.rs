//! Policies and configurations that nobody should write, built in code: a policy that cannot work is refused with a
//! message that says where and why. One that is accepted neither panics an engine nor makes it send without end, in
//! either role.

use ike::Config;
use policy::{
    AddressRange, ChildProposal, ChildTunnel, Credential, DesKeys, Endpoint, EspEncryption, Group,
    Identity, IkeEncryption, IkeProposal, IkeTunnel, Integrity, KeyBits, Lifetime, LifetimeBounds,
    Mode, Pfs, Policy, PortRange, Prf, Protection, Role, Secret, Selector, Signature,
};
use proptest::prelude::*;
use sim::{Side, Site, World};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

const NEVER: Duration = Duration::MAX;
const ZERO: Duration = Duration::ZERO;
const MANY: usize = 70_000;

/// How long each pair of gateways lives.
const WATCHED: Duration = Duration::from_secs(30);

/// Datagrams of both gateways in that time; a rekey each second takes a tenth of it.
const STORM: usize = 3000;

/// The policies of both ends of a site, whose one tunnel is changed on both.
fn policies(change: &dyn Fn(&mut IkeTunnel)) -> [Arc<Policy>; 2] {
    [Side::Left, Side::Right].map(|side| {
        let mut tunnel = (*Site::default().policy(side).tunnels[0]).clone();
        change(&mut tunnel);
        Arc::new(Policy { tunnels: vec![Arc::new(tunnel)] })
    })
}

/// Lets two gateways live: the left one starts the tunnel, both rekey it, the right one ends it.
fn live(policies: [Arc<Policy>; 2], config: &Config) {
    let mut world = World::new(1);
    let site = Site::default();
    let [left, right] = policies;
    let left = world.add_host("left", site.left, left, config.clone());
    let right = world.add_host("right", site.right, right, config.clone());
    world.tap();
    let connect = |world: &mut World, host| {
        // It may be one that this end cannot start.
        let _ = world.command(host, "connect", |e, now| e.connect(now, Site::TUNNEL));
    };
    connect(&mut world, left);
    world.run_for(WATCHED / 3);
    world.rekey(left, Site::TUNNEL);
    world.run_for(WATCHED / 3);
    connect(&mut world, right);
    let _ = world.status(left);
    world.run_for(WATCHED / 3);
    world.disconnect(right, Site::TUNNEL);
    let sent = world.take_tapped().len();
    assert!(sent < STORM, "{sent} datagrams in {WATCHED:?}");
}

/// Refuses with these words, or else lives.
fn check_policy(name: &str, expected: Option<&str>, change: &dyn Fn(&mut IkeTunnel)) {
    let policies = policies(change);
    let outcome = policies[0].validate();
    let text = outcome.as_ref().err().map(ToString::to_string);
    match (expected, text) {
        (None, None) => live(policies, &Config::default()),
        (Some(expected), Some(text)) => {
            assert!(text.contains(expected), "{name}: {text}");
            assert!(text.contains("tunnel \"") && text.contains("; "), "{name}: {text}");
            assert!(text.len() < 2000, "{name}: {} octets of text", text.len());
        }
        (expected, text) => panic!("{name}: expected {expected:?}, not {text:?}"),
    }
}

fn child(tunnel: &mut IkeTunnel) -> &mut ChildTunnel {
    Arc::make_mut(&mut tunnel.children[0])
}

fn offer(tunnel: &mut IkeTunnel) -> &mut ChildProposal {
    &mut child(tunnel).proposals[0]
}

fn esp(encryption: EspEncryption, integrity: Option<Integrity>) -> Protection {
    Protection::Esp { encryption, integrity }
}

fn all(ports: PortRange, protocol: u8) -> Vec<Selector> {
    let any = AddressRange::new(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into());
    vec![Selector { protocol, ports, addresses: any.expect("in order") }]
}

type Change = Box<dyn Fn(&mut IkeTunnel)>;

/// Odd policies: a name, the words of the refusal or `None` where it can be used, and how it differs from a good one.
fn odd_policies() -> Vec<(&'static str, Option<&'static str>, Change)> {
    let mut odd: Vec<(&'static str, Option<&'static str>, Change)> = Vec::new();
    let mut add = |name, expected, change: fn(&mut IkeTunnel)| {
        odd.push((name, expected, Box::new(change) as Change));
    };
    let gcm = "proposals[0].integrity: AES-GCM-16-128 protects integrity itself; leave the list";

    add("good", None, |_| {});
    // Names.
    add("no name", Some("name: \"\" is not a name; give it a name"), |t| t.name.clear());
    add("a name with a newline", Some("name: \"a\\nb\" is not a name"), |t| t.name = "a\nb".into());
    add("a child without a name", Some("phase 2 tunnel \"\", name: \"\" is not a name"), |t| {
        child(t).name.clear();
    });
    add("two children of one name", Some("name: another tunnel is named \"net0\""), |t| {
        let child = t.children[0].clone();
        t.children.push(child);
    });
    // Who.
    add("no key", Some("credential: the preshared key is empty; make one with"), |t| {
        t.credential = Credential::PresharedKey(Secret::new(Vec::new()));
    });
    add("a key of one octet", None, |t| {
        t.credential = Credential::PresharedKey(Secret::new(vec![0]));
    });
    add("a key of a million octets", None, |t| {
        t.credential = Credential::PresharedKey(Secret::new(vec![7; 1_000_000]));
    });
    add("no kind of key", Some("credential.keys: there is no kind of key; add"), |t| {
        let keys = Vec::new();
        t.credential = Credential::Signature(Signature { keys, use_crl: true, sha1: true });
    });
    add("an identity of 70,000 octets", Some("the key ID has 70000 octets; use 1 to 255"), |t| {
        t.local.identity = Identity::KeyId(vec![1; MANY]);
    });
    add("an empty key ID", Some("local.identity: the key ID has 0 octets"), |t| {
        t.local.identity = Identity::KeyId(Vec::new());
    });
    add("a long domain name", Some("local.identity: \"aaaa"), |t| {
        t.local.identity = Identity::Fqdn("a".repeat(MANY));
    });
    add("an empty domain name", Some("\"\" is not an identity; use 1 to 255"), |t| {
        t.local.identity = Identity::Fqdn(String::new());
    });
    add("a domain name with a newline", Some("\"a\\nb\" is not an identity"), |t| {
        t.local.identity = Identity::Fqdn("a\nb".into());
    });
    // The peer decides what it sends.
    add("a wildcard", None, |t| {
        t.remote.identity = Identity::Fqdn("*.example".into());
    });
    add("an address as a domain", None, |t| {
        t.remote.identity = Identity::Fqdn("192.0.2.9".into());
    });
    add("a user without a domain", None, |t| {
        t.remote.identity = Identity::UserFqdn("user".into());
    });
    add("a long user", Some("is not an identity"), |t| {
        t.remote.identity = Identity::UserFqdn(format!("{}@example", "a".repeat(MANY)));
    });
    add("no host as an identity", Some("0.0.0.0 is no host's address"), |t| {
        t.local.identity = Identity::Ipv4(Ipv4Addr::UNSPECIFIED);
    });
    add("a group of hosts as an identity", Some("ff02::1 is no host's address"), |t| {
        t.local.identity = Identity::Ipv6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    });
    add("one identity", Some("remote: both sides have the identity"), |t| {
        t.remote.identity = t.local.identity.clone();
    });
    add("one address", Some("remote: both sides have the address"), |t| {
        t.remote.address = t.local.address;
    });
    add("an address that is none", Some("local.address: 0.0.0.0 is no host's address"), |t| {
        t.local.address = Some(Ipv4Addr::UNSPECIFIED.into());
    });
    add("an address of a link", Some("local.address: fe80::1 is a link-local address"), |t| {
        t.local.address = Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into());
        t.remote.address = Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into());
    });
    add("an address of IPv4 in IPv6", Some("remote.address: ::ffff:192.0.2.2 is the IPv4"), |t| {
        t.remote.address = Some(Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped().into());
    });
    add("every host of the link", Some("remote.address: 255.255.255.255 is no host's"), |t| {
        t.remote.address = Some(Ipv4Addr::BROADCAST.into());
    });
    add("an identity of a link", None, |t| {
        t.remote.identity = Identity::Ipv6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
    });
    add("two families", Some("remote: 192.0.2.1 and ::1 are of different families"), |t| {
        t.remote.address = Some(Ipv6Addr::LOCALHOST.into());
    });
    add("an initiator that knows no peer", Some("remote.address: an initiator needs"), |t| {
        (t.role, t.remote.address) = (Role::Initiator, None);
    });
    add("two ends that know no peer", None, |t| t.remote.address = None);
    add("two responders", None, |t| t.role = Role::Responder);
    add("two responders that start", None, |t| {
        (t.role, t.auto_start) = (Role::Responder, true);
        child(t).auto_start = true;
    });
    add("two initiators", None, |t| t.role = Role::Initiator);
    add("all that starts", None, |t| {
        t.auto_start = true;
        (child(t).auto_start, child(t).on_demand) = (true, true);
    });
    add("nothing to carry", None, |t| t.children.clear());
    // Algorithms of the IKE SA.
    add("no proposals", Some("proposals: there is no proposal; add"), |t| t.proposals.clear());
    add("65 proposals", Some("proposals: 65 proposals, more than 64; remove"), |t| {
        t.proposals = vec![t.proposals[0].clone(); 65];
    });
    add("64 proposals", None, |t| t.proposals = vec![t.proposals[0].clone(); 64]);
    add("70,000 proposals", Some("70000 proposals, more than 64"), |t| {
        t.proposals = vec![t.proposals[0].clone(); MANY];
    });
    add("too much for IKE_SA_INIT", Some("algorithms in all proposals, more than the 700"), |t| {
        t.proposals = vec![everything(); 64];
    });
    add("as much as IKE_SA_INIT takes", None, |t| {
        let each = everything();
        let count =
            each.encryption.len() + each.integrity.len() + each.prf.len() + each.groups.len();
        t.proposals = vec![each; policy::validate::MAX_IKE_ALGORITHMS / count];
    });
    add("no cipher", Some("proposals[0].encryption: there is no cipher"), |t| {
        t.proposals[0].encryption.clear();
    });
    add("no PRF", Some("proposals[0].prf: there is no PRF"), |t| t.proposals[0].prf.clear());
    add("no groups", Some("proposals[0].groups: there is no group"), |t| {
        t.proposals[0].groups.clear();
    });
    add("70,000 groups", Some("proposals[0].groups: CURVE25519 is listed twice"), |t| {
        t.proposals[0].groups = vec![Group::Curve25519; MANY];
    });
    add("70,000 ciphers", Some("AES-GCM-16-128 is listed twice"), |t| {
        t.proposals[0].encryption = vec![IkeEncryption::AesGcm16(KeyBits::B128); MANY];
    });
    add("AEAD with integrity", Some(gcm), |t| {
        t.proposals[0].integrity = vec![Integrity::HmacSha2_256_128];
    });
    add("CBC without integrity", Some("AES-CBC-128 without an integrity algorithm"), |t| {
        t.proposals[0].encryption = vec![IkeEncryption::AesCbc(KeyBits::B128)];
    });
    add("AEAD and CBC", Some("AEAD ciphers and others are in one proposal; write two"), |t| {
        t.proposals[0].encryption.push(IkeEncryption::AesCbc(KeyBits::B128));
    });
    add("all lists empty", Some("proposals[0].groups"), |t| {
        let (encryption, integrity) = (Vec::new(), Vec::new());
        t.proposals = vec![IkeProposal {
            encryption,
            integrity,
            prf: Vec::new(),
            groups: Vec::new(),
            additional: Vec::new(),
        }];
    });
    // Algorithms of Child SAs.
    add(
        "no ESP proposals",
        Some("phase 2 tunnel \"net0\", proposals: there is no proposal"),
        |t| {
            child(t).proposals.clear();
        },
    );
    add("255 ESP proposals", Some("proposals: 255 proposals, more than 64"), |t| {
        child(t).proposals = vec![offer(t).clone(); 255];
    });
    add("64 ESP proposals", None, |t| child(t).proposals = vec![offer(t).clone(); 64]);
    add("ESP: AEAD with integrity", Some("protection: AES-GCM-16-256 protects integrity"), |t| {
        let mac = Some(Integrity::HmacSha1_96);
        offer(t).protection = esp(EspEncryption::AesGcm16(KeyBits::B256), mac);
    });
    add("ESP: CBC without integrity", Some("AES-CBC-192 without an integrity algorithm"), |t| {
        offer(t).protection = esp(EspEncryption::AesCbc(KeyBits::B192), None);
    });
    add("ESP: NULL without a MAC", Some("protection: NULL without an integrity algorithm"), |t| {
        offer(t).protection = esp(EspEncryption::Null, None);
    });
    add("ESP: NULL with a MAC", None, |t| {
        offer(t).protection = esp(EspEncryption::Null, Some(Integrity::AesXcbc96));
    });
    add("ESP: GMAC with a MAC", Some("protects integrity itself; set `integrity`"), |t| {
        let mac = Some(Integrity::AesCmac96);
        offer(t).protection = esp(EspEncryption::AesGmac(KeyBits::B128), mac);
    });
    add("ESP: DES without a MAC", Some("DES-CBC without an integrity algorithm"), |t| {
        offer(t).protection = esp(EspEncryption::DesCbc(DesKeys::One), None);
    });
    add("PFS that accepts nothing", Some("pfs.accept: the responder accepts no rekey"), |t| {
        child(t).pfs = Pfs::default();
    });
    add("PFS with 70,000 groups", Some("pfs.offer: ECP-256 is listed twice"), |t| {
        child(t).pfs.offer = vec![Group::Ecp256; MANY];
    });
    add("PFS with another group than the peer accepts", None, |t| {
        let (offer, accept) = (vec![Group::Ecp256], vec![Group::Curve25519]);
        child(t).pfs = Pfs { offer, accept, accept_none: false, additional: Vec::new() };
    });
    // Lifetimes.
    add("no time", Some("lifetime.hard: 0ns is shorter than 1s; use a longer time"), |t| {
        t.lifetime.hard = ZERO;
    });
    add("no time for a child", Some("proposals[0].lifetime.hard: 0ns is shorter"), |t| {
        offer(t).lifetime.hard = ZERO;
    });
    add("almost a second", Some("999ms is shorter than 1s"), |t| {
        t.lifetime.hard = Duration::from_millis(999);
    });
    add("a second", None, |t| {
        t.lifetime.hard = Duration::from_secs(1);
        offer(t).lifetime.hard = Duration::from_secs(1);
    });
    add("for ever", None, |t| {
        t.lifetime = Lifetime::UNLIMITED;
        offer(t).lifetime = Lifetime::UNLIMITED;
    });
    add("almost for ever", None, |t| {
        t.lifetime.hard = NEVER - Duration::from_nanos(1);
        offer(t).lifetime.hard = Duration::from_secs(u64::MAX / 2);
    });
    add("for ever, with the longest overlap", None, |t| {
        t.lifetime = Lifetime::UNLIMITED.with_overlap(50);
    });
    add("no overlap", Some("lifetime.overlap_percent: 0 percent is not 1 to 50"), |t| {
        t.lifetime.overlap_percent = 0;
    });
    add("an overlap of 255", Some("255 percent is not 1 to 50; use 10"), |t| {
        offer(t).lifetime.overlap_percent = 255;
    });
    add("no volume", Some("lifetime.bytes: 0 octets are fewer than 1024; use a larger"), |t| {
        offer(t).lifetime.bytes = Some(0);
    });
    add("the smallest volume", None, |t| offer(t).lifetime.bytes = Some(1024));
    add("the largest volume", None, |t| offer(t).lifetime.bytes = Some(u64::MAX));
    // Traffic.
    add("no local traffic", Some("local: there is no traffic selector"), |t| {
        child(t).local.clear();
    });
    add("no remote traffic", Some("remote: there is no traffic selector"), |t| {
        child(t).remote.clear();
    });
    add("700 selectors on each side", None, |t| {
        child(t).local = vec![child(t).local[0]; 700];
        child(t).remote = vec![child(t).remote[0]; 700];
    });
    add("ports of any protocol", Some("local[0].ports: protocol 0 has no ports"), |t| {
        child(t).local = all(PortRange::new(1, 2).expect("in order"), 0);
    });
    add("TCP to UDP", Some("remote[0]: protocol 17 here, but 6 in the local selectors"), |t| {
        child(t).local = all(PortRange::ANY, 6);
        child(t).remote = all(PortRange::ANY, 17);
    });
    add("IPv4 to IPv6", Some("are of different families; use IPv4 on both"), |t| {
        child(t).remote = vec![Selector::all_of(IpAddr::from(Ipv6Addr::LOCALHOST).into())];
    });
    add("all traffic on both sides", None, |t| {
        child(t).local = all(PortRange::ANY, 0);
        child(t).remote = all(PortRange::ANY, 0);
    });
    add(
        "networks in transport mode",
        Some("in transport mode the traffic is that of 192.0."),
        |t| {
            child(t).mode = Mode::Transport;
        },
    );
    odd
}

/// Whether both ends agree on an IKE SA when the left one starts.
fn established(change: &dyn Fn(&mut IkeTunnel)) -> bool {
    let [left, right] = policies(change);
    let site = Site::default();
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, left, Config::default());
    world.add_host("right", site.right, right, Config::default());
    world.connect(left, Site::TUNNEL);
    world.run_for(crate::SOON);
    world.status(left)[0].sa.is_some()
}

#[test]
fn the_largest_offers_are_understood() {
    assert!(established(&|t| t.proposals = vec![t.proposals[0].clone(); 64]));
    assert!(established(&|t| child(t).proposals = vec![offer(t).clone(); 64]));
    let each = everything();
    let count = each.encryption.len() + each.integrity.len() + each.prf.len() + each.groups.len();
    let most = policy::validate::MAX_IKE_ALGORITHMS / count;
    assert!(established(&|t| t.proposals = vec![everything(); most]));
}

/// A proposal with as many algorithms as there are.
fn everything() -> IkeProposal {
    use Integrity::*;
    IkeProposal {
        encryption: [KeyBits::B128, KeyBits::B192, KeyBits::B256]
            .map(IkeEncryption::AesCbc)
            .to_vec(),
        integrity: vec![
            HmacMd5_96,
            HmacSha1_96,
            HmacSha2_256_128,
            HmacSha2_384_192,
            HmacSha2_512_256,
            AesXcbc96,
            AesCmac96,
        ],
        prf: vec![
            Prf::HmacMd5,
            Prf::HmacSha1,
            Prf::HmacSha2_256,
            Prf::HmacSha2_384,
            Prf::HmacSha2_512,
            Prf::Aes128Xcbc,
            Prf::Aes128Cmac,
        ],
        groups: vec![
            Group::Curve25519,
            Group::Ecp256,
            Group::Ecp384,
            Group::Ecp521,
            Group::Modp2048,
            Group::Modp3072,
            Group::Modp4096,
        ],
        additional: Vec::new(),
    }
}

#[test]
fn an_odd_policy_is_refused_or_lives() {
    let odd = odd_policies();
    assert!(odd.len() >= 64, "{}", odd.len());
    for (name, expected, change) in odd {
        check_policy(name, expected, &*change);
    }
}

#[test]
fn an_engine_takes_no_invalid_policy() {
    let invalid = policies(&|t| t.proposals.clear());
    let mut world = World::new(1);
    let host = world.add_host("left", Site::default().left, Arc::default(), Config::default());
    let [policy, _] = invalid;
    let refused = world.command(host, "replace", |e, now| e.replace_policy(now, policy));
    let text = refused.expect_err("the policy has no proposals").to_string();
    assert_eq!(
        text,
        "the policy is invalid\ntunnel \"site\", proposals: there is no proposal; add at least one"
    );
    assert!(world.status(host).is_empty(), "the old policy stays in force");
}

type ConfigChange = fn(&mut Config);

#[test]
fn an_odd_configuration_is_refused_or_lives() {
    let odd: [(Option<&str>, ConfigChange); 26] = [
        (None, |_| {}),
        (Some("retransmit_after: 0ns is out of range; use 10 m"), |c| c.retransmit_after = ZERO),
        (Some("retransmit_after: "), |c| c.retransmit_after = NEVER),
        (Some("retransmit_after: 9ms"), |c| c.retransmit_after = Duration::from_millis(9)),
        (None, |c| c.retransmit_after = Duration::from_millis(10)),
        (None, |c| c.retransmit_after = Duration::from_secs(3600)),
        (None, |c| c.retransmissions = 0),
        (None, |c| c.retransmissions = 64),
        (Some("retransmissions: 4294967295 is out of range; use 0 to 64"), |c| {
            c.retransmissions = u32::MAX;
        }),
        (Some("liveness_interval: 0ns is out of range"), |c| {
            c.liveness_interval = Some(ZERO);
        }),
        (None, |c| c.liveness_interval = None),
        (None, |c| c.liveness_interval = Some(NEVER)),
        (Some("nat_keepalive: 0ns is out of range; use 1 second or more"), |c| {
            c.nat_keepalive = ZERO;
        }),
        (None, |c| c.nat_keepalive = NEVER),
        (Some("cookie_threshold: 1025 is out of range; use at most half_open"), |c| {
            c.cookie_threshold = c.half_open_limit + 1;
        }),
        (None, |c| c.cookie_threshold = 0),
        (Some("half_open_limit: 0 is out of range; use 1 to 1,000,000"), |c| {
            (c.half_open_limit, c.cookie_threshold) = (0, 0);
        }),
        (Some("half_open_limit: 18446744073709551615"), |c| c.half_open_limit = usize::MAX),
        (None, |c| c.linger = ZERO),
        (Some("linger: "), |c| c.linger = NEVER),
        (None, |c| c.replay_window = 0),
        (Some("replay_window: 4294967295 is out of range; use at most 65,536"), |c| {
            c.replay_window = u32::MAX;
        }),
        (Some("reauthenticate: 0ns is out of range"), |c| c.reauthenticate = Some(ZERO)),
        (None, |c| c.reauthenticate = Some(NEVER)),
        (None, |c| c.fragment_size = Some(0)),
        (None, |c| c.fragment_size = Some(u16::MAX)),
    ];
    for (expected, change) in odd {
        let mut config = Config::default();
        change(&mut config);
        let text = config.validate().err().map(|refused| refused.to_string());
        match (expected, text) {
            (None, None) => live(policies(&|_| {}), &config),
            (Some(expected), Some(text)) => assert!(text.contains(expected), "{text}"),
            (expected, text) => panic!("expected {expected:?}, not {text:?}: {config:?}"),
        }
    }
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(ZERO),
        Just(NEVER),
        Just(NEVER - Duration::from_nanos(1)),
        (0..5000_u64).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_secs),
        any::<u64>().prop_map(Duration::from_nanos),
    ]
}

fn encryption() -> impl Strategy<Value = IkeEncryption> {
    let bits = prop_oneof![Just(KeyBits::B128), Just(KeyBits::B192), Just(KeyBits::B256)];
    (bits, 0..3).prop_map(|(bits, kind)| match kind {
        0 => IkeEncryption::AesCbc(bits),
        1 => IkeEncryption::AesGcm16(bits),
        _ => IkeEncryption::ChaCha20Poly1305,
    })
}

fn proposal() -> impl Strategy<Value = IkeProposal> {
    let some = |all: Vec<Integrity>| proptest::sample::subsequence(all, 0..2);
    let all = everything();
    (
        proptest::collection::vec(encryption(), 0..3),
        some(all.integrity),
        proptest::sample::subsequence(all.prf, 0..3),
        proptest::sample::subsequence(vec![Group::Curve25519, Group::Ecp256], 0..=2),
    )
        .prop_map(|(encryption, integrity, prf, groups)| IkeProposal {
            encryption,
            integrity,
            prf,
            groups,
            additional: Vec::new(),
        })
}

fn lifetimes() -> impl Strategy<Value = Lifetime> {
    let bytes = proptest::option::of(prop_oneof![0..3000_u64, any::<u64>()]);
    let bounds = (duration(), duration(), any::<[u64; 2]>());
    let bounds = bounds.prop_map(|(a, b, bytes)| LifetimeBounds { age: [a, b], bytes });
    let bounds = prop_oneof![Just(LifetimeBounds::NONE), bounds];
    (duration(), bytes, 0..60_u8, bounds).prop_map(
        |(hard, bytes, overlap_percent, as_responder)| Lifetime {
            hard,
            bytes,
            overlap_percent,
            as_responder,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_policy_is_refused_or_lives(
        proposals in proptest::collection::vec(proposal(), 0..4),
        (lifetime, of_child) in (lifetimes(), lifetimes()),
        (start, demand, transport) in any::<(bool, bool, bool)>(),
        key in proptest::collection::vec(any::<u8>(), 0..3),
        name in "\\PC{0,3}",
    ) {
        let change = |t: &mut IkeTunnel| {
            t.proposals.clone_from(&proposals);
            t.lifetime = lifetime;
            t.auto_start = start;
            t.credential = Credential::PresharedKey(Secret::new(key.clone()));
            let mode = if transport { Mode::Transport } else { Mode::Tunnel };
            let child = child(t);
            (child.mode, child.on_demand, child.auto_start) = (mode, demand, start);
            child.name.clone_from(&name);
            child.proposals[0].lifetime = of_child;
        };
        let policies = policies(&change);
        match policies[0].validate() {
            Ok(()) => live(policies, &Config::default()),
            Err(refused) => prop_assert!(refused.iter().count() > 0),
        }
    }

    #[test]
    fn any_configuration_is_refused_or_lives(
        (retransmit_after, nat_keepalive, linger) in (duration(), duration(), duration()),
        liveness_interval in proptest::option::of(duration()),
        reauthenticate in proptest::option::of(duration()),
        retransmissions in 0..70_u32,
        (cookie_threshold, half_open_limit) in (0..3_usize, 0..3_usize),
        fragment_size in any::<Option<u16>>(),
    ) {
        let config = Config {
            retransmit_after, nat_keepalive, linger, liveness_interval, reauthenticate, retransmissions,
            cookie_threshold, half_open_limit, fragment_size, ..Config::default()
        };
        if config.validate().is_ok() {
            live(policies(&|_| {}), &config);
        }
    }
}

#[test]
fn constructors_make_what_two_gateways_agree_on() {
    let site = Site::default();
    let key = || Credential::PresharedKey(Secret::new(b"correct horse battery staple".to_vec()));
    let net = |second| {
        let at = |last| IpAddr::from([10, second, 0, last]);
        AddressRange::new(at(0), at(255)).expect("in order")
    };
    let policy = |local: IpAddr, remote: IpAddr, here, there| {
        let child = ChildTunnel::new("net0", net(here), net(there)).with_pfs(vec![Group::Ecp256]);
        let tunnel =
            IkeTunnel::new(Site::TUNNEL, Endpoint::from(local), Endpoint::from(remote), key());
        Arc::new(Policy { tunnels: vec![Arc::new(tunnel.with_child(child))] })
    };
    let mut world = World::new(1);
    let left = policy(site.left, site.right, 1, 2);
    let right = policy(site.right, site.left, 2, 1);
    let left = world.add_host("left", site.left, left, Config::default());
    world.add_host("right", site.right, right, Config::default());
    world.connect(left, Site::TUNNEL);
    world.run_for(crate::SOON);
    assert_eq!(world.status(left)[0].children.len(), 1);
    assert!(world.rekey(left, "net0"));
    world.run_for(crate::SOON);
    let rekeyed = |e: &ike::EventKind| matches!(e, ike::EventKind::Rekeyed { .. });
    assert_eq!(world.count_events(left, rekeyed), 1);
}
