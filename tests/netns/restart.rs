//! A peer that dies without a word, and comes back.

use crate::harness::{GATEWAYS, test};
use crate::site::{hosts, passes, two_with};
use libtest_mimic::Trial;

pub fn trials() -> Vec<Trial> {
    vec![
        test("a dead peer is noticed", GATEWAYS, a_dead_peer_is_noticed),
        test("a peer that starts anew replaces its former self", GATEWAYS, initial_contact),
    ]
}

const QUICK: &str = "retransmit_after = \"200ms\"\nretransmissions = 2\n";

fn a_dead_peer_is_noticed() {
    let [mut left, mut right] = two_with(&format!("{QUICK}liveness_interval = \"1s\"\n"));
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
    let [mut left, mut right] = two_with(&format!("{QUICK}liveness_interval = \"off\"\n"));
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
