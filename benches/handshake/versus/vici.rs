//! As much of strongSwan's control protocol (vici) as starting tunnels and counting them takes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const COMMAND: u8 = 0;
const SECTION_START: u8 = 1;
const SECTION_END: u8 = 2;
const KEY_VALUE: u8 = 3;

/// A connection to charon.
pub struct Vici(UnixStream);

impl Vici {
    /// Connects to the socket `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        UnixStream::connect(path).map(Self)
    }

    /// Starts a child without waiting for it.
    pub fn initiate(&mut self, child: &str) -> io::Result<()> {
        let answer = self.ask("initiate", &[("child", child), ("timeout", "-1")])?;
        match value(&answer, "", "success") {
            Some(b"yes") => Ok(()),
            _ => Err(io::Error::other(format!("charon does not initiate {child}"))),
        }
    }

    /// Number of established IKE SAs.
    pub fn established(&mut self) -> io::Result<usize> {
        let answer = self.ask("stats", &[])?;
        let number = |key| {
            let text = value(&answer, "ikesas", key).and_then(|v| std::str::from_utf8(v).ok());
            text.and_then(|t| t.parse::<usize>().ok())
                .ok_or_else(|| io::Error::other("charon's statistics have no number of IKE SAs"))
        };
        Ok(number("total")?.saturating_sub(number("half-open")?))
    }

    fn ask(&mut self, command: &str, values: &[(&str, &str)]) -> io::Result<Vec<u8>> {
        let short = |text: &str| u8::try_from(text.len()).map_err(io::Error::other);
        let mut packet = vec![COMMAND, short(command)?];
        packet.extend(command.as_bytes());
        for (key, value) in values {
            packet.extend([KEY_VALUE, short(key)?]);
            packet.extend(key.as_bytes());
            packet.extend([0, short(value)?]);
            packet.extend(value.as_bytes());
        }
        let length = u32::try_from(packet.len()).map_err(io::Error::other)?;
        self.0.write_all(&[&length.to_be_bytes(), packet.as_slice()].concat())?;
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut answer)?;
        // The first octet says what it is; an answer to an unknown command has nothing in it.
        Ok(answer.split_off(answer.len().min(1)))
    }
}

/// A value of a message, in the innermost section of this name.
fn value<'a>(mut message: &'a [u8], section: &str, key: &str) -> Option<&'a [u8]> {
    fn take<'a>(message: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = message.split_at_checked(length)?;
        *message = rest;
        Some(taken)
    }
    let mut sections: Vec<&[u8]> = vec![b""];
    loop {
        match take(&mut message, 1)?[0] {
            SECTION_START => {
                let length = take(&mut message, 1)?[0];
                sections.push(take(&mut message, length.into())?);
            }
            SECTION_END => _ = sections.pop(),
            KEY_VALUE => {
                let length = take(&mut message, 1)?[0];
                let name = take(&mut message, length.into())?;
                let length = take(&mut message, 2)?;
                let found =
                    take(&mut message, usize::from(length[0]) << 8 | usize::from(length[1]))?;
                if sections.last() == Some(&section.as_bytes()) && name == key.as_bytes() {
                    return Some(found);
                }
            }
            // Lists come in no answer that is asked for here.
            _ => return None,
        }
    }
}
