//! The failures a person meets: the words of `vpnctl activate`, of both logs, and of the notification to the peer.

use crate::planted::{Planted, plants, unanswered};
use crate::site::two;
use libtest_mimic::Trial;
use testkit::gateway::{GIVES_UP, Gateway};
use testkit::policies::{changed, site, vendor};
use testkit::{GATEWAYS, until};

pub fn trials() -> Vec<Trial> {
    vec![
        plants("no answer", GATEWAYS, no_answer),
        plants("failures between two sites", GATEWAYS, between_two_sites),
        plants("failures in transport mode", GATEWAYS, in_transport_mode),
        plants("different key exchanges for renewals", GATEWAYS, different_key_exchanges),
    ]
}

/// A fault, and the words that name it.
struct Case<'a> {
    what: &'a str,
    policies: [String; 2],
    kind: &'a str,
    /// Words of `vpnctl activate` here.
    here: &'a [&'a str],
    /// Words of the peer's log.
    there: &'a [&'a str],
    /// The faults that `vpnctl why` names here and there.
    faults: [Option<&'a str>; 2],
}

/// Lets the left side start the tunnel in vain. Returns the output of `vpnctl activate`.
fn fails(planted: &Planted, left: &mut Gateway, right: &mut Gateway, case: &Case<'_>) -> String {
    left.write_policy(&case.policies[0]);
    right.write_policy(&case.policies[1]);
    left.start();
    right.start();
    planted.now();
    // The result alone: how the wait went depends on how busy the host is.
    let output = left.ctl(&["activate"]);
    assert_eq!(output.status.code(), Some(1), "{}: {output:?}", case.what);
    let told = String::from_utf8(output.stdout).expect("text");
    if std::env::var_os("VPN_TEST_SHOW").is_some() {
        eprintln!("==== {}\n{told}---- {}", case.what, right.log());
    }
    for words in case.here {
        assert!(told.contains(words), "{}: no {words:?} in {told}", case.what);
    }
    right.await_log(case.there);
    let status = left.json(&["status", &told[..told.find(':').expect("a name")], "--json"]);
    let failure = [&status["last_failure"], &status["children"][0]["last_failure"]];
    assert!(failure.iter().any(|f| f["kind"] == case.kind), "{}: {status}", case.what);
    // The failure that `activate` prints is in the log, too.
    left.await_log(&["\"level\":\"WARN\"", case.kind]);
    let tunnel = &told[..told.find(':').expect("a name")];
    for (fault, gateway) in case.faults.into_iter().zip([&*left, &*right]) {
        if let Some(fault) = fault {
            planted.is_named(fault, gateway, &["why", tunnel]);
        }
    }
    for gateway in [left, right] {
        let gone = || (gateway.ctl_ok(&["list", "--json"]) == "[]\n").then_some(());
        until("the end of what came up half", gone, || gateway.ctl_ok(&["list"]));
        gateway.stop();
        std::fs::remove_file(gateway.path("log")).expect("it is there");
    }
    told
}

fn no_answer(planted: &Planted) {
    let [mut left, _right] = Gateway::pair(&site(), [1, 2], GIVES_UP);
    planted.now();
    left.start();
    left.ctl_ok(&["activate", "--no-wait"]);
    unanswered(&left, "nothing listens on UDP 500");
    planted.is_named("nothing listens on the peer's port", &left, &["why", "site"]);
    let waits = left.json(&["why", "site", "--json"])["children"][0]["waits"].to_string();
    assert!(!waits.contains("ICMP"), "the phase 1 tunnel tells of it: {waits}");
    let told = left.ctl_fails(&["activate"], 1);
    let words =
        ["site: failed: no answer from the peer", "IKE_SA_INIT", "3 times", "192.0.2.2:500"];
    let icmp = ["192.0.2.2 answers: nothing listens on UDP 500", "ICMP is not protected"];
    for words in words.into_iter().chain(icmp) {
        assert!(told.contains(words), "no {words:?} in {told}");
    }
    left.await_log(&["\"level\":\"WARN\"", "no_answer", icmp[0]]);
    let why = left.json(&["why", "site", "--json"]);
    let story = &why["failures"][0];
    assert!(story["message"].as_str().is_some_and(|m| m.contains(icmp[0])), "{why}");
    assert!(story["cure"].to_string().contains("start the IKE daemon on 192.0.2.2"), "{why}");
}

fn between_two_sites(planted: &Planted) {
    let [mut left, mut right] = Gateway::pair(&site(), [1, 2], GIVES_UP);
    let with = |from: &str, to: &str| {
        let [here, there] = site();
        [here, changed(&there, from, to)]
    };
    let named = r#"<IKERemoteIdentity><FQDN Value="left.example"><IPV4_Address Value="192.0.2.1"/></FQDN></IKERemoteIdentity>"#;
    let named =
        with(r#"<IKERemoteIdentity><IPV4_Address Value="192.0.2.1"/></IKERemoteIdentity>"#, named);
    let named = named.map(|p| {
        p.replace(r#"<PK_IPV4_Address Value="192.0.2.1"/>"#, r#"<PK_FQDN Value="left.example"/>"#)
    });
    let cases = [
        Case {
            what: "another preshared key",
            policies: with("replace-this-key", "another-key-here"),
            kind: "authentication_failed",
            here: &[
                "site: failed: authentication failed",
                "preshared keys",
                "192.0.2.1",
                "192.0.2.2",
            ],
            there: &["\"level\":\"WARN\"", "authentication_failed", "preshared key", "192.0.2.1"],
            faults: [None, None],
        },
        Case {
            what: "another identity",
            policies: named,
            kind: "authentication_failed",
            here: &["site: failed: authentication failed"],
            there: &["\"level\":\"WARN\"", "says it is 192.0.2.1", "left.example"],
            faults: [
                Some("the identities differ, on the side that is refused"),
                Some("the same, on the side that refuses"),
            ],
        },
        Case {
            what: "no IKE proposal in common",
            policies: with("\"AES-CBC-256\"", "\"AES-CBC-128\""),
            kind: "no_proposal_chosen",
            here: &["site: failed: no proposal in common", "AES-CBC-256", "ECP-256"],
            there: &["\"level\":\"WARN\"", "AES-CBC-256", "AES-CBC-128", "192.0.2.1"],
            faults: [
                Some("no IKE proposal in common, on the side that begins"),
                Some("no IKE proposal in common, on the other side"),
            ],
        },
        Case {
            what: "no ESP proposal in common",
            policies: with("ESP_AES256_GCM_16", "ESP_AES128_GCM_16"),
            kind: "no_proposal_chosen",
            here: &["site: failed: no proposal in common", "AES-GCM-16-256"],
            there: &["\"level\":\"WARN\"", "site_lan", "AES-GCM-16-256", "AES-GCM-16-128"],
            faults: [
                Some("no ESP proposal in common, on the side that begins"),
                Some("no ESP proposal in common, on the other side"),
            ],
        },
        Case {
            what: "no traffic in common",
            policies: {
                let [here, there] = with("10.1.0.", "10.9.0.");
                [here, there]
            },
            kind: "ts_unacceptable",
            here: &["site: failed: no traffic selectors in common", "10.1.0.0", "10.2.0.0"],
            there: &["\"level\":\"WARN\"", "10.1.0.0", "10.9.0.0", "site_lan"],
            faults: [
                Some("no traffic selectors in common, on the side that begins"),
                Some("no traffic selectors in common, on the other side"),
            ],
        },
        Case {
            what: "a policy for another peer",
            policies: with("192.0.2.1\"", "192.0.2.9\""),
            kind: "no_proposal_chosen",
            here: &["site: failed: no proposal in common", "no tunnel between these addresses"],
            there: &["\"level\":\"WARN\"", "192.0.2.1", "192.0.2.9", "no tunnel of the policy"],
            faults: [None, Some("no tunnel for the peer's address")],
        },
    ];
    let told = cases.each_ref().map(|case| fails(planted, &mut left, &mut right, case));
    // RFC 7296 §2.21.2: nothing tells a peer whether its identity or its key was wrong.
    assert_eq!(told[0], told[1]);

    left.write_policy(&site()[0]);
    right.write_policy(&site()[1]);
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n", "the samples themselves fit");
}

fn in_transport_mode(planted: &Planted) {
    let [mut left, mut right] = Gateway::pair(&vendor(), [10, 20], GIVES_UP);
    let [here, there] = vendor();
    let tunnel = |text: &str| {
        changed(text, "ESP_EncapsulationMode=\"Transport\"", "ESP_EncapsulationMode=\"Tunnel\"")
    };
    let cases = [
        Case {
            what: "transport mode here, tunnel mode there",
            policies: [here.clone(), tunnel(&there)],
            kind: "mode_mismatch",
            here: &[
                "LP1: failed: transport and tunnel mode differ",
                "LP2",
                "ESP_EncapsulationMode",
            ],
            there: &["\"event\":\"closed\""],
            faults: [Some("transport mode here, tunnel mode there"), None],
        },
        Case {
            what: "tunnel mode here, transport mode there",
            policies: [tunnel(&here), there.clone()],
            kind: "no_proposal_chosen",
            here: &["LP1: failed: no proposal in common", "mode"],
            there: &["\"level\":\"WARN\"", "mode_mismatch", "LP2", "ESP_EncapsulationMode"],
            faults: [None, None],
        },
    ];
    for case in &cases {
        fails(planted, &mut left, &mut right, case);
    }
}

/// The first Child SA has no key exchange of its own, so that the tunnel comes up, and stays up with a new IKE SA.
fn different_key_exchanges(planted: &Planted) {
    let groups = r#"IPSec_InitiatorDHGroup="19" IPSec_ResponderDHGroup="GROUP_19""#;
    let none = r#"IPSec_InitiatorDHGroup="0" IPSec_ResponderDHGroup="0""#;
    let [mut left, mut right] = two();
    left.write_policy(&changed(&site()[0], groups, none));
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    let spi = || left.json(&["status", "site", "--json"])["ike_sa"]["initiator_spi"].clone();
    let before = spi();
    planted.now();
    let output = left.ctl(&["rekey", "site_lan"]);
    assert!(!output.status.success(), "{output:?}");
    let replaced = || (spi() != before).then_some(());
    until("a new IKE SA", replaced, || left.ctl_ok(&["why", "site"]));
    left.await_list(&["site_lan"]);
    right.await_list(&["site_lan"]);
    let why = ["why", "site_lan"];
    planted.is_named("the peer demands a key exchange for renewals", &left, &why);
    planted.is_named("only this side demands a key exchange for renewals", &right, &why);
    // It is told without a name, too, although the tunnel is up.
    assert!(left.ctl_ok(&["why"]).starts_with("site  phase 1, established"));
}
