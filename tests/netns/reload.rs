//! A policy that changes while tunnels are up.

use crate::site::{hosts, passes, two};
use libtest_mimic::Trial;
use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::policies::{SITE, changed};
use testkit::{GATEWAYS, test, until};

pub fn trials() -> Vec<Trial> {
    vec![
        test("a broken policy changes nothing", GATEWAYS, a_broken_policy_changes_nothing),
        test("unchanged tunnels stay, changed ones come up anew", GATEWAYS, only_what_changed),
        test("a directory of files is one policy", GATEWAYS, a_directory_is_one_policy),
    ]
}

fn spis(sa: &Value) -> [String; 2] {
    ["inbound_spi", "outbound_spi"].map(|f| sa[f].as_str().expect("an SPI").to_owned())
}

fn a_broken_policy_changes_nothing() {
    let [mut left, mut right] = two();
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    let before = spis(&left.child_sa("site_lan"));

    left.write_policy(&changed(SITE[0], "192.0.2.2", "192.0.2.300"));
    left.signal(Signal::SIGHUP);
    left.await_log(&["\"level\":\"ERROR\"", "the old policy stays in force", "192.0.2.300"]);
    let error = left.ctl_fails(&["reload"], 1);
    assert!(error.contains("policy.xml:") && error.contains("192.0.2.300"), "{error}");
    assert!(error.contains("the old policy stays in force"), "{error}");
    assert_eq!(spis(&left.child_sa("site_lan")), before);
    passes(&hosts(&left, &right), b"undisturbed");
}

/// An element of a policy.
fn element<'p>(policy: &'p str, name: &str) -> &'p str {
    let (start, end) = (format!("<{name} "), format!("</{name}>"));
    let from = policy.find(&start).expect("the sample has it");
    let tag = from + policy[from..].find('>').expect("it ends") + 1;
    if policy[..tag].ends_with("/>") {
        return &policy[from..tag];
    }
    &policy[from..from + policy[from..].find(&end).expect("it ends") + end.len()]
}

/// The sample with another site beside the first, for either end.
fn with_second_site(seen_from: usize) -> String {
    let sample = SITE[seen_from];
    let element = |name: &str| element(sample, name);
    let other = ["IKETunnel", "IKEPresharedKey", "IPSecTunnel"].map(element).concat();
    let other = changed(&other, "IKE_TunnelName=\"site\"", "IKE_TunnelName=\"other\"");
    let other = changed(&other, "site_lan", "other_lan").replace("10.1.0.", "10.3.0.");
    let other = other.replace("10.2.0.", "10.4.0.");
    let other = other.replace("192.0.2.1\"", "192.0.2.11\"").replace("192.0.2.2\"", "192.0.2.12\"");
    changed(sample, "</AIX_VPN>", &format!("{other}</AIX_VPN>"))
}

fn only_what_changed() {
    let [mut left, mut right] = two();
    left.space.ip("address add 192.0.2.11/24 dev wire");
    right.space.ip("address add 192.0.2.12/24 dev wire");
    let policies = [0, 1].map(with_second_site);
    left.write_policy(&policies[0]);
    right.write_policy(&policies[1]);
    left.start();
    right.start();
    assert_eq!(left.ctl_ok(&["activate"]), "site: up\nother: up\n");
    let before = ["site_lan", "other_lan"].map(|name| spis(&left.child_sa(name)));

    // Another lifetime, for the second tunnel alone.
    let sample = &policies[0];
    let from = sample.find("<IPSecProposal ").expect("the sample has one");
    let to = sample.find("<IPSecTunnel ").expect("the sample has one");
    let own = sample[from..to].replace("site_gcm", "own_gcm").replace("site_p2", "own_p2");
    let own = changed(&own, "ESP_KeyRefreshMinutes=\"60\"", "ESP_KeyRefreshMinutes=\"50\"");
    let (head, tail) = sample.split_at(sample.rfind("site_p2").expect("the second tunnel's"));
    let tail = tail.replacen("site_p2", "own_p2", 1);
    let policy = format!("{}{own}{}{tail}", &head[..to], &head[to..]);
    left.write_policy(&policy);
    let told = left.ctl_ok(&["reload", "--dry-run"]);
    let kept = "  other/other_lan  lifetime: stays as it is until its next rekey or start\n";
    assert!(told.contains("nothing has changed yet") && told.contains(kept), "{told}");
    assert!(left.ctl_ok(&["reload"]).contains(kept), "what was announced");
    assert_eq!(spis(&left.child_sa("other_lan")), before[1], "a lifetime is no reason to delete");

    // And something that its SA cannot have in passing.
    let tail = tail.replacen("IPSec_Flags_OnDemand=\"No\"", "IPSec_Flags_OnDemand=\"Yes\"", 1);
    let policy = format!("{}{own}{}{tail}", &head[..to], &head[to..]);
    left.write_policy(&policy);
    left.signal(Signal::SIGHUP);
    let anew = || {
        let sa = left.child_sa("other_lan");
        (sa.is_object() && spis(&sa) != before[1]).then_some(())
    };
    until("the changed tunnel", anew, || left.log());
    left.await_log(&["policy reloaded"]);
    left.await_list(&["other_lan", "site_lan"]);
    right.await_list(&["other_lan", "site_lan"]);
    assert_eq!(spis(&left.child_sa("site_lan")), before[0], "unchanged");
    let after = spis(&left.child_sa("other_lan"));
    assert_ne!(after, before[1]);
    let [inbound, outbound] = spis(&right.child_sa("other_lan"));
    assert_eq!(after, [outbound, inbound]);
    passes(&hosts(&left, &right), b"undisturbed");

    // A tunnel that is no longer in the policy goes.
    left.write_policy(SITE[0]);
    assert!(left.ctl_ok(&["reload"]).starts_with("policy reloaded: 1 tunnel\n"));
    right.await_list(&["site_lan"]);
    assert_eq!(spis(&left.child_sa("site_lan")), before[0], "unchanged");
}

/// The algorithms of the sample, and its tunnel.
fn parts(sample: &str) -> [String; 2] {
    let kinds = [
        ["IKEProtection", "IPSecProposal", "IPSecProtection"],
        ["IKETunnel", "IKEPresharedKey", "IPSecTunnel"],
    ];
    kinds.map(|kinds| {
        let elements = kinds.map(|kind| element(sample, kind)).concat();
        format!("<AIX_VPN Version=\"2.1\">\n{elements}\n</AIX_VPN>\n")
    })
}

fn a_directory_is_one_policy() {
    let [mut left, mut right] = two();
    let [common, site] = parts(SITE[0]);
    left.use_directory();
    left.write_policy_of("00-common.xml", &common);
    left.write_policy_of("site.xml", &site);
    left.start();
    right.start();
    left.ctl_ok(&["activate"]);
    let before = spis(&left.child_sa("site_lan"));
    let why = left.ctl_ok(&["why", "site", "--json"]);
    for file in ["policy.d/site.xml\"", "policy.d/00-common.xml\""] {
        assert!(why.contains(file), "{why}");
    }
    let objects = left.ctl_ok(&["policy", "get"]);
    for name in ["site_p1", "site_p2", "site_gcm", "site_lan"] {
        assert!(objects.contains(name), "{objects}");
    }

    // One file with an error, and the whole directory is refused.
    left.write_policy_of("other.xml", &changed(&site, "192.0.2.2", "192.0.2.300"));
    let error = left.ctl_fails(&["reload"], 1);
    assert!(error.contains("policy.d/other.xml:") && error.contains("192.0.2.300"), "{error}");
    assert!(error.contains("the old policy stays in force"), "{error}");
    assert_eq!(spis(&left.child_sa("site_lan")), before);

    // Another file with another tunnel touches no other.
    let other = changed(&site, "IKE_TunnelName=\"site\"", "IKE_TunnelName=\"other\"");
    let other = changed(&other, "site_lan", "other_lan").replace("10.1.0.", "10.3.0.");
    let other = other.replace("10.2.0.", "10.4.0.");
    let other = other.replace("192.0.2.1\"", "192.0.2.11\"").replace("192.0.2.2\"", "192.0.2.12\"");
    left.write_policy_of("other.xml", &other);
    let told = left.ctl_ok(&["reload"]);
    assert!(told.starts_with("policy reloaded: 2 tunnels\n"), "{told}");
    assert_eq!(spis(&left.child_sa("site_lan")), before, "unchanged");

    // Without its files, a directory ends no tunnel.
    for file in ["00-common.xml", "site.xml", "other.xml"] {
        std::fs::remove_file(left.path("policy.d").join(file)).expect("it is there");
    }
    let error = left.ctl_fails(&["reload"], 1);
    assert!(error.contains("has no file whose name ends in .xml"), "{error}");
    assert_eq!(spis(&left.child_sa("site_lan")), before);
    passes(&hosts(&left, &right), b"undisturbed");
}
