//! Traffic selectors in strongSwan's words: `10.1.0.0/16[tcp/443]`, `dynamic`, `10.0.0.5-10.0.0.9`.

use policy::{AddressRange, PortRange, Selector};
use std::net::IpAddr;

/// Reads one; `own` is what `dynamic` stands for.
///
/// # Errors
/// The reason why a text is no selector, for people.
pub(super) fn selector(text: &str, own: Option<IpAddr>) -> Result<Selector, String> {
    let text = text.trim();
    let (addresses, rest) = match text.split_once('[') {
        Some((addresses, rest)) => {
            let inside = rest.strip_suffix(']').ok_or_else(|| format!("{text:?} lacks a ]"))?;
            (addresses.trim(), inside.trim())
        }
        None => (text, ""),
    };
    let addresses = match (addresses, own) {
        ("dynamic" | "%dynamic" | "", Some(own)) => AddressRange::from(own),
        ("dynamic" | "%dynamic" | "", None) => {
            return Err("the traffic is that of an address which is not known".to_owned());
        }
        (addresses, _) => range(addresses)?,
    };
    let (protocol, port) = rest.split_once('/').unwrap_or((rest, ""));
    let protocol = number(protocol)?;
    let ports = ports(port, protocol)?;
    Ok(Selector { protocol, addresses, ports })
}

/// An address, a prefix, or a range.
pub(super) fn range(text: &str) -> Result<AddressRange, String> {
    parsed(text).ok_or_else(|| format!("{text:?} is no address, subnet or range"))
}

fn parsed(text: &str) -> Option<AddressRange> {
    if let Some((from, to)) = text.split_once('-') {
        return AddressRange::new(from.trim().parse().ok()?, to.trim().parse().ok()?);
    }
    let Some((base, length)) = text.split_once('/') else {
        return Some(text.trim().parse::<IpAddr>().ok()?.into());
    };
    let base: IpAddr = base.trim().parse().ok()?;
    let length: u32 = match length.trim().parse::<IpAddr>() {
        // ipsec.conf may write a mask.
        Ok(IpAddr::V4(mask)) if base.is_ipv4() => u32::from(mask).leading_ones(),
        _ => length.trim().parse().ok()?,
    };
    AddressRange::subnet(base, length)
}

fn number(text: &str) -> Result<u8, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "" | "any" | "%any" => 0,
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "ospf" => 89,
        "l2tp" => 115,
        "sctp" => 132,
        "udplite" => 136,
        other => {
            other.parse().map_err(|_| format!("{other:?} is no protocol: write its number"))?
        }
    })
}

fn ports(text: &str, protocol: u8) -> Result<PortRange, String> {
    let ports = match text {
        "" | "any" | "%any" => return Ok(PortRange::ANY),
        "0" if !matches!(protocol, 1 | 58) => return Ok(PortRange::ANY),
        "opaque" | "%opaque" => return Err("an opaque port has no counterpart".to_owned()),
        text => match text.split_once('-') {
            Some((from, to)) => PortRange::new(port(from)?, port(to)?),
            None => {
                // One number is a type of ICMP with all its codes.
                let port = port(text)?;
                let icmp = matches!(protocol, 1 | 58) && port < 256;
                match icmp {
                    true => PortRange::new(port << 8, port << 8 | 0xff),
                    false => PortRange::new(port, port),
                }
            }
        },
    };
    ports.ok_or_else(|| format!("{text:?} is no range of ports"))
}

fn port(text: &str) -> Result<u16, String> {
    let text = text.trim();
    let port = match text {
        "http" => Some(80),
        "https" => Some(443),
        "ssh" => Some(22),
        "domain" => Some(53),
        "ntp" => Some(123),
        "l2f" => Some(1701),
        _ => text.parse().ok(),
    };
    port.ok_or_else(|| format!("{text:?} is no port: write its number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_strongswan_reads() {
        let own = Some("192.0.2.1".parse().expect("an address"));
        let read = |text: &str| selector(text, own).expect(text).to_string();
        assert_eq!(read("10.1.0.0/16"), "10.1.0.0/16");
        assert_eq!(read("10.1.2.3/16"), "10.1.0.0/16");
        assert_eq!(read("10.1.0.0/255.255.0.0"), "10.1.0.0/16");
        assert_eq!(read("10.0.0.5-10.0.0.9"), "10.0.0.5-10.0.0.9");
        assert_eq!(read("dynamic[tcp/80]"), "192.0.2.1[tcp/80]");
        assert_eq!(read("[17/1024-2048]"), "192.0.2.1[udp/1024-2048]");
        assert_eq!(read("::/0[icmpv6]"), "::/0[icmpv6]");
        assert_eq!(read("0.0.0.0/0[icmp/8]"), "0.0.0.0/0[icmp/2048-2303]");
        for wrong in
            ["", "10.0.0.0/33", "10.0.0.9-10.0.0.5", "x", "10.0.0.0/8[tcp", "10.0.0.1[tcp/x]"]
        {
            assert!(selector(wrong, None).is_err(), "{wrong}");
        }
    }
}
