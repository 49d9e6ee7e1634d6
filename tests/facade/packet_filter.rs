//! A gateway whose packet filter is slow, or refuses a change.

use crate::nft::Nft;
use crate::side::{FAR, Side, TUNNEL, quick};
use esp::filter::{DefaultAction, Direction, Filter, FilterAction, FilterRule};
use esp::plane::TrafficSelectors;
use libtest_mimic::Trial;
use policy::{AddressRange, AllowedTraffic, GenericChild, Identity, Policy, RangeKind, Selector};
use std::net::IpAddr;
use std::sync::Arc;
use testkit::{FILTERED, test, until};
use tokio::task::JoinHandle;
use vpn::{Gateway, GatewayError};

pub fn trials() -> Vec<Trial> {
    vec![
        test("peers are answered while nftables is slow", FILTERED, slow),
        test("peers are answered while a tunnel that changes is guarded", FILTERED, narrowed),
        test(
            "peers are answered while the traffic that one of them names is guarded",
            FILTERED,
            named,
        ),
        test("peers are answered while the filter is replaced", FILTERED, filtered),
        test("peers are answered while changed tables are put back", FILTERED, changed),
        test("a change that nftables refuses is made up for", FILTERED, refused),
        test("a filter that nftables refuses changes nothing", FILTERED, refused_filter),
    ]
}

/// The network behind the tunnel that comes and goes, and the name of its phase 2 tunnel.
const OTHER: &str = "10.3.0";
const OTHER_CHILD: &str = "other_lan";
/// A phase 1 tunnel of other identities between the same gateways.
const SECOND: &str = "second";

/// The policy with one more phase 2 tunnel.
fn with_other(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    let tunnel = Arc::make_mut(&mut policy.tunnels[0]);
    let mut child = (*tunnel.children[0]).clone();
    OTHER_CHILD.clone_into(&mut child.name);
    let address = |last: u8| format!("{OTHER}.{last}").parse().expect("an address");
    child.remote[0].addresses = AddressRange::new(address(0), address(255)).expect("a range");
    tunnel.children.push(Arc::new(child));
    policy
}

fn names(side: &Side, gateway: &Gateway) -> Vec<String> {
    let gateway = gateway.clone();
    let status = side.run(async move { gateway.tunnels().status().await.expect("it runs") });
    status.iter().flat_map(|tunnel| &tunnel.children).map(|child| child.name.clone()).collect()
}

fn guarded(side: &Side) -> bool {
    side.space.sh("nft list table inet vpn_guard_vpn0").contains(OTHER)
}

/// The timers of a peer that goes on asking as long as a test holds `nft`.
fn patient() -> ike::Config {
    ike::Config { retransmissions: 12, ..quick() }
}

/// The peer activates its tunnel and rekeys it, and this side answers.
fn is_answered(right: &Side, peer: &Gateway, tunnel: &'static str) {
    let peer = peer.clone();
    right.run(async move {
        peer.tunnel(tunnel).activate().await.expect("up");
        peer.tunnel(tunnel).rekey().await.expect("rekeyed");
    });
}

fn slow() {
    let [mut left, right] = Side::pair();
    let nft = Nft::of(&mut left);
    let gateway = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder()).expect("started");
    let replace = |policy: Policy| {
        let gateway = gateway.clone();
        left.spawn(async move { gateway.replace_policy(policy).await })
    };

    let held = nft.hold();
    let replacing = replace(with_other(&left.policy));
    // The peer begins, and this side answers it.
    let activating = peer.clone();
    right.run(async move { activating.tunnel(TUNNEL).activate().await.expect("up") });
    assert!(!replacing.is_finished(), "the new tunnel is guarded before it is there");
    assert!(!names(&left, &gateway).iter().any(|name| name == OTHER_CHILD));
    drop(held);
    left.run(replacing).expect("no panic").expect("a valid policy");
    assert!(names(&left, &gateway).iter().any(|name| name == OTHER_CHILD));
    assert!(guarded(&left));
    assert!(left.reaches(FAR));

    let held = nft.hold();
    let replacing = replace(left.policy.clone());
    let gone = || (!names(&left, &gateway).iter().any(|name| name == OTHER_CHILD)).then_some(());
    until("the tunnel is gone", gone, String::new);
    let rekeying = peer.clone();
    right.run(async move { rekeying.tunnel(TUNNEL).rekey().await.expect("rekeyed") });
    assert!(!replacing.is_finished(), "the former tunnel is still guarded");
    drop(held);
    left.run(replacing).expect("no panic").expect("a valid policy");
    assert!(!guarded(&left));

    // One after the other, although none is waited for.
    let held = nft.hold();
    let several = [with_other(&left.policy), left.policy.clone(), with_other(&left.policy)];
    let several = several.map(replace);
    drop(held);
    for replacing in several {
        left.run(replacing).expect("no panic").expect("a valid policy");
    }
    assert!(guarded(&left));
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

/// A tunnel loses a part of its traffic, so that nothing new is to be guarded before it changes.
fn narrowed() {
    let [mut left, right] = Side::pair();
    let nft = Nft::of(&mut left);
    let mut wide = with_other(&left.policy);
    let child = Arc::make_mut(&mut Arc::make_mut(&mut wide.tunnels[0]).children[1]);
    let address = |last: u8| [10, 4, 0, last].into();
    let addresses = AddressRange::new(address(0), address(255)).expect("a range");
    child.remote.push(policy::Selector { addresses, ..child.remote[0] });
    let narrow = with_other(&left.policy);
    let whole = left.policy.clone();
    left.policy = wide;
    let gateway = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder().ike(patient())).expect("started");
    let lists = |left: &Side, network: &str| {
        nft.real(left, "list table inet vpn_guard_vpn0").contains(network)
    };
    assert!(lists(&left, "10.3.0") && lists(&left, "10.4.0"));

    let held = nft.hold();
    let changing = gateway.clone();
    let replacing = left.spawn(async move { changing.replace_policy(narrow).await });
    nft.await_call();
    is_answered(&right, &peer, TUNNEL);
    assert!(!replacing.is_finished(), "its former traffic is still guarded");
    drop(held);
    left.run(replacing).expect("no panic").expect("a valid policy");
    assert!(lists(&left, "10.3.0") && !lists(&left, "10.4.0"));
    let last = gateway.clone();
    left.run(async move { last.replace_policy(whole).await.expect("a valid policy") });
    assert!(!lists(&left, "10.3.0"));
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

/// A second phase 1 tunnel between the same gateways, beside one whose phase 2 tunnels the peer names if `generic` is
/// set.
fn two_tunnels(policy: &Policy, ours: &str, theirs: &str, generic: bool) -> Policy {
    let mut policy = policy.clone();
    let mut second = (*policy.tunnels[0]).clone();
    SECOND.clone_into(&mut second.name);
    second.local.identity = Identity::Fqdn(ours.to_owned());
    second.remote.identity = Identity::Fqdn(theirs.to_owned());
    let mut child = (*second.children[0]).clone();
    OTHER_CHILD.clone_into(&mut child.name);
    // Its own networks on both sides.
    for selector in child.local.iter_mut().chain(&mut child.remote) {
        let IpAddr::V4(start) = selector.addresses.start() else { panic!("IPv4") };
        let [_, side, ..] = start.octets();
        let address = |last: u8| [10, side + 2, 0, last].into();
        selector.addresses = AddressRange::new(address(0), address(255)).expect("a range");
    }
    second.children = vec![Arc::new(child)];
    if generic {
        let first = Arc::make_mut(&mut policy.tunnels[0]);
        let child = first.children.remove(0);
        let anything =
            AllowedTraffic { ipv4: Some(RangeKind::Range), ipv6: Some(RangeKind::Range) };
        first.generic = Some(Arc::new(GenericChild {
            name: "_defIPSprot_any".into(),
            mode: child.mode,
            local: anything,
            remote: anything,
            proposals: child.proposals.clone(),
            pfs: child.pfs.clone(),
        }));
    }
    policy.tunnels.push(Arc::new(second));
    policy
}

fn named() {
    let [mut left, mut right] = Side::pair();
    let nft = Nft::of(&mut left);
    left.policy = two_tunnels(&left.policy, "left.example", "right.example", true);
    right.policy = two_tunnels(&right.policy, "right.example", "left.example", false);
    let gateway = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder().ike(patient())).expect("started");
    let guards = |left: &Side| {
        nft.real(left, "list table inet vpn_guard_vpn0").contains("10.1.0.0 . 10.2.0.0")
    };

    let held = nft.hold();
    let asking = peer.clone();
    let asking = right.spawn(async move { asking.tunnel(TUNNEL).activate().await });
    nft.await_call();
    is_answered(&right, &peer, SECOND);
    assert!(!asking.is_finished() && !guards(&left), "its traffic is guarded first");
    drop(held);
    right.run(asking).expect("no panic").expect("up");
    assert!(guards(&left));
    assert!(left.reaches(FAR));

    let ending = peer.clone();
    right.run(async move { ending.tunnel(TUNNEL).deactivate().await.expect("gone") });
    until("it is guarded no longer", || (!guards(&left)).then_some(()), String::new);
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

/// A filter that lets traffic of the tunnel to a network pass in the clear, and denies everything that no rule names.
fn bypass(third: u8) -> Filter {
    let selector = |addresses| Selector::all_of(addresses);
    let network = |last: u8| [10, 2, third, last].into();
    let remote = AddressRange::new(network(0), network(255)).expect("a range");
    let local = AddressRange::new([10, 1, 0, 0].into(), [10, 1, 0, 255].into()).expect("a range");
    let traffic = TrafficSelectors { local: vec![selector(local)], remote: vec![selector(remote)] };
    let (action, direction) = (FilterAction::Bypass, Direction::Both);
    let rule = FilterRule { name: None, action, direction, traffic };
    Filter { rules: vec![rule], ipv4: DefaultAction::Deny, ..Filter::default() }
}

/// Replaces the filter.
fn set(side: &Side, gateway: &Gateway, filter: Filter) -> JoinHandle<Result<(), GatewayError>> {
    let gateway = gateway.clone();
    side.spawn(async move { gateway.filter().replace(filter).await })
}

/// Whether a table of nftables names the network of a filter's rule.
fn has(nft: &Nft, side: &Side, table: &str, third: u8) -> bool {
    let network = format!("10.2.{third}.0");
    nft.real(side, "list ruleset")
        .split("table inet ")
        .any(|text| text.starts_with(table) && text.contains(&network))
}

const FILTER: &str = "vpn_filter_vpn0";
const GUARD: &str = "vpn_guard_vpn0";

fn filtered() {
    let [mut left, right] = Side::pair();
    let nft = Nft::of(&mut left);
    let gateway = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder().ike(patient())).expect("started");

    let held = nft.hold();
    let setting = set(&left, &gateway, bypass(7));
    nft.await_call();
    // Its counters are read by the same program.
    let reading = gateway.clone();
    let reading = left.spawn(async move { reading.filter().status().await });
    is_answered(&right, &peer, TUNNEL);
    assert!(!setting.is_finished() && !has(&nft, &left, FILTER, 7), "it is not in force yet");
    drop(held);
    left.run(setting).expect("no panic").expect("a good filter");
    left.run(reading).expect("no panic").expect("it runs");
    assert!(has(&nft, &left, FILTER, 7) && has(&nft, &left, GUARD, 7), "both are in force");

    // One after the other, although none is waited for.
    let held = nft.hold();
    let setting = [8, 7, 9].map(|third| set(&left, &gateway, bypass(third)));
    nft.await_call();
    is_answered(&right, &peer, TUNNEL);
    drop(held);
    for setting in setting {
        left.run(setting).expect("no panic").expect("a good filter");
    }
    for table in [FILTER, GUARD] {
        assert_eq!([7, 8, 9].map(|third| has(&nft, &left, table, third)), [false, false, true]);
    }
    // A change that is under way when the gateway ends leaves nothing behind.
    let held = nft.hold();
    let setting = set(&left, &gateway, bypass(7));
    nft.await_call();
    let stopping = left.spawn(async move { gateway.stop().await });
    is_gone(&right, &peer);
    drop(held);
    left.run(stopping).expect("no panic");
    let _ = left.run(setting).expect("no panic");
    assert_eq!(nft.real(&left, "list tables"), "");
    right.run(async move { peer.stop().await });
}

/// The peer has heard of the end.
fn is_gone(right: &Side, peer: &Gateway) {
    let gone = || (!is_up(right, peer)).then_some(());
    until("the peer's tunnel is gone", gone, String::new);
}

fn is_up(side: &Side, gateway: &Gateway) -> bool {
    let gateway = gateway.clone();
    let status = side.run(async move { gateway.tunnels().status().await.expect("it runs") });
    status.iter().flat_map(|tunnel| &tunnel.children).any(|child| child.sa.is_some())
}

fn changed() {
    let [mut left, right] = Side::pair();
    let nft = Nft::of(&mut left);
    let gateway = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder().ike(patient())).expect("started");
    left.run(set(&left, &gateway, bypass(7))).expect("no panic").expect("a good filter");
    for tables in [&[GUARD][..], &[FILTER], &[GUARD, FILTER]] {
        let held = nft.hold();
        for table in tables {
            nft.real(&left, &format!("delete table inet {table}"));
        }
        nft.await_call();
        is_answered(&right, &peer, TUNNEL);
        for table in tables {
            assert!(!has(&nft, &left, table, 7), "{table} is held up");
        }
        drop(held);
        let back = || tables.iter().all(|table| has(&nft, &left, table, 7)).then_some(());
        until("the tables are back", back, String::new);
    }

    // Others change the table while a change is under way.
    let held = nft.hold();
    let setting = set(&left, &gateway, bypass(8));
    nft.await_call();
    nft.real(&left, &format!("delete table inet {FILTER}"));
    is_answered(&right, &peer, TUNNEL);
    drop(held);
    left.run(setting).expect("no panic").expect("a good filter");
    nft.real(&left, &format!("delete table inet {FILTER}"));
    let back = || has(&nft, &left, FILTER, 8).then_some(());
    until("the table is back", back, String::new);
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

fn refused_filter() {
    let [mut left, right] = Side::pair();
    let nft = Nft::of(&mut left);
    let gateway = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder()).expect("started");
    left.run(set(&left, &gateway, bypass(7))).expect("no panic").expect("a good filter");
    let held = nft.hold();
    let setting = set(&left, &gateway, bypass(8));
    nft.await_call();
    nft.refuse();
    drop(held);
    let refusal = left.run(setting).expect("no panic").expect_err("nft refuses it").to_string();
    assert!(refusal.contains("filtering with nftables"), "{refusal}");
    for table in [FILTER, GUARD] {
        assert_eq!([7, 8].map(|third| has(&nft, &left, table, third)), [true, false], "{table}");
    }
    assert!(!left.space.sh("ip rule").contains("10.2.8.0"), "no route leads past the tunnel");
    is_answered(&right, &peer, TUNNEL);
    left.run(set(&left, &gateway, bypass(8))).expect("no panic").expect("a good filter");
    assert!(has(&nft, &left, FILTER, 8) && has(&nft, &left, GUARD, 8));
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

fn refused() {
    let [mut left, _right] = Side::pair();
    let nft = Nft::of(&mut left);
    let gateway = left.start(left.builder()).expect("started");
    let replace = |policy: Policy| {
        let gateway = gateway.clone();
        left.run(async move { gateway.replace_policy(policy).await.expect("a valid policy") });
    };
    nft.refuse();
    replace(with_other(&left.policy));
    assert!(nft.has_refused());
    assert!(guarded(&left), "the tunnel is not there without its guard");

    nft.refuse();
    replace(left.policy.clone());
    assert!(nft.has_refused());
    until("the guard is up to date", || (!guarded(&left)).then_some(()), String::new);
    left.run(async move { gateway.stop().await });
}
