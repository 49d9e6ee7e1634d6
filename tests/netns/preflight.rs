//! The remarks about a policy before it is in force: each entrance that a policy has tells every kind of them.

use libtest_mimic::Trial;
use std::process::Command;
use testkit::gateway::{Gateway, PATIENT};
use testkit::{GATEWAYS, policies, test};

pub fn trials() -> Vec<Trial> {
    vec![test("every entrance tells every remark about a policy", GATEWAYS, everywhere)]
}

/// The kinds of remarks, each by its words about the policy and the configuration below.
const REMARKS: [&str; 5] = [
    "site_lan is never used: covered by rule 1",
    "site_lan: the guard does not know this tunnel",
    "tunnel site: no authority is trusted",
    "the crypto provider ring has no AES-CBC-256",
    "no network card",
];

/// A configuration with which everything about the policy is worth a remark: its lines of `[esp]`, and the rest.
const CONFIGURATION: [&str; 2] = [
    "dataplane = \"auto\"\noffload = \"auto\"\n",
    "[crypto]\nprovider = \"ring\"\n[tunnel.site_lan]\nif_id = 7\n\
     [[filter.rule]]\naction = \"discard\"\nremote = \"10.2.0.0/16\"\n",
];

fn policy() -> String {
    let cbc = policies::changed(&policies::site()[0], "ESP_AES256_GCM_16", "ESP_AES_CBC_256");
    let cbc = policies::changed(
        &cbc,
        "ESP_Authentication=\"NONE\"",
        "ESP_Authentication=\"HMAC-SHA2-256\"",
    );
    policies::changed(&cbc, "\"Preshared_key\"", "\"RSA_signatures\"")
}

/// Every remark is in the text, and once.
fn tells_all(entrance: &str, text: &str) {
    for remark in REMARKS {
        assert_eq!(text.matches(remark).count(), 1, "{entrance}: {remark}: {text}");
    }
}

/// The standard error of `vpnctl`, of a command that succeeds.
fn warned(gateway: &Gateway, arguments: &[&str]) -> String {
    let output = gateway.ctl(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// The lines that a start writes to the log.
fn logged(gateway: &mut Gateway) -> String {
    let before = gateway.log().len();
    gateway.start();
    gateway.log().split_off(before)
}

fn everywhere() {
    let [esp, rest] = CONFIGURATION;
    let mut gateway = Gateway::new("left", &policy(), PATIENT, esp);
    gateway.configure(rest);
    tells_all("the start", &logged(&mut gateway));
    let [policy, config] = ["policy.xml", "vpnd.toml"].map(|name| gateway.path(name));
    let [policy, config] = [&policy, &config].map(|path| path.display().to_string());
    let checked = gateway.vpnd(&["check", &policy]);
    assert!(checked.status.success(), "{checked:?}");
    tells_all("vpnd check", &String::from_utf8_lossy(&checked.stderr));
    let check = ["policy", "check", "--config", &config, &policy];
    tells_all("vpnctl policy check", &warned(&gateway, &check));
    tells_all("a reload", &warned(&gateway, &["reload"]));
    tells_all("a reload that is only tried", &warned(&gateway, &["reload", "--dry-run"]));
    gateway.stop();

    gateway.use_store();
    gateway.start();
    tells_all("a put that is only tried", &warned(&gateway, &["policy", "diff", &policy]));
    tells_all("a put", &warned(&gateway, &["policy", "put", &policy]));
    tells_all("a reload of the store", &warned(&gateway, &["reload"]));
    gateway.stop();
    tells_all("a start from the store", &logged(&mut gateway));
    gateway.stop();

    let links = gateway.path("links");
    gateway.ctl_ok(&["aix-links", &links.display().to_string()]);
    let mut ikedb = Command::new(links.join("ikedb"));
    ikedb.args(["-pF", &policy]).env("VPND_CONFIG", &config);
    ikedb.env("VPND_CONTROL", gateway.path("control.sock"));
    let told = gateway.space.run(move || ikedb.output()).expect("it is linked");
    assert!(told.status.success(), "{told:?}");
    tells_all("a put without a daemon", &String::from_utf8_lossy(&told.stderr));
}
