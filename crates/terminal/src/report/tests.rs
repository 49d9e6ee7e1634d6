use super::*;
use control::protocol::{Activation, Down, FailureInfo, ResponderWindow, Tunnel};
use std::time::Duration;

const PLAIN: Colour = Colour(false);

pub(super) fn tunnel() -> Tunnel {
    serde_json::from_value(serde_json::json!({
        "name": "site", "number": 1, "state": "established",
        "local_id": "192.0.2.1", "remote_id": "gw.example",
        "local_address": "192.0.2.1", "remote_address": "192.0.2.2",
        "ike_sa": {
            "initiator": true, "initiator_spi": "1122334455667788", "responder_spi": "99aabbccddeeff00",
            "local": "192.0.2.1:4500", "remote": "192.0.2.2:4500", "nat_local": false, "nat_remote": true,
            "suite": "AES-CBC-256/HMAC-SHA2-256-128/ECP-384", "established_seconds": 3700,
            "rekey_in_seconds": 25000, "expires_in_seconds": 28800, "rekeys": 1
        },
        "children": [{
            "name": "lan", "number": 4, "state": "established", "mode": "tunnel",
            "local": ["10.1.0.0/24"], "remote": ["10.2.0.0/24"],
            "child_sa": {
                "suite": "AES-GCM-16-256", "esn": true, "encapsulation": "udp",
                "inbound_spi": "10000001", "outbound_spi": "20000002",
                "packets_in": 1200, "packets_out": 3400, "bytes_in": 1572864, "bytes_out": 52428800,
                "refused": 0, "path_mtu": 1400, "inner_mtu": 1330, "path_mtu_learned": true, "established_seconds": 3700, "rekey_in_seconds": 90,
                "expires_in_seconds": 180, "rekeys": 20, "lifetime_seconds": 3600,
                "lifesize_bytes": 1073741824, "lifesize_left_bytes": 1021313024, "overlap_percent": 10
            },
            "policy": {
                "protection": "p2", "role": "both", "pfs": ["ECP-384", "ECP-256"], "auto_start": false,
                "on_demand": true
            },
            "last_failure": null
        }],
        "policy": {
            "protection": "p1", "local_id_type": "IPV4_Address", "remote_id_type": "FQDN", "role": "both",
            "authentication": "preshared_key", "lifetime_seconds": 28800, "overlap_percent": 10, "auto_start": true
        },
        "last_failure": { "kind": "no_answer", "message": "no answer from the peer", "seconds_ago": 4000 }
    }))
    .expect("a tunnel as it travels")
}

fn listed(tunnels: &[Tunnel]) -> String {
    list(Part::whole(tunnels), PLAIN)
}

#[test]
fn a_part_of_a_list_tells_a_phase_1_tunnel_once() {
    let (whole, second) = (tunnel(), tunnel());
    let tunnels = [whole, Tunnel { name: "branch".to_owned(), ..second }];
    let rest = Part { tunnels: &tunnels, continues: true };
    let rows = |text: String, row: &str| text.lines().filter(|line| line.contains(row)).count();
    assert_eq!(rows(list(rest, PLAIN), "site"), 0);
    for row in ["lan", "branch"] {
        assert_eq!(rows(list(rest, PLAIN), row), rows(listed(&tunnels), row), "{row}");
    }
    let [all, part] = [Part::whole(&tunnels), rest].map(|part| verbose(part, PLAIN));
    let begin = all.strip_suffix(&part).expect("the part is the end of all");
    assert!(!begin.is_empty() && !begin.contains("lan"), "{begin}");
}

#[test]
fn a_list_has_a_line_per_tunnel_of_either_phase() {
    let mut tunnel = tunnel();
    tunnel.remote_id = "192.0.2.2".to_owned();
    let mut down = tunnel.clone();
    down.name = "branch".to_owned();
    down.state = "down".to_owned();
    down.ike_sa = None;
    down.children[0].state = "down".to_owned();
    down.children[0].child_sa = None;
    assert_eq!(
        listed(&[tunnel, down]),
        "\
PHASE  NUMBER  TUNNEL  STATE        LOCAL        REMOTE       UP     REKEY   IN       OUT
1      1       site    established  192.0.2.1    192.0.2.2    1h 1m  6h 56m  -        -
2      4       lan     established  10.1.0.0/24  10.2.0.0/24  1h 1m  1m 30s  1.5 MiB  50 MiB
1      1       branch  down         192.0.2.1    192.0.2.2    -      -       -        -
2      4       lan     down         10.1.0.0/24  10.2.0.0/24  -      -       -        -
"
    );
}

#[test]
fn a_list_is_never_wider_than_a_terminal() {
    let mut ipv6 = tunnel();
    let end = "2001:db8:1111:2222:3333:4444:5555:";
    ipv6.local_id = format!("{end}6666");
    ipv6.local_address = format!("{end}6666").parse().ok();
    ipv6.ike_sa.as_mut().expect("it is up").local =
        format!("[{end}6666]:500").parse().expect("an address");
    ipv6.children[0].local = vec![format!("{end}0-{end}7777[tcp/443]"); 4];
    let text = listed(&[tunnel(), ipv6.clone()]);
    assert_eq!(
        text,
        format!(
            "\
PHASE  NUMBER  TUNNEL  STATE        UP     REKEY   IN       OUT
1      1       site    established  1h 1m  6h 56m  -        -
       local 192.0.2.1, remote gw.example (192.0.2.2)
2      4       lan     established  1h 1m  1m 30s  1.5 MiB  50 MiB
       local 10.1.0.0/24, remote 10.2.0.0/24
1      1       site    established  1h 1m  6h 56m  -        -
       local {end}6666, remote gw.example (192.0.2.2)
2      4       lan     established  1h 1m  1m 30s  1.5 MiB  50 MiB
       local {end}0-{end}7777[tcp/443],
         {end}0-{end}7777[tcp/443],
         {end}0-{end}7777[tcp/443],
         {end}0-{end}7777[tcp/443]
       remote 10.2.0.0/24
"
        )
    );
    ipv6.name = "headquarters-to-the-branch-office-in-a-town-with-a-long-name".to_owned();
    ipv6.children[0].name = format!("{}_lan", ipv6.name);
    let text = listed(&[tunnel(), ipv6.clone()]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains(&format!("       tunnel {}\n       local", ipv6.name)), "{text}");
    assert!(!text.contains("AES"), "{text}");
}

#[test]
fn agreed_traffic_that_is_less_than_the_policys_stands_beside_it() {
    let narrowed = |by: &str| {
        let mut narrowed = tunnel();
        let (local, remote) = (vec!["10.1.0.0/24".to_owned()], vec!["10.2.0.0/16".to_owned()]);
        let by = by.to_owned();
        narrowed.children[0].narrowed = Some(control::protocol::Narrowed { local, remote, by });
        narrowed
    };
    for (by, told) in
        [("answer", "10.2.0.0/24 (asked 10.2.0.0/16)"), ("request", "(policy 10.2.0.0/16)")]
    {
        let tunnel = narrowed(by);
        for text in [listed(std::slice::from_ref(&tunnel)), status(&tunnel, PLAIN)] {
            assert!(text.contains(told), "{text}");
            assert_eq!(text.matches("10.1.0.0/24").count(), 1, "{text}");
        }
    }
}

#[test]
fn a_verbose_list_has_everything() {
    assert_eq!(
        verbose(Part::whole(&[tunnel()]), PLAIN),
        "\
Phase 1 tunnel 1: site
  Status               established
  Local ID Type        IPV4_Address
  Local ID             192.0.2.1
  Remote ID Type       FQDN
  Remote ID            gw.example
  Mode                 IKEv2
  Security Policy      p1
  Allowed Roles        both
  Auth Method          preshared key
  Role                 initiator
  Encryption Alg       AES-CBC-256
  Integrity Alg        HMAC-SHA2-256-128
  PRF Alg              none
  DH Group             ECP-384
  Local Address        192.0.2.1:4500
  Remote Address       192.0.2.2:4500
  NAT                  the peer is behind one
  Initiator SPI        1122334455667788
  Responder SPI        99aabbccddeeff00
  Key Lifetime         8h (28800 seconds)
  Key Lifesize         no limit
  Key Rem Lifetime     8h (28800 seconds)
  Key Refresh In       6h 56m (25000 seconds)
  Key Refresh Overlap  10%
  Keys Refreshed       once
  Tunnel Up For        1h 1m (3700 seconds)
  Last Failure         no answer from the peer

Phase 2 tunnel 4: lan
  Status               established
  Assoc P1 Tunnel      1 (site)
  Local Traffic        10.1.0.0/24
  Remote Traffic       10.2.0.0/24
  Security Policy      p2
  Allowed Roles        both
  PFS                  ECP-384 or ECP-256
  Auto Start           no
  On Demand            yes
  Encap Mode           ESP_tunnel in UDP
  Encryption Alg       AES-GCM-16-256
  Auth Alg             by the cipher
  DH Group             none
  Extended Seq Num     yes
  Inbound SPI          10000001
  Outbound SPI         20000002
  SA Lifetime          1h (3600 seconds)
  SA Lifesize          1048576 Kbytes
  SA Rem Lifetime      3m (180 seconds)
  SA Rem Lifesize      997376 Kbytes
  Key Refresh In       1m 30s (90 seconds)
  Key Refresh Overlap  10%
  Keys Refreshed       20 times
  Tunnel Up For        1h 1m (3700 seconds)
  In                   1 200 packets, 1.5 MiB
  Out                  3 400 packets, 50 MiB
  Refused              0 packets

"
    );
    let mut hostile = tunnel();
    hostile.remote_id = "\u{1b}[2J".to_owned();
    assert!(verbose(Part::whole(&[hostile]), PLAIN).chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn colour_does_not_move_columns() {
    let coloured = list(Part::whole(&[tunnel()]), Colour(true));
    assert!(coloured.contains("\u{1b}["));
    assert_eq!(console::strip_ansi_codes(&coloured), listed(&[tunnel()]));
}

#[test]
fn status_shows_everything() {
    assert_eq!(
        status(&tunnel(), PLAIN),
        "\
site established
  local         192.0.2.1
  remote        gw.example at 192.0.2.2
  path          192.0.2.1:4500 to 192.0.2.2:4500
  NAT           the peer is behind a NAT
  suite         AES-CBC-256/HMAC-SHA2-256-128/ECP-384
  SPIs          initiator 1122334455667788, responder 99aabbccddeeff00
  role          initiator
  up            1h 1m, rekeyed once
  rekey         in 6h 56m, expires in 8h
  last failure  no answer from the peer (1h 6m ago)
  lan established
    mode     tunnel
    local    10.1.0.0/24
    remote   10.2.0.0/24
    suite    AES-GCM-16-256, 64-bit sequence numbers, in UDP
    SPIs     in 10000001, out 20000002
    in       1 200 packets, 1.5 MiB
    out      3 400 packets, 50 MiB
    refused  0 packets
    MTU      1330 inside, 1400 on the way to the peer, as a router there has said
    up       1h 1m, rekeyed 20 times
    rekey    in 1m 30s, expires in 3m
"
    );
}

#[test]
fn a_window_of_the_responder_is_shown_with_both_phases() {
    let window = |min_seconds, max_seconds, min_bytes, max_bytes| {
        Some(ResponderWindow { min_seconds, max_seconds, min_bytes, max_bytes })
    };
    let mut tunnel = tunnel();
    tunnel.policy.as_mut().expect("it has one").responder_window =
        window(Some(300), None, None, None);
    tunnel.children[0].policy.as_mut().expect("it has one").responder_window =
        window(Some(60), Some(86_400), None, Some(8 << 30));
    let (ike, child) = (
        "lifetime at least 5m, if the peer asks for the SA\n",
        "lifetime 1m to 1d, volume at most 8.0 GiB, if the peer asks for the SA\n",
    );
    let text = status(&tunnel, PLAIN);
    assert!(text.contains(&format!("\n  window        {ike}")), "{text}");
    assert!(text.contains(&format!("\n    window   {child}")), "{text}");
    let text = verbose(Part::whole(&[tunnel]), PLAIN);
    for window in [ike, child] {
        assert!(text.contains(&format!("\n  Responder Window     {window}")), "{text}");
    }
}

#[test]
fn a_down_tunnel_says_why() {
    let mut down = tunnel();
    down.state = "down".to_owned();
    down.ike_sa = None;
    down.children.clear();
    let text = status(&down, PLAIN);
    assert!(text.contains("  down because  no answer from the peer (1h 6m ago)\n"), "{text}");
}

#[test]
fn a_tunnel_that_was_up_says_since_when_it_is_down() {
    let end = |reason: &str| {
        let (reason, since) = (reason.to_owned(), "2026-05-01T11:59:47Z".to_owned());
        Some(Down { reason, seconds_ago: 12, since, cure: Vec::new() })
    };
    let mut down = tunnel();
    down.state = "down".to_owned();
    down.ike_sa = None;
    down.down = end("deleted by the peer");
    down.children[0].state = "negotiating".to_owned();
    down.children[0].child_sa = None;
    down.children[0].down = end("its lifetime ended");
    let text = status(&down, PLAIN);
    assert!(
        text.starts_with("site down since 11:59:47 UTC (12s): deleted by the peer\n"),
        "{text}"
    );
    let child = "\n  lan negotiating; down since 11:59:47 UTC (12s): its lifetime ended\n";
    assert!(text.contains(child), "{text}");
    let text = verbose(Part::whole(std::slice::from_ref(&down)), PLAIN);
    assert!(text.contains("  Down                 since 11:59:47 UTC (12s): deleted by"), "{text}");

    let mut together = down.clone();
    together.children[0].down.clone_from(&together.down);
    assert_eq!(
        listed(&[down, together]),
        "\
PHASE  NUMBER  TUNNEL  STATE        LOCAL        REMOTE                  UP  REKEY  IN  OUT
1      1       site    down         192.0.2.1    gw.example (192.0.2.2)  -   -      -   -
       down since 11:59:47 UTC (12s): deleted by the peer
2      4       lan     negotiating  10.1.0.0/24  10.2.0.0/24             -   -      -   -
       down since 11:59:47 UTC (12s): its lifetime ended
1      1       site    down         192.0.2.1    gw.example (192.0.2.2)  -   -      -   -
       down since 11:59:47 UTC (12s): deleted by the peer
2      4       lan     negotiating  10.1.0.0/24  10.2.0.0/24             -   -      -   -
"
    );
}

#[test]
fn a_peer_cannot_steer_the_terminal() {
    let mut hostile = tunnel();
    hostile.remote_id = "\u{1b}[2J\r\nroot".to_owned();
    hostile.last_failure.as_mut().expect("it has one").message =
        "\u{1b}]0;x\u{7}\u{9b}1m".to_owned();
    let text = status(&hostile, PLAIN);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(text.contains("\\u{1b}[2J\\r\\nroot at 192.0.2.2"), "{text}");
}

#[test]
fn activations() {
    let up = Activation { name: "site".to_owned(), up: true, failure: None };
    assert_eq!(activation(&up, PLAIN), "site: up");
    let failure = FailureInfo {
        kind: "no_answer".to_owned(),
        message: "no answer from the peer: 7 messages sent".to_owned(),
        seconds_ago: None,
    };
    let failed = Activation { name: "site".to_owned(), up: false, failure: Some(failure) };
    assert_eq!(
        activation(&failed, PLAIN),
        "site: failed: no answer from the peer: 7 messages sent"
    );
}

#[test]
fn quantities() {
    for (seconds, text) in [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (125, "2m 5s"),
        (3600, "1h"),
        (3_700, "1h 1m"),
        (86_399, "23h 59m"),
        (273_600, "3d 4h"),
    ] {
        assert_eq!(duration(Duration::from_secs(seconds)), text);
    }
    assert_eq!(duration(Duration::from_millis(1)), "1ms");
    for (octets, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_575, "1023 KiB"),
        (1_572_864, "1.5 MiB"),
        (10 << 30, "10 GiB"),
        (u64::MAX, "15 EiB"),
    ] {
        assert_eq!(bytes(octets), text);
    }
    assert_eq!(rate(999), "999 bit/s");
    assert_eq!(rate(1_250_000_000), "1.2 Gbit/s");
    assert_eq!(rate(950_000_000), "950 Mbit/s");
    for (n, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")] {
        assert_eq!(count(n), text);
    }
}

#[test]
fn a_request_without_an_answer_is_told_with_the_tunnel() {
    let told = "INFORMATIONAL was sent to 192.0.2.2:4500 3 of 6 times, no answer for 11s; given up at 17:14:21 UTC";
    let mut silent = tunnel();
    silent.unanswered = Some(control::protocol::Unanswered {
        message: told.to_owned(),
        sent: None,
        silent_seconds: 11,
        given_up_at: "2026-11-25T17:14:21Z".to_owned(),
        cure: Vec::new(),
    });
    let silent = [silent];
    for text in [listed(&silent), verbose(Part::whole(&silent), PLAIN), status(&silent[0], PLAIN)] {
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(text.matches(told).count(), 1, "{text}");
    }
}

#[test]
fn exported_keys_are_told_of_with_every_tunnel() {
    let mut open = tunnel();
    assert!(!listed(&[open.clone()]).contains("INSECURE"));
    assert!(!status(&open, PLAIN).contains("INSECURE"));
    open.keys_exported_to = Some("/root/keys\u{1b}[2J".to_owned());
    let remark = "INSECURE: keys are written to /root/keys\\u{1b}[2J; \
                  to end that, start vpnd without --insecure-export-keys\n";
    assert!(listed(&[tunnel(), open.clone()]).ends_with(remark));
    assert!(status(&open, PLAIN).contains(remark));
}

#[test]
fn findings_are_told_at_length_and_named_in_a_line() {
    use control::protocol::{Explanation, FindingInfo};
    let finding = |kind: &str, certain| FindingInfo {
        kind: kind.to_owned(),
        certain,
        message: format!("because of {kind}\u{1b}[2J"),
        cure: vec!["do this".to_owned()],
    };
    let explanation = |findings| Explanation {
        name: "lan".to_owned(),
        phase: 2,
        state: "established".to_owned(),
        up_seconds: Some(5),
        up_since: None,
        down: None,
        fault: None,
        waits: None,
        unanswered: None,
        renewal: None,
        failures: Vec::new(),
        turned_away: Vec::new(),
        defined: Vec::new(),
        children: Vec::new(),
        findings,
    };
    assert_eq!(
        why(&explanation(Vec::new()), false, PLAIN),
        "lan  phase 2, established for 5s\n  no recent failure\n"
    );
    assert_eq!(
        why(&explanation(vec![finding("firewall", true), finding("one_way", false)]), false, PLAIN),
        "\
lan  phase 2, established for 5s
  packets do not pass: because of firewall\\u{1b}[2J
    to do
    - do this
  packets may not pass: because of one_way\\u{1b}[2J
    to do
    - do this
"
    );
    let line = |findings| {
        let mut tunnel = tunnel();
        tunnel.children[0].findings = findings;
        let text = status(&tunnel, PLAIN);
        text.lines().find_map(|l| l.trim().strip_prefix("traffic ").map(|l| l.trim().to_owned()))
    };
    assert_eq!(line(Vec::new()), None);
    let may = "may not pass (one_way); see vpnctl why lan";
    assert_eq!(line(vec![finding("one_way", false)]).as_deref(), Some(may));
    let not = "does not pass (firewall, one_way); see vpnctl why lan";
    let both = vec![finding("firewall", true), finding("one_way", false)];
    assert_eq!(line(both).as_deref(), Some(not));
}

#[test]
fn packets_without_an_sa_are_counted_for_their_tunnels() {
    let unserved = |n| [("esp.unserved".to_owned(), n)].into();
    let counters = [("site_lan".to_owned(), unserved(1200)), ("lab".to_owned(), unserved(1))];
    let meaning = "Outbound: a packet of the tunnel that came while no SA served it.";
    let meanings = [("esp.unserved".to_owned(), meaning.to_owned())];
    assert_eq!(
        tunnel_counters(&counters.into(), &meanings.into(), PLAIN),
        "\
DISCARDED  TUNNEL    REASON        MEANING
1          lab       esp.unserved  Outbound: a packet of the tunnel that came while no SA served it.
1 200      site_lan  esp.unserved  Outbound: a packet of the tunnel that came while no SA served it.
"
    );
}

#[test]
fn a_status_says_where_sas_are_and_why_not_in_a_card() {
    use control::protocol::{OffloadInfo, PlacedInfo};
    let sa = |tunnel: &str, direction: &str, place: &str, reason: Option<&str>| PlacedInfo {
        tunnel: tunnel.to_owned(),
        direction: direction.to_owned(),
        spi: "10000001".to_owned(),
        place: place.to_owned(),
        device: Some("eth4".to_owned()),
        reason: reason.map(str::to_owned),
    };
    let full = Some("there is no room");
    let [a, b] = [sa("a", "in", "crypto", None), sa("a", "out", "software", full)];
    let [c, d] = [sa("b", "in", "software", full), sa("c", "in", "software", Some("it has gone"))];
    let sas = vec![a.clone(), b.clone(), c, d];
    let info = OffloadInfo { sas, ..OffloadInfo::default() };
    assert_eq!(
        not_offloaded(&info),
        [
            "1 SA not in eth4: it has gone (c)",
            "2 SAs not in eth4: there is no room (a and one more tunnel)"
        ]
    );
    let place = |placed| {
        let mut tunnel = tunnel();
        tunnel.children[0].child_sa.as_mut().expect("it is up").placed = placed;
        let text = status(&tunnel, PLAIN);
        text.lines().find_map(|l| l.trim().strip_prefix("place ").map(|l| l.trim().to_owned()))
    };
    assert_eq!(place(vec![]), None);
    let both =
        "in: kernel, cryptography by card eth4; out: kernel, not card eth4: there is no room";
    assert_eq!(place(vec![a.clone(), b]).as_deref(), Some(both));
    assert_eq!(place(vec![a.clone(), a]).as_deref(), Some("kernel, cryptography by card eth4"));
}

#[test]
fn a_resynchronisation_says_what_it_put_back() {
    use control::protocol::ResyncInfo;
    let said = |sas, policies, moved| resynced(&ResyncInfo { sas, policies, moved });
    assert_eq!(said(0, 0, 0), "nothing was missing in the kernel, and no SA has moved");
    assert_eq!(said(1, 2, 0), "put back into the kernel: 1 SA, 2 policies");
    let both = "put back into the kernel: 1 policy\nmoved into a network card or out of one: 2 SAs";
    assert_eq!(said(0, 1, 2), both);
}
