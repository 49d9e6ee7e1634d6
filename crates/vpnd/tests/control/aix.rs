//! AIX's commands, by links to the real `vpnctl`, against a daemon around an in-memory gateway.
//!
//! The commands that docs/migrate/from-aix.md shows after `$` are run here, and their output must be as it stands
//! there; `UPDATE_EXPECTED=1 cargo test -p vpn-daemon --test control aix` writes it again, for review.

use crate::running;
use control::client::Client;
use control::protocol::{Command, Reply};
use ike::failure::{Failure, FailureKind};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use vpn::MemoryGateway;
use vpnd::certificates::Keeper;
use vpnd::config::{Certificates, Config, Crypto, FamiliesSection, FilterSection, Log};
use vpnd::crypto::tunables::Tunables;
use vpnd::daemon::{self, Daemon, Source};
use vpnd::families::FamilySettings;
use vpnd::filter::FilterSettings;

const SITE: &str = include_str!("../../../../tests/policies/site/left.xml");

/// A directory with a policy, links, and a daemon with a store.
struct Bench {
    directory: tempfile::TempDir,
    memory: MemoryGateway,
    daemon: Option<JoinHandle<()>>,
}

/// The exit status of a command and its output.
struct Told {
    status: Option<i32>,
    out: String,
    error: String,
}

impl Bench {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        fs::write(path("site.xml"), SITE).expect("writable");
        fs::set_permissions(path("site.xml"), Permissions::from_mode(0o600)).expect("ours");
        let vpnctl = process::Command::new(testkit::vpnctl())
            .arg("aix-links")
            .arg(path("bin"))
            .output()
            .expect("vpnctl is built");
        assert!(vpnctl.status.success(), "{vpnctl:?}");
        let source = Source::open_store(&path("store")).expect("it is new");
        let read = source.read().expect("valid");
        let policy = Arc::new(read.policy);
        let memory = MemoryGateway::new(Arc::clone(&policy));
        let certificates =
            Certificates { directory: directory.path().to_owned(), ..Certificates::default() };
        let log = daemon::start_log(&Log::default());
        let section = FamiliesSection { file: path("families.toml"), ..Default::default() };
        let (families, _) = FamilySettings::read(&section);
        let section = FilterSection { file: path("filter.toml"), ..Default::default() };
        let (filter, _) = FilterSettings::read(&section);
        let crypto = Crypto { tunables: path("crypto.toml"), ..Crypto::default() };
        let workers = memory.gateway().workers().clone();
        let (tunables, _) = Tunables::start(&crypto, Arc::default(), Some(workers));
        let daemon =
            Daemon::new(memory.gateway().clone(), source, Arc::new(Keeper::new(certificates)), log)
                .with_policy(policy, read.definitions)
                .with_families(families)
                .with_filter_settings(filter)
                .with_crypto(tunables)
                .configured(Some(path("running.toml")), Config::default());
        let thread = running::start(daemon, path("control.sock"));
        Self { directory, memory, daemon: Some(thread) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log_level(&self) -> String {
        let mut client = Client::connect(&self.path("control.sock")).expect("it runs");
        match client.ask(Command::Overview) {
            Ok(Reply::Overview(overview)) => overview.log_level.expect("this version tells it"),
            other => panic!("{other:?}"),
        }
    }

    fn run(&self, line: &str) -> Told {
        let mut words = line.split(' ');
        let program = self.path("bin").join(words.next().expect("a command"));
        let output = process::Command::new(&program)
            .args(words)
            .current_dir(self.directory.path())
            .env("VPND_CONTROL", self.path("control.sock"))
            .env("VPND_CONFIG", self.path("vpnd.toml"))
            .stdin(process::Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let pid = process::id().to_string();
        let text = |octets: Vec<u8>| {
            let text = String::from_utf8(octets).expect("text");
            let text = text.replace(
                &self.path("control.sock").display().to_string(),
                "/run/vpnd/control.sock",
            );
            let text = text.replace(&format!("{}/", self.directory.path().display()), "");
            // In its column and in its sentence only: other numbers may have the same digits.
            text.replace(&format!(" {pid:<13}"), " 4711         ")
                .replace(&format!("process {pid}."), "process 4711.")
        };
        Told { status: output.status.code(), out: text(output.stdout), error: text(output.stderr) }
    }

    fn told(&self, line: &str) -> String {
        let Told { status, out, error } = self.run(line);
        assert_eq!(status, Some(0), "{line}: {error}");
        out
    }

    fn refused(&self, line: &str) -> String {
        let Told { status, out, error } = self.run(line);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{line}: {error}");
        let program = line.split(' ').next().expect("a command");
        assert!(error.starts_with(&format!("{program}: ")), "{line}: {error}");
        error
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Ok(mut client) = Client::connect(&self.path("control.sock")) {
            let _ = client.ask(Command::Stop { keep_guard: false });
        }
        if let Some(thread) = self.daemon.take() {
            assert!(thread.join().is_ok() || thread::panicking(), "the daemon panicked");
        }
    }
}

#[test]
fn the_document_shows_what_is_printed() {
    let bench = Bench::start();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate/from-aix.md");
    let document = fs::read_to_string(&path).expect("it is there");
    // The document was written on a CPU that has something to be turned off.
    let runs = |command: &str| !command.starts_with("acfo ") || crypto::Cpu::detect().accelerates();
    let mut as_it_stands = false;
    let mut printed = String::new();
    let mut in_block = false;
    for line in document.lines() {
        match (in_block, line) {
            (false, line) => {
                in_block = line == "```console";
                printed.push_str(line);
                printed.push('\n');
            }
            (true, "```") => {
                in_block = false;
                printed.push_str("```\n");
            }
            (true, line) => {
                let Some(command) = line.strip_prefix("$ ") else {
                    if as_it_stands {
                        printed.push_str(&format!("{line}\n"));
                    }
                    continue;
                };
                as_it_stands = !runs(command);
                if as_it_stands {
                    printed.push_str(&format!("{line}\n"));
                    continue;
                }
                let Told { out, error, .. } = bench.run(command);
                printed.push_str(&format!("$ {command}\n{out}{error}"));
            }
        }
    }
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&path, &printed).expect("writable");
        return;
    }
    assert_eq!(document, printed, "docs/migrate/from-aix.md is stale; see UPDATE_EXPECTED above");
}

#[test]
fn scripts_find_their_exit_status() {
    let bench = Bench::start();
    assert_eq!(bench.told("ike cmd=list"), "", "no tunnels, no output");
    for words in ["", " phase=2", " autostart"] {
        let error = bench.refused(&format!("ike cmd=activate{words}"));
        assert_eq!(error, "ike: there is no tunnel; define one with: ikedb -p FILE\n");
    }
    assert_eq!(bench.told("ikedb -p site.xml"), "");
    assert!(bench.refused("ikedb -p site.xml").contains("replace the stored one with -F"));
    assert_eq!(bench.told("ikedb -pF site.xml"), "");
    assert_eq!(bench.told("ike cmd=activate autostart"), "", "none is to");
    assert_eq!(
        bench.told("ike cmd=activate phase=2 numlist=1"),
        "Phase 2 tunnel 1 (site_lan): active\n"
    );
    assert_eq!(bench.told("ike cmd=remove remid=192.0.2.2"), "Phase 1 tunnel 1 (site): removed\n");
    let both = "Phase 1 tunnel 1 (site): active\n";
    assert_eq!(bench.told("ike cmd=activate ipaddr=192.0.2.1,192.0.2.2"), both);
    let lines = |line: &str| bench.told(line).lines().count();
    for (words, expected) in [
        ("", 3),
        (" phase=1", 2),
        (" phase=1+", 3),
        (" phase=2", 2),
        (" role=i", 3),
        (" role=r", 0),
        (" numlist=2-9", 0),
    ] {
        assert_eq!(lines(&format!("ike cmd=list{words}")), expected, "{words}");
    }
    assert_eq!(bench.told("ike cmd=remove all"), "Phase 1 tunnel 1 (site): removed\n");
    assert_eq!(bench.told("ike cmd=remove all"), "", "nothing is left to do");
    let why = "we offered AES-CBC-256; the peer refused it".to_owned();
    bench.memory.fail("site", Failure::new(FailureKind::NoProposalChosen, why));
    let error = bench.refused("ike cmd=activate namelist=site");
    assert!(
        error.contains("we offered AES-CBC-256") && error.contains("vpnctl why site"),
        "{error}"
    );
    assert_eq!(bench.told("ikedb -x"), "");
    assert!(!bench.told("ikedb -g").contains("<IKETunnel"));
    assert_eq!(bench.told("ikedb -p site.xml"), "");
    let defined = bench.told("ike cmd=list db");
    assert!(defined.contains("\n1      1       Dormant"), "numbers begin again: {defined}");
    assert!(defined.contains("\n2      1       Dormant"), "numbers begin again: {defined}");
    assert_eq!(bench.told("ikedb -x"), "");

    for line in [
        "ike",
        "ike cmd=start",
        "ike cmd=activate phase=3",
        "ike cmd=activate numlist=5-3",
        "ike cmd=activate remid=192.0.2.9",
        "ike cmd=list loud",
        "ikedb",
        "ikedb -p -g",
        "ikedb -q",
        "ikedb -d",
        "ikedb -g -t IKETunnel -i site -y FQDN",
        "ikedb -p -e entities site.xml",
        "ikedb -p missing.xml",
        "ikedb -c -l missing.conf",
        "lssrc -g tcpip",
        "lssrc -s named",
        "lssrc",
        "stopsrc -s isakmpd",
        "ike cmd=log",
        "acfo -t in_core_enabled",
        "acfo -t in_core_enabled=yes",
        "acfo -t in_core=1",
        "acfo -d -R",
        "acfo -p",
        "acfo -r",
        "acfo -h -t nothing",
        "acfo -x",
        "mkdev",
        "mkdev -c ipsec",
        "mkdev -c ipsec -t 5",
        "mkdev -c adapter -t 4",
        "mkdev -c ipsec -t 4 -l ipsec_v4",
        "rmdev",
        "rmdev -l hdisk0",
        "rmdev -l ipsec_v4 more",
        "lsdev",
        "lsdev -C -c disk",
        "lsdev -l hdisk0",
        "smit",
        "smit tcpip",
        "smitty ipsec4 ipsec6",
        "mkfilt -u -z P",
        "mkfilt -v 5 -u",
        "mkfilt -v 4",
        "mkfilt -v 4 -u -z X",
        "mkfilt -v 4 -u -d",
        "lsfilt",
        "mkfilt -v 4 -u -z D --for never",
        "mkfilt -v 4 -u -z D --for",
    ] {
        bench.refused(line);
    }
    for (line, instead) in [
        ("genfilt -v 4 -a D -s 10.0.0.0 -m 255.0.0.0", "vpnctl reload"),
        ("chfilt -v 4 -n 2", "[filter]"),
        ("rmfilt -v 4 -n 2", "remove the rule"),
        ("mvfilt -v 4 -p 3 -n 4", "move the rule"),
        ("expfilt -f /tmp/filters", "vpnd.toml"),
        ("gentun -s 192.0.2.1 -d 192.0.2.2", "docs/operate/manual-sas.md"),
        ("exptun -f /tmp/tunnels", "vpnctl policy get"),
        ("imptun -f /tmp/tunnels", "vpnctl policy put"),
        ("lstun", "ike cmd=list"),
        ("rmtun -v 4 -t all", "ike cmd=remove"),
        ("ipsecstat", "vpnctl counters"),
    ] {
        let error = bench.refused(line);
        assert!(error.contains(instead), "{line}: {error}");
    }
    assert_eq!(bench.told("acfo -t min_sz=64"), "");
    assert_eq!(bench.told("acfo -d -t min_sz"), "min_sz : 64.\n");
    assert_eq!(bench.told("acfo -R"), "");
    assert_eq!(bench.told("acfo -d -t min_sz"), "min_sz : 1024.\n");
    let denied = bench.run("mkfilt -v 6 -u -z D");
    assert_eq!((denied.status, denied.out.as_str()), (Some(0), ""));
    assert!(denied.error.contains("ssh"), "nobody can be asked: {}", denied.error);
    assert_eq!(bench.run("mkfilt -v 6 -u -z D").error, "", "it is denied already");
    assert_eq!(bench.told("mkfilt -v 4 -u"), "");
    let fields =
        |line: &str| bench.told(line).lines().map(|l| l.split('|').count()).collect::<Vec<_>>();
    assert_eq!(fields("lsfilt -v6 -O"), [22, 22, 22]);
    assert!(bench.told("lsfilt -v 6 -O").contains("\n3|deny|::|::|::|::|no|all|"));
    assert!(bench.told("lsfilt -v 4").contains("Rule 3:\nRule action          : permit\n"));
    fs::write(bench.path("vpnd.toml"), "[log]\nlevel = \"warn\"\n").expect("writable");
    assert_eq!(bench.told("ike cmd=log"), "");
    assert_eq!(bench.log_level(), "warn");
}

#[test]
fn the_log_level_is_read_from_the_configuration_of_the_daemon() {
    let bench = Bench::start();
    let log = |variable: Option<&str>| {
        let mut ike = process::Command::new(bench.path("bin/ike"));
        ike.arg("cmd=log").env("VPND_CONTROL", bench.path("control.sock"));
        match variable {
            Some(file) => ike.env("VPND_CONFIG", bench.path(file)),
            None => ike.env_remove("VPND_CONFIG"),
        };
        let output = ike.output().expect("it is linked");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        bench.log_level()
    };
    fs::write(bench.path("running.toml"), "[log]\nlevel = \"debug\"\n").expect("writable");
    fs::write(bench.path("other.toml"), "[log]\nlevel = \"error\"\n").expect("writable");
    assert_eq!(log(Some("other.toml")), "error");
    assert_eq!(log(None), "debug");
}

#[test]
fn a_default_that_nobody_confirms_comes_back() {
    let bench = Bench::start();
    let default = || {
        let rules = bench.told("lsfilt -v 4 -O");
        rules.lines().last().map(|line| line.split('|').nth(1).unwrap_or_default().to_owned())
    };
    let told = bench.run("mkfilt -v 4 -u -z D --for 1h");
    assert_eq!(told.status, Some(0), "{}", told.error);
    assert!(told.error.contains("undone in 3600 seconds unless confirmed"), "{}", told.error);
    assert_eq!(default().as_deref(), Some("deny"));
    let mut client = Client::connect(&bench.path("control.sock")).expect("it runs");
    let mut left = || match client.ask(Command::Filter) {
        Ok(Reply::Filter(filter)) => filter.undo_in_seconds,
        other => panic!("{other:?}"),
    };
    assert!(left().is_some_and(|left| left > 3000));
    // Another time for the same change; the state from before it comes back.
    assert_eq!(bench.run("mkfilt -v 4 -u -z D --for 1s").status, Some(0));
    while left().is_some() || default().as_deref() == Some("deny") {
        thread::yield_now();
    }
    assert_eq!(default().as_deref(), Some("permit"));
    let kept = || fs::read_to_string(bench.path("filter.toml")).unwrap_or_default();
    assert_eq!(bench.run("mkfilt -v 4 -u -z D --for 1h").status, Some(0));
    assert_eq!(kept(), "", "nobody has confirmed it");
    assert_eq!(bench.told("mkfilt -v 4 -u -z D --yes"), "", "this confirms it");
    assert_eq!((left(), default().as_deref()), (None, Some("deny")));
    assert!(kept().contains("ipv4 = \"deny\""), "{}", kept());
    assert_eq!(bench.run("mkfilt -v 6 -u -z D --for 1h").status, Some(0));
    assert!(!kept().contains("ipv6"), "{}", kept());
    let confirm = process::Command::new(testkit::vpnctl())
        .args(["filter", "--confirm", "--control"])
        .arg(bench.path("control.sock"))
        .output()
        .expect("vpnctl is built");
    assert!(confirm.status.success(), "{confirm:?}");
    assert!(kept().ends_with("ipv4 = \"deny\"\nipv6 = \"deny\"\n"), "{}", kept());
}

#[test]
fn configurations_of_linux_are_converted_into_the_database() {
    let bench = Bench::start();
    let conf = "conn net\n\tauthby=secret\n\tleft=192.0.2.1\n\tright=192.0.2.2\n\tauto=add\n\tleftsubnet=10.1.0.0/24\n\
                \trightsubnet=10.2.0.0/24\n\tdpddelay=30s\n";
    fs::write(bench.path("ipsec.conf"), conf).expect("writable");
    fs::write(bench.path("ipsec.secrets"), ": PSK \"a-key-of-sixteen-octets\"\n")
        .expect("writable");
    let Told { status, out, error } = bench.run("ikedb -c -l ipsec.conf -k ipsec.secrets");
    assert_eq!((status, out.as_str()), (Some(0), ""), "{error}");
    assert!(error.contains("liveness_interval = \"30s\""), "{error}");
    assert_eq!(bench.told("ike cmd=activate"), "Phase 1 tunnel 1 (net): active\n");
    assert!(bench.run("ikedb -c -l ipsec.conf -k ipsec.secrets").status == Some(1), "they exist");
    assert!(bench.run("ikedb -cF -l ipsec.conf -k ipsec.secrets").status == Some(0));
    let told = bench.run("ikedb -c -l ipsec.conf -k ipsec.secrets -f net.xml");
    assert_eq!(told.status, Some(0), "{}", told.error);
    let file = host::policy_file::read(&bench.path("net.xml"));
    assert_eq!(file.expect("a policy").policy.tunnels[0].name, "net");
}

#[test]
fn the_dtd_fits_what_the_reader_takes() {
    let bench = Bench::start();
    let dtd = bench.told("ikedb -o");
    assert!(dtd.contains("<!ELEMENT AIX_VPN (IKEProtection | IKETunnel |"), "{dtd}");
    assert!(dtd.contains("<!ATTLIST IKETunnel\n  IKE_TunnelName CDATA #REQUIRED"), "{dtd}");
    // Every element and attribute of the samples is declared.
    for element in SITE.split('<').skip(2).filter(|part| !part.starts_with(['/', '!'])) {
        let (name, attributes) = element.split_once([' ', '\n', '>']).expect("a tag");
        let list = dtd.split(&format!("<!ATTLIST {name}\n")).nth(1);
        let list = list.and_then(|rest| rest.split("\n>").next()).unwrap_or_default();
        assert!(dtd.contains(&format!("<!ELEMENT {name} ")), "{name}");
        for attribute in
            attributes.split('"').step_by(2).filter_map(|part| part.trim().strip_suffix('='))
        {
            assert!(list.contains(&format!("  {attribute} CDATA ")), "{name} {attribute}");
        }
    }
}
