//! The configuration, without its keys.

use super::secrets::{REMOVED, Secrets};
use serde_json::Value;
use std::fs;
use std::path::Path;
use zeroize::Zeroizing;

/// Words in the names of settings whose texts are secrets.
const SECRET: [&str; 5] = ["key", "secret", "psk", "pass", "pin"];

/// The setting whose name has such a word, and which names files.
const FILES: &str = "private_keys";

/// A configuration as JSON, without comments. Takes note of the secrets that it had.
pub(super) fn without_secrets(file: &Path, secrets: &mut Secrets) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let text = Zeroizing::new(text);
    // The message of an error would show the line.
    let parsed = toml::from_str::<Value>(&text);
    let mut settings = parsed.map_err(|_| {
        format!(
            "{}: no TOML, and so nobody knows where its keys are; see: vpnd check",
            file.display()
        )
    })?;
    remove(&mut settings, false, secrets);
    let text = serde_json::to_string_pretty(&settings).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// Replaces every text that may be secret. A table beside it, as `{ file = … }`, names a file.
fn remove(value: &mut Value, is_secret: bool, secrets: &mut Secrets) {
    match value {
        Value::String(text) if is_secret => {
            secrets.learn(text);
            *text = REMOVED.to_owned();
        }
        Value::Array(values) => {
            values.iter_mut().for_each(|value| remove(value, is_secret, secrets));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_secret =
                    name != FILES && SECRET.iter().any(|word| name.to_lowercase().contains(word));
                remove(value, is_secret, secrets);
            }
        }
        _ => {}
    }
}
