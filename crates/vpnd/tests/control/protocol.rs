//! The control protocol from end to end: a real daemon around an in-memory gateway, and the client of `vpnctl`.

use crate::running;
use control::client::{Client, ClientError};
use control::protocol::parse;
use control::protocol::{
    Command, MAX_REQUEST, Outcome, RefusalCode, Reply, Response, WorkersChange,
};
use host::socket_file::SocketFile;
use ike::failure::{Failure, FailureKind};
use proptest::prelude::*;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::watch;
use vpn::MemoryGateway;
use vpnd::certificates::Keeper;
use vpnd::config::{Certificates, Log};
use vpnd::daemon::server::{Limits, serve};
use vpnd::daemon::{self, Daemon};

const SAMPLE: &str = include_str!("../../../../tests/policies/site/left.xml");

/// A daemon in a thread, with its policy file and socket in a directory of its own.
struct Fixture {
    directory: tempfile::TempDir,
    memory: MemoryGateway,
    thread: Option<JoinHandle<()>>,
}

/// Certificates below a directory of the test.
fn certificates(directory: &Path) -> Certificates {
    Certificates { directory: directory.to_owned(), ..Certificates::default() }
}

impl Fixture {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let policy = directory.path().join("policy.xml");
        write_private(&policy, SAMPLE);
        let read = host::policy_file::read(&policy).expect("the sample is valid");
        let in_force = Arc::new(read.policy);
        let memory = MemoryGateway::new(Arc::clone(&in_force));
        let keeper = Arc::new(Keeper::new(certificates(directory.path())));
        let daemon = Daemon::new(
            memory.gateway().clone(),
            policy,
            keeper,
            daemon::start_log(&Log::default()),
        )
        .with_policy(in_force, read.definitions);
        let thread = running::start(daemon, directory.path().join("control.sock"));
        Self { directory, memory, thread: Some(thread) }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    fn policy(&self) -> PathBuf {
        self.directory.path().join("policy.xml")
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket()).expect("the daemon listens")
    }

    /// Sends octets as they are, and returns what comes back until the daemon closes.
    fn raw(&self, octets: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.socket()).expect("the daemon listens");
        // The daemon may close before it has read everything.
        let _ = stream.write_all(octets);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Ok(mut client) = Client::connect(&self.socket()) {
            let _ = client.ask(Command::Stop { keep_guard: false });
        }
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the daemon panicked");
        }
    }
}

fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
}

fn tunnels(client: &mut Client, command: Command) -> Vec<control::protocol::Tunnel> {
    match client.ask(command).expect("answered") {
        Reply::Tunnels(tunnels) => tunnels,
        reply => panic!("{reply:?}"),
    }
}

fn refused(client: &mut Client, command: Command) -> (RefusalCode, String) {
    match client.ask(command) {
        Err(ClientError::Refused(refusal)) => (refusal.code, refusal.message),
        outcome => panic!("{outcome:?}"),
    }
}

fn named(name: &str) -> String {
    name.to_owned()
}

#[test]
fn a_tunnel_lives_its_life() {
    let fixture = Fixture::start();
    let mut client = fixture.client();
    assert!(tunnels(&mut client, Command::List { all: false }).is_empty());
    let defined = tunnels(&mut client, Command::List { all: true });
    assert_eq!(defined[0].name, "site");
    assert_eq!(defined[0].state, "down");

    let Ok(Reply::Activations(activations)) = client.ask(Command::Activate { names: vec![] })
    else {
        panic!("no activations")
    };
    assert_eq!(activations.len(), 1);
    assert!(activations[0].up && activations[0].failure.is_none());
    assert_eq!(client.ask(Command::Rekey { name: named("site_lan") }).expect("up"), Reply::Done);

    let status = &tunnels(&mut client, Command::Status { name: named("site_lan") })[0];
    assert_eq!((status.name.as_str(), status.state.as_str()), ("site", "established"));
    let child = &status.children[0];
    assert_eq!(child.local, ["10.1.0.0/24"]);
    assert_eq!(child.child_sa.as_ref().expect("up").rekeys, 1);
    assert_eq!(tunnels(&mut client, Command::List { all: false }).len(), 1);

    assert_eq!(client.ask(Command::Deactivate { name: named("site") }).expect("up"), Reply::Done);
    let (code, message) = refused(&mut client, Command::Rekey { name: named("site") });
    assert_eq!((code, message.as_str()), (RefusalCode::NotPossible, "\"site\" is not up"));
    assert!(tunnels(&mut client, Command::List { all: false }).is_empty());
    let Ok(Reply::Counters(counters)) = client.ask(Command::Counters) else {
        panic!("no counters")
    };
    assert_eq!(counters["replayed"], 3);
    let Ok(Reply::CounterMeanings(meanings)) = client.ask(Command::CounterMeanings) else {
        panic!("no meanings")
    };
    assert!(meanings["esp.unserved"].contains("no SA served it"), "{meanings:?}");
}

#[test]
fn findings_are_told_by_why_and_status() {
    use vpn::findings::{Finding, FindingKind};
    let fixture = Fixture::start();
    let mut client = fixture.client();
    let finding = Finding::new("site_lan", FindingKind::Forwarding, true, "it does not forward");
    fixture.memory.find(finding.with_cure(["set it".to_owned()]));
    let mut found = |name: &str| {
        let Ok(Reply::Why(why)) = client.ask(Command::Why { name: named(name) }) else {
            panic!("no explanation")
        };
        assert!(why.findings.is_empty(), "it is the phase 2 tunnel's");
        let told = why.children[0].findings.clone();
        let status = &tunnels(&mut client, Command::Status { name: named(name) })[0];
        assert_eq!(status.children[0].findings, told);
        let list = &tunnels(&mut client, Command::List { all: true })[0];
        assert!(list.children[0].findings.is_empty(), "a list looks at no host");
        told
    };
    assert_eq!(found("site"), [], "it is down");
    let mut other = fixture.client();
    other.ask(Command::Activate { names: vec![] }).expect("startable");
    for name in ["site", "site_lan"] {
        let told = found(name);
        assert_eq!((told[0].kind.as_str(), told[0].certain), ("forwarding", true));
        assert_eq!(
            (told[0].message.as_str(), &*told[0].cure[0]),
            ("it does not forward", "set it")
        );
    }
    let Ok(Reply::TunnelCounters(counters)) = other.ask(Command::TunnelCounters) else {
        panic!("no counters")
    };
    assert!(counters.is_empty(), "{counters:?}");
}

#[test]
fn the_daemon_tells_of_itself_and_of_packets() {
    use control::protocol::DefaultAction;
    let fixture = Fixture::start();
    let mut client = fixture.client();
    let Ok(Reply::Overview(overview)) = client.ask(Command::Overview) else { panic!("none") };
    assert_eq!((overview.tunnels.defined, overview.tunnels.up), (1, 0));
    assert_eq!(overview.pid, std::process::id());
    assert_eq!(overview.policy, fixture.policy().display().to_string());
    assert_eq!(overview.esp_discarded + overview.ike_discarded, 0, "replayed has no layer here");
    client.ask(Command::Activate { names: vec![] }).expect("startable");
    let Ok(Reply::Overview(overview)) = client.ask(Command::Overview) else { panic!("none") };
    assert_eq!((overview.tunnels.up, overview.children.up), (1, 1));

    let ipv6 = Some(DefaultAction::Deny);
    let set = client.ask(Command::SetFilter {
        ipv4: None,
        ipv6,
        undo_after_seconds: None,
        persist: false,
    });
    let Ok(Reply::Filter(filter)) = set else { panic!("{set:?}") };
    assert_eq!((filter.ipv4.as_str(), filter.ipv6.as_str()), ("permit", "deny"));
    assert_eq!(client.ask(Command::Filter).expect("it has one"), Reply::Filter(filter));

    let mut trace = |packet: &str| match client.ask(Command::Trace { packet: named(packet) }) {
        Ok(Reply::Trace(trace)) => (trace.leaving.verdict, trace.leaving.message),
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::BadPacket);
            (named("refused"), refusal.message)
        }
        other => panic!("{other:?}"),
    };
    let (verdict, message) = trace("tcp 10.1.0.5:40000 > 10.2.0.7:443");
    assert_eq!(verdict, "dropped");
    assert_eq!(
        message,
        "dropped: tunnel site_lan is down; to bring it up: vpnctl activate site_lan"
    );
    assert_eq!(trace("tcp 10.1.0.5:1 192.0.2.99:2").0, "clear");
    assert_eq!(trace("tcp [fd00::1]:1 [fd00::2]:2").0, "dropped");
    let (verdict, message) = trace("tcp 10.1.0.5 10.2.0.7:443");
    assert!(verdict == "refused" && message.contains("both ports are needed"), "{message}");
}

#[test]
fn workers_are_shown_and_changed() {
    let fixture = Fixture::start();
    let mut client = fixture.client();
    let Ok(Reply::Workers(shown)) = client.ask(Command::Workers) else { panic!("no workers") };
    // Without a data plane there is nothing to carry.
    assert_eq!((shown.workers.as_str(), shown.threads.len()), ("auto", 0));
    assert_eq!(shown.stages.len(), 9);

    let mut change = WorkersChange::default();
    ["schedule=pipeline", "workers=3"].iter().for_each(|s| change.set(s).expect("a setting"));
    let Ok(Reply::Workers(changed)) = client.ask(Command::WorkersSet(change)) else {
        panic!("not changed")
    };
    assert_eq!((changed.schedule.as_str(), changed.number), ("pipeline", 3));
    assert_eq!(changed.wait, shown.wait);

    for (field, value, says) in
        [("wait", "never", "use event, poll or adaptive"), ("affinity", "9999", "CPU 9999 is not")]
    {
        let line = format!(r#"{{"version":1,"command":"workers_set","{field}":"{value}"}}"#);
        let (code, message) = refused(&mut client, parse(line.as_bytes()).expect("a command"));
        assert_eq!(code, RefusalCode::BadSetting);
        assert!(message.contains(says), "{message}");
    }
    let Ok(Reply::Workers(still)) = client.ask(Command::Workers) else { panic!("no workers") };
    assert_eq!((still.schedule, still.number, still.wait), (changed.schedule, 3, changed.wait));
}

#[test]
fn a_failed_activation_says_why_now_and_later() {
    let fixture = Fixture::start();
    let failure = Failure::new(
        FailureKind::NoProposalChosen,
        named("we offered AES-CBC-256; the peer refused it"),
    );
    fixture.memory.fail("site", failure);
    let mut client = fixture.client();
    let Ok(Reply::Activations(activations)) =
        client.ask(Command::Activate { names: vec![named("site")] })
    else {
        panic!("no activations")
    };
    let failure = activations[0].failure.as_ref().expect("it failed");
    assert_eq!(failure.kind, "no_proposal_chosen");
    assert!(!activations[0].up && failure.message.contains("we offered AES-CBC-256"));
    let status = &tunnels(&mut client, Command::Status { name: named("site") })[0];
    let last = status.last_failure.as_ref().expect("it is remembered");
    assert_eq!((last.kind.as_str(), last.seconds_ago), ("no_proposal_chosen", Some(12)));
}

#[test]
fn unknown_names_get_a_hint_and_the_connection_goes_on() {
    let fixture = Fixture::start();
    let mut client = fixture.client();
    for command in [
        Command::Status { name: named("sité") },
        Command::Activate { names: vec![named("site"), named("sitte")] },
        Command::Deactivate { name: named("sites") },
        Command::Rekey { name: named("sit") },
    ] {
        let (code, message) = refused(&mut client, command);
        assert_eq!(code, RefusalCode::UnknownTunnel);
        assert!(message.contains("did you mean \"site\"?"), "{message}");
    }
    let (_, message) = refused(&mut client, Command::Status { name: named("zzzzzz") });
    assert!(message.contains("vpnctl list --all"), "{message}");
    let (code, message) = refused(&mut client, Command::Log { level: named("loud") });
    assert!(code == RefusalCode::BadLevel && message.contains("debug"), "{message}");
    assert_eq!(client.ask(Command::Log { level: named("info") }).expect("a level"), Reply::Done);
}

#[test]
fn a_reload_is_all_or_nothing() {
    let fixture = Fixture::start();
    let mut client = fixture.client();
    client.ask(Command::Activate { names: vec![] }).expect("it comes up");

    write_private(&fixture.policy(), &SAMPLE.replace("ESP_AES256_GCM_16", "ESP_AES256_GCM_17"));
    let (code, message) =
        refused(&mut client, Command::Reload { dry_run: false, undo_after_seconds: None });
    assert_eq!(code, RefusalCode::BadPolicy);
    assert!(message.contains("policy.xml:") && message.contains("ESP_AES256_GCM_17"), "{message}");
    assert_eq!(tunnels(&mut client, Command::List { all: false }).len(), 1, "still up");

    let added = SAMPLE.replace("_TunnelName=\"site_lan\"", "_TunnelName=\"other_lan\"");
    write_private(&fixture.policy(), &added);
    let Ok(Reply::Reloaded(reloaded)) =
        client.ask(Command::Reload { dry_run: false, undo_after_seconds: None })
    else {
        panic!("not reloaded")
    };
    assert_eq!((reloaded.tunnels, reloaded.warnings.len()), (1, 0));
    let names = tunnels(&mut client, Command::List { all: true });
    assert_eq!(names[0].children[0].name, "other_lan");

    fs::remove_file(fixture.policy()).expect("it is there");
    let (code, message) =
        refused(&mut client, Command::Reload { dry_run: false, undo_after_seconds: None });
    assert!(code == RefusalCode::BadPolicy && message.contains("cannot read the policy"));
    assert_eq!(tunnels(&mut client, Command::List { all: true }).len(), 1);
}

#[test]
fn a_reload_reads_certificates_again_or_keeps_those_in_force() {
    let fixture = Fixture::start();
    let mut client = fixture.client();
    let listed = |client: &mut Client| match client.ask(Command::Certs) {
        Ok(Reply::Certificates(all)) => all,
        other => panic!("no certificates but {other:?}"),
    };
    assert!(listed(&mut client).is_empty());

    let policy = SAMPLE.replace("Preshared_key", "ECDSA-256");
    write_private(&fixture.policy(), &policy);
    let Ok(Reply::Reloaded(reloaded)) =
        client.ask(Command::Reload { dry_run: false, undo_after_seconds: None })
    else {
        panic!("not reloaded")
    };
    let said = reloaded.warnings.join("\n");
    assert!(said.contains("tunnel site: no certificate of this side is for 192.0.2.1"), "{said}");
    assert!(said.contains("tunnel site: no authority is trusted"), "{said}");

    write_certificates(fixture.directory.path());
    let Ok(Reply::Reloaded(reloaded)) =
        client.ask(Command::Reload { dry_run: false, undo_after_seconds: None })
    else {
        panic!("not reloaded")
    };
    assert!(!reloaded.warnings.iter().any(|warning| warning.contains("tunnel site")));
    let before = listed(&mut client);
    let roles: Vec<&str> = before.iter().map(|info| info.role.as_str()).collect();
    assert_eq!(roles, ["authority", "own"]);
    let own = &before[1];
    assert_eq!((&own.subject[..], &own.issuer[..]), ("CN=left", "CN=root"));
    assert_eq!(
        (&own.names[..], &own.tunnels[..]),
        (&["192.0.2.1".into()][..], &["site".into()][..])
    );
    assert_eq!(own.key.as_deref(), Some("ECDSA P-256"));
    assert!(own.source.ends_with("/certs/left.der"), "{}", own.source);
    assert_eq!(own.not_after.as_deref(), Some("4096-01-01T00:00:00Z"));

    let broken = fixture.directory.path().join("certs/broken.pem");
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\nAAAA\n").expect("writable");
    fs::remove_file(fixture.directory.path().join("ca/root.der")).expect("it is there");
    let (code, message) =
        refused(&mut client, Command::Reload { dry_run: false, undo_after_seconds: None });
    assert_eq!(code, RefusalCode::BadCertificates);
    assert!(message.contains("broken.pem: line 1: the CERTIFICATE that begins here never ends"));
    assert_eq!(listed(&mut client), before);
}

/// An authority and a certificate for 192.0.2.1 with its key, where a [`Fixture`] looks for them.
fn write_certificates(directory: &Path) {
    let params = |name: &str, alternatives: Vec<String>| {
        let mut params = rcgen::CertificateParams::new(alternatives).expect("an address");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params
    };
    let mut root = params("root", vec![]);
    root.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let [root_key, left_key] = [(); 2].map(|()| rcgen::KeyPair::generate().expect("a key"));
    let root_der = root.self_signed(&root_key).expect("signs").der().to_vec();
    let issuer = rcgen::Issuer::new(root, root_key);
    let left = params("left", vec!["192.0.2.1".into()]);
    let left_der = left.signed_by(&left_key, &issuer).expect("signs").der().to_vec();
    let files = [
        ("ca/root", root_der),
        ("certs/left", left_der),
        ("private/left", left_key.serialize_der()),
    ];
    for (name, octets) in files {
        let path = directory.join(name).with_extension("der");
        fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
        fs::write(&path, octets).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
    }
}

#[test]
fn the_socket_is_free_when_the_connection_that_stopped_the_daemon_closes() {
    for _ in 0..50 {
        let fixture = Fixture::start();
        // These are told to close, too; the order in which that happens is arbitrary.
        let _idle: Vec<Client> = (0..8).map(|_| fixture.client()).collect();
        let mut client = fixture.client();
        assert_eq!(client.ask(Command::Stop { keep_guard: false }).expect("answered"), Reply::Done);
        client.wait_until_gone();
        let socket = fixture.socket();
        assert!(matches!(Client::connect(&socket), Err(ClientError::NoDaemon(_))));
        drop(SocketFile::bind(&socket).expect("the lock is free"));
    }
}

#[test]
fn stop_is_answered_and_leaves_no_socket() {
    let mut fixture = Fixture::start();
    let mut idle = fixture.client();
    let mut client = fixture.client();
    assert_eq!(client.ask(Command::Stop { keep_guard: false }).expect("answered"), Reply::Done);
    client.wait_until_gone();
    idle.wait_until_gone();
    fixture.thread.take().expect("it runs").join().expect("it ends well");
    assert!(fixture.memory.is_stopped());
    let socket = fixture.socket();
    assert!(!socket.exists());
    let Err(error) = Client::connect(&socket) else { panic!("nobody listens") };
    let text = error.to_string();
    assert!(matches!(error, ClientError::NoDaemon(_)));
    assert!(text.contains(&socket.display().to_string()) && text.contains("vpnd start"), "{text}");
}

#[test]
fn the_wire_format_is_the_documented_one() {
    let fixture = Fixture::start();
    let answers = fixture.raw(
        b"{\"version\":1,\"command\":\"list\",\"colour\":\"blue\"}\n{\"command\":\"stop\",\"version\":7}\n",
    );
    let mut lines = answers.lines();
    assert_eq!(lines.next(), Some("{\"version\":1,\"result\":{\"tunnels\":[]}}"));
    let refusal: serde_json::Value =
        serde_json::from_str(lines.next().expect("a second answer")).expect("JSON");
    assert_eq!(refusal["error"]["code"], "unsupported_version");
    let answer = fixture.raw(b"{\"version\":1,\"command\":\"log\",\"level\":\"info\"}");
    assert_eq!(answer, "{\"version\":1,\"result\":\"done\"}\n");
    let answer = fixture.raw(b"{\"version\":1,\"command\":\"reboot\"}\n");
    assert!(answer.contains("\"code\":\"unknown_command\"") && answer.contains("deactivate"));
}

#[test]
fn hostile_input_is_refused_and_harms_nobody() {
    let fixture = Fixture::start();
    let mut bystander = fixture.client();
    let nested = [b"{\"version\":1,\"command\":".as_slice(), &[b'['; 10_000], b"\n"].concat();
    for octets in [
        b"\n".as_slice(),
        b"\xff\xfe\0\n",
        b"[]\n",
        b"{\"version\":-1,\"command\":\"list\"}\n",
        b"{\"version\":1,\"command\":{}}\n",
        b"{\"version\":1,\"command\":\"status\"}\n",
        b"{\"version\":1,\"command\":\"status\",\"name\":7}\n",
        &nested,
    ] {
        let answer = fixture.raw(octets);
        assert!(answer.contains("\"code\":\"bad_request\""), "{octets:?}: {answer}");
    }
    let long = vec![b' '; 2 * MAX_REQUEST];
    let answer = fixture.raw(&long);
    // Either the refusal arrives, or the connection was reset with data still unread.
    assert!(
        answer.is_empty() || answer.contains(&format!("at most {MAX_REQUEST} octets")),
        "{answer}"
    );
    assert!(tunnels(&mut bystander, Command::List { all: false }).is_empty());
}

#[test]
fn the_longest_request_is_answered_and_one_octet_more_is_not() {
    let fixture = Fixture::start();
    let request = |length: usize| {
        let mut line = b"{\"version\":1,\"command\":\"list\"}".to_vec();
        line.resize(length - 1, b' ');
        line.push(b'\n');
        line
    };
    let mut stream = BufReader::new(UnixStream::connect(fixture.socket()).expect("it listens"));
    // More than may be read at the same time: each gives its slot back.
    let slots = Limits::default().large_requests;
    let longest = std::iter::repeat_n((MAX_REQUEST, true), slots + 1);
    for (length, good) in longest.chain([(MAX_REQUEST + 1, false)]) {
        stream.get_mut().write_all(&request(length)).expect("the daemon reads");
        let mut answer = String::new();
        stream.read_line(&mut answer).expect("an answer");
        let answer: Response = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(matches!(answer.outcome, Outcome::Result(_)), good);
    }
}

/// A server alone, so that its limits can be small.
fn with_server(limits: Limits, test: impl AsyncFnOnce(PathBuf)) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("control.sock");
    let policy = directory.path().join("policy.xml");
    write_private(&policy, SAMPLE);
    let read = host::policy_file::read(&policy).expect("the sample is valid");
    let memory = MemoryGateway::new(Arc::new(read.policy));
    let keeper = Arc::new(Keeper::new(certificates(directory.path())));
    let service = Arc::new(Daemon::new(
        memory.gateway().clone(),
        policy,
        keeper,
        daemon::start_log(&Log::default()),
    ));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = UnixListener::bind(&path).expect("a free path");
        let (stop, stopping) = watch::channel(false);
        let owner = fs::metadata(&path).map(|m| std::os::unix::fs::MetadataExt::uid(&m));
        let owner = owner.expect("the socket is there");
        let server = tokio::spawn(serve(listener, owner, service, limits, stopping));
        test(path).await;
        stop.send_replace(true);
        drop(server.await.expect("the server ends well"));
    });
}

#[test]
fn too_many_clients_are_turned_away_until_one_leaves() {
    let limits = Limits { clients: 2, ..Limits::default() };
    with_server(limits, async |path| {
        tokio::task::spawn_blocking(move || {
            let mut first = Client::connect(&path).expect("it listens");
            let mut second = Client::connect(&path).expect("it listens");
            // Answers show that both are being served.
            assert!(tunnels(&mut first, Command::List { all: false }).is_empty());
            assert!(tunnels(&mut second, Command::List { all: false }).is_empty());
            let mut third = Client::connect(&path).expect("it listens");
            let (code, message) = refused(&mut third, Command::List { all: false });
            assert!(code == RefusalCode::Busy && message.contains("2 clients"), "{message}");
            drop(first);
            // The daemon notices that the first has left in its own time.
            loop {
                let mut again = Client::connect(&path).expect("it listens");
                match again.ask(Command::List { all: false }) {
                    Ok(_) => break,
                    Err(ClientError::Refused(refusal)) => {
                        assert_eq!(refusal.code, RefusalCode::Busy);
                    }
                    // The refusal was sent before the question, and the connection closed upon it.
                    Err(_) => {}
                }
            }
        })
        .await
        .expect("the test ends well");
    });
}

#[test]
fn a_slow_client_blocks_nobody_and_is_cut_off() {
    let limits =
        Limits { read: Duration::from_secs(2), write: Duration::from_secs(2), ..Limits::default() };
    with_server(limits, async |path| {
        tokio::task::spawn_blocking(move || {
            // One that sends half a request, and one that never takes its answers.
            let mut half = UnixStream::connect(&path).expect("it listens");
            half.write_all(b"{\"version\":1,").expect("it reads");
            let mut deaf = UnixStream::connect(&path).expect("it listens");
            let flood = thread::spawn(move || {
                let request = b"{\"version\":1,\"command\":\"list\",\"all\":true}\n".repeat(64);
                // Ends when the daemon, stuck with its answers, has cut the connection.
                while deaf.write_all(&request).is_ok() {}
            });
            let mut client = Client::connect(&path).expect("it listens");
            assert_eq!(tunnels(&mut client, Command::List { all: true }).len(), 1);
            let mut rest = Vec::new();
            half.read_to_end(&mut rest).expect("the daemon closes");
            assert!(rest.is_empty());
            flood.join().expect("it is cut off");
        })
        .await
        .expect("the test ends well");
    });
}

#[test]
fn the_crypto_facility_is_told_and_set() {
    use cli::crypto::{set, state, stats};
    let fixture = Fixture::start();
    let mut client = fixture.client();
    let before = state(&mut client).expect("it answers");
    let names: Vec<_> = before.tunables.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["nx_enabled", "min_sz", "in_core_enabled"]);

    let after = set(&mut client, "in_core_enabled", Some(0), false).expect("always possible");
    assert!(after.functions.iter().all(|served| served.place == "software"), "{after:?}");
    assert_eq!(after.tunable("in_core_enabled").map(|t| t.value), Some(0));
    let back = set(&mut client, "in_core_enabled", None, false).expect("always possible");
    assert_eq!((back.tunables, back.functions), (before.tunables, before.functions));
    assert!(stats(&mut client).is_ok());

    for (name, value, code, part) in [
        ("in_core", 0, RefusalCode::BadRequest, "no tunable \"in_core\""),
        ("in_core_enabled", 7, RefusalCode::BadRequest, "is 0 or 1, not 7"),
        (
            "nx_enabled",
            1,
            RefusalCode::NotPossible,
            "this daemon has no threads that carry packets",
        ),
    ] {
        let error = set(&mut client, name, Some(value), false).expect_err("refused");
        let ClientError::Refused(refusal) = error else { panic!("{error}") };
        assert_eq!(refusal.code, code);
        assert!(refusal.message.contains(part), "{refusal}");
    }
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        proptest::collection::vec(any::<String>(), 0..4)
            .prop_map(|names| Command::Activate { names }),
        any::<String>().prop_map(|name| Command::Deactivate { name }),
        any::<bool>().prop_map(|all| Command::List { all }),
        any::<String>().prop_map(|name| Command::Status { name }),
        any::<String>().prop_map(|name| Command::Rekey { name }),
        any::<String>().prop_map(|level| Command::Log { level }),
        Just(Command::Reload { dry_run: false, undo_after_seconds: None }),
        Just(Command::Counters),
        (any::<String>(), any::<Option<u64>>(), any::<bool>())
            .prop_map(|(tunable, value, persist)| Command::CryptoSet { tunable, value, persist }),
        Just(Command::CryptoStats),
        any::<bool>().prop_map(|keep_guard| Command::Stop { keep_guard }),
    ]
}

proptest! {
    #[test]
    fn requests_come_back_as_they_were_sent(command in command()) {
        let request = control::protocol::Request { version: 1, command: command.clone() };
        let octets = serde_json::to_vec(&request).expect("strings");
        prop_assert!(!octets.contains(&b'\n'));
        prop_assert_eq!(parse(&octets).expect("valid"), command);
    }

    #[test]
    fn no_octets_make_the_parser_panic(octets in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = parse(&octets);
    }

    #[test]
    fn no_mutation_makes_the_parser_panic(
        command in command(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let request = control::protocol::Request { version: 1, command };
        let mut octets = serde_json::to_vec(&request).expect("strings");
        for (at, value) in changes {
            let at = at.index(octets.len());
            octets[at] = value;
        }
        if let Err(refusal) = parse(&octets) {
            prop_assert!(!refusal.message.is_empty());
        }
    }
}

#[test]
fn a_watcher_hears_what_happens_to_what_it_asked_for() {
    let fixture = Fixture::start();
    let mut watcher = fixture.client();
    let names = vec![named("site")];
    assert_eq!(watcher.ask(Command::Events { names }).expect("known"), Reply::Done);
    let mut client = fixture.client();
    client.ask(Command::Activate { names: vec![] }).expect("it can be started");
    client.ask(Command::Deactivate { name: named("site") }).expect("it is up");
    let mut next = || watcher.next_event().expect("events").expect("the daemon runs");
    let up = next();
    assert_eq!((up.event.as_str(), up.tunnel.as_str()), ("established", "site"));
    assert!(up.suite.is_some() && up.time.ends_with('Z') && up.message.starts_with("up, "));
    let down = next();
    assert_eq!((down.event.as_str(), down.reason.as_deref()), ("closed", Some("deactivated")));
    let (code, _) = refused(&mut client, Command::Events { names: vec![named("sit")] });
    assert_eq!(code, RefusalCode::UnknownTunnel);
    client.ask(Command::Stop { keep_guard: false }).expect("it stops");
    assert_eq!(watcher.next_event().expect("a clean end"), None);
}

#[test]
fn a_watcher_that_does_not_read_is_told_what_it_missed() {
    let fixture = Fixture::start();
    let mut watcher = fixture.client();
    watcher.ask(Command::Events { names: vec![] }).expect("known");
    let mut client = fixture.client();
    client.ask(Command::Log { level: named("warn") }).expect("a level");
    // More than its socket and its queue take.
    for _ in 0..4000 {
        client.ask(Command::Activate { names: vec![] }).expect("it can be started");
    }
    let mut heard = 0;
    let missed = loop {
        let happening = watcher.next_event().expect("events").expect("the daemon runs");
        match happening.missed {
            Some(missed) => break missed,
            None => heard += 1,
        }
    };
    assert!(missed > 0 && heard + missed <= 4000, "{heard} heard, {missed} missed");
}

#[test]
fn watchers_leave_room_for_others() {
    let fixture = Fixture::start();
    let mut watchers: Vec<Client> = (0..9).map(|_| fixture.client()).collect();
    let answers: Vec<_> =
        watchers.iter_mut().map(|w| w.ask(Command::Events { names: vec![] })).collect();
    assert!(answers[..8].iter().all(|a| matches!(a, Ok(Reply::Done))));
    assert!(matches!(&answers[8], Err(ClientError::Refused(r)) if r.code == RefusalCode::Busy));
    assert!(fixture.client().ask(Command::Counters).is_ok());
}

#[test]
fn why_names_the_failure_the_cure_and_its_place() {
    let fixture = Fixture::start();
    let proof = ike::failure::facts::Proof {
        by_us: false,
        certificate: false,
        local: IpAddr::from([192, 0, 2, 1]).into(),
        remote: IpAddr::from([192, 0, 2, 2]).into(),
        ppk: None,
    };
    fixture.memory.fail("site", proof.into());
    let mut client = fixture.client();
    // The places of the policy are known once it has been read by the daemon itself.
    client
        .ask(Command::Reload { dry_run: false, undo_after_seconds: None })
        .expect("the sample is valid");
    let Ok(Reply::Why(explanation)) = client.ask(Command::Why { name: named("site_lan") }) else {
        panic!("no explanation")
    };
    assert_eq!((explanation.name.as_str(), explanation.phase), ("site", 1));
    assert_eq!(explanation.children[0].name, "site_lan");
    let failure = &explanation.failures[0];
    assert_eq!((failure.kind.as_str(), failure.authenticated), ("authentication_failed", true));
    let key = SAMPLE.lines().position(|l| l.contains("<IKEPresharedKey ")).expect("there") + 1;
    let place = format!("policy.xml:{key})");
    assert!(failure.cure[0].contains("IKEPresharedKey \"192.0.2.2\" ("), "{:?}", failure.cure);
    assert!(failure.cure[0].contains(&place), "{:?}", failure.cure);
    let line = SAMPLE.lines().position(|l| l.contains("<IKETunnel ")).expect("it is there") + 1;
    assert_eq!(
        (explanation.defined[0].element.as_str(), explanation.defined[0].line),
        ("IKETunnel", line)
    );
    assert!(explanation.defined[0].file.ends_with("policy.xml"));
}

#[test]
fn why_names_the_side_that_lacks_a_ppk_and_what_to_do() {
    use ike::failure::facts::{Ppk, PpkLack};
    let ppk = |lack, asked: Option<&str>| Ppk {
        lack,
        known: vec![named("k-1")],
        asked: asked.map(str::to_owned),
        required: true,
        remote: named("192.0.2.2"),
    };
    for (ppk, sides, cure) in [
        (ppk(PpkLack::Key, None), ("no key", None), "/etc/vpnd/ppk/k-1"),
        (ppk(PpkLack::Unknown, Some("k-2")), ("k-1", Some("k-2")), "append k-2 to vpn:PPK"),
        (ppk(PpkLack::Unannounced, None), ("k-1", Some("none")), "give the peer the key of k-1"),
        (ppk(PpkLack::Unused, Some("k-1")), ("k-1", Some("none")), "give the peer the key of k-1"),
        (ppk(PpkLack::Unshared, None), ("k-1", Some("none")), "give the peer the key of k-1"),
        (
            ppk(PpkLack::Differs, Some("k-1")),
            ("k-1", Some("k-1, with other octets")),
            "compare the octets of the PPK k-1",
        ),
    ] {
        let fixture = Fixture::start();
        let lack = ppk.lack;
        fixture.memory.fail("site", ppk.into());
        let Ok(Reply::Why(explanation)) =
            fixture.client().ask(Command::Why { name: named("site") })
        else {
            panic!("no explanation")
        };
        let failure = &explanation.failures[0];
        assert_eq!(failure.kind, "authentication_failed");
        let row = &failure.comparison[0];
        assert_eq!(
            (row.item.as_str(), row.here.as_str(), row.there.as_deref()),
            ("PPK", sides.0, sides.1),
            "{lack:?}"
        );
        assert!(failure.cure[0].contains(cure), "{lack:?}: {:?}", failure.cure);
    }
}

#[test]
fn a_dry_run_says_what_a_reload_then_does() {
    let fixture = Fixture::start();
    let mut client = fixture.client();
    client
        .ask(Command::Reload { dry_run: false, undo_after_seconds: None })
        .expect("the sample is valid");
    let text = SAMPLE.replace("ESP_KeyRefreshMinutes=\"60\"", "ESP_KeyRefreshMinutes=\"30\"");
    write_private(&fixture.policy(), &text);
    let mut reload = |dry_run| {
        let Ok(Reply::Reloaded(reloaded)) =
            client.ask(Command::Reload { dry_run, undo_after_seconds: None })
        else {
            panic!("not reloaded")
        };
        assert_eq!(reloaded.dry_run, dry_run);
        reloaded.changes
    };
    let planned = reload(true);
    let effects: Vec<_> = planned.iter().map(|c| (c.child.as_deref(), c.effect.as_str())).collect();
    assert_eq!(effects, [(None, "untouched"), (Some("site_lan"), "kept")]);
    assert_eq!(planned[1].fields, ["lifetime"]);
    assert_eq!(reload(true), planned, "nothing has changed");
    assert_eq!(reload(false), planned);
    assert!(reload(true).iter().all(|c| c.effect == "untouched"), "it is in force");
    write_private(&fixture.policy(), "no policy");
    let (code, _) =
        refused(&mut client, Command::Reload { dry_run: true, undo_after_seconds: None });
    assert_eq!(code, RefusalCode::BadPolicy);
}
