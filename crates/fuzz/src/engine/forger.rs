//! An attacker who hears every message, and makes others of them: with their senders' keys, too.

use crate::octets::Octets;
use ike::wire::header::Header;
use ike::wire::payload::{Delete, Notify, Payload};
use ike::wire::protected::Content;
use ike::wire::registry::{ExchangeType, NotifyType, PayloadType, ProtocolId};
use sim::link::{self, Parcel};
use sim::{HostId, World};
use std::collections::VecDeque;
use std::time::Duration;

/// Messages that are remembered.
const MEMORY: usize = 48;
/// Changes to one message.
const EDITS: usize = 8;

const NOTIFIES: [NotifyType; 27] = [
    NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
    NotifyType::INVALID_SYNTAX,
    NotifyType::INVALID_SPI,
    NotifyType::NO_PROPOSAL_CHOSEN,
    NotifyType::INVALID_KE_PAYLOAD,
    NotifyType::AUTHENTICATION_FAILED,
    NotifyType::NO_ADDITIONAL_SAS,
    NotifyType::TS_UNACCEPTABLE,
    NotifyType::INVALID_SELECTORS,
    NotifyType::TEMPORARY_FAILURE,
    NotifyType::CHILD_SA_NOT_FOUND,
    NotifyType::INITIAL_CONTACT,
    NotifyType::NAT_DETECTION_SOURCE_IP,
    NotifyType::NAT_DETECTION_DESTINATION_IP,
    NotifyType::COOKIE,
    NotifyType::USE_TRANSPORT_MODE,
    NotifyType::REKEY_SA,
    NotifyType::MOBIKE_SUPPORTED,
    NotifyType::UPDATE_SA_ADDRESSES,
    NotifyType::COOKIE2,
    NotifyType::AUTH_LIFETIME,
    NotifyType::IKEV2_FRAGMENTATION_SUPPORTED,
    NotifyType::TICKET_LT_OPAQUE,
    NotifyType::TICKET_REQUEST,
    NotifyType::TICKET_ACK,
    NotifyType::TICKET_NACK,
    NotifyType::TICKET_OPAQUE,
];

const EXCHANGES: [ExchangeType; 6] = [
    ExchangeType::IKE_SA_INIT,
    ExchangeType::IKE_AUTH,
    ExchangeType::CREATE_CHILD_SA,
    ExchangeType::INFORMATIONAL,
    ExchangeType(43),
    ExchangeType::IKE_SESSION_RESUME,
];

#[derive(Default)]
pub(super) struct Forger {
    heard: VecDeque<Parcel>,
}

impl Forger {
    /// Remembers what was sent since the last time.
    pub fn listen(&mut self, world: &mut World) {
        let messages = world.take_tapped().into_iter();
        self.heard.extend(messages.filter(|p| matches!(p.content, link::Content::Ike(_))));
        let surplus = self.heard.len().saturating_sub(MEMORY);
        self.heard.drain(..surplus);
    }

    /// A message heard, the newest first.
    fn recall(&self, input: &mut Octets<'_>) -> Option<(&Parcel, &[u8])> {
        let back = input.below(self.heard.len())?;
        let parcel = self.heard.iter().rev().nth(back)?;
        match &parcel.content {
            link::Content::Ike(octets) => Some((parcel, octets)),
            _ => None,
        }
    }

    /// Repeats a message, perhaps to its sender.
    pub fn replay(&mut self, input: &mut Octets<'_>, world: &mut World) -> Option<()> {
        let (parcel, _) = self.recall(input)?;
        let mut parcel = parcel.clone();
        if input.flag()? {
            (parcel.source, parcel.destination) = (parcel.destination, parcel.source);
        }
        world.inject(Duration::ZERO, parcel);
        Some(())
    }

    /// Changes octets of a message without its keys.
    pub fn mutate(&mut self, input: &mut Octets<'_>, world: &mut World) -> Option<()> {
        let (parcel, octets) = self.recall(input)?;
        let (mut parcel, mut octets) = (parcel.clone(), octets.to_vec());
        for _ in 0..input.below(EDITS)? {
            if octets.is_empty() {
                break;
            }
            let at = usize::from(input.u16()?) % octets.len();
            match input.u8()? % 4 {
                0 => octets.truncate(at),
                1 => octets.splice(at..at, input.up_to(4).iter().copied()).for_each(drop),
                _ => octets[at] = input.u8()?,
            }
        }
        // Otherwise nearly all end at the length field.
        if input.flag()?
            && let (Ok(len), Some(field)) = (u32::try_from(octets.len()), octets.get_mut(24..28))
        {
            field.copy_from_slice(&len.to_be_bytes());
        }
        parcel.content = link::Content::Ike(octets);
        world.inject(Duration::ZERO, parcel);
        Some(())
    }

    /// Says something with the keys of a message's sender.
    pub fn forge(
        &mut self,
        input: &mut Octets<'_>,
        world: &mut World,
        hosts: [HostId; 2],
    ) -> Option<()> {
        let (parcel, octets) = self.recall(input)?;
        let (parcel, octets) = (parcel.clone(), octets.to_vec());
        let sender = hosts.into_iter().find(|h| world.host(*h).address == parcel.source.ip())?;
        let receiver = hosts.into_iter().find(|h| *h != sender)?;
        let mut header = Header::parse(&octets).ok()?;
        let how = input.u8()?;
        if how & 1 == 1 {
            let ahead = input.u8()? % 8;
            header.message_id = header.message_id.wrapping_add(u32::from(ahead)).wrapping_sub(2);
        }
        if how & 2 == 2 {
            header.exchange = *input.pick(&EXCHANGES)?;
        }
        if how & 12 == 12 {
            header.response = !header.response;
        }
        let content = if how & 0x30 == 0x30 {
            let first = PayloadType(input.u8()?);
            let len = usize::from(input.u8()?);
            Content { first, octets: input.up_to(len).to_vec().into() }
        } else {
            let mut payloads =
                world.overhear(receiver, &octets).map(|(_, p)| p).unwrap_or_default();
            let spis = spis(world, hosts);
            for _ in 0..input.below(EDITS)? {
                edit(&mut payloads, input, &header, &spis)?;
            }
            Content::of(&header, &payloads)
        };
        if content.octets.len() > 20_000 {
            return Some(());
        }
        let room = if how & 0xc0 == 0xc0 { 200 } else { usize::MAX };
        for octets in world.forge(sender, &header, &content, room).unwrap_or_default() {
            let content = link::Content::Ike(octets);
            world.inject(Duration::ZERO, Parcel { content, ..parcel.clone() });
        }
        Some(())
    }
}

/// SPIs of ESP that are in use, and one that is not.
fn spis(world: &mut World, hosts: [HostId; 2]) -> Vec<u32> {
    let in_use = |host| -> Vec<u32> { world.plane(host).inbound().map(|r| r.spi.0).collect() };
    hosts.map(in_use).into_iter().flatten().chain([0x00be_ef00]).collect()
}

/// One change of a message's payloads; `None` where the octets run out.
fn edit(
    payloads: &mut Vec<Payload>,
    input: &mut Octets<'_>,
    header: &Header,
    spis: &[u32],
) -> Option<()> {
    let (what, at) = (input.u8()? % 10, usize::from(input.u8()?) % (payloads.len() + 1));
    match what {
        0 if at < payloads.len() => drop(payloads.remove(at)),
        1 if at < payloads.len() && payloads.len() < 32 => payloads.push(payloads[at].clone()),
        2 if at < payloads.len() => payloads.swap(0, at),
        3..=5 => {
            let payload = payloads.get_mut(at)?;
            scratch(payload, input)?;
        }
        6 | 7 => {
            let kind =
                if input.flag()? { *input.pick(&NOTIFIES)? } else { NotifyType(input.u16()?) };
            let spi = match input.u8()? % 3 {
                0 => Vec::new(),
                1 => input.pick(spis)?.to_be_bytes().to_vec(),
                _ => input.up_to(4).to_vec(),
            };
            let protocol = if spi.is_empty() { ProtocolId::NONE } else { ProtocolId::ESP };
            let len = usize::from(input.u8()? % 32);
            let data = input.up_to(len).to_vec();
            payloads.insert(at, Payload::Notify(Notify { protocol, spi, kind, data }));
        }
        8 => {
            let delete = match input.u8()? % 4 {
                0 => Delete::IkeSa,
                n => {
                    let spis = (0..n).map_while(|_| input.pick(spis).copied()).collect();
                    Delete::ChildSas { protocol: ProtocolId::ESP, spis }
                }
            };
            payloads.insert(at, Payload::Delete(delete));
        }
        _ => {
            // Anything at all that reads as payloads.
            let first = PayloadType(input.u8()?);
            let len = usize::from(input.u8()?);
            let content = Content { first, octets: input.up_to(len).to_vec().into() };
            payloads.extend(content.read(header).unwrap_or_default());
        }
    }
    Some(())
}

/// Changes something inside of a payload.
fn scratch(payload: &mut Payload, input: &mut Octets<'_>) -> Option<()> {
    let (at, value) = (usize::from(input.u8()?), input.u8()?);
    let octet = |data: &mut Vec<u8>| match data.len() {
        0 => data.push(value),
        len => data[at % len] = value,
    };
    match payload {
        Payload::Sa(proposals) => {
            let count = proposals.len();
            let proposal = proposals.get_mut(at % count.max(1))?;
            match value % 4 {
                0 => octet(&mut proposal.spi),
                1 if proposal.transforms.len() > 1 => drop(proposal.transforms.remove(0)),
                _ => {
                    let count = proposal.transforms.len();
                    let transform =
                        proposal.transforms.get_mut(usize::from(value) % count.max(1))?;
                    transform.id = u16::from(input.u8()?);
                }
            }
        }
        Payload::KeyExchange { group, data } => match value {
            0 => group.0 = u16::from(input.u8()?),
            _ => octet(data),
        },
        Payload::Nonce(data) | Payload::Auth { data, .. } | Payload::Other { data, .. } => {
            octet(data);
        }
        Payload::IdInitiator(id) | Payload::IdResponder(id) => octet(&mut id.data),
        Payload::Notify(notify) => octet(&mut notify.data),
        Payload::TsInitiator(selectors) | Payload::TsResponder(selectors) => {
            match selectors.len() {
                0 | 1 => selectors.extend_from_within(..),
                _ => selectors.truncate(1),
            }
        }
        _ => {}
    }
    Some(())
}
