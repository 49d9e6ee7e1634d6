//! Values that stand in many records: algorithms by IANA's numbers, traffic, paths, headers and payloads.

use crate::negotiation::suite::{Additional, ChildChoice, ChildSuite, IkeSuite};
use crate::originator::Originator;
use crate::sa::path::Path;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::payload::{Identification, Payload, Proposal};
use crate::wire::protected::Content;
use crate::wire::registry::{ExchangeType, IdType, PayloadType};
use ::frozen::{Clock, Field, Reader, Unthawable, Writer};
use esp::plane::{PacketSummary, Spi, TrafficSelectors, Usage};
use policy::{
    AddressRange, AhIntegrity, EspEncryption, Group, Identity, IkeEncryption, Integrity, KeyBits,
    Lifetime, LifetimeBounds, Mode, PortRange, Prf, Protection, Secret, Selector,
};
use std::net::IpAddr;
use zeroize::Zeroizing;

type Thawed<T> = Result<T, Unthawable>;

const fn field(number: u16) -> Field {
    Field::new(number)
}

// ---- numbers

/// Reads a number, and takes what it stands for.
pub(crate) fn meaning<T>(
    from: &mut Reader<'_>,
    field: Field,
    of: impl FnOnce(u64) -> Option<T>,
) -> Thawed<T> {
    let number = from.number(field)?;
    of(number).ok_or_else(|| from.invalid(field))
}

/// The same, if it is there.
pub(crate) fn meaning_if_any<T>(
    from: &mut Reader<'_>,
    field: Field,
    of: impl FnOnce(u64) -> Option<T>,
) -> Thawed<Option<T>> {
    match from.number_if_any(field)? {
        None => Ok(None),
        Some(number) => of(number).map(Some).ok_or_else(|| from.invalid(field)),
    }
}

pub(crate) fn number_of_originator(originator: Originator) -> u8 {
    match originator {
        Originator::ThisSide => 0,
        Originator::Peer => 1,
    }
}

pub(crate) fn originator(from: &mut Reader<'_>, field: Field) -> Thawed<Originator> {
    Ok(match from.flag(field)? {
        false => Originator::ThisSide,
        true => Originator::Peer,
    })
}

pub(crate) fn number_of_mode(mode: Mode) -> u8 {
    match mode {
        Mode::Tunnel => 0,
        Mode::Transport => 1,
    }
}

pub(crate) fn mode(from: &mut Reader<'_>, field: Field) -> Thawed<Mode> {
    Ok(match from.flag(field)? {
        false => Mode::Tunnel,
        true => Mode::Transport,
    })
}

pub(crate) fn secret(from: &mut Reader<'_>, field: Field) -> Thawed<Secret> {
    Ok(Secret::new(from.octets(field)?.to_vec()))
}

pub(crate) fn secret_if_any(from: &mut Reader<'_>, field: Field) -> Thawed<Option<Secret>> {
    Ok(from.octets_if_any(field)?.map(|octets| Secret::new(octets.to_vec())))
}

/// Secrets, one record each.
pub(crate) fn write_secrets(to: &mut Writer<'_>, at: Field, secrets: &[Secret]) {
    to.list(at, secrets, |to, secret| to.octets(field(1), secret.expose()));
}

pub(crate) fn secrets(from: &mut Reader<'_>, at: Field) -> Thawed<Vec<Secret>> {
    let all = from.list(at, "a secret")?;
    all.map(|mut from| {
        let secret = secret(&mut from, field(1))?;
        from.end()?;
        Ok(secret)
    })
    .collect()
}

// ---- algorithms

/// A cipher by its transform: its number, and the length of its key in bits, or 0 (RFC 7296 §3.3.2, §3.3.5).
fn cipher_number(encryption: EspEncryption) -> u32 {
    let row = encryption.row();
    u32::from(row.number) << 16 | u32::from(row.key_length.map_or(0, KeyBits::bits))
}

fn cipher_of(number: u64) -> Option<EspEncryption> {
    EspEncryption::ALL.into_iter().find(|cipher| u64::from(cipher_number(*cipher)) == number)
}

fn ike_cipher_of(number: u64) -> Option<IkeEncryption> {
    IkeEncryption::all().find(|cipher| u64::from(cipher_number(cipher.in_esp())) == number)
}

fn integrity_of(number: u64) -> Option<Integrity> {
    Integrity::ALL.into_iter().find(|mac| u64::from(mac.row().number) == number)
}

/// An integrity algorithm of AH by its transform, which names the length of a key of GMAC (RFC 4543 §5.3).
fn ah_of(number: u64) -> Option<AhIntegrity> {
    let gmac = KeyBits::ALL.into_iter().map(AhIntegrity::AesGmac);
    let all = gmac.chain(Integrity::ALL.into_iter().map(AhIntegrity::Mac));
    { all }.find(|mac| u64::from(mac.row().number) == number)
}

fn prf_of(number: u64) -> Option<Prf> {
    Prf::ALL.into_iter().find(|prf| u64::from(prf.row().number) == number)
}

pub(crate) fn group_of(number: u64) -> Option<Group> {
    Group::of_number(u16::try_from(number).ok()?)
}

/// By transform type; 0 where there is none.
pub(crate) fn write_additional(to: &mut Writer<'_>, at: Field, additional: Additional) {
    let Additional(methods) = additional;
    if methods.iter().any(Option::is_some) {
        let numbers = methods.map(|method| method.map_or(0, |method| method.row().number));
        to.octets(at, &numbers.map(u16::to_be_bytes).concat());
    }
}

pub(crate) fn additional(from: &mut Reader<'_>, at: Field) -> Thawed<Additional> {
    let octets = from.octets(at)?;
    let mut additional = Additional::default();
    let (numbers, rest) = octets.as_chunks::<2>();
    if numbers.len() > additional.0.len() || !rest.is_empty() {
        return Err(from.invalid(at));
    }
    for (method, number) in additional.0.iter_mut().zip(numbers) {
        *method = match u16::from_be_bytes(*number) {
            0 => None,
            number => Some(Group::of_number(number).ok_or_else(|| from.invalid(at))?),
        };
    }
    Ok(additional)
}

pub(crate) fn write_ike_suite(to: &mut Writer<'_>, suite: IkeSuite) {
    let IkeSuite { encryption, integrity, prf, group, additional } = suite;
    to.number(field(1), cipher_number(encryption.in_esp()));
    to.number(field(2), integrity.map_or(0, |mac| mac.row().number));
    to.number(field(3), prf.row().number);
    to.number(field(4), group.row().number);
    write_additional(to, field(5), additional);
}

pub(crate) fn ike_suite(mut from: Reader<'_>) -> Thawed<IkeSuite> {
    let suite = IkeSuite {
        encryption: meaning(&mut from, field(1), ike_cipher_of)?,
        integrity: meaning_if_any(&mut from, field(2), integrity_of)?,
        prf: meaning(&mut from, field(3), prf_of)?,
        group: meaning(&mut from, field(4), group_of)?,
        additional: additional(&mut from, field(5))?,
    };
    // Keys are made of it. That its parts go together was checked when it was negotiated.
    if suite.protection().is_none() {
        return Err(from.invalid(field(1)));
    }
    from.end()?;
    Ok(suite)
}

pub(crate) fn write_child_choice(to: &mut Writer<'_>, choice: ChildChoice) {
    let ChildChoice { algorithms, lifetime } = choice;
    let ChildSuite { protection, group, additional, esn } = algorithms;
    match protection {
        Protection::Esp { encryption, integrity } => {
            to.number(field(1), cipher_number(encryption));
            to.number(field(2), integrity.map_or(0, |mac| mac.row().number));
        }
        Protection::Ah(mac) => to.number(field(3), mac.row().number),
    }
    to.number(field(4), group.map_or(0, |group| group.row().number));
    write_additional(to, field(5), additional);
    to.flag(field(6), esn);
    to.record(field(7), |to| write_lifetime(to, lifetime));
}

pub(crate) fn child_choice(mut from: Reader<'_>) -> Thawed<ChildChoice> {
    let encryption = meaning_if_any(&mut from, field(1), cipher_of)?;
    let integrity = meaning_if_any(&mut from, field(2), integrity_of)?;
    let ah = meaning_if_any(&mut from, field(3), ah_of)?;
    let protection = match (encryption, ah) {
        (Some(encryption), None) => Protection::Esp { encryption, integrity },
        (None, Some(mac)) => Protection::Ah(mac),
        _ => return Err(from.invalid(field(1))),
    };
    let algorithms = ChildSuite {
        protection,
        group: meaning_if_any(&mut from, field(4), group_of)?,
        additional: additional(&mut from, field(5))?,
        esn: from.flag(field(6))?,
    };
    let lifetime = lifetime(from.record(field(7), "a lifetime")?)?;
    let choice = ChildChoice { algorithms, lifetime };
    if choice.suite().is_none() {
        return Err(from.invalid(field(1)));
    }
    from.end()?;
    Ok(choice)
}

fn write_lifetime(to: &mut Writer<'_>, lifetime: Lifetime) {
    let Lifetime { hard, bytes, overlap_percent, as_responder } = lifetime;
    to.time(field(1), hard);
    to.number_if_any(field(2), bytes);
    to.number(field(3), overlap_percent);
    if !as_responder.is_unbounded() {
        let LifetimeBounds { age: [shortest, longest], bytes: [least, most] } = as_responder;
        to.time(field(4), shortest);
        to.time(field(5), longest);
        to.number(field(6), least);
        to.number(field(7), most);
    }
}

fn lifetime(mut from: Reader<'_>) -> Thawed<Lifetime> {
    let hard = from.time(field(1))?;
    let bytes = from.number_if_any(field(2))?;
    let overlap_percent = from.number(field(3))?;
    let bounds = LifetimeBounds {
        age: [from.time(field(4))?, from.time(field(5))?],
        bytes: [from.number(field(6))?, from.number(field(7))?],
    };
    from.end()?;
    // An upper bound is never 0.
    let as_responder = if bounds.bytes[1] == 0 { LifetimeBounds::NONE } else { bounds };
    Ok(Lifetime { hard, bytes, overlap_percent, as_responder })
}

// ---- traffic

pub(crate) fn write_selectors(to: &mut Writer<'_>, at: Field, selectors: &[Selector]) {
    to.list(at, selectors, |to, selector| {
        let Selector { protocol, addresses, ports } = *selector;
        to.number(field(1), protocol);
        to.address(field(2), addresses.start());
        to.address(field(3), addresses.end());
        to.number(field(4), ports.start());
        to.number(field(5), ports.end());
    });
}

pub(crate) fn selectors(from: &mut Reader<'_>, at: Field) -> Thawed<Vec<Selector>> {
    let all = from.list(at, "a traffic selector")?;
    all.map(|mut from| {
        let protocol = from.number(field(1))?;
        let addresses = AddressRange::new(from.address(field(2))?, from.address(field(3))?);
        let ports = PortRange::new(from.number(field(4))?, from.number(field(5))?);
        let (Some(addresses), Some(ports)) = (addresses, ports) else {
            return Err(from.invalid(field(2)));
        };
        from.end()?;
        Ok(Selector { protocol, addresses, ports })
    })
    .collect()
}

pub(crate) fn write_traffic(to: &mut Writer<'_>, traffic: &TrafficSelectors) {
    let TrafficSelectors { local, remote } = traffic;
    write_selectors(to, field(1), local);
    write_selectors(to, field(2), remote);
}

pub(crate) fn traffic(mut from: Reader<'_>) -> Thawed<TrafficSelectors> {
    let local = selectors(&mut from, field(1))?;
    let remote = selectors(&mut from, field(2))?;
    from.end()?;
    Ok(TrafficSelectors { local, remote })
}

pub(crate) fn write_packet(to: &mut Writer<'_>, packet: &PacketSummary) {
    let PacketSummary { protocol, source, destination } = *packet;
    to.number(field(1), protocol);
    to.address(field(2), source.0);
    to.number_if_any(field(3), source.1);
    to.address(field(4), destination.0);
    to.number_if_any(field(5), destination.1);
}

pub(crate) fn packet(mut from: Reader<'_>) -> Thawed<PacketSummary> {
    let protocol = from.number(field(1))?;
    let source = (from.address(field(2))?, from.number_if_any(field(3))?);
    let destination = (from.address(field(4))?, from.number_if_any(field(5))?);
    from.end()?;
    Ok(PacketSummary { protocol, source, destination })
}

pub(crate) fn write_usage(to: &mut Writer<'_>, clock: &Clock, usage: Usage) {
    let Usage { packets, bytes, last_used, refused } = usage;
    to.number(field(1), packets);
    to.number(field(2), bytes);
    to.moment_if_any(field(3), clock, last_used);
    to.number(field(4), refused);
}

pub(crate) fn usage(mut from: Reader<'_>, clock: &Clock) -> Thawed<Usage> {
    let usage = Usage {
        packets: from.number(field(1))?,
        bytes: from.number(field(2))?,
        last_used: from.moment_if_any(field(3), clock)?,
        refused: from.number(field(4))?,
    };
    from.end()?;
    Ok(usage)
}

pub(crate) fn write_path(to: &mut Writer<'_>, path: &Path) {
    let Path { local, remote, nat_local, nat_remote, traverses, pretended, fragment_size } = *path;
    to.endpoint(field(1), local);
    to.endpoint(field(2), remote);
    to.flag(field(3), nat_local);
    to.flag(field(4), nat_remote);
    to.flag(field(5), traverses);
    to.flag(field(6), pretended);
    to.number_if_any(field(7), fragment_size);
}

pub(crate) fn path(mut from: Reader<'_>) -> Thawed<Path> {
    let path = Path {
        local: from.endpoint(field(1))?,
        remote: from.endpoint(field(2))?,
        nat_local: from.flag(field(3))?,
        nat_remote: from.flag(field(4))?,
        traverses: from.flag(field(5))?,
        pretended: from.flag(field(6))?,
        fragment_size: from.number_if_any(field(7))?,
    };
    from.end()?;
    Ok(path)
}

// ---- messages

pub(crate) fn write_header(to: &mut Writer<'_>, header: &Header) {
    let Header {
        initiator_spi,
        responder_spi,
        next_payload,
        exchange,
        from_initiator,
        response,
        higher_version,
        minor_version,
        message_id,
    } = *header;
    to.number(field(1), initiator_spi.0);
    to.number(field(2), responder_spi.0);
    to.number(field(3), next_payload.0);
    to.number(field(4), exchange.0);
    to.flag(field(5), from_initiator);
    to.flag(field(6), response);
    to.flag(field(7), higher_version);
    to.number(field(8), minor_version);
    to.number(field(9), message_id);
}

pub(crate) fn header(mut from: Reader<'_>) -> Thawed<Header> {
    let header = Header {
        initiator_spi: IkeSpi(from.number(field(1))?),
        responder_spi: IkeSpi(from.number(field(2))?),
        next_payload: PayloadType(from.number(field(3))?),
        exchange: ExchangeType(from.number(field(4))?),
        from_initiator: from.flag(field(5))?,
        response: from.flag(field(6))?,
        higher_version: from.flag(field(7))?,
        minor_version: from.number(field(8))?,
        message_id: from.number(field(9))?,
    };
    from.end()?;
    Ok(header)
}

/// SPIs of an IKE SA in the order of the header.
pub(crate) fn write_header_spis(to: &mut Writer<'_>, (initiator, responder): (IkeSpi, IkeSpi)) {
    to.number(field(1), initiator.0);
    to.number(field(2), responder.0);
}

pub(crate) fn header_spis(mut from: Reader<'_>) -> Thawed<(IkeSpi, IkeSpi)> {
    let spis = (IkeSpi(from.number(field(1))?), IkeSpi(from.number(field(2))?));
    from.end()?;
    Ok(spis)
}

/// An identity, as IDi and IDr have it.
pub(crate) fn write_identity(to: &mut Writer<'_>, identity: &Identity) {
    let Identification { kind, data } = Identification::of(identity);
    to.number(field(1), kind.0);
    to.octets(field(2), &data);
}

pub(crate) fn identity(mut from: Reader<'_>) -> Thawed<Identity> {
    let kind = IdType(from.number(field(1))?);
    let data = from.octets(field(2))?.to_vec();
    let identity = Identification { kind, data }.identity();
    let identity = identity.ok_or_else(|| from.invalid(field(2)))?;
    from.end()?;
    Ok(identity)
}

pub(crate) fn write_content(to: &mut Writer<'_>, content: &Content) {
    let Content { first, octets } = content;
    to.number(field(1), first.0);
    to.octets(field(2), octets);
}

pub(crate) fn content(mut from: Reader<'_>) -> Thawed<Content> {
    let first = PayloadType(from.number(field(1))?);
    let octets = Zeroizing::new(from.octets(field(2))?.to_vec());
    from.end()?;
    Ok(Content { first, octets })
}

/// Payloads, as a message has them.
pub(crate) fn write_payloads(to: &mut Writer<'_>, payloads: &[Payload]) {
    write_content(to, &Content::written(payloads));
}

pub(crate) fn payloads(from: &mut Reader<'_>, at: Field) -> Thawed<Vec<Payload>> {
    let content = content(from.record(at, "payloads")?)?;
    content.payloads().map_err(|_| from.invalid(at))
}

/// The same, if they are there.
pub(crate) fn payloads_if_any(from: &mut Reader<'_>, at: Field) -> Thawed<Option<Vec<Payload>>> {
    let Some(inside) = from.record_if_any(at, "payloads")? else { return Ok(None) };
    content(inside)?.payloads().map(Some).map_err(|_| from.invalid(at))
}

/// A proposal, as an SA payload has it.
pub(crate) fn write_proposal(to: &mut Writer<'_>, proposal: &Proposal) {
    write_payloads(to, &[Payload::Sa(vec![proposal.clone()])]);
}

pub(crate) fn proposal(from: &mut Reader<'_>, at: Field) -> Thawed<Proposal> {
    match &payloads(from, at)?[..] {
        [Payload::Sa(proposals)] => match &proposals[..] {
            [proposal] => Ok(proposal.clone()),
            _ => Err(from.invalid(at)),
        },
        _ => Err(from.invalid(at)),
    }
}

/// Datagrams, SPIs and other octets, one record each.
pub(crate) fn write_each(to: &mut Writer<'_>, at: Field, all: &[Vec<u8>]) {
    to.list(at, all, |to, octets| to.octets(field(1), octets));
}

pub(crate) fn each(from: &mut Reader<'_>, at: Field) -> Thawed<Vec<Vec<u8>>> {
    let all = from.list(at, "octets")?;
    all.map(|mut from| {
        let octets = from.octets(field(1))?.to_vec();
        from.end()?;
        Ok(octets)
    })
    .collect()
}

pub(crate) fn write_spis(to: &mut Writer<'_>, at: Field, spis: impl IntoIterator<Item = Spi>) {
    let octets: Vec<u8> = spis.into_iter().flat_map(|spi| spi.0.to_be_bytes()).collect();
    to.octets(at, &octets);
}

pub(crate) fn spis(from: &mut Reader<'_>, at: Field) -> Thawed<Vec<Spi>> {
    let (spis, rest) = from.octets(at)?.as_chunks();
    if !rest.is_empty() {
        return Err(from.invalid(at));
    }
    Ok(spis.iter().map(|octets| Spi(u32::from_be_bytes(*octets))).collect())
}

/// Addresses, one record each.
pub(crate) fn write_addresses(to: &mut Writer<'_>, at: Field, addresses: &[IpAddr]) {
    to.list(at, addresses, |to, address| to.address(field(1), *address));
}

pub(crate) fn addresses(from: &mut Reader<'_>, at: Field) -> Thawed<Vec<IpAddr>> {
    let all = from.list(at, "an address")?;
    all.map(|mut from| {
        let address = from.address(field(1))?;
        from.end()?;
        Ok(address)
    })
    .collect()
}

/// Texts, one record each.
pub(crate) fn write_texts<'t>(
    to: &mut Writer<'_>,
    at: Field,
    texts: impl IntoIterator<Item = &'t String>,
) {
    to.list(at, texts, |to, text| to.text(field(1), text));
}

pub(crate) fn texts<C: FromIterator<String>>(from: &mut Reader<'_>, at: Field) -> Thawed<C> {
    let all = from.list(at, "a text")?;
    all.map(|mut from| {
        let text = from.text(field(1))?.to_owned();
        from.end()?;
        Ok(text)
    })
    .collect()
}
