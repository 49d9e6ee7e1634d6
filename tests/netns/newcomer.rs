//! The commands of README.md, and of the pages that it begins with, in the roots of two gateways that have nothing but a
//! minimal Debian, and a host behind each.
//!
//! Each gateway has a default route to the other one, so that traffic that no tunnel protects would arrive, too.

mod machine;

use libtest_mimic::Trial;
use machine::Machine;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use testkit::space::Space;
use testkit::{FILTERED, Need, test, until};

const README: &str = include_str!("../../README.md");
const INSTALL: &str = include_str!("../../docs/start/install.md");
const FIRST: &str = include_str!("../../docs/start/first-tunnel.md");
const CERTIFICATES: &str = include_str!("../../docs/operate/certificates.md");
const STRONGSWAN: &str = include_str!("../../docs/migrate/from-strongswan.md");
const AIX: &str = include_str!("../../docs/migrate/from-aix.md");

const SETTINGS: [&str; 2] = [
    "echo 'net.ipv4.ip_forward = 1' | sudo tee /etc/sysctl.d/90-vpn.conf",
    "sudo sysctl -p /etc/sysctl.d/90-vpn.conf",
];
const NEW: &str =
    "vpnctl policy new --local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24";
const START: &str = "sudo vpnd start --policy /etc/vpnd/policy.xml";

pub fn trials() -> Vec<Trial> {
    const NEEDS: &[Need] = &[
        Need::All(FILTERED),
        Need::Program("unshare"),
        Need::Program("nsenter"),
        Need::Peer("newcomer", "usr/sbin/nft"),
    ];
    vec![test("a newcomer plays README.md in an empty Debian", NEEDS, newcomer)]
}

/// Two gateways on one wire, and a host behind each.
struct Site {
    gateways: [Machine; 2],
    hosts: [Space; 2],
}

impl Site {
    fn new() -> Self {
        let gateways = ["left", "right"].map(Machine::new);
        let hosts = ["left host", "right host"].map(Space::new);
        let site = Self { gateways, hosts };
        site.wire();
        site.lan(0);
        site.lan(1);
        site.hosts[1].ip("route add 10.1.0.0/24 via 10.2.0.1");
        site
    }

    /// Connects the gateways.
    fn wire(&self) {
        let [left, right] = self.gateways.each_ref().map(|gateway| &gateway.space);
        let ends = [["192.0.2.1/24"], ["192.0.2.2/24"]];
        Space::connect((left, "wire", &ends[0]), (right, "wire", &ends[1]));
        left.ip("route add default via 192.0.2.2");
        right.ip("route add default via 192.0.2.1");
    }

    /// Connects a gateway and the host behind it.
    fn lan(&self, end: usize) {
        let ends = [["10.1.0.1/24", "10.1.0.5/24"], ["10.2.0.1/24", "10.2.0.7/24"]];
        let [inner, own] = ends[end];
        let (gateway, host) = (&self.gateways[end].space, &self.hosts[end]);
        Space::connect((gateway, "lan", &[inner]), (host, "lan", &[own]));
    }

    /// Waits until an echo request from one host to the other one is answered.
    fn await_echo(&self) {
        let answered = || self.hosts[0].try_sh("ping -q -c 1 -W 1 10.2.0.7").0.then_some(());
        until("an answer of the other host", answered, || self.logs());
    }

    /// Sends traffic that must arrive, and must not be seen between the gateways.
    fn protects(&self) {
        let watch = self.gateways[0].space.watch("wire");
        if let Err(text) = self.hosts[0].pings("", 50, "10.2.0.7") {
            panic!("{text}\n{}", self.logs());
        }
        watch.nothing_in_the_clear();
    }

    fn await_up(&self, text: &str) {
        for gateway in &self.gateways {
            let up = || gateway.try_run("vpnctl status site").1.contains(text).then_some(());
            until(&format!("{text:?} in the status of {}", gateway.name), up, || self.logs());
        }
    }

    fn logs(&self) -> String {
        self.gateways.iter().map(|gateway| gateway.log()).collect()
    }
}

/// The commands of documents that were played.
static PLAYED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Commands of [`to_play`] that this test cannot play: they prepare and make the build that it uses, ask systemd, or
/// need a terminal, which `terminal.rs` has.
const ELSEWHERE: [&str; 5] = [
    "sudo apt install rustup ca-certificates gcc libc6-dev nftables",
    "rustup default stable",
    "cargo build --release",
    "sudo systemctl daemon-reload",
    "sudo vpnctl top",
];

fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A command that a document shows.
fn shown(document: &str, command: &'static str) -> &'static str {
    // A long command has two lines.
    let document = spaced(&document.replace("\\\n", " "));
    assert!(document.contains(&spaced(command)), "no document shows this command: {command}");
    PLAYED.lock().unwrap_or_else(PoisonError::into_inner).insert(spaced(command));
    command
}

/// The documents of which each command in a block is played, apart from those in [`ELSEWHERE`].
fn to_play() -> [&'static str; 4] {
    let section = |name: &str| {
        let section = README.split("\n## ").find(|section| section.starts_with(name));
        section.expect("a section")
    };
    [section("Install"), section("The first tunnel"), INSTALL, FIRST]
}

/// Each command of these documents has been played.
fn all_are_played() {
    let played = PLAYED.lock().unwrap_or_else(PoisonError::into_inner);
    let blocks = to_play().into_iter().flat_map(|document| document.split("```sh\n").skip(1));
    let mut count = 0;
    for line in blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines()) {
        let command = spaced(line.split(" #").next().unwrap_or_default());
        let elsewhere = command.is_empty() || ELSEWHERE.contains(&&*command);
        let known = elsewhere || played.contains(&command);
        assert!(known, "this test does not play a command of the documents: {command}");
        count += 1;
    }
    assert!(count > 20, "only {count} lines were found");
}

fn newcomer() {
    let mut site = Site::new();
    install(&site);
    first_tunnel(&mut site);
    all_are_played();
    reboot(&mut site);
    certificates(&site);
    aix(&mut site);
    converted(&mut site);
    for gateway in &mut site.gateways {
        gateway.run("vpnctl stop");
        gateway.await_end();
        gateway.run("vpnd uninstall");
        assert!(!gateway.try_run("vpnctl --version").0, "it is removed");
    }
}

fn install(site: &Site) {
    for gateway in &site.gateways {
        let told = gateway.run(shown(README, "sudo target/release/vpnd install"));
        assert!(told.contains("vpnctl policy new") && told.contains("vpnd start"), "{told}");
        for setting in SETTINGS {
            gateway.run(shown(FIRST, setting));
        }
        let (_, told) = gateway.try_run("vpnctl list");
        assert!(told.contains("start one with: vpnd start"), "{told}");
        let (_, told) = gateway.try_run("mkdir -p /run/systemd/system && vpnctl list");
        assert!(told.contains("start one with: systemctl start vpnd"), "{told}");
        gateway.run("rmdir /run/systemd/system");
        let (_, told) = gateway.try_run(shown(README, "sudo vpnd check /etc/vpnd/policy.xml"));
        assert!(told.contains("vpnctl policy new"), "{told}");
    }
    site.hosts[0].sh(shown(FIRST, "ip route add 10.2.0.0/24 via 10.1.0.1"));
    site.await_echo();
}

fn first_tunnel(site: &mut Site) {
    let [left, right] = &site.gateways;
    let told = left.run(shown(README, NEW));
    left.run(shown(README, "sudo install -D -m 600 left.xml /etc/vpnd/policy.xml"));
    let copy = "ssh root@192.0.2.2 'umask 077; cat > /etc/vpnd/policy.xml' < right.xml";
    assert!(told.contains(shown(README, copy)), "{told}");
    right.feed("umask 077; cat > /etc/vpnd/policy.xml", &left.run("cat right.xml"));
    for gateway in &mut site.gateways {
        let told = gateway.run("sudo vpnd check /etc/vpnd/policy.xml");
        assert!(told.contains("1 phase 1 tunnel, 1 phase 2 tunnel"), "{told}");
        gateway.start(shown(README, START));
    }
    site.await_echo();
    site.protects();
    site.hosts[0].sh(shown(FIRST, "ping -c 3 10.2.0.7"));
    for (command, words) in [
        ("sudo vpnctl list", ["site_lan  established", "10.2.0.0/24"]),
        ("sudo vpnctl status site", ["site_lan established", "AES-GCM-16-256"]),
        ("sudo vpnctl why site", ["site_lan  phase 2, established", "no recent failure"]),
        ("sudo vpnctl probe site", ["4 of 4 small packets", "octets inside the tunnel"]),
        ("vpnctl trace tcp 10.1.0.5:40000 10.2.0.7:443", ["protected by", "tunnel site_lan"]),
    ] {
        let told = site.gateways[0].run(shown(FIRST, command));
        assert!(words.iter().all(|word| told.contains(word)), "{command}: {told}");
    }
    let (_, told) = site.gateways[0].try_run("vpnctl certs");
    assert!(
        told.contains("No certificate is loaded") && told.contains("vpnctl pki init"),
        "{told}"
    );
    // A start after a reboot, as by the service: the gateways find each other without a command.
    site.gateways[0].crash();
    site.gateways[0].start(START);
    site.await_echo();
    site.gateways[1].run("vpnctl stop --keep-guard");
    site.gateways[1].await_end();
    site.gateways[1].start(START);
    site.await_echo();
    site.protects();
}

fn certificates(site: &Site) {
    let [left, right] = &site.gateways;
    left.run(shown(CERTIFICATES, "vpnctl pki init --name \"Example VPN CA\""));
    left.run(shown(CERTIFICATES, "vpnctl pki issue left --dns left.example.net"));
    left.run(shown(CERTIFICATES, "vpnctl pki issue right --dns right.example.net"));
    let new = "--certificates --local-id left.example.net --remote-id right.example.net";
    left.run(&format!("{NEW} {} --force", shown(CERTIFICATES, new)));
    left.run("install -D -m 600 left.xml /etc/vpnd/policy.xml");
    right.feed("umask 077; cat > /etc/vpnd/policy.xml", &left.run("cat right.xml"));
    for (gateway, end) in [(left, "left"), (right, "right")] {
        let files = left.run(&format!("tar -C pki/ends/{end} -c ca certs private crls | base64"));
        let there = shown(CERTIFICATES, "tar -C /etc/vpnd --no-same-owner -x");
        gateway.feed(&format!("base64 -d | {there}"), &files);
        let told = gateway.run("vpnd check /etc/vpnd/policy.xml");
        assert!(told.contains("proves itself  certificate"), "{told}");
    }
    for gateway in [right, left] {
        let told = gateway.run("vpnctl reload && vpnctl certs");
        assert!(told.contains("policy reloaded: 1 tunnel"), "{told}");
        assert!(told.contains("authority") && told.contains("revocation list"), "{told}");
    }
    site.await_up("left.example.net");
    site.await_up("site_lan established");
    site.await_echo();
    site.protects();
}

/// The steps of systemd at a start: kernel settings, then the daemon, while the network is being set up.
fn reboot(site: &mut Site) {
    let left = &mut site.gateways[0];
    left.reboot();
    left.run("sysctl --system");
    let unit = left.run("cat /usr/local/lib/systemd/system/vpnd.service");
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    left.start(command.expect("the unit has a command"));
    site.wire();
    site.lan(0);
    site.hosts[0].ip("route add 10.2.0.0/24 via 10.1.0.1");
    site.await_echo();
    site.protects();
}

/// The gateways as strongSwan had them.
const SWANCTL: &str = "connections {
    site {
        local_addrs = 192.0.2.1
        remote_addrs = 192.0.2.2
        proposals = aes256-sha256-ecp256
        dpd_delay = 20s
        local {
            auth = psk
            id = 192.0.2.1
        }
        remote {
            auth = psk
            id = 192.0.2.2
        }
        children {
            lan {
                local_ts = 10.1.0.0/24
                remote_ts = 10.2.0.0/24
                esp_proposals = aes256gcm16-ecp256
                start_action = start
            }
        }
    }
}
secrets {
    ike-site {
        id = 192.0.2.2
        secret = a-secret-of-both-gateways-made-at-random
    }
}
";

fn converted(site: &mut Site) {
    let [left, right] = &site.gateways;
    left.feed("mkdir -p /etc/swanctl && cat > /etc/swanctl/swanctl.conf", SWANCTL);
    const CONVERT: &str = "vpnctl policy convert /etc/swanctl/swanctl.conf --output policy.xml \
                           --settings vpnd.toml";
    left.run(shown(STRONGSWAN, CONVERT));
    left.run(shown(STRONGSWAN, "vpnd check policy.xml"));
    left.run("vpnctl policy convert /etc/swanctl/swanctl.conf --peer --output peer.xml");
    left.run(shown(STRONGSWAN, "install -D -m 600 policy.xml /etc/vpnd/policy.xml"));
    right.feed("umask 077; cat > /etc/vpnd/policy.xml", &left.run("cat peer.xml"));
    assert!(left.run("cat vpnd.toml").contains("liveness_interval = \"20s\""));
    left.run("cp vpnd.toml /etc/vpnd/vpnd.toml");
    for gateway in &mut site.gateways {
        gateway.run("vpnctl stop");
        gateway.await_end();
        gateway.start(START);
    }
    site.await_up("lan established");
    let told = site.gateways[0].run(shown(STRONGSWAN, "vpnctl list --all"));
    assert!(told.contains("lan     established") || told.contains("lan   established"), "{told}");
    site.await_echo();
    site.protects();
}

fn aix(site: &mut Site) {
    let left = &mut site.gateways[0];
    left.run(shown(AIX, "sudo vpnctl aix-links /usr/local/bin"));
    let (_, told) = left.try_run("ikedb -x");
    assert!(told.contains("docs/operate/policy.md") && !told.contains("--directory"), "{told}");
    left.run("stopsrc -g ike");
    left.await_end();
    left.start("vpnd start");
    assert_eq!(left.run("ike cmd=list"), "");
    left.run("cp left.xml site.xml");
    left.run(shown(AIX, "ikedb -p site.xml"));
    left.run(shown(AIX, "ike cmd=activate"));
    let told = left.run("ike cmd=list");
    assert_eq!(told.matches("Active").count(), 2, "{told}");
    site.await_echo();
}
