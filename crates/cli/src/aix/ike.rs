//! `ike cmd=activate|list|remove|log`.

use super::listing::{self, Phase};
use super::log_level;
use super::{Trouble, connect, done, named_configuration, tunnels};
use control::client::Client;
use control::protocol::{Child, Command, Reply, Tunnel};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use terminal::report::plain;

const USAGE: &str = "\
Usage: ike cmd=activate [phase=1|2] [numlist=n,n-m] [namelist=name,...] [remid=id] [ipaddr=src,dst] [autostart]
       ike cmd=list [phase=1|1+|2] [numlist=n,n-m] [db | role=i|r] [verbose]
       ike cmd=remove [phase=1|2] [numlist=n,n-m] [namelist=name,...] [all]
       ike cmd=log";

/// Numbers that a list may name.
const MAX_NUMBERS: usize = 65_536;

/// The words after `ike`.
#[derive(Default)]
struct Words {
    command: Option<String>,
    phase: Option<Phase>,
    numbers: Option<BTreeSet<u32>>,
    names: Option<BTreeSet<String>>,
    remote_id: Option<String>,
    addresses: Option<(String, String)>,
    initiated: Option<bool>,
    flags: BTreeSet<String>,
}

/// A tunnel of either phase that a command is about.
struct Target {
    phase: u8,
    number: u32,
    name: String,
}

impl Target {
    fn of_tunnel(tunnel: &Tunnel) -> Self {
        Self { phase: 1, number: tunnel.number, name: tunnel.name.clone() }
    }

    fn of_child(child: &Child) -> Self {
        Self { phase: 2, number: child.number, name: child.name.clone() }
    }

    fn title(&self) -> String {
        format!("Phase {} tunnel {} ({})", self.phase, self.number, plain(&self.name))
    }
}

pub(super) fn run(words: &[String], out: &mut dyn Write) -> Result<(), Trouble> {
    let words = Words::read(words)?;
    match words.command.as_deref() {
        Some("activate") => activate(&words, out),
        Some("list") => list(&words, out),
        Some("remove") => remove(&words, out),
        Some("log") => log(),
        Some(other) => Err(Trouble::usage(format!("there is no cmd={other}"), USAGE)),
        None => Err(Trouble::usage("cmd= is missing", USAGE)),
    }
}

impl Words {
    fn read(words: &[String]) -> Result<Self, Trouble> {
        let mut read = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("cmd", command)) => read.command = Some(command.to_owned()),
                Some(("phase", "1")) => read.phase = Some(Phase::One),
                Some(("phase", "1+")) => read.phase = Some(Phase::OneAndItsOwn),
                Some(("phase", "2")) => read.phase = Some(Phase::Two),
                Some(("phase", _)) => {
                    return Err(Self::usage_error(word, "the phase is 1, 1+ or 2"));
                }
                Some(("numlist", value)) => match numbers(value) {
                    Some(numbers) => read.numbers = Some(numbers),
                    None => {
                        return Err(Self::usage_error(
                            word,
                            "write numbers and ranges, as in 1,3-5",
                        ));
                    }
                },
                Some(("namelist", value)) => {
                    read.names = Some(value.split(',').map(|part| part.trim().to_owned()).collect())
                }
                Some(("remid", value)) => read.remote_id = Some(value.to_owned()),
                Some(("ipaddr", value)) => match value.split_once(',') {
                    Some((from, to)) => {
                        read.addresses = Some((from.trim().to_owned(), to.trim().to_owned()));
                    }
                    None => {
                        return Err(Self::usage_error(
                            word,
                            "write two addresses, as in ipaddr=192.0.2.1,192.0.2.2",
                        ));
                    }
                },
                Some(("role", "i")) => read.initiated = Some(true),
                Some(("role", "r")) => read.initiated = Some(false),
                Some(("role", _)) => return Err(Self::usage_error(word, "the role is i or r")),
                None if ["autostart", "db", "verbose", "all"].contains(&word.as_str()) => {
                    read.flags.insert(word.clone());
                }
                _ => return Err(Self::usage_error(word, "not known")),
            }
        }
        Ok(read)
    }

    fn usage_error(word: &str, why: &str) -> Trouble {
        Trouble::usage(format!("{word}: {why}"), USAGE)
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }

    /// Returns `true` if any word selects tunnels.
    fn selects(&self) -> bool {
        self.numbers.is_some()
            || self.names.is_some()
            || self.remote_id.is_some()
            || self.addresses.is_some()
            || self.has("autostart")
    }

    /// The tunnels that are meant. Without a phase, numbers and names are those of phase 1, which brings its phase 2
    /// along; names may be of either.
    fn targets(&self, tunnels: &[Tunnel]) -> Result<Vec<Target>, Trouble> {
        let mut targets = Vec::new();
        for tunnel in tunnels.iter().filter(|tunnel| self.fits_sides(tunnel)) {
            let of_phase1 = self.phase != Some(Phase::Two);
            let of_phase2 =
                self.phase == Some(Phase::Two) || self.phase.is_none() && self.names.is_some();
            if of_phase1 && self.fits(tunnel.number, &tunnel.name, starts(tunnel)) {
                targets.push(Target::of_tunnel(tunnel));
                continue;
            }
            for child in tunnel.children.iter().filter(|_| of_phase2) {
                let auto = child.policy.as_ref().is_some_and(|policy| policy.auto_start);
                if self.fits(child.number, &child.name, auto) {
                    targets.push(Target::of_child(child));
                }
            }
        }
        self.miss_none(&targets)?;
        Ok(targets)
    }

    fn fits_sides(&self, tunnel: &Tunnel) -> bool {
        self.remote_id.as_ref().is_none_or(|id| id == tunnel.remote_id_value())
            && self.addresses.as_ref().is_none_or(|(from, to)| {
                from.parse().is_ok_and(|from| tunnel.local_address == Some(from))
                    && to.parse().is_ok_and(|to| tunnel.remote_address == Some(to))
            })
    }

    fn fits(&self, number: u32, name: &str, auto_start: bool) -> bool {
        self.numbers.as_ref().is_none_or(|numbers| numbers.contains(&number))
            && self.names.as_ref().is_none_or(|names| names.contains(name))
            && (!self.has("autostart") || auto_start)
    }

    /// Names and numbers of nobody are mistakes; a range may have gaps.
    fn miss_none(&self, targets: &[Target]) -> Result<(), Trouble> {
        for name in self.names.iter().flatten() {
            if !targets.iter().any(|target| target.name == *name) {
                let message =
                    format!("there is no tunnel {name:?}; see their names with: ike cmd=list db");
                return Err(Trouble::new(message));
            }
        }
        if targets.is_empty() && self.selects() && !self.has("autostart") {
            return Err(Trouble::new("no tunnel is as described; see all with: ike cmd=list db"));
        }
        Ok(())
    }
}

/// Returns `true` if a phase 1 tunnel, or a phase 2 tunnel that it carries, starts with the daemon.
fn starts(tunnel: &Tunnel) -> bool {
    tunnel.policy.as_ref().is_some_and(|policy| policy.auto_start)
        || tunnel.children.iter().any(|c| c.policy.as_ref().is_some_and(|policy| policy.auto_start))
}

/// `n`, `n-m`, and several of these with commas between.
fn numbers(text: &str) -> Option<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        let wanted = usize::try_from(to.checked_sub(from)?).ok()?;
        if numbers.len() + wanted >= MAX_NUMBERS {
            return None;
        }
        numbers.extend(from..=to);
    }
    Some(numbers)
}

fn activate(words: &Words, out: &mut dyn Write) -> Result<(), Trouble> {
    let mut client = connect()?;
    let all = tunnels(&mut client, true)?;
    if all.is_empty() {
        return Err(Trouble::new("there is no tunnel; define one with: ikedb -p FILE"));
    }
    let targets = words.targets(&all)?;
    // Without any words all that may start; where some are named, those this side may not start are errors.
    let names = match words.selects() || words.phase.is_some() {
        false => Vec::new(),
        true if targets.is_empty() => return Ok(()),
        true => targets.iter().map(|target| target.name.clone()).collect(),
    };
    let activations = match client.ask(Command::Activate { names })? {
        Reply::Activations(activations) => activations,
        reply => return Err(client.unexpected(&reply).into()),
    };
    if activations.is_empty() {
        eprintln!("ike: the policy has no tunnel that this side may start");
    }
    let mut failed = 0;
    for activation in &activations {
        let tunnel =
            all.iter().find(|tunnel| tunnel.name == activation.name).map(Target::of_tunnel);
        let mut children = all.iter().flat_map(|tunnel| &tunnel.children);
        let target = tunnel
            .or_else(|| children.find(|child| child.name == activation.name).map(Target::of_child));
        let title = target.map_or_else(|| activation.name.clone(), |target| target.title());
        match &activation.failure {
            None => writeln!(out, "{title}: active")?,
            Some(failure) => {
                failed += 1;
                eprintln!("ike: {title}: {}", plain(&failure.message));
                eprintln!("  see what to do with: vpnctl why {}", plain(&activation.name));
            }
        }
    }
    match failed {
        0 => Ok(()),
        n => Err(Trouble::new(format!(
            "{n} of {} tunnels could not be activated",
            activations.len()
        ))),
    }
}

fn list(words: &Words, out: &mut dyn Write) -> Result<(), Trouble> {
    let db = words.has("db");
    let mut listed = tunnels(&mut connect()?, db)?;
    if let Some(initiated) = words.initiated {
        listed.retain(|tunnel| tunnel.ike_sa.as_ref().is_some_and(|sa| sa.initiator == initiated));
    }
    let show = listing::Show {
        phase: words.phase,
        db,
        chosen: &|number| words.numbers.as_ref().is_none_or(|numbers| numbers.contains(&number)),
    };
    let text = match words.has("verbose") {
        true => listing::verbose(&listed, &show),
        false => listing::short(&listed, &show),
    };
    Ok(write!(out, "{text}")?)
}

fn remove(words: &Words, out: &mut dyn Write) -> Result<(), Trouble> {
    if !words.has("all") && !words.selects() {
        return Err(Trouble::usage("say which: numlist=, namelist=, or all", USAGE));
    }
    let mut client = connect()?;
    let active = tunnels(&mut client, false)?;
    let targets = words.targets(&active)?;
    let mut failed = 0;
    for target in &targets {
        match take_down(&mut client, target) {
            Ok(()) => writeln!(out, "{}: removed", target.title())?,
            Err(trouble) => {
                failed += 1;
                eprintln!("ike: {}: {}", target.title(), trouble.message);
            }
        }
    }
    match failed {
        0 => Ok(()),
        n => Err(Trouble::new(format!("{n} of {} tunnels could not be removed", targets.len()))),
    }
}

fn take_down(client: &mut Client, target: &Target) -> Result<(), Trouble> {
    done(client, Command::Deactivate { name: target.name.clone() })
}

/// AIX reads the level of its log again from the configuration, and so does this.
fn log() -> Result<(), Trouble> {
    let mut client = connect()?;
    let path = match named_configuration() {
        Some(path) => Some(path),
        None => configuration(&mut client)?,
    };
    let level = path.map_or_else(
        || Ok(log_level::default()),
        |path| {
            let help = "mend it, or use: vpnctl log LEVEL";
            log_level::read(&path).map_err(|why| Trouble::new(format!("{why}\n  {help}")))
        },
    )?;
    done(&mut client, Command::Log { level })
}

/// The configuration file of the running daemon; `None`: it has none.
fn configuration(client: &mut Client) -> Result<Option<PathBuf>, Trouble> {
    match client.ask(Command::Overview)? {
        Reply::Overview(overview) => Ok(overview.configuration.map(PathBuf::from)),
        reply => Err(client.unexpected(&reply).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers() {
        let read = |text| numbers(text).map(|numbers| numbers.into_iter().collect::<Vec<_>>());
        assert_eq!(read("2"), Some(vec![2]));
        assert_eq!(read("1,3-5, 4"), Some(vec![1, 3, 4, 5]));
        for wrong in ["", "a", "1-", "5-3", "1,,2", "-1", "0-4294967295", "1-65536,70000-140000"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
