//! The rules decide which packets are protected, by which SA, and which are kept until one comes.

use super::*;

#[test]
fn a_packet_that_no_rule_covers_is_dropped() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    sender.remove_rule(RULE);
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoPolicy));
    sender.add_rule(rule(false)).expect("a new rule");
    // The SA went with its rule: a new one of that name starts without.
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoSa));
    assert_eq!(pair.protect(&[0x45; 19]), Err(Discard::OutboundMalformed));
    for discard in [Discard::NoPolicy, Discard::NoSa, Discard::OutboundMalformed] {
        assert_eq!(pair.count(discard), 1);
    }
    assert_eq!(pair.sender.counters().values().sum::<u64>(), 3);
}

#[test]
fn the_first_rule_that_covers_decides() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    let dns = |mut selectors: TrafficSelectors| {
        for selector in &mut selectors.remote {
            selector.protocol = UDP;
            selector.ports = PortRange::new(53, 53).expect("ordered");
        }
        selectors
    };
    let first = Rule { id: RuleId(0), selectors: dns(between_any()), ..rule(false) };
    sender.add_rule(first).expect("a new rule");
    assert_eq!(pair.protect(&sample::udp(false, (1, 53), &[])), Err(Discard::NoSa));
    assert!(pair.protect(&sample::udp(false, (1, 54), &[])).is_ok());
    // A later fragment shows no ports: only the rule for all of them covers it.
    let mut fragment = sample::udp(false, (1, 53), &[0; 16]);
    fragment[6..8].copy_from_slice(&[0, 9]);
    assert!(pair.protect(&fragment).is_ok());
}

#[test]
fn rekeyed_traffic_takes_the_sa_added_or_promoted_last() {
    let pair = Pair::new(Kind::PLAIN);
    let mut sender = pair.sender.clone();
    let spi = |pair: &Pair| {
        let sealed = pair.protect(&sample::udp(false, (1, 2), &[])).expect("an SA");
        u32::from_be_bytes(*sealed.first_chunk().expect("an SPI"))
    };
    let add = |sender: &mut Datapath, id, standby| {
        let sa =
            OutboundSa { id: SaId(id), spi: Spi(id as u32), standby, ..Kind::PLAIN.outbound() };
        sender.add_outbound(sa).expect("a new SA");
    };
    add(&mut sender, 1001, true);
    assert_eq!(spi(&pair), SPI);
    sender.promote(SaId(1001)).expect("installed");
    assert_eq!(spi(&pair), 1001);
    add(&mut sender, 1002, false);
    assert_eq!(spi(&pair), 1002);
    sender.promote(SaId(1001)).expect("installed");
    assert_eq!(spi(&pair), 1001);
    sender.remove(SaId(1001));
    assert_eq!(spi(&pair), 1002);
    sender.remove(SaId(1002));
    assert_eq!(spi(&pair), SPI);
    sender.remove(OUT);
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoSa));
    assert_eq!(sender.promote(OUT), Err(PlaneError::NoSuchSa(OUT)));
    assert_eq!(sender.usage(OUT), None);
}

#[test]
fn packets_that_no_sa_serves_are_counted_for_their_tunnel() {
    let pair = Pair::new(Kind::PLAIN);
    assert_eq!(pair.sender.unserved(), [].into());
    let packet = sample::udp(false, (1, 2), &[]);
    assert!(pair.protect(&packet).is_ok());
    assert_eq!(pair.sender.unserved(), [].into(), "an SA serves it");
    pair.sender.clone().remove(OUT);
    let tunnel = pair.sender.0.spd.covering(|_| true)[0].rule.tunnel.clone();
    for n in 1..=3 {
        assert_eq!(pair.protect(&packet), Err(Discard::NoSa));
        assert_eq!(pair.sender.unserved(), [(tunnel.clone(), n)].into());
    }
}

#[test]
fn an_sa_carries_only_its_own_selectors() {
    let mut outbound = Kind::PLAIN.outbound();
    for selector in &mut Arc::make_mut(&mut outbound.selectors).local {
        selector.protocol = TCP;
    }
    let pair = Pair::with(Kind::PLAIN, outbound, Kind::PLAIN.inbound());
    assert_eq!(pair.protect(&sample::udp(false, (1, 2), &[])), Err(Discard::NoSa));
    assert!(pair.protect(&sample::tcp(false, 1, ACK, &[], &[])).is_ok());
}

#[test]
fn traffic_outside_the_selectors_is_refused_after_it_was_opened() {
    let mut inbound = Kind::PLAIN.inbound();
    let (peer, _) = sample::hosts(false);
    Arc::make_mut(&mut inbound.selectors).remote = vec![Selector {
        protocol: UDP,
        addresses: AddressRange::from(peer),
        ports: PortRange::new(1000, 2000).expect("ordered"),
    }];
    let pair = Pair::with(Kind::PLAIN, Kind::PLAIN.outbound(), inbound);
    let sealed = pair.protect(&sample::udp(false, (1000, 7), &[])).expect("an SA");
    assert!(pair.open(&sealed).is_ok());
    for packet in [
        sample::udp(false, (999, 7), &[]),
        sample::udp(true, (1000, 7), &[]),
        sample::tcp(false, 1, ACK, &[], &[]),
    ] {
        let sealed = pair.protect(&packet).expect("an SA");
        assert_eq!(pair.open(&sealed), Err(Discard::Selectors));
        // It was authentic, so that its number is used.
        assert_eq!(pair.open(&sealed), Err(Discard::Replayed));
    }
    let usage = pair.receiver.clone().usage(IN).expect("installed");
    assert_eq!((usage.packets, usage.refused), (1, 6));
}

#[test]
fn names_and_spis_are_unique() {
    let pair = Pair::new(Kind::PLAIN);
    let (mut sender, mut receiver) = (pair.sender.clone(), pair.receiver.clone());
    let again = InboundSa { id: SaId(9), ..Kind::PLAIN.inbound() };
    assert_eq!(receiver.add_inbound(again), Err(PlaneError::SpiInUse(Spi(SPI))));
    let again = InboundSa { spi: Spi(SPI + 1), ..Kind::PLAIN.inbound() };
    assert!(matches!(receiver.add_inbound(again), Err(PlaneError::System { .. })));
    let reserved = InboundSa { id: SaId(9), spi: Spi(255), ..Kind::PLAIN.inbound() };
    assert!(matches!(receiver.add_inbound(reserved), Err(PlaneError::System { .. })));
    let reserved = OutboundSa { id: SaId(9), spi: Spi(0), ..Kind::PLAIN.outbound() };
    assert!(matches!(sender.add_outbound(reserved), Err(PlaneError::System { .. })));
    let ruleless = OutboundSa { id: SaId(9), rule: RuleId(9), ..Kind::PLAIN.outbound() };
    assert_eq!(sender.add_outbound(ruleless), Err(PlaneError::NoSuchRule(RuleId(9))));
    receiver.remove(IN);
    assert_eq!(
        pair.open(&pair.protect(&sample::udp(false, (1, 2), &[])).expect("an SA")),
        Err(Discard::UnknownSpi)
    );
    receiver.add_inbound(Kind::PLAIN.inbound()).expect("free again");
}

#[test]
fn a_trap_asks_for_an_sa_and_keeps_packets_until_it_comes() {
    let now = Instant::now();
    let released = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = Arc::clone(&released);
    let on_release: Arc<dyn Fn() + Send + Sync> =
        Arc::new(move || _ = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let settings = Settings { on_release: Some(on_release), ..Settings::default() };
    let mut datapath = Datapath::new(settings, now);
    datapath.add_rule(rule(true)).expect("a new rule");
    let mut queue = SendQueue::new(0);
    let send = |after: Duration, len: usize, queue: &mut SendQueue| {
        let mut packet = sample::udp(false, (1, 2), &sample::payload(len));
        datapath.encapsulate(now + after, &mut packet, Gso::NONE, queue)
    };
    let second = Duration::from_secs(1);
    // One that will be too old, then as many as are kept.
    assert_eq!(send(Duration::ZERO, 1, &mut queue), Ok(()));
    assert_eq!(send(second / 2, 1, &mut queue), Ok(()));
    assert_eq!(datapath_notices(&datapath), 1);
    for i in 0..32 {
        assert_eq!(send(second * 11, i, &mut queue), Ok(()));
    }
    assert_eq!(datapath_notices(&datapath), 1);
    assert_eq!(send(second * 11, 1, &mut queue), Err(Discard::HoldFull));
    assert_eq!(datapath.counters()["hold_expired"], 2);
    assert!(queue.is_empty());

    datapath.flush_held(now + second * 11, &mut queue);
    assert!(queue.is_empty());
    let mut plane = datapath.clone();
    plane.add_outbound(OutboundSa { standby: true, ..Kind::PLAIN.outbound() }).expect("new");
    assert_eq!(released.load(std::sync::atomic::Ordering::Relaxed), 0);
    plane.promote(OUT).expect("installed");
    assert_eq!(released.load(std::sync::atomic::Ordering::Relaxed), 1);
    datapath.flush_held(now + second * 12, &mut queue);
    let sent = datagrams(&queue);
    assert_eq!(sent.len(), 32);
    // In the order they came.
    for (i, datagram) in sent.iter().enumerate() {
        assert_eq!(datagram[4..8], (i as u32 + 1).to_be_bytes());
    }
    datapath.flush_held(now + second * 12, &mut queue);
    assert_eq!(datagrams(&queue).len(), 32);
}

fn datapath_notices(datapath: &Datapath) -> usize {
    let notices = datapath.take_notices();
    assert!(
        notices
            .iter()
            .all(|n| matches!(n, Notice::Acquire { rule: RULE, packet } if packet.protocol == UDP))
    );
    notices.len()
}

#[test]
fn packets_kept_too_long_or_for_a_rule_that_goes_are_dropped() {
    let now = Instant::now();
    let mut datapath = Datapath::new(Settings::default(), now);
    datapath.add_rule(rule(true)).expect("a new rule");
    let mut queue = SendQueue::new(0);
    let mut packet = sample::udp(false, (1, 2), &[]);
    datapath.encapsulate(now, &mut packet, Gso::NONE, &mut queue).expect("kept");
    datapath.add_outbound(Kind::PLAIN.outbound()).expect("new");
    datapath.flush_held(now + Duration::from_secs(60), &mut queue);
    assert!(queue.is_empty());
    assert_eq!(datapath.counters()["hold_expired"], 1);
    datapath.remove(OUT);
    datapath.encapsulate(now, &mut packet, Gso::NONE, &mut queue).expect("kept");
    datapath.remove_rule(RULE);
    assert_eq!(datapath.counters()["no_policy"], 1);
}
