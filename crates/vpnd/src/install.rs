//! `vpnd install` and `vpnd uninstall`: the programs, units, manual pages and completions on this machine.
//!
//! ```text
//! layout.rs ── contents.rs ── files and their texts ── place.rs ── below ROOT
//! (paths)      (units, pages)                          manifest.rs: the list that uninstall removes
//! ```
//!
//! Configuration in `/etc/vpnd` is made if it is missing, and never replaced or removed.

mod contents;
mod error;
mod layout;
mod manifest;
mod place;

pub use error::InstallError;
pub use layout::Layout;

use contents::{Content, contents};
use manifest::Manifest;
use place::{Outcome, Place};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The directory of the configuration.
const CONFIGURATION: &str = "/etc/vpnd";

/// Its subdirectories with their modes, after its own.
const DIRECTORIES: [(&str, u32); 7] = [
    ("", 0o755),
    ("ca", 0o755),
    ("certs", 0o755),
    ("private", 0o700),
    ("crls", 0o755),
    ("ocsp", 0o755),
    ("ppk", 0o700),
];

/// The directory of what outlives a reboot: the policy store, the last good guard. The guard's service cannot make it.
const STATE: &str = "/var/lib/vpnd";

/// The commented configuration file.
const SETTINGS: &str = include_str!("../../../config/vpnd.toml");

/// An installation.
#[derive(Clone, Debug)]
pub struct Request {
    /// The directory that the files are below.
    pub prefix: PathBuf,
    /// The directory that stands for `/`, to make a package.
    pub root: Option<PathBuf>,
    /// Nothing is changed.
    pub dry_run: bool,
}

impl Request {
    /// Installs the program `vpnd` and the `vpnctl` beside it; returns what was done, and the next steps.
    ///
    /// # Errors
    /// As [`InstallError`]. Files that were written before the error stay.
    pub fn install(&self, vpnd: &Path) -> Result<String, InstallError> {
        let layout = Layout::new(&self.prefix)?;
        let files = contents(&layout, vpnd)?;
        let mut place = self.place();
        let before = Manifest::read(&place.real(&layout.manifest()))?.unwrap_or_default();
        let mut outcomes = Vec::new();
        for Content { path, mode, octets } in &files {
            let outcome = place.put(path, *mode, octets)?;
            outcomes.push((path.clone(), outcome));
        }
        for path in before.files.iter().filter(|old| !files.iter().any(|new| new.path == **old)) {
            if place.remove(path)? {
                outcomes.push((path.clone(), Outcome::Removed));
            }
        }
        // The list has its own directory, too.
        place.make_parent(&layout.manifest())?;
        let made = before.directories.iter().cloned().chain(place.made().iter().cloned());
        let manifest = Manifest::new(files.iter().map(|file| file.path.clone()), made);
        place.put(&layout.manifest(), 0o644, manifest.text().as_bytes())?;

        for (name, mode) in DIRECTORIES {
            place.directory(&Path::new(CONFIGURATION).join(name), mode)?;
        }
        place.directory(Path::new(STATE), 0o700)?;
        let settings = Path::new(CONFIGURATION).join("vpnd.toml");
        let outcome = place.put_if_missing(&settings, 0o644, SETTINGS.as_bytes())?;
        outcomes.push((settings, outcome));
        let mut done: BTreeMap<PathBuf, Vec<(String, Outcome)>> = BTreeMap::new();
        for (path, outcome) in outcomes {
            let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            done.entry(directory).or_default().push((name, outcome));
        }
        Ok(self.report(&layout, &done))
    }

    /// Removes what an installation with this prefix has installed; returns what was done.
    ///
    /// # Errors
    /// As [`InstallError`].
    pub fn uninstall(&self) -> Result<String, InstallError> {
        let layout = Layout::new(&self.prefix)?;
        let mut place = self.place();
        let list = layout.manifest();
        let manifest = Manifest::read(&place.real(&list))?;
        let manifest = manifest.ok_or_else(|| InstallError::NotInstalled(place.real(&list)))?;
        let mut text = self.begin(&format!("vpnd is removed from {}", self.prefix.display()));
        let (mut removed, mut missing) = (0, 0);
        for path in &manifest.files {
            if place.remove(path)? { removed += 1 } else { missing += 1 }
        }
        place.remove(&list)?;
        for path in manifest.directories.iter().rev() {
            place.remove_if_empty(path)?;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {removed} files");
        if missing > 0 {
            let _ = writeln!(text, "  {missing} were gone already");
        }
        let _ = writeln!(
            text,
            "left as they are: {} (configuration, keys and certificates) and /var/lib/vpnd (the policy store)",
            place.real(Path::new(CONFIGURATION)).display()
        );
        if self.root.is_none() && enabled() {
            text.push_str(
                "\nnext\n  systemctl disable --now vpnd vpn-guard; systemctl daemon-reload\n",
            );
        }
        Ok(text)
    }

    fn place(&self) -> Place {
        Place::new(self.root.as_deref(), self.dry_run)
    }

    fn begin(&self, text: &str) -> String {
        match self.dry_run {
            true => format!("nothing is changed; without --dry-run: {text}\n"),
            false => format!("{text}\n"),
        }
    }

    fn report(&self, layout: &Layout, done: &BTreeMap<PathBuf, Vec<(String, Outcome)>>) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let below = format!("vpnd {version} is installed below {}", self.prefix.display());
        let mut text = self.begin(&match &self.root {
            Some(root) => format!("{below}, with {} for /", root.display()),
            None => below,
        });
        for (directory, files) in done {
            for outcome in Outcome::ALL {
                let names: Vec<&str> =
                    files.iter().filter(|(_, o)| *o == outcome).map(|(n, _)| n.as_str()).collect();
                let names = match names.as_slice() {
                    [] => continue,
                    pages if pages.len() > 8 => format!("{} manual pages", pages.len()),
                    names => names.join(", "),
                };
                // Writing to a String cannot fail.
                let _ = writeln!(text, "  {outcome:9} {}: {names}", directory.display());
            }
        }
        if self.root.is_none() && !self.dry_run {
            text.push_str(&next_steps(layout));
        }
        text
    }
}

/// Returns `true` if a unit of ours is enabled on this machine.
fn enabled() -> bool {
    let wants = ["multi-user.target.wants/vpnd.service", "sysinit.target.wants/vpn-guard.service"];
    wants.iter().any(|link| Path::new("/etc/systemd/system").join(link).symlink_metadata().is_ok())
}

/// The steps after an installation on this machine.
fn next_steps(layout: &Layout) -> String {
    let mut text = String::new();
    for name in contents::UNITS.iter().map(|(name, _)| name) {
        let other = Path::new("/etc/systemd/system").join(name);
        if layout.units() != Path::new("/etc/systemd/system") && other.is_file() {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(
                text,
                "note: {} takes precedence over the unit that was installed; remove it",
                other.display()
            );
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|directory| directory == layout.programs()) {
        let _ = writeln!(
            text,
            "note: {} is not in PATH; add it, or type whole paths",
            layout.programs().display()
        );
    }
    text.push_str("\nnext\n");
    let systemd = Path::new("/run/systemd/system").is_dir();
    if systemd {
        text.push_str("  systemctl daemon-reload\n");
    }
    if !Path::new(CONFIGURATION).join("policy.xml").exists() {
        text.push_str(
            "  vpnctl policy new --local ADDRESS --remote ADDRESS --protect NETWORK=NETWORK\n  install -m 600 left.xml \
             /etc/vpnd/policy.xml\n",
        );
    }
    text.push_str("  vpnd check /etc/vpnd/policy.xml\n");
    text.push_str(match systemd {
        true => "  systemctl enable vpn-guard vpnd && systemctl restart vpn-guard vpnd\n",
        false => "  vpnd start --policy /etc/vpnd/policy.xml\n",
    });
    text
}

#[cfg(test)]
mod tests;
