//! A PKCS#11 token for the private keys of both ends: SoftHSM's, which is software behind the interface of hardware.

use super::certificates::{DIRECTORY, put};
use super::key::Key;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// SoftHSM's module, where Debian and Fedora have it.
const MODULES: [&str; 3] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
    "/usr/lib64/softhsm/libsofthsm.so",
];
const UTILITY: &str = "softhsm2-util";
/// The token is for one run of the experiment.
const PIN: &str = "473195";
/// The variable that names SoftHSM's configuration, and that file in [`DIRECTORY`].
pub(super) const ENVIRONMENT: &[(&str, &str)] =
    &[("SOFTHSM2_CONF", "/run/vpnctl-experiment/certificates/softhsm2.conf")];

fn module() -> Option<&'static str> {
    MODULES.into_iter().find(|path| Path::new(path).is_file())
}

/// This machine has SoftHSM, and these programs can use it.
pub(crate) fn is_available() -> bool {
    let mut utility = Command::new(UTILITY);
    utility.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    module().is_some() && utility.status().is_ok_and(|status| status.success())
}

/// The lines of `[certificates]` for it.
pub(super) fn config() -> String {
    format!("token_files = [\"{DIRECTORY}\"]\n")
}

/// Makes the token.
pub(super) fn make(directory: &Path) -> Result<(), Box<dyn Error>> {
    let tokens = directory.join("tokens");
    // An earlier run may have left tokens.
    let _ = fs::remove_dir_all(&tokens);
    fs::create_dir_all(&tokens)?;
    let config = format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display());
    put(directory, "softhsm2.conf", config.as_bytes())?;
    put(directory, "token.pin", PIN.as_bytes())?;
    run(&["--init-token", "--free", "--label", "experiment", "--pin", PIN, "--so-pin", PIN])
}

/// Puts a private key into the token, and its URI in the place of the key.
pub(super) fn import(directory: &Path, name: &str, key: &Key) -> Result<(), Box<dyn Error>> {
    let path = directory.join("import.pem");
    put(directory, "import.pem", key.pem().as_bytes())?;
    // The name ends with the number of its end.
    let id = format!("0{}", &name[name.len() - 1..]);
    let file = path.display().to_string();
    let imported = run(&[
        "--import",
        &file,
        "--token",
        "experiment",
        "--label",
        name,
        "--id",
        &id,
        "--pin",
        PIN,
    ]);
    fs::remove_file(&path)?;
    imported?;
    let uri = format!(
        "pkcs11:token=experiment;object={name}?module-path={}&pin-source=file:{}\n",
        module().ok_or("SoftHSM is gone")?,
        directory.join("token.pin").display()
    );
    Ok(put(directory, &format!("private/{name}.key"), uri.as_bytes())?)
}

fn run(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let output = Command::new(UTILITY).args(words).envs(ENVIRONMENT.iter().copied()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{UTILITY} {}: {}", words[0], said.trim()).into())
        }
    }
}
