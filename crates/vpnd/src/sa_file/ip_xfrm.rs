//! Lines of `ip xfrm state add` and `ip xfrm policy add`, as `[[sa]]` tables.
//!
//! A state has the direction of its `offload`, or that of the policy whose template has its addresses. Its traffic is
//! that of its own selector, or of that policy. Everything that a table cannot say is refused: an SA that protects less
//! than its line says would be worse than none.

use policy::Integrity;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use zeroize::Zeroizing;

/// The numbers that `vpnd` gives SAs itself: they are in the lines of `vpnctl xfrm`.
const OWN_REQIDS: RangeInclusive<u32> = 0x7600_0001..=0x76ff_ffff;

/// A line cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {why}")]
pub(super) struct LineError {
    /// Its number, from 1.
    line: usize,
    why: String,
}

/// Returns `true` if a text has such lines, and no tables.
pub(super) fn are_lines(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| object(&mut line.split_whitespace().peekable()).is_some())
}

/// The tables of lines. `shared_key`: two of them may have one key.
///
/// # Errors
/// The first line that cannot be used.
pub(super) fn tables(text: &str, shared_key: bool) -> Result<Zeroizing<String>, LineError> {
    let (mut states, mut policies) = (Vec::new(), Vec::new());
    for (line, words) in commands(text) {
        let words = split(&words).map_err(|why| LineError { line, why })?;
        let mut words = words.iter().map(|word| word.as_str()).peekable();
        match object(&mut words) {
            Some(Object::State) => {
                let state = State::read(&mut Words(&mut words));
                states.push((line, state.map_err(|why| LineError { line, why })?));
            }
            Some(Object::Policy) => {
                let policy = Policy::read(&mut Words(&mut words));
                policies.extend(policy.map_err(|why| LineError { line, why })?);
            }
            None => {
                let why = "not \"ip xfrm state add\" or \"ip xfrm policy add\"".to_owned();
                return Err(LineError { line, why });
            }
        }
    }
    // Reserved in one piece: a buffer that grows leaves copies of the keys in freed memory.
    let mut out = Zeroizing::new(String::with_capacity(1024 * states.len()));
    let mut names: BTreeMap<(IpAddr, IpAddr, Option<u32>), String> = BTreeMap::new();
    for (line, state) in &states {
        let policy = policies.iter().find(|policy| policy.is_for(state));
        let direction = state.direction.or(policy.map(|policy| policy.direction));
        let direction = direction.ok_or_else(|| {
            let why = "neither \"offload dev DEVICE dir in|out\" nor a policy with this template says in which direction it is";
            LineError { line: *line, why: why.to_owned() }
        })?;
        let selector = match (&state.selector, policy.map(|policy| &policy.selector)) {
            (Some(own), Some(other)) if own != other => {
                let why = "its selector is not that of its policy".to_owned();
                return Err(LineError { line: *line, why });
            }
            (own, other) => own.as_ref().or(other),
        };
        // The ends are sorted, so both SAs of a connection get one name.
        let ends = (state.source.min(state.destination), state.source.max(state.destination));
        let number = names.len() + 1;
        let name = names.entry((ends.0, ends.1, state.reqid)).or_insert_with(|| {
            state.reqid.map_or_else(|| format!("xfrm_{number}"), |reqid| format!("reqid_{reqid}"))
        });
        state.write(&mut out, name, direction, selector, shared_key);
    }
    if states.is_empty() {
        return Err(LineError { line: 1, why: "there is no \"ip xfrm state add\"".to_owned() });
    }
    Ok(out)
}

/// The commands of a text, each with the number of its first line. A line that ends with a backslash goes on in the next.
fn commands(text: &str) -> Vec<(usize, Zeroizing<String>)> {
    let mut commands: Vec<(usize, Zeroizing<String>)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !goes_on && line.starts_with('#') {
            continue;
        }
        let (part, more) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match commands.last_mut() {
            Some((_, command)) if goes_on => {
                let mut longer =
                    Zeroizing::new(String::with_capacity(command.len() + 1 + part.len()));
                longer.push_str(command);
                longer.push(' ');
                longer.push_str(part);
                *command = longer;
            }
            _ if part.is_empty() => {}
            _ => commands.push((number, Zeroizing::new(part.to_owned()))),
        }
        goes_on = more;
    }
    commands
}

/// The words of a command, as a shell without variables takes them.
fn split(command: &str) -> Result<Vec<Zeroizing<String>>, String> {
    let mut words = Vec::new();
    let mut rest = command.trim_start();
    while !rest.is_empty() {
        // Documents that were set by a program have other quotes.
        let quote = match rest.chars().next() {
            Some('\'' | '\u{2018}' | '\u{2019}') => Some(['\'', '\u{2018}', '\u{2019}'].as_slice()),
            Some('"' | '\u{201c}' | '\u{201d}') => Some(['"', '\u{201c}', '\u{201d}'].as_slice()),
            _ => None,
        };
        let (word, tail) = match quote {
            Some(quotes) => {
                let inside = rest.trim_start_matches(|c| quotes.contains(&c));
                inside.split_once(|c| quotes.contains(&c)).ok_or("a quote has no end")?
            }
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(Zeroizing::new(word.to_owned()));
        rest = tail.trim_start();
    }
    Ok(words)
}

enum Object {
    State,
    Policy,
}

/// Takes `ip xfrm state add` and the like, as far as iproute2 lets one shorten it; `None`: it is another command.
fn object<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Option<Object> {
    for prompt in ["$", "sudo"] {
        words.next_if_eq(&prompt);
    }
    if words.next()? != "ip" {
        return None;
    }
    while words.next_if(|word| ["-4", "-6"].contains(word)).is_some() {}
    if !begins(words.next(), "xfrm") {
        return None;
    }
    let object = words.next();
    let object = match object {
        _ if begins(object, "state") => Object::State,
        _ if begins(object, "policy") => Object::Policy,
        _ => return None,
    };
    let verb = words.next();
    (begins(verb, "add") || begins(verb, "update")).then_some(object)
}

/// Returns `true` if `word` is the beginning of the keyword `whole`, as ip(8) accepts it.
fn begins(word: Option<&str>, whole: &str) -> bool {
    word.is_some_and(|word| !word.is_empty() && whole.starts_with(word))
}

/// The words behind the verb.
struct Words<'a, 'b>(&'b mut dyn Iterator<Item = &'a str>);

impl<'a> Words<'a, '_> {
    fn value(&mut self, of: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{of} has no value"))
    }

    fn address(&mut self, of: &str) -> Result<IpAddr, String> {
        let text = self.value(of)?;
        text.parse().map_err(|_| format!("{of} {text} is no address"))
    }

    /// A number, decimal or hexadecimal.
    fn number(&mut self, of: &str) -> Result<u32, String> {
        let text = self.value(of)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| format!("{of} {text} is no number"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl Direction {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "in" => Ok(Self::In),
            "out" => Ok(Self::Out),
            other => Err(format!("there is no dir {other}")),
        }
    }
}

/// The traffic of a policy or of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Selector {
    source: Option<String>,
    destination: Option<String>,
    protocol: Option<String>,
    source_port: Option<String>,
    destination_port: Option<String>,
}

impl Selector {
    /// Takes the value of a word of it. Returns `false` if the word is none.
    fn take(&mut self, word: &str, words: &mut Words<'_, '_>) -> Result<bool, String> {
        let place = match word {
            "src" => &mut self.source,
            "dst" => &mut self.destination,
            "proto" => &mut self.protocol,
            "sport" => &mut self.source_port,
            "dport" => &mut self.destination_port,
            _ => return Ok(false),
        };
        *place = Some(words.value(word)?.to_owned());
        Ok(true)
    }
}

/// `ip xfrm policy add`.
#[derive(Debug)]
struct Policy {
    direction: Direction,
    selector: Selector,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    reqid: Option<u32>,
    spi: Option<u32>,
}

impl Policy {
    /// `None`: one that protects nothing, or is for packets that are forwarded, of which `vpnd` makes its own.
    fn read(words: &mut Words<'_, '_>) -> Result<Option<Self>, String> {
        let (mut direction, mut selector) = (None, Selector::default());
        let (mut blocks, mut forwards, mut has_template) = (false, false, false);
        let (mut source, mut destination, mut reqid, mut spi) = (None, None, None, None);
        while let Some(word) = words.0.next() {
            match word {
                "tmpl" if has_template => {
                    return Err("a second tmpl: an SA within an SA has no table".into());
                }
                "tmpl" => has_template = true,
                "dir" => match words.value(word)? {
                    "fwd" => forwards = true,
                    text => direction = Some(Direction::read(text)?),
                },
                "action" => blocks = words.value(word)? == "block",
                "priority" | "index" | "ptype" | "level" | "mode" => _ = words.value(word)?,
                "reqid" => reqid = Some(words.number(word)?),
                "spi" => spi = Some(words.number(word)?),
                "src" if has_template => source = Some(words.address(word)?),
                "dst" if has_template => destination = Some(words.address(word)?),
                "proto" if has_template => _ = words.value(word)?,
                other if !has_template && selector.take(other, words)? => {}
                other => return Err(format!("{other} of a policy has no counterpart in a table")),
            }
        }
        if blocks || forwards || !has_template {
            return Ok(None);
        }
        let direction = direction.ok_or("dir is missing")?;
        Ok(Some(Self { direction, selector, source, destination, reqid, spi }))
    }

    fn is_for(&self, state: &State) -> bool {
        self.source.is_none_or(|source| source == state.source)
            && self.destination.is_none_or(|destination| destination == state.destination)
            && self.spi.is_none_or(|spi| spi == 0 || spi == state.spi)
            && self.reqid.is_none_or(|reqid| reqid == 0 || Some(reqid) == state.reqid)
    }
}

/// `ip xfrm state add`.
struct State {
    source: IpAddr,
    destination: IpAddr,
    spi: u32,
    reqid: Option<u32>,
    tunnel: bool,
    window: Option<u32>,
    esn: bool,
    /// Fields of the table, with keys.
    algorithms: Vec<(&'static str, Zeroizing<String>)>,
    remote_port: Option<[u32; 2]>,
    selector: Option<Selector>,
    direction: Option<Direction>,
    offload: Option<(&'static str, String)>,
}

impl State {
    fn read(words: &mut Words<'_, '_>) -> Result<Self, String> {
        let (mut source, mut destination, mut spi, mut reqid) = (None, None, None, None);
        let (mut tunnel, mut window, mut esn, mut ah) = (false, None, false, false);
        let (mut algorithms, mut remote_port) = (Vec::new(), None);
        let (mut selector, mut direction, mut offload) = (None::<Selector>, None, None);
        while let Some(word) = words.0.next() {
            if let Some(selector) = &mut selector
                && selector.take(word, words)?
            {
                continue;
            }
            match word {
                "src" => source = Some(words.address(word)?),
                "dst" => destination = Some(words.address(word)?),
                "proto" => match words.value(word)? {
                    "esp" => {}
                    "ah" => ah = true,
                    other => return Err(format!("proto {other} is neither esp nor ah")),
                },
                "spi" => spi = Some(words.number(word)?),
                "reqid" => reqid = Some(words.number(word)?),
                "replay-window" => window = Some(words.number(word)?),
                "mode" => match words.value(word)? {
                    "transport" => {}
                    "tunnel" => tunnel = true,
                    other => return Err(format!("there is no mode {other} here")),
                },
                "flag" => match words.value(word)? {
                    "esn" => esn = true,
                    "af-unspec" => {}
                    other => return Err(format!("flag {other} has no counterpart in a table")),
                },
                "aead" | "enc" | "auth" | "auth-trunc" => algorithm(word, words, &mut algorithms)?,
                "encap" => {
                    let kind = words.value(word)?;
                    if kind != "espinudp" {
                        return Err(format!("encap {kind} has no counterpart in a table"));
                    }
                    remote_port = Some([words.number(word)?, words.number(word)?]);
                    // ip-xfrm(8): OADDR follows the ports. A table has no place for it.
                    words.value(word)?;
                }
                "sel" => selector = Some(Selector::default()),
                "offload" => {
                    let mut kind = "crypto";
                    let mut device = None;
                    for _ in 0..3 {
                        match words.value(word)? {
                            "crypto" => {}
                            "packet" => kind = "packet",
                            "dev" => device = Some(words.value("dev")?.to_owned()),
                            "dir" => {
                                direction = Some(Direction::read(words.value("dir")?)?);
                                break;
                            }
                            other => {
                                return Err(format!(
                                    "offload {other} has no counterpart in a table"
                                ));
                            }
                        }
                    }
                    offload = device.map(|device| (kind, device));
                }
                other => return Err(format!("{other} of a state has no counterpart in a table")),
            }
        }
        let known = algorithms.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        if ah && known.contains(&"encryption") || known.is_empty() {
            return Err("its algorithms are missing: aead, or enc and auth-trunc".to_owned());
        }
        Ok(Self {
            source: source.ok_or("src is missing")?,
            destination: destination.ok_or("dst is missing")?,
            spi: spi.ok_or("spi is missing")?,
            reqid: reqid.filter(|reqid| *reqid != 0 && !OWN_REQIDS.contains(reqid)),
            tunnel,
            window,
            esn,
            algorithms,
            remote_port,
            selector,
            direction,
            offload,
        })
    }

    fn write(
        &self,
        out: &mut Zeroizing<String>,
        name: &str,
        direction: Direction,
        selector: Option<&Selector>,
        shared_key: bool,
    ) {
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            out,
            "[[sa]]\nname = {}\ndirection = \"{}\"\nsource = \"{}\"\ndestination = \"{}\"\nspi = {:#x}\n",
            quoted(name),
            match direction {
                Direction::In => "in",
                Direction::Out => "out",
            },
            self.source,
            self.destination,
            self.spi
        );
        if let Some(reqid) = self.reqid {
            let _ = writeln!(out, "reqid = {reqid}");
        }
        let _ = writeln!(out, "mode = \"{}\"", if self.tunnel { "tunnel" } else { "transport" });
        if let Some(window) = self.window {
            let _ = writeln!(out, "replay_window = {window}");
        }
        if self.esn {
            out.push_str("esn = true\n");
        }
        for (field, value) in &self.algorithms {
            // Neither has a character that means something in TOML.
            let _ = writeln!(out, "{field} = \"{}\"", **value);
        }
        if let Some([source, destination]) = self.remote_port {
            let port = if direction == Direction::Out { destination } else { source };
            let _ = writeln!(out, "encap = \"udp\"\nremote_port = {port}");
        }
        if let Some((kind, device)) = &self.offload {
            let _ = writeln!(out, "offload = \"{kind}\"\noffload_device = {}", quoted(device));
        }
        if let Some(selector) = selector {
            let fields = [
                ("source", &selector.source),
                ("destination", &selector.destination),
                ("protocol", &selector.protocol),
                ("source_port", &selector.source_port),
                ("destination_port", &selector.destination_port),
            ];
            let fields = fields.into_iter().filter_map(|(field, value)| {
                Some(format!("{field} = {}", quoted(value.as_deref()?)))
            });
            let fields: Vec<String> = fields.collect();
            if !fields.is_empty() {
                let _ = writeln!(out, "selector = {{ {} }}", fields.join(", "));
            }
        }
        if shared_key {
            out.push_str("insecure_shared_key = true\n");
        }
        out.push('\n');
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

/// Takes an algorithm, its key and the length of its ICV, in bits.
fn algorithm(
    word: &str,
    words: &mut Words<'_, '_>,
    fields: &mut Vec<(&'static str, Zeroizing<String>)>,
) -> Result<(), String> {
    let name = words.value(word)?.to_owned();
    let key = Zeroizing::new(words.value(&name)?.to_owned());
    let digits = key.strip_prefix("0x").filter(|digits| !digits.is_empty());
    if digits.is_none_or(|digits| !digits.chars().all(|c| c.is_ascii_hexdigit())) {
        return Err(format!("the key of {name} has to be 0x and hexadecimal digits"));
    }
    // The kernel cuts the output of a MAC to this length where the command names none.
    let integrity = Integrity::ALL.into_iter().find(|integrity| integrity.row().kernel == name);
    let right = integrity.map_or(0, |integrity| integrity.row().icv_len as u32 * 8);
    let default = if name == "hmac(sha256)" { 96 } else { right };
    let (field, key_field, bits, right) = match word {
        "aead" => ("aead", "key", words.number(&name)?, 128),
        "enc" => ("encryption", "encryption_key", 0, 0),
        "auth" => ("integrity", "integrity_key", default, right),
        _ => ("integrity", "integrity_key", words.number(&name)?, right),
    };
    // The table says which algorithms there are.
    if bits != right && right != 0 {
        return Err(format!(
            "{name} has an ICV of {bits} bits; only {right} bits can be had: write auth-trunc '{name}' KEY {right}"
        ));
    }
    if name.contains(['"', '\\']) || name.contains(char::is_control) {
        return Err(format!("{name:?} is no algorithm"));
    }
    fields.push((field, Zeroizing::new(name)));
    fields.push((key_field, key));
    Ok(())
}

#[cfg(test)]
mod tests;
