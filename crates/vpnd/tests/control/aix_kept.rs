//! AIX's commands while no daemon runs: those that come before `startsrc` in AIX's documents keep their settings for its
//! start, in the places that the configuration names.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const SITE: &str = include_str!("../../../../tests/policies/site/left.xml");

/// A directory with links, a policy and a configuration, all of whose files are in the directory.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().expect("a temporary directory"));
        fs::write(bench.path("site.xml"), SITE).expect("writable");
        fs::set_permissions(bench.path("site.xml"), Permissions::from_mode(0o600)).expect("ours");
        let place = |name: &str| format!("{:?}", bench.path(name).display().to_string());
        let config = format!(
            "[policy]\ndirectory = {}\n[control]\nsocket = {}\n[filter]\nfile = {}\n[families]\nfile = {}\n\
             [crypto]\ntunables = {}\n",
            place("store"),
            place("control.sock"),
            place("state/filter.toml"),
            place("state/families.toml"),
            place("state/crypto.toml"),
        );
        fs::write(bench.path("vpnd.toml"), config).expect("writable");
        let links = Command::new(testkit::vpnctl())
            .arg("aix-links")
            .arg(bench.path("bin"))
            .output()
            .expect("vpnctl is built");
        assert!(links.status.success(), "{links:?}");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        let mut words = line.split(' ');
        Command::new(self.path("bin").join(words.next().expect("a command")))
            .args(words)
            .current_dir(self.0.path())
            .env_remove("VPND_CONTROL")
            .env("VPND_CONFIG", self.path("vpnd.toml"))
            .stdin(Stdio::null())
            .output()
            .expect("it is linked")
    }

    /// The standard output and the standard error of a command that succeeds.
    fn told(&self, line: &str) -> [String; 2] {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"))
    }

    fn refused(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        assert!(output.stdout.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

/// The note that a setting is kept.
fn kept(program: &str, file: &Path) -> String {
    format!("{program}: vpnd is not running; {} keeps this for its next start\n", file.display())
}

#[test]
fn tunables_are_shown_and_kept_without_a_daemon() {
    let bench = Bench::new();
    let file = bench.path("state/crypto.toml");
    let in_core = u8::from(crypto::Cpu::detect().accelerates());
    let shown = |min_sz: u32| {
        format!("nx_enabled : 0.\nmin_sz : {min_sz}.\nin_core_enabled : {in_core}.\n")
    };
    assert_eq!(bench.told("acfo -d"), [shown(1024), String::new()]);
    assert_eq!(bench.told("acfo -p -t min_sz=2048."), [String::new(), kept("acfo", &file)]);
    assert_eq!(bench.told("acfo -d"), [shown(2048), String::new()]);
    assert!(bench.read("state/crypto.toml").ends_with("\nmin_sz = 2048\n"));
    if in_core == 1 {
        bench.told("acfo -p -t in_core_enabled=1");
        assert_eq!(bench.told("acfo -d -t in_core_enabled")[0], "in_core_enabled : 1.\n");
    }
    bench.told("acfo -p -t nx_enabled=1");
    bench.told("acfo -p -r min_sz");
    assert!(bench.told("acfo -d")[0].starts_with("nx_enabled : 1.\nmin_sz : 1024.\n"));
    bench.told("acfo -p -R");
    assert_eq!(bench.told("acfo -d")[0], shown(1024));

    assert!(bench.refused("acfo -t min_sz=64").contains("use -p as well"));
    assert!(bench.refused("acfo -r min_sz").contains("use -p as well"));
    assert!(bench.refused("acfo -p -t min_sz=4294967296").contains("below 4294967296"));
    assert!(bench.refused("acfo -d -t nothing").contains("there are nx_enabled, min_sz"));
}

#[test]
fn devices_are_shown_and_kept_without_a_daemon() {
    let bench = Bench::new();
    let file = bench.path("state/families.toml");
    bench.told("rmdev -d -l ipsec_v6");
    let listed = bench.told("lsdev -C -c ipsec")[0].clone();
    assert!(listed.starts_with("ipsec_v4 Available") && listed.contains("\nipsec_v6 Defined"));
    for line in ["mkdev -c ipsec -t 6", "mkdev -c ipsec \u{2013} t 6"] {
        assert_eq!(bench.told(line), ["ipsec_v6 Available\n".to_owned(), kept("mkdev", &file)]);
    }
    assert!(bench.told("lsdev -l ipsec_v6")[0].starts_with("ipsec_v6 Available"));
    assert!(bench.read("state/families.toml").ends_with("\nipv6 = true\n"));
    assert!(bench.refused("rmdev -l ipsec_v6").contains("use -d as well"));
}

#[test]
fn filters_are_kept_without_a_daemon() {
    let bench = Bench::new();
    let note = kept("mkfilt", &bench.path("state/filter.toml"));
    assert_eq!(bench.told("mkfilt -v 4 -u -z p"), [String::new(), note.clone()]);
    let [_, error] = bench.told("mkfilt -v 6 -u -z D");
    assert!(error.starts_with("mkfilt: warning: from now on IPv6") && error.ends_with(&note));
    assert!(bench.read("state/filter.toml").ends_with("\nipv4 = \"permit\"\nipv6 = \"deny\"\n"));
    assert_eq!(bench.told("mkfilt -v 6 -u -z D"), [String::new(), note], "it is denied already");
    assert_eq!(bench.told("mkfilt -v 6 -u"), [String::new(), String::new()]);
    assert!(bench.refused("mkfilt -v 4 -u -z D --for 60s").contains("nobody would undo"));
}

#[test]
fn the_database_is_where_the_named_configuration_has_it() {
    let bench = Bench::new();
    bench.told("ikedb -p site.xml");
    assert!(bench.path("store").is_dir());
    assert!(bench.told("ikedb -g")[0].contains("<IKETunnel"));
    fs::write(bench.path("vpnd.toml"), "[policy]\ndirektory = 1\n").expect("writable");
    let error = bench.refused("ikedb -g");
    assert!(error.contains("direktory") && error.contains("vpnd.toml"), "{error}");
    fs::remove_file(bench.path("vpnd.toml")).expect("it is there");
    assert!(bench.refused("acfo -d").contains("cannot read the configuration"));
}
