//! `lssrc`, `startsrc` and `stopsrc` for the group `ike`: AIX's daemons as far as `vpnd` does their work.

use super::{Flags, Trouble, connect, done, socket, starting};
use control::client::ClientError;
use control::protocol::Command;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io::Write;

const USAGE: &str = "\
Usage: lssrc -g ike | -s subsystem | -a
       startsrc -g ike | -s subsystem
       stopsrc -g ike | -s subsystem";

/// The subsystems of the group, in AIX's order, and whether `vpnd` is one: IKEv1 and what serves it never run.
const SUBSYSTEMS: [(&str, bool); 5] =
    [("cpsd", false), ("tmd", true), ("isakmpd", false), ("ikev2d", true), ("iked", false)];

const GROUP: &str = "ike";

/// The subsystems that the arguments name.
fn chosen(words: &[String]) -> Result<Vec<(&'static str, bool)>, Trouble> {
    let flags = Flags::read(words, "ag:s:", USAGE)?;
    match (flags.value('g'), flags.value('s'), flags.has('a')) {
        (Some(GROUP), None, false) | (None, None, true) => Ok(SUBSYSTEMS.to_vec()),
        (Some(group), None, false) => Err(Trouble::new(format!(
            "0513-086 The {group} Group is not on file. Here is only {GROUP}."
        ))),
        (None, Some(name), false) => {
            let named: Vec<_> =
                SUBSYSTEMS.into_iter().filter(|(known, _)| *known == name).collect();
            let names = SUBSYSTEMS.map(|(name, _)| name).join(", ");
            match named.is_empty() {
                true => Err(Trouble::new(format!(
                    "0513-085 The {name} Subsystem is not on file. Here are {names}."
                ))),
                false => Ok(named),
            }
        }
        _ => Err(Trouble::usage("name a group or a subsystem", USAGE)),
    }
}

/// The process that listens, if one does.
fn process() -> Result<Option<i32>, Trouble> {
    let client = match control::client::Client::connect(&socket()) {
        Ok(client) => client,
        Err(ClientError::NoDaemon(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let connection = client.connection()?;
    let peer = getsockopt(&connection, PeerCredentials);
    Ok(peer.ok().map(|peer| peer.pid()))
}

pub(super) fn list(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let chosen = chosen(words)?;
    let process = process()?;
    writeln!(out, "Subsystem         Group            PID          Status")?;
    for (name, is_ours) in chosen {
        let (pid, status) = match process.filter(|_| is_ours) {
            Some(pid) => (pid.to_string(), "active"),
            None => (String::new(), "inoperative"),
        };
        writeln!(out, " {name:<17}{GROUP:<17}{pid:<13}{status}")?;
    }
    Ok(())
}

pub(super) fn start(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let chosen = chosen(words)?;
    if let [(name, false)] = chosen.as_slice() {
        return Err(Trouble::new(never(name)));
    }
    if let Some(pid) = process()? {
        return Err(Trouble::new(format!(
            "0513-029 The tmd Subsystem is already active. Multiple instances are not supported. It is vpnd, process {pid}."
        )));
    }
    let note = starting::start()?;
    let Some(pid) = process()? else {
        let socket = socket();
        return Err(Trouble::new(format!(
            "vpnd was started, but nobody listens on {}: its configuration names another socket; name that in the \
             environment variable VPND_CONTROL",
            socket.display()
        )));
    };
    for (name, _) in chosen.iter().filter(|(_, is_ours)| *is_ours) {
        writeln!(out, "0513-059 The {name} Subsystem has been started. Subsystem PID is {pid}.")?;
    }
    if let Some(note) = note {
        writeln!(out, "vpnd is no service here, because systemd does not run: {note}.")?;
    }
    Ok(())
}

pub(super) fn stop(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let chosen = chosen(words)?;
    if let [(name, false)] = chosen.as_slice() {
        return Err(Trouble::new(format!(
            "0513-004 The Subsystem or Group, {name}, is currently inoperative. {}",
            never(name)
        )));
    }
    let mut client = match connect() {
        Ok(client) => client,
        Err(_) if process()?.is_none() => {
            return Err(Trouble::new(
                "0513-004 The Subsystem or Group, ike, is currently inoperative: vpnd does not run.",
            ));
        }
        Err(trouble) => return Err(trouble),
    };
    done(&mut client, Command::Stop { keep_guard: false })?;
    client.wait_until_gone();
    for (name, _) in chosen.iter().filter(|(_, is_ours)| *is_ours) {
        writeln!(out, "0513-044 The {name} Subsystem was requested to stop.")?;
    }
    Ok(())
}

fn never(name: &str) -> String {
    match name {
        "isakmpd" => "vpnd speaks IKEv2 only, which ikev2d stands for.".to_owned(),
        name => format!("vpnd does the work of {name} itself."),
    }
}
