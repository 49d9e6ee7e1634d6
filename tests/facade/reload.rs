//! A reload of many tunnels, of which a few have changed: its cost, and the peer that is answered meanwhile.
//!
//! `RELOAD_TUNNELS` says how many tunnels there are (2,000 otherwise). With `VPN_TEST_SHOW` the times are printed.

use crate::nft::Nft;
use crate::side::{Side, TUNNEL, quick};
use libtest_mimic::Trial;
use policy::{AddressRange, ChildTunnel, Identity, Policy};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{FILTERED, test};

pub fn trials() -> Vec<Trial> {
    let title = "a reload of many tunnels costs one transaction for those that change";
    vec![test(title, FILTERED, reload)]
}

/// Tunnels that change.
const CHANGED: u32 = 100;

/// A policy with so many more phase 2 tunnels of another peer. `generation` decides about the first [`CHANGED`] of
/// them.
fn crowd(policy: &Policy, tunnels: u32, generation: u32) -> Policy {
    let mut policy = policy.clone();
    let mut other = (*policy.tunnels[0]).clone();
    "crowd".clone_into(&mut other.name);
    other.remote.identity = Identity::Fqdn("crowd.example".to_owned());
    other.remote.address = Some(Ipv4Addr::new(192, 0, 2, 77).into());
    let model = ChildTunnel { auto_start: false, ..(*other.children[0]).clone() };
    let child = |number: u32| {
        let mut child = ChildTunnel { name: format!("crowd{number}"), ..model.clone() };
        let generation = if number < CHANGED { generation } else { 0 };
        let first = u32::from(Ipv4Addr::new(172, 16, 0, 0)) + (generation << 16);
        let address = std::net::IpAddr::from(Ipv4Addr::from(first + number));
        child.remote[0].addresses = AddressRange::from(address);
        Arc::new(child)
    };
    other.children = (0..tunnels).map(child).collect();
    policy.tunnels.push(Arc::new(other));
    policy
}

fn reload() {
    let tunnels = std::env::var("RELOAD_TUNNELS").map_or(2_000, |n| n.parse().expect("a number"));
    let [mut left, right] = Side::pair();
    let nft = Nft::of(&mut left);
    let policies = [0, 1, 2].map(|generation| crowd(&left.policy, tunnels, generation));
    let [first, others @ ..] = policies;
    left.policy = first;
    let gateway = left.start(left.builder()).expect("started");
    let patient = ike::Config { retransmissions: 12, ..quick() };
    let peer = right.start(right.builder().ike(patient)).expect("started");
    let activating = peer.clone();
    right.run(async move { activating.tunnel(TUNNEL).activate().await.expect("up") });
    nft.record();
    for policy in others {
        let before = nft.recorded().len();
        let reloaded = gateway.clone();
        let began = Instant::now();
        let replacing = left.spawn(async move {
            reloaded.replace_policy(policy).await.expect("a valid policy");
            began.elapsed()
        });
        let mut rekeys = Vec::new();
        while rekeys.is_empty() || !replacing.is_finished() {
            rekeys.push(rekey(&right, &peer));
        }
        let took = left.run(replacing).expect("no panic");
        tell(tunnels, took, &rekeys);
        assert_eq!(nft.recorded().len() - before, 2, "one for what is new, one for what is gone");
    }
    let text = nft.recorded().concat();
    let lines = |words: &str| text.lines().filter(|line| line.starts_with(words)).count();
    // Of each reload: traffic that leaves, this host's own packets, and traffic that arrives.
    let expected = 2 * 3 * CHANGED as usize;
    assert_eq!([lines("add element"), lines("delete element")], [expected; 2], "{text}");
    assert_eq!(text.lines().count(), 2 * expected, "{text}");
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

/// The time of a rekey that the peer begins.
fn rekey(right: &Side, peer: &vpn::Gateway) -> Duration {
    let peer = peer.clone();
    right.run(async move {
        let began = Instant::now();
        peer.tunnel(TUNNEL).rekey().await.expect("rekeyed");
        began.elapsed()
    })
}

fn tell(tunnels: u32, took: Duration, rekeys: &[Duration]) {
    if std::env::var_os("VPN_TEST_SHOW").is_some() {
        let mut rekeys = rekeys.to_vec();
        rekeys.sort_unstable();
        eprintln!(
            "{tunnels} tunnels, {CHANGED} changed: reload {took:.1?}; {} rekeys of the peer, median {:.2?}, worst {:.2?}",
            rekeys.len(),
            rekeys[rekeys.len() / 2],
            rekeys[rekeys.len() - 1],
        );
    }
}
