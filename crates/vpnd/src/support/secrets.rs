//! The secrets that this host is known to have, and their removal from texts.

use crate::config::Config;
use policy::{Credential, Secret};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use vpn::certificates::tokens;
use zeroize::Zeroizing;

/// The text in the place of a secret.
pub(super) const REMOVED: &str = "[removed]";

/// Characters of the shortest text that is searched for, and of the shortest one that looks like a word. Shorter ones
/// occur everywhere, and a word that is missing everywhere would give the key away: they are removed only where a key
/// is expected.
const SHORTEST: usize = 6;
const SHORTEST_WORD: usize = 12;

/// Octets of the longest file that may be a key.
const LONGEST_FILE: u64 = 64 * 1024;

/// Secrets, in all forms in which a text may have them.
#[derive(Default)]
pub(super) struct Secrets(Vec<Zeroizing<String>>);

impl Secrets {
    /// Takes note of a secret text.
    pub fn learn(&mut self, text: &str) {
        let text = text.trim();
        self.add(text);
        // As JSON has it between its quotation marks.
        if let Ok(quoted) = serde_json::to_string(text).map(Zeroizing::new) {
            self.add(&quoted[1..quoted.len() - 1]);
        }
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if let Some(octets) = Secret::from_hex(digits) {
            self.add_digits(octets.expose());
            if let Ok(text) = std::str::from_utf8(octets.expose()) {
                self.add(text);
            }
        }
        self.add_digits(text.as_bytes());
    }

    /// Takes note of secret octets.
    pub fn learn_octets(&mut self, octets: &[u8]) {
        match std::str::from_utf8(octets) {
            Ok(text) => self.learn(text),
            Err(_) => self.add_digits(octets),
        }
    }

    /// Takes note of the values that only the first of two policy files has.
    pub fn learn_difference(&mut self, with: &str, without: &str) {
        let known: BTreeSet<&str> = values_of(without).collect();
        for value in values_of(with).filter(|value| !known.contains(value)) {
            self.learn(value);
        }
    }

    /// Takes note of the preshared keys of a policy file.
    pub fn learn_policy(&mut self, text: &str) {
        let Ok(loaded) = policy::xml::read("policy.xml", text) else { return };
        for tunnel in &loaded.policy.tunnels {
            if let Credential::PresharedKey(key) = &tunnel.credential {
                self.learn_octets(key.expose());
            }
        }
    }

    /// Takes note of the keys in the files that a configuration names.
    pub fn learn_files(&mut self, config: &Config) {
        let sources = config.certificates.sources();
        let named = sources.private_keys.iter().chain(&sources.ppks).chain(&sources.ticket_keys);
        let named = named.map(|source| &source.path);
        let mut files: Vec<PathBuf> = named.flat_map(|path| below(path)).collect();
        files.extend(config.sa.iter().flat_map(|sa| sa.key_files().to_vec()));
        // Files with PINs, beside modules.
        files.extend(tokens::paths(&sources));
        for file in files {
            self.learn_file(&file);
        }
    }

    fn learn_file(&mut self, file: &Path) {
        if !fs::metadata(file).is_ok_and(|file| file.is_file() && file.len() <= LONGEST_FILE) {
            return;
        }
        let Ok(octets) = fs::read(file).map(Zeroizing::new) else { return };
        match std::str::from_utf8(&octets) {
            Ok(text) => {
                let lines = text.lines().filter(|line| !line.starts_with("-----"));
                lines.for_each(|line| self.learn(line));
            }
            Err(_) => self.add_digits(&octets),
        }
    }

    /// Removes all of them from a text.
    pub fn remove(&self, text: &mut String) {
        // A longer one may have a shorter one in it.
        let mut all: Vec<&Zeroizing<String>> = self.0.iter().collect();
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in all {
            if text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), REMOVED);
            }
        }
    }

    fn add(&mut self, text: &str) {
        let is_word = text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let shortest = if is_word { SHORTEST_WORD } else { SHORTEST };
        if text.chars().count() >= shortest {
            self.push(text);
        }
    }

    fn push(&mut self, text: &str) {
        if self.0.iter().all(|known| known.as_str() != text) {
            self.0.push(Zeroizing::new(text.to_owned()));
        }
    }

    fn add_digits(&mut self, octets: &[u8]) {
        let digits: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        if digits.len() >= SHORTEST {
            self.push(&digits.to_uppercase());
            self.push(&digits);
        }
    }
}

/// The values of attributes and the texts of elements, and what stands between them.
fn values_of(xml: &str) -> impl Iterator<Item = &str> {
    xml.split(['"', '\'', '<', '>']).map(str::trim)
}

/// A file, or the files of a directory.
fn below(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_owned()],
    }
}
