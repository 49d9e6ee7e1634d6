//! The crypto facility of a running daemon: the crypto provider changes under a tunnel that stays up.

use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use serde_json::Value;
use testkit::gateway::Gateway;
use testkit::{GATEWAYS, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("in-core instructions go off and on under a running tunnel", GATEWAYS, in_core),
        test("requests of min_sz octets go to the engine", GATEWAYS, engine),
    ]
}

/// Packets in hardware and in software.
fn done(gateway: &Gateway, operation: &str) -> (u64, u64) {
    let stats = gateway.json(&["crypto", "stats", "--json"]);
    let rows = stats["rows"].as_array().expect("a list");
    let row = |row: &&Value| row["function"] == "AES-GCM-256" && row["operation"] == operation;
    let operations = |place: &str| {
        rows.iter().find(row).map_or(0, |r| r[place]["operations"].as_u64().expect("a number"))
    };
    (operations("hardware"), operations("software"))
}

fn in_core() {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    let hosts = hosts(&left, &right);
    let pass = |n: u8| (0..n).for_each(|i| passes(&hosts, &[i; 20]));
    let spi = |gateway: &Gateway| {
        gateway.json(&["status", "site", "--json"])["children"][0]["child_sa"]["outbound_spi"]
            .clone()
    };
    let before = spi(&left);
    let has = left.json(&["crypto", "get", "in_core_enabled", "--json"])[0]["value"] == 1;
    pass(5);
    let (out, back) = (done(&left, "encrypt"), done(&right, "decrypt"));
    assert_eq!(if has { (out.1, back.1) } else { (out.0, back.0) }, (0, 0), "{out:?} {back:?}");

    let told = left.ctl_ok(&["crypto", "set", "in_core_enabled=0"]);
    assert!(told.starts_with("nx_enabled : 0\nmin_sz : 1024\nin_core_enabled : 0\n"), "{told}");
    let changed = if has { "\n2 SAs have changed" } else { "\nno SA has changed" };
    assert!(told.contains(changed), "{told}");
    pass(7);
    let (out_off, back_off) = (done(&left, "encrypt"), done(&right, "decrypt"));
    // The other end does as before, and notices nothing.
    assert_eq!(out_off.0, out.0);
    assert!(out_off.1 >= out.1 + 7, "{out:?} {out_off:?}");
    assert!(back_off.0 + back_off.1 >= back.0 + back.1 + 7 && (back_off.1 == 0) == has);

    if has {
        left.ctl_ok(&["crypto", "set", "in_core_enabled=1"]);
        pass(3);
        let out_on = done(&left, "encrypt");
        assert!(out_on.0 >= out_off.0 + 3 && out_on.1 == out_off.1, "{out_off:?} {out_on:?}");
    } else {
        let error = left.ctl_fails(&["crypto", "set", "in_core_enabled=1"], 1);
        assert!(error.contains("this CPU has no instructions"), "{error}");
    }
    assert_eq!(spi(&left), before, "the SA is still the first one");
    let info = left.ctl_ok(&["crypto", "info"]);
    assert!(info.contains("AES-GCM-256") && info.contains("in_core_enabled : "), "{info}");
}

/// Requests that went to the engine.
fn to_engine(gateway: &Gateway, operation: &str) -> u64 {
    let stats = gateway.json(&["crypto", "stats", "--json"]);
    let rows = stats["rows"].as_array().expect("a list");
    let row = |row: &&Value| row["user"] == "engine" && row["operation"] == operation;
    let operations = |row: &Value| row["software"]["operations"].as_u64().expect("a number");
    rows.iter().find(row).map_or(0, operations)
}

fn engine() {
    let [mut left, mut right] = two();
    let tunables = left.path("crypto.toml");
    left.configure(&format!("[crypto]\ntunables = {:?}\n", tunables.display().to_string()));
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    let hosts = hosts(&left, &right);
    let told = left.ctl_ok(&["crypto", "set", "nx_enabled=1"]);
    assert!(told.starts_with("nx_enabled : 1\nmin_sz : 1024\n"), "{told}");
    (0..5).for_each(|i| passes(&hosts, &[i; 20]));
    assert_eq!(to_engine(&left, "encrypt"), 0, "they are below min_sz");
    // With its headers of 28 octets.
    left.ctl_ok(&["crypto", "set", "min_sz=48", "--persist"]);
    (0..7).for_each(|i| passes(&hosts, &[i; 20]));
    (0..3).for_each(|i| passes(&hosts, &[i; 19]));
    assert_eq!(to_engine(&left, "encrypt"), 7);
    let stats = left.ctl_ok(&["crypto", "stats"]);
    assert!(stats.contains("requests to the engine of threads"), "{stats}");
    left.ctl_ok(&["crypto", "set", "nx_enabled=1", "--persist"]);

    left.stop();
    left.start();
    assert!(left.ctl_ok(&["crypto", "get"]).starts_with("nx_enabled : 1\nmin_sz : 48\n"));
    left.ctl_ok(&["activate"]);
    passes(&hosts, &[1; 20]);
    assert_eq!(to_engine(&left, "encrypt"), 1);
    left.ctl_ok(&["crypto", "set", "nx_enabled=0"]);
    passes(&hosts, &[2; 20]);
    assert_eq!(to_engine(&left, "encrypt"), 1, "it is off");
}
