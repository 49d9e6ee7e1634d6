//! Completions, as shells ask for them, against a daemon around an in-memory gateway.

use crate::running;
use control::client::Client;
use control::protocol::Command as Ask;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use vpn::MemoryGateway;
use vpnd::certificates::Keeper;
use vpnd::config::{Certificates, Log};
use vpnd::daemon::{self, Daemon, Source};

const SITE: &str = include_str!("../../../../tests/policies/site/left.xml");

/// The characters at which bash parts words, beside blanks, as far as they occur here.
const BREAKS: [char; 2] = ['=', ':'];

/// The directory of the built programs.
fn programs() -> PathBuf {
    let vpnctl = Path::new(testkit::vpnctl());
    vpnctl.parent().expect("a directory").to_owned()
}

fn path() -> std::ffi::OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(programs()).chain(std::env::split_paths(&own));
    std::env::join_paths(all).expect("no colons")
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// The words of a line as bash has them in COMP_WORDS.
fn parted(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for word in line.split(' ') {
        let mut rest = word;
        while let Some(at) = rest.find(BREAKS) {
            if at > 0 {
                words.push(rest[..at].to_owned());
            }
            words.push(rest[at..=at].to_owned());
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() || word.is_empty() {
            words.push(rest.to_owned());
        }
    }
    words
}

/// The completions that bash offers for the end of a line.
fn bash(line: &str) -> Vec<String> {
    let words = parted(line);
    let missing = words.last().filter(|word| !word.ends_with(BREAKS)).cloned().unwrap_or_default();
    let script = "source <(vpnctl completions bash)
        COMP_LINE=$1 missing=$2
        shift 2
        COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)) COMP_POINT=${#COMP_LINE} COMP_TYPE=9
        _vpnctl_complete vpnctl \"$missing\" ''
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash", line, &missing])
        .args(words)
        .env("PATH", path())
        .output()
        .expect("bash is there");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The answer of the program to a shell that gives it whole words.
fn answered(shell: &str, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = Command::new(testkit::vpnctl())
        .env("VPN_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env("_CLAP_IFS", "\n")
        .arg("--")
        .args(words)
        .output()
        .expect("vpnctl is built");
    let text = String::from_utf8(output.stdout).expect("text");
    let value = |line: &str| line.split(['\t']).next().unwrap_or_default().to_owned();
    text.lines().map(value).collect()
}

#[test]
fn values_are_completed_in_bash() {
    assert_eq!(bash("vpnctl log de"), ["debug"]);
    assert_eq!(bash("vpnctl log info,ike=de"), ["debug"], "bash has the part before =");
    assert_eq!(bash("vpnctl events --type tur"), ["turned_away"]);
    assert_eq!(
        bash("vpnctl workers set sche"),
        ["schedule=run-to-completion", "schedule=pipeline"]
    );
    assert_eq!(bash("vpnctl workers set schedule=p"), ["pipeline"]);
    assert_eq!(bash("vpnctl workers set schedule="), ["run-to-completion", "pipeline"]);
    assert_eq!(bash("vpnctl crypto set in_core_enabled="), ["0", "1", "default"]);
    assert_eq!(bash("vpnctl policy get --type IPSecT"), ["IPSecTunnel"]);
    assert_eq!(bash("vpnctl top --sort pac"), ["packets"]);
    assert!(bash("vpnctl deact").contains(&"deactivate".to_owned()));
}

#[test]
fn values_are_completed_in_other_shells() {
    for shell in ["zsh", "fish"] {
        let offered = |line: &str| {
            let all = answered(shell, line);
            all.into_iter().map(|value| value.replace("\\:", ":")).collect::<Vec<_>>()
        };
        assert_eq!(offered("vpnctl log de"), ["debug"], "{shell}");
        assert_eq!(offered("vpnctl workers set wait=p"), ["wait=poll"], "{shell}");
        let types = offered("vpnctl events --type tur");
        assert!(types.len() == 1 && types[0].starts_with("turned_away"), "{shell}: {types:?}");
    }
    if is_installed("fish") {
        let script = "vpnctl completions fish | source; complete -C 'vpnctl log de'";
        let output = Command::new("fish").args(["-c", script]).env("PATH", path()).output();
        let text = String::from_utf8(output.expect("fish is there").stdout).expect("text");
        assert!(text.lines().any(|line| line.starts_with("debug")), "{text}");
    }
    if is_installed("zsh") {
        let script = "vpnctl completions zsh > $0 && zsh -n $0";
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let status =
            Command::new("zsh").args(["-c", script]).arg(file.path()).env("PATH", path()).status();
        assert!(status.expect("zsh is there").success());
    }
}

#[test]
fn names_of_tunnels_come_from_the_daemon_that_runs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let policy = directory.path().join("policy.xml");
    fs::write(&policy, SITE).expect("writable");
    fs::set_permissions(&policy, Permissions::from_mode(0o600)).expect("ours");
    let socket = directory.path().join("control.sock");
    let source = Source::from(policy);
    let read = source.read().expect("valid");
    let policy = Arc::new(read.policy);
    let memory = MemoryGateway::new(Arc::clone(&policy));
    let certificates =
        Certificates { directory: directory.path().to_owned(), ..Certificates::default() };
    let log = daemon::start_log(&Log::default());
    let daemon =
        Daemon::new(memory.gateway().clone(), source, Arc::new(Keeper::new(certificates)), log)
            .with_policy(policy, read.definitions);
    let thread = running::start(daemon, socket.clone());

    let line = |words: &str| format!("vpnctl --control {} {words}", socket.display());
    assert_eq!(bash(&line("status si")), ["site", "site_lan"]);
    assert_eq!(bash(&line("activate site_")), ["site_lan"]);
    assert_eq!(bash(&line("why si")), ["site", "site_lan"]);
    let mut client = Client::connect(&socket).expect("it runs");
    client.ask(Ask::Stop { keep_guard: false }).expect("it stops");
    thread.join().expect("the daemon ends");
    assert_eq!(bash(&line("status si")), [""; 0]);
}
