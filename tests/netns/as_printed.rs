//! AIX's commands in the order in which "Accelerate AIX IPsec with the help of Power in-core capability" prints them, as
//! it prints them: what comes before `startsrc` needs no daemon, is kept, and is in force after it.

use libtest_mimic::Trial;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use testkit::space::Space;
use testkit::{FILTERED, Need, output, policies, test};

pub fn trials() -> Vec<Trial> {
    const NEEDS: &[Need] = &[Need::All(FILTERED), Need::Program("unshare")];
    vec![
        test("the AIX document's commands, as printed and in its order", NEEDS, in_order),
        test(
            "settings that AIX's commands make before the start are in force after it",
            NEEDS,
            kept,
        ),
    ]
}

/// Own directories for everything that the programs keep, and the way to AIX's commands.
const BEGIN: &str = "mount --make-rprivate /
for d in /run /var/lib /var/log; do mount -t tmpfs none $d; done
test ! -d /etc/vpnd || mount -t tmpfs none /etc/vpnd
export PATH=$PWD:$(dirname $(readlink acfo)):$PATH
exec 2>&1
";

/// The command removes the files that a restart of the machine would remove.
const REBOOT: &str = "umount /run; mount -t tmpfs none /run";

/// A line that no command prints.
const END: &str = "-- status ";

/// A host with directories of its own, and a shell that takes commands. Its processes end with it.
struct Host {
    space: Space,
    directory: tempfile::TempDir,
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Host {
    fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut links = Command::new(testkit::vpnctl());
        links.arg("aix-links").arg(directory.path());
        output(links);
        let space = Space::new(name);
        let mut shell = Command::new("unshare");
        shell
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"])
            .env_remove("VPND_CONTROL")
            .env_remove("VPND_CONFIG")
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut shell = space.run(move || shell.spawn()).expect("unshare is there");
        let mut input = shell.stdin.take().expect("piped");
        let output = BufReader::new(shell.stdout.take().expect("piped"));
        input.write_all(BEGIN.as_bytes()).expect("the shell reads");
        Self { space, directory, shell, input, output }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The exit status of a command, and what it prints.
    fn run(&mut self, line: &str) -> (i32, String) {
        writeln!(self.input, "{{ {line}\n}} </dev/null; echo \"{END}$?\"")
            .expect("the shell reads");
        let mut told = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("text");
            assert_ne!(read, 0, "the shell has ended: {told}");
            if let Some((rest, status)) = line.split_once(END) {
                told.push_str(rest);
                return (status.trim().parse().expect("a status"), told);
            }
            told.push_str(&line);
        }
    }

    /// The output of a command, which must succeed.
    fn told(&mut self, line: &str) -> String {
        let (status, told) = self.run(line);
        assert_eq!(status, 0, "{line}: {told}");
        told
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Whether this CPU has instructions that `in_core_enabled` is about.
fn in_core() -> bool {
    crypto::Cpu::detect().accelerates()
}

/// Steps 1 and 2.1 of the document, and what is to be printed. A typesetter has made a dash with a blank of a minus.
fn before_the_start() -> Vec<(&'static str, String)> {
    let note = |program: &str, file: &str| {
        format!(
            "{program}: vpnd is not running; /var/lib/vpnd/{file}.toml keeps this for its next start\n"
        )
    };
    let tunables =
        format!("nx_enabled : 0.\nmin_sz : 1024.\nin_core_enabled : {}.\n", u8::from(in_core()));
    let device = |kind| note("mkdev", "families") + &format!("ipsec_v{kind} Available\n");
    let mut steps = vec![("acfo -d", tunables.clone())];
    if in_core() {
        steps.push(("acfo -p -t in_core_enabled=1", note("acfo", "crypto")));
    }
    steps.extend([
        (REBOOT, String::new()),
        ("acfo -d", tunables),
        ("mkdev -c ipsec \u{2013} t 4", device(4)),
        ("mkdev -c ipsec \u{2013} t 6", device(6)),
        ("mkfilt -v 4 -u -z p", note("mkfilt", "filter")),
        ("mkfilt -v 6 -u -z p", note("mkfilt", "filter")),
    ]);
    steps
}

fn in_order() {
    let mut hosts = ["initiator", "receiver"].map(Host::new);
    let addresses = policies::VENDOR_ADDRESSES.map(|address| format!("{address}/24"));
    let [left, right] = &hosts;
    Space::connect(
        (&left.space, "wire", &[&addresses[0]]),
        (&right.space, "wire", &[&addresses[1]]),
    );
    for (host, policy) in hosts.iter_mut().zip(policies::vendor()) {
        fs::write(host.path("policy.xml"), policy).expect("writable");
        host.told("chmod 600 policy.xml");
        for (step, printed) in before_the_start() {
            assert_eq!(host.told(step), printed, "{step}");
        }
        let told = host.told("ikedb -p policy.xml");
        assert!(
            told.contains("the key has fewer than 16 octets") && !told.contains("error"),
            "{told}"
        );
    }
    for host in &mut hosts {
        let started = host.told("startsrc -g ike");
        assert!(started.starts_with("0513-059 The tmd Subsystem has been started."), "{started}");
    }
    let watch = hosts[0].space.watch("wire");
    let activated = hosts[0].told("ike cmd=activate");
    assert_eq!(activated, "Phase 1 tunnel 1 (LP1): active\n");
    hosts[0].space.echoes("", 3, policies::VENDOR_ADDRESSES[1]).expect("echoes");
    let seen = watch.nothing_in_the_clear();
    assert!(seen.ike >= 4, "{seen:?}");
    for host in &mut hosts {
        let list = host.told("ike cmd=list");
        assert_eq!(list.matches("  Active  ").count(), 2, "{list}");
        let tunables = before_the_start()[0].1.clone();
        assert_eq!(host.told("acfo -d"), tunables);
        assert_eq!(host.told("lsdev -C -c ipsec").matches(" Available ").count(), 2);
        for family in ["4", "6"] {
            let rules = host.told(&format!("lsfilt -v {family} -O"));
            let last = rules.lines().last().unwrap_or_default();
            assert!(last.contains("|permit|") && last.ends_with("|Default Rule"), "{rules}");
        }
    }
}

/// The action for the rest of a family.
fn default_of(host: &mut Host, family: &str) -> String {
    let rules = host.told(&format!("lsfilt -v {family} -O"));
    let last = rules.lines().last().unwrap_or_default();
    last.split('|').nth(1).unwrap_or_default().to_owned()
}

/// Settings that differ from the defaults, in the places that a configuration of another name has.
fn kept() {
    let mut host = Host::new("aix");
    fs::write(
        host.path("other.toml"),
        "[policy]\ndirectory = \"/var/lib/other\"\n[control]\nsocket = \"/run/other/control.sock\"\n\
         [filter]\nfile = \"/var/lib/other/filter.toml\"\n",
    )
    .expect("writable");
    fs::write(host.path("policy.xml"), policies::VENDOR).expect("writable");
    host.told("export VPND_CONFIG=$PWD/other.toml; chmod 600 policy.xml");
    for line in [
        "acfo -p -t min_sz=2048",
        "rmdev -d -l ipsec_v6",
        "mkfilt -v 6 -u -z D",
        "ikedb -p policy.xml",
        "startsrc -g ike",
    ] {
        host.told(line);
    }
    let is_kept = |host: &mut Host| {
        assert_eq!(host.told("acfo -d -t min_sz"), "min_sz : 2048.\n");
        assert!(host.told("lsdev -l ipsec_v6").starts_with("ipsec_v6 Defined"));
        assert!(host.told("ike cmd=list db").contains(" Dormant "));
    };
    is_kept(&mut host);
    assert_eq!([default_of(&mut host, "4"), default_of(&mut host, "6")], ["permit", "deny"]);

    // What a running daemon is told outlives it as well, and a reload.
    host.told("mkfilt -v 6 -u -z P; mkfilt -v 4 -u -z D --yes");
    host.told("vpnctl reload --control /run/other/control.sock");
    assert_eq!([default_of(&mut host, "4"), default_of(&mut host, "6")], ["deny", "permit"]);
    host.told("stopsrc -g ike");
    host.told(REBOOT);
    host.told("startsrc -g ike");
    is_kept(&mut host);
    assert_eq!([default_of(&mut host, "4"), default_of(&mut host, "6")], ["deny", "permit"]);
    host.told("vpnctl filter --forget --control /run/other/control.sock");
    assert_eq!([default_of(&mut host, "4"), default_of(&mut host, "6")], ["permit", "permit"]);
    host.told("stopsrc -g ike");
    host.told("test -e /var/lib/other/filter.toml; test ! -e /var/lib/vpnd/filter.toml");
}
