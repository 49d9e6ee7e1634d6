//! Traffic selectors of phase 2.

use super::context::Context;
use super::group::Group;
use super::table::Table;
use crate::validate::rules;
use crate::xml::element::Element;
use crate::xml::schema::is_group_reference;
use crate::{AddressRange, PortRange, Selector};

const ICMP: u64 = 1;
const ICMPV6: u64 = 58;

impl Context<'_> {
    /// One side's traffic of a phase 2 tunnel; several selectors only where a group names the addresses.
    pub fn traffic(&mut self, side: &Element<'_>, groups: &Table<Group>) -> Option<Vec<Selector>> {
        let protocol = match side.attribute("Protocol") {
            None => Some(0),
            Some(_) => self.number(side, "Protocol", 0..=255),
        };
        let ports = self.ports(side, protocol);
        let addresses = self.only(side, None).and_then(|element| match element {
            group if is_group_reference(group.name) => self.addresses_of_group(group, groups),
            element => self.addresses(element).map(|range| vec![range]),
        });
        let (protocol, ports) = (u8::try_from(protocol?).ok()?, ports?);
        Some(
            addresses?
                .into_iter()
                .map(|addresses| Selector { protocol, addresses, ports })
                .collect(),
        )
    }

    fn addresses_of_group(
        &mut self,
        element: &Element<'_>,
        groups: &Table<Group>,
    ) -> Option<Vec<AddressRange>> {
        let group = self.group_of(element, groups)??;
        match group.addresses() {
            Ok(addresses) => Some(addresses),
            Err(member) => {
                let message = format!(
                    "{} of the group {:?} has no address, by which traffic is selected",
                    member.identity, group.name
                );
                let help = "put its address inside the identity, or leave the traffic of such peers to a generic policy: \
                            IKE_IPSecDefaultProtectionRef in the IKEProtection";
                self.report.error(element.span(), message, help);
                None
            }
        }
    }

    fn ports(&mut self, side: &Element<'_>, protocol: Option<u64>) -> Option<PortRange> {
        // Both are read first, so that one report has the mistakes of both.
        let (start, end) = (self.port(side, "Port", 0), self.port(side, "EndPort", u16::MAX));
        let (start, end) = (start?, end?);
        let attribute = side.attribute("Port").or(side.attribute("EndPort"));
        let span = attribute.map_or_else(|| side.span(), |attribute| attribute.span(side));
        if (start, end) == (0, 0) && protocol != Some(ICMP) && protocol != Some(ICMPV6) {
            let message = "Port 0 to EndPort 0 is read as every port";
            self.report.warning(span, message, "write EndPort=\"65535\"");
            return Some(PortRange::ANY);
        }
        let Some(ports) = PortRange::new(start, end) else {
            let message = format!("Port {start} is above EndPort {end}");
            let help = format!("write EndPort=\"{start}\" for the one port");
            self.report.error(span, message, help);
            return None;
        };
        let number = protocol.and_then(|protocol| u8::try_from(protocol).ok());
        // RFC 7296 §3.13.1: where ports have no meaning, all of them must be selected.
        if let Some(protocol) = number.filter(|protocol| rules::ports(*protocol, ports).is_err()) {
            let message = format!("Protocol {protocol} has no ports to select");
            let help = match protocol {
                0 => {
                    "write Protocol=\"6\" (TCP) or \"17\" (UDP) on both sides, or remove Port and EndPort"
                }
                _ => "remove Port and EndPort",
            };
            self.report.error(span, message, help);
            return None;
        }
        if start != 0 && side.attribute("EndPort").is_none() {
            let message =
                format!("Port {start} without EndPort is every port from {start} to 65535");
            let help = format!("write EndPort=\"{start}\" for the one port, or EndPort=\"65535\"");
            self.report.warning(span, message, help);
        }
        Some(ports)
    }

    fn port(&mut self, side: &Element<'_>, name: &'static str, default: u16) -> Option<u16> {
        match side.attribute(name) {
            None => Some(default),
            Some(_) => self.number(side, name, 0..=65535).and_then(|port| u16::try_from(port).ok()),
        }
    }

    fn addresses(&mut self, element: &Element<'_>) -> Option<AddressRange> {
        let range = self.range(element)?;
        if !element.name.ends_with("_Address_Range") {
            self.warn_converted(element, &range);
        }
        Some(range)
    }

    /// IKEv2 knows ranges only (RFC 7296 §3.13.1), and so does AIX with it.
    fn warn_converted(&mut self, element: &Element<'_>, range: &AddressRange) {
        let family = &element.name[..4];
        let message = format!("{} is read as the range {range}", element.name);
        let help = format!(
            "AIX takes only ranges with IKEv2: <{family}_Address_Range From_IPAddr=\"{}\" To_IPAddr=\"{}\"/>",
            range.start(),
            range.end()
        );
        self.report.warning(element.span(), message, help);
    }
}
