//! `vpnd offline`, which `vpnctl` starts where no daemon runs.

use control::client::{Client, ClientError};
use control::protocol::{
    Command as Ask, DefaultAction, GetPolicy, Objects, Outcome, PolicyText, PutPolicy, RefusalCode,
    Reply, Response,
};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// The program and the other end of its standard input.
fn start(options: &[&str]) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("the system has sockets");
    let mut vpnd = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    vpnd.arg("offline").args(options).stdin(OwnedFd::from(theirs)).stderr(Stdio::piped());
    (vpnd.spawn().expect("vpnd is built"), ours)
}

#[test]
fn commands_are_answered_until_the_client_goes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = directory.path().join("store").display().to_string();
    let (mut vpnd, stream) =
        start(&["--config", "none", "--directory", &store, "--silent", "none.sock"]);
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor is left"));
    let mut client = Client::over(stream.try_clone().expect("a descriptor is left"), "vpnd".into());
    let get = || Ask::PolicyGet(GetPolicy::default());
    assert!(matches!(client.ask(get()), Ok(Reply::Policy(_))));
    let refusal = client.ask(Ask::Overview).expect_err("no daemon runs").to_string();
    let wanted = format!(
        "only a running vpnd can do that\n  (no vpnd is listening on none.sock, so this was tried in {store})"
    );
    assert_eq!(refusal, wanted);
    (&stream).write_all(b"{}\n").expect("it reads");
    let mut answer = String::new();
    reader.read_line(&mut answer).expect("it answers");
    let answer: Response = serde_json::from_str(&answer).expect("an answer");
    let code = |outcome| match outcome {
        Outcome::Error(refusal) => Some(refusal.code),
        _ => None,
    };
    assert_eq!(code(answer.outcome), Some(RefusalCode::BadRequest));
    assert!(!directory.path().join("store").exists(), "nothing was put into it");
    drop((client, reader, stream));
    assert!(vpnd.wait().expect("our child").success());
}

#[test]
fn a_configuration_that_is_named_must_be_good() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("vpnd.toml").display().to_string();
    fs::write(&config, "[policy]\ndirektory = 1\n").expect("writable");
    let (mut vpnd, stream) = start(&["--config", &config]);
    let mut client = Client::over(stream, "vpnd".into());
    for _ in 0..2 {
        let error = client.ask(Ask::PolicyGet(GetPolicy::default())).expect_err("it has an error");
        assert!(error.to_string().contains("direktory"), "{error}");
    }
    drop(client);
    assert!(vpnd.wait().expect("our child").success());
}

#[test]
fn standard_input_must_be_a_socket() {
    let mut vpnd = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    let output = vpnd.arg("offline").stdin(Stdio::null()).output().expect("vpnd is built");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("vpnd: standard input is no socket ("), "{error}");
}

#[test]
fn settings_for_the_next_start_are_shown_and_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("vpnd.toml").display().to_string();
    let [crypto, families, filter] = ["crypto", "families", "filter"]
        .map(|name| directory.path().join(format!("{name}.toml")).display().to_string());
    let text = format!(
        "[crypto]\ntunables = {crypto:?}\n[families]\nfile = {families:?}\n[filter]\nfile = {filter:?}\n"
    );
    fs::write(&config, text).expect("writable");
    fs::write(&filter, "ipv4 = 4\n").expect("writable");
    let (mut vpnd, stream) = start(&["--config", &config, "--as", "mkfilt"]);
    let mut client = Client::over(stream, "vpnd".into());

    let tunable = || "min_sz".to_owned();
    let set = |persist| Ask::CryptoSet { tunable: tunable(), value: Some(64), persist };
    match client.ask(set(true)) {
        Ok(Reply::Crypto(state)) => assert_eq!((state.tunables[1].value, state.file), (64, crypto)),
        other => panic!("{other:?}"),
    }
    let off = |persist| Ask::SetFamily { family: "ipv6".to_owned(), on: Some(false), persist };
    match client.ask(off(true)) {
        Ok(Reply::Families(info)) => {
            assert_eq!((info.families[1].on, info.file), (false, families))
        }
        other => panic!("{other:?}"),
    }
    let deny = |undo_after_seconds, persist| Ask::SetFilter {
        ipv4: None,
        ipv6: Some(DefaultAction::Deny),
        undo_after_seconds,
        persist,
    };
    match client.ask(deny(None, true)) {
        Ok(Reply::Filter(info)) => {
            assert_eq!((info.ipv4.as_str(), info.ipv6.as_str()), ("permit", "deny"));
            assert_eq!(info.file, Some(filter));
        }
        other => panic!("{other:?}"),
    }
    for of_a_daemon in [set(false), off(false), deny(None, false), deny(Some(60), true)] {
        match client.ask(of_a_daemon) {
            Err(ClientError::Refused(refusal)) => {
                assert_eq!(refusal.code, RefusalCode::NotPossible);
            }
            other => panic!("{other:?}"),
        }
    }
    drop(client);
    let mut told = String::new();
    vpnd.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert!(
        told.starts_with("mkfilt: the defaults of the filter in ")
            && told.contains("are ignored: ")
    );
    assert_eq!(told.matches("mkfilt: ").count(), 1, "{told}");
    assert!(vpnd.wait().expect("our child").success());
}

/// Two tunnels whose traffic the kernel cannot express, under a configuration that wants both there.
#[test]
fn a_policy_that_is_refused_can_be_repaired_step_by_step() {
    let many = include_str!("../../../../tests/policies/site/left.xml")
        .replace("\"10.1.0.0\"", "\"10.1.0.1\"")
        .replace("\"10.1.0.255\"", "\"10.1.255.254\"")
        .replace("\"10.2.0.0\"", "\"10.2.0.1\"")
        .replace("\"10.2.0.255\"", "\"10.2.255.254\"");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = directory.path().join("store").display().to_string();
    let config = directory.path().join("vpnd.toml").display().to_string();
    fs::write(&config, "[esp]\ndataplane = \"xfrm\"\n").expect("writable");
    let ask = |config: &str, command: Ask| {
        let (mut vpnd, stream) = start(&["--config", config, "--directory", &store]);
        let outcome = Client::over(stream, "vpnd".into()).ask(command);
        assert!(vpnd.wait().expect("our child").success());
        outcome
    };
    let put = || {
        let text = PolicyText(many.clone().into());
        Ask::PolicyPut(PutPolicy {
            file: "many.xml".into(),
            text,
            force: true,
            ..PutPolicy::default()
        })
    };
    let refusal = ask(&config, put()).expect_err("it was good before").to_string();
    assert!(refusal.contains("more than 256"), "{refusal}");
    assert!(matches!(ask("none", put()), Ok(Reply::Stored(_))));
    match ask(&config, put()) {
        Ok(Reply::Stored(stored)) => {
            let told = stored.warnings.iter().any(|warning| warning.contains("more than 256"));
            assert!(told, "{:?}", stored.warnings);
        }
        other => panic!("{other:?}"),
    }
    let name = Some("site_lan".to_owned());
    let tunnel = Objects { kind: Some("IPSecTunnel".to_owned()), name, id_type: None };
    assert!(matches!(ask(&config, Ask::PolicyDelete(tunnel)), Ok(Reply::Stored(_))));
}
