//! Routing rules that lead some traffic past the rule for the tunnels.

use super::{
    Family, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Netlink, PROTOCOL, Prefix, gone_is_fine, number,
};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use policy::PortRange;
use std::fmt;
use std::io;

/// "Packets from here to there skip the rule that leads to the device."
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// That of the rule; the one skipped has the next, and the one after it is where the search goes on.
    pub priority: u32,
    /// The sources of the packets it is for.
    pub from: Prefix,
    /// Their destinations.
    pub to: Prefix,
    /// 0: any.
    pub protocol: u8,
    /// Source and destination.
    pub ports: [PortRange; 2],
}

impl Exception {
    /// The family of its packets.
    pub fn family(&self) -> Family {
        Family::of(self.to.address)
    }

    fn message(&self) -> RuleMessage {
        let mut message = of_ours(self.family(), self.priority, RuleAction::Goto);
        message.header.src_len = self.from.length;
        message.header.dst_len = self.to.length;
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Goto(landing(self.priority)));
        if self.from.length > 0 {
            attributes.push(RuleAttribute::Source(self.from.address));
        }
        if self.to.length > 0 {
            attributes.push(RuleAttribute::Destination(self.to.address));
        }
        if self.protocol != 0 {
            attributes.push(RuleAttribute::IpProtocol(i32::from(self.protocol).into()));
        }
        let [source, destination] = self.ports;
        if source != PortRange::ANY {
            attributes.push(RuleAttribute::SourcePortRange(rule_ports(source)));
        }
        if destination != PortRange::ANY {
            attributes.push(RuleAttribute::DestinationPortRange(rule_ports(destination)));
        }
        message
    }
}

fn rule_ports(ports: PortRange) -> RulePortRange {
    // No packet comes from or goes to port 0, and the kernel takes no range with it.
    RulePortRange { start: ports.start().max(1), end: ports.end().max(1) }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.from, self.to)
    }
}

impl Netlink {
    /// Makes the place behind the skipped rule, where the search goes on.
    pub fn add_landing(&mut self, family: Family, priority: u32) -> io::Result<()> {
        self.add(of_ours(family, landing(priority), RuleAction::Nop))
    }

    /// Adds an exception.
    pub fn add_exception(&mut self, exception: &Exception) -> io::Result<()> {
        self.add(exception.message())
    }

    /// Deletes an exception; one that does not exist is no error.
    pub fn delete_exception(&mut self, exception: &Exception) -> io::Result<()> {
        gone_is_fine(self.order(Message::DelRule(exception.message()), 0))
    }

    /// Removes every exception of this priority, and where the search goes on.
    pub fn remove_exceptions(&mut self, family: Family, priority: u32) -> io::Result<()> {
        let mut query = RuleMessage::default();
        query.header.family = number(family);
        for answer in self.exchange(Message::GetRule(query), NLM_F_DUMP)? {
            let Message::NewRule(rule) = answer else { continue };
            let of_these = [priority, landing(priority)]
                .into_iter()
                .any(|own| rule.attributes.contains(&RuleAttribute::Priority(own)));
            if of_these && rule.attributes.contains(&RuleAttribute::Protocol(PROTOCOL)) {
                gone_is_fine(self.order(Message::DelRule(rule), 0))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, rule: RuleMessage) -> io::Result<()> {
        match self.order(Message::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            other => other,
        }
    }
}

fn landing(priority: u32) -> u32 {
    priority.saturating_add(2)
}

fn of_ours(family: Family, priority: u32, action: RuleAction) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = number(family);
    message.header.action = action;
    message.attributes = vec![RuleAttribute::Priority(priority), RuleAttribute::Protocol(PROTOCOL)];
    message
}
