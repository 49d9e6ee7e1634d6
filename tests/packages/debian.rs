//! `vpnd.deb` under systemd: installed, used, upgraded, removed.

use crate::machine::{DEBIAN_12, DEBIAN_13, Machine};
use crate::{NEEDS, PACKAGES, package_to};
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use testkit::space::Space;
use testkit::{Need, Stopped, test, until};

const NEW: &str =
    "vpnctl policy new --local 192.0.2.1 --remote 192.0.2.2 --protect 10.1.0.0/24=10.2.0.0/24";

pub fn trials() -> Vec<Trial> {
    vec![
        test("the Debian package: a tunnel under systemd", NEEDS, tunnel),
        test("the Debian package: an upgrade", NEEDS, upgrade),
        test("the Debian package: nothing is left", NEEDS, || purge(DEBIAN_13)),
        test("the Debian package: how far systemd confines the service", NEEDS, || {
            confinement(DEBIAN_13);
        }),
        test("the packages: the same programs make the same octets", NEEDS, same_octets),
        test("the packages: the licenses of all libraries", NEEDS, licenses),
        test("the Debian package: each dependency is named once", NEEDS, dependencies),
        test("the wheel: the licenses of all libraries", NEEDS, licenses_of_the_wheel),
        test("the packages: the documents with their pictures and samples", NEEDS, documents),
        test("the Debian package: lintian finds no error", CHECKED, no_error),
    ]
}

/// Those on an older Debian.
pub fn trials_on_12() -> Vec<Trial> {
    vec![
        test("the Debian package: a tunnel from Debian 12 to Debian 13", OLDER, || {
            drop(Site::of([DEBIAN_12, DEBIAN_13]));
        }),
        test("the Debian package: nothing is left on Debian 12", OLDER, || purge(DEBIAN_12)),
        test("the Debian package: how far the systemd of Debian 12 confines it", OLDER, || {
            confinement(DEBIAN_12);
        }),
    ]
}

const OLDER: &[Need] = &[Need::All(NEEDS), Need::Peer("debian12", "usr/sbin/nft")];
const CHECKED: &[Need] = &[Need::All(NEEDS), Need::Program("lintian")];

/// Two gateways, each with an address of the network behind it.
struct Site([Machine; 2]);

impl Site {
    /// Two gateways with the installed package, and a tunnel that is up.
    fn new() -> Self {
        Self::of([DEBIAN_13; 2])
    }

    /// The same on machines with these roots.
    fn of(roots: [&'static str; 2]) -> Self {
        let [left, right] = roots;
        let site = Self([Machine::of(left, "left"), Machine::of(right, "right")]);
        site.wire();
        let [left, right] = &site.0;
        for machine in &site.0 {
            install(machine, 0);
        }
        left.run(NEW);
        left.run("install -m 600 left.xml /etc/vpnd/policy.xml");
        right.copy(&left.file("right.xml"), "/etc/vpnd/policy.xml");
        for machine in [right, left] {
            machine.run("systemctl enable --now vpn-guard vpnd");
        }
        site.await_echo();
        site
    }

    /// Connects the gateways. Each has a default route to the other one, so that traffic that no tunnel protects would
    /// arrive.
    fn wire(&self) {
        let [left, right] = self.0.each_ref().map(|machine| &machine.space);
        Space::connect((left, "wire", &["192.0.2.1/24"]), (right, "wire", &["192.0.2.2/24"]));
        for (space, inner, other) in
            [(left, "10.1.0.1/32", "192.0.2.2"), (right, "10.2.0.1/32", "192.0.2.1")]
        {
            if !space.ip("address show dev lo").contains(inner) {
                space.ip(&format!("address add {inner} dev lo"));
            }
            space.ip(&format!("route replace default via {other}"));
        }
    }

    fn await_echo(&self) {
        let echo =
            || self.0[0].space.try_sh("ping -q -c 1 -W 1 -I 10.1.0.1 10.2.0.1").0.then_some(());
        until("an answer through the tunnel", echo, || self.logs());
    }

    /// Does something while packets are sent; none of them leaves in the clear. The tunnel is up again afterwards.
    fn protects(&self, work: impl FnOnce(&Machine)) {
        let [left, _] = &self.0;
        let watch = left.space.watch("wire");
        let sender = left.space.run(|| {
            let mut ping = Command::new("ping");
            ping.args(["-q", "-i", "0.002", "-I", "10.1.0.1", "10.2.0.1"]);
            ping.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn()
        });
        let mut sender = sender.expect("ping is there");
        work(left);
        self.await_echo();
        sender.kill().expect("a child of ours");
        sender.wait().expect("a child of ours");
        watch.nothing_in_the_clear();
    }

    fn logs(&self) -> String {
        self.0.iter().map(Machine::log).collect()
    }
}

/// Installs a version of the package as an administrator does.
fn install(machine: &Machine, version: usize) -> String {
    machine.copy(&PACKAGES[version].join("vpnd.deb"), "vpnd.deb");
    machine.run("dpkg --install vpnd.deb 2>&1")
}

fn tunnel() {
    let mut site = Site::new();
    let [left, right] = &site.0;
    for (line, words) in [
        ("vpnd --version", "vpnd 0.1.0"),
        ("cat /etc/vpnd/vpnd.toml", "[log]"),
        ("zcat /usr/share/man/man8/vpnd.8.gz", "IKEv2"),
        ("systemctl show vpnd -P WatchdogUSec", "2min"),
        ("systemctl is-enabled vpnd vpn-guard", "enabled"),
        ("stat -c %a /etc/vpnd/private", "700"),
        (
            "vpnctl status",
            "by no_new_privs, Landlock, capabilities, seccomp, a helper for nft, fixed code\n",
        ),
    ] {
        let (_, told) = left.try_run(line);
        assert!(told.contains(words), "{line}: {told}");
    }
    let main = || left.run("systemctl show vpnd -P MainPID").trim().to_owned();

    let before = main();
    site.protects(|left| drop(left.run("systemctl reload vpnd")));
    assert_eq!(main(), before, "a reload keeps the process");
    site.protects(|left| drop(left.run("systemctl restart vpnd")));
    assert_ne!(main(), before);

    let anew = |why: &str, end: &dyn Fn(&Machine, &str) -> Option<Stopped>| {
        let before = main();
        site.protects(|left| {
            let _stopped = end(left, &before);
            let is_new = || (!["0", before.as_str()].contains(&main().as_str())).then_some(());
            until(&format!("a new vpnd after {why}"), is_new, || left.log());
        });
    };
    let signal = |signal: &'static str| {
        move |left: &Machine, process: &str| {
            left.run(&format!("kill -{signal} {process}"));
            None::<Stopped>
        }
    };
    let daemon = || {
        let line = "vpnctl status --json | sed -n 's/^ *\"pid\": \\([0-9]*\\).*/\\1/p' | head -n 1";
        left.run(line).trim().to_owned()
    };
    assert_ne!(daemon(), main(), "the helper speaks for the service");
    anew("a crash of the helper", &signal("KILL"));
    let to_daemon = |signal: &'static str| {
        let daemon = &daemon;
        move |left: &Machine, _: &str| {
            left.run(&format!("kill -{signal} {}", daemon()));
            None::<Stopped>
        }
    };
    anew("a crash", &to_daemon("KILL"));
    // systemd watches the engine and the threads that carry packets.
    left.run("mkdir -p /run/systemd/system/vpnd.service.d");
    left.run(
        "printf '[Service]\\nWatchdogSec=3s\\n' > /run/systemd/system/vpnd.service.d/test.conf",
    );
    left.run("systemctl daemon-reload && systemctl restart vpnd");
    let beats = || left.run("systemctl show vpnd -P WatchdogTimestampMonotonic");
    let first = beats();
    until("a sign of life", || (beats() != first).then_some(()), || left.log());
    anew("a standstill", &to_daemon("STOP"));
    assert!(left.log().contains("atchdog"), "{}", left.log());
    let worker = left.run("vpnctl workers --json | sed -n 's/.*\"name\": \"\\(.*-0\\)\".*/\\1/p'");
    anew("a worker that is stuck", &|left: &Machine, _| {
        Some(Stopped::new(left.process(&daemon()), worker.trim()))
    });
    assert!(
        left.log().contains(&format!("the thread {} is stuck", worker.trim())),
        "{}",
        left.log()
    );

    let told = left.run("vpnctl support --output support.tar.gz");
    assert!(!told.contains("log.txt"), "the journal is the log: {told}");
    let journal = left.run("tar xzOf support.tar.gz --wildcards '*/journal.txt'");
    assert!(journal.contains("ready: 1 tunnel"), "{journal}");
    let service = left.run("tar xzOf support.tar.gz --wildcards '*/service.txt'");
    assert!(service.contains("ActiveState=active"), "{service}");

    right.run("systemctl stop vpnd");
    assert_eq!(right.run("systemctl show vpnd -P Result").trim(), "success", "{}", right.log());
    // AIX's command starts the service.
    right.run("vpnctl aix-links /usr/local/bin");
    let told = right.run("/usr/local/bin/startsrc -g ike");
    assert!(told.contains("The tmd Subsystem has been started"), "{told}");
    let status = right.run("vpnctl status --json");
    let number = told.split("PID is ").nth(1).and_then(|text| text.split('.').next());
    let number = number.unwrap_or_else(|| panic!("no number in {told}"));
    assert!(status.contains(&format!("\"pid\": {number}")), "{told}{status}");
    site.0[0].reboot();
    assert!(site.0[0].run("vpnd guard --show").contains("guard"), "in force without a network");
    site.wire();
    site.await_echo();
    site.protects(|_| ());
}

fn upgrade() {
    let site = Site::new();
    site.0[0].run("printf '\\n# Ours.\\n' >> /etc/vpnd/vpnd.toml");
    site.protects(|left| {
        let told = install(left, 1);
        assert!(told.contains("(0.1.1-1) over (0.1.0-1)"), "{told}");
    });
    let [left, right] = &site.0;
    assert_eq!(left.run("dpkg-query -W -f '${Version}' vpnd"), "0.1.1-1");
    assert!(left.run("cat /etc/vpnd/vpnd.toml").ends_with("# Ours.\n"));
    assert!(left.run("systemctl is-active vpnd vpn-guard").starts_with("active\nactive"));
    // Without the unit that guards, too.
    site.0[0].run("systemctl mask --now vpn-guard && systemctl stop vpnd && vpnd release");
    site.0[0].run("systemctl start vpnd");
    site.await_echo();
    site.protects(|left| drop(install(left, 0)));

    // A daemon that does not start keeps what it guards, and the package is installed all the same.
    right.run("echo nonsense > /etc/vpnd/policy.xml");
    let told = install(right, 1);
    assert!(told.contains("The new vpnd does not start"), "{told}");
    assert_eq!(right.run("dpkg-query -W -f '${Status}' vpnd"), "install ok installed");
    let tables = right.run("nft list ruleset");
    assert!(
        tables.contains("table inet vpn_guard_vpn0"),
        "the guard is gone: {tables}\n{}",
        right.log()
    );
    // The way out.
    right.run("systemctl stop vpnd; vpnd release");
    assert_eq!(right.run("nft list ruleset"), "");
}

fn purge(root: &'static str) {
    let machine = Machine::of(root, "left");
    let before = files(&machine);
    install(&machine, 0);
    let peer = Space::new("right");
    Space::connect((&machine.space, "wire", &["192.0.2.1/24"]), (&peer, "wire", &["192.0.2.2/24"]));
    let network = machine.space.state();
    machine.run(NEW);
    machine.run("install -m 600 left.xml /etc/vpnd/policy.xml && rm left.xml right.xml vpnd.deb");
    machine.run("systemctl enable --now vpn-guard vpnd");
    machine.run(
        "touch /var/lib/vpnd/record /var/cache/vpnd/list /var/log/vpnd.log /var/log/vpnd.log.1",
    );
    let told = machine.run("dpkg --remove vpnd");
    assert!(told.contains("released: "), "{told}");
    machine.space.is_as_before(&network);
    assert!(machine.run("ls /etc/vpnd").contains("policy.xml"), "only a purge removes keys");
    machine.run("dpkg --purge vpnd");
    let log = machine.run("ls /var/log /var/cache");
    assert!(!log.contains("vpnd"), "{log}");
    let after = files(&machine);
    let left: Vec<&String> = after.difference(&before).collect();
    assert_eq!(left, Vec::<&String>::new());
    let lost: Vec<&String> = before.difference(&after).collect();
    assert_eq!(lost, Vec::<&String>::new());
    machine.space.is_as_before(&network);
}

fn same_octets() {
    // Both are made in the same place, one after the other.
    let packages = &PACKAGES[0];
    let again = tempfile::tempdir().expect("a temporary directory");
    let again = package_to("0.1.0", again.path().to_owned());
    for name in ["vpnd.deb", "vpnd.rpm"] {
        let [first, second] = [packages, &again]
            .map(|directory| std::fs::read(directory.join(name)).expect("it was made"));
        assert!(first == second, "{name} differs");
    }
}

fn dependencies() {
    let mut field = Command::new("dpkg-deb");
    field.arg("--field").arg(PACKAGES[0].join("vpnd.deb")).arg("Depends");
    let text = testkit::output(field);
    let packages = text.trim().split(", ");
    let mut packages: Vec<&str> = packages.filter_map(|part| part.split(' ').next()).collect();
    packages.sort_unstable();
    let once: BTreeSet<&str> = packages.iter().copied().collect();
    assert!(once.contains("libc6") && once.contains("nftables"), "{text}");
    assert_eq!(packages, once.into_iter().collect::<Vec<_>>(), "{text}");
}

/// The names of the libraries that a package of this workspace links stand in the text, with licenses.
fn has_licenses(package: &str, text: &str) {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "-q", "--frozen", "-p", package, "-e", "normal", "--prefix", "none"]);
    let tree = testkit::output(tree);
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 100, "{names:?}");
    let named: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let missing: Vec<&&str> = names.difference(&named).collect();
    assert!(missing.is_empty(), "no license of {missing:?}");
    for words in ["Permission is hereby granted", "Copyright (c) Tokio"] {
        assert!(text.contains(words), "{words}");
    }
}

fn licenses() {
    let mut deb = Command::new("sh");
    deb.args([
        "-c",
        "dpkg-deb --fsys-tarfile \"$0\" | tar --extract --to-stdout ./usr/share/doc/vpnd/copyright",
    ]);
    deb.arg(PACKAGES[0].join("vpnd.deb"));
    let mut rpm = Command::new("sh");
    rpm.args(["-c", "rpm2archive - <\"$0\" | tar --extract --gzip --to-stdout ./usr/share/licenses/vpnd/LICENSES-of-libraries"]);
    rpm.arg(PACKAGES[0].join("vpnd.rpm"));
    for text in [deb, rpm].map(testkit::output) {
        for package in ["vpn-cli", "vpn-daemon"] {
            has_licenses(package, &text);
        }
    }
}

fn licenses_of_the_wheel() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let programs = Path::new(env!("CARGO_BIN_EXE_vpnd")).parent().expect("a directory");
    let mut make = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/wheel"));
    make.arg("--library").arg(programs.join("deps/libvpn_ffi.so"));
    make.arg("--output").arg(directory.path());
    testkit::output(make);
    let mut unzip = Command::new("sh");
    unzip.args(["-c", "cd \"$0\" && python3 -m zipfile -e *.whl . && cat *.dist-info/licenses/LICENSES-of-libraries"]);
    unzip.arg(directory.path());
    has_licenses("vpn-ffi", &testkit::output(unzip));
}

/// Links between these documents are checked in `tests/docs`.
fn documents() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut make = Command::new(format!("{root}/packaging/documents"));
    make.arg(directory.path());
    testkit::output(make);
    let mut find = Command::new("find");
    find.arg(directory.path()).args(["-type", "f", "-printf", "/usr/share/doc/vpnd/%P\\n"]);
    let made = testkit::output(find);
    let mut of_deb = Command::new("sh");
    of_deb.args(["-c", "dpkg-deb --fsys-tarfile \"$0\" | tar t | sed 's/^[.]//'"]);
    of_deb.arg(PACKAGES[0].join("vpnd.deb"));
    let mut of_rpm = Command::new("rpm");
    of_rpm.args(["-qpl"]).arg(PACKAGES[0].join("vpnd.rpm"));
    for installed in [of_deb, of_rpm].map(testkit::output) {
        let installed: BTreeSet<&str> = installed.lines().collect();
        let missing: Vec<&str> = made.lines().filter(|path| !installed.contains(path)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        for path in ["docs/recordings/why.svg", "docs/operate/page/wide.webp", "config/left.xml"] {
            assert!(installed.contains(&*format!("/usr/share/doc/vpnd/{path}")), "{path}");
        }
    }
}

fn no_error() {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error"]).arg(PACKAGES[0].join("vpnd.deb"));
    let output = lintian.output().expect("it is installed");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// All paths on the disk, without those in which Debian keeps logs and its own records.
fn files(machine: &Machine) -> BTreeSet<String> {
    let found = machine.run(
        "find / -xdev -path /var/log -prune -o -path /var/lib/dpkg -prune -o -path /var/lib/systemd -prune \
         -o -path /var/cache -prune -o -print",
    );
    found.lines().map(str::to_owned).collect()
}

fn confinement(root: &'static str) {
    let machine = Machine::of(root, "left");
    install(&machine, 0);
    for unit in ["vpnd", "vpn-guard"] {
        let (_, told) = machine.try_run(&format!("systemd-analyze security --no-pager {unit}"));
        let exposure = told
            .lines()
            .last()
            .and_then(|line| line.split_whitespace().find_map(|word| word.parse::<f32>().ok()));
        assert!(exposure.is_some_and(|exposure| exposure <= 2.0), "{told}");
    }
}
