//! SAs and policies that are put back, those that are not, and the traffic where that fails.

use super::place::{BOTH, plane as with_card};
use super::twin::{Twin, inbound, outbound, plane, rule};
use super::*;
use crate::placement::{OffloadMode, Wanted};
use crate::plane::KernelPlane;
use esp::plane::{DataPlane, Maintenance, ManualKeying, Restored, Resynced};
use netlink_packet_xfrm::{ReplayEsn, XFRM_INF};

fn pair() -> (Xfrm, Twin) {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_inbound(inbound(1, 0x101)).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    (plane, twin)
}

#[test]
fn a_dropped_plane_blocks_or_lets_go_as_its_owner_has_said() {
    for blocked in [false, true] {
        let (mut plane, twin) = pair();
        plane.block_on_drop(blocked);
        drop(plane);
        assert_eq!(twin.spis(), [0; 0], "no SA stays");
        let left: &[Option<u32>] = if blocked { &[None] } else { &[] };
        for direction in [PolicyDirection::Out, PolicyDirection::In, PolicyDirection::Forward] {
            assert_eq!(twin.policy(direction), left, "blocked: {blocked}, {direction:?}");
        }
    }
}

/// The kernel ends an SA at its hard limit, and says so.
fn expire(plane: &Xfrm, twin: &Twin, id: SaId) {
    let name = plane.ledger.sa(id).expect("an SA").form.name();
    assert_eq!(plane.known.expire(&name, true), Some(id));
    twin.tables().states.remove(&name.spi).expect("it is there");
}

#[test]
fn an_expired_sa_stays_away() {
    let (mut plane, twin) = pair();
    expire(&plane, &twin, SaId(2));
    // Another program has removed the other one meanwhile.
    twin.tables().states.clear();
    assert_eq!(plane.resync(), Ok(Resynced { sas: 1, policies: 0, moved: 0 }));
    assert_eq!(twin.spis(), [0x101]);
    let moved = Path { remote: ([192, 0, 2, 9], 4500).into(), ..outbound(2, 0, false).path };
    plane.relocate(SaId(2), moved).expect("there is nothing to do");
    assert_eq!(twin.spis(), [0x101]);
    // Of another SA it says nothing, by the same SPI or not.
    plane.remove(SaId(2));
    plane.add_outbound(outbound(3, 0x201, false)).expect("the kernel can");
    twin.tables().states.clear();
    assert_eq!(plane.restore_missing(), Ok((2, 0)));
}

#[test]
fn an_sa_that_expires_in_a_card_is_not_taken_for_a_loss_of_the_card() {
    let (mut plane, twin, _) = with_card(Wanted::Auto, Some(BOTH));
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    expire(&plane, &twin, SaId(2));
    plane.network_changed();
    assert_eq!(plane.resync(), Ok(Resynced::default()));
    assert_eq!(twin.spis(), [0; 0]);
}

#[test]
fn a_soft_limit_ends_nothing() {
    let (mut plane, twin) = pair();
    let name = plane.ledger.sa(SaId(2)).expect("an SA").form.name();
    assert_eq!(plane.known.expire(&name, false), Some(SaId(2)));
    twin.tables().states.clear();
    assert_eq!(plane.restore_missing(), Ok((2, 0)));
}

#[test]
fn packets_that_leave_meanwhile_do_not_stand_in_the_way() {
    let (mut plane, twin) = pair();
    twin.tables().busy = true;
    twin.tables().states.clear();
    assert_eq!(plane.restore_missing(), Ok((2, 0)));
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)]);
    assert!(
        plane.last_sequence(SaId(2)) > Some(0),
        "it is no note, and its numbers do not begin anew"
    );
}

/// Wherever the kernel refuses something once: it is a fault of the SAs until the next attempt, which key management
/// makes.
#[test]
fn an_sa_that_could_not_be_put_back_is_a_fault_until_it_is_back() {
    for refuse_after in 0.. {
        let (mut plane, twin) = pair();
        twin.tables().states.clear();
        twin.tables().policies.clear();
        twin.tables().refuse_after = Some(refuse_after);
        let outcome = plane.resync();
        if twin.tables().refuse_after.take().is_some() {
            assert_eq!(outcome, Ok(Resynced { sas: 2, policies: 3, moved: 0 }));
            assert!(refuse_after > 3, "{refuse_after}");
            return;
        }
        outcome.expect_err("a part is missing");
        assert!(plane.fault(SaId(2)).is_some(), "after {refuse_after}");
        assert_eq!(plane.fault(SaId(3)), None, "it is not of this plane");
        Maintenance::restore(&mut plane).expect("the kernel can");
        assert_eq!(plane.fault(SaId(2)), None, "after {refuse_after}");
        assert_eq!(twin.spis(), [0x101, 0x201], "after {refuse_after}");
        assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)], "after {refuse_after}");
        assert_eq!(Maintenance::restore(&mut plane), Ok(Restored::default()));
    }
}

/// Wherever the kernel refuses something once: an SA is where the report says, nothing leaks, and the next
/// attempt puts everything right.
#[test]
fn an_sa_that_cannot_leave_a_card_is_not_said_to_be_in_software() {
    for refuse_after in 0.. {
        let (mut plane, twin, placement) = with_card(Wanted::Auto, Some(BOTH));
        plane.add_inbound(inbound(1, 0x101)).expect("the kernel can");
        plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
        twin.pull_card();
        twin.tables().refuse_after = Some(refuse_after);
        plane.network_changed();
        let refused = twin.tables().refuse_after.take().is_none();
        for placed in placement.report().sas {
            assert_eq!(placed.place, OffloadMode::Software);
            assert!(twin.spis().contains(&placed.spi.0), "after {refuse_after}: {placed:?}");
        }
        assert!(twin.is_tight(), "after {refuse_after}");
        // Something about the host changes again.
        plane.network_changed();
        let report = placement.report();
        let places: Vec<OffloadMode> = report.sas.iter().map(|sa| sa.place).collect();
        assert_eq!(places, [OffloadMode::Software; 2], "after {refuse_after}");
        assert_eq!(twin.spis(), [0x101, 0x201], "after {refuse_after}");
        assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)], "after {refuse_after}");
        assert_eq!(twin.policy(PolicyDirection::In), [Some(0)], "after {refuse_after}");
        if !refused {
            assert!(refuse_after > 4, "{refuse_after}");
            return;
        }
    }
}

/// The inbound policy: the template's reqid, and whether packets may come without it; `None` if packets pass as they
/// are.
fn way_in(twin: &Twin) -> Option<(u32, bool)> {
    let tables = twin.tables();
    let mut of_direction =
        tables.policies.iter().filter(|(info, ..)| info.direction == PolicyDirection::In.number());
    let (_, template, ..) = of_direction.next().expect("there is one");
    template.as_ref().map(|template| (template.reqid, template.optional != 0))
}

#[test]
fn sas_of_a_rule_that_has_gone_elsewhere_receive_to_their_end() {
    let (mut plane, twin) = pair();
    let reqid = *REQIDS.start();
    assert_eq!(way_in(&twin), Some((reqid, false)));
    plane.leave_alone(rule()).expect("the kernel can");
    // Both what the kernel opens and what comes from the other plane.
    assert_eq!(way_in(&twin), Some((reqid, true)));
    assert_eq!(twin.policy(PolicyDirection::Out), [Some(0x201)], "it sends until it goes");
    plane.remove(SaId(2));
    plane.remove(SaId(1));
    assert_eq!(way_in(&twin), None);
}

/// Packets leave by an SA and are counted. Returns the last sequence number it has used then.
fn send(plane: &mut Xfrm, twin: &Twin, spi: u32, packets: u64, by_kernel: bool) -> u64 {
    let mut last = 0;
    let mut tables = twin.tables();
    let state = tables.states.get_mut(&spi).expect("it is there");
    for attribute in &mut state.nlas {
        if let XfrmAttrs::ReplayStateEsn(replay) = attribute {
            last = (u64::from(replay.oseq_hi) << 32 | u64::from(replay.oseq)) + packets;
            if by_kernel {
                (replay.oseq_hi, replay.oseq) = ((last >> 32) as u32, last as u32);
            }
        }
    }
    state.user_sa_info.lifetime_cur.packets += packets;
    drop(tables);
    plane.usage(SaId(2));
    last
}

#[test]
fn no_sequence_number_comes_twice_however_often_an_sa_is_put_back() {
    let (mut plane, twin) = pair();
    let mut last = 0;
    for packets in [100, 1000, 10] {
        let used = send(&mut plane, &twin, 0x201, packets, true);
        // Nor those of packets that left after they were counted last.
        assert!(last == 0 || used > last + packets + 1_000_000, "{used} after {last}");
        last = used;
        twin.tables().states.clear();
        plane.restore_missing().expect("the kernel can");
    }
}

#[test]
fn sequence_numbers_that_a_card_counts_go_on_as_well() {
    let (mut plane, twin, _) = with_card(Wanted::Packet, Some(BOTH));
    plane.add_outbound(outbound(2, 0x201, false)).expect("the card takes it");
    let mut used = send(&mut plane, &twin, 0x201, 100, false);
    assert_eq!(plane.last_sequence(SaId(2)), Some(used));
    for last in [9, 10] {
        let moved = Path { remote: ([192, 0, 2, last], 4500).into(), ..outbound(2, 0, false).path };
        plane.relocate(SaId(2), moved).expect("the kernel can");
        assert!(plane.last_sequence(SaId(2)) > Some(used));
        used = send(&mut plane, &twin, 0x201, 1000, false);
    }
}

/// Has the kernel tell that an SA has used, or received, the numbers up to one, with so few packets that most of them
/// were super-packets.
fn reach(twin: &Twin, spi: u32, number: u64) {
    let (high, low) = ((number >> 32) as u32, number as u32);
    let mut tables = twin.tables();
    let state = tables.states.get_mut(&spi).expect("it is there");
    state.user_sa_info.lifetime_cur.packets = 1000;
    let extended = state.nlas.iter_mut().find_map(|attribute| match attribute {
        XfrmAttrs::ReplayStateEsn(replay) => Some(replay),
        _ => None,
    });
    match extended {
        Some(replay) => {
            (replay.oseq_hi, replay.oseq) = (high, low);
            (replay.seq_hi, replay.seq) = (high, low);
            replay.bmp = vec![0b101; replay.bmp_len as usize];
        }
        // The kernel always tells of one; the plane's own SAs need not have it.
        None => {
            state.nlas.retain(|attribute| !matches!(attribute, XfrmAttrs::ReplayState(_)));
            let replay = netlink_packet_xfrm::Replay { oseq: low, seq: low, bitmap: 0b101 };
            state.nlas.push(XfrmAttrs::ReplayState(replay));
        }
    }
}

fn numbers(twin: &Twin, spi: u32) -> (ReplayEsn, u64) {
    let tables = twin.tables();
    let state = &tables.states[&spi];
    let replay = state.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::ReplayStateEsn(replay) => Some(replay.clone()),
        _ => None,
    });
    (replay.expect("it goes on"), state.user_sa_info.lifetime_cfg.hard_packet_limit)
}

/// A card that does the cipher alone is given super-packets: each counts once, and has as many numbers as segments.
#[test]
fn numbers_of_super_packets_do_not_come_twice() {
    for (esn, used) in [(false, 3 << 28), (true, (7 << 32) + 5)] {
        let (mut plane, twin) = plane();
        plane.add_rule(rule()).expect("the kernel can");
        plane.add_inbound(InboundSa { esn, ..inbound(1, 0x101) }).expect("the kernel can");
        let sender = OutboundSa { esn, ..outbound(2, 0x201, false) };
        plane.add_outbound(sender).expect("the kernel can");
        reach(&twin, 0x201, used);
        // Key management asks about what arrives alone.
        plane.usage(SaId(1));
        twin.tables().states.clear();
        assert_eq!(plane.restore_missing(), Ok((2, 0)));
        let (replay, limit) = numbers(&twin, 0x201);
        let next = u64::from(replay.oseq_hi) << 32 | u64::from(replay.oseq);
        assert!(next > used && next - used < 1 << 31, "{next} after {used}");
        assert_eq!(plane.last_sequence(SaId(2)), Some(next));
        // The kernel counts from zero again, and its limit is that of the numbers.
        let expected = if esn { XFRM_INF } else { u64::from(u32::MAX) - next };
        assert_eq!(limit, expected);
    }
}

#[test]
fn a_packet_that_has_arrived_before_an_sa_was_put_back_is_not_taken_again() {
    for (esn, seen) in [(false, 3 << 28), (true, (7 << 32) + 5)] {
        let (mut plane, twin) = plane();
        plane.add_rule(rule()).expect("the kernel can");
        plane.add_inbound(InboundSa { esn, ..inbound(1, 0x101) }).expect("the kernel can");
        reach(&twin, 0x101, seen);
        plane.usage(SaId(1));
        twin.tables().states.clear();
        assert_eq!(plane.restore_missing(), Ok((1, 0)));
        let (replay, _) = numbers(&twin, 0x101);
        assert_eq!(u64::from(replay.seq_hi) << 32 | u64::from(replay.seq), seen);
        assert_eq!(replay.bmp, [u32::MAX; 4], "nor what is below");
        // If the kernel has told of the last state, late packets that have not arrived may still do so.
        reach(&twin, 0x101, seen + 1);
        let moved = Path { remote: ([192, 0, 2, 9], 4500).into(), ..inbound(1, 0).path };
        plane.relocate(SaId(1), moved).expect("the kernel can");
        let (replay, _) = numbers(&twin, 0x101);
        assert_eq!(u64::from(replay.seq_hi) << 32 | u64::from(replay.seq), seen + 1);
        assert_eq!(replay.bmp, [0b101; 4]);
    }
}

#[test]
fn the_end_of_the_numbers_is_told_though_the_kernel_has_counted_few_packets() {
    let (mut plane, twin) = plane();
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    plane.notice = Arc::new(move |notice| heard.lock().expect("no test panics").push(notice));
    plane.add_rule(rule()).expect("the kernel can");
    plane.add_inbound(inbound(1, 0x101)).expect("the kernel can");
    for (id, esn) in [(2, false), (3, true)] {
        let sender = OutboundSa { esn, ..outbound(id, 0x200 + id as u32, false) };
        plane.add_outbound(sender).expect("the kernel can");
    }
    let few_left = u64::from(u32::MAX) - (1 << 29);
    let mut look = |number| {
        [0x202, 0x203].into_iter().for_each(|spi| reach(&twin, spi, number));
        plane.usage(SaId(1));
        told.lock().expect("no test panics").clone()
    };
    assert_eq!(look(few_left - 1), []);
    let soft = Notice::Expiring { sa: SaId(2), hard: false };
    assert_eq!(look(few_left), [soft]);
    assert_eq!(look(few_left + 1), [soft], "it is told once");
}

#[test]
fn an_sa_put_back_carries_no_more_than_it_might_before() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    let limits = Limits { soft_bytes: Some(800), hard_bytes: Some(1000) };
    plane.add_outbound(OutboundSa { limits, ..outbound(2, 0x201, false) }).expect("it can");
    twin.tables().states.get_mut(&0x201).expect("there").user_sa_info.lifetime_cur.bytes = 300;
    plane.usage(SaId(2));
    twin.tables().states.clear();
    plane.restore_missing().expect("the kernel can");
    let left = twin.tables().states[&0x201].user_sa_info.lifetime_cfg;
    assert_eq!((left.soft_byte_limit, left.hard_byte_limit), (500, 700));
}

/// Lost reports are made up for: an SA that has reached a limit is neither forgotten nor revived.
#[test]
fn limits_whose_reports_were_lost_are_found_out() {
    let (mut plane, twin) = plane();
    plane.add_rule(rule()).expect("the kernel can");
    for number in 1..=4 {
        let limits = Limits { soft_bytes: Some(800), hard_bytes: Some(1000) };
        let sa = OutboundSa { limits, ..outbound(number, 0x200 + number as u32, false) };
        plane.add_outbound(sa).expect("the kernel can");
    }
    let look = |plane: &Xfrm| {
        let states: Vec<_> = twin.tables().states.values().cloned().collect();
        plane.known.missed(&plane.known.names(), states.iter())
    };
    assert_eq!(look(&plane), []);
    let carry = |spi: u32, bytes| {
        let mut tables = twin.tables();
        tables.states.get_mut(&spi).expect("there").user_sa_info.lifetime_cur.bytes = bytes;
    };
    carry(0x201, 799);
    carry(0x202, 800);
    assert_eq!(look(&plane), [Notice::Expiring { sa: SaId(2), hard: false }]);
    assert_eq!(look(&plane), [], "it is told once");
    // One that was near its end is gone, and another program has removed one that was not.
    twin.tables().states.retain(|spi, _| ![0x202, 0x203].contains(spi));
    assert_eq!(look(&plane), [Notice::Expiring { sa: SaId(2), hard: true }]);
    assert_eq!(plane.restore_missing(), Ok((1, 0)));
    assert_eq!(twin.spis(), [0x201, 0x203, 0x204]);
    assert_eq!(look(&plane), []);
}
