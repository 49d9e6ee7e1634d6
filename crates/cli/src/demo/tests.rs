use super::*;

fn findings() -> Findings {
    Findings {
        ok: false,
        ike_suite: "AES-CBC-256/HMAC-SHA2-256-128/PRF-HMAC-SHA2-256/ECP-256".to_owned(),
        esp_suite: "AES-GCM-16-256".to_owned(),
        mode: "tunnel".to_owned(),
        encapsulation: "udp".to_owned(),
        esp_spis: ["10000001".to_owned(), "20000002".to_owned()],
        packets_sent: 8_000,
        packets_lost: 0,
        packets_duplicated: 0,
        round_trip_median_us: 240,
        round_trip_p99_us: 1_930,
        tcp_bytes: 1 << 30,
        throughput_bps: 2_400_000_000,
        child_rekeys: 4,
        ike_rekeys: 3,
        esp_packets: 1_000_000,
        esp_refused: 0,
        wire_frames: 900_000,
        ike_messages: 26,
        neighbour_frames: 4,
        cleartext_packets: 0,
        seconds: 14.2,
        problems: Vec::new(),
    }
}

#[test]
fn a_good_run_has_no_problems_and_a_report_that_fits_a_screen() {
    let mut findings = findings();
    findings.judge(Asked { child: 4, ike: 3 });
    assert!(findings.ok, "{:?}", findings.problems);
    assert_eq!(
        findings.report(Duration::from_secs(12), Colour(false)),
        "\
vpnd demo  two gateways on this machine, 12s of traffic
  IKE      AES-CBC-256/HMAC-SHA2-256-128/PRF-HMAC-SHA2-256/ECP-256
  ESP      AES-GCM-16-256, tunnel mode, in UDP
  SPIs     in 10000001, out 20000002
  rekeys   4 of the Child SA, 3 of the IKE SA, all under traffic
  packets  8 000 at 1 kHz, 0 lost, round trip 0.24 ms (99 %: 1.93 ms)
  TCP      1.0 GiB, 2.4 Gbit/s at full speed, every octet right
  wire     900 000 frames, 26 IKE messages, 0 packets in the clear
"
    );
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
        let mut findings = findings();
        fault(&mut findings);
        findings.judge(asked);
        assert!(!findings.ok && findings.problems.len() == 1, "{i}: {:?}", findings.problems);
    }
}

#[test]
fn the_demo_runs_the_sample_policy_with_another_key() {
    let policies = private_policies().expect("random octets");
    for (policy, sample) in policies.iter().zip(POLICIES) {
        assert!(sample.contains(SAMPLE_KEY) && !policy.contains(SAMPLE_KEY));
        for name in [TUNNEL, CHILD] {
            assert!(policy.contains(&format!("_TunnelName=\"{name}\"")), "{name}");
        }
        for address in [LEFT.outer, RIGHT.outer] {
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
