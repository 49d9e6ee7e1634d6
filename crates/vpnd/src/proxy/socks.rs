//! SOCKS version 5 (RFC 1928): CONNECT without authentication.

use super::{Client, Outcome};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vpn::net::ConnectError;

/// The first octet of every message.
pub const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
/// The address in the answer to a request that failed.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The field REP of an answer (RFC 1928 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Succeeded = 0,
    Failure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    TtlExpired = 6,
    NoSuchCommand = 7,
    NoSuchAddressType = 8,
}

/// Reads the address and port that a client wants to be connected to. A request that cannot be served is answered.
///
/// # Errors
/// If it cannot be served, or the client goes.
pub async fn wanted(client: &mut impl Client) -> io::Result<String> {
    agree(client).await?;
    let [version, command, _, kind] = octets(client).await?;
    if version != VERSION {
        return refuse(client, Answer::Failure, "a request of another version").await;
    }
    // The rest is read first: closing a connection with unread octets would overtake the answer.
    let host = match kind {
        IPV4 => IpAddr::from(octets::<4>(client).await?).to_string(),
        IPV6 => format!("[{}]", Ipv6Addr::from(octets::<16>(client).await?)),
        NAME => name(client).await?,
        _ => return refuse(client, Answer::NoSuchAddressType, "an unknown type of address").await,
    };
    let port = client.read_u16().await?;
    if command != CONNECT {
        return refuse(client, Answer::NoSuchCommand, "another command than CONNECT").await;
    }
    if host.is_empty() {
        return refuse(client, Answer::Failure, "a name that is no text").await;
    }
    Ok(format!("{host}:{port}"))
}

/// Agrees on no authentication, which is all that there is.
async fn agree(client: &mut impl Client) -> io::Result<()> {
    let [version, count] = octets(client).await?;
    let mut methods = vec![0; count.into()];
    client.read_exact(&mut methods).await?;
    if version == VERSION && methods.contains(&NO_AUTHENTICATION) {
        return client.write_all(&[VERSION, NO_AUTHENTICATION]).await;
    }
    client.write_all(&[VERSION, NO_METHOD]).await?;
    Err(refusal("only methods of authentication that this proxy has not"))
}

/// A name; empty if it is no text, or has characters that no name has and that a log or terminal obeys.
async fn name(client: &mut impl Client) -> io::Result<String> {
    let mut name = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut name).await?;
    let name = String::from_utf8(name).unwrap_or_default();
    if name.chars().any(char::is_control) {
        return Ok(String::new());
    }
    // An address of IPv6 in the place of a name.
    Ok(if name.parse::<Ipv6Addr>().is_ok() { format!("[{name}]") } else { name })
}

async fn octets<const N: usize>(client: &mut impl Client) -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    client.read_exact(&mut octets).await?;
    Ok(octets)
}

async fn refuse<T>(client: &mut impl Client, answer: Answer, what: &str) -> io::Result<T> {
    client.write_all(&message(answer, NOWHERE)).await?;
    Err(refusal(what))
}

fn refusal(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a client of SOCKS sent {what}"))
}

/// Tells the client how its connection came out.
///
/// # Errors
/// If the client has gone.
pub async fn tell(client: &mut impl Client, outcome: &Outcome) -> io::Result<()> {
    let message = match outcome {
        Ok(stream) => message(Answer::Succeeded, stream.local_addr()),
        Err(error) => message(answer_of(error), NOWHERE),
    };
    client.write_all(&message).await
}

fn answer_of(error: &ConnectError) -> Answer {
    match error {
        ConnectError::NoTunnel { .. } | ConnectError::NoAddress { .. } => Answer::NotAllowed,
        ConnectError::Tunnel { .. } => Answer::NetworkUnreachable,
        ConnectError::Unreachable { .. } | ConnectError::Name { .. } => Answer::HostUnreachable,
        ConnectError::Refused { .. } => Answer::Refused,
        ConnectError::TimedOut { .. } => Answer::TtlExpired,
        _ => Answer::Failure,
    }
}

fn message(answer: Answer, bound: SocketAddr) -> Vec<u8> {
    let mut message = vec![VERSION, answer as u8, 0];
    match bound.ip() {
        IpAddr::V4(address) => {
            message.push(IPV4);
            message.extend(address.octets());
        }
        IpAddr::V6(address) => {
            message.push(IPV6);
            message.extend(address.octets());
        }
    }
    message.extend(bound.port().to_be_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    const GREETING: [u8; 3] = [5, 1, 0];

    /// The destination that is read of a client that sends this, and the answer to the client.
    async fn dialogue(sent: &[u8]) -> (Option<String>, Vec<u8>) {
        let (mut client, mut server) = duplex(4096);
        client.write_all(sent).await.expect("there is room");
        client.shutdown().await.expect("it is open");
        let wanted = wanted(&mut server).await.ok();
        drop(server);
        let mut answered = Vec::new();
        client.read_to_end(&mut answered).await.expect("read");
        (wanted, answered)
    }

    async fn request(request: &[u8]) -> (Option<String>, Vec<u8>) {
        let (wanted, answered) = dialogue(&[&GREETING, request].concat()).await;
        (wanted, answered.strip_prefix(&[5, 0]).expect("no authentication").to_vec())
    }

    #[tokio::test]
    async fn requests_of_every_type_of_address_are_read() {
        for (octets, wanted) in [
            (&[5, 1, 0, 1, 10, 2, 0, 7, 1, 187][..], "10.2.0.7:443"),
            (&[5, 1, 0, 3, 2, b'd', b'b', 0, 80], "db:80"),
            (&[5, 1, 0, 3, 3, b':', b':', b'1', 0, 80], "[::1]:80"),
            (
                &[5, 1, 0, 4, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 80],
                "[fd00::7]:80",
            ),
        ] {
            assert_eq!(request(octets).await, (Some(wanted.to_owned()), vec![]), "{octets:?}");
        }
    }

    #[tokio::test]
    async fn a_refused_socks_request_gets_a_reply_code() {
        let address = [1, 10, 2, 0, 7, 0, 80];
        for (command, tail, answer) in [
            (2, &address[..], 7),
            (3, &address, 7),
            (1, &[9], 8),
            (1, &[3, 1, 0xff, 0, 80], 1),
            (1, b"\x03\x03a\nb\0\x50", 1),
        ] {
            let octets = [&[5, command, 0], tail].concat();
            let told = [&[5, answer, 0, 1][..], &[0; 6]].concat();
            assert_eq!(request(&octets).await, (None, told), "{octets:?}");
        }
        let only_passwords = dialogue(&[5, 1, 2]).await;
        assert_eq!(only_passwords, (None, vec![5, 0xff]));
        let older = dialogue(&[4, 1, 0]).await;
        assert_eq!(older, (None, vec![5, 0xff]));
        let cut = dialogue(&[5, 1, 0, 5, 1, 0]).await;
        assert_eq!(cut, (None, vec![5, 0]));
    }

    #[tokio::test]
    async fn failures_have_the_numbers_of_the_rfc() {
        let remote = NOWHERE;
        for (error, answer) in [
            (ConnectError::NoTunnel { remote, selectors: String::new() }, 2),
            (ConnectError::Refused { remote }, 5),
            (ConnectError::Unreachable { remote }, 4),
            (ConnectError::TimedOut { remote }, 6),
            (ConnectError::Stopped, 1),
        ] {
            let (mut client, mut server) = duplex(64);
            tell(&mut server, &Err(error)).await.expect("there is room");
            drop(server);
            let mut told = Vec::new();
            client.read_to_end(&mut told).await.expect("read");
            assert_eq!(told, [5, answer, 0, 1, 0, 0, 0, 0, 0, 0]);
        }
    }
}
