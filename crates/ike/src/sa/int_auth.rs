//! The part of IKE_INTERMEDIATE exchanges that the proofs cover (RFC 9242 §3.3.2).

use super::keys::ProofKeys;
use crate::crypto::prf::prf;
use crate::wire::protected::{Content, authenticated_octets};
use ::crypto::Provider;
use policy::{Prf, Secret};

/// IntAuth_i and IntAuth_r of the exchanges so far.
#[derive(Default)]
pub(crate) struct IntAuth {
    pub sums: Option<(Secret, Secret)>,
}

/// One message of an IKE_INTERMEDIATE exchange: the message itself or its fragment 1, and its payloads.
#[derive(Clone, Copy)]
pub(crate) struct Covered<'a> {
    pub datagram: &'a [u8],
    pub content: &'a Content,
}

impl IntAuth {
    /// Adds an exchange, with the keys from before it. `None`: one of the messages has payloads outside of SK.
    pub fn add(
        &mut self,
        by: Provider,
        algorithm: Prf,
        keys: &ProofKeys,
        request: Covered<'_>,
        response: Covered<'_>,
    ) -> Option<()> {
        let (of_initiator, of_responder) = self.sums.as_ref().map(|(i, r)| (i, r)).unzip();
        let [initiator, responder] =
            [(&keys.initiator, of_initiator, request), (&keys.responder, of_responder, response)]
                .map(|(key, so_far, message)| {
                    let octets = authenticated_octets(message.datagram, message.content)?;
                    let so_far = so_far.map_or(&[][..], Secret::expose);
                    Some(prf(by, algorithm, key.expose(), &[so_far, &octets]))
                });
        self.sums = Some((initiator?, responder?));
        Some(())
    }

    /// IntAuth, for an IKE_AUTH request with that message ID; empty if there was no exchange.
    pub fn octets(&self, auth_id: u32) -> Vec<u8> {
        match &self.sums {
            None => Vec::new(),
            Some((initiator, responder)) => {
                [initiator.expose(), responder.expose(), &auth_id.to_be_bytes()].concat()
            }
        }
    }
}
