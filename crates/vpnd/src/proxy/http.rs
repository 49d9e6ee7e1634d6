//! The method CONNECT of HTTP/1.1 (RFC 9110 §9.3.6).

use super::{Client, Outcome};
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use vpn::net::ConnectError;

/// Octets of the longest request.
const LONGEST: usize = 16 << 10;
const END: &[u8] = b"\r\n\r\n";

/// The request of a client.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// `HOST:PORT`.
    pub target: String,
    /// Octets behind the request that the client has sent without waiting.
    pub early: Vec<u8>,
}

/// Reads the request of a client. One that cannot be served is answered.
///
/// # Errors
/// If it cannot be served, or the client goes.
pub async fn wanted(client: &mut impl Client) -> io::Result<Wanted> {
    let mut octets = Vec::new();
    let head = loop {
        if let Some(end) = octets.windows(END.len()).position(|four| four == END) {
            break end;
        }
        if octets.len() >= LONGEST {
            return refuse(client, "431 Request Header Fields Too Large", "").await;
        }
        if client.read_buf(&mut octets).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let early = octets.split_off(head + END.len());
    let line = octets.split(|octet| *octet == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).into_owned();
    // A log or a terminal would obey them.
    let wanted = Some(&*line).filter(|line| !line.chars().any(char::is_control));
    match wanted.unwrap_or_default().split(' ').collect::<Vec<_>>()[..] {
        ["CONNECT", target, "HTTP/1.0" | "HTTP/1.1"] if target.contains(':') => {
            Ok(Wanted { target: target.to_owned(), early })
        }
        ["CONNECT", _, "HTTP/1.0" | "HTTP/1.1"] => {
            refuse(client, "400 Bad Request", "CONNECT needs HOST:PORT\n").await
        }
        [_, _, "HTTP/1.0" | "HTTP/1.1"] => {
            let text = "this proxy has the method CONNECT only\n";
            refuse(client, "405 Method Not Allowed\r\nAllow: CONNECT", text).await
        }
        _ => refuse(client, "400 Bad Request", "this is neither SOCKS5 nor HTTP/1.1\n").await,
    }
}

async fn refuse<T>(client: &mut impl Client, status: &str, text: &str) -> io::Result<T> {
    client.write_all(answer(status, text).as_bytes()).await?;
    client.shutdown().await?;
    let what =
        format!("a client of HTTP is refused: {}", status.lines().next().unwrap_or_default());
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

fn answer(status: &str, text: &str) -> String {
    let len = text.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len}\r\n\
         Connection: close\r\n\r\n{text}"
    )
}

/// Tells the client how its connection came out.
///
/// # Errors
/// If the client has gone.
pub async fn tell(client: &mut impl Client, outcome: &Outcome) -> io::Result<()> {
    match outcome {
        Ok(_) => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
        Err(error) => {
            let status = match error {
                ConnectError::NoTunnel { .. } => "403 Forbidden",
                ConnectError::TimedOut { .. } => "504 Gateway Timeout",
                ConnectError::Exhausted { .. } | ConnectError::Stopped => "503 Service Unavailable",
                _ => "502 Bad Gateway",
            };
            let text = diagnosis::line::error(error) + "\n";
            client.write_all(answer(status, &text).as_bytes()).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    async fn dialogue(sent: &[u8]) -> (Option<Wanted>, String) {
        let (mut client, mut server) = duplex(64 << 10);
        client.write_all(sent).await.expect("there is room");
        client.shutdown().await.expect("it is open");
        let wanted = wanted(&mut server).await.ok();
        drop(server);
        let mut answered = String::new();
        client.read_to_string(&mut answered).await.expect("read");
        (wanted, answered)
    }

    #[tokio::test]
    async fn a_request_is_read_and_what_follows_it_is_kept() {
        let sent = b"CONNECT db.example:443 HTTP/1.1\r\nHost: db.example:443\r\n\r\nearly";
        let wanted = Wanted { target: "db.example:443".into(), early: b"early".to_vec() };
        assert_eq!(dialogue(sent).await, (Some(wanted), String::new()));
    }

    #[tokio::test]
    async fn a_refused_http_request_gets_a_status_code() {
        let long = format!("CONNECT a:1 HTTP/1.1\r\nX: {}", "x".repeat(LONGEST));
        for (sent, status) in [
            ("GET http://db.example/ HTTP/1.1\r\n\r\n", "405 "),
            ("CONNECT db.example HTTP/1.1\r\n\r\n", "400 "),
            ("CONNECT a\nb:1 HTTP/1.1\r\n\r\n", "400 "),
            ("nonsense\r\n\r\n", "400 "),
            (long.as_str(), "431 "),
        ] {
            let (wanted, answered) = dialogue(sent.as_bytes()).await;
            assert_eq!(wanted, None);
            assert!(answered.starts_with(&format!("HTTP/1.1 {status}")), "{answered}");
        }
        let (_, answered) = dialogue(b"GET / HTTP/1.1\r\n\r\n").await;
        assert!(answered.contains("\r\nAllow: CONNECT\r\n"), "{answered}");
    }

    #[tokio::test]
    async fn failures_are_told_in_words() {
        let (mut client, mut server) = duplex(4096);
        let remote = "198.51.100.7:80".parse().expect("an address");
        let error =
            ConnectError::NoTunnel { remote, selectors: "the tunnels cover nothing".into() };
        tell(&mut server, &Err(error)).await.expect("there is room");
        drop(server);
        let mut told = String::new();
        client.read_to_string(&mut told).await.expect("read");
        assert!(told.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{told}");
        assert!(told.ends_with("the tunnels cover nothing\n"), "{told}");
    }
}
