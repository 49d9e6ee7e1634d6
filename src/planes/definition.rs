//! Everything that a guard follows from, and its form in a file.
//!
//! The file lets a host guard its tunnels at boot although the policy cannot be read. It holds no keys. A line is a
//! setting, a bypass rule of the filter, or the traffic of a tunnel:
//!
//! ```text
//! vpn-guard 1
//! device vpn0
//! mark 7762030
//! natt_port 4500
//! inbound yes
//! kernel no
//! bypass both 6/0.0.0.0-255.255.255.255/22-22 6/0.0.0.0-255.255.255.255/0-65535
//! tunnel 0/0 - 0/10.1.0.0-10.1.0.255/0-65535 0/10.2.0.0-10.2.0.255/0-65535
//! end
//! ```
//!
//! A tunnel has the value and the mask of its mark, `card` if a network card may protect its packets, and the selectors
//! of both sides: protocol, addresses and ports.

#![forbid(unsafe_code)]

use super::guard::{Guard, GuardedTraffic, Hold, Holder, OnLoss, Surroundings};
use crate::driver::Completion;
use esp::filter::{Direction, Filter, FilterAction, FilterRule};
use esp::plane::{PlaneError, Rule, RuleId, TrafficSelectors};
use floor::plane_error;
use policy::{AddressRange, PortRange, Selector};
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The first line of the file. Another version would have another number.
const HEAD: &str = "vpn-guard 1";
/// The last line of the file.
const END: &str = "end";

/// A rule with the properties by which it is guarded; `None`: nftables has no entry for it.
pub(super) type GuardedRule = (Rule, Option<GuardedTraffic>);

/// Everything that a guard follows from.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(super) surroundings: Surroundings,
    /// Of its rules, those count that let traffic pass.
    pub(super) filter: Arc<Filter>,
    pub(super) rules: Vec<GuardedRule>,
}

impl Definition {
    /// The TUN device to which the guard belongs.
    pub(crate) fn device(&self) -> &str {
        &self.surroundings.device
    }

    /// Puts the guard in force, in place of the one that is there. The caller has the lock on the device.
    pub(super) fn start(
        &self,
        state_dir: &Path,
        holder: Holder,
        on_loss: OnLoss,
    ) -> Result<Guard, PlaneError> {
        let hold = Hold::of(state_dir, self.device()).map_err(plane_error)?;
        let rules = self.rules.iter().map(|(rule, properties)| (rule, *properties));
        let guard =
            Guard::start(self.surroundings.clone(), hold, holder, &self.filter, rules, on_loss);
        guard.map_err(|error| PlaneError::System {
            what: "starting the thread that changes the guard".to_owned(),
            why: error.to_string(),
        })
    }

    /// Puts the guard in force without a plane, and leaves it so. The caller has the lock on the device. Returns
    /// `false` if there is nothing to guard.
    pub(crate) fn leave(&self, state_dir: &Path) -> Result<bool, PlaneError> {
        self.start_kept(state_dir, Holder::Nobody, Arc::new(|| {}))?.in_force()
    }

    /// As [`Definition::leave`]. Another program cannot remove what the result holds. After `on_loss`,
    /// [`Held::restore`] is to be called.
    pub(crate) fn hold(&self, state_dir: &Path, on_loss: OnLoss) -> Result<Held, PlaneError> {
        let guard = self.start_kept(state_dir, Holder::Watch, on_loss)?;
        Ok(Held { definition: self.to_string(), guard })
    }

    fn start_kept(
        &self,
        state_dir: &Path,
        holder: Holder,
        on_loss: OnLoss,
    ) -> Result<Guard, PlaneError> {
        let mut guard = self.start(state_dir, holder, on_loss)?;
        guard.keep_on_drop(true);
        Ok(guard)
    }

    /// Reads the definition from its file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not one of this version.
    pub(crate) fn read(file: &Path) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "it is not a file of vpnd");
        let mut open = fs::File::open(file)?;
        let metadata = open.metadata()?;
        host::writers::check_file(file, &metadata)?;
        let mut text = String::new();
        open.read_to_string(&mut text)?;
        text.parse().map_err(|()| invalid())
    }

    /// Writes the definition to a file of mode 0600, in place of the one that is there, unless it has the same text.
    pub(crate) fn write(&self, file: &Path) -> io::Result<()> {
        let text = self.to_string();
        if fs::read_to_string(file).is_ok_and(|present| present == text) {
            return Ok(());
        }
        host::replace::replace(file, text.as_bytes()).map_err(|(_, error)| error)
    }
}

/// A guard that was put in force without a plane. Dropping this leaves it so.
pub(crate) struct Held {
    definition: String,
    guard: Guard,
}

impl Held {
    /// Returns `true` if this is the guard of a definition.
    pub(crate) fn is_of(&self, definition: &Definition) -> bool {
        self.definition == definition.to_string()
    }

    /// Returns `true` if the guard is in force, `false` if there is nothing to guard.
    ///
    /// # Errors
    /// If nftables has refused it.
    pub(crate) fn in_force(&self) -> Result<bool, PlaneError> {
        self.guard.in_force()
    }

    /// Puts the guard in force again, as it was. The caller has the lock on the device.
    ///
    /// # Errors
    /// If nftables refuses it.
    pub(crate) fn restore(&mut self) -> Result<bool, PlaneError> {
        self.guard.restore_now()
    }
}

/// The file with the definition of the guard in force, for the next boot.
pub(super) struct Record {
    pub(super) file: PathBuf,
    pub(super) definition: Definition,
    /// The rules of SAs keyed by hand, which a policy does not define.
    pub(super) by_hand: Vec<GuardedRule>,
}

impl Record {
    /// Another policy defines these rules.
    pub(super) fn replace_rules(&mut self, defined: Vec<GuardedRule>) {
        self.definition.rules = defined.into_iter().chain(self.by_hand.iter().cloned()).collect();
    }

    pub(super) fn replace_filter(&mut self, filter: Arc<Filter>) {
        self.definition.filter = filter;
    }

    /// Writes the file, which takes as long as the disk does: on another thread.
    pub(super) fn writing(&self) -> Completion {
        let (file, definition) = (self.file.clone(), self.definition.clone());
        Box::new(move || {
            if let Err(error) = definition.write(&file) {
                tracing::warn!(
                    %error,
                    file = %file.display(),
                    "the guard is not written down: at a boot at which the policy cannot be read, an older one is in force, or \
                     none"
                );
            }
        })
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Surroundings { device, mark, natt_port, inbound, kernel } = &self.surroundings;
        let yes = |is: &bool| if *is { "yes" } else { "no" };
        writeln!(f, "{HEAD}\ndevice {device}\nmark {mark}\nnatt_port {natt_port}")?;
        writeln!(f, "inbound {}\nkernel {}", yes(inbound), yes(kernel))?;
        for rule in self.filter.rules.iter().filter(|rule| rule.action == FilterAction::Bypass) {
            writeln!(f, "bypass {} {}", direction(rule.direction), Traffic(&rule.traffic))?;
        }
        for (rule, properties) in &self.rules {
            // nftables has no entry for the others.
            let Some(GuardedTraffic { mark, by_card }) = properties else { continue };
            let (value, mask) = mark.unwrap_or_default();
            let card = if *by_card { "card" } else { "-" };
            writeln!(f, "tunnel {value}/{mask} {card} {}", Traffic(&rule.selectors))?;
        }
        writeln!(f, "{END}")
    }
}

impl FromStr for Definition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        parse(text).ok_or(())
    }
}

fn parse(text: &str) -> Option<Definition> {
    let mut lines = text.lines();
    let mut setting = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    (setting("vpn-guard")? == "1").then_some(())?;
    let surroundings = Surroundings {
        device: setting("device").filter(|device| !device.is_empty())?.to_owned(),
        mark: setting("mark")?.parse().ok()?,
        natt_port: setting("natt_port")?.parse().ok()?,
        inbound: yes(setting("inbound")?)?,
        kernel: yes(setting("kernel")?)?,
    };
    let (mut filter, mut rules) = (Filter::default(), Vec::new());
    loop {
        let words: Vec<&str> = lines.next()?.split(' ').collect();
        match words[..] {
            [END] => break,
            ["bypass", way, local, remote] => filter.rules.push(FilterRule {
                name: None,
                action: FilterAction::Bypass,
                direction: DIRECTIONS.into_iter().find(|known| direction(*known) == way)?,
                traffic: traffic(local, remote)?,
            }),
            ["tunnel", mark, card, local, remote] => {
                let (value, mask) = mark.split_once('/')?;
                let (value, mask): (u32, u32) = (value.parse().ok()?, mask.parse().ok()?);
                let by_card = match card {
                    "card" => true,
                    "-" => false,
                    _ => return None,
                };
                let selectors = traffic(local, remote)?;
                let rule = Rule { id: RuleId(0), tunnel: String::new(), selectors, trap: false };
                let mark = (mask != 0).then_some((value, mask));
                rules.push((rule, Some(GuardedTraffic { mark, by_card })));
            }
            _ => return None,
        }
    }
    lines.next().is_none().then(|| Definition { surroundings, filter: Arc::new(filter), rules })
}

const DIRECTIONS: [Direction; 3] = [Direction::In, Direction::Out, Direction::Both];

fn direction(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Both => "both",
    }
}

fn yes(word: &str) -> Option<bool> {
    match word {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// Selectors in the words of the file: those of each side, with a comma between two.
struct Traffic<'a>(&'a TrafficSelectors);

impl fmt::Display for Traffic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (side, before) in [(&self.0.local, ""), (&self.0.remote, " ")] {
            f.write_str(before)?;
            for (place, Selector { protocol, addresses, ports }) in side.iter().enumerate() {
                let comma = if place > 0 { "," } else { "" };
                let (first, last) = (addresses.start(), addresses.end());
                write!(f, "{comma}{protocol}/{first}-{last}/{}-{}", ports.start(), ports.end())?;
            }
        }
        Ok(())
    }
}

fn traffic(local: &str, remote: &str) -> Option<TrafficSelectors> {
    let side = |text: &str| text.split(',').map(selector).collect::<Option<Vec<_>>>();
    Some(TrafficSelectors { local: side(local)?, remote: side(remote)? })
}

fn selector(text: &str) -> Option<Selector> {
    let (protocol, rest) = text.split_once('/')?;
    let (addresses, ports) = rest.split_once('/')?;
    let ((first, last), (from, to)) = (addresses.split_once('-')?, ports.split_once('-')?);
    Some(Selector {
        protocol: protocol.parse().ok()?,
        addresses: AddressRange::new(first.parse().ok()?, last.parse().ok()?)?,
        ports: PortRange::new(from.parse().ok()?, to.parse().ok()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "vpn-guard 1
device vpn0
mark 7762030
natt_port 4500
inbound yes
kernel no
bypass both 6/0.0.0.0-255.255.255.255/22-22 6/0.0.0.0-255.255.255.255/0-65535
bypass out 0/fd01::-fd01::ffff/0-65535 0/fd02::1-fd02::1/0-65535
tunnel 0/0 - 0/10.1.0.0-10.1.0.255/0-65535 0/10.2.0.0-10.2.0.255/0-65535
tunnel 5/255 card 17/10.1.0.1-10.1.0.1/7-9,6/10.1.0.1-10.1.0.1/0-65535 0/10.3.0.0-10.3.0.255/0-65535
end
";

    #[test]
    fn a_definition_is_written_as_it_was_read() {
        let read: Definition = TEXT.parse().expect("it is well-formed");
        assert_eq!(read.to_string(), TEXT);
        assert_eq!((read.device(), read.rules.len(), read.filter.rules.len()), ("vpn0", 2, 2));
        let (rule, properties) = &read.rules[1];
        assert_eq!(properties.and_then(|p| p.mark), Some((5, 255)));
        assert_eq!(rule.selectors.local.len(), 2);
    }

    #[test]
    fn nothing_but_a_whole_file_is_taken() {
        for (length, _) in TEXT.char_indices().filter(|(at, _)| *at < TEXT.len() - 1) {
            assert!(TEXT[..length].parse::<Definition>().is_err(), "{}", &TEXT[..length]);
        }
        for (from, to) in [
            ("vpn-guard 1", "vpn-guard 2"),
            ("device vpn0", "device "),
            ("inbound yes", "inbound maybe"),
            ("bypass both", "bypass none"),
            ("tunnel 0/0 -", "tunnel 0/0 x"),
            ("10.1.0.0-10.1.0.255", "10.1.0.255-10.1.0.0"),
            ("10.1.0.0-10.1.0.255", "10.1.0.0-fd01::1"),
            ("/7-9,", "/9-7,"),
            ("end\n", "end\nend\n"),
            ("end\n", "counter\nend\n"),
        ] {
            let text = TEXT.replacen(from, to, 1);
            assert!(text != TEXT && text.parse::<Definition>().is_err(), "{to}");
        }
    }

    #[test]
    fn a_file_keeps_the_last_definition_for_root_alone() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("guard.vpn0");
        let absent = Definition::read(&file).expect_err("there is none");
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        let definition: Definition = TEXT.parse().expect("it is well-formed");
        definition.write(&file).expect("writable");
        let first = fs::metadata(&file).expect("it is there");
        assert_eq!(first.mode() & 0o777, 0o600);
        definition.write(&file).expect("writable");
        assert_eq!(fs::metadata(&file).expect("it is there").ino(), first.ino(), "it is the same");
        assert_eq!(Definition::read(&file).expect("readable").to_string(), TEXT);
        fs::write(&file, "vpn-guard 1\n").expect("writable");
        assert_eq!(Definition::read(&file).expect_err("a part").kind(), io::ErrorKind::InvalidData);
    }
}
