//! SK_* and KEYMAT (RFC 7296 §2.14, §2.17, §2.18).

use crate::crypto::prf::{output_len, prf, prf_of_nonces, prf_plus};
use crate::crypto::rng::Rng;
use crate::key_log::{DirectionKeys, IkeKeys, LoggedKeys};
use crate::negotiation::suite::IkeSuite;
use crate::wire::fragment::{self, Fragment};
use crate::wire::header::{Header, IkeSpi};
use crate::wire::payload::Payload;
use crate::wire::protected::{self, Content, OpenError};
use ::crypto::{Cipher, Provider, Suite, integrity_key_len};
use policy::{IkeEncryption, Secret};

/// The keys of an IKE SA, seen from this side.
pub(crate) struct Keys {
    pub suite: IkeSuite,
    protection: Suite,
    /// SK_d, then SK_e and SK_a of ours, then those of the peer's, in one piece: there is one for every tunnel. A cipher made
    /// from them takes much more memory, and little time to make.
    secrets: Secret,
    sealed: u64,
}

/// The keys of both sides' proofs. Only a first IKE SA has them.
pub(crate) struct ProofKeys {
    /// SK_pi.
    pub initiator: Secret,
    /// SK_pr.
    pub responder: Secret,
}

/// Nonces in the order of the exchange: initiator's, responder's.
#[derive(Clone, Copy)]
pub(crate) struct Nonces<'a> {
    pub initiator: &'a [u8],
    pub responder: &'a [u8],
}

/// Keys of a Child SA by direction as the exchange's initiator sees it.
pub(crate) struct ChildKeys {
    pub to_responder: Secret,
    pub to_initiator: Secret,
}

impl Keys {
    /// Keys of a first IKE SA: SKEYSEED = prf(Ni | Nr, g^ir).
    pub fn initial(
        suite: IkeSuite,
        shared: &Secret,
        nonces: Nonces<'_>,
        spis: (IkeSpi, IkeSpi),
        ours: bool,
    ) -> (Self, ProofKeys) {
        let pair = [nonces.initiator, nonces.responder];
        let seed = prf_of_nonces(suite.prf, pair, &[shared.expose()]);
        Self::expand(suite, &seed, nonces, spis, ours)
    }

    /// Keys of an IKE SA that replaces this one: SKEYSEED = prf(SK_d, g^ir | Ni | Nr) with the old PRF.
    pub fn successor(
        &self,
        suite: IkeSuite,
        shared: &Secret,
        nonces: Nonces<'_>,
        spis: (IkeSpi, IkeSpi),
        ours: bool,
    ) -> Self {
        let seed = prf(
            self.suite.prf,
            self.sk_d(),
            &[shared.expose(), nonces.initiator, nonces.responder],
        );
        Self::expand(suite, &seed, nonces, spis, ours).0
    }

    /// `ours`: whether this side is the original initiator. `spis`: initiator's, responder's.
    fn expand(
        suite: IkeSuite,
        seed: &Secret,
        nonces: Nonces<'_>,
        spis: (IkeSpi, IkeSpi),
        ours: bool,
    ) -> (Self, ProofKeys) {
        let protection = suite
            .protection()
            .expect("a negotiated suite has cipher and integrity that go together");
        let proof = output_len(suite.prf);
        let integrity = suite.integrity.map_or(0, integrity_key_len);
        let encryption = match suite.encryption {
            IkeEncryption::AesCbc(k) => k.octets(),
            _ => protection.key_material_len(),
        };
        let material = prf_plus(
            suite.prf,
            seed.expose(),
            &[nonces.initiator, nonces.responder, &spis.0.0.to_be_bytes(), &spis.1.0.to_be_bytes()],
            3 * proof + 2 * (integrity + encryption),
        );
        let mut rest = material.expose();
        let mut take = |len: usize| {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            head
        };
        // RFC 7296 §2.14: {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr}.
        let sk_d = take(proof);
        let (ai, ar) = (take(integrity), take(integrity));
        let (ei, er) = (take(encryption), take(encryption));
        let (pi, pr) = (take(proof), take(proof));
        let secrets =
            if ours { [sk_d, ei, ai, er, ar].concat() } else { [sk_d, er, ar, ei, ai].concat() };
        let keys = Self { suite, protection, secrets: Secret::new(secrets), sealed: 0 };
        let proofs =
            ProofKeys { initiator: Secret::new(pi.to_vec()), responder: Secret::new(pr.to_vec()) };
        (keys, proofs)
    }

    /// A copy for a sink. `spis` and `ours` as the keys were made with.
    pub fn logged(&self, spis: (IkeSpi, IkeSpi), ours: bool) -> LoggedKeys {
        let (here, there) = (self.ours(), self.theirs());
        let (initiator, responder) = if ours { (here, there) } else { (there, here) };
        let split = |keys| DirectionKeys::split(&keys, self.suite.integrity);
        LoggedKeys::Ike(IkeKeys {
            initiator_spi: spis.0,
            responder_spi: spis.1,
            suite: self.suite,
            initiator: split(initiator),
            responder: split(responder),
        })
    }

    /// KEYMAT of a Child SA: prf+(SK_d, [g^ir |] Ni | Nr).
    pub fn child(&self, suite: Suite, shared: Option<&Secret>, nonces: Nonces<'_>) -> ChildKeys {
        let len = suite.key_material_len();
        let shared = shared.map_or(&[][..], Secret::expose);
        let seed = [shared, nonces.initiator, nonces.responder];
        let material = prf_plus(self.suite.prf, self.sk_d(), &seed, 2 * len);
        let (to_responder, to_initiator) = material.expose().split_at(len);
        ChildKeys {
            to_responder: Secret::new(to_responder.to_vec()),
            to_initiator: Secret::new(to_initiator.to_vec()),
        }
    }

    fn sk_d(&self) -> &[u8] {
        &self.secrets.expose()[..output_len(self.suite.prf)]
    }

    /// SK_e and SK_a of both directions.
    fn of_directions(&self) -> &[u8] {
        &self.secrets.expose()[output_len(self.suite.prf)..]
    }

    fn ours(&self) -> Secret {
        let both = self.of_directions();
        Secret::new(both[..both.len() / 2].to_vec())
    }

    fn theirs(&self) -> Secret {
        let both = self.of_directions();
        Secret::new(both[both.len() / 2..].to_vec())
    }

    fn cipher(&self, keys: Secret) -> Box<dyn Cipher> {
        (Provider::AwsLc.cipher(self.protection, &keys))
            .expect("AWS-LC has every suite that can be negotiated")
    }

    /// Protects a message of ours, in as many fragments as it takes for none to exceed `room` octets; of fragments
    /// there are at least `least`.
    pub fn seal(
        &mut self,
        header: &Header,
        content: &Content,
        room: usize,
        least: usize,
        rng: &mut Rng,
    ) -> Vec<Vec<u8>> {
        let cipher = self.cipher(self.ours());
        let Self { protection, sealed, .. } = self;
        // An AEAD needs an IV that never repeats (RFC 5282 §4, RFC 7634 §2), CBC one that cannot be foretold (RFC 3602
        // §3).
        let next_iv = || {
            let mut iv = vec![0; protection.iv_len()];
            match protection {
                Suite::AesCbcMac(..) => rng.fill(&mut iv),
                _ => iv.copy_from_slice(&sealed.to_be_bytes()),
            }
            *sealed += 1;
            iv
        };
        fragment::seal(header, content, room, least, *protection, cipher.as_ref(), next_iv)
    }

    /// Checks and reads a message of the peer.
    pub fn open(&self, header: &Header, datagram: &[u8]) -> Result<Vec<Payload>, OpenError> {
        protected::open(header, datagram, self.protection, self.cipher(self.theirs()).as_ref())
    }

    /// Checks and opens a fragment of a message of the peer.
    pub fn open_fragment(&self, header: &Header, datagram: &[u8]) -> Result<Fragment, OpenError> {
        fragment::open(header, datagram, self.protection, self.cipher(self.theirs()).as_ref())
    }

    /// Returns `true` if a datagram is from the peer; it may be a message or a fragment.
    pub fn proves(&self, header: &Header, datagram: &[u8]) -> bool {
        let not_authentic = |e: &OpenError| matches!(e, OpenError::NotAuthentic(_));
        !(self.open(header, datagram).err().as_ref().is_some_and(not_authentic)
            && self.open_fragment(header, datagram).err().as_ref().is_some_and(not_authentic))
    }
}
