//! Addresses, ranges and subnets.

use super::context::Context;
use crate::AddressRange;
use crate::wording::quoted;
use crate::xml::element::Element;
use crate::xml::schema::{SUBNET_ADDRESS, SUBNET_MASK};
use std::net::{IpAddr, Ipv6Addr};

/// The way round a link-local address.
const LINK_HELP: &str = "vpnd sends to no link-local address: use a global or unique-local address, such as 2001:db8::1 or fd00::1";

impl Context<'_> {
    /// An address of one family.
    pub fn address(&mut self, element: &Element<'_>, name: &str, v4: bool) -> Option<IpAddr> {
        let attribute = element.attribute(name)?;
        let value = self.trimmed(element, attribute);
        let family = if v4 { "IPv4" } else { "IPv6" };
        let parsed = value.parse::<IpAddr>().ok();
        if let Some(address) = parsed.filter(|address| address.is_ipv4() == v4) {
            return Some(address);
        }
        let placeholder = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
            && !value.is_empty();
        let zoned = value.split_once('%').filter(|(a, zone)| {
            a.parse::<Ipv6Addr>().is_ok_and(|a| a.is_unicast_link_local()) && !zone.is_empty()
        });
        // The order matters: a placeholder would pass for a host name, too.
        let (message, help) = if let Some((address, interface)) = zoned {
            let message =
                format!("{} is the link-local address {address} of {interface}", quoted(value));
            (message, LINK_HELP.to_owned())
        } else if parsed.is_some() {
            let other = element
                .name
                .replace(if v4 { "IPV4" } else { "IPV6" }, if v4 { "IPV6" } else { "IPV4" });
            (format!("{} is not an {family} address", quoted(value)), format!("use {other}"))
        } else if placeholder {
            let help = format!("write the {family} address in its place");
            (format!("placeholder not replaced: {value}"), help)
        } else if let Some((address, _)) =
            value.split_once('/').filter(|(a, _)| a.parse::<IpAddr>().is_ok())
        {
            let message = format!("{} is not an address but a subnet", quoted(value));
            (message, format!("write the address alone ({address}), or use an address range"))
        } else if value.bytes().any(|b| b.is_ascii_alphabetic()) && !value.contains(':') {
            let message = format!("{} is not an {family} address", quoted(value));
            (message, "host names are not looked up: write the address".to_owned())
        } else {
            let example = if v4 { "192.0.2.1" } else { "2001:db8::1" };
            let help = format!("write it like {example}");
            (format!("{} is not an {family} address", quoted(value)), help)
        };
        self.report.error(attribute.part(element, value), message, help);
        None
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
                    self.report.error(attribute.span(element), message, "exchange the two");
                }
                range
            }
            "IPV4_Address" | "IPV6_Address" => {
                self.names_no_side(element)?;
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
        AddressRange::subnet(address, prefix)
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
            self.report.error(attribute.span(element), message, help);
        }
        prefix
    }
}
