//! The payloads of a message by what they are, as exchanges look for them.

use super::payload::{Notify, Payload, Proposal, TrafficSelector};
use super::registry::{GroupId, NotifyType, ProtocolId};

/// The payloads of a message that any exchange looks for, each at most once; the first of a kind counts.
#[derive(Default)]
pub(crate) struct Parts<'a> {
    pub sa: Option<&'a [Proposal]>,
    pub key_exchange: Option<(GroupId, &'a [u8])>,
    pub nonce: Option<&'a [u8]>,
    pub ts_initiator: Option<&'a [TrafficSelector]>,
    pub ts_responder: Option<&'a [TrafficSelector]>,
    pub notifies: Vec<&'a Notify>,
}

impl<'a> Parts<'a> {
    pub fn of(payloads: &'a [Payload]) -> Self {
        let mut parts = Self::default();
        for payload in payloads {
            match payload {
                Payload::Sa(proposals) => parts.sa = parts.sa.or(Some(proposals)),
                Payload::KeyExchange { group, data } => {
                    parts.key_exchange = parts.key_exchange.or(Some((*group, data)));
                }
                Payload::Nonce(nonce) => parts.nonce = parts.nonce.or(Some(nonce)),
                Payload::TsInitiator(ts) => parts.ts_initiator = parts.ts_initiator.or(Some(ts)),
                Payload::TsResponder(ts) => parts.ts_responder = parts.ts_responder.or(Some(ts)),
                Payload::Notify(notify) => parts.notifies.push(notify),
                _ => {}
            }
        }
        parts
    }

    pub fn notify(&self, kind: NotifyType) -> Option<&'a Notify> {
        self.notifies.iter().find(|n| n.kind == kind).copied()
    }

    /// The first error the peer reports.
    pub fn error(&self) -> Option<&'a Notify> {
        self.notifies.iter().find(|n| n.kind.is_error()).copied()
    }

    /// The group of an INVALID_KE_PAYLOAD notification.
    pub fn wanted_group(&self) -> Option<GroupId> {
        let data = &self.notify(NotifyType::INVALID_KE_PAYLOAD)?.data;
        Some(GroupId(u16::from_be_bytes(data.as_slice().try_into().ok()?)))
    }
}

/// A status notification without SPI.
pub(crate) fn status(kind: NotifyType, data: Vec<u8>) -> Payload {
    Payload::Notify(Notify { protocol: ProtocolId::NONE, spi: vec![], kind, data })
}
