//! Messages in fragments (RFC 7383): over good and bad links, with sizes that do not get through, and under attack.

use crate::{SETTLED, SOON, assert_nothing_lost, calm, talk};
use ike::Config;
use policy::Selector;
use sim::host::{Side, network};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::link::{Content, Parcel};
use sim::{Conditions, Exchange, HostId, Label, Site, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Octets of an IP datagram into which neither IKE_AUTH nor CREATE_CHILD_SA fits.
const TINY: u16 = 200;
/// Octets of IPv4 header, UDP header and non-ESP marker.
const OUTSIDE: usize = 32;

fn tiny() -> Config {
    Config { fragment_size: Some(TINY), ..calm() }
}

/// A site whose IKE_AUTH messages have some 1,600 octets.
fn wordy() -> Site {
    let nets = (0..90).map(|n| Selector::all_of(network([10, 1, n, 0]))).collect();
    Site { left_net: Some(nets), ..Site::default() }
}

/// Fragment Number and Total Fragments, read independently of the code under test (RFC 7383 §2.5).
fn place(octets: &[u8]) -> Option<(u16, u16)> {
    let number = |at: usize| Some(u16::from_be_bytes([*octets.get(at)?, *octets.get(at + 1)?]));
    (octets[16] == 53).then_some((number(32)?, number(34)?))
}

fn ike(parcels: Vec<Parcel>) -> Vec<(Parcel, Label, Vec<u8>)> {
    let of = |parcel: Parcel| match &parcel.content {
        Content::Ike(octets) => {
            let label = Label::read(octets).expect("engines send IKE messages");
            let octets = octets.clone();
            Some((parcel, label, octets))
        }
        _ => None,
    };
    parcels.into_iter().filter_map(of).collect()
}

/// Rekeys everything from both sides, with traffic all the while.
fn live(world: &mut World, left: HostId, right: HostId, site: &Site) {
    let flows = talk(world, left, right, site);
    for host in [left, right] {
        for name in ["net0", Site::TUNNEL] {
            assert!(world.rekey(host, name), "{name} is up");
            world.run_for(SOON);
        }
    }
    world.run_for(Duration::from_secs(20));
    assert_nothing_lost(world, flows);
}

#[test]
fn only_messages_that_are_too_long_go_in_fragments() {
    let address = |last| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let v6 = Site { left: address(1), right: address(2), ..Site::default() };
    for (site, outside) in [(Site::default(), OUTSIDE), (v6, OUTSIDE + 20)] {
        let (mut world, left, right) = World::of_site(1, &site, &tiny());
        world.tap();
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        live(&mut world, left, right, &site);
        assert_agreement(&mut world, left, right, &site);
        for host in [left, right] {
            let discards = world.host(host).engine.discards();
            assert!(discards.is_empty(), "nothing was in vain: {discards:?}");
        }
        assert_clean_stop(&mut world, left, right);
        let mut fragmented = BTreeSet::new();
        let mut sets: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (parcel, label, octets) in ike(world.take_tapped()) {
            let Some((number, total)) = place(&octets) else {
                let small = octets.len() + outside <= usize::from(TINY);
                assert!(small || label.exchange == Exchange::SaInit, "{label:?} is whole");
                continue;
            };
            assert!(octets.len() + outside <= usize::from(TINY), "{label:?} is too long");
            assert!(label.exchange != Exchange::Informational, "there is no point in it");
            fragmented.insert((label.exchange, label.response));
            let spis = (label.initiator_spi, label.responder_spi, label.message_id);
            let message = (parcel.source.ip(), label.response, spis, total);
            assert!(sets.entry(message).or_default().insert(number), "each goes once");
        }
        for ((.., total), numbers) in &sets {
            assert_eq!(numbers.len(), usize::from(*total));
        }
        let both = |e| [(e, false), (e, true)];
        let expected = [both(Exchange::Auth), both(Exchange::CreateChild)].concat();
        assert_eq!(fragmented, expected.into_iter().collect());
    }
}

#[test]
fn fragments_are_lost_repeated_and_reordered() {
    for seed in 0..48 {
        let site = Site { children: 2, ..Site::default() };
        let config = Config { retransmissions: 14, ..tiny() };
        let (mut world, left, right) = World::of_site(seed, &site, &config);
        world.set_conditions(Conditions::bad(200));
        world.connect(if seed % 2 == 0 { left } else { right }, Site::TUNNEL);
        let day = Duration::from_secs(86_400);
        let is_up = |w: &mut World| {
            [left, right].iter().all(|&h| w.status(h)[0].children.iter().all(|c| c.sa.is_some()))
        };
        assert!(world.run_until(day / 4, is_up));
        for name in ["net0", Site::TUNNEL] {
            world.rekey(left, name);
            world.run_for(SETTLED);
            world.rekey(right, name);
            world.run_for(SETTLED);
        }
        world.heal();
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn fragments_in_any_order_with_all_of_them_twice() {
    for seed in 0..32 {
        let site = wordy();
        let (mut world, left, right) = World::of_site(seed, &site, &tiny());
        world.set_conditions(Conditions { loss: 0, repetition: 1000, ..Conditions::bad(0) });
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        assert_agreement(&mut world, left, right, &site);
        live(&mut world, left, right, &site);
        assert_agreement(&mut world, left, right, &site);
        // Each fragment was sent once, or once more in answer to fragment 1 of the request coming again.
        let mut times: BTreeMap<&Label, usize> = BTreeMap::new();
        let requests = world.ladder().sent_by("left").filter(|l| !l.response);
        let fragments = requests.filter(|l| l.exchange == Exchange::Auth);
        fragments.for_each(|l| *times.entry(l).or_default() += 1);
        let sent: usize = times.values().sum();
        assert!((9..20).contains(&sent), "the request goes in some 10 fragments once: {sent}");
    }
}

#[test]
fn a_lost_fragment_has_all_sent_again_octet_for_octet() {
    for (from, exchange) in [(Side::Left, Exchange::Auth), (Side::Right, Exchange::CreateChild)] {
        let site = Site::default();
        let (mut world, left, right) = World::of_site(1, &site, &tiny());
        let host = if from == Side::Left { left } else { right };
        world.tap();
        world.drop_next(host, 1, move |l| l.exchange == exchange);
        world.connect(left, Site::TUNNEL);
        world.run_for(SETTLED);
        assert!(world.rekey(left, "net0"));
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        let sent: Vec<Vec<u8>> = ike(world.take_tapped())
            .into_iter()
            .filter(|(p, l, _)| {
                l.exchange == exchange && (p.source.ip() == site.left) == (from == Side::Left)
            })
            .map(|(_, _, octets)| octets)
            .collect();
        let (first, again) = sent.split_at(sent.len() / 2);
        assert!(first.len() > 1);
        assert_eq!(first, again);
    }
}

#[test]
fn only_the_first_fragment_of_a_request_brings_the_answer_again() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &tiny());
    world.tap();
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let request: Vec<_> = ike(world.take_tapped())
        .into_iter()
        .filter(|(_, l, _)| l.is_request(Exchange::Auth))
        .collect();
    let total = request.len();
    assert!(total > 1);
    let answers = |world: &World| {
        world.ladder().sent_by("right").filter(|l| l.is_response(Exchange::Auth)).count()
    };
    let before = answers(&world);
    for (parcel, ..) in &request[1..] {
        world.inject(Duration::ZERO, parcel.clone());
    }
    world.run_for(SOON);
    assert_eq!(answers(&world), before, "the others are ignored");
    world.inject(Duration::ZERO, request[0].0.clone());
    world.run_for(SOON);
    assert_eq!(answers(&world), 2 * before, "all fragments of the answer again");
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_peer_that_takes_none_gets_none() {
    let none = Config { fragment_size: None, ..calm() };
    for (l, r) in [(tiny(), none.clone()), (none.clone(), tiny()), (none.clone(), none)] {
        let site = wordy();
        let mut world = World::new(1);
        let left = world.add_host("left", site.left, site.policy(Side::Left), l);
        let right = world.add_host("right", site.right, site.policy(Side::Right), r);
        world.tap();
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        live(&mut world, left, right, &site);
        assert_agreement(&mut world, left, right, &site);
        let sent = ike(world.take_tapped());
        assert!(sent.iter().all(|(_, _, octets)| place(octets).is_none()));
        assert!(sent.iter().any(|(_, _, octets)| octets.len() > 1500));
    }
}

#[test]
fn smaller_fragments_are_tried_where_large_ones_vanish() {
    // Octets of the longest message that gets through; that of IKE_AUTH goes whole first, then in two, then in four.
    for limit in [900, 500] {
        for deaf_ends in [[true, false], [false, true], [true, true]] {
            let site = wordy();
            let config = Config { fragment_size: Some(3000), ..calm() };
            let (mut world, left, right) = World::of_site(1, &site, &config);
            for (host, deaf) in [left, right].into_iter().zip(deaf_ends) {
                if deaf {
                    world.drop_next(host, u32::MAX, move |l| l.len > limit);
                }
            }
            world.connect(left, Site::TUNNEL);
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site);
            for (host, deaf) in ["left", "right"].into_iter().zip(deaf_ends) {
                let sizes: Vec<usize> = (world.ladder().sent_by(host))
                    .filter(|l| l.exchange == Exchange::Auth)
                    .map(|l| l.len)
                    .collect();
                // The responder need not find out again what the request's fragments tell.
                let knows = host == "right" && deaf_ends[0];
                assert_eq!(sizes[0] > 1500, !knows, "a large one is tried: {sizes:?}");
                let last = sizes[sizes.len() - 1];
                assert!(!deaf || (limit / 2..limit).contains(&last), "none too small: {sizes:?}");
                assert!(sizes.is_sorted_by(|a, b| a + 1 >= *b), "never larger again: {sizes:?}");
            }
            let inits = |l: &&Label| l.is_request(Exchange::SaInit);
            assert_eq!(world.ladder().sent_by("left").filter(inits).count(), 1);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn the_size_that_got_through_is_kept_across_rekeys() {
    let site = wordy();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.drop_next(left, u32::MAX, |l| l.len > 600);
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    assert!(world.rekey(left, Site::TUNNEL));
    world.run_for(SETTLED);
    let before = world.ladder().sent_by("left").count();
    assert!(world.rekey(left, "net0"));
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    let later: Vec<_> = world.ladder().sent_by("left").skip(before).collect();
    assert!(later.iter().filter(|l| l.is_request(Exchange::CreateChild)).count() > 1);
    assert!(later.iter().all(|l| l.len <= 576 - OUTSIDE), "no large one is tried anew");
}

#[test]
fn waiting_starts_over_with_each_size() {
    let site = wordy();
    let config = Config { fragment_size: Some(1500), ..calm() };
    let (mut world, left, right) = World::of_site(1, &site, &config);
    world.tap();
    world.drop_next(left, u32::MAX, |l| l.exchange == Exchange::Auth);
    world.connect(left, Site::TUNNEL);
    let mut sent: Vec<(Duration, u16)> = Vec::new();
    let until = world.now() + SETTLED;
    while world.step(until) {
        for (_, label, octets) in ike(world.take_tapped()) {
            let Some((1, total)) = place(&octets) else { continue };
            if sent.len() < 9 && label.is_request(Exchange::Auth) {
                sent.push((world.now(), total));
            }
        }
    }
    let totals: Vec<u16> = sent.iter().map(|(_, total)| *total).collect();
    // Halves fit into 1,280 octets as they do into 1,500: there is nothing to be tried between.
    assert_eq!(totals, [2, 2, 2, 4, 4, 4, 4, 4, 4]);
    let waits: Vec<u64> = sent.windows(2).map(|w| (w[1].0 - w[0].0).as_millis() as u64).collect();
    assert_eq!(waits, [1000, 1800, 3240, 1000, 1800, 3240, 5832, 10497]);
    let failed = crate::failure(&world, left, Site::TUNNEL);
    assert_eq!(failed, Some(ike::failure::FailureKind::NoAnswer));
    world.stop(left);
    assert!(world.status(right)[0].sa.is_none());
}

/// Lets time pass while every fragment is accompanied by forgeries; how many there were.
fn run_forging(world: &mut World, time: Duration) -> u64 {
    let until = world.now() + time;
    let mut forged = 0;
    loop {
        for (parcel, _, octets) in ike(world.take_tapped()) {
            let Some((number, total)) = place(&octets) else { continue };
            // Another number, a larger set, damaged content: each as convincing as can be without the keys.
            for (n, t) in [(number, total + 1), (total, total), (1, total), (1, 1), (9, 250)] {
                let mut octets = octets.clone();
                octets[32..34].copy_from_slice(&n.to_be_bytes());
                octets[34..36].copy_from_slice(&t.to_be_bytes());
                let at = 36 + world.chance().below(octets.len() as u64 - 36) as usize;
                octets[at] ^= 1;
                let copy = Parcel { content: Content::Ike(octets), ..parcel.clone() };
                world.inject(Duration::from_millis(3), copy.clone());
                world.inject(Duration::from_millis(13), copy);
                forged += 2;
            }
        }
        if !world.step(until) {
            return forged;
        }
    }
}

#[test]
fn forged_fragments_change_nothing() {
    for seed in 0..24 {
        let site = Site::default();
        let (mut world, left, right) = World::of_site(seed, &site, &tiny());
        world.tap();
        world.connect(left, Site::TUNNEL);
        let mut forged = run_forging(&mut world, SOON);
        assert!(world.rekey(left, "net0"));
        forged += run_forging(&mut world, SOON);
        assert!(world.rekey(right, Site::TUNNEL));
        forged += run_forging(&mut world, SOON);
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        // Two fragments each of IKE_AUTH and two CREATE_CHILD_SA, in both directions: nothing had to be sent again.
        assert_eq!(forged, 10 * 2 * 2 * 3);
        let discards = [left, right].map(|h| world.host(h).engine.discards());
        let counted: u64 = discards.iter().flat_map(|d| d.values()).sum();
        assert_eq!(counted, forged, "{discards:?}");
        assert_clean_stop(&mut world, left, right);
    }
}

#[test]
fn fragments_that_nobody_agreed_on_are_ignored() {
    let site = Site::default();
    let none = Config { fragment_size: None, ..calm() };
    let (mut world, left, right) = World::of_site(1, &site, &none);
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let (initiator, responder) = crate::ike_spis(&mut world, left);
    let mut octets = [initiator.to_be_bytes(), responder.to_be_bytes()].concat();
    octets.extend([53, 0x20, 37, 0x08, 0, 0, 0, 2, 0, 0, 0, 80, 0, 0, 0, 52, 0, 1, 0, 2]);
    octets.resize(80, 0);
    let source = std::net::SocketAddr::new(site.left, 4500);
    let destination = std::net::SocketAddr::new(site.right, 4500);
    world.inject(Duration::ZERO, Parcel { source, destination, content: Content::Ike(octets) });
    world.run_for(SOON);
    let discards = world.host(right).engine.discards();
    assert_eq!(discards.get("unexpected_fragment"), Some(&1), "{discards:?}");
    assert_agreement(&mut world, left, right, &site);
}

#[test]
fn a_wrong_key_is_refused_once_for_all_fragments() {
    let site = Site::default();
    let other = Site { secret: "another".into(), ..site.clone() };
    let mut world = World::new(1);
    let left = world.add_host("left", site.left, site.policy(Side::Left), tiny());
    let right = world.add_host("right", site.right, other.policy(Side::Right), tiny());
    world.drop_next(right, 1, |l| l.is_response(Exchange::Auth));
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    let failed = crate::failure(&world, left, Site::TUNNEL);
    assert_eq!(failed, Some(ike::failure::FailureKind::AuthenticationFailed));
    let refusals = world.ladder().sent_by("right").filter(|l| l.is_response(Exchange::Auth));
    assert_eq!(refusals.count(), 2, "the lost one, and one for the request sent again");
    assert!(world.status(right)[0].sa.is_none());
}
