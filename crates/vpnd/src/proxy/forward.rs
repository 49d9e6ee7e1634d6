//! Forwarded ports, as `-L` and `-R` name them.

use std::net::IpAddr;
use std::str::FromStr;

/// A port, and the address and port that it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The address of the port, if it was named.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// An address or a name.
    pub host: String,
    /// Its port.
    pub host_port: u16,
}

impl Forward {
    /// The address or name and the port that it leads to.
    pub fn target(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.host_port),
            false => format!("{}:{}", self.host, self.host_port),
        }
    }
}

impl FromStr for Forward {
    type Err = String;

    /// Reads `[ADDRESS:]PORT:HOST:PORT`; addresses of IPv6 stand in brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        const WRONG: &str =
            "it has to be [ADDRESS:]PORT:HOST:PORT, with IPv6 addresses in brackets";
        let parts = parts(text).ok_or(WRONG)?;
        let (address, [port, host, host_port]) = match &parts[..] {
            [port, host, host_port] => (None, [port, host, host_port]),
            [address, port, host, host_port] => (Some(address), [port, host, host_port]),
            _ => return Err(WRONG.to_owned()),
        };
        if host.is_empty() {
            return Err(WRONG.to_owned());
        }
        let [port, host_port] =
            [port, host_port].map(|text| text.parse().ok().filter(|port| *port > 0).ok_or(WRONG));
        Ok(Self {
            address: address.map(|a| a.parse()).transpose().map_err(|_| WRONG)?,
            port: port?,
            host: (*host).to_owned(),
            host_port: host_port?,
        })
    }
}

/// The parts between colons that are not in brackets, without the brackets.
fn parts(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let (part, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']')?,
            None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
        };
        parts.push(part);
        match after.strip_prefix(':') {
            Some(after) => rest = after,
            None if after.is_empty() => return Some(parts),
            None => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read_and_shown() {
        for (text, address, host, shown) in [
            ("80:db:5432", None, "db", "80:db:5432"),
            ("127.0.0.1:80:10.2.0.7:1", Some("127.0.0.1"), "10.2.0.7", "127.0.0.1:80:10.2.0.7:1"),
            ("[::1]:80:[fd00::7]:443", Some("::1"), "fd00::7", "[::1]:80:[fd00::7]:443"),
        ] {
            let forward: Forward = text.parse().expect(text);
            assert_eq!(forward.address, address.map(|a| a.parse().expect("an address")));
            assert_eq!((forward.port, forward.host.as_str()), (80, host));
            assert_eq!(forward.to_string(), shown);
        }
        for text in
            ["", "80", "80:host", "80:host:", "0:host:1", "x:80:host:1", "[::1:80:h:1", "80::1"]
        {
            assert!(text.parse::<Forward>().is_err(), "{text}");
        }
    }
}
