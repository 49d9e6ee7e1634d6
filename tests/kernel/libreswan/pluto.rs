//! libreswan's daemon `pluto`, in a root of its own.

use crate::harness::space::Space;
use crate::harness::until;
use crate::peer::Peer;
use crate::root::Root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Name of the connection.
pub const NAME: &str = "net";

const PLUTO: &str = "/usr/libexec/ipsec/pluto";
const WHACK: &str = "/usr/libexec/ipsec/whack";
const ADDCONN: &str = "/usr/libexec/ipsec/addconn";

/// A running pluto; dropping it kills it.
pub struct Pluto {
    space: Space,
    root: Root,
    directory: tempfile::TempDir,
    process: Child,
}

impl Pluto {
    /// Starts it in a namespace, with this text of `ipsec.conf` and of `ipsec.secrets`.
    pub fn start(space: Space, configuration: &str, secrets: &str) -> Self {
        let root = Root::enter("libreswan");
        let directory = root.directory();
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text).expect("writable");
        };
        write("ipsec.conf", configuration);
        write("ipsec.secrets", secrets);
        fs::create_dir(directory.path().join("nss")).expect("writable");
        let database = format!("sql:{}", path(&root, directory.path(), "nss"));
        let mut make = root.command("/usr/bin/certutil");
        let made = make.args(["-N", "--empty-password", "-d", &database]).status();
        assert!(made.is_ok_and(|status| status.success()), "certutil makes a database");
        let process = spawn(&space, &root, directory.path());
        let pluto = Self { space, root, directory, process };
        pluto.load();
        pluto
    }

    /// What a command of `whack` prints.
    pub fn whack(&self, arguments: &[&str]) -> String {
        self.try_whack(arguments).unwrap_or_else(|said| panic!("whack {arguments:?}: {said}"))
    }

    fn load(&self) {
        let listens = || self.try_whack(&["--briefstatus"]).ok();
        until("pluto to listen", listens, || self.log());
        self.whack(&["--listen"]);
        let socket = path(&self.root, self.directory.path(), "pluto.ctl");
        let file = path(&self.root, self.directory.path(), "ipsec.conf");
        let mut add = self.root.command(ADDCONN);
        let added = add.args(["--config", &file, "--ctlsocket", &socket, NAME]).output();
        let added = added.expect("addconn is there");
        assert!(added.status.success(), "{added:?}");
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

fn spawn(space: &Space, root: &Root, directory: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(directory.join("log"));
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
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.expect("writable"));
    space.run(move || command.spawn()).expect("pluto is there")
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

    /// Child SAs that were replaced stay until they are deleted.
    fn await_one(&self) -> String {
        let one = || {
            let sas = self.whack(&["--trafficstatus"]);
            (sas.matches("type=").count() == 1).then_some(sas)
        };
        until("one Child SA at libreswan", one, || {
            format!("{}{}", self.whack(&["--showstates"]), self.log())
        })
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
            let last = lines[lines.len().saturating_sub(60)..].join("\n");
            eprintln!("---- log of pluto\n{last}");
        }
        // Its namespace goes with it: nothing has to be undone in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
