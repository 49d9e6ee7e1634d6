//! A strongSwan in its namespace, commanded by `swanctl`.

use crate::eventually;
use crate::needs;
use crate::setup::{CONNECTION, Setup};
use cli::demo::isolation::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A running charon; dropping it kills it.
pub struct Charon {
    pub space: Namespace,
    directory: PathBuf,
    process: Child,
}

impl Charon {
    /// Starts it and loads its configuration.
    pub fn start(space: Namespace, directory: PathBuf, setup: &Setup) -> Result<Self, String> {
        let error = |error: std::io::Error| format!("cannot start charon: {error}");
        fs::create_dir_all(directory.join("run")).map_err(error)?;
        // No more plugins than are needed, kernel-libipsec before kernel-netlink, which then only sets routes.
        let settings = format!(
            "charon {{
  load = random nonce openssl pem pkcs1 pkcs8 x509 aes md5 sha1 sha2 hmac xcbc cmac gcm kdf curve25519 kernel-libipsec \
         kernel-netlink socket-default vici
  {}
  plugins {{
    vici {{
      socket = unix://{}
    }}
  }}
  filelog {{
    log {{
      path = {}
      default = 1
      ike = 2
      cfg = 2
      flush_line = yes
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
            setup.charon,
            directory.join("vici").display(),
            directory.join("log").display(),
        );
        fs::write(directory.join("strongswan.conf"), settings).map_err(error)?;
        fs::write(directory.join("swanctl.conf"), setup.swanctl()).map_err(error)?;
        let process = Self::spawn(&space, &directory)?;
        let charon = Self { space, directory, process };
        charon.load()?;
        Ok(charon)
    }

    fn spawn(space: &Namespace, directory: &std::path::Path) -> Result<Child, String> {
        let error = |error: std::io::Error| format!("cannot start charon: {error}");
        let program = needs::charon().ok_or("there is no charon")?;
        // A /run of its own, since the path of its process number is built in; and an end with this process.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c"])
            .arg("mount --bind \"$1\" /run && exec \"$2\"")
            .arg("sh")
            .arg(directory.join("run"))
            .arg(program)
            .env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(directory.join("stderr")).map_err(error)?);
        space.run(move || command.spawn()).map_err(error)
    }

    /// Waits for its socket and loads connections and secrets.
    fn load(&self) -> Result<(), String> {
        let file = self.directory.join("swanctl.conf");
        let file = file.to_str().ok_or("the directory has a strange name")?;
        eventually("charon listens for swanctl", || {
            self.swanctl(&["--stats"]).is_ok().then_some(())
        });
        let loaded = self.swanctl(&["--load-all", "--file", file])?;
        match loaded.contains("loaded connection") {
            true => Ok(()),
            false => Err(format!("swanctl loaded no connection:\n{loaded}")),
        }
    }

    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        format!("{}{}", read("stderr"), read("log"))
    }

    /// Runs `swanctl`; what it prints, also where it fails.
    pub fn swanctl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new("swanctl")
            .args(arguments)
            .arg("--uri")
            .arg(format!("unix://{}", self.directory.join("vici").display()))
            .env("STRONGSWAN_CONF", self.directory.join("strongswan.conf"))
            .env("SWANCTL_DIR", &self.directory)
            .output()
            .map_err(|error| format!("swanctl: {error}"))?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let printed = text(&output.stdout) + &text(&output.stderr);
        if output.status.success() { Ok(printed) } else { Err(printed) }
    }

    /// Starts the tunnel and waits until it is up or has failed.
    pub fn initiate(&self) -> Result<String, String> {
        self.swanctl(&["--initiate", "--child", CONNECTION, "--timeout", "15"])
    }

    /// Its SAs.
    pub fn sas(&self) -> String {
        self.swanctl(&["--list-sas"]).expect("charon answers")
    }

    /// Numbers of established IKE SAs and installed Child SAs.
    pub fn counts(&self) -> (usize, usize) {
        let sas = self.sas();
        (sas.matches(", ESTABLISHED, ").count(), sas.matches(", INSTALLED, ").count())
    }

    /// Waits until one IKE SA and one Child SA are up, and nothing else.
    pub fn wait_up(&self) {
        eventually("one IKE SA and one Child SA at strongSwan", || {
            (self.counts() == (1, 1)).then_some(())
        });
    }

    /// Waits until it has no SA.
    pub fn wait_down(&self) {
        eventually("no SA at strongSwan", || self.sas().trim().is_empty().then_some(()));
    }

    /// Waits for words in the log.
    pub fn wait_log(&self, words: &str) {
        eventually(&format!("charon logs {words:?}"), || self.log().contains(words).then_some(()));
    }

    /// Ends it without a farewell, as a power cut would.
    pub fn crash(&mut self) {
        self.signal(Signal::SIGKILL);
        self.process.wait().expect("it is our child");
    }

    /// Stops or continues it.
    pub fn signal(&self, signal: Signal) {
        let process = i32::try_from(self.process.id()).expect("a process number");
        kill(Pid::from_raw(process), signal).expect("it is our child and not waited for");
    }

    /// Starts it again after [`Charon::crash`].
    pub fn restart(&mut self) {
        self.process = Self::spawn(&self.space, &self.directory).expect("it started before");
        self.load().expect("it was loaded before");
    }
}

impl Drop for Charon {
    fn drop(&mut self) {
        // Its namespace goes with it: there is nothing to be undone in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
