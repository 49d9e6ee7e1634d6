//! Names, asked of servers behind the tunnels (RFC 1035). Nothing is asked elsewhere, and nothing is kept.

use crate::error::ConnectError;
use crate::network::Network;
use crate::tcp::TcpStream;
use smoltcp::wire::{
    DnsFlags, DnsPacket, DnsQueryType, DnsQuestion, DnsRcode, DnsRecord, DnsRecordData,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Questions to the servers before a name is given up.
const ATTEMPTS: usize = 3;
/// Aliases that are followed.
const ALIASES: usize = 8;
/// Octets of a name, and of one of its labels (RFC 1035 §2.3.4).
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;
const HEADER: usize = 12;
const RECURSION_DESIRED: u16 = 0x0100;
const INTERNET: u16 = 1;

/// The content of an answer.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// Addresses, which may be none.
    Addresses(Vec<IpAddr>),
    /// Another name for the same, of which the answer has no address.
    Alias(String),
    /// It is longer than a datagram may be.
    Truncated,
    /// There is no such name.
    NoName,
    /// The server cannot tell.
    Failed,
}

impl Network {
    /// Opens a TCP connection to `address:port` or `name:port`. A name is resolved by the servers behind the tunnels
    /// ([`Settings::name_servers`](crate::Settings::name_servers)), and its addresses are tried one after the other.
    ///
    /// # Errors
    /// As [`connect_to`](Self::connect_to) for the last address, or if the name cannot be resolved.
    ///
    /// # Cancellation
    /// As for [`connect_to`](Self::connect_to).
    pub async fn connect(&self, to: &str) -> Result<TcpStream, ConnectError> {
        if let Ok(address) = to.parse() {
            return self.connect_to(address).await;
        }
        let (name, port) = to
            .rsplit_once(':')
            .and_then(|(name, port)| Some((name, port.parse().ok()?)))
            .ok_or_else(|| refused(to, "it has to be ADDRESS:PORT, [ADDRESS]:PORT or NAME:PORT"))?;
        let mut outcome = Err(refused(name, "it has no address"));
        for address in self.resolve(name).await? {
            outcome = self.connect_to(SocketAddr::new(address, port)).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// The addresses of a name, those of IPv4 first.
    ///
    /// # Errors
    /// If there is no server, no server answers, or the name has no address.
    ///
    /// # Cancellation
    /// The answers are ignored if the future is dropped.
    pub async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ConnectError> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        if self.shared().settings.name_servers.is_empty() {
            let why = "no server behind the tunnels is set that resolves names; set one, or give an address";
            return Err(refused(name, why));
        }
        let (four, six) = tokio::join!(
            self.resolve_as(name, DnsQueryType::A),
            self.resolve_as(name, DnsQueryType::Aaaa)
        );
        let failed = four.as_ref().err().or(six.as_ref().err()).cloned();
        let addresses: Vec<IpAddr> = [four, six].into_iter().flatten().flatten().collect();
        match (addresses.is_empty(), failed) {
            (false, _) => Ok(addresses),
            (true, Some(error)) => Err(error),
            (true, None) => Err(refused(name, "it has no address")),
        }
    }

    async fn resolve_as(
        &self,
        name: &str,
        kind: DnsQueryType,
    ) -> Result<Vec<IpAddr>, ConnectError> {
        let mut asked = name.to_owned();
        for _ in 0..=ALIASES {
            match self.ask(&asked, kind).await? {
                Answer::Addresses(addresses) => return Ok(addresses),
                Answer::Alias(alias) => asked = alias,
                Answer::NoName => return Err(refused(name, "there is no such name")),
                Answer::Truncated | Answer::Failed => {
                    return Err(refused(name, "the server cannot tell"));
                }
            }
        }
        Err(refused(name, "its aliases lead to no end"))
    }

    /// Asks one server after the other.
    async fn ask(&self, name: &str, kind: DnsQueryType) -> Result<Answer, ConnectError> {
        let servers = &self.shared().settings.name_servers;
        let mut last = refused(name, "no server answers");
        for server in servers.iter().cycle().take(ATTEMPTS.max(servers.len())) {
            let id = self.shared().random() as u16;
            let query = query(id, name, kind).ok_or_else(|| {
                refused(name, "this cannot be a name: a label has 1 to 63 octets")
            })?;
            let patience = self.shared().settings.name_timeout;
            match timeout(patience, self.exchange(*server, &query)).await {
                Ok(Ok(Answer::Failed)) => last = refused(name, "the server cannot tell"),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => last = refused(name, &format!("server {server}: {error}")),
                Err(_) => last = refused(name, &format!("server {server} does not answer")),
            }
        }
        Err(last)
    }

    async fn exchange(&self, server: SocketAddr, query: &[u8]) -> io::Result<Answer> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = self.bind_udp(SocketAddr::new(any, 0))?;
        socket.send_to(query, server).await?;
        loop {
            let (octets, from, _) = socket.receive().await?;
            match read(&octets, query).filter(|_| from == server) {
                Some(Answer::Truncated) => return self.exchange_by_tcp(server, query).await,
                Some(answer) => return Ok(answer),
                // Somebody guesses.
                None => {}
            }
        }
    }

    async fn exchange_by_tcp(&self, server: SocketAddr, query: &[u8]) -> io::Result<Answer> {
        let mut stream = self.connect_to(server).await?;
        let message = [&(query.len() as u16).to_be_bytes(), query].concat();
        stream.write_all(&message).await?;
        let mut octets = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut octets).await?;
        read(&octets, query).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

fn refused(name: &str, why: &str) -> ConnectError {
    ConnectError::Name { name: name.to_owned(), why: why.to_owned() }
}

/// A question about one name. `None`: it cannot be a name.
fn query(id: u16, name: &str, kind: DnsQueryType) -> Option<Vec<u8>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut octets = Vec::with_capacity(HEADER + LONGEST_NAME);
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        octets.extend(word.to_be_bytes());
    }
    for label in name.split('.') {
        let fits = (1..=LONGEST_LABEL).contains(&label.len()) && name.len() <= LONGEST_NAME;
        octets.push(fits.then_some(label.len() as u8)?);
        octets.extend(label.as_bytes());
    }
    octets.push(0);
    for word in [u16::from(kind), INTERNET] {
        octets.extend(word.to_be_bytes());
    }
    Some(octets)
}

/// Reads an answer to a question. `None`: it is none.
fn read(octets: &[u8], query: &[u8]) -> Option<Answer> {
    let packet = DnsPacket::new_checked(octets).ok()?;
    let asked = query.get(HEADER..)?;
    let fits = packet.flags().contains(DnsFlags::RESPONSE)
        && octets[..2] == query[..2]
        && packet.question_count() == 1
        && packet.payload().get(..asked.len())?.eq_ignore_ascii_case(asked);
    if !fits {
        return None;
    }
    match packet.rcode() {
        _ if packet.flags().contains(DnsFlags::TRUNCATED) => return Some(Answer::Truncated),
        DnsRcode::NoError => {}
        DnsRcode::NXDomain => return Some(Answer::NoName),
        _ => return Some(Answer::Failed),
    }
    let (mut rest, _) = DnsQuestion::parse(packet.payload()).ok()?;
    let (mut addresses, mut alias) = (Vec::new(), None);
    for _ in 0..packet.answer_record_count() {
        let (after, record) = DnsRecord::parse(rest).ok()?;
        rest = after;
        match record.data {
            DnsRecordData::A(address) => addresses.push(address.into()),
            DnsRecordData::Aaaa(address) => addresses.push(address.into()),
            DnsRecordData::Cname(name) => alias = dotted(&packet, name),
            DnsRecordData::Other(..) => {}
        }
    }
    Some(match alias {
        Some(alias) if addresses.is_empty() => Answer::Alias(alias),
        _ => Answer::Addresses(addresses),
    })
}

fn dotted(packet: &DnsPacket<&[u8]>, name: &[u8]) -> Option<String> {
    let mut text = String::new();
    for label in packet.parse_name(name) {
        let label = std::str::from_utf8(label.ok()?).ok()?;
        if text.len() + label.len() > LONGEST_NAME {
            return None;
        }
        text.extend([label, "."]);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An answer with these records: type and data.
    fn answer(query: &[u8], flags: u16, records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut octets = query.to_vec();
        octets[2..4].copy_from_slice(&flags.to_be_bytes());
        octets[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for (kind, data) in records {
            octets.extend([0xc0, 12]);
            octets.extend(kind.to_be_bytes());
            octets.extend([0, 1, 0, 0, 0, 60]);
            octets.extend((data.len() as u16).to_be_bytes());
            octets.extend(*data);
        }
        octets
    }

    #[test]
    fn answers_are_read() {
        let query = query(7, "db.example", DnsQueryType::A).expect("a name");
        let address: IpAddr = [10, 2, 0, 7].into();
        let alias: &[u8] = &[3, b'd', b'b', b'2', 0xc0, 15];
        let records: [(u16, &[u8]); 2] = [(5, alias), (1, &[10, 2, 0, 7])];
        let with_address = answer(&query, 0x8180, &records);
        assert_eq!(read(&with_address, &query), Some(Answer::Addresses(vec![address])));
        let only_alias = answer(&query, 0x8180, &records[..1]);
        assert_eq!(read(&only_alias, &query), Some(Answer::Alias("db2.example.".into())));
        assert_eq!(read(&answer(&query, 0x8183, &[]), &query), Some(Answer::NoName));
        assert_eq!(read(&answer(&query, 0x8182, &[]), &query), Some(Answer::Failed));
        assert_eq!(read(&answer(&query, 0x8380, &[]), &query), Some(Answer::Truncated));
        let mut other = with_address.clone();
        other[1] ^= 1;
        assert_eq!(read(&other, &query), None, "another identifier");
        assert_eq!(read(&query, &query), None, "a question");
    }

    #[test]
    fn an_invalid_name_is_not_asked_for() {
        for name in ["", ".", "a..b", &"x".repeat(64), &"x.".repeat(130)] {
            assert_eq!(query(1, name, DnsQueryType::A), None, "{name:?}");
        }
        assert!(query(1, "a.b.", DnsQueryType::Aaaa).is_some());
    }

    proptest! {
        #[test]
        fn no_octets_harm(tail in proptest::collection::vec(any::<u8>(), 0..100), count: u16) {
            let query = query(7, "db.example", DnsQueryType::A).expect("a name");
            let mut octets = answer(&query, 0x8180, &[]);
            octets[6..8].copy_from_slice(&count.to_be_bytes());
            octets.extend(tail);
            let _ = read(&octets, &query);
        }
    }
}
