//! `vpnctl policy …`, against a daemon around an in-memory gateway and without one.

use crate::running;
use control::client::{Client, ClientError};
use control::protocol::{Command, GetPolicy, PolicyText, PutPolicy, RefusalCode, Reply};
use policy::Database;
use policy::xml::MAX_FILE_LEN;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::thread::JoinHandle;
use vpn::MemoryGateway;
use vpnd::certificates::Keeper;
use vpnd::config::{Certificates, Log};
use vpnd::daemon::{self, Daemon, Source};

const SITE: &str = include_str!("../../../../tests/policies/site/left.xml");

const SECOND: &str = "<AIX_VPN Version=\"2.1\">
<IPSecTunnel IPSec_TunnelName=\"second\" IKE_TunnelName=\"site\" IPSec_ProtectionRef=\"site_p2\">
  <IPSecLocalIdentity><IPV4_Address_Range From_IPAddr=\"10.3.0.0\" To_IPAddr=\"10.3.0.255\"/></IPSecLocalIdentity>
  <IPSecRemoteIdentity><IPV4_Address_Range From_IPAddr=\"10.4.0.0\" To_IPAddr=\"10.4.0.255\"/></IPSecRemoteIdentity>
</IPSecTunnel>
</AIX_VPN>
";

/// A directory with files and perhaps a store, and a daemon, if there is one.
struct Bench {
    directory: tempfile::TempDir,
    daemon: Option<(MemoryGateway, JoinHandle<()>)>,
}

impl Bench {
    fn without_daemon() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let bench = Self { directory, daemon: None };
        bench.write("site.xml", SITE);
        bench.write("second.xml", SECOND);
        bench
    }

    fn with_store() -> Self {
        let bench = Self::without_daemon();
        let source = Source::open_store(&bench.path("store")).expect("it is new");
        bench.start(source)
    }

    fn with_file() -> Self {
        let bench = Self::without_daemon();
        let source = Source::from(bench.path("site.xml"));
        bench.start(source)
    }

    fn start(mut self, source: Source) -> Self {
        let read = source.read().expect("valid");
        let policy = Arc::new(read.policy);
        let memory = MemoryGateway::new(Arc::clone(&policy));
        let certificates =
            Certificates { directory: self.directory.path().to_owned(), ..Certificates::default() };
        let keeper = Arc::new(Keeper::new(certificates));
        let daemon = Daemon::new(
            memory.gateway().clone(),
            source,
            keeper,
            daemon::start_log(&Log::default()),
        )
        .with_policy(policy, read.definitions);
        let thread = running::start(daemon, self.path("control.sock"));
        self.daemon = Some((memory, thread));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("writable");
        fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).expect("ours");
    }

    fn client(&self) -> Client {
        Client::connect(&self.path("control.sock")).expect("it listens")
    }

    /// Exit status, standard output and standard error of `vpnctl policy …`, with the directory's path left out.
    fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let mut command = process::Command::new(testkit::vpnctl());
        command.current_dir(self.directory.path()).args(["--control", "control.sock", "policy"]);
        command.args(words);
        if self.daemon.is_none() && !words.starts_with(&["mirror"]) {
            command.args(["--directory", "store"]);
        }
        let output = command.output().expect("vpnctl is built");
        let here = format!("{}/", self.directory.path().display());
        let text = |octets| String::from_utf8(octets).expect("text").replace(&here, "");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn told(&self, words: &[&str]) -> String {
        let (status, told, error) = self.run(words);
        assert_eq!(status, Some(0), "{words:?}: {error}");
        told
    }

    fn refused(&self, words: &[&str]) -> String {
        let (status, told, error) = self.run(words);
        assert_eq!((status, told.as_str()), (Some(1), ""), "{words:?}: {error}");
        error
    }

    fn tunnels(&self) -> Vec<String> {
        match self.client().ask(Command::List { all: true }).expect("an answer") {
            Reply::Tunnels(tunnels) => tunnels
                .iter()
                .flat_map(|t| {
                    t.children.iter().map(|c| format!("{}/{} {}", t.name, c.name, c.state))
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let Some((_, thread)) = self.daemon.take() else { return };
        let _ = Client::connect(&self.directory.path().join("control.sock"))
            .and_then(|mut client| client.ask(Command::Stop { keep_guard: false }));
        let _ = thread.join();
    }
}

#[test]
fn without_a_daemon_it_is_stored_for_the_next_start() {
    let bench = Bench::without_daemon();
    assert_eq!(
        bench.told(&["put", "site.xml"]),
        "\
the policy store store has changed: 6 new
  + IKEProtection site_p1
  + IKETunnel site
  + IKEPresharedKey 192.0.2.2
  + IPSecProposal site_gcm
  + IPSecProtection site_p2
  + IPSecTunnel site_lan
no vpnd is running from it: the next start puts it in force
"
    );
    let mode = |name| fs::metadata(bench.path(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("store"), mode("store/policy.xml")), (0o700, 0o600));
    let text = bench.told(&["get"]);
    assert_eq!(text, fs::read_to_string(bench.path("store/policy.xml")).expect("readable"));
    bench.write("again.xml", &text);
    let error = bench.refused(&["put", "again.xml"]);
    assert!(error.contains("again.xml:") && error.contains("--force"), "{error}");
    assert_eq!(
        bench.told(&["put", "--force", "again.xml"]),
        "the policy store store has not changed: 6 unchanged\n\
         no vpnd is running from it: the next start puts it in force\n"
    );
    assert_eq!(bench.told(&["get"]), text);

    let bench = bench.start_from_store();
    assert_eq!(bench.tunnels(), ["site/site_lan down"]);
}

impl Bench {
    fn start_from_store(self) -> Self {
        let source = Source::open_store(&self.path("store")).expect("nobody has it");
        self.start(source)
    }
}

#[test]
fn a_daemon_puts_in_force_what_is_put() {
    let bench = Bench::with_store();
    assert_eq!(bench.tunnels(), Vec::<String>::new());
    bench.told(&["put", "site.xml"]);
    bench.client().ask(Command::Activate { names: vec![] }).expect("the twin starts everything");
    assert_eq!(bench.tunnels(), ["site/site_lan established"]);
    let diff = "\
the policy store store would change: 1 new; 6 other objects unchanged
  + IPSecTunnel second
tunnels would change
  site/second  new
  2 untouched
";
    assert_eq!(bench.told(&["diff", "second.xml"]), diff);
    assert_eq!(bench.tunnels().len(), 1, "only asked");
    let told = bench.told(&["put", "second.xml"]);
    assert_eq!(
        told,
        diff.replace("would change", "has changed").replace("tunnels has", "tunnels have")
    );
    assert_eq!(bench.tunnels().len(), 2);

    bench.write("other.xml", &SECOND.replace("10.4.0.", "10.5.0."));
    assert_eq!(
        bench.told(&["put", "--force", "other.xml"]),
        "\
the policy store store has changed: 1 replaced; 6 other objects unchanged
  ~ IPSecTunnel second
      IPSecRemoteIdentity/IPV4_Address_Range/From_IPAddr: \"10.4.0.0\" → \"10.5.0.0\"
      IPSecRemoteIdentity/IPV4_Address_Range/To_IPAddr: \"10.4.0.255\" → \"10.5.0.255\"
tunnels have changed
  site/second  remote traffic: deleted, and established again if it is up
  2 untouched
"
    );
    assert_eq!(
        bench.told(&["delete", "--type", "IPSecTunnel", "--name", "second"]),
        "\
the policy store store has changed: 1 deleted; 6 other objects unchanged
  - IPSecTunnel second
tunnels have changed
  site/second  deleted
  2 untouched
"
    );
    let error = bench.refused(&["delete", "--type", "ikeprotection", "--name", "site_p1"]);
    assert_eq!(
        error,
        "vpnctl: IKEProtection site_p1 is in use by IKETunnel site; delete or change that first\n"
    );
    // A store that the daemon has can be written by nobody else.
    let error = bench.refused(&["purge", "--yes", "--directory", "store"]);
    assert!(
        error.contains("another process has the policy store store")
            && error.contains("without --directory"),
        "{error}"
    );
    assert!(bench.told(&["purge", "--yes"]).contains("6 deleted"));
    assert_eq!(bench.tunnels(), Vec::<String>::new());
}

#[test]
fn a_file_with_an_error_changes_nothing() {
    let bench = Bench::with_store();
    bench.told(&["put", "site.xml"]);
    let before = fs::read(bench.path("store/policy.xml")).expect("readable");
    bench.write("bad.xml", &SECOND.replace("site_p2", "site_p3"));
    assert_eq!(
        bench.refused(&["put", "bad.xml"]),
        "\
vpnctl: bad.xml:2:83: error: IPSec_ProtectionRef refers to \"site_p3\", but no IPSecProtection has that name
  |
2 | …PSecTunnel IPSec_TunnelName=\"second\" IKE_TunnelName=\"site\" IPSec_ProtectionRef=\"site_p3\">
  |                                                                                  ^^^^^^^
  = help: did you mean \"site_p2\"?

policy refused: 1 error
"
    );
    assert_eq!(fs::read(bench.path("store/policy.xml")).expect("readable"), before);
    assert_eq!(bench.tunnels(), ["site/site_lan down"]);
    // And a disk that cannot be written: the old policy stays in force.
    fs::create_dir(bench.path("store/policy.new")).expect("in the way");
    let error = bench.refused(&["put", "second.xml"]);
    assert!(error.contains("cannot write the successor of store/policy.xml"), "{error}");
    assert_eq!(bench.tunnels(), ["site/site_lan down"]);
    assert_eq!(fs::read(bench.path("store/policy.xml")).expect("readable"), before);
}

#[test]
fn a_store_that_was_changed_by_hand_is_compared_and_reloaded() {
    let bench = Bench::with_store();
    bench.told(&["put", "site.xml"]);
    let text = fs::read_to_string(bench.path("store/policy.xml")).expect("readable");
    bench.write("store/policy.xml", &text.replace("10.2.0.255", "10.2.0.127"));
    let told = bench.told(&["diff"]);
    assert!(
        told.contains("a reload would change this") && told.contains("remote traffic"),
        "{told}"
    );
    assert!(matches!(
        bench.client().ask(Command::Reload { dry_run: false, undo_after_seconds: None }),
        Ok(Reply::Reloaded(_))
    ));
    assert!(bench.told(&["get"]).contains("10.2.0.127"));
    bench.write("store/policy.xml", "<AIX_VPN>");
    let error = bench.refused(&["diff"]);
    assert!(error.contains("store/policy.xml:1:") && error.contains("changed by hand"), "{error}");
}

#[test]
fn a_daemon_that_runs_a_file_stores_nothing() {
    let bench = Bench::with_file();
    for words in [&["put", "second.xml"][..], &["diff", "second.xml"], &["purge", "--yes"]] {
        let error = bench.refused(words);
        assert!(
            error.contains("runs the policy file site.xml") && error.contains("vpnctl reload"),
            "{error}"
        );
    }
    let text = bench.told(&["get"]);
    assert_eq!(Database::read("get", &text), Database::read("site", SITE));
}

#[test]
fn keys_are_shown_to_whoever_may_ask_and_wants_them() {
    let bench = Bench::with_store();
    bench.told(&["put", "site.xml"]);
    assert!(bench.told(&["get"]).contains("replace-this-key"));
    let hidden = bench.told(&["get", "--hide-keys"]);
    assert!(!hidden.contains("replace-this-key") && hidden.contains("<IKEPresharedKey"));
    // A program that does not say so gets none.
    let request = br#"{"version":1,"command":"policy_get","type":"IKEPresharedKey"}"#;
    let command = control::protocol::parse(request).expect("a request");
    let wanted = match &command {
        Command::PolicyGet(wanted) => wanted.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(wanted.objects.kind.as_deref(), Some("IKEPresharedKey"));
    match bench.client().ask(command).expect("an answer") {
        Reply::Policy(PolicyText(text)) => assert!(!text.contains("replace-this-key")),
        other => panic!("{other:?}"),
    }
    let put = PutPolicy { text: PolicyText(SITE.to_owned().into()), ..PutPolicy::default() };
    assert!(!format!("{:?}", Command::PolicyPut(put)).contains("replace-this-key"));
    match bench.client().ask(Command::PolicyGet(GetPolicy { keys: true, ..wanted })) {
        Ok(reply) => assert!(!format!("{reply:?}").contains("replace-this-key")),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_unknown_kind_object_or_file_is_told() {
    let bench = Bench::with_store();
    bench.told(&["put", "site.xml"]);
    assert_eq!(
        bench.refused(&["get", "--type", "IKETunel"]),
        "vpnctl: \"IKETunel\" is no kind of object; did you mean IKETunnel?\n"
    );
    assert_eq!(
        bench.refused(&["get", "--type", "IKETunnel", "--name", "sitte"]),
        "vpnctl: the policy store has no IKETunnel named \"sitte\"; did you mean \"site\"?\n"
    );
    let mut client = bench.client();
    let unknown = GetPolicy {
        objects: control::protocol::Objects { name: Some("x".into()), ..Default::default() },
        ..GetPolicy::default()
    };
    match client.ask(Command::PolicyGet(unknown)) {
        Err(ClientError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::UnknownObject),
        other => panic!("{other:?}"),
    }
    assert!(bench.refused(&["put", "none.xml"]).contains("cannot read the policy none.xml"));
}

#[test]
fn nothing_is_deleted_that_was_not_named() {
    let bench = Bench::with_store();
    bench.told(&["put", "site.xml"]);
    let everything = Command::PolicyDelete(control::protocol::Objects::default());
    match bench.client().ask(everything) {
        Err(ClientError::Refused(refusal)) => assert_eq!(refusal.code, RefusalCode::BadRequest),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.run(&["delete", "--type", "IPSecTunnel"]).0, Some(2));
    assert_eq!(bench.tunnels(), ["site/site_lan down"]);
}

#[test]
fn a_mirror_and_a_swap_are_each_others_undoing() {
    let bench = Bench::without_daemon();
    let mirrored = bench.told(&["mirror", "site.xml"]);
    let right = include_str!("../../../../tests/policies/site/right.xml");
    let policy = |text: &str| policy::xml::read("p.xml", text).expect("valid").policy;
    assert_eq!(policy(&mirrored), policy(right));
    bench.write("mirrored.xml", &mirrored);
    bench.told(&["put", "--swap", "mirrored.xml"]);
    assert_eq!(Database::read("get", &bench.told(&["get"])), Database::read("site", SITE));
}

#[test]
fn a_policy_as_large_as_is_read_fits_through_the_socket() {
    let bench = Bench::with_store();
    let key = "\"'<>&".replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let one = |n: usize| {
        format!(
            "<IKEPresharedKey Value=\"{}\"><IKEPresharedRemoteID><PK_FQDN Value=\"h{n}\"/></IKEPresharedRemoteID></IKEPresharedKey>\n",
            key.repeat(113)
        )
    };
    let many: String = (0..400).map(one).collect();
    assert!(many.len() > 800_000, "{}", many.len());
    // JSON escapes each tab, so that the request has nearly the greatest length.
    let of_length = |length: usize| {
        let (head, tail) = ("<AIX_VPN Version=\"2.1\">", "</AIX_VPN>");
        let tabs = "\t".repeat(length - head.len() - many.len() - tail.len());
        format!("{head}{many}{tabs}{tail}")
    };
    bench.write("larger.xml", &of_length(MAX_FILE_LEN + 1));
    let (code, _, error) = bench.run(&["put", "larger.xml"]);
    assert!(
        code == Some(1) && error.contains(&format!("larger than {MAX_FILE_LEN} octets")),
        "{error}"
    );
    bench.write("large.xml", &of_length(MAX_FILE_LEN));
    assert!(
        bench
            .told(&["put", "large.xml"])
            .starts_with("the policy store store has changed: 400 new")
    );
    assert_eq!(bench.told(&["get"]).matches("<IKEPresharedKey").count(), 400);
}

/// The commands of the document with what they print there; those that begin a block of their own or follow one.
fn documented(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.strip_prefix("    ").or(line.is_empty().then_some("").filter(|_| inside));
        match line.map(|line| (line, line.strip_prefix("$ vpnctl policy "))) {
            Some((_, Some(command))) => {
                inside = true;
                found.push((command.to_owned(), String::new()));
            }
            Some((line, None)) if inside => {
                let (_, printed) = found.last_mut().expect("a command began the block");
                printed.push_str(line);
                printed.push('\n');
            }
            _ => inside = false,
        }
    }
    found
}

#[test]
fn the_document_shows_what_is_printed() {
    let text = include_str!("../../../../docs/operate/policy.md").replace("/var/lib/vpnd", "store");
    let shown: String = SECOND.lines().map(|line| format!("    {line}\n")).collect();
    assert!(text.contains(&shown), "second.xml is shown");
    let bench = Bench::with_store();
    let commands = documented(&text);
    assert!(commands.len() >= 8, "{commands:?}");
    for (command, printed) in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let (_, told, error) = bench.run(&words);
        assert_eq!((told + &error).trim_end(), printed.trim_end(), "{command}");
    }
}

#[test]
fn without_a_daemon_the_answer_names_the_directory() {
    let bench = Bench::without_daemon();
    let mut command = process::Command::new(testkit::vpnctl());
    command.current_dir(bench.directory.path()).args(["--control", "none.sock", "policy", "get"]);
    let output = command.args(["--type", "nonsense"]).output().expect("vpnctl is built");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("no vpnd is listening on none.sock") && error.contains("/var/lib/vpnd"),
        "{error}"
    );
    assert!(!Path::new("/var/lib/vpnd/nonsense").exists());
}
