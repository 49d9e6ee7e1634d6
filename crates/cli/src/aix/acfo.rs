//! `acfo`: tunables of the crypto facility, of a running daemon or of the file that it reads at its start.

use super::{Flags, Trouble, configuration, find, needs_daemon, not_kept, tell_kept};
use crate::crypto::client;
use crate::crypto::tunables::{NAMES, TunableError, Tunables};
use ::crypto::CryptoProviders;
use control::client::Client;
use control::protocol::Tunable;
use std::io::Write;
use std::sync::Arc;
use userspace::workers::Workers;

const USAGE: &str = "\
Usage: acfo [-d [-t tunable]]
       acfo [-p] -t tunable=value
       acfo [-p] -r [-t] tunable
       acfo [-p] -R
       acfo -h [-t tunable]";

const HELP: [(&str, &str); 3] = [
    (
        "nx_enabled",
        "use of an engine outside of the thread that reads, as the NX accelerator on AIX: here other threads",
    ),
    (
        "min_sz",
        "octets of the smallest request that goes to that engine; no effect while nx_enabled is 0",
    ),
    (
        "in_core_enabled",
        "use of the CPU's instructions for cryptography; takes effect at once, without a restart",
    ),
];

pub(super) fn run(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    // -r may be followed by the tunable with or without -t.
    let flags = Flags::read(words, "dhpRrt:", USAGE)?;
    let tunable = flags.value('t').or(flags.operands.first().map(String::as_str));
    let persist = flags.has('p');
    if flags.of("dhRr").len() > 1 || flags.operands.len() > 1 {
        return Err(Trouble::usage("these do not go together", USAGE));
    }
    if flags.has('h') {
        return help(tunable, out);
    }
    if flags.has('R') || flags.has('r') {
        let names: Vec<&str> = match tunable {
            Some(name) if flags.has('r') => vec![name],
            None if flags.has('R') => NAMES.to_vec(),
            _ => return Err(Trouble::usage("-r needs one tunable, -R takes none", USAGE)),
        };
        let changes: Vec<_> = names.into_iter().map(|name| (name, None)).collect();
        return Facility::open()?.set(&changes, persist);
    }
    match tunable.and_then(|tunable| tunable.split_once('=')) {
        Some((name, value)) if !flags.has('d') => {
            let value = value.trim().trim_end_matches('.').parse::<u64>();
            let value =
                value.map_err(|_| Trouble::usage(format!("{name} needs a number"), USAGE))?;
            Facility::open()?.set(&[(name.trim(), Some(value))], persist)
        }
        None if tunable.is_some() && !flags.has('d') => {
            Err(Trouble::usage("-t needs tunable=value, or -d before it", USAGE))
        }
        _ if persist => Err(Trouble::usage("-p needs -t tunable=value, -r or -R", USAGE)),
        _ => display(tunable, out),
    }
}

/// The tunables, wherever they are.
enum Facility {
    /// Of a running daemon.
    Running(Client),
    /// Those with which the daemon starts.
    Kept(Tunables),
}

impl Facility {
    fn open() -> Result<Self, Trouble> {
        if let Some(client) = find()? {
            return Ok(Self::Running(client));
        }
        let config = configuration()?.config.crypto;
        let providers = Arc::new(CryptoProviders::new(config.choice()));
        let (tunables, remarks) = Tunables::start(&config, providers, Some(Workers::default()));
        // The daemon tells the rest at its start.
        let ignored = remarks.iter().filter(|remark| remark.contains(" are ignored: "));
        ignored.for_each(|remark| eprintln!("acfo: {remark}"));
        Ok(Self::Kept(tunables))
    }

    fn list(&mut self) -> Result<Vec<Tunable>, Trouble> {
        match self {
            Self::Running(client) => Ok(client::state(client)?.tunables),
            Self::Kept(tunables) => Ok(tunables.list()),
        }
    }

    fn set(&mut self, changes: &[(&str, Option<u64>)], persist: bool) -> Result<(), Trouble> {
        match self {
            Self::Running(client) => {
                for (name, value) in changes {
                    client::set(client, name, *value, persist)?;
                }
            }
            Self::Kept(_) if !persist => {
                return Err(needs_daemon("use -p as well"));
            }
            Self::Kept(tunables) => {
                for (name, value) in changes {
                    tunables.set(name, *value, true).map_err(|error| match error {
                        TunableError::File { path, source } => not_kept(&path, &source),
                        other => Trouble::new(other.to_string()),
                    })?;
                }
                tell_kept("acfo", tunables.file());
            }
        }
        Ok(())
    }
}

/// Prints values as AIX does, with a full stop behind each.
fn display(wanted: Option<&str>, out: &mut dyn Write) -> Result<(), Trouble> {
    let mut tunables = Facility::open()?.list()?;
    tunables.retain(|tunable| wanted.is_none_or(|wanted| wanted == tunable.name));
    if tunables.is_empty() {
        return Err(unknown(wanted));
    }
    for Tunable { name, value, .. } in &tunables {
        writeln!(out, "{name} : {value}.")?;
    }
    Ok(())
}

fn help(wanted: Option<&str>, out: &mut dyn Write) -> Result<(), Trouble> {
    let all: Vec<_> =
        HELP.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)).collect();
    if all.is_empty() {
        return Err(unknown(wanted));
    }
    if wanted.is_none() {
        writeln!(out, "{USAGE}\n")?;
    }
    for (name, meaning) in all {
        writeln!(out, "{name} : {meaning}")?;
    }
    Ok(())
}

fn unknown(name: Option<&str>) -> Trouble {
    Trouble::new(format!(
        "there is no tunable {:?}; there are {}",
        name.unwrap_or_default(),
        NAMES.join(", ")
    ))
}
