//! The place of a collector.

use std::fmt;
use std::str::FromStr;

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The place to which spans go: a URL of plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address; an IPv6 address without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The path on the server.
    pub path: String,
}

/// A text that is no place of a collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// It is encrypted.
    #[error(
        "{0:?} is https, which vpnd does not speak; send to a collector on this host, \"http://127.0.0.1:4318/v1/traces\", and \
         let that one send by https"
    )]
    Encrypted(String),
    /// It is no URL of this kind.
    #[error(
        "{0:?} is no http:// URL of a collector, as in \"http://127.0.0.1:4318/v1/traces\"; a name or an address comes first, \
         without user and password"
    )]
    NoUrl(String),
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if has_scheme(text, "https://") {
            return Err(BadEndpoint::Encrypted(text.to_owned()));
        }
        parsed(text).ok_or_else(|| BadEndpoint::NoUrl(text.to_owned()))
    }
}

fn has_scheme(text: &str, scheme: &str) -> bool {
    text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

fn parsed(text: &str) -> Option<Endpoint> {
    let rest = text.get(7..).filter(|_| has_scheme(text, "http://"))?;
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/v1/traces"),
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse::<u16>().ok().filter(|port| *port != 0)?,
        None if port.is_empty() => PORT,
        None => return None,
    };
    let is_name =
        host.bytes().all(|octet| octet.is_ascii_alphanumeric() || b".:-_%".contains(&octet));
    let is_path = path.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'#');
    (!host.is_empty() && is_name && is_path).then(|| Endpoint {
        host: host.to_owned(),
        port,
        path: path.to_owned(),
    })
}

impl Endpoint {
    /// Host and port, as a header has them.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_host_port_and_path() {
        for (text, shown) in [
            ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
            ("http://collector.example", "http://collector.example:4318/v1/traces"),
            ("HTTP://[2001:db8::1]:80/in?a=b", "http://[2001:db8::1]:80/in?a=b"),
            ("http://[::1]", "http://[::1]:4318/v1/traces"),
        ] {
            assert_eq!(text.parse::<Endpoint>().expect(text).to_string(), shown);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let parse = |text: &str| text.parse::<Endpoint>().expect_err(text);
        assert!(matches!(parse("https://collector.example/"), BadEndpoint::Encrypted(_)));
        for text in [
            "",
            "127.0.0.1:4318",
            "http://",
            "http://:4318/",
            "http://a:0/",
            "http://a:port/",
            "http://[::1",
            "http://[::1]4318/",
            "http://user:secret@host/",
            "http://host name/",
            "http://host/a b",
            "ftp://host/",
            "htt",
        ] {
            assert!(matches!(parse(text), BadEndpoint::NoUrl(_)), "{text}");
        }
    }
}
