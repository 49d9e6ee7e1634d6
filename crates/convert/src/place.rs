//! Where the two sides of a connection are, and which of them is this side.

use super::draft::{Connection, Side, Unfit};
use super::finding::Report;
use super::traffic;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

/// The addresses that a side has in the file.
#[derive(Default)]
struct Known {
    addresses: Vec<IpAddr>,
    /// Host names.
    names: Vec<String>,
    /// Networks and ranges.
    ranges: Vec<String>,
    /// Link-local addresses of IPv6, with or without their interface.
    of_link: Vec<String>,
}

impl Known {
    fn of(side: &Side) -> Self {
        let mut known = Self::default();
        let words = side.address.iter().flat_map(|value| value.list());
        for word in words {
            let word = word.split('[').next().unwrap_or_default().trim();
            if word.starts_with('%') || matches!(word, "0.0.0.0/0" | "::/0") {
                continue;
            }
            let bare = word.split('%').next().unwrap_or_default();
            if bare.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local()) {
                known.of_link.push(word.to_owned());
                continue;
            }
            match word.parse::<IpAddr>().map(|address| address.to_canonical()) {
                Ok(address) if address.is_unspecified() || address.is_multicast() => {}
                Ok(address) => known.addresses.push(address),
                Err(_) if traffic::range(word).is_ok() => known.ranges.push(word.to_owned()),
                Err(_) => known.names.push(word.to_owned()),
            }
        }
        known
    }
}

/// The host name that is the only word for the place of a side.
pub(super) fn name(side: &Side) -> Option<String> {
    let known = Known::of(side);
    let alone = known.addresses.is_empty() && known.ranges.is_empty();
    match known.names.as_slice() {
        [name] if alone => Some(name.clone()),
        _ => None,
    }
}

/// Returns `true` if the daemon of the file could start a connection to this side.
pub(super) fn can_be_reached(side: &Side) -> bool {
    let known = Known::of(side);
    !known.addresses.is_empty() || !known.names.is_empty()
}

/// The connection with this side on the left: an ipsec.conf may be the same on both gateways, where each daemon finds
/// its side by its addresses. `own`: the address that the command names.
///
/// # Errors
/// If the connection is that of another host.
pub(super) fn oriented<'c>(
    connection: &'c Connection,
    own: Option<IpAddr>,
    report: &mut Report,
) -> Result<Cow<'c, Connection>, Unfit> {
    let Some(own) = own else { return Ok(Cow::Borrowed(connection)) };
    let [local, remote] = [&connection.local, &connection.remote].map(Known::of);
    if local.addresses.contains(&own) {
        return Ok(Cow::Borrowed(connection));
    }
    let what = format!("{} {:?}", connection.what, connection.name);
    if remote.addresses.contains(&own) {
        if connection.what != "conn" {
            let message = format!("its peer has --local-address {own}");
            let help =
                "the file is that of the other end: leave --local-address out and use --peer";
            return Err(Unfit::new(&connection.location, message, help));
        }
        let message = format!(
            "{what}: right has --local-address {own}, so right is this side and left the peer"
        );
        report.changed(&connection.location, message, "");
        return Ok(Cow::Owned(exchanged(connection)));
    }
    if let Some(first) = local.addresses.first() {
        let message = format!(
            "{what}: --local-address {own} is of no use, this side has {first} in the file"
        );
        report.changed(&connection.location, message, "correct the option or the file");
    }
    Ok(Cow::Borrowed(connection))
}

/// The connection with its sides exchanged.
fn exchanged(connection: &Connection) -> Connection {
    let mut exchanged = connection.clone();
    std::mem::swap(&mut exchanged.local, &mut exchanged.remote);
    for child in &mut exchanged.children {
        std::mem::swap(&mut child.local, &mut child.remote);
    }
    exchanged
}

/// The addresses of the two sides, as far as they are known. Of several, those of the first family that both sides
/// have.
///
/// # Errors
/// If no tunnel is possible between them.
pub(super) fn addresses(
    connection: &Connection,
    own: Option<IpAddr>,
    report: &mut Report,
) -> Result<[Option<IpAddr>; 2], Unfit> {
    if let Some(IpAddr::V6(own)) = own
        && own.is_unicast_link_local()
    {
        let message = format!("--local-address {own} is link-local: vpnd does not send from it");
        let help = "name a global or unique-local address of this host";
        return Err(Unfit::new(&connection.location, message, help));
    }
    let [mut local, remote] = [&connection.local, &connection.remote].map(Known::of);
    for (side, known) in [(&connection.local, &local), (&connection.remote, &remote)] {
        let location = side.address.as_ref().map_or(&side.location, |value| &value.location);
        for name in &known.names {
            report.dropped(
                location,
                format!("{name:?}: vpnd looks no names up"),
                "write the address",
            );
        }
        if let Some(address) = known.of_link.first() {
            let message = format!("{address} is a link-local address, to which vpnd does not send");
            let help = "write a global or unique-local address of that host";
            let is_known = !known.addresses.is_empty()
                || std::ptr::eq(side, &connection.local) && own.is_some();
            if !is_known {
                return Err(Unfit::new(location, message, help));
            }
            report.dropped(location, message, help);
        }
        for range in &known.ranges {
            let message = format!("{range}: a policy has one address of a side, or any");
            report.changed(location, message, "write the address, or leave it out");
        }
    }
    match own {
        Some(own) if local.addresses.is_empty() => local.addresses.push(own),
        // Of several addresses, the one that the command names.
        Some(own) => local.addresses.sort_by_key(|address| *address != own),
        None => {}
    }
    let (ours, theirs) = (&local.addresses, &remote.addresses);
    let mut pairs = ours.iter().flat_map(|a| theirs.iter().map(move |b| (*a, *b)));
    let taken = match (ours.first(), theirs.first()) {
        (Some(a), Some(b)) => match pairs.find(|(a, b)| a.is_ipv4() == b.is_ipv4() && a != b) {
            Some((a, b)) => [Some(a), Some(b)],
            None => {
                let message = format!("no tunnel is possible between {a} and {b}");
                return Err(Unfit::new(&connection.location, message, "correct the addresses"));
            }
        },
        (a, b) => [a.copied(), b.copied()],
    };
    let sides = [(&connection.local, ours), (&connection.remote, theirs)];
    for ((side, known), taken) in sides.into_iter().zip(taken) {
        if let (Some(value), [_, _, ..], Some(taken)) = (&side.address, known.as_slice(), taken) {
            let message = format!("of several addresses, one is taken: {taken}");
            let help =
                "with mobike, a tunnel that is up follows changes (docs/operate/mobility.md)";
            report.changed(&value.location, message, help);
        }
    }
    Ok(taken)
}
