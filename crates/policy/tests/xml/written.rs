//! Policies of code as XML: a written policy is read back as the same policy.

use policy::xml::{Options, Unwritable, read, read_with};
use policy::{
    AdditionalKe, AddressRange, ChildProposal, ChildTunnel, Credential, Endpoint, EspEncryption,
    Group, Identity, IkeEncryption, IkeProposal, IkeTunnel, Integrity, KeyBits, KeyKind, Lifetime,
    LifetimeBounds, Mode, Pfs, Policy, PortRange, Prf, Protection, Role, Secret, Selector,
    Signature,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Every sample of the repository that has no group and no generic policy: it is read, written, and read again.
#[test]
fn samples_survive() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/policies");
    let mut survived = 0;
    let mut directories = vec![std::path::PathBuf::from(directory)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("readable").flatten() {
            if entry.path().is_dir() {
                directories.push(entry.path());
                continue;
            }
            let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
            let Ok(loaded) = read("sample.xml", &text) else { continue };
            match loaded.policy.to_xml() {
                Ok(text) => survived += usize::from(read("again.xml", &text).is_ok()),
                Err(Unwritable::NoWords { .. }) => {}
                Err(other) => panic!("{:?}: {other}", entry.path()),
            }
        }
    }
    assert!(survived >= 3, "{survived}");
}

#[test]
fn values_without_words_are_named() {
    let site = || {
        Policy::site_to_site("partner")
            .local("192.0.2.1")
            .remote("192.0.2.2")
            .psk(Secret::new(vec![7; 32]))
            .protect("10.1.0.0/24", "10.2.0.0/24")
            .tunnel()
            .expect("all is set")
    };
    let refused = |change: &dyn Fn(&mut IkeTunnel)| {
        let mut tunnel = site();
        change(&mut tunnel);
        Policy::from_iter([tunnel]).to_xml().expect_err("refused").to_string()
    };
    let seconds = refused(&|tunnel| tunnel.lifetime = Lifetime::new(Duration::from_secs(90)));
    assert_eq!(
        seconds,
        "tunnel \"partner\", lifetime: a lifetime in a file is 1 to 525,600 whole minutes"
    );
    let volume = refused(&|tunnel| tunnel.lifetime = tunnel.lifetime.with_bytes(1 << 20));
    assert!(volume.contains("no limit by volume"), "{volume}");
    let key = refused(&|tunnel| tunnel.remote.identity = Identity::KeyId(vec![0, 1]));
    assert!(key.contains("remote: a key ID in a file is text"), "{key}");
    let other = IkeTunnel { name: "other".into(), ..site() };
    let other =
        IkeTunnel { credential: Credential::PresharedKey(Secret::new(vec![8; 32])), ..other };
    let other = IkeTunnel { children: Vec::new(), ..other };
    let two = Policy::from_iter([site(), other]).to_xml().expect_err("refused").to_string();
    assert!(two.contains("another key for the same identity"), "{two}");
}

#[test]
fn a_side_can_have_another_address_as_its_identity() {
    let public: IpAddr = [198, 51, 100, 86].into();
    let places = [Some(IpAddr::from([10, 0, 0, 61])), Some(public)];
    for local in places {
        for remote in [None, Some(IpAddr::from([203, 0, 113, 7]))] {
            let peer: IpAddr = [203, 0, 113, 219].into();
            let mut tunnel = Policy::site_to_site("cloud")
                .local(Endpoint { identity: public.into(), address: local })
                .remote(Endpoint { identity: peer.into(), address: remote })
                .psk(Secret::new(vec![7; 32]))
                .protect("10.0.0.0/16", "172.16.0.0/16")
                .tunnel()
                .expect("all is set");
            tunnel.role = if remote.is_none() { Role::Responder } else { Role::Both };
            let policy = Policy::from_iter([tunnel]);
            let text = policy.to_xml().expect("the format has words for it");
            assert_eq!(text.contains("vpn:Address=\"10.0.0.61\""), local == places[0], "{}", *text);
            assert_eq!(text.contains("vpn:Address=\"any\""), remote.is_none(), "{}", *text);
            let read = read("cloud.xml", &text).expect("it is valid");
            assert_eq!(read.policy.tunnels[0].remote, policy.tunnels[0].remote);
            assert_eq!(read.policy.tunnels[0].local, policy.tunnels[0].local);
        }
    }
}

#[test]
fn a_description_says_all_that_is_wrong() {
    let refused = Policy::site_to_site("partner")
        .local("192.0.2.300")
        .psk_with(|_| Err::<Secret, _>("never asked"))
        .protect("10.1.0.1/24", "10.2.0.0/24")
        .build()
        .expect_err("refused")
        .to_string();
    assert_eq!(
        refused.lines().collect::<Vec<_>>(),
        [
            "the policy is invalid",
            "tunnel \"partner\", local: \"192.0.2.300\" is not an address or a name; give an address like 192.0.2.1, a \
             domain name, or user@domain",
            "tunnel \"partner\", psk_with: the peer is not known yet; call remote() first",
            "tunnel \"partner\", protect: \"10.1.0.1/24\" is not a network; give a network like 10.1.0.0/24, an address, \
             or a range like 10.1.0.5-10.1.0.9",
            "tunnel \"partner\", remote: it is not set; call remote() with the peer's address or name",
        ]
    );
    let store = |peer: &Identity| Err::<Secret, _>(format!("no key for {peer}"));
    let refused =
        Policy::site_to_site("partner").remote("gate.example.net").psk_with(store).build();
    let text = refused.expect_err("refused").to_string();
    assert!(text.contains("psk_with: no key for gate.example.net; see that"), "{text}");
}

#[test]
fn a_key_that_is_in_no_file_is_asked_for() {
    let policy = Policy::site_to_site("partner")
        .local("192.0.2.1")
        .remote("gate@example.net")
        .psk(Secret::new(vec![7; 32]))
        .protect("10.1.0.0/24", "10.2.0.0/24")
        .build()
        .expect("a policy");
    let text = policy.to_xml().expect("writable");
    let from = text.find("  <IKEPresharedKey").expect("there");
    let end = "</IKEPresharedKey>\n";
    let to = text.find(end).expect("it ends") + end.len();
    let text = format!("{}{}", &text[..from], &text[to..]);
    let of_peer = |peer: &Identity| peer.to_string() == "gate@example.net";
    let find = |peer: &Identity| of_peer(peer).then(|| Secret::new(vec![7; 32]));
    let options = Options { keys: Some(&find), ..Options::default() };
    assert_eq!(read_with("p.xml", &text, &options).expect("readable").policy, policy);
    let none = |_: &Identity| None;
    let options = Options { keys: Some(&none), ..Options::default() };
    let refused = read_with("p.xml", &text, &options).expect_err("refused").to_string();
    assert!(
        refused.contains("no preshared key for the remote identity gate@example.net"),
        "{refused}"
    );
}

#[test]
fn a_peer_without_an_address_starts() {
    let policy = Policy::site_to_site("roadwarrior")
        .local("192.0.2.1")
        .remote("ann@example.net")
        .certificates()
        .protect("10.1.0.0/16", "10.9.0.5-10.9.0.9")
        .build()
        .expect("a policy");
    let tunnel = &policy.tunnels[0];
    assert_eq!((tunnel.role, tunnel.children[0].on_demand), (Role::Responder, false));
    let again = read("p.xml", &policy.to_xml().expect("writable")).expect("readable");
    assert_eq!(again.policy, policy);
}

fn identity() -> impl Strategy<Value = Identity> {
    prop_oneof![
        "[a-z]{1,8}\\.example".prop_map(Identity::Fqdn),
        "[a-z]{1,8}@[a-z]{1,8}\\.example".prop_map(Identity::UserFqdn),
        "[ -~]{1,20}".prop_map(|text| Identity::KeyId(text.into_bytes())),
        "[A-Za-z0-9 ,+\"<>;=#\\\\/]{1,12}".prop_filter_map("a name", |text| {
            let name = format!("/C=NL/CN={}", text.replace('/', "\\/").replace('\\', "x"));
            name.parse().ok().map(Identity::Dn)
        }),
    ]
}

fn endpoint(number: u8) -> impl Strategy<Value = Endpoint> {
    let address = IpAddr::from([192, 0, 2, number]);
    prop_oneof![
        Just(Endpoint::from(address)),
        identity().prop_map(move |identity| Endpoint::at(address, identity)),
        Just(Endpoint::at(address, IpAddr::from([198, 51, 100, number]).into())),
    ]
}

fn bits() -> impl Strategy<Value = KeyBits> {
    select(vec![KeyBits::B128, KeyBits::B192, KeyBits::B256])
}

fn integrity() -> impl Strategy<Value = Integrity> {
    select(vec![
        Integrity::HmacMd5_96,
        Integrity::HmacSha1_96,
        Integrity::HmacSha2_256_128,
        Integrity::HmacSha2_384_192,
        Integrity::HmacSha2_512_256,
        Integrity::AesXcbc96,
        Integrity::AesCmac96,
    ])
}

fn prfs() -> impl Strategy<Value = Vec<Prf>> {
    subsequence(
        vec![Prf::HmacSha1, Prf::HmacSha2_256, Prf::HmacSha2_512, Prf::Aes128Xcbc, Prf::Aes128Cmac],
        1..4,
    )
}

fn groups(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Group>> {
    subsequence(Group::ALL[..10].to_vec(), range)
}

fn additional() -> impl Strategy<Value = Vec<AdditionalKe>> {
    let exchange = |methods: Vec<Group>, optional| AdditionalKe { methods, optional };
    let methods = subsequence(Group::ALL[10..].to_vec(), 1..3);
    prop_oneof![
        3 => Just(Vec::new()),
        1 => (methods, any::<bool>()).prop_map(move |(m, optional)| vec![exchange(m, optional)]),
    ]
}

fn ike_proposal() -> impl Strategy<Value = IkeProposal> {
    let aead = subsequence(
        vec![
            IkeEncryption::AesGcm16(KeyBits::B256),
            IkeEncryption::AesGcm16(KeyBits::B128),
            IkeEncryption::ChaCha20Poly1305,
        ],
        1..3,
    );
    let cbc = btree_set(bits().prop_map(IkeEncryption::AesCbc), 1..3);
    let ciphers = prop_oneof![
        aead.prop_map(|aead| (aead, Vec::new())),
        (cbc, btree_set(integrity(), 1..3))
            .prop_map(|(cbc, macs)| (cbc.into_iter().collect(), macs.into_iter().collect())),
    ];
    (ciphers, prfs(), groups(1..4), additional()).prop_map(
        |((encryption, integrity), prf, groups, additional)| IkeProposal {
            encryption,
            integrity,
            prf,
            groups,
            additional,
        },
    )
}

/// Several proposals with one algorithm of each kind, or a single one with many.
fn ike_proposals() -> impl Strategy<Value = Vec<IkeProposal>> {
    let one_of_each = ike_proposal().prop_map(|mut proposal| {
        proposal.encryption.truncate(1);
        proposal.integrity.truncate(1);
        proposal.prf.truncate(1);
        proposal.groups.truncate(1);
        proposal
    });
    prop_oneof![
        ike_proposal().prop_map(|proposal| vec![proposal]),
        vec(one_of_each, 2..4).prop_map(|mut all| {
            let mut seen = Vec::new();
            all.retain(|proposal| {
                let is_new = !seen.contains(proposal);
                seen.push(proposal.clone());
                is_new
            });
            all
        }),
    ]
}

fn lifetime(volume: bool, overlap: u8, bounds: LifetimeBounds) -> impl Strategy<Value = Lifetime> {
    let bytes = prop_oneof![Just(None), (1_u64..1 << 32).prop_map(|kb| Some(kb * 1024))];
    (1_u64..=525_600, bytes).prop_map(move |(minutes, bytes)| Lifetime {
        hard: Duration::from_secs(minutes * 60),
        bytes: bytes.filter(|_| volume),
        overlap_percent: overlap,
        as_responder: bounds,
    })
}

fn bounds() -> impl Strategy<Value = LifetimeBounds> {
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    prop_oneof![
        Just(LifetimeBounds::NONE),
        (1_u64..500, 500_u64..9000, 1_u64..1000, 1000_u64..1 << 32).prop_map(
            move |(shortest, longest, smallest, largest)| LifetimeBounds {
                age: [minutes(shortest), minutes(longest)],
                bytes: [smallest * 1024, largest * 1024],
            }
        ),
    ]
}

fn protection() -> impl Strategy<Value = Protection> {
    prop_oneof![
        bits().prop_map(|bits| Protection::aead(EspEncryption::AesGcm16(bits))),
        bits().prop_map(|bits| Protection::aead(EspEncryption::AesGmac(bits))),
        Just(Protection::aead(EspEncryption::ChaCha20Poly1305)),
        (bits(), integrity())
            .prop_map(|(bits, mac)| Protection::encrypt_and_mac(EspEncryption::AesCbc(bits), mac)),
        integrity().prop_map(|mac| Protection::encrypt_and_mac(EspEncryption::Null, mac)),
        integrity().prop_map(|mac| Protection::Ah(policy::AhIntegrity::Mac(mac))),
    ]
}

fn child_proposals() -> impl Strategy<Value = Vec<ChildProposal>> {
    (1_u8..=50, bounds()).prop_flat_map(|(overlap, bounds)| {
        let proposal = (protection(), any::<bool>(), lifetime(true, overlap, bounds));
        let proposal = proposal.prop_map(|(protection, esn, lifetime)| ChildProposal {
            esn,
            ..ChildProposal::new(protection, lifetime)
        });
        vec(proposal, 1..4).prop_map(|mut all| {
            // The same twice is refused.
            let mut seen = Vec::new();
            all.retain(|p| {
                let what = (p.protection, p.esn);
                let is_new = !seen.contains(&what);
                seen.push(what);
                is_new
            });
            all
        })
    })
}

fn pfs() -> impl Strategy<Value = Pfs> {
    (groups(0..3), groups(1..4), any::<bool>(), additional()).prop_map(
        |(offer, accept, none, additional)| Pfs {
            accept_none: none || offer.is_empty(),
            additional: if offer.is_empty() { Vec::new() } else { additional },
            offer,
            accept,
        },
    )
}

fn traffic() -> impl Strategy<Value = [Selector; 2]> {
    let range = || {
        (any::<[u32; 2]>(), any::<bool>()).prop_map(|([a, b], six)| {
            let ends = [a.min(b), a.max(b)];
            let [start, end] = match six {
                false => ends.map(|bits| IpAddr::from(Ipv4Addr::from(bits))),
                true => {
                    ends.map(|bits| IpAddr::from(std::net::Ipv6Addr::from(u128::from(bits) << 64)))
                }
            };
            AddressRange::new(start, end).expect("in order")
        })
    };
    let kind = prop_oneof![
        Just((0, PortRange::ANY)),
        (select(vec![6_u8, 17, 132]), 1_u16.., any::<u16>()).prop_map(|(protocol, start, len)| {
            (protocol, PortRange::new(start, start.saturating_add(len)).expect("in order"))
        }),
        any::<u8>().prop_map(|protocol| (protocol, PortRange::ANY)),
    ];
    (range(), range(), kind).prop_filter_map("one family", |(local, remote, (protocol, ports))| {
        let selector = |addresses| Selector { protocol, addresses, ports };
        let alike = local.start().is_ipv4() == remote.start().is_ipv4();
        alike.then(|| [selector(local), selector(remote)])
    })
}

fn role() -> impl Strategy<Value = Role> {
    select(vec![Role::Both, Role::Initiator, Role::Responder])
}

fn child() -> impl Strategy<Value = ChildTunnel> {
    (traffic(), role(), child_proposals(), pfs(), any::<[bool; 2]>()).prop_map(
        |([local, remote], role, proposals, pfs, [auto_start, on_demand])| ChildTunnel {
            name: String::new(),
            role,
            mode: Mode::Tunnel,
            local: vec![local],
            remote: vec![remote],
            proposals,
            pfs,
            auto_start,
            on_demand,
        },
    )
}

fn credential() -> impl Strategy<Value = Credential> {
    let kinds = subsequence(KeyKind::ALL.to_vec(), 1..=5);
    prop_oneof![
        vec(any::<u8>(), 1..40).prop_map(|key| Credential::PresharedKey(Secret::new(key))),
        (kinds, any::<bool>()).prop_map(|(keys, use_crl)| {
            Credential::Signature(Signature { keys, use_crl, sha1: false })
        }),
    ]
}

fn tunnel() -> impl Strategy<Value = IkeTunnel> {
    let sides = (endpoint(1), endpoint(2));
    let life =
        (1_u8..=50, bounds()).prop_flat_map(|(overlap, bounds)| lifetime(false, overlap, bounds));
    (sides, role(), credential(), ike_proposals(), life, any::<bool>(), vec(child(), 0..3))
        .prop_map(
            |((local, remote), role, credential, proposals, lifetime, auto_start, children)| {
                let mut tunnel = IkeTunnel::new("a tunnel & <more>", local, remote, credential)
                    .with_role(role)
                    .with_proposals(proposals)
                    .with_lifetime(lifetime);
                tunnel.auto_start = auto_start;
                let sha1 = tunnel.proposals.iter().any(IkeProposal::names_sha1);
                if let Credential::Signature(signature) = &mut tunnel.credential {
                    signature.sha1 = sha1 && signature.keys.contains(&KeyKind::Rsa);
                }
                for (number, child) in children.into_iter().enumerate() {
                    tunnel = tunnel
                        .with_child(ChildTunnel { name: format!("child \"{number}\""), ..child });
                }
                tunnel
            },
        )
}

proptest! {
    #[test]
    fn a_written_policy_is_read_back(tunnel in tunnel()) {
        let policy = Policy::from_iter([tunnel]);
        prop_assume!(policy.validate().is_ok());
        let text = policy.to_xml();
        let text = text.unwrap_or_else(|error| panic!("{error}\n{policy:?}"));
        prop_assert!(read("written.xml", &text).is_ok());
    }
}
