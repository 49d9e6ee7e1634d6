//! The remarks about a policy: each entrance that a policy has tells every kind of them.

use libtest_mimic::Trial;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use testkit::gateway::{GIVES_UP, Gateway};
use testkit::process::Printing;
use testkit::{WITH_NFT, policies, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("every entrance tells every remark about a policy", WITH_NFT, everywhere),
        test("a gateway inside of a process tells the remarks about it", WITH_NFT, in_process),
        test(
            "traffic that the kernel cannot express is refused without a daemon",
            WITH_NFT,
            refused,
        ),
    ]
}

/// The kinds of remarks, each by its words about the policy and the configuration below.
const REMARKS: [&str; 10] = [
    "site_lan is never used: covered by rule 1",
    "site_lan: the guard does not know this tunnel",
    "IPsec of IPv6 is off: no phase 2 tunnel needs it",
    "tunnel site: no authority is trusted",
    "the crypto provider ring has no AES-CBC-256",
    "no network card",
    "2 SAs are keyed by hand in vpnd.toml",
    "[filter]: the default of IPv6 is permit",
    "the filter denies IPv4: what no tunnel",
    "families.toml are ignored",
];

/// The remark that only a gateway can make which runs the policy.
const OF_GATEWAY: &str = "tunnel site cannot come up";

/// Those about a gateway that uses nothing of the host.
const IN_PROCESS: [&str; 3] = [REMARKS[2], REMARKS[3], REMARKS[4]];

/// Lines of `[esp]`, with which a network card is wanted.
const ESP: &str = "dataplane = \"auto\"\noffload = \"auto\"\n";

/// A gateway about which everything is worth a remark.
fn gateway() -> Gateway {
    let gateway = Gateway::new("left", &policy(), GIVES_UP, ESP);
    let [kept, families] = ["filter.toml", "families.toml"].map(|name| gateway.path(name));
    fs::write(&kept, "ipv6 = \"permit\"\n").expect("writable");
    fs::write(&families, "ipv5 = true\n").expect("writable");
    let sa = |direction: &str, from: u8, to: u8| {
        let key = format!("0x{}", format!("{from}e").repeat(20));
        format!(
            "[[sa]]\nname = \"by hand\"\ndirection = \"{direction}\"\nsource = \"198.51.100.{from}\"\n\
             destination = \"198.51.100.{to}\"\nspi = 0x07\naead = \"rfc4106(gcm(aes))\"\nkey = \"{key}\"\n"
        )
    };
    gateway.configure(&format!(
        "sequences = {:?}\n[crypto]\nprovider = \"ring\"\n[tunnel.site_lan]\nif_id = 7\n\
         [filter]\nipv4 = \"deny\"\nipv6 = \"deny\"\nfile = {kept:?}\n\
         [[filter.rule]]\naction = \"discard\"\nremote = \"10.2.0.0/16\"\n\
         [families]\nipv6 = false\nfile = {families:?}\n{}{}",
        gateway.path("lib/sequences"),
        sa("out", 1, 2),
        sa("in", 2, 1),
    ));
    // It has keys.
    fs::set_permissions(gateway.path("vpnd.toml"), Permissions::from_mode(0o600)).expect("ours");
    gateway
}

fn policy() -> String {
    let cbc = policies::changed(&policies::site()[0], "ESP_AES256_GCM_16", "ESP_AES_CBC_256");
    let cbc = policies::changed(
        &cbc,
        "ESP_Authentication=\"NONE\"",
        "ESP_Authentication=\"HMAC-SHA2-256\"",
    );
    policies::changed(&cbc, "\"Preshared_key\"", "\"RSA_signatures\"")
}

/// The paths of the policy and of the configuration.
fn files(gateway: &Gateway) -> [String; 2] {
    ["policy.xml", "vpnd.toml"].map(|name| gateway.path(name).display().to_string())
}

/// These remarks are in the text, each once.
fn tells(entrance: &str, text: &str, remarks: &[&str]) {
    for remark in remarks {
        assert_eq!(text.matches(remark).count(), 1, "{entrance}: {remark}: {text}");
    }
}

/// Every remark that needs no gateway is in the text.
fn tells_all(entrance: &str, text: &str) {
    tells(entrance, text, &REMARKS);
}

/// Those of the gateway are there, too.
fn tells_all_running(entrance: &str, text: &str) {
    tells(entrance, text, &[&REMARKS[..], &[OF_GATEWAY]].concat());
}

/// The standard error of `vpnctl`, of a command that succeeds.
fn warned(gateway: &Gateway, arguments: &[&str]) -> String {
    let output = gateway.ctl(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

/// The lines that a command of `vpnctl`, which succeeds, has the daemon write to the log.
fn logged(gateway: &Gateway, arguments: &[&str]) -> String {
    let before = gateway.log().len();
    gateway.ctl_ok(arguments);
    gateway.log().split_off(before)
}

/// The lines that a start writes to the log.
fn started(gateway: &mut Gateway) -> String {
    let before = gateway.log().len();
    gateway.start();
    gateway.log().split_off(before)
}

/// `ikedb -pF`, which puts a policy file.
fn put_by_ikedb(gateway: &Gateway) -> Output {
    let [policy, config] = files(gateway);
    let links = gateway.path("links");
    gateway.ctl_ok(&["aix-links", &links.display().to_string()]);
    let mut ikedb = Command::new(links.join("ikedb"));
    ikedb.args(["-pF", &policy]).env("VPND_CONFIG", &config);
    ikedb.env("VPND_CONTROL", gateway.path("control.sock"));
    gateway.space.run(move || ikedb.output()).expect("it is linked")
}

fn everywhere() {
    let mut gateway = gateway();
    tells_all_running("the start", &started(&mut gateway));
    let [policy, config] = files(&gateway);
    let checked = gateway.vpnd(&["check", &policy]);
    assert!(checked.status.success(), "{checked:?}");
    tells_all("vpnd check", &String::from_utf8_lossy(&checked.stderr));
    let check = ["policy", "check", "--config", &config, &policy];
    tells_all("vpnctl policy check", &warned(&gateway, &check));
    tells_all_running("a reload", &warned(&gateway, &["reload"]));
    tells_all_running("a reload, in the log", &logged(&gateway, &["reload"]));
    tells_all("a reload that is only tried", &warned(&gateway, &["reload", "--dry-run"]));
    tells_all_running("vpnctl status", &gateway.ctl_ok(&["status"]));
    let status = gateway.json(&["status", "--json"]);
    let remarks = status["remarks"].as_array().expect("a list");
    let of_guard = remarks.iter().find(|remark| remark["kind"] == "guard").expect("it is told");
    assert_eq!(of_guard["severity"], "note", "{status}");
    assert_eq!(of_guard["tunnels"][0], "site_lan", "{status}");
    gateway.stop();

    gateway.use_store();
    gateway.start();
    tells_all("a put that is only tried", &warned(&gateway, &["policy", "diff", &policy]));
    tells_all_running("a put", &warned(&gateway, &["policy", "put", &policy]));
    tells_all_running("a reload of the store", &warned(&gateway, &["reload"]));
    gateway.stop();
    tells_all_running("a start from the store", &started(&mut gateway));
    gateway.stop();

    let told = put_by_ikedb(&gateway);
    assert!(told.status.success(), "{told:?}");
    tells_all("a put without a daemon", &String::from_utf8_lossy(&told.stderr));
}

fn in_process() {
    let gateway = gateway();
    let [policy, config] = files(&gateway);
    let mut exec = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    exec.args(["exec", "--policy", &policy, "--config", &config, "--", "true"]);
    let told = gateway.space.run(move || exec.output()).expect("vpnd is built");
    tells("vpnd exec", &String::from_utf8_lossy(&told.stderr), &IN_PROCESS);

    let mut proxy = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    proxy.args(["proxy", "--exit-with-parent", "--listen", "127.0.0.1:0"]);
    proxy.args(["--policy", &policy, "--config", &config]);
    let started = Printing::start_with_log(&gateway.space.0, proxy, &gateway.path("log"));
    let line = started.expect("vpnd is built").next_line();
    assert!(line.starts_with("ready: "), "{line:?}: {}", gateway.log());
    tells("vpnd proxy", &gateway.log(), &IN_PROCESS);
}

/// The traffic of this policy takes 900 policies of the kernel: thirty prefixes on either side.
fn wide() -> String {
    let wider = [
        ("\"10.1.0.0\"", "\"10.1.0.1\""),
        ("\"10.1.0.255\"", "\"10.1.255.254\""),
        ("\"10.2.0.0\"", "\"10.2.0.1\""),
        ("\"10.2.0.255\"", "\"10.2.255.254\""),
    ];
    wider.iter().fold(policies::site()[0].clone(), |text, (old, new)| text.replace(old, new))
}

/// No daemon runs here: with `dataplane = "xfrm"`, it needs a kernel with XFRM.
fn refused() {
    let is_refused = |entrance: &str, output: &Output| {
        let text =
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(!output.status.success(), "{entrance}: {text}");
        tells(entrance, &text, &["phase 2 tunnel site_lan: ", "more than 256"]);
    };
    let mut gateway = Gateway::new("left", &wide(), GIVES_UP, "");
    gateway.configure("[tunnel.site_lan]\ndataplane = \"xfrm\"\n");
    let [policy, config] = files(&gateway);
    assert!(!gateway.try_start(), "the kernel cannot express its policy");
    tells("the start", &gateway.log(), &["phase 2 tunnel site_lan: ", "more than 256"]);
    is_refused("vpnd check", &gateway.vpnd(&["check", &policy]));
    let check = ["policy", "check", "--config", &config, &policy];
    is_refused("vpnctl policy check", &gateway.ctl(&check));

    // The store is made by a first put.
    gateway.use_store();
    gateway.write_policy(&policies::site()[0].replace("site_lan", "other_lan"));
    assert!(put_by_ikedb(&gateway).status.success(), "userspace serves it");
    gateway.write_policy(&wide());
    is_refused("a put without a daemon", &put_by_ikedb(&gateway));
    let store = gateway.path("store");
    assert!(!holds(&store, "site_lan"), "nothing was stored");
}

/// Returns `true` if a file of a directory has this text.
fn holds(directory: &Path, text: &str) -> bool {
    let files = fs::read_dir(directory).expect("a directory").flatten();
    files.filter_map(|file| fs::read_to_string(file.path()).ok()).any(|all| all.contains(text))
}
