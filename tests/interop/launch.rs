//! How charon is started in a namespace: its settings, its process, and `swanctl` to command it.

use crate::needs;
use lab::isolation::Namespace;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The plugins that protect packets in userspace; what comes second then only sets routes.
#[allow(dead_code)] // Each target has its own.
pub const USERSPACE: &str = "kernel-libipsec kernel-netlink";
/// The plugin that has the kernel protect packets.
#[allow(dead_code)]
pub const KERNEL: &str = "kernel-netlink";

/// Writes strongswan.conf: `plane` are the plugins that protect packets, `lines` go into `charon { }`, `log` says how much
/// is logged to the file `log`.
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

/// Starts it with the settings of this directory.
pub fn spawn(space: &Namespace, directory: &Path) -> Result<Child, String> {
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

/// Where `tests/peers` puts the newest strongSwan.
const NEWEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/strongswan");
/// Its charon there.
const NEWEST_CHARON: &str = "usr/sbin/charon-systemd";

/// Why there is no newest strongSwan here. `Ok`: nobody can have it at present.
#[allow(dead_code)]
pub fn no_newest() -> Option<Result<String, String>> {
    let root = Path::new(NEWEST);
    if root.join(NEWEST_CHARON).exists() {
        return None;
    }
    let unavailable = fs::read_to_string(root.with_extension("unavailable"));
    let missing = "no strongswan in target/peers; tests/peers makes it";
    Some(unavailable.map(|why| why.trim().to_owned()).map_err(|_| missing.to_owned()))
}

/// Starts the newest one with the settings of this directory, in its own root.
#[allow(dead_code)]
pub fn spawn_newest(space: &Namespace, directory: &Path) -> Result<Child, String> {
    let error = |error: std::io::Error| format!("cannot start charon: {error}");
    let mounts = "mount -t tmpfs tmpfs \"$1/tmp\" && mkdir -p \"$1$2\" && mount --bind \"$2\" \"$1$2\" \
         && mount --bind \"$2/run\" \"$1/run\" && mount -t proc proc \"$1/proc\" \
         && mount --rbind /dev \"$1/dev\" && exec chroot \"$1\" \"/$3\"";
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", mounts, "sh", NEWEST])
        .arg(directory)
        .arg(NEWEST_CHARON)
        .env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(directory.join("stderr")).map_err(error)?);
    space.run(move || command.spawn()).map_err(error)
}

/// Runs `swanctl` for the one of this directory; what it prints, also where it fails.
pub fn swanctl(directory: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("swanctl")
        .args(arguments)
        .arg("--uri")
        .arg(format!("unix://{}", directory.join("vici").display()))
        .env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
        .env("SWANCTL_DIR", directory)
        .output()
        .map_err(|error| format!("swanctl: {error}"))?;
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    let printed = text(&output.stdout) + &text(&output.stderr);
    if output.status.success() { Ok(printed) } else { Err(printed) }
}
