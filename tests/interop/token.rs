//! One token of SoftHSM for both sides: their private keys are in it, and in no file.

use crate::authority::HOSTS;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::Need;

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "473195";
/// Identifiers of the keys of `vpnd` and strongSwan.
const IDS: [&str; 2] = ["01", "02"];

/// The needs of scenarios with a token, beside those of all scenarios.
pub const NEEDS: &[Need] = &[
    Need::Program("softhsm2-util"),
    Need::File(MODULE),
    Need::File("/usr/lib/ipsec/plugins/libstrongswan-pkcs11.so"),
];

/// strongSwan's plugin, and its lines of `charon { }` in strongswan.conf.
pub const PLUGIN: &str = "pkcs11";
pub const CHARON: &str =
    "plugins { pkcs11 { modules { softhsm { path = /usr/lib/softhsm/libsofthsm2.so } } } }";

/// Where the token is, beside the directory of either daemon.
pub fn directory(daemon: &Path) -> PathBuf {
    daemon.with_file_name("token")
}

/// Where the module finds its tokens, for a daemon with this directory.
pub fn environment(daemon: &Path) -> (&'static str, PathBuf) {
    ("SOFTHSM2_CONF", directory(daemon).join("softhsm2.conf"))
}

/// strongSwan's key, in `secrets { }` of swanctl.conf.
pub fn secret() -> String {
    format!("token-1 {{\n    handle = {}\n    module = softhsm\n    pin = {PIN}\n  }}", IDS[1])
}

/// Makes the token and moves the keys of both sides into it: for `vpnd` from `certificates`, for strongSwan from
/// `charon`.
pub fn make(certificates: &Path, charon: &Path) -> Result<(), String> {
    let error = |error: std::io::Error| format!("token: {error}");
    let tokens = directory(charon).join("tokens");
    fs::create_dir_all(&tokens).map_err(error)?;
    let text = format!("directories.tokendir = {}\nobjectstore.backend = file\n", tokens.display());
    let environment = environment(charon);
    fs::write(&environment.1, text).map_err(error)?;
    let softhsm = |arguments: &[&str]| {
        let mut command = Command::new("softhsm2-util");
        command.envs([&environment].map(|(name, value)| (name, value))).args(arguments);
        let output = command.output().map_err(error)?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("{arguments:?}: {said}")) }
    };
    softhsm(&["--init-token", "--free", "--label", "vpn", "--pin", PIN, "--so-pin", "99999999"])?;
    for ((place, host), id) in [certificates, charon].into_iter().zip(HOSTS).zip(IDS) {
        let file = place.join("private").join(format!("{host}.key"));
        let path = file.to_str().ok_or("the directory has a strange name")?;
        let import = ["--import", path, "--token", "vpn", "--label", host];
        softhsm(&[&import[..], &["--id", id, "--pin", PIN]].concat())?;
        fs::remove_file(&file).map_err(error)?;
    }
    let (pin, host) = (certificates.join("token.pin"), HOSTS[0]);
    write(&pin, PIN).map_err(error)?;
    let uri = format!(
        "pkcs11:token=vpn;object={host}?module-path={MODULE}&pin-source=file:{}",
        pin.display()
    );
    write(&certificates.join("private").join(format!("{host}.key")), &uri).map_err(error)
}

/// Writes a file that only its owner may read.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::File::options().create_new(true).write(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
