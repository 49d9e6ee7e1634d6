//! libreswan's daemon `pluto`, in a root of its own.

use super::certificates::{Authority, HOSTS};
use crate::peer::Peer;
use crate::root::Root;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::process::Process;
use testkit::space::Space;
use testkit::{output, until};

/// Name of the connection.
pub const NAME: &str = "net";
/// Name of another one, between the same gateways.
pub const SECOND: &str = "second";

const PLUTO: &str = "/usr/libexec/ipsec/pluto";
const WHACK: &str = "/usr/libexec/ipsec/whack";
const ADDCONN: &str = "/usr/libexec/ipsec/addconn";

/// The files that pluto is started with.
pub struct Files<'a> {
    /// ipsec.conf
    pub configuration: &'a str,
    /// ipsec.secrets
    pub secrets: &'a str,
    /// The authority that has issued its certificate.
    pub authority: Option<&'a Authority>,
}

/// A running pluto; dropping it kills it.
pub struct Pluto {
    /// Dropped before its host and its files.
    process: Option<Process>,
    space: Space,
    root: Root,
    directory: tempfile::TempDir,
}

impl Pluto {
    /// Starts it in a namespace.
    pub fn start(space: Space, files: &Files<'_>) -> Self {
        let root = Root::enter("libreswan");
        let directory = root.directory();
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("writable");
        };
        write("ipsec.conf", files.configuration);
        write("ipsec.secrets", files.secrets);
        fs::create_dir(directory.path().join("nss")).expect("writable");
        let database = format!("sql:{}", path(&root, directory.path(), "nss"));
        let mut make = root.command("/usr/bin/certutil");
        let made = make.args(["-N", "--empty-password", "-d", &database]).status();
        assert!(made.is_ok_and(|status| status.success()), "certutil makes a database");
        if let Some(authority) = files.authority {
            import(&root, directory.path(), authority);
        }
        let process = Some(spawn(&space, &root, directory.path()));
        let pluto = Self { space, root, directory, process };
        pluto.load();
        pluto
    }

    /// Ends the daemon as a crash would. Its SAs and policies stay in the kernel.
    pub fn crash(&mut self) {
        self.process = None;
        // Nobody answers there any more.
        fs::remove_file(self.directory.path().join("pluto.ctl")).expect("its control socket");
    }

    /// Starts it again, as its service does.
    pub fn restart(&mut self) {
        self.process = Some(spawn(&self.space, &self.root, self.directory.path()));
        self.load();
    }

    /// The output of a command of `whack`.
    pub fn whack(&self, arguments: &[&str]) -> String {
        self.try_whack(arguments).unwrap_or_else(|said| panic!("whack {arguments:?}: {said}"))
    }

    /// Waits until so many Child SAs are up and none is being renewed. Child SAs that were replaced stay until they are
    /// deleted.
    pub fn await_children(&self, count: usize) -> String {
        let all = || {
            let sas = self.whack(&["--trafficstatus"]);
            (sas.matches("type=").count() == count).then_some(sas)
        };
        until(&format!("{count} Child SAs at libreswan"), all, || {
            format!("{}{}", self.whack(&["--showstates"]), self.log())
        })
    }

    fn load(&self) {
        let listens = || self.try_whack(&["--briefstatus"]).ok();
        until("pluto to listen", listens, || self.log());
        self.whack(&["--listen"]);
        let socket = path(&self.root, self.directory.path(), "pluto.ctl");
        let file = path(&self.root, self.directory.path(), "ipsec.conf");
        let text = fs::read_to_string(self.directory.path().join("ipsec.conf")).expect("its own");
        for name in text.lines().filter_map(|line| line.strip_prefix("conn ")) {
            let mut add = self.root.command(ADDCONN);
            let added = add.args(["--config", &file, "--ctlsocket", &socket, name]).output();
            let added = added.expect("addconn is there");
            assert!(added.status.success(), "{added:?}");
        }
    }

    fn try_whack(&self, arguments: &[&str]) -> Result<String, String> {
        let socket = path(&self.root, self.directory.path(), "pluto.ctl");
        let mut whack = self.root.command(WHACK);
        let output = whack.args(["--ctlsocket", &socket]).args(arguments).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        // The exit status of an exchange is the number of its last message, whether or not it succeeds.
        if said.contains("is not running") { Err(said) } else { Ok(said) }
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// Puts certificates into its database.
fn import(root: &Root, directory: &Path, authority: &Authority) {
    authority.export(&directory.join("own.p12"), &directory.join("ca.pem"));
    let [database, container, ca] = ["nss", "own.p12", "ca.pem"].map(|n| path(root, directory, n));
    let database = format!("sql:{database}");
    let mut command = root.command("/usr/bin/pk12util");
    command.args(["-i", &container, "-d", &database, "-W", "", "-K", "", "-n", HOSTS[1]]);
    output(command);
    let mut command = root.command("/usr/bin/certutil");
    command.args(["-A", "-a", "-n", "authority", "-t", "CT,,", "-d", &database, "-i", &ca]);
    output(command);
}

fn spawn(space: &Space, root: &Root, directory: &Path) -> Process {
    let mut command = root.command(PLUTO);
    for (option, name) in [
        ("--config", "ipsec.conf"),
        ("--secretsfile", "ipsec.secrets"),
        ("--nssdir", "nss"),
        ("--rundir", ""),
    ] {
        command.arg(option).arg(path(root, directory, name));
    }
    command.args(["--nofork", "--stderrlog"]);
    Process::start(&space.0, command, &directory.join("log")).expect("pluto is there")
}

/// The path of a file of its directory, as it is within its root.
fn path(root: &Root, directory: &Path, name: &str) -> String {
    let within = directory.strip_prefix(root.path()).expect("it is in the root");
    PathBuf::from("/").join(within).join(name).to_string_lossy().into_owned()
}

impl Peer for Pluto {
    fn space(&self) -> &Space {
        &self.space
    }

    fn initiate(&self) {
        self.whack(&["--name", NAME, "--initiate"]);
    }

    fn await_one(&self) -> String {
        self.await_children(1)
    }

    fn rekey_child(&self) {
        self.whack(&["--name", NAME, "--rekey-child"]);
    }

    fn rekey_ike(&self) {
        self.whack(&["--name", NAME, "--rekey-ike"]);
    }
}

impl Drop for Pluto {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let (before, last) = lines.split_at(lines.len().saturating_sub(60));
            let telling = ["failed", "FAILURE", "EXPECTATION", "expire", "aged"];
            let tells = |line: &&&str| telling.iter().any(|word| line.contains(word));
            let before: Vec<&str> = before.iter().filter(tells).copied().collect();
            eprintln!("---- log of pluto\n{}\n...\n{}", before.join("\n"), last.join("\n"));
        }
    }
}
