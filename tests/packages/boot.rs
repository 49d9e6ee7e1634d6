//! A gateway with the units that `vpnd install` leaves, under systemd: nothing of its tunnel leaves in the clear
//! between the first moment of the boot and the last one before the power is off.
//!
//! The gateway has a default route past the tunnel, to the other gateway, where a rule of the kernel counts every
//! packet of the tunnel's traffic that arrives as it is. Programs of the gateway and a host behind it send all the
//! time, also while the gateway is off. Its outer interface is configured after `network-pre.target`, as all services
//! do that configure a network, and stays configured when they end.

use crate::machine::Machine;
use libtest_mimic::Trial;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::SITE;
use testkit::space::Space;
use testkit::{FILTERED, Need, test, until};

pub const NEEDS: &[Need] = &[
    Need::All(FILTERED),
    Need::Program("unshare"),
    Need::Program("nsenter"),
    Need::File("/bin/busybox"),
    Need::Peer("debian", "usr/sbin/nft"),
];

pub fn trials() -> Vec<Trial> {
    vec![
        test("under systemd: nothing leaks from boot to power-off", NEEDS, boot_to_power_off),
        test("under systemd: a policy that cannot be read at boot", NEEDS, unreadable),
        test("under systemd: nothing leaks while cloud-init has a network", NEEDS, early_network),
        test("under systemd: nothing leaks while others load rules", NEEDS, others_load_rules),
    ]
}

/// A service that configures the outer interface, and leaves it configured.
const OUTER: &str = "[Unit]
DefaultDependencies=no
Wants=network-pre.target network.target
After=network-pre.target
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/ip link set wire up
ExecStart=/usr/local/sbin/ip address add 192.0.2.1/24 dev wire
ExecStart=/usr/local/sbin/ip route add default via 192.0.2.2
[Install]
WantedBy=multi-user.target
";

/// As [`OUTER`], before `network-pre.target`, as cloud-init does.
const CLOUD: &str = "[Unit]
DefaultDependencies=no
Wants=network-pre.target
Before=network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/ip link set wire up
ExecStart=/usr/local/sbin/ip address add 192.0.2.1/24 dev wire
ExecStart=/usr/local/sbin/ip route add default via 192.0.2.2
[Install]
WantedBy=multi-user.target
";

/// A service that begins late, and removes all rules of nftables as it begins and ends.
const LATE: &str = "[Unit]
After=basic.target
Before=network-pre.target
Wants=network-pre.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/nft flush ruleset
ExecStop=/usr/sbin/nft flush ruleset
[Install]
WantedBy=multi-user.target
";

/// Packets of each sender after which a transition is judged.
const SOME: u64 = 200;

/// Sends until it is dropped.
struct Sender {
    tried: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Sends to the network behind the other gateway, from an address of a host. 0.0.0.0: the kernel selects one by the
    /// route.
    fn start(space: &Space, from: &'static str) -> Self {
        let socket = space.run(move || UdpSocket::bind((from, 0)).expect("an address of the host"));
        let (tried, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&tried), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                // The result does not matter: nothing may be on the wire.
                let _ = socket.send_to(b"secret", ("10.2.0.1", 4567));
                count.fetch_add(1, Ordering::Relaxed);
                // Nothing depends on this pace; it leaves the processor to others.
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Self { tried, stop, thread: Some(thread) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The gateway under systemd, the other gateway, and the traffic.
struct Site {
    left: Machine,
    right: Gateway,
    /// A host behind the left gateway.
    lan: Space,
    senders: Vec<Sender>,
}

impl Site {
    /// A gateway on which everything is installed and nothing is enabled. It is off.
    fn new() -> Self {
        let mut left = Machine::new("left");
        let [vpnd, vpnctl] = [env!("CARGO_BIN_EXE_vpnd"), testkit::vpnctl()];
        for (from, to) in
            [(vpnd, "vpnd"), (vpnctl, "vpnctl"), ("/bin/busybox", "/usr/local/sbin/ip")]
        {
            left.copy(Path::new(from), to);
        }
        let told = left
            .run("chmod 755 vpnd vpnctl /usr/local/sbin/ip && ./vpnd install && rm vpnd vpnctl");
        assert!(told.contains("systemctl enable vpn-guard vpnd && "), "{told}");
        left.run(
            "vpnctl policy new --local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24",
        );
        left.run("install -m 600 left.xml /etc/vpnd/policy.xml");
        write_unit(&left, "outer", OUTER);
        left.run("systemctl enable outer");

        let right = Gateway::new("right", SITE[1], PATIENT, "");
        let policy = std::fs::read_to_string(left.file("right.xml")).expect("it is written");
        right.write_policy(&policy);
        right.space.ip("address add 10.2.0.1/32 dev lo");
        for line in [
            "add table inet leaks",
            "add counter inet leaks seen",
            "add chain inet leaks c { type filter hook prerouting priority -400 ; }",
            "add rule inet leaks c iifname wire ip daddr 10.2.0.0/24 counter name seen",
        ] {
            right.space.sh(&format!("nft {line}"));
        }
        left.power_off();
        Self { left, right, lan: Space::new("lan"), senders: Vec::new() }
    }

    /// Connects the gateway, which is off, with new wires, and begins to send.
    fn plug(&mut self) {
        self.senders.clear();
        // The kernel removes what is left of an old network in its own time.
        let _ = self.right.space.try_sh("ip link del wire");
        self.left.forget_network();
        self.lan = Space::new("lan");
        let (left, lan) = (&self.left.space, &self.lan);
        Space::connect((left, "wire", &[]), (&self.right.space, "wire", &["192.0.2.2/24"]));
        left.ip("link set wire down");
        Space::connect((left, "inside", &["10.1.0.130/31"]), (lan, "outside", &["10.1.0.131/31"]));
        lan.ip("route add default via 10.1.0.130");
        left.set("ipv4/ip_forward", "1");
        left.ip("address add 10.1.0.1/32 dev lo");
        self.senders = vec![
            Sender::start(left, "10.1.0.1"),
            Sender::start(left, "0.0.0.0"),
            Sender::start(lan, "10.1.0.131"),
        ];
    }

    /// Boots the gateway, which is off. The tunnel comes up.
    fn begin(&mut self) {
        self.plug();
        self.quietly("boot", |site| site.left.boot());
        self.passes();
    }

    /// Powers the gateway off and on.
    fn reboot(&mut self) {
        self.quietly("power-off", |site| site.left.power_off());
        self.plug();
        self.quietly("boot", |site| site.left.boot());
    }

    /// Packets in the clear that have arrived so far.
    fn seen(&self) -> u64 {
        let text = self.right.space.sh("nft list counter inet leaks seen");
        let packets = text.split_whitespace().skip_while(|word| *word != "packets").nth(1);
        packets.and_then(|number| number.parse().ok()).expect("nft shows the counter")
    }

    /// Lets something happen under traffic, of which nothing is seen on the wire.
    fn quietly(&mut self, what: &str, work: impl FnOnce(&mut Self)) {
        let before = self.seen();
        work(self);
        for sender in &self.senders {
            let enough = sender.tried.load(Ordering::Relaxed) + SOME;
            let done = || (sender.tried.load(Ordering::Relaxed) >= enough).then_some(());
            until("some packets more", done, String::new);
        }
        let leaked = self.seen() - before;
        assert_eq!(leaked, 0, "{what}: packets in the clear\n{}", self.state());
    }

    /// The same for a command on the gateway, which must succeed.
    fn quietly_runs(&mut self, line: &str) {
        self.quietly(line, |site| drop(site.left.run(line)));
    }

    /// Something is seen on the wire, by which the counter is known to count.
    fn leaks(&self, what: &str) {
        let before = self.seen();
        let seen = || (self.seen() > before).then_some(());
        until(&format!("packets in the clear: {what}"), seen, || self.state());
    }

    /// Traffic passes the tunnel.
    fn passes(&self) {
        let echo =
            || self.left.space.try_sh("ping -q -c 1 -W 1 -I 10.1.0.1 10.2.0.1").0.then_some(());
        until("an answer through the tunnel", echo, || self.state());
    }

    /// Waits until the guard is there, and its watch holds it, too.
    fn guarded(&self) {
        let there = |table| self.left.try_run(&format!("nft list table inet {table}")).0;
        let both = || (there("vpn_guard_vpn0") && there("vpn_watch_vpn0")).then_some(());
        until("the guard is put back", both, || self.state());
    }

    fn state(&self) -> String {
        let state =
            ["nft list ruleset", "ip rule", "ip route"].map(|line| self.left.space.try_sh(line).1);
        state.concat() + &self.left.log() + &self.right.log()
    }
}

fn write_unit(machine: &Machine, name: &str, text: &str) {
    machine.run(&format!("cat > /etc/systemd/system/{name}.service <<'END'\n{text}END"));
}

/// The lines of the log about the tunnel are found by their fields, which vpnd's helper has sent.
fn log_has_fields(site: &Site) {
    let found = |fields: &str| {
        let line = format!("journalctl --quiet --no-pager -o cat -u vpnd {fields}");
        let lines = || Some(site.left.try_run(&line).1).filter(|lines| !lines.is_empty());
        until(&format!("lines with {fields}"), lines, || site.state())
    };
    let up = found("TUNNEL=site CHILD=site_lan EVENT=established PEER=192.0.2.2");
    let spi = up.split("SPIs ").nth(1).and_then(|text| text.split_whitespace().next());
    let spi = spi.unwrap_or_else(|| panic!("no SPI in {up}"));
    assert!(up.contains(found(&format!("SPI={spi} PRIORITY=6 SYSLOG_IDENTIFIER=vpnd")).trim()));
    let ready = found("PRIORITY=6");
    assert!(ready.contains("ready: 1 tunnel") && ready.contains(up.lines().next().unwrap_or(&up)));
    let (_, other) = site.left.try_run("journalctl --no-pager -o cat TUNNEL=other");
    assert!(!other.contains("site"), "{other}");
}

fn boot_to_power_off() {
    let mut site = Site::new();
    site.right.start();
    site.plug();
    site.left.boot();
    site.leaks("no unit is enabled");
    site.left.run("systemctl enable vpn-guard vpnd");
    // The next steps are about the units from their beginning.
    site.left.power_off();
    site.begin();
    log_has_fields(&site);
    for line in [
        // More often than systemd allows by default within ten seconds.
        "for _ in 1 2 3 4 5 6 7; do systemctl restart vpnd || exit; done",
        "systemctl reload vpnd",
        "systemctl kill --signal=TERM vpnd",
        "systemctl start vpnd",
        "systemctl restart vpn-guard",
        "vpnctl stop",
        "systemctl restart vpn-guard",
        "systemctl stop vpn-guard",
        "systemctl start vpnd",
    ] {
        site.quietly_runs(line);
    }
    site.passes();
    site.reboot();
    site.passes();
    // The way out is a command of its own.
    site.quietly_runs("systemctl disable --now vpnd vpn-guard");
    let (removed, told) = site.left.try_run("vpnd uninstall");
    assert!(!removed && told.contains("vpnd release"), "{told}");
    let told = site.left.run("vpnd release");
    assert!(told.starts_with("released: "), "{told}");
    site.leaks("the guard is released");
    site.left.run("vpnd uninstall");
}

fn early_network() {
    let mut site = Site::new();
    site.right.start();
    site.plug();
    site.left.boot();
    site.left.run("systemctl disable outer");
    write_unit(&site.left, "cloud-init-local", CLOUD);
    site.left.run("systemctl enable cloud-init-local");
    site.left.power_off();
    site.plug();
    site.left.boot();
    site.leaks("no unit of vpnd is enabled");
    site.left.run("systemctl enable vpn-guard vpnd");
    site.left.power_off();
    site.begin();
    site.reboot();
    site.passes();
    // No order is a circle, which systemd would break by leaving out a unit.
    let told = site.left.run("journalctl --quiet --no-pager --boot -o cat");
    assert!(!told.contains("ordering cycle"), "{told}");
}

/// Debian's rules for nftables begin with `flush ruleset`, and its service flushes them again as it ends.
fn others_load_rules() {
    let mut site = Site::new();
    site.right.start();
    site.plug();
    site.left.boot();
    write_unit(&site.left, "late", LATE);
    site.left.run("systemctl enable vpn-guard vpnd nftables late");
    assert!(site.left.run("cat /etc/nftables.conf").contains("flush ruleset"));
    site.left.power_off();
    site.begin();
    let all =
        ["restart nftables", "reload nftables", "stop nftables", "start nftables", "restart late"];
    for what in all {
        site.quietly_runs(&format!("systemctl {what}"));
    }
    site.passes();
    site.quietly_runs("systemctl stop vpnd");
    for what in all {
        site.guarded();
        site.quietly_runs(&format!("systemctl {what}"));
    }
    // The watch is started again after its crash.
    let main = |site: &Site| site.left.run("systemctl show vpn-guard -P MainPID").trim().to_owned();
    let before = main(&site);
    site.quietly_runs("systemctl kill --signal=KILL vpn-guard");
    let again = || (!["0", &*before].contains(&&*main(&site))).then_some(());
    until("another watch", again, || site.state());
    site.guarded();
    site.quietly_runs("nft flush ruleset");
    site.guarded();
    site.quietly_runs("systemctl start vpnd");
    site.passes();
    site.reboot();
    site.passes();
    site.quietly("power-off", |site| site.left.power_off());
}

fn unreadable() {
    let mut site = Site::new();
    site.right.start();
    site.plug();
    site.left.boot();
    site.left.run("systemctl enable vpn-guard vpnd");
    site.left.power_off();
    site.begin();
    let status = |site: &Site| {
        let show = |property| site.left.run(&format!("systemctl show vpn-guard -P {property}"));
        ["ActiveState", "ExecMainStatus", "StatusText"].map(show).concat()
    };
    assert!(
        status(&site).contains("guarding the tunnels of /etc/vpnd/policy.xml"),
        "{}",
        status(&site)
    );
    // A reload changes what is guarded at the next boot.
    let larger = "sed -i s/10.2.0.255/10.2.1.255/ /etc/vpnd/policy.xml && systemctl reload vpnd";
    site.quietly_runs(larger);
    let kept = site.left.run("stat -c %a /var/lib/vpnd/guard.vpn0; cat /var/lib/vpnd/guard.vpn0");
    assert!(kept.starts_with("600\n") && kept.contains("10.2.0.0-10.2.1.255"), "{kept}");

    site.left.run("cp /etc/vpnd/policy.xml good.xml; echo nonsense > /etc/vpnd/policy.xml");
    site.reboot();
    let told = status(&site);
    assert!(
        told.starts_with("active\n") && told.contains("by the last good policy, of 20"),
        "{told}"
    );
    assert!(site.left.run("nft list table inet vpn_guard_vpn0").contains("10.2.0.0"));
    // vpnd is not started again and again, and its status tells the cause.
    let show = |property| site.left.run(&format!("systemctl show vpnd -P {property}"));
    assert_eq!(show("ActiveState") + &show("ExecMainStatus"), "failed\n78\n");
    let (_, told) = site.left.try_run("systemctl status --no-pager --full vpnd");
    assert!(told.contains("Status: \"/etc/vpnd/policy.xml:1:1: error: "), "{told}");
    let (_, told) = site.left.try_run("vpnd guard --policy /etc/vpnd/policy.xml; echo status $?");
    assert!(told.contains("nonsense") || told.contains("policy.xml"), "{told}");
    assert!(told.contains("the last good guard") && told.contains("status 4"), "{told}");
    // The configuration may have the errors.
    site.left.run("cp /etc/vpnd/vpnd.toml good.toml; echo nonsense >> /etc/vpnd/vpnd.toml");
    site.left.run("cp good.xml /etc/vpnd/policy.xml");
    site.reboot();
    assert!(status(&site).contains("vpnd.toml"), "{}", status(&site));

    // Without either, the guard says loudly that there is none.
    site.left.run("rm /var/lib/vpnd/guard.vpn0; cp good.toml /etc/vpnd/vpnd.toml");
    site.left.run("echo nonsense > /etc/vpnd/policy.xml");
    site.quietly("power-off", |site| site.left.power_off());
    site.plug();
    site.left.boot();
    site.leaks("nothing can be guarded");
    assert!(status(&site).contains("failed\n78"), "{}", status(&site));
    assert!(site.left.log().contains("NOTHING IS GUARDED"), "{}", site.left.log());
    // The mended policy guards without another command, since vpnd wants the guard.
    site.left.run(
        "cp good.xml /etc/vpnd/policy.xml && systemctl reset-failed && systemctl restart vpnd",
    );
    site.quietly("mended", |_| {});
    site.passes();
    assert!(site.left.run("systemctl is-active vpn-guard").starts_with("active"));
}
