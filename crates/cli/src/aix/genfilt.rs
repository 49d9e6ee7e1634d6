//! `genfilt`: the rule that its flags describe, in the words of vpnd.toml. Nothing is changed: rules belong to that
//! file.

use super::{Flags, Trouble};
use std::fmt::Write as _;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const USAGE: &str = "\
Usage: genfilt -v 4|6 [-a D|P] -s source -m mask [-d destination -M mask] [-c protocol]
               [-o operation -p port] [-O operation -P port] [-w I|O|B] [-D description]";

/// Refuses, with the rule to write instead.
pub(super) fn refuse(words: &[String], _out: &mut dyn Write) -> Result<(), Trouble> {
    let flags = Flags::read(words, "v:n:a:s:m:d:M:g:c:o:p:O:P:r:w:l:f:t:i:D:e:x:X:C:", USAGE)?;
    let rule = rule(&flags).map_err(|why| Trouble::usage(why, USAGE))?;
    let mut text = String::from(
        "nothing was changed. Add this to /etc/vpnd/vpnd.toml (docs/operate/filter.md), then: vpnctl reload\n\n",
    );
    text.push_str(&rule);
    for (letter, value) in lost(&flags) {
        let _ = write!(text, "\n-{letter} {value} has no counterpart");
    }
    Err(Trouble::new(text.trim_end()))
}

/// The rule in TOML.
fn rule(flags: &Flags) -> Result<String, String> {
    let action = match flags.value('a').unwrap_or("D") {
        "P" | "p" => "bypass",
        "D" | "d" => "discard",
        other => return Err(format!("-a {other}: a rule of vpnd is P (bypass) or D (discard)")),
    };
    let direction = match flags.value('w').unwrap_or("B") {
        "I" | "i" => "in",
        "O" | "o" => "out",
        "B" | "b" => "both",
        other => return Err(format!("-w is I, O or B, not {other}")),
    };
    let source = addresses(flags.value('s'), flags.value('m'))?;
    let destination = addresses(flags.value('d'), flags.value('M'))?;
    let source_port = ports(flags.value('o'), flags.value('p'))?;
    let destination_port = ports(flags.value('O'), flags.value('P'))?;
    // vpnd has this side's view.
    let (local, remote, local_port, remote_port) = match direction {
        "in" => (destination, source, destination_port, source_port),
        _ => (source, destination, source_port, destination_port),
    };
    let mut text = String::from("[[filter.rule]]\n");
    let settings = [
        ("name", flags.value('D').map(quoted)),
        ("action", Some(quoted(action))),
        ("direction", Some(quoted(direction)).filter(|_| direction != "both")),
        ("local", local.map(|a| quoted(&a))),
        ("remote", remote.map(|a| quoted(&a))),
        ("protocol", protocol(flags.value('c'))),
        ("local_port", local_port),
        ("remote_port", remote_port),
    ];
    for (name, value) in settings {
        let Some(value) = value else { continue };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    Ok(text)
}

/// A text in TOML.
fn quoted(text: &str) -> String {
    let safe: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", safe.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A prefix; `None` is any address.
fn addresses(address: Option<&str>, mask: Option<&str>) -> Result<Option<String>, String> {
    let Some(address) = address else { return Ok(None) };
    let parsed: IpAddr = address.parse().map_err(|_| format!("{address} is no address"))?;
    let bits = if parsed.is_ipv4() { 32 } else { 128 };
    let length = match mask {
        None => bits,
        Some(mask) => prefix(mask, bits).ok_or_else(|| format!("{mask} is no mask of a subnet"))?,
    };
    if length == 0 {
        return Ok(None);
    }
    let subnet = policy::AddressRange::subnet(parsed, length);
    Ok(subnet.map(|subnet| subnet.to_string()))
}

/// The length of a mask, which is written as an address or as that length.
fn prefix(mask: &str, bits: u32) -> Option<u32> {
    let (ones, length) = match mask.parse::<IpAddr>() {
        Ok(IpAddr::V4(mask)) => {
            let length = Ipv4Addr::to_bits(mask).leading_ones();
            (Ipv4Addr::to_bits(mask).count_ones(), length)
        }
        Ok(IpAddr::V6(mask)) => {
            let length = Ipv6Addr::to_bits(mask).leading_ones();
            (Ipv6Addr::to_bits(mask).count_ones(), length)
        }
        Err(_) => {
            let length = mask.parse().ok()?;
            (length, length)
        }
    };
    (ones == length && length <= bits).then_some(length)
}

fn protocol(name: Option<&str>) -> Option<String> {
    let name = name?.split('/').next().unwrap_or_default().to_ascii_lowercase();
    match name.as_str() {
        "all" | "any" | "0" => None,
        number if number.parse::<u8>().is_ok() => Some(number.to_owned()),
        name => Some(quoted(name)),
    }
}

fn ports(operation: Option<&str>, port: Option<&str>) -> Result<Option<String>, String> {
    let operation = operation.unwrap_or("any");
    let port = port.unwrap_or("0");
    let (from, to) = match operation {
        "any" => return Ok(None),
        "eq" => return Ok(Some(port_number(port)?.to_string())),
        "ge" => (port_number(port)?, u16::MAX),
        "gt" => (port_number(port)?.saturating_add(1), u16::MAX),
        "le" => (0, port_number(port)?),
        "lt" => (0, port_number(port)?.saturating_sub(1)),
        other => {
            return Err(format!("the operation {other}: vpnd has ports and ranges of ports"));
        }
    };
    Ok(Some(format!("\"{from}-{to}\"")))
}

fn port_number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text} is no port"))
}

/// Flags that ask for something that a rule of vpnd does not have.
fn lost(flags: &Flags) -> Vec<(char, &str)> {
    let plain: [(char, &[&str]); 8] = [
        ('g', &["N", "n"]),
        ('r', &["B", "b"]),
        ('l', &["N", "n"]),
        ('f', &["Y", "y"]),
        ('t', &["0"]),
        ('i', &["all"]),
        ('e', &["0"]),
        ('x', &["none"]),
    ];
    let asked = plain.iter().filter_map(|(letter, same)| {
        let value = flags.value(*letter)?;
        (!same.contains(&value)).then_some((*letter, value))
    });
    asked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        refuse(&words, &mut Vec::new()).expect_err("nothing is changed").message
    }

    #[test]
    fn flags_without_a_rule_are_named() {
        for (line, why) in [
            ("-v 4 -a I -s 10.0.0.1 -m 255.255.255.255", "-a I"),
            ("-v 4 -s host -m 255.255.255.255", "host is no address"),
            ("-v 4 -s 10.0.0.1 -m 255.0.255.0", "255.0.255.0 is no mask"),
            ("-v 4 -s 10.0.0.1 -m 255.255.255.255 -o neq -p 1", "the operation neq"),
            ("-v 4 -s 10.0.0.1 -m 255.255.255.255 -w X", "-w is I, O or B"),
        ] {
            assert!(refused(line).contains(why), "{line}");
        }
    }
}
