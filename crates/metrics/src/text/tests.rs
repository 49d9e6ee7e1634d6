use super::*;
use crate::fleet::tests::tunnel;
use crate::{Happenings, Ledger, Numbers};
use control::protocol::workers::{Passed, Queue, Stage, Thread};
use control::protocol::{Amount, FunctionWork, Served};
use ike::Event;
use ike::durations::ExchangeDurations;
use ike::event::EventKind;
use ike::failure::{Failure, FailureKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, UNIX_EPOCH};

fn workers() -> Workers {
    let passed = Passed {
        stage: "seal".to_owned(),
        batches: 3,
        packets: 90,
        octets: 126_000,
        busy_seconds: 0.25,
    };
    let thread = Thread {
        name: "vpn0-0".to_owned(),
        role: "worker".to_owned(),
        seconds: 10.0,
        cpu: Some(0),
        cpus: None,
        sched_policy: None,
        refused: Vec::new(),
        cpu_seconds: Some(1.5),
        wakeups: Some(12),
        busy: 0.1,
        stages: vec![passed.clone()],
    };
    let queue = Some(Queue { waiting: 1_400, room: 212_992, unit: "octets".to_owned() });
    let drops = BTreeMap::from([("no_room".to_owned(), 2)]);
    Workers {
        schedule: "run-to-completion".to_owned(),
        wait: "adaptive".to_owned(),
        workers: "auto".to_owned(),
        number: 1,
        affinity: "none".to_owned(),
        threads: vec![thread],
        stages: vec![Stage { passed, queue, drops }],
        lookups: Default::default(),
        inbound_lookups: Default::default(),
    }
}

fn crypto() -> (CryptoState, CryptoStats) {
    let served = Served {
        function: "AES-GCM-128".to_owned(),
        provider: "aws-lc".to_owned(),
        place: "hardware".to_owned(),
        instructions: Vec::new(),
        note: None,
    };
    let row = FunctionWork {
        user: "esp".to_owned(),
        function: "AES-GCM-128".to_owned(),
        operation: "encrypt".to_owned(),
        hardware: Amount { operations: 90, octets: Some(126_000) },
        software: Amount::default(),
        kernel: Amount::default(),
        nic: Amount::default(),
    };
    let ike = FunctionWork {
        user: "ike".to_owned(),
        function: "P-384".to_owned(),
        operation: "agree".to_owned(),
        hardware: Amount::default(),
        software: Amount { operations: 4, octets: None },
        ..row.clone()
    };
    let state = CryptoState {
        tunables: Vec::new(),
        file: String::new(),
        functions: vec![served],
        changed_sas: 0,
    };
    (state, CryptoStats { milliseconds: 1, rows: vec![row, ike] })
}

fn certificate(role: &str, not_after: Option<&str>) -> CertificateInfo {
    CertificateInfo {
        role: role.to_owned(),
        source: "/etc/vpnd/certs/left.pem".to_owned(),
        subject: "CN=left,O=\"A\\B\"".to_owned(),
        issuer: "CN=root".to_owned(),
        names: Vec::new(),
        serial: "01".to_owned(),
        key: None,
        private_key: None,
        token: None,
        not_before: "2026-01-01T00:00:00Z".to_owned(),
        not_after: not_after.map(str::to_owned),
        days_left: None,
        expires_soon: false,
        tunnels: Vec::new(),
    }
}

/// A gateway with a tunnel that is up, one that is down, and one more than there is room for.
fn snapshot() -> Snapshot {
    let mut ledger = Ledger::default();
    let now = Instant::now();
    let mut round = ledger.round(4, now);
    round.add(&[tunnel("site", Some(7)), tunnel("branch", None), tunnel("third", Some(1))], now);
    let mut happenings = Happenings::default();
    let failure = Failure::new(FailureKind::NoAnswer, String::new());
    happenings.see(&Event::new("branch", EventKind::Failed(failure)), now);
    let numbers = Numbers {
        fleet: round.finish().into(),
        tallies: happenings.tallies(),
        exchanges: ExchangeDurations::default(),
        dropped: BTreeMap::from([
            ("esp.replayed".to_owned(), 3),
            ("ike.bad_length".to_owned(), 1),
            ("xfrm.XfrmInNoStates".to_owned(), 2),
        ]),
        unserved: BTreeMap::from([("branch_lan".to_owned(), 5), ("third_lan".to_owned(), 6)]),
    };
    let (crypto, crypto_work) = crypto();
    let own = certificate("own", Some("2026-01-31T00:00:00Z"));
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Snapshot {
        version: "1.2.3".to_owned(),
        started: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        numbers,
        guard: Some(GuardInfo {
            in_force: true,
            held_seconds: None,
            unprotected_leaving: 8,
            unprotected_arriving: 9,
        }),
        confinement: Some(ConfinementInfo {
            in_force: texts(&["no_new_privs", "Landlock (this kernel has V4 of V6)"]),
            missing: texts(&["seccomp: this kernel lacks it", "Landlock: it is off (beside nft)"]),
        }),
        keys_exported: false,
        workers: workers(),
        crypto,
        crypto_work,
        certificates: vec![own.clone(), own, certificate("authority", None)],
    }
}

#[test]
fn every_tunnel_and_every_subject_is_told() {
    let text = snapshot().text();
    for line in [
        "vpnd_build_info{version=\"1.2.3\"} 1",
        "vpnd_start_time_seconds 1700000000.0",
        "vpnd_tunnels{phase=\"1\",state=\"established\"} 2",
        "vpnd_tunnels{phase=\"2\",state=\"blocked\"} 0",
        "vpnd_tunnels_omitted 2",
        "vpnd_tunnel_up{tunnel=\"branch\"} 0",
        "vpnd_tunnel_state{tunnel=\"site\"} 2",
        "vpnd_child_up{tunnel=\"site\",child=\"site_lan\"} 1",
        "vpnd_child_packets_total{tunnel=\"site\",child=\"site_lan\",direction=\"out\"} 14",
        "vpnd_child_bytes_total{tunnel=\"branch\",child=\"branch_lan\",direction=\"in\"} 0",
        "vpnd_child_unserved_packets_total{tunnel=\"branch\",child=\"branch_lan\"} 5",
        // With the tunnel that has no series of its own.
        "vpnd_packets_total{direction=\"in\"} 8",
        "vpnd_traffic_bytes_total{direction=\"out\"} 1600",
        "vpnd_failures_total{reason=\"no_answer\"} 1",
        "vpnd_failures_total{reason=\"bad_certificate\"} 0",
        "vpnd_negotiation_duration_seconds_bucket{le=\"+Inf\",phase=\"1\"} 0",
        "vpnd_exchange_duration_seconds_count{exchange=\"liveness\"} 0",
        "vpnd_ike_discarded_messages_total{reason=\"bad_length\"} 1",
        "vpnd_dropped_packets_total{layer=\"xfrm\",reason=\"XfrmInNoStates\"} 2",
        "vpnd_guard_in_force 1",
        "vpnd_guard_dropped_packets_total{direction=\"in\"} 9",
        "vpnd_confined{process=\"vpnd\",part=\"Landlock\"} 1",
        "vpnd_confined{process=\"vpnd\",part=\"seccomp\"} 0",
        "vpnd_confined{process=\"nft\",part=\"Landlock\"} 0",
        "vpnd_stage_busy_seconds_total{stage=\"seal\"} 0.25",
        "vpnd_stage_queue{stage=\"seal\",unit=\"octets\"} 1400",
        "vpnd_stage_dropped_packets_total{stage=\"seal\",reason=\"no_room\"} 2",
        "vpnd_worker_cpu_seconds_total{thread=\"vpn0-0\"} 1.5",
        "vpnd_crypto_provider_info{function=\"AES-GCM-128\",provider=\"aws-lc\",place=\"hardware\"} 1",
        "vpnd_crypto_operations_total{user=\"ike\",function=\"P-384\",operation=\"agree\",place=\"software\"} 4",
        "vpnd_certificate_expiry_timestamp_seconds{role=\"own\",source=\"/etc/vpnd/certs/left.pem\",\
         subject=\"CN=left,O=\\\"A\\\\B\\\"\",issuer=\"CN=root\",serial=\"01\"} 1769817600.0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
    for absent in ["tunnel=\"third\"", "role=\"authority\"", "crypto_bytes_total{user=\"ike\""] {
        assert!(!text.contains(absent), "{absent}");
    }
}

/// The rules of OpenMetrics 1.0 for a text. In tests/netns, Prometheus itself reads one.
#[test]
fn the_text_is_openmetrics() {
    let text = snapshot().text();
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    let (mut family, mut kind) = ("", "");
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a name and a text");
            assert!(families.insert(name), "{name} is there twice");
            assert!(name.starts_with("vpnd_") && help.ends_with('.'), "{line}");
            family = name;
        } else if let Some(of) = line.strip_prefix("# TYPE ") {
            kind = of.strip_prefix(family).expect("the type follows the help").trim();
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            let unit = unit.strip_prefix(family).expect("the unit follows the type").trim();
            assert!(family.ends_with(&format!("_{unit}")), "{line}");
        } else {
            let (labelled, value) = line.rsplit_once(' ').expect("a value");
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            assert!(series.insert(labelled), "{labelled} is there twice");
            let name = labelled.split('{').next().expect("a name");
            let suffix = name.strip_prefix(family).expect("it is of the family before it");
            let suffixes: &[&str] = match kind {
                "counter" => &["_total"],
                "gauge" => &[""],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_sum", "_count"],
                other => panic!("{other} of {family}"),
            };
            assert!(suffixes.contains(&suffix), "{line}");
        }
    }
    assert!(families.len() > 35, "{} families", families.len());
}

#[test]
fn the_document_has_every_family_and_no_other() {
    let document = include_str!("../../../../docs/operate/metrics.md");
    let text = snapshot().text();
    let told: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .map(|name| ["_bucket", "_sum", "_count"].iter().fold(name, |n, s| n.trim_end_matches(s)))
        .collect();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `vpnd_"));
    let listed: BTreeSet<String> = rows
        .flat_map(|row| row.split(" | ").next().into_iter().flat_map(|cell| cell.split(", ")))
        .map(|name| name.trim_matches('`').trim_start_matches("vpnd_"))
        .map(|name| format!("vpnd_{}", name.split('{').next().unwrap_or(name)))
        .collect();
    assert_eq!(told.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), listed);
}

#[test]
fn alerts_and_dashboard_ask_for_what_is_told() {
    let text = snapshot().text();
    let told: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    for file in [
        include_str!("../../../../packaging/monitoring/vpnd.rules.yml"),
        include_str!("../../../../packaging/monitoring/vpnd.rules.test.yml"),
        include_str!("../../../../packaging/monitoring/vpnd.dashboard.json"),
    ] {
        let names = file.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let names: BTreeSet<&str> = names.filter(|name| name.starts_with("vpnd_")).collect();
        let unknown: Vec<_> = names.difference(&told).collect();
        assert!(names.len() > 10 && unknown.is_empty(), "unknown metrics: {unknown:?}");
    }
}

#[test]
fn a_daemon_without_anything_has_a_text_as_well() {
    let numbers = Numbers::default();
    let bare =
        Snapshot { numbers, guard: None, confinement: None, certificates: vec![], ..snapshot() };
    let text = bare.text();
    assert!(text.contains("vpnd_tunnels{phase=\"1\",state=\"down\"} 0\n"), "{text}");
    assert!(!text.contains("guard_in_force") && text.ends_with("# EOF\n"), "{text}");
}
