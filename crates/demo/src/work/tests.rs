use super::*;
use crate::network::tests::connected;
use testkit::eventually;

#[test]
fn a_good_run_has_no_problems() {
    let mut findings = Findings { ok: false, ..Findings::example() };
    findings.judge(Asked { child: 4, ike: 3 });
    assert!(findings.ok, "{:?}", findings.problems);
}

#[test]
fn every_fault_is_a_problem() {
    let asked = Asked { child: 4, ike: 3 };
    let faults: [fn(&mut Findings); 7] = [
        |f| f.packets_lost = 1,
        |f| f.packets_duplicated = 1,
        |f| f.cleartext_packets = 1,
        |f| f.child_rekeys = 3,
        |f| f.ike_rekeys = 2,
        |f| f.esp_packets = 15_999,
        |f| f.tcp_bytes = 0,
    ];
    for (i, fault) in faults.iter().enumerate() {
        let mut findings = Findings { ok: false, ..Findings::example() };
        fault(&mut findings);
        findings.judge(asked);
        assert!(!findings.ok && findings.problems.len() == 1, "{i}: {:?}", findings.problems);
    }
}

#[test]
fn the_demo_runs_the_sample_policy_with_another_key() {
    let policies = private_policies().expect("random octets");
    assert!(POLICIES.iter().all(|policy| policy.contains(SAMPLE_KEY)));
    for policy in &policies {
        assert!(!policy.contains(SAMPLE_KEY));
        for name in [TUNNEL, CHILD] {
            assert!(policy.contains(&format!("_TunnelName=\"{name}\"")), "{name}");
        }
        for address in [LEFT, RIGHT] {
            assert!(policy.contains(&address.to_string()), "{address}");
        }
    }
}

#[test]
fn the_script_is_in_order_and_rekeys_from_both_ends() {
    assert!(SCRIPT.is_sorted_by_key(|(at, ..)| *at));
    for kind in [Step::RekeyChild, Step::RekeyIke] {
        for right in [false, true] {
            assert!(SCRIPT.iter().any(|(_, step, by)| *step == kind && *by == right));
        }
    }
}

#[test]
fn the_watch_sees_every_packet_in_the_clear_and_no_other() {
    let Some([left, right]) = connected(LEFT, RIGHT) else { return };
    let captures =
        [&left, &right].map(|space| space.run(|| Capture::start(if_nametoindex(network::WIRE)?)));
    let [plain, natt, ike] = [5001, 4500, 500].map(|port| {
        let socket = right.run(move || std::net::UdpSocket::bind((RIGHT, port)));
        let socket = socket.expect("a free port");
        socket.set_read_timeout(Some(Duration::from_secs(300))).expect("a socket takes it");
        socket
    });
    let source = left.run(|| std::net::UdpSocket::bind((LEFT, 0))).expect("our address");
    // Each has arrived before the next is sent, so that the watch has it when it is told to finish.
    let send = |to: &std::net::UdpSocket, payload: &[u8]| {
        let target = to.local_addr().expect("it is bound");
        source.send_to(payload, target).expect("a route");
        assert_eq!(to.recv(&mut [0; 200]).expect("it arrives"), payload.len());
    };
    for _ in 0..3 {
        send(&plain, b"in the clear");
    }
    for _ in 0..5 {
        send(&natt, &[1; 100]);
        send(&ike, &[1; 100]);
    }
    send(&natt, &[0; 100]);
    let frames = left.run(network::frames).expect("the wire is there");
    for capture in captures {
        let seen = capture.expect("a watch").finish().expect("it counts");
        assert_eq!((seen.cleartext, seen.ike), (3, 6), "{seen:?}");
        assert!(seen.neighbour >= 2, "{seen:?}");
    }
    assert!(frames >= 14 + 2, "{frames}");
}

#[test]
fn traffic_counts_what_it_sends() {
    let Some([left, right]) = connected(LEFT, RIGHT) else { return };
    let ends = ((&left, LEFT.into()), (&right, RIGHT.into()));
    let stream = Stream::start(ends.0, ends.1, 0).expect("a connection");
    let pings = Pings::start(ends.0, ends.1).expect("sockets");
    let enough = || stream.received() >= 10 << 20 && pings.echoed() >= 20;
    eventually("octets and echoes come", || enough().then_some(()));
    let echoes = pings.finish().expect("no error");
    assert!(echoes.sent >= 20 && echoes.sent - echoes.lost() >= 20, "{echoes:?}");
    assert!(echoes.median <= echoes.p99 && !echoes.median.is_zero());
    assert!(stream.finish().expect("every octet right") >= 10 << 20);
}

#[test]
fn a_broken_wire_is_a_loss() {
    let Some([left, right]) = connected(LEFT, RIGHT) else { return };
    let ends = ((&left, LEFT.into()), (&right, RIGHT.into()));
    let pings = Pings::start(ends.0, ends.1).expect("sockets");
    // With its namespace gone, the far end of the wire and the echo on it are gone.
    let (echo_space, _) = ends.1;
    echo_space.run(|| network::cut().expect("the wire is there"));
    let before = pings.sent();
    eventually("packets are sent", || (pings.sent() >= before + 50).then_some(()));
    let echoes = pings.finish_after(Duration::from_millis(100)).expect("no error");
    assert!(echoes.lost() > 0 && echoes.lost() <= echoes.sent, "{echoes:?}");
}
