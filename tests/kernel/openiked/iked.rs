//! OpenIKED's daemon `iked`, in a root of its own.

use crate::peer::Peer;
use crate::root::Root;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use testkit::process::{Process, last_lines};
use testkit::space::Space;
use testkit::until;

const IKED: &str = "/usr/sbin/iked";
const IKECTL: &str = "/usr/sbin/ikectl";
/// Where it looks for certificates and keys.
const FILES: &str = "etc/iked";

/// A running iked; dropping it kills it.
pub struct Iked {
    /// Dropped before its host and its files. The children of the process end with it.
    process: Option<Process>,
    space: Space,
    root: Root,
    directory: tempfile::TempDir,
}

impl Iked {
    /// Starts it in a namespace, with this text of `iked.conf` and the certificates and the key in a directory. If its
    /// policy is active, it begins the tunnel by itself.
    pub fn start(space: Space, configuration: &str, certificates: Option<&Path>) -> Self {
        let root = Root::enter("openiked");
        if let Some(directory) = certificates {
            for part in ["ca", "certs", "private"] {
                put(&directory.join(part), &root.path().join(FILES).join(part));
            }
        }
        let directory = root.directory();
        let mut iked = Self { space, root, directory, process: None };
        iked.write(configuration);
        iked.spawn();
        iked
    }

    fn write(&self, configuration: &str) {
        let [new, file] = ["new", "iked.conf"].map(|name| self.directory.path().join(name));
        fs::write(&new, configuration).expect("writable");
        fs::set_permissions(&new, Permissions::from_mode(0o600)).expect("ours");
        // At once: it reads the file a while after it has begun to listen.
        fs::rename(&new, &file).expect("writable");
    }

    fn spawn(&mut self) {
        let mut command = self.root.command(IKED);
        command.args(["-d", "-v", "-f", &self.within("iked.conf")]);
        command.args(["-s", &self.within("ctl")]);
        let log = self.directory.path().join("log");
        let process = Process::start(&self.space.0, command, &log);
        self.process = Some(process.expect("iked is there"));
        let listens = || self.try_ctl(&["show", "sa"]).ok();
        until("iked to listen", listens, || self.log());
    }

    /// The path of a file of its directory, as it is within its root.
    fn within(&self, name: &str) -> String {
        let within = self.directory.path().strip_prefix(self.root.path());
        let within = within.expect("it is in the root");
        PathBuf::from("/").join(within).join(name).to_string_lossy().into_owned()
    }

    /// Takes another text of `iked.conf`; the SAs that are up go.
    pub fn load(&self, configuration: &str) {
        self.write(configuration);
        self.ctl(&["reset", "all"]);
        self.ctl(&["load", &self.within("iked.conf")]);
    }

    /// The output of a command of `ikectl`.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|said| panic!("ikectl {arguments:?}: {said}"))
    }

    fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut ikectl = self.root.command(IKECTL);
        let output = ikectl.args(["-s", &self.within("ctl")]).args(arguments).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// Its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Waits until it has no SA.
    pub fn await_none(&self) {
        let none = || (self.space.ip("xfrm state").is_empty()).then_some(());
        until("iked to have no SA", none, || self.state());
    }

    /// For a message.
    pub fn state(&self) -> String {
        format!("{}{}", self.ctl(&["show", "sa"]), self.space.ip("-s xfrm state"))
    }

    /// Ends it without a Delete, as a power cut would; the kernel forgets its SAs, too.
    pub fn crash(&mut self) {
        self.process = None;
        self.space.ip("xfrm state flush");
        self.space.ip("xfrm policy flush");
    }

    /// Starts it again after [`Iked::crash`].
    pub fn restart(&mut self) {
        self.spawn();
    }
}

impl Peer for Iked {
    fn space(&self) -> &Space {
        &self.space
    }

    /// It does so by itself, two seconds after its start, if its policy is active.
    fn initiate(&self) {
        let begun = || self.log().contains("ikev2_init_ike_sa: initiating").then_some(());
        until("iked to begin", begun, || self.log());
    }

    fn await_one(&self) -> String {
        let one = || {
            let states = self.space.ip("xfrm state").matches("proto esp").count();
            // The kernel gets policies after the SAs.
            let policies = self.space.ip("xfrm policy");
            let both = ["dir in", "dir out"].iter().all(|way| policies.contains(way));
            (states == 2 && both).then(|| self.ctl(&["show", "sa"]))
        };
        until("one Child SA at iked", one, || format!("{}{}", self.state(), self.log()))
    }

    /// `iked` has no command for it: it does so by its clock.
    fn rekey_child(&self) {
        let spis = || {
            self.space
                .ip("xfrm state")
                .lines()
                .filter(|l| l.contains("spi"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let before = spis();
        let renewed = || (!spis().iter().any(|spi| before.contains(spi))).then_some(());
        until("iked to renew the Child SA", renewed, || self.state());
    }

    /// The same.
    fn rekey_ike(&self) {
        let spis = || {
            let shown = self.ctl(&["show", "sa"]);
            let line = shown.lines().find(|l| l.starts_with("iked_sas")).unwrap_or_default();
            line.split("rspi").nth(1).map(str::to_owned)
        };
        let before = spis();
        let renewed = || (spis() != before).then_some(());
        until("iked to renew the IKE SA", renewed, || self.state());
    }
}

impl Drop for Iked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of iked\n{}", last_lines(&self.log(), 60));
        }
    }
}

/// Copies the files of a directory to where iked looks for them.
fn put(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("it was made") {
        let path = entry.expect("readable").path();
        // It knows its key by this name.
        let name = match path.extension() {
            Some(extension) if extension == "key" => "local.key".into(),
            _ => path.file_name().expect("a file has a name").to_owned(),
        };
        let copy = to.join(name);
        fs::copy(&path, &copy).expect("writable");
        // It reads certificates as a user of its own.
        fs::set_permissions(&copy, Permissions::from_mode(0o644)).expect("ours");
    }
}
