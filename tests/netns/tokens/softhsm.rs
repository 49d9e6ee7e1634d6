//! A token of SoftHSM for a gateway, and certificates of `vpnctl pki` whose keys are moved into it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::gateway::Gateway;
use testkit::output;

pub const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
pub const PIN: &str = "473195";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/netns/tokens/module.c");

/// An authority of `vpnctl pki`.
pub struct Authority(tempfile::TempDir);

impl Authority {
    pub fn new() -> Self {
        let authority = Self(tempfile::tempdir().expect("a temporary directory"));
        authority.pki(&["init", "--name", "token authority"]);
        authority
    }

    fn pki(&self, arguments: &[&str]) {
        let mut command = Command::new(testkit::vpnctl());
        command.args(["pki", "--dir"]).arg(self.0.path().join("pki")).args(arguments);
        output(command);
    }

    /// Makes a certificate for NAME.example.net, and returns the directory with its files.
    pub fn issue(&self, name: &str, key: &str) -> PathBuf {
        self.pki(&["issue", name, "--dns", &format!("{name}.example.net"), "--key", key]);
        self.0.path().join("pki/ends").join(name)
    }
}

/// Copies the files of an end to where a gateway reads them.
pub fn equip(gateway: &Gateway, end: &Path) {
    for part in ["ca", "certs", "crls", "private"] {
        let to = gateway.path("certificates").join(part);
        fs::create_dir_all(&to).expect("writable");
        for entry in fs::read_dir(end.join(part)).expect("pki made it") {
            let from = entry.expect("a file").path();
            fs::copy(&from, to.join(from.file_name().expect("a name"))).expect("writable");
        }
    }
}

/// The private key of a gateway.
pub fn key_file(gateway: &Gateway) -> PathBuf {
    gateway.path("certificates/private").join(format!("{}.key", gateway.name))
}

pub fn pin_file(gateway: &Gateway) -> PathBuf {
    gateway.path("certificates/token.pin")
}

/// Writes a file that only we read.
pub fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("writable");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("ours");
}

fn softhsm(gateway: &Gateway, arguments: &[&str]) {
    let mut command = Command::new("softhsm2-util");
    command.env("SOFTHSM2_CONF", gateway.path("softhsm/softhsm2.conf")).args(arguments);
    output(command);
}

/// Makes a token and the configuration of the gateway for it. `timeout` is a length of time as in `vpnd.toml`.
pub fn token(gateway: &mut Gateway, timeout: &str) {
    let directory = gateway.path("softhsm");
    fs::create_dir_all(directory.join("tokens")).expect("writable");
    let configuration = directory.join("softhsm2.conf");
    let tokens = directory.join("tokens");
    let text = format!("directories.tokendir = {}\nobjectstore.backend = file\n", tokens.display());
    fs::write(&configuration, text).expect("writable");
    softhsm(
        gateway,
        &["--init-token", "--free", "--label", "vpn", "--pin", PIN, "--so-pin", "99999999"],
    );
    gateway.environment.push(("SOFTHSM2_CONF", configuration.into()));
    gateway.configure(&format!(
        "[certificates]\ndirectory = {:?}\ntoken_files = [{directory:?}]\ntoken_timeout = {timeout:?}\n",
        gateway.path("certificates")
    ));
}

/// Moves the private key of a gateway into its token: in its file is only its URI afterwards.
pub fn move_key(gateway: &Gateway, module: &Path) {
    let file = key_file(gateway);
    let path = file.to_str().expect("text").to_owned();
    let import = ["--import", &path, "--token", "vpn", "--label", gateway.name];
    softhsm(gateway, &[&import[..], &["--id", "01", "--pin", PIN]].concat());
    write(&pin_file(gateway), &format!("{PIN}\n"));
    write_uri(gateway, &format!("token=vpn;object={}", gateway.name), module);
}

/// Writes a URI with these attributes in the place of the key.
pub fn write_uri(gateway: &Gateway, attributes: &str, module: &Path) {
    let (module, pin) = (module.display(), pin_file(gateway));
    let pin = pin.display();
    let text = format!(
        "# the key is in a token\npkcs11:{attributes}?module-path={module}&pin-source=file:{pin}\n"
    );
    write(&key_file(gateway), &text);
}

/// The module of `module.c`, and the file that makes it fail.
pub struct Failing {
    pub module: PathBuf,
    mode: PathBuf,
    hangs: PathBuf,
}

impl Failing {
    /// Compiles it for a gateway that has a token.
    pub fn of(gateway: &mut Gateway) -> Self {
        let directory = gateway.path("softhsm");
        let [module, mode, hangs] =
            ["failing.so", "mode", "hangs"].map(|name| directory.join(name));
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&module);
        compile.arg(SOURCE).arg("-ldl");
        output(compile);
        gateway.environment.push(("TOKEN_MODULE", MODULE.into()));
        gateway.environment.push(("TOKEN_MODE", mode.clone().into()));
        gateway.environment.push(("TOKEN_HANGS", hangs.clone().into()));
        let failing = Self { module, mode, hangs };
        failing.set("works");
        failing
    }

    /// Returns `true` if a call hangs now.
    pub fn hangs(&self) -> bool {
        self.hangs.exists()
    }

    /// `hangs`, `removed`, `session` (ended) or `works`.
    pub fn set(&self, mode: &str) {
        // Renamed, so that the module reads the old letter or the new one.
        let next = self.mode.with_extension("next");
        fs::write(&next, mode).and_then(|()| fs::rename(&next, &self.mode)).expect("writable");
    }
}
