//! Identities, endpoints and traffic selectors.

use super::Cx;
use super::group::{self, Group};
use super::table::Table;
use crate::validate::{Problem, rules};
use crate::xml::diagnostic::quoted;
use crate::xml::document::{Attribute, Element};
use crate::xml::schema::{SUBNET_ADDRESS, SUBNET_MASK, listed};
use crate::{AddressRange, DistinguishedName, Endpoint, Identity, PortRange, Selector};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ICMP: u64 = 1;
const ICMPV6: u64 = 58;

impl Cx<'_> {
    /// The identity in one element, with or without the prefix `PK_`.
    pub fn identity(&mut self, element: &Element<'_>) -> Option<Identity> {
        let kind = element.name.strip_prefix("PK_").unwrap_or(element.name);
        if kind.ends_with("_Range") || kind.ends_with("_Subnet") {
            let message = format!("{kind} cannot say who a side is: it names many");
            let help = "use IPV4_Address, IPV6_Address, FQDN, User_FQDN, ASN1_DN or Key_ID; for many peers that start, \
                        name an IKEGroup";
            self.report.error(element.place(), message, help);
            return None;
        }
        let attribute = element.attribute("Value")?;
        match kind {
            "IPV4_Address" | "IPV6_Address" => {
                let address = self.address(element, "Value", kind == "IPV4_Address")?;
                if let Err(problem) = rules::host(address) {
                    let message = problem.to_string();
                    let help = "for a peer whose address is not known, use FQDN, User_FQDN or Key_ID and the \
                                IKE_Role \"Responder\"";
                    self.report.error(attribute.place(element), message, help);
                    return None;
                }
                Some(address.into())
            }
            "FQDN" => {
                let value = self.trimmed(element, attribute);
                self.is_valid(element, attribute, Identity::Fqdn(value.to_owned()))
            }
            "User_FQDN" => {
                let value = self.trimmed(element, attribute);
                self.is_valid(element, attribute, Identity::UserFqdn(value.to_owned()))
            }
            "ASN1_DN" => {
                let value = self.trimmed(element, attribute);
                match value.parse::<DistinguishedName>() {
                    Ok(name) => {
                        self.warn_reversed(element, attribute, value, &name);
                        Some(Identity::Dn(name))
                    }
                    Err(error) => {
                        let help = "write it like /C=NL/O=Example/CN=gate.example.net, or \
                                    CN=gate.example.net,O=Example,C=NL; openssl x509 -noout -subject -nameopt compat \
                                    prints the one of a certificate";
                        self.report.error(attribute.place(element), error.to_string(), help);
                        None
                    }
                }
            }
            _ => {
                let octets = attribute.value.as_bytes().to_vec();
                self.is_valid(element, attribute, Identity::KeyId(octets))
            }
        }
    }

    /// Most programs print a name with commas in the order of its encoding, RFC 4514 reads it the other way round.
    fn warn_reversed(
        &mut self,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        value: &str,
        name: &DistinguishedName,
    ) {
        let starts = |text: &str, kind: &str| {
            text.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
        };
        let first = |kind| starts(value, kind);
        if !value.starts_with('/')
            && ["C=", "DC=", "O="].into_iter().any(first)
            && value.rsplit(',').next().is_some_and(|last| starts(last.trim(), "CN="))
        {
            let message =
                format!("{} is read as RFC 4514 has it: {name} has CN at the top", quoted(value));
            let help =
                "write the most specific part first, CN=…,O=…,C=…, or with slashes, /C=…/O=…/CN=…";
            self.report.warning(attribute.place(element), message, help);
        }
    }

    /// The identity, unless it breaks a rule, which is reported.
    fn is_valid(
        &mut self,
        element: &Element<'_>,
        attribute: &Attribute<'_>,
        identity: Identity,
    ) -> Option<Identity> {
        let Err(problem) = rules::identity(&identity) else { return Some(identity) };
        let (message, help) = match &problem {
            Problem::AddressAsDomain(name) => {
                (format!("FQDN {} is an address", quoted(name)), "use IPV4_Address or IPV6_Address")
            }
            Problem::NotAUser(name) => (
                format!("User_FQDN {} is not user@domain", quoted(name)),
                "write it like ops@example.net",
            ),
            Problem::NotADomain(name) if name.contains('*') => (
                problem.to_string(),
                "there are no wildcards: name each peer, in an IKEGroup if they are many",
            ),
            Problem::NotADomain(_) => {
                (problem.to_string(), "a domain name has letters, digits, '-', '_' and '.'")
            }
            Problem::KeyIdLength(_) => ("Key_ID must have 1 to 255 octets".to_owned(), ""),
            other => (other.to_string(), other.help()),
        };
        self.report.error(attribute.place(element), message, help);
        None
    }

    /// One side of a phase 1 tunnel: an address, or a name with the optional address inside it.
    pub fn endpoint(&mut self, side: &Element<'_>) -> Option<Endpoint> {
        let element = self.only(side, None)?;
        if group::is_reference(element) {
            let message = "a group can be the remote identity alone";
            let help =
                "this side is one: name it by its address, FQDN, User_FQDN, ASN1_DN or Key_ID";
            self.report.error(element.place(), message, help);
            return None;
        }
        self.party(element)
    }

    /// One party by its identity.
    pub fn party(&mut self, element: &Element<'_>) -> Option<Endpoint> {
        let identity = self.identity(element);
        let address = match &identity {
            Some(Identity::Ipv4(a)) => Some(IpAddr::V4(*a)),
            Some(Identity::Ipv6(a)) => Some(IpAddr::V6(*a)),
            _ if element.children.is_empty() => None,
            _ => match self.only(element, None).and_then(|inner| self.identity(inner))? {
                Identity::Ipv4(a) => Some(IpAddr::V4(a)),
                Identity::Ipv6(a) => Some(IpAddr::V6(a)),
                _ => None,
            },
        };
        Some(Endpoint { address, identity: identity? })
    }

    /// One side's traffic of a phase 2 tunnel; several selectors only where a group names the addresses.
    pub fn traffic(&mut self, side: &Element<'_>, groups: &Table<Group>) -> Option<Vec<Selector>> {
        let protocol = match side.attribute("Protocol") {
            None => Some(0),
            Some(_) => self.number(side, "Protocol", 0..=255),
        };
        let ports = self.ports(side, protocol);
        let addresses = self.only(side, None).and_then(|element| match element {
            group if group::is_reference(group) => self.addresses_of_group(group, groups),
            element => self.addresses(element).map(|range| vec![range]),
        });
        let (protocol, ports) = (u8::try_from(protocol?).ok()?, ports?);
        let selector = |addresses| Selector { protocol, addresses, ports };
        Some(addresses?.into_iter().map(selector).collect())
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
                self.report.error(element.place(), message, help);
                None
            }
        }
    }

    fn ports(&mut self, side: &Element<'_>, protocol: Option<u64>) -> Option<PortRange> {
        let port = |cx: &mut Self, name, default| match side.attribute(name) {
            None => Some(default),
            Some(_) => {
                cx.number(side, name, 0..=65535).and_then(|number| u16::try_from(number).ok())
            }
        };
        let (start, end) = (port(self, "Port", 0), port(self, "EndPort", u16::MAX));
        let (start, end) = (start?, end?);
        let attribute = side.attribute("Port").or(side.attribute("EndPort"));
        let place = attribute.map_or_else(|| side.place(), |attribute| attribute.place(side));
        if (start, end) == (0, 0) && protocol != Some(ICMP) && protocol != Some(ICMPV6) {
            let message = "Port 0 to EndPort 0 is read as every port";
            self.report.warning(place, message, "write EndPort=\"65535\"");
            return Some(PortRange::ANY);
        }
        let Some(ports) = PortRange::new(start, end) else {
            let message = format!("Port {start} is above EndPort {end}");
            let help = format!("write EndPort=\"{start}\" for the one port");
            self.report.error(place, message, help);
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
            self.report.error(place, message, help);
            return None;
        }
        if start != 0 && side.attribute("EndPort").is_none() {
            let message =
                format!("Port {start} without EndPort is every port from {start} to 65535");
            let help = format!("write EndPort=\"{start}\" for the one port, or EndPort=\"65535\"");
            self.report.warning(place, message, help);
        }
        Some(ports)
    }

    fn addresses(&mut self, element: &Element<'_>) -> Option<AddressRange> {
        let range = self.range(element)?;
        if !element.name.ends_with("_Address_Range") {
            self.warn_converted(element, &range);
        }
        Some(range)
    }

    /// The addresses of an address, a range or a subnet.
    pub fn range(&mut self, element: &Element<'_>) -> Option<AddressRange> {
        let v4 = element.name.starts_with("IPV4");
        match element.name {
            "IPV4_Address_Range" | "IPV6_Address_Range" => {
                let from = self.address(element, "From_IPAddr", v4);
                let to = self.address(element, "To_IPAddr", v4);
                let (from, to) = (from?, to?);
                let range = AddressRange::new(from, to);
                if range.is_none()
                    && let Some(attribute) = element.attribute("From_IPAddr")
                {
                    let message = format!("From_IPAddr {from} is above To_IPAddr {to}");
                    self.report.error(attribute.place(element), message, "exchange the two");
                }
                range
            }
            "IPV4_Address" | "IPV6_Address" => {
                self.address(element, "Value", v4).map(AddressRange::from)
            }
            _ => self.subnet(element, v4),
        }
    }

    fn subnet(&mut self, element: &Element<'_>, v4: bool) -> Option<AddressRange> {
        let address_name = self.one_spelling(element, SUBNET_ADDRESS);
        let mask_name = self.one_spelling(element, SUBNET_MASK);
        let address = address_name.and_then(|name| self.address(element, name, v4));
        let prefix = mask_name.and_then(|name| self.prefix(element, name, v4));
        let (address, prefix) = (address?, prefix?);
        let (start, end) = match address {
            IpAddr::V4(address) => {
                let hosts = u32::MAX.checked_shr(prefix).unwrap_or(0);
                let bits = u32::from(address);
                (
                    IpAddr::from(Ipv4Addr::from(bits & !hosts)),
                    IpAddr::from(Ipv4Addr::from(bits | hosts)),
                )
            }
            IpAddr::V6(address) => {
                let hosts = u128::MAX.checked_shr(prefix).unwrap_or(0);
                let bits = u128::from(address);
                (
                    IpAddr::from(Ipv6Addr::from(bits & !hosts)),
                    IpAddr::from(Ipv6Addr::from(bits | hosts)),
                )
            }
        };
        AddressRange::new(start, end)
    }

    /// The one of several names for an attribute that an element uses.
    pub fn one_spelling(
        &mut self,
        element: &Element<'_>,
        names: &'static [&'static str],
    ) -> Option<&'static str> {
        let mut present = names.iter().copied().filter(|name| element.attribute(name).is_some());
        match (present.next(), present.next()) {
            (Some(name), None) => Some(name),
            (Some(_), Some(second)) => {
                let place = element.attribute(second).map(|a| a.name_place(element));
                let message = format!("{} is given in two spellings", names[0]);
                self.report.error(place.unwrap_or_else(|| element.place()), message, "keep one");
                None
            }
            (None, _) => {
                if !element.damaged {
                    let message = format!("{} lacks the attribute {}", element.name, names[0]);
                    let help = format!("add {}=\"…\"", listed(names.iter().copied().take(1)));
                    self.report.error(element.place(), message, help);
                }
                None
            }
        }
    }

    /// A prefix length, written as a number or as a mask.
    fn prefix(&mut self, element: &Element<'_>, name: &str, v4: bool) -> Option<u32> {
        let attribute = element.attribute(name)?;
        let value = self.trimmed(element, attribute);
        let bits = if v4 { 32 } else { 128 };
        let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        let prefix = match value.parse::<IpAddr>() {
            Ok(IpAddr::V4(mask)) if v4 => {
                let mask = u32::from(mask);
                (mask.leading_ones() + mask.trailing_zeros() >= 32).then(|| mask.leading_ones())
            }
            Ok(IpAddr::V6(mask)) if !v4 => {
                let mask = u128::from(mask);
                (mask.leading_ones() + mask.trailing_zeros() >= 128).then(|| mask.leading_ones())
            }
            _ if digits => value.parse().ok().filter(|prefix| *prefix <= bits),
            _ => None,
        };
        if prefix.is_none() {
            let message = format!("{name} {} is not a mask", quoted(value));
            let help = if v4 { "write it like 255.255.255.0 or 24" } else { "write it like 64" };
            self.report.error(attribute.place(element), message, help);
        }
        prefix
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
        self.report.warning(element.place(), message, help);
    }
}
