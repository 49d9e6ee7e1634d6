//! Tables with their counters and chains.

#![forbid(unsafe_code)]

use super::rule::Rule;
use std::fmt;

/// A place in the kernel's path of a packet where a chain looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// It has arrived, and is not routed yet.
    Prerouting,
    /// It is for this host.
    Input,
    /// It is for another host, and has come by a device.
    Forward,
    /// This host has made it.
    Output,
    /// It is routed, and about to leave.
    Postrouting,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        })
    }
}

/// A chain of rules.
#[derive(Clone, Debug)]
#[must_use = "a chain is in force once it is a table's"]
pub struct Chain {
    name: String,
    hook: Option<(Hook, i32)>,
    rules: Vec<Rule>,
}

impl Chain {
    /// A chain that others jump or go to.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), hook: None, rules: Vec::new() }
    }

    /// A chain to which the kernel shows packets. Chains of a lower priority come first. A packet for which no rule has
    /// a verdict passes.
    pub fn at(hook: Hook, priority: i32, name: &str) -> Self {
        Self { hook: Some((hook, priority)), ..Self::new(name) }
    }

    /// Adds rules behind those that it has.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  chain {} {{", self.name)?;
        if let Some((hook, priority)) = self.hook {
            writeln!(f, "    type filter hook {hook} priority {priority}; policy accept;")?;
        }
        for rule in &self.rules {
            writeln!(f, "    {rule}")?;
        }
        f.write_str("  }\n")
    }
}

/// A table of the family inet, which has packets of IPv4 and IPv6.
#[derive(Clone, Debug)]
#[must_use = "a table is in force once a script has declared it"]
pub struct Table {
    name: String,
    is_owned: bool,
    content: String,
}

impl Table {
    /// A table without content.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), is_owned: false, content: String::new() }
    }

    /// A table that belongs to the [process](super::Owner) which declares it.
    pub fn owned(name: &str) -> Self {
        Self { is_owned: true, ..Self::new(name) }
    }

    /// Adds a counter that goes on from here.
    pub fn counter(self, name: &str, packets: u64, bytes: u64) -> Self {
        self.with(format_args!("  counter {name} {{ packets {packets} bytes {bytes} }}\n"))
    }

    /// Adds an empty line, for people who read the script.
    pub fn empty_line(self) -> Self {
        self.with("\n")
    }

    /// Adds a chain. Rules may name chains that come later.
    pub fn chain(self, chain: &Chain) -> Self {
        self.with(chain)
    }

    fn with(mut self, part: impl fmt::Display) -> Self {
        self.content += &part.to_string();
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_owned(&self) -> bool {
        self.is_owned
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.is_owned { "  flags owner\n" } else { "" };
        write!(f, "table inet {} {{\n{flags}{}}}\n", self.name, self.content)
    }
}
