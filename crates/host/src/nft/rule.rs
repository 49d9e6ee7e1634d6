//! Rules: what is done with a packet that meets the conditions.

#![forbid(unsafe_code)]

use std::fmt;

/// A statement is one thing that a rule does with a packet. A verdict is the last statement of its rule.
#[derive(Clone, Copy, Debug)]
pub enum Statement<'a> {
    /// Sets these bits of its mark.
    SetMarkBits(u32),
    /// Clears these bits of its mark.
    ClearMarkBits(u32),
    /// Counts it with the counter of this name.
    Count(&'a str),
    /// Goes on with so many packets in a second only.
    Limit {
        /// Packets in a second.
        rate: u32,
        /// Packets that may come at once; `None`: nftables decides.
        burst: Option<u32>,
    },
    /// Logs it to a [group](super::Log).
    Log {
        /// The group.
        group: u16,
        /// Octets of the packet that are told.
        octets: u32,
    },
    /// Verdict: it passes this chain's hook.
    Accept,
    /// Verdict: it is dropped.
    Drop,
    /// Verdict: the chain of this name looks at it, and then the next rule.
    Jump(&'a str),
    /// Verdict: the chain of this name looks at it, and no further rule of this one.
    Goto(&'a str),
}

impl fmt::Display for Statement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SetMarkBits(bits) => write!(f, "meta mark set meta mark or {bits:#x}"),
            Self::ClearMarkBits(bits) => write!(f, "meta mark set meta mark and {:#x}", !bits),
            Self::Count(counter) => write!(f, "counter name {counter}"),
            Self::Limit { rate, burst: None } => write!(f, "limit rate {rate}/second"),
            Self::Limit { rate, burst: Some(burst) } => {
                write!(f, "limit rate {rate}/second burst {burst} packets")
            }
            // Each packet is told at once.
            Self::Log { group, octets } => {
                write!(f, "log group {group} snaplen {octets} queue-threshold 1")
            }
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

/// A rule of a chain: conditions, and what is done with the packets that meet them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a rule is in force once it is a chain's"]
pub struct Rule(String);

impl Rule {
    /// Does this with every packet.
    pub fn always(statement: Statement<'_>) -> Self {
        Self(statement.to_string())
    }

    /// `conditions`: as nftables reads them.
    pub(super) fn with(conditions: String, statement: Statement<'_>) -> Self {
        match conditions.is_empty() {
            true => Self::always(statement),
            false => Self(conditions).then(statement),
        }
    }

    /// Does this, too.
    pub fn then(self, statement: Statement<'_>) -> Self {
        let Self(text) = self;
        Self(format!("{text} {statement}"))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
