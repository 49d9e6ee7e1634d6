//! The packets that travelled, as a ladder that a person can read.

use std::fmt;
use std::time::Duration;

/// Exchange types, read independently of the code under test (RFC 7296 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exchange {
    /// IKE_SA_INIT.
    SaInit,
    /// IKE_AUTH.
    Auth,
    /// CREATE_CHILD_SA.
    CreateChild,
    /// INFORMATIONAL.
    Informational,
    /// Any other number.
    Other(u8),
}

/// The header fields by which a scenario names an IKE message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// Exchange type.
    pub exchange: Exchange,
    /// R flag.
    pub response: bool,
    /// I flag: sent by the IKE SA's original initiator.
    pub from_initiator: bool,
    /// Message ID.
    pub message_id: u32,
    /// SPI of the original initiator.
    pub initiator_spi: u64,
    /// SPI of the original responder.
    pub responder_spi: u64,
    /// Octets of the message.
    pub len: usize,
}

impl Label {
    /// Reads an IKE header; `None` if there are not even its 28 octets.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let (initiator_spi, rest) = octets.split_first_chunk()?;
        let (responder_spi, rest) = rest.split_first_chunk()?;
        let (&[_, _, exchange, flags], rest) = rest.split_first_chunk()?;
        let (message_id, rest) = rest.split_first_chunk()?;
        let (_, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            exchange: match exchange {
                34 => Exchange::SaInit,
                35 => Exchange::Auth,
                36 => Exchange::CreateChild,
                37 => Exchange::Informational,
                other => Exchange::Other(other),
            },
            response: flags & 0x20 != 0,
            from_initiator: flags & 0x08 != 0,
            message_id: u32::from_be_bytes(*message_id),
            initiator_spi: u64::from_be_bytes(*initiator_spi),
            responder_spi: u64::from_be_bytes(*responder_spi),
            len: octets.len(),
        })
    }

    /// Whether it is a request of that exchange.
    pub fn is_request(&self, exchange: Exchange) -> bool {
        self.exchange == exchange && !self.response
    }

    /// Whether it is a response of that exchange.
    pub fn is_response(&self, exchange: Exchange) -> bool {
        self.exchange == exchange && self.response
    }
}

/// The subject of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An IKE message.
    Ike(Label),
    /// A datagram on an IKE port without an IKE header.
    Junk(usize),
    /// A NAT keepalive.
    Keepalive,
    /// An ESP packet with its SPI.
    Esp(u32),
}

/// The fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Arrives after this time.
    Delivered(Duration),
    /// A second copy arrives after this time.
    Repeated(Duration),
    /// Lost by the link.
    Lost,
    /// Taken off the wire by the scenario.
    Dropped,
    /// Kept back by the scenario.
    Held,
    /// Let go by the scenario; arrives after this time.
    Released(Duration),
    /// Put on the wire by the scenario.
    Injected,
    /// Did not arrive, for a reason met on the way.
    Undeliverable(&'static str),
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A message and its fate.
    Message {
        /// Virtual time.
        at: Duration,
        /// Sender.
        from: String,
        /// Receiver.
        to: String,
        /// The message.
        subject: Subject,
        /// Its fate.
        fate: Fate,
    },
    /// A command, an event, or something done to the world.
    Note {
        /// Virtual time.
        at: Duration,
        /// The host.
        host: String,
        /// Its text.
        text: String,
    },
}

/// Everything that happened, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    rows: Vec<Row>,
}

impl Ladder {
    /// Appends a row.
    pub fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// The rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// IKE messages that a host put on the wire, whatever became of them; second copies made by the link and messages
    /// released by the scenario are not counted again.
    pub fn sent_by<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a Label> {
        self.rows.iter().filter_map(move |row| match row {
            Row::Message { from, subject: Subject::Ike(label), fate, .. }
                if from == host
                    && !matches!(
                        fate,
                        Fate::Repeated(_)
                            | Fate::Released(_)
                            | Fate::Injected
                            | Fate::Undeliverable(_)
                    ) =>
            {
                Some(label)
            }
            _ => None,
        })
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaInit => f.pad("IKE_SA_INIT"),
            Self::Auth => f.pad("IKE_AUTH"),
            Self::CreateChild => f.pad("CREATE_CHILD_SA"),
            Self::Informational => f.pad("INFORMATIONAL"),
            Self::Other(number) => write!(f, "exchange {number}"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ike(label) => write!(
                f,
                "{:15} {:8} {:>3}  {:04x}:{:04x} {:>5} octets",
                label.exchange,
                if label.response { "response" } else { "request" },
                label.message_id,
                label.initiator_spi >> 48,
                label.responder_spi >> 48,
                label.len
            ),
            Self::Junk(len) => write!(f, "{len} octets that are not IKE"),
            Self::Keepalive => f.write_str("NAT keepalive"),
            Self::Esp(spi) => write!(f, "ESP {spi:08x}"),
        }
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered(after) => write!(f, "+{:.3} s", after.as_secs_f64()),
            Self::Repeated(after) => write!(f, "+{:.3} s, a second copy", after.as_secs_f64()),
            Self::Lost => f.write_str("LOST"),
            Self::Dropped => f.write_str("DROPPED by the scenario"),
            Self::Held => f.write_str("HELD"),
            Self::Released(after) => write!(f, "+{:.3} s, RELEASED", after.as_secs_f64()),
            Self::Injected => f.write_str("INJECTED by the scenario"),
            Self::Undeliverable(why) => write!(f, "UNDELIVERABLE: {why}"),
        }
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            match row {
                Row::Message { at, from, to, subject, fate } => {
                    let at = at.as_secs_f64();
                    writeln!(f, "{at:>10.3}  {from:>6} → {to:<6} {subject}  {fate}")?;
                }
                Row::Note { at, host, text } => {
                    writeln!(f, "{:>10.3}  {host:>6} : {text}", at.as_secs_f64())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(exchange: u8, flags: u8, message_id: u32) -> Vec<u8> {
        let mut octets = vec![0x11; 8];
        octets.extend([0x22; 8]);
        octets.extend([0, 0x20, exchange, flags]);
        octets.extend(message_id.to_be_bytes());
        octets.extend(30u32.to_be_bytes());
        octets.extend([0, 0]);
        octets
    }

    #[test]
    fn reads_a_header() {
        let label = Label::read(&message(36, 0x28, 7)).expect("28 octets and more");
        assert!(label.is_response(Exchange::CreateChild));
        assert!(!label.is_request(Exchange::CreateChild));
        assert!(label.from_initiator);
        assert_eq!((label.message_id, label.len), (7, 30));
        assert_eq!(label.initiator_spi, 0x1111_1111_1111_1111);
        assert_eq!(label.responder_spi, 0x2222_2222_2222_2222);
        assert_eq!(Label::read(&message(36, 0, 7)[..27]), None);
    }

    #[test]
    fn counts_what_a_host_sent_once() {
        let mut ladder = Ladder::default();
        let label = Label::read(&message(34, 0x08, 0)).expect("a header");
        for fate in [Fate::Held, Fate::Released(Duration::ZERO), Fate::Repeated(Duration::ZERO)] {
            ladder.push(Row::Message {
                at: Duration::ZERO,
                from: "left".into(),
                to: "right".into(),
                subject: Subject::Ike(label),
                fate,
            });
        }
        assert_eq!(ladder.sent_by("left").count(), 1);
        assert_eq!(ladder.sent_by("right").count(), 0);
        assert!(
            ladder.to_string().contains("IKE_SA_INIT     request    0  1111:2222    30 octets")
        );
    }
}
