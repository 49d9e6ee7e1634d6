//! Policy files and their mirrors: both ends come up, whichever side starts, with packets through the real datapath.

use crate::{SETTLED, SOON, assert_nothing_lost, calm};
use policy::database::mirror;
use policy::{Credential, Identity, KeyKind, Policy, PortRange, Selector};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyIdMethod, SanType};
use sim::certificates::{Authority, Wallet, key, params};
use sim::invariant::{assert_clean_stop, mirrored, mirrored_keys};
use sim::{HostId, World};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const FILES: [(&str, &str); 6] = [
    ("01", include_str!("../../crates/policy/fixtures/01_ikev2_psk_gcm_transport_v4.xml")),
    ("02", include_str!("../../crates/policy/fixtures/02_ikev2_tunnel_multi_child_pfs.xml")),
    ("04", include_str!("../../crates/policy/fixtures/04_ikev2_certificates_dn_ipv6.xml")),
    ("07", include_str!("../../crates/policy/fixtures/07_whitespace_and_order_quirks.xml")),
    ("08", include_str!("../../crates/policy/fixtures/08_roles_autostart_ondemand_matrix.xml")),
    ("vendor", VENDOR),
];
const VENDOR: &str = include_str!("../../crates/policy/fixtures/vendor_sample.xml");

/// A file's policy, and that of its mirror.
fn pair(text: &str) -> [Arc<Policy>; 2] {
    let here = policy::xml::read("here.xml", text).unwrap_or_else(|errors| panic!("{errors}"));
    let there = mirror("here.xml", text, None).unwrap_or_else(|errors| panic!("{errors}"));
    let there = there.database.load("there.xml").unwrap_or_else(|errors| panic!("{errors}"));
    [Arc::new(here.policy), Arc::new(there.policy)]
}

/// A host with all the addresses that a policy gives its own side.
fn host(world: &mut World, name: &str, policy: &Arc<Policy>, authority: &Authority) -> HostId {
    let addresses: BTreeSet<IpAddr> =
        policy.tunnels.iter().filter_map(|tunnel| tunnel.local.address).collect();
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let host = world.add_host(name, addresses[0], Arc::clone(policy), calm());
    world.readdress(host, &addresses);
    world.trust(host, wallet(policy, authority).trust());
    host
}

/// A certificate for each identity that a policy gives its own side.
fn wallet(policy: &Policy, authority: &Authority) -> Wallet {
    let mut wallet = Wallet {
        trusted: vec![authority.der.clone()],
        crls: vec![authority.crl(&[])],
        ..Wallet::default()
    };
    for tunnel in &policy.tunnels {
        let Credential::Signature(signature) = &tunnel.credential else { continue };
        let owner = tunnel.local.identity.to_string();
        let key = key(signature.keys[0], &owner);
        wallet.own.push((authority.sign(&named(&tunnel.local.identity), &key), key));
    }
    wallet
}

fn named(identity: &Identity) -> CertificateParams {
    let mut params = params("somebody");
    match identity {
        Identity::Dn(_) => {
            let side = if identity.to_string().contains("left") { "left" } else { "right" };
            params.distinguished_name = DistinguishedName::new();
            let parts = [
                (DnType::CountryName, "NL".to_owned()),
                (DnType::OrganizationName, "Example".to_owned()),
                (DnType::OrganizationalUnitName, "Lab".to_owned()),
                (DnType::CommonName, format!("{side}.example.net")),
            ];
            parts.into_iter().for_each(|(kind, value)| params.distinguished_name.push(kind, value));
        }
        Identity::UserFqdn(name) => {
            let name = name.clone().try_into().expect("ASCII");
            params.subject_alt_names = vec![SanType::Rfc822Name(name)];
        }
        Identity::KeyId(octets) => {
            params.key_identifier_method = KeyIdMethod::PreSpecified(octets.clone());
            params.is_ca = rcgen::IsCa::ExplicitNoCa;
        }
        other => panic!("no file has {other:?} with a certificate"),
    }
    params
}

/// Phase 2 tunnels that nobody may start: here, where alone their phase 1 tunnel starts, they may only answer, and
/// IKEv2 makes no IKE SA without a Child SA (RFC 7296 §1.2).
const NOBODY_STARTS: [&str; 2] = ["a_auto", "a_demand"];

/// Has one side start all it may.
fn start(world: &mut World, from: HostId, policy: &Policy) {
    for tunnel in policy.tunnels.iter().filter(|tunnel| tunnel.role.may_initiate()) {
        for child in tunnel.children.iter().filter(|child| child.role.may_initiate()) {
            world.connect(from, &child.name);
            world.run_for(SOON);
        }
    }
}

/// Names of the phase 2 tunnels that are up.
fn up(world: &mut World, host: HostId) -> BTreeSet<String> {
    let status = world.status(host);
    let children = status.into_iter().flat_map(|tunnel| tunnel.children);
    children.filter(|child| child.sa.is_some()).map(|child| child.name).collect()
}

/// A packet through each tunnel for everything.
fn assert_passable(world: &mut World, hosts: [HostId; 2], policy: &Policy) -> usize {
    let whole = |selector: &Selector| {
        selector.protocol == 0
            && selector.ports == PortRange::ANY
            && selector.addresses.start().is_ipv4()
    };
    let mut passed = 0;
    for child in policy.tunnels.iter().flat_map(|tunnel| &tunnel.children) {
        if !whole(&child.local[0]) || NOBODY_STARTS.contains(&child.name.as_str()) {
            continue;
        }
        let [here, there] = [&child.local[0], &child.remote[0]].map(|s| s.addresses.end());
        assert!(world.probe(hosts[0], here, there), "{}", child.name);
        assert!(world.probe(hosts[1], there, here), "{}", child.name);
        passed += 1;
    }
    passed
}

#[test]
fn every_file_and_its_mirror_come_up() {
    let authority = Authority::root("root", KeyKind::EcdsaP256);
    for (file, text) in FILES {
        let policies = pair(text);
        let children = policies[0].tunnels.iter().flat_map(|tunnel| &tunnel.children);
        let names = children.map(|child| child.name.clone());
        let wanted: BTreeSet<_> = names.filter(|n| !NOBODY_STARTS.contains(&n.as_str())).collect();
        for order in [[0, 1], [1, 0]] {
            let mut world = World::new(1);
            world.encrypt();
            let hosts =
                [0, 1].map(|n| host(&mut world, ["here", "there"][n], &policies[n], &authority));
            for n in order {
                start(&mut world, hosts[n], &policies[n]);
            }
            world.run_for(SETTLED);
            for host in hosts {
                assert_eq!(up(&mut world, host), wanted, "{file}");
            }
            let [here, there] = hosts.map(|host| world.status(host));
            for (here, there) in here.iter().zip(&there) {
                assert_eq!(mirrored(here, there), Vec::<String>::new(), "{file}");
            }
            let keys = mirrored_keys(&mut world, hosts[0], hosts[1]);
            assert_eq!(keys, Vec::<String>::new(), "{file}");
            let passed = assert_passable(&mut world, hosts, &policies[0]);
            assert!(passed > 0, "{file}");
            assert_clean_stop(&mut world, hosts[0], hosts[1]);
        }
    }
}

/// Replaces what must be there.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in the sample");
    text.replace(from, to)
}

/// The sample's Child SAs end after 3 minutes and its IKE SAs after 5: only its timers renew them.
#[test]
fn the_vendors_sample_lives_for_hours_by_its_own_lifetimes() {
    let narrowed = changed(
        VENDOR,
        "IPSec_ResponderKeyRefreshMaxMinutes=\"43200\"",
        "IPSec_ResponderKeyRefreshMaxMinutes=\"2\"",
    );
    let narrowed = changed(
        &narrowed,
        "IKE_ResponderKeyRefreshMinMinutes=\"1\"",
        "IKE_ResponderKeyRefreshMinMinutes=\"7\"",
    );
    // The lifetimes of SAs that the peer asks for in minutes, and how often two hours renew the Child SA.
    let cases = [(VENDOR, (5, 3), 42..=52), (&*narrowed, (7, 2), 62..=77)];
    let minutes = |n: u64| Duration::from_secs(60 * n);
    let authority = Authority::root("root", KeyKind::EcdsaP256);
    for (text, as_responder, renewed) in cases {
        let policies = pair(text);
        for begins in [0, 1] {
            let mut world = World::new(1);
            let hosts =
                [0, 1].map(|n| host(&mut world, ["here", "there"][n], &policies[n], &authority));
            world.connect(hosts[begins], "LP2");
            world.run_for(SOON);
            for (n, host) in hosts.into_iter().enumerate() {
                let status = world.status(host).remove(0);
                let ike = status.sa.expect("the IKE SA is up").expires_in.expect("it ends");
                let child = status.children[0].sa.clone().expect("the Child SA is up").lifetime;
                let expected = if n == begins { (5, 3) } else { as_responder };
                assert_eq!((ike.as_secs().div_ceil(60), child.hard.as_secs() / 60), expected);
            }
            let [l, r] = [0, 1].map(|n| policies[n].tunnels[0].local.address.expect("an address"));
            let second = Duration::from_secs(1);
            let flows = [
                world.start_flow(hosts[0], l, r, second),
                world.start_flow(hosts[1], r, l, second),
            ];
            world.run_for(minutes(120));
            for host in hosts {
                let status = world.status(host).remove(0);
                let child = status.children[0].sa.clone().expect("the Child SA is up").rekeys;
                assert!(renewed.contains(&child), "{child} rekeys of the Child SA");
                let ike = status.sa.expect("the IKE SA is up").rekeys;
                // At half of the lifetime, or up to a quarter earlier.
                assert!((45..=66).contains(&ike), "{ike} rekeys of the IKE SA");
            }
            assert_nothing_lost(&mut world, flows);
            assert_clean_stop(&mut world, hosts[0], hosts[1]);
        }
    }
}
