//! strongSwan: its needs of the machine, and how charon is started in a namespace: its settings, its process, and
//! `swanctl` to command it.

use crate::process::{Process, last_lines};
use crate::{FILTERED, Need, missing, until};
use namespaces::isolation::Namespace;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where distributions put charon.
const CHARON: &[&str] =
    &["/usr/lib/ipsec/charon", "/usr/libexec/ipsec/charon", "/usr/lib/strongswan/charon"];
/// Where they put its plugins.
const PLUGINS: &[&str] =
    &["/usr/lib/ipsec/plugins", "/usr/lib64/strongswan/plugins", "/usr/lib/strongswan/plugins"];
/// Plugins that distributions pack apart from `charon`: the plane, and the algorithms of most scenarios.
const PACKED_APART: &[&str] = &["kernel-libipsec", "gcm", "openssl"];
/// The other programs of the scenarios.
const NEEDS: &[Need] = &[
    Need::All(FILTERED),
    Need::Program("curl"),
    Need::Program("openssl"),
    Need::Program("pki"),
    Need::Program("setpriv"),
    Need::Program("swanctl"),
    Need::Program("unshare"),
];

/// The IKE daemon of strongSwan.
fn charon() -> Option<PathBuf> {
    CHARON.iter().map(PathBuf::from).find(|path| path.exists())
}

/// The reason why the scenarios cannot run here.
pub fn lacking() -> Option<String> {
    if let Some(reason) = missing(NEEDS) {
        return Some(reason);
    }
    if charon().is_none() {
        return Some(format!("strongSwan's charon is not in {}", CHARON.join(", ")));
    }
    let absent = |plugin: &&&str| {
        let file = format!("libstrongswan-{plugin}.so");
        !PLUGINS.iter().any(|directory| Path::new(directory).join(&file).exists())
    };
    let plugin = PACKED_APART.iter().find(absent)?;
    Some(format!("strongSwan has no plugin {plugin}"))
}

/// The plugins that protect packets in userspace; the second one then only sets routes.
pub const USERSPACE: &str = "kernel-libipsec kernel-netlink";
/// The plugin that has the kernel protect packets.
pub const KERNEL: &str = "kernel-netlink";

/// Writes strongswan.conf: `plane` are the plugins that protect packets, and others; `lines` go into `charon { }`,
/// `log` says how much is logged to the file `log`.
pub fn write_settings(directory: &Path, plane: &str, lines: &str, log: &str) -> Result<(), String> {
    let error = |error: std::io::Error| format!("cannot configure charon: {error}");
    fs::create_dir_all(directory.join("run")).map_err(error)?;
    // No more plugins than are needed.
    let settings = format!(
        "charon {{
  load = random nonce openssl pem pkcs1 pkcs8 x509 aes md5 sha1 sha2 hmac xcbc cmac gcm kdf curve25519 {plane} \
         socket-default vici
  {lines}
  plugins {{
    vici {{
      socket = unix://{}
    }}
  }}
  filelog {{
    log {{
      path = {}
      {log}
    }}
  }}
  syslog {{
    daemon {{
      default = -1
    }}
    auth {{
      default = -1
    }}
  }}
}}
",
        directory.join("vici").display(),
        directory.join("log").display(),
    );
    fs::write(directory.join("strongswan.conf"), settings).map_err(error)
}

/// Where `tests/peers` puts the newest strongSwan.
const NEWEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/strongswan");
/// Its charon there.
const NEWEST_CHARON: &str = "usr/sbin/charon-systemd";

/// The newest strongSwan, as something that a scenario needs.
pub const NEWEST_NEEDED: &[Need] = &[Need::Peer("strongswan", NEWEST_CHARON)];

/// Lines of its log that an error has.
const LAST: usize = 60;

/// A charon: its directory with strongswan.conf and swanctl.conf, and its process while it runs. Dropping it kills the
/// process. Where a test fails, its log is printed.
pub struct Charon {
    directory: PathBuf,
    is_newest: bool,
    environment: Vec<(&'static str, OsString)>,
    process: Option<Process>,
}

impl Charon {
    /// One that does not run yet, with the settings of a directory (see [`write_settings`]).
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        Self { directory, is_newest: false, environment: Vec::new(), process: None }
    }

    /// The newest strongSwan, in its own root, if `newest`; otherwise that of this machine.
    #[must_use]
    pub fn newest(mut self, newest: bool) -> Self {
        self.is_newest = newest;
        self
    }

    /// The same with another variable in its environment, which the newest one does not get.
    #[must_use]
    pub fn with_environment(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// A file of its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Starts it, waits until it listens for `swanctl`, and loads the connections and secrets of swanctl.conf.
    ///
    /// # Errors
    /// Where it cannot be started, or loads no connection.
    pub fn start(&mut self, space: &Namespace) -> Result<(), String> {
        let command = if self.is_newest { self.newest_command() } else { self.command()? };
        self.process = Some(Process::start(space, command, &self.path("stderr"))?);
        let listens = || self.swanctl(&["--stats"]).ok();
        until("charon to listen", listens, || self.last_words());
        let file = self.path("swanctl.conf");
        let loaded = self.swanctl(&["--load-all", "--file", &file.to_string_lossy()])?;
        match loaded.contains("loaded connection") {
            true => Ok(()),
            false => Err(format!("swanctl loaded no connection:\n{loaded}")),
        }
    }

    fn command(&self) -> Result<Command, String> {
        let program = charon().ok_or("there is no charon")?;
        // A /run of its own, since the path of its process number is built in; and an end with this process.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c"])
            .arg("mount --bind \"$1\" /run && exec \"$2\"")
            .arg("sh")
            .arg(self.path("run"))
            .arg(program)
            .env("STRONGSWAN_CONF", self.path("strongswan.conf"))
            .envs(self.environment.iter().cloned());
        Ok(command)
    }

    fn newest_command(&self) -> Command {
        let mounts = "mount -t tmpfs tmpfs \"$1/tmp\" && mkdir -p \"$1$2\" && mount --bind \"$2\" \"$1$2\" \
             && mount --bind \"$2/run\" \"$1/run\" && mount -t proc proc \"$1/proc\" \
             && mount --rbind /dev \"$1/dev\" && exec chroot \"$1\" \"/$3\"";
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", mounts, "sh", NEWEST])
            .arg(&self.directory)
            .arg(NEWEST_CHARON)
            .env("STRONGSWAN_CONF", self.path("strongswan.conf"));
        command
    }

    /// Its process.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    /// Ends it without a Delete, as a power cut would.
    pub fn crash(&mut self) {
        self.signal(Signal::SIGKILL);
        self.process.take().expect("it runs").wait();
    }

    /// All that it has logged so far.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.path(name)).unwrap_or_default();
        read("stderr") + &read("log")
    }

    /// The end of its log, for a message.
    pub fn last_words(&self) -> String {
        format!("---- charon\n{}", last_lines(&self.log(), LAST))
    }

    /// Runs `swanctl` for it. Returns its output.
    ///
    /// # Errors
    /// The output, where it fails.
    pub fn swanctl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("swanctl")
            .args(arguments)
            .arg("--uri")
            .arg(format!("unix://{}", self.path("vici").display()))
            .env("STRONGSWAN_CONF", self.path("strongswan.conf"))
            .env("SWANCTL_DIR", &self.directory)
            .output()
            .map_err(|error| format!("swanctl: {error}"))?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let printed = text(&output.stdout) + &text(&output.stderr);
        if output.status.success() { Ok(printed) } else { Err(printed) }
    }
}

impl Drop for Charon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.last_words());
        }
    }
}
