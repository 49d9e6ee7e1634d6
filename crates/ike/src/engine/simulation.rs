//! Access to an engine's keys for a simulation, never for a daemon: it reads messages and forges them.

use super::Engine;
use crate::crypto::rng::Rng;
use crate::sa::keys::Keys;
use crate::session::Session;
use crate::wire::fragment::Cut;
use crate::wire::header::{Header, IkeSpi};
use crate::wire::payload::Payload;
use crate::wire::protected::Content;
use esp::plane::DataPlane;

impl<P: DataPlane> Engine<P> {
    /// Has the nonces made from now on begin with this octet, so that a simulation decides who wins a collision.
    pub fn begin_nonces_with(&mut self, octet: Option<u8>) {
        self.rng.begin_nonces_with(octet);
    }

    /// Draws the random numbers from now on that another engine would have drawn: with it, an engine that was thawed
    /// behaves as the one that was frozen. A daemon never does that.
    pub fn draw_as(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.rng, &mut other.rng);
    }

    /// Reads a message (no fragment) that is for an IKE SA of this engine, without handling it.
    pub fn overhear(&mut self, octets: &[u8]) -> Option<(Header, Vec<Payload>)> {
        let header = Header::parse(octets).ok()?;
        let local = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        let payloads = self.keys_of(local)?.open(&header, octets).ok()?.read(&header).ok()?;
        Some((header, payloads))
    }

    /// Protects a message with the keys by which this engine sends, in as many fragments as it takes for none to exceed
    /// `room` octets. `None` where the header names no IKE SA of this engine that has keys.
    pub fn forge(
        &mut self,
        header: &Header,
        content: &Content,
        room: usize,
    ) -> Option<Vec<Vec<u8>>> {
        let local = if header.from_initiator { header.initiator_spi } else { header.responder_spi };
        // The IVs of CBC may be foretold here.
        let mut rng = Rng::from_seed([0; 32]);
        Some(self.keys_of(local)?.seal(header, content, Cut::to(room), &mut rng))
    }

    fn keys_of(&mut self, local: IkeSpi) -> Option<&mut Keys> {
        if let Some(half) = self.strangers.get_mut(local) {
            return Some(&mut half.begun.keys);
        }
        let session = self.sessions.get_mut(self.sessions.of_spi(local)?)?;
        session.keys_of(local)
    }
}

impl Session {
    /// The keys of an IKE SA by local SPI, or of the one that is being set up.
    fn keys_of(&mut self, local: IkeSpi) -> Option<&mut Keys> {
        if self.attempt().is_some() {
            return self.attempt_mut()?.sa_mut().state.keys_if_any();
        }
        Some(&mut self.sas_mut().find(|sa| sa.local_spi == local)?.state.keys)
    }
}
