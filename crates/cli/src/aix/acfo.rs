//! `acfo`: tunables of the crypto facility, of a running daemon or of the file that it reads at its start.

use super::{Flags, Settings, Trouble};
use crate::crypto;
use control::protocol::Tunable;
use std::io::Write;

const USAGE: &str = "\
Usage: acfo [-d [-t tunable]]
       acfo [-p] -t tunable=value
       acfo [-p] -r [-t] tunable
       acfo [-p] -R
       acfo -h [-t tunable]";

/// Each tunable and its effect.
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

/// The names of the tunables, in AIX's order.
fn names() -> [&'static str; 3] {
    HELP.map(|(name, _)| name)
}

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
            None if flags.has('R') => names().to_vec(),
            _ => return Err(Trouble::usage("-r needs one tunable, -R takes none", USAGE)),
        };
        let changes: Vec<_> = names.into_iter().map(|name| (name, None)).collect();
        return set(&changes, persist);
    }
    match tunable.and_then(|tunable| tunable.split_once('=')) {
        Some((name, value)) if !flags.has('d') => {
            let value = value.trim().trim_end_matches('.').parse::<u64>();
            let value =
                value.map_err(|_| Trouble::usage(format!("{name} needs a number"), USAGE))?;
            set(&[(name.trim(), Some(value))], persist)
        }
        None if tunable.is_some() && !flags.has('d') => {
            Err(Trouble::usage("-t needs tunable=value, or -d before it", USAGE))
        }
        _ if persist => Err(Trouble::usage("-p needs -t tunable=value, -r or -R", USAGE)),
        _ => display(tunable, out),
    }
}

/// Changes tunables; `None` brings one back to its default.
fn set(changes: &[(&str, Option<u64>)], persist: bool) -> Result<(), Trouble> {
    let mut settings = Settings::open("acfo")?;
    if !persist {
        settings.need_daemon("use -p as well")?;
    }
    let mut file = String::new();
    for (name, value) in changes {
        file = crypto::set(&mut settings.client, name, *value, persist)?.file;
    }
    settings.tell_kept(&file);
    Ok(())
}

/// Prints values as AIX does, with a full stop behind each.
fn display(wanted: Option<&str>, out: &mut dyn Write) -> Result<(), Trouble> {
    let mut tunables = crypto::state(&mut Settings::open("acfo")?.client)?.tunables;
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
        names().join(", ")
    ))
}
