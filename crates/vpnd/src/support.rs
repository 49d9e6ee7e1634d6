//! The archive of `vpnctl support`: everything about a gateway that its developers need, and no secret.
//!
//! ```text
//!  daemon.rs: answers ─┐
//!  host.rs: the host  ─┼─► members ── secrets.rs: removed ──► archive.rs: tar.gz
//!  settings.rs        ─┘
//! ```
//!
//! Two things keep secrets out. Nothing is collected that holds keys by its nature, and the configuration is written
//! again without them. And every member is searched for the keys and passwords that this host is known to have.

mod archive;
mod daemon;
mod host;
mod secrets;
mod settings;

use crate::config::{Config, DEFAULT_FILE};
use control::client::Client;
use control::protocol::{Command as Ask, Overview, Reply};
use secrets::Secrets;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};
use zeroize::Zeroizing;

/// A file of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    name: String,
    text: String,
}

/// A part that is not in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The name of its file.
    pub name: String,
    /// The reason.
    pub why: String,
}

/// Collected members, and those that could not be collected.
#[derive(Debug, Default)]
struct Collection {
    members: Vec<Member>,
    missing: Vec<Missing>,
}

impl Collection {
    fn add(&mut self, name: impl Into<String>, text: Result<String, String>) {
        let name = name.into();
        match text {
            Ok(text) => self.members.push(Member { name, text }),
            Err(why) => self.missing.push(Missing { name, why }),
        }
    }
}

/// The result of [`write()`].
#[derive(Debug)]
pub struct Written {
    /// The archive.
    pub path: PathBuf,
    /// The number of its files.
    pub files: usize,
    /// Parts that are not in it.
    pub missing: Vec<Missing>,
}

/// The archive cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}; name another file with --output FILE", .path.display())]
pub struct SupportError {
    path: PathBuf,
    source: io::Error,
}

/// Collects everything and writes it to a new file with mode 0600; `output`: none is named, and it is in the working
/// directory. `control` is the socket of the daemon, which need not run. A question that it does not answer within
/// `limit` ends the questions.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn write(
    control: &Path,
    output: Option<&Path>,
    limit: Duration,
) -> Result<Written, SupportError> {
    let now = SystemTime::now();
    let name = base_name(&host::name(), now);
    let path = output.map_or_else(|| PathBuf::from(format!("{name}.tar.gz")), Path::to_owned);
    // Before the work.
    let file =
        archive::create(&path).map_err(|source| SupportError { path: path.clone(), source })?;
    let Collection { mut members, missing } = collect(control, limit);
    members.push(contents(&members, &missing));
    archive::write(file, &name, &members, now)
        .map_err(|source| SupportError { path: path.clone(), source })?;
    Ok(Written { path, files: members.len(), missing })
}

/// The name of the archive without its ending, and of the directory in it.
fn base_name(host: &str, now: SystemTime) -> String {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
    format!("vpnd-support-{host}-{time}")
}

fn collect(control: &Path, limit: Duration) -> Collection {
    let mut all = Collection::default();
    let mut secrets = Secrets::default();
    let mut overview = None;
    match connect(control, limit) {
        Ok(mut client) => {
            overview = ask_overview(&mut client);
            // A daemon that does not answer this one answers nothing.
            if overview.is_some() {
                daemon::learn(&mut client, &mut secrets);
            }
            daemon::collect(client, control, &mut all);
        }
        Err(why) => all.add("daemon", Err(why)),
    }
    let file = overview.as_ref().and_then(|daemon| daemon.configuration.as_deref());
    let file = Path::new(file.unwrap_or(DEFAULT_FILE));
    all.add("configuration.json", settings::without_secrets(file, &mut secrets));
    // Also if vpnd refuses the file because others may change it.
    let text = Zeroizing::new(fs::read_to_string(file).unwrap_or_default());
    secrets.learn_files(&Config::parse(file, &text).unwrap_or_default());
    host::collect(overview.as_ref().map(|daemon| daemon.pid), &mut all);
    for member in &mut all.members {
        secrets.remove(&mut member.text);
    }
    for missing in &mut all.missing {
        secrets.remove(&mut missing.why);
    }
    all
}

fn connect(control: &Path, limit: Duration) -> Result<Client, String> {
    let client = Client::connect(control).map_err(|error| error.to_string())?;
    client.set_timeout(limit).map_err(|error| error.to_string())?;
    Ok(client)
}

fn ask_overview(client: &mut Client) -> Option<Overview> {
    match client.ask(Ask::Overview) {
        Ok(Reply::Overview(overview)) => Some(*overview),
        _ => None,
    }
}

/// The list of the members.
fn contents(members: &[Member], missing: &[Missing]) -> Member {
    let mut text = format!(
        "Collected by vpnctl {}. Preshared keys, private keys, keys of SAs and PINs are left out, and replaced by {} wherever they \
         were found.\n\n",
        env!("CARGO_PKG_VERSION"),
        secrets::REMOVED
    );
    for member in members {
        text.push_str(&format!("{}: {} octets\n", member.name, member.text.len()));
    }
    for Missing { name, why } in missing {
        text.push_str(&format!("{name}: not here: {why}\n"));
    }
    Member { name: "contents.txt".to_owned(), text }
}

#[cfg(test)]
mod tests;
