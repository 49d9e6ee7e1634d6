//! The needs of the tests: where this machine lacks something, tests are reported as ignored with the reason, and none
//! fails.
//!
//! Each test here hides one thing by `tests/lacking` from a second run of this program. All tests of that run only look
//! whether they could run, and a few then do. With `LACKING_TESTS=all` in the environment, all of them do, and each program
//! that a test names is hidden in turn.

use libtest_mimic::Trial;
use nix::unistd::chown;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use testkit::{FILTERED, NOBODY, Need, ONLY_NEEDS, policies, test};

const LACKING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lacking");
const NEEDS: &[Need] = &[
    Need::All(FILTERED),
    Need::Program("bash"),
    Need::Program("chroot"),
    Need::Program("curl"),
    Need::Program("mknod"),
    Need::Program("mount"),
    Need::Program("realpath"),
    Need::Program("setpriv"),
    Need::OfNobody(&[Need::UserNamespaces]),
];

/// Tests that run `vpnd` as an ordinary user who makes a TUN device.
const OF_NOBODY: [&str; 4] = [
    "vpnd demo as an ordinary user",
    "a command of an ordinary user has the tunnels as its only network",
    "a command has its own input, signals and status",
    "a command that cannot be started says why",
];
const DEMO: &str = "vpnd demo as root";
const TUNNEL: &str = "a tunnel from first to last";
/// It needs neither nftables nor ping.
const ROAMING: &str = "the side that began changes its address under a flow";
const NEWCOMER: &str = "a newcomer plays README.md in an empty Debian";

/// Something that a machine can lack, and what follows.
struct Lack {
    /// Its name for `tests/lacking`.
    thing: &'static str,
    /// Part of the reason for which tests are ignored.
    reason: &'static str,
    /// Tests that are ignored for this reason.
    ignored: &'static [&'static str],
    /// Tests that pass in spite of it.
    passed: &'static [&'static str],
}

const LACKS: [Lack; 12] = [
    Lack { thing: "nothing", reason: "", ignored: &[], passed: &OF_NOBODY },
    Lack {
        thing: "tun",
        reason: "as an ordinary user: cannot use /dev/net/tun: Permission denied (os error 13); its mode is 0600, its \
                 owner is user root, group root: give it mode 0666",
        ignored: &OF_NOBODY,
        passed: &[DEMO],
    },
    Lack { thing: "driver", reason: "mknod -m 0666", ignored: &[DEMO, TUNNEL], passed: &[] },
    Lack {
        thing: "namespaces",
        reason: "as an ordinary user: cannot make namespaces",
        ignored: &OF_NOBODY,
        passed: &[DEMO],
    },
    Lack { thing: "path", reason: "no program ", ignored: &[TUNNEL], passed: &[DEMO] },
    Lack {
        thing: "program=nft",
        reason: "no program nft",
        ignored: &[TUNNEL, OF_NOBODY[1]],
        passed: &[DEMO, ROAMING],
    },
    Lack {
        thing: "program=ping",
        reason: "no program ping",
        ignored: &[OF_NOBODY[1]],
        passed: &[TUNNEL],
    },
    Lack { thing: "sys", reason: "", ignored: &[], passed: &[DEMO, TUNNEL] },
    Lack { thing: "cache", reason: "newcomer", ignored: &[NEWCOMER], passed: &[] },
    Lack { thing: "network", reason: "", ignored: &[], passed: &[DEMO, OF_NOBODY[1]] },
    Lack { thing: "root", reason: "not run as root", ignored: &[DEMO, TUNNEL], passed: &[] },
    Lack { thing: "exclusion", reason: "", ignored: &[], passed: &[DEMO, TUNNEL] },
];

/// The beginning of the names of these tests.
const OWN: &str = "needs, hidden: ";

/// Those that come after all others, whose needs they know.
pub fn of_programs() -> Vec<Trial> {
    if !is_night() {
        return Vec::new();
    }
    // `tests/lacking` does not work without the first ones; the others have tests by day.
    let apart =
        ["bash", "chroot", "mknod", "mount", "realpath", "setpriv", "unshare", "nft", "ping"];
    let programs = testkit::named_programs().into_iter().filter(|name| !apart.contains(name));
    let trial = |program: &str| {
        let thing = format!("program={program}");
        test(&format!("{OWN}{thing}"), NEEDS, move || run_all(&thing))
    };
    programs.map(trial).collect()
}

fn is_night() -> bool {
    std::env::var("LACKING_TESTS").is_ok_and(|which| which == "all")
}

/// Runs all tests of this program but these. One such run takes the whole machine.
fn run_all(thing: &str) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(thing, &["--skip", OWN], false);
}

pub fn trials() -> Vec<Trial> {
    let of_tests = LACKS.map(|lack| {
        let name = format!("{OWN}{}", lack.thing);
        test(&name, NEEDS, move || lack.follows())
    });
    let of_programs =
        test("needs of demo, experiment and exec are told before they begin", NEEDS, programs_tell);
    of_tests.into_iter().chain([of_programs]).collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// With the reason.
    Ignored(String),
}

/// Those of each test; of two runs, two.
type Outcomes = BTreeMap<String, Vec<Outcome>>;

impl Lack {
    fn follows(&self) {
        let found = run(self.thing, &["--skip", OWN], true);
        for name in self.ignored {
            self.is_ignored(name, &found);
            self.is_ignored(name, &run(self.thing, &["--exact", name], false));
        }
        for name in self.passed {
            let found = run(self.thing, &["--exact", name], false);
            let passed = found[*name].iter().all(|outcome| *outcome == Outcome::Passed);
            assert!(passed, "{}: {name}: {:?}", self.thing, found[*name]);
        }
        if is_night() {
            run_all(self.thing);
        }
    }

    fn is_ignored(&self, name: &str, found: &Outcomes) {
        let is_so = |outcome: &Outcome| match outcome {
            Outcome::Ignored(why) => why.contains(self.reason),
            Outcome::Passed => false,
        };
        assert!(found[name].iter().all(is_so), "{}: {name}: {:?}", self.thing, found[name]);
    }
}

/// Runs tests of this program where something is absent. None fails.
fn run(thing: &str, arguments: &[&str], only_needs: bool) -> Outcomes {
    let mut command = Command::new(LACKING);
    command
        .arg(thing)
        .arg(std::env::current_exe().expect("this program"))
        .args(arguments)
        .args(["--color", "never"])
        .env_remove("VPN_TEST_REQUIRE")
        .env_remove("LACKING_TESTS");
    if only_needs {
        command.env(ONLY_NEEDS, "1");
    }
    let output = command.output().expect("bash is there");
    let printed = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{thing}: {printed}{told}");
    outcomes(&printed)
}

/// The outcomes that a run has printed, without those of tests that are ignored unless they are asked for.
fn outcomes(printed: &str) -> Outcomes {
    let mut found = Outcomes::new();
    for line in printed.lines().filter_map(|line| line.strip_prefix("test ")) {
        let Some((name, outcome)) = line.split_once(" ... ") else { continue };
        let outcome = match outcome {
            "ok" => Outcome::Passed,
            "ignored" => continue,
            other => match other.strip_prefix("ignored (").and_then(|why| why.strip_suffix(')')) {
                Some(why) if !why.is_empty() => Outcome::Ignored(why.to_owned()),
                _ => panic!("neither passed nor ignored with a reason: {line}"),
            },
        };
        found.entry(name.trim().to_owned()).or_default().push(outcome);
    }
    assert!(!found.is_empty(), "no outcome: {printed}");
    found
}

/// An ordinary user who can neither use the TUN driver nor make namespaces is told so by each program.
fn programs_tell() {
    let [vpnd, vpnctl] = [env!("CARGO_BIN_EXE_vpnd"), testkit::vpnctl()];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [_, policy] = policies::guest("guest", "10.2.0.", "192.0.2.2", ["192.0.2.1", "192.0.2.1"]);
    let file = directory.path().join("policy.xml");
    fs::write(&file, policy).expect("writable");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("ours");
    for path in [directory.path(), &file] {
        chown(path, Some(NOBODY.into()), Some(NOBODY.into())).expect("given away");
    }
    let [file, output] = [file, directory.path().join("reports")].map(|p| p.display().to_string());
    let demo: &[&str] = &[vpnd, "demo"];
    let exec: &[&str] = &[vpnd, "exec", "--policy", &file, "--", "true"];
    let experiment: &[&str] =
        &[vpnctl, "experiment", "workloads", "--rehearsal", "--output", &output];
    const CLOSED: &str = "cannot use /dev/net/tun: Permission denied (os error 13)\n  its mode is 0600, its owner is \
                          user root, group root: give it mode 0666 (chmod 0666 /dev/net/tun)";
    const NO_FILE: &str = "mkdir -p /dev/net && mknod -m 0666 /dev/net/tun c 10 200";
    for (things, command, begins, parts) in [
        (&["tun"][..], demo, "vpnd demo: ", &[CLOSED][..]),
        (&["namespaces", "tun"], demo, "vpnd demo: ", &[CLOSED, "cannot make namespaces: "]),
        (&["tun"], experiment, "vpn-lab: ", &[CLOSED]),
        (&["tun"], exec, "vpnd: ", &[CLOSED]),
        (&["driver"], demo, "vpnd demo: ", &[NO_FILE]),
    ] {
        let hidden = things.iter().chain(&["root"]).flat_map(|thing| [LACKING, *thing]);
        let words: Vec<&str> = hidden.chain(command.iter().copied()).collect();
        let mut lacking = Command::new(words[0]);
        let told = lacking.args(&words[1..]).output().expect("bash is there");
        let said = String::from_utf8(told.stderr).expect("text");
        assert!(!told.status.success() && said.starts_with(begins), "{words:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
        // That is advice for containers alone.
        assert!(!said.contains("--device") || parts == [NO_FILE], "{words:?}: {said}");
    }
}
