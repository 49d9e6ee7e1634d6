//! Retransmission, the kept answer, repeated and reordered messages (RFC 7296 §2.1 to §2.3).

use crate::{SETTLED, SOON, assert_settled, calm, talk};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::link::Content;
use sim::recorder::Change;
use sim::{Conditions, Exchange, Label, Site, World};
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn a_lost_answer_is_given_again_octet_for_octet() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.tap();
    for exchange in
        [Exchange::SaInit, Exchange::Auth, Exchange::CreateChild, Exchange::Informational]
    {
        world.drop_next(right, 2, move |l| l.is_response(exchange));
    }
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    assert!(world.rekey(left, "net0"));
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);

    let mut versions: BTreeMap<(bool, bool, Exchange, u32), Vec<Vec<u8>>> = BTreeMap::new();
    for parcel in world.take_tapped() {
        let Content::Ike(octets) = parcel.content else { continue };
        let label = Label::read(&octets).expect("an IKE message");
        let from_left = parcel.source.ip() == site.left;
        let key = (from_left, label.response, label.exchange, label.message_id);
        versions.entry(key).or_default().push(octets);
    }
    assert_eq!(versions.len(), 8, "four exchanges");
    for (what, copies) in versions {
        assert_eq!(copies.len(), 3, "two lost answers, three requests: {what:?}");
        assert!(copies.iter().all(|c| *c == copies[0]), "a different message again: {what:?}");
    }
    for host in [left, right] {
        let added = |c: &&Change| matches!(c, Change::Inbound(..));
        assert_eq!(world.plane(host).journal().iter().filter(added).count(), 2);
    }
}

#[test]
fn waiting_grows_between_retransmissions() {
    let (mut world, left, right) = World::of_site(1, &Site::default(), &calm());
    world.cut(right);
    world.connect(left, Site::TUNNEL);
    let mut sent = vec![world.now()];
    for n in 2..=4 {
        assert!(world.run_until(SETTLED, |w| w.ladder().sent_by("left").count() == n));
        sent.push(world.now());
    }
    let waits: Vec<Duration> = sent.windows(2).map(|w| w[1] - w[0]).collect();
    let near = |wait: Duration, millis: u64| {
        let expected = Duration::from_millis(millis);
        wait.abs_diff(expected) <= expected / 4
    };
    assert!(near(waits[0], 1000) && near(waits[1], 1800) && near(waits[2], 3240), "{waits:?}");
}

#[test]
fn everything_arrives_twice() {
    for seed in 0..16 {
        let site = Site { children: 2, ..Site::default() };
        let (mut world, left, right) = World::of_site(seed, &site, &calm());
        world.set_conditions(Conditions { loss: 0, repetition: 1000, ..Conditions::bad(0) });
        world.connect(left, Site::TUNNEL);
        world.run_for(SOON);
        let flows = talk(&mut world, left, right, &site);
        for name in ["net0", Site::TUNNEL, "net1"] {
            world.rekey(left, name);
            world.run_for(SOON);
            world.rekey(right, name);
            world.run_for(SOON);
        }
        world.run_for(Duration::from_secs(20));
        assert_settled(&mut world, left, right, &site, flows);
        // Repeated requests were answered, not carried out again; nothing had to be asked twice.
        let mut asked: BTreeMap<&Label, usize> = BTreeMap::new();
        for label in world.ladder().sent_by("left").filter(|l| !l.response) {
            *asked.entry(label).or_default() += 1;
        }
        assert!(asked.values().all(|&n| n == 1), "{asked:?}");
    }
}

#[test]
fn a_bad_link_only_takes_longer() {
    for seed in 0..64 {
        let site = Site { children: 2, ..Site::default() };
        let config = ike::Config { retransmissions: 14, ..calm() };
        let (mut world, left, right) = World::of_site(seed, &site, &config);
        world.set_conditions(Conditions::bad(300));
        world.connect(if seed % 2 == 0 { left } else { right }, Site::TUNNEL);
        let day = Duration::from_secs(86_400);
        let is_up = |w: &mut World| {
            [left, right].iter().all(|&h| w.status(h)[0].children.iter().all(|c| c.sa.is_some()))
        };
        assert!(world.run_until(day / 4, is_up));
        world.heal();
        world.run_for(SETTLED);
        assert_agreement(&mut world, left, right, &site);
        assert_clean_stop(&mut world, left, right);
    }
}
