//! A peer that dies without a word, and comes back.

use crate::site::{hosts, passes, two_with};
use libtest_mimic::Trial;
use serde_json::json;
use testkit::daemon::write_secret;
use testkit::gateway::{GIVES_UP, Gateway, PATIENT};
use testkit::{GATEWAYS, policies, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("a dead peer is noticed", GATEWAYS, a_dead_peer_is_noticed),
        test("a peer that starts anew replaces its former self", GATEWAYS, initial_contact),
        test("a tunnel comes back after its peer was killed", GATEWAYS, killed_peer),
        test("a tunnel is resumed after its peer was killed", GATEWAYS, resumed),
        test("a tunnel comes up and back with the network", GATEWAYS, network_down_and_up),
    ]
}

/// Lines of `[ike]` with which a dead peer is noticed after some seconds.
fn watchful() -> String {
    format!("{GIVES_UP}liveness_interval = \"1s\"\n")
}

/// Both gateways, of which the left one starts the tunnel by itself.
fn left_starts() -> [Gateway; 2] {
    let [left, right] = two_with(&watchful());
    let [policy, _] = policies::site();
    let no = "IPSec_Flags_AutoStart=\"No\"";
    left.write_policy(&policies::changed(&policy, no, "IPSec_Flags_AutoStart=\"Yes\""));
    [left, right]
}

fn killed_peer() {
    let [mut left, mut right] = left_starts();
    // The wrong order of start: nobody is there yet.
    left.start();
    left.await_log(&["\"event\":\"failed\"", "no answer"]);
    right.start();
    left.await_list(&["site_lan"]);
    passes(&hosts(&left, &right), b"at first");
    for _ in 0..2 {
        let before = left.child_sa("site_lan");
        right.crash();
        right.start();
        let new = || {
            let after =
                left.json(&["status", "site_lan", "--json"])["children"][0]["child_sa"].clone();
            (!after.is_null() && after["inbound_spi"] != before["inbound_spi"]).then_some(())
        };
        until("a new Child SA", new, || left.ctl_ok(&["list", "--all"]));
        right.await_list(&["site_lan"]);
        passes(&hosts(&left, &right), b"again");
    }
}

/// Only the responder needs a ticket key. Without it the tunnel comes back, too, by a full handshake.
fn resumed() {
    let [mut left, mut right] = two_with(&watchful());
    let allowing = |text: &str| {
        let text = policies::changed(text, "<AIX_VPN ", "<AIX_VPN xmlns:vpn=\"urn:vpnd:policy\" ");
        policies::changed(&text, "<IKETunnel ", "<IKETunnel vpn:Resumption=\"Yes\" ")
    };
    let [policy, other] = policies::site();
    let no = "IPSec_Flags_AutoStart=\"No\"";
    let policy = policies::changed(&policy, no, "IPSec_Flags_AutoStart=\"Yes\"");
    left.write_policy(&allowing(&policy));
    right.write_policy(&allowing(&other));
    let keys = right.path("ticket_keys");
    write_secret(&keys, &"5a".repeat(32));
    right.configure(&format!("[certificates]\nticket_keys = [{keys:?}]\n"));
    right.start();
    left.start();
    left.await_list(&["site_lan"]);
    passes(&hosts(&left, &right), b"at first");
    for expected in [json!(1), json!(2), json!(null)] {
        let before = left.child_sa("site_lan");
        right.crash();
        if expected.is_null() {
            write_secret(&keys, &"6b".repeat(32));
        }
        right.start();
        let new = || {
            let status = left.json(&["status", "site", "--json"]);
            let after = status["children"][0]["child_sa"]["inbound_spi"].clone();
            let is_new = !after.is_null() && after != before["inbound_spi"];
            is_new.then(|| status["ike_sa"]["resumptions"].clone())
        };
        assert_eq!(until("a new Child SA", new, || left.ctl_ok(&["list", "--all"])), expected);
        right.await_list(&["site_lan"]);
        passes(&hosts(&left, &right), b"again");
    }
    left.await_log(&["\"event\":\"ticket_refused\""]);
    right.await_log(&["\"event\":\"resumed\""]);
}

fn network_down_and_up() {
    let [mut left, mut right] = left_starts();
    left.space.ip("link set wire down");
    right.start();
    left.start();
    left.await_log(&["\"event\":\"failed\"", "this host has no route to 192.0.2.2"]);
    left.space.ip("link set wire up");
    left.await_list(&["site_lan"]);
    passes(&hosts(&left, &right), b"at first");
    for end in [&left, &right] {
        end.space.ip("link set wire down");
        left.await_list(&[]);
        end.space.ip("link set wire up");
        left.await_list(&["site_lan"]);
        right.await_list(&["site_lan"]);
        passes(&hosts(&left, &right), b"again");
    }
}

fn a_dead_peer_is_noticed() {
    let [mut left, mut right] = two_with(&watchful());
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    right.crash();
    let line = left.await_log(&["\"event\":\"closed\"", "\"tunnel\":\"site\""]);
    assert!(line.contains("the peer does not answer"), "{line}");
    assert_eq!(left.ctl_ok(&["list", "--json"]), "[]\n");
    let status = left.ctl_ok(&["status", "site"]);
    assert!(status.contains("down because") && status.contains("no answer"), "{status}");

    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\n");
    passes(&hosts(&left, &right), b"again");
    assert!(!left.ctl_ok(&["status", "site"]).contains("down because"));
}

fn initial_contact() {
    let [mut left, mut right] = two_with(&format!("{PATIENT}liveness_interval = \"off\"\n"));
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    let before = left.child_sa("site_lan");
    right.crash();
    right.start();
    assert_eq!(right.ctl_ok(&["list", "--json"]), "[]\n");
    left.await_list(&["site_lan"]);

    assert_eq!(right.ctl_ok(&["activate"]), "site: up\n");
    left.await_log(&["\"event\":\"closed\"", "the peer has restarted"]);
    let after = left.child_sa("site_lan");
    assert_ne!(before["inbound_spi"], after["inbound_spi"]);
    assert_eq!(after["inbound_spi"], right.child_sa("site_lan")["outbound_spi"]);
    let hosts = hosts(&left, &right);
    passes(&hosts, b"again");
    assert_eq!(left.ctl_ok(&["rekey", "site_lan"]), "site_lan: rekeyed\n");
    passes(&hosts, b"and again");
}
