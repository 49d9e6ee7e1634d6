//! Truncated, damaged, replayed and forged copies of every message, at every moment: nobody panics, and both ends come
//! out as if nothing had happened.

use crate::{SETTLED, SOON, assert_nothing_lost, calm, talk};
use ike::Config;
use ike::event::{Event, EventKind};
use sim::invariant::{assert_agreement, assert_clean_stop};
use sim::link::{Content, Parcel};
use sim::{Exchange, HostId, Label, Site, World};
use std::net::SocketAddr;
use std::time::Duration;

/// An attacker's change of a message.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// Cut off somewhere, the length field as it was.
    Truncate,
    /// Cut off somewhere, the length field made to fit.
    TruncateAndFit,
    /// One bit of the header flipped.
    FlipHeader,
    /// One bit behind the header flipped.
    FlipBody,
    /// As it is.
    Replay,
    /// As it is, from another address.
    Spoof,
    /// Random octets behind the right header.
    Junk,
}

const ATTACKS: [Attack; 7] = [
    Attack::Truncate,
    Attack::TruncateAndFit,
    Attack::FlipHeader,
    Attack::FlipBody,
    Attack::Replay,
    Attack::Spoof,
    Attack::Junk,
];

/// When the copy arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Before,
    After,
    MuchLater,
}

impl When {
    /// The link takes 10 ms.
    fn delay(self) -> Duration {
        Duration::from_millis(match self {
            Self::Before => 3,
            Self::After => 13,
            Self::MuchLater => 1500,
        })
    }
}

impl Attack {
    fn copy(self, world: &mut World, parcel: &Parcel) -> Option<Parcel> {
        let mut parcel = parcel.clone();
        let Content::Ike(octets) = &mut parcel.content else { return None };
        let len = octets.len() as u64;
        match self {
            Self::Truncate => octets.truncate(world.chance().below(len) as usize),
            Self::TruncateAndFit => {
                octets.truncate(28 + world.chance().below(len - 28) as usize);
                let fit = u32::try_from(octets.len()).ok()?;
                octets[24..28].copy_from_slice(&fit.to_be_bytes());
            }
            Self::FlipHeader => flip(octets, world.chance().below(28 * 8)),
            Self::FlipBody => flip(octets, 28 * 8 + world.chance().below((len - 28) * 8)),
            Self::Replay => {}
            Self::Spoof => {
                let port = 1024 + world.chance().below(60_000) as u16;
                parcel.source = SocketAddr::from(([198, 51, 100, 7], port));
            }
            Self::Junk => {
                let mut random = world.chance().clone();
                octets[28..].iter_mut().for_each(|o| *o = random.number() as u8);
                world.chance().number();
            }
        }
        Some(parcel)
    }

    /// Nothing protects IKE_SA_INIT while it happens: the first message that reads well is believed until IKE_AUTH
    /// fails (RFC 7296 §2.4, §5). A message with a wrong length, or an exact copy, must do no harm even then.
    fn must_be_harmless(self, label: &Label, when: When) -> bool {
        let unprotected = label.exchange == Exchange::SaInit;
        !unprotected || when != When::Before || matches!(self, Self::Truncate | Self::Replay)
    }
}

fn flip(octets: &mut [u8], bit: u64) {
    octets[(bit / 8) as usize] ^= 1 << (bit % 8);
}

/// Runs until the time is up; every message is followed (or preceded) by copies of it.
fn run_attacked(world: &mut World, time: Duration, attack: Attack, when: When) {
    let until = world.now() + time;
    loop {
        for parcel in world.take_tapped() {
            let Content::Ike(octets) = &parcel.content else { continue };
            let label = Label::read(octets).expect("engines send IKE messages");
            for _ in 0..4 {
                if !attack.must_be_harmless(&label, when) {
                    continue;
                }
                if let Some(copy) = attack.copy(world, &parcel) {
                    world.inject(when.delay(), copy);
                }
            }
        }
        if !world.step(until) {
            break;
        }
    }
}

/// The events that the operators of both ends hear of, except those that a stranger would cause, too.
fn heard(world: &World, hosts: [HostId; 2]) -> Vec<String> {
    let told = |h: HostId| {
        let events = world.host(h).events.iter().filter(|(_, e)| {
            !matches!(e.kind, EventKind::TurnedAway(_) | EventKind::Negotiating { .. })
        });
        // SPIs are drawn at random, and a forged first message has one drawn, too.
        let without_spis = |e: &Event| e.to_string().split(", SPIs").next().map(str::to_owned);
        events.map(move |(_, e)| format!("{h:?} {:?}", without_spis(e))).collect::<Vec<_>>()
    };
    hosts.into_iter().flat_map(told).collect()
}

/// A handshake, rekeys of both kinds from both sides, and the deletion of a Child SA.
fn life(seed: u64, config: &Config, attack: Option<(Attack, When)>) -> Vec<String> {
    let site = Site { children: 2, ..Site::default() };
    let (mut world, left, right) = World::of_site(seed, &site, config);
    let run = |world: &mut World, time| match attack {
        Some((attack, when)) => run_attacked(world, time, attack, when),
        None => world.run_for(time),
    };
    if attack.is_some() {
        world.tap();
    }
    world.connect(left, Site::TUNNEL);
    run(&mut world, SOON);
    let flows = talk(&mut world, left, right, &site);
    for host in [left, right] {
        for name in ["net0", Site::TUNNEL] {
            assert!(world.rekey(host, name), "{name} is up");
            run(&mut world, SOON);
        }
    }
    run(&mut world, SETTLED / 10);
    assert_nothing_lost(&mut world, flows);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    let heard = heard(&world, [left, right]);
    assert!(world.disconnect(left, "net1"));
    run(&mut world, SOON);
    assert_clean_stop(&mut world, left, right);
    heard
}

fn survives(when: When, config: &Config, seeds: u64) {
    for attack in ATTACKS {
        for seed in 0..seeds {
            let undisturbed = life(seed, config, None);
            let attacked = life(seed, config, Some((attack, when)));
            assert_eq!(attacked, undisturbed, "{attack:?} {when:?}");
        }
    }
}

#[test]
fn copies_before_the_genuine_message() {
    survives(When::Before, &calm(), 6);
}

#[test]
fn copies_after_the_genuine_message() {
    survives(When::After, &calm(), 6);
}

#[test]
fn copies_much_later() {
    survives(When::MuchLater, &calm(), 6);
}

#[test]
fn copies_of_fragments() {
    let config = Config { fragment_size: Some(200), ..calm() };
    for when in [When::Before, When::After, When::MuchLater] {
        survives(when, &config, 2);
    }
}

#[test]
fn a_handshake_whose_first_messages_are_forged_can_be_repeated() {
    for attack in ATTACKS {
        for seed in 0..12 {
            let site = Site::default();
            let (mut world, left, right) = World::of_site(seed, &site, &calm());
            world.tap();
            world.connect(left, Site::TUNNEL);
            let until = world.now() + SOON;
            loop {
                for parcel in world.take_tapped() {
                    for _ in 0..3 {
                        if let Some(copy) = attack.copy(&mut world, &parcel) {
                            world.inject(When::Before.delay(), copy);
                        }
                    }
                }
                if !world.step(until) {
                    break;
                }
            }
            world.run_for(SETTLED);
            // Whether or not the attacked handshake succeeded, another one brings the ends together.
            world.disconnect(left, Site::TUNNEL);
            world.run_for(SETTLED);
            world.connect(left, Site::TUNNEL);
            world.run_for(SETTLED);
            assert_agreement(&mut world, left, right, &site);
            assert_clean_stop(&mut world, left, right);
        }
    }
}

#[test]
fn octets_that_are_no_message_at_all() {
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    world.connect(left, Site::TUNNEL);
    world.run_for(SOON);
    let mut forged = sim::chance::Chance::new(1, 99);
    for _ in 0..5000 {
        let len = forged.below(200) as usize;
        let octets = (0..len).map(|_| forged.number() as u8).collect();
        let port = [500, 4500][forged.below(2) as usize];
        let parcel = Parcel {
            source: SocketAddr::new(site.left, port),
            destination: SocketAddr::new(site.right, port),
            content: Content::Ike(octets),
        };
        world.inject(Duration::ZERO, parcel);
    }
    world.run_for(SOON);
    let counted: u64 = world.host(right).engine.discards().values().sum();
    assert!(counted >= 4900, "what is ignored is counted: {counted}");
    assert_agreement(&mut world, left, right, &site);
    assert_eq!(world.ladder().sent_by("right").filter(|l| l.response).count(), 2);
}

#[test]
fn a_proposal_longer_than_its_payload() {
    // An IKE_SA_INIT of 40 octets: a proposal that claims more than there is.
    let mut octets = vec![7; 8];
    octets.extend([0; 8]);
    octets.extend([33, 0x20, 34, 0x08, 0, 0, 0, 0, 0, 0, 0, 40]);
    octets.extend([0, 0, 0, 12, 0, 0, 0xff, 0xff, 1, 1, 0, 9]);
    assert_eq!(octets.len(), 40);
    let site = Site::default();
    let (mut world, left, right) = World::of_site(1, &site, &calm());
    let source = SocketAddr::new(site.left, 500);
    let destination = SocketAddr::new(site.right, 500);
    world.inject(Duration::ZERO, Parcel { source, destination, content: Content::Ike(octets) });
    world.connect(left, Site::TUNNEL);
    world.run_for(SETTLED);
    assert_agreement(&mut world, left, right, &site);
    assert_clean_stop(&mut world, left, right);
}
