//! strongSwan: what it needs of the machine, and how charon is started in a namespace: its settings, its process, and
//! `swanctl` to command it.

use crate::{FILTERED, Need, missing};
use namespaces::isolation::Namespace;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
pub fn charon() -> Option<PathBuf> {
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

/// Starts it with the settings of this directory.
pub fn spawn(space: &Namespace, directory: &Path) -> Result<Child, String> {
    spawn_with(space, directory, &[])
}

/// The same with these variables in its environment.
pub fn spawn_with(
    space: &Namespace,
    directory: &Path,
    environment: &[(&str, PathBuf)],
) -> Result<Child, String> {
    let error = |error: std::io::Error| format!("cannot start charon: {error}");
    let program = charon().ok_or("there is no charon")?;
    // A /run of its own, since the path of its process number is built in; and an end with this process.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c"])
        .arg("mount --bind \"$1\" /run && exec \"$2\"")
        .arg("sh")
        .arg(directory.join("run"))
        .arg(program)
        .env("STRONGSWAN_CONF", directory.join("strongswan.conf"))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(directory.join("stderr")).map_err(error)?);
    space.run(move || command.spawn()).map_err(error)
}

/// Where `tests/peers` puts the newest strongSwan.
const NEWEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/strongswan");
/// Its charon there.
const NEWEST_CHARON: &str = "usr/sbin/charon-systemd";

/// The newest strongSwan, as something that a scenario needs.
pub const NEWEST_NEEDED: &[Need] = &[Need::Peer("strongswan", NEWEST_CHARON)];

/// Starts the newest one with the settings of this directory, in its own root.
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

/// Runs `swanctl` for the one of this directory; returns its output, also where it fails.
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
