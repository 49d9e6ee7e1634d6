//! SK_* and KEYMAT (RFC 7296 §2.14, §2.17, §2.18).

mod frozen;

use crate::crypto::prf::{self, output_len, prf, prf_of_nonces, prf_plus};
use crate::crypto::rng::Rng;
use crate::crypto::tally::{self, Operation};
use crate::key_log::{DirectionKeys, IkeKeys, LoggedKeys};
use crate::negotiation::suite::IkeSuite;
use crate::originator::Originator;
use crate::wire::fragment::{self, Cut, Fragment};
use crate::wire::header::{Header, IkeSpi};
use crate::wire::protected::{self, Content, OpenError};
use ::crypto::{Cipher, CryptoProviders, Function, Provider, Suite, integrity_key_len};
use crypto::asymmetric::Hash;
use policy::{Group, Secret};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The keys of an IKE SA, seen from this side.
pub(crate) struct Keys {
    pub suite: IkeSuite,
    protection: Suite,
    /// SK_d, then SK_e and SK_a of ours, then those of the peer's, in one piece: there is one for every tunnel. A
    /// cipher made from them takes much more memory, and little time to make.
    secrets: Secret,
    /// The last postquantum preshared key in SK_d (RFC 8784), or in that of an IKE SA that this one has replaced.
    pub ppk: Option<Arc<UsedPpk>>,
    pub shield: Shield,
    sealed: u64,
    /// The providers of ciphers and PRFs, which may change at any time: all of them compute the same.
    crypto: Arc<CryptoProviders>,
}

/// The keys that a quantum computer cannot find, although it breaks every group: they come from ML-KEM, or from a
/// postquantum preshared key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shield {
    /// The keys of this IKE SA's messages.
    pub messages: bool,
    /// SK_d, and with it all keys that are derived from it.
    pub derived: bool,
}

impl Shield {
    fn of(safe: bool) -> Self {
        Self { messages: safe, derived: safe }
    }
}

/// The keys of both sides' proofs. Only a first IKE SA has them.
pub(crate) struct ProofKeys {
    /// SK_pi.
    pub initiator: Secret,
    /// SK_pr.
    pub responder: Secret,
}

/// Keys that a postquantum preshared key has changed.
pub(crate) struct Mixed {
    pub base: Base,
    pub proof_keys: ProofKeys,
}

/// SK_d that a postquantum preshared key has changed, for the keys of a new SA.
pub(crate) struct Base {
    pub ppk: Arc<UsedPpk>,
    sk_d: Secret,
}

/// Names a postquantum preshared key and its octets, which may change.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UsedPpk {
    pub id: String,
    /// SHA-256 of the octets.
    hash: [u8; 32],
}

impl UsedPpk {
    pub fn of(id: &str, ppk: &Secret) -> Self {
        let hash = tally::digest(Hash::Sha256, ppk.expose()).try_into();
        Self { id: id.to_owned(), hash: hash.expect("SHA-256 makes 32 octets") }
    }

    /// SHA-256 of the octets.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }
}

/// The agreement of both sides, in IKE_SA_INIT, on postquantum preshared keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PpkUse {
    /// No agreement, or nothing more to do.
    None,
    /// One changes the keys of the proofs (RFC 8784).
    InProofs,
    /// One changes all keys with the last IKE_INTERMEDIATE (RFC 9867).
    BeforeProofs,
}

/// Octets of a [`Confirmation`].
pub(crate) const CONFIRMATION: usize = 8;

/// A peer sees by it that it has the same postquantum preshared key by a name (RFC 9867 §3.1, §3.2). It depends on the
/// key, so that it has no `==`.
pub(crate) struct Confirmation([u8; CONFIRMATION]);

impl Confirmation {
    pub fn octets(&self) -> &[u8; CONFIRMATION] {
        &self.0
    }

    /// Compares in constant time.
    pub fn is(&self, octets: &[u8]) -> bool {
        self.0.as_slice().ct_eq(octets).into()
    }
}

/// The parts of an IKE SA from which a resumed one begins (RFC 5723 §5).
pub(crate) struct Resumable {
    pub suite: IkeSuite,
    pub sk_d: Secret,
    /// The last postquantum preshared key in SK_d.
    pub ppk: Option<Arc<UsedPpk>>,
    /// SK_d withstands a quantum computer.
    pub quantum_safe: bool,
}

/// Nonces in the order of the exchange: initiator's, responder's.
#[derive(Clone, Copy)]
pub(crate) struct Nonces<'a> {
    pub initiator: &'a [u8],
    pub responder: &'a [u8],
}

/// The parts of an exchange that the keys of an IKE SA are derived with, beside its secrets.
#[derive(Clone, Copy)]
pub(crate) struct KeyInputs<'a> {
    pub nonces: Nonces<'a>,
    /// The original initiator's, the original responder's.
    pub spis: (IkeSpi, IkeSpi),
    pub originator: Originator,
}

/// Keys of a Child SA by direction as the exchange's initiator sees it.
pub(crate) struct ChildKeys {
    pub to_responder: Secret,
    pub to_initiator: Secret,
    /// The keying material they are derived from withstands a quantum computer; the key exchanges of the Child SA do
    /// not count here.
    pub is_quantum_safe: bool,
}

/// The first shared secret, the nonces, and the other secrets.
fn seed<'a>(shared: &'a [Secret], nonces: Nonces<'a>) -> Vec<&'a [u8]> {
    let mut secrets = shared.iter().map(Secret::expose);
    let first = secrets.next();
    first.into_iter().chain([nonces.initiator, nonces.responder]).chain(secrets).collect()
}

impl Keys {
    /// Keys of a first IKE SA: SKEYSEED = prf(Ni | Nr, g^ir).
    pub fn initial(
        crypto: &Arc<CryptoProviders>,
        suite: IkeSuite,
        shared: &Secret,
        inputs: KeyInputs<'_>,
    ) -> (Self, ProofKeys) {
        let pair = [inputs.nonces.initiator, inputs.nonces.responder];
        let by = prf::provider(crypto, suite.prf);
        let seed = prf_of_nonces(by, suite.prf, pair, &[shared.expose()]);
        let shield = Shield::of(suite.group.is_quantum_safe());
        Self::expand(crypto, (suite, shield), &seed, inputs)
    }

    /// Keys of an IKE SA that replaces this one: SKEYSEED = prf(SK_d, g^ir | Ni | Nr | SK(1) | …) with the old PRF
    /// (RFC 9370 §2.2.4). `shared` has g^ir first. `base` stands in for SK_d.
    pub fn successor(
        &self,
        suite: IkeSuite,
        shared: &[Secret],
        inputs: KeyInputs<'_>,
        base: Option<&Base>,
    ) -> Self {
        let sk_d = base.map_or(self.sk_d(), |base| base.sk_d.expose());
        let safe = self.shield.derived || base.is_some() || suite.is_quantum_safe();
        let suite = (suite, Shield::of(safe));
        let mut keys = self.renewed(suite, sk_d, shared, inputs).0;
        keys.ppk = base.map(|base| &base.ppk).or(self.ppk.as_ref()).cloned();
        keys
    }

    /// Keys after an additional key exchange before the proofs: SKEYSEED(n) = prf(SK_d(n−1), SK(n) | Ni | Nr)
    /// (RFC 9370 §2.2.2).
    pub fn after_additional(
        &self,
        (method, shared): (Group, &Secret),
        inputs: KeyInputs<'_>,
    ) -> (Self, ProofKeys) {
        let shared = std::slice::from_ref(shared);
        let suite = (self.suite, Shield::of(self.shield.derived || method.is_quantum_safe()));
        self.renewed(suite, self.sk_d(), shared, inputs)
    }

    /// The parts from which a resumed IKE SA begins.
    pub fn resumable(&self) -> Resumable {
        Resumable {
            suite: self.suite,
            sk_d: Secret::new(self.sk_d().to_vec()),
            ppk: self.ppk.clone(),
            quantum_safe: self.shield.derived,
        }
    }

    /// Keys of an IKE SA that resumes another one: SKEYSEED = prf(SK_d, "Resumption" | Ni | Nr) (RFC 5723 §5.1).
    pub fn resumed(
        crypto: &Arc<CryptoProviders>,
        old: &Resumable,
        inputs: KeyInputs<'_>,
    ) -> (Self, ProofKeys) {
        let Nonces { initiator, responder } = inputs.nonces;
        let by = prf::provider(crypto, old.suite.prf);
        let parts = [b"Resumption".as_slice(), initiator, responder];
        let seed = prf(by, old.suite.prf, old.sk_d.expose(), &parts);
        let suite = (old.suite, Shield::of(old.quantum_safe));
        let (keys, proofs) = Self::expand(crypto, suite, &seed, inputs);
        (Self { ppk: old.ppk.clone(), ..keys }, proofs)
    }

    fn renewed(
        &self,
        suite: (IkeSuite, Shield),
        sk_d: &[u8],
        shared: &[Secret],
        inputs: KeyInputs<'_>,
    ) -> (Self, ProofKeys) {
        let seed = prf(self.prf_provider(), self.suite.prf, sk_d, &seed(shared, inputs.nonces));
        Self::expand(&self.crypto, suite, &seed, inputs)
    }

    fn expand(
        crypto: &Arc<CryptoProviders>,
        (suite, shield): (IkeSuite, Shield),
        seed: &Secret,
        inputs: KeyInputs<'_>,
    ) -> (Self, ProofKeys) {
        let KeyInputs { nonces, spis, originator } = inputs;
        let protection = suite
            .protection()
            .expect("a negotiated suite has cipher and integrity that go together");
        let proof = output_len(suite.prf);
        let integrity = suite.integrity.map_or(0, integrity_key_len);
        let row = suite.encryption.row();
        let encryption = row.key_len + row.salt_len;
        let material = prf_plus(
            prf::provider(crypto, suite.prf),
            suite.prf,
            seed.expose(),
            &[nonces.initiator, nonces.responder, &spis.0.0.to_be_bytes(), &spis.1.0.to_be_bytes()],
            3 * proof + 2 * (integrity + encryption),
        );
        // RFC 7296 §2.14: {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr}.
        let (sk_d, rest) = material.expose().split_at(proof);
        let (ai, rest) = rest.split_at(integrity);
        let (ar, rest) = rest.split_at(integrity);
        let (ei, rest) = rest.split_at(encryption);
        let (er, rest) = rest.split_at(encryption);
        let (pi, pr) = rest.split_at(proof);
        let secrets = match originator {
            Originator::ThisSide => [sk_d, ei, ai, er, ar].concat(),
            Originator::Peer => [sk_d, er, ar, ei, ai].concat(),
        };
        let (secrets, crypto) = (Secret::new(secrets), Arc::clone(crypto));
        let keys = Self { suite, protection, secrets, ppk: None, shield, sealed: 0, crypto };
        let proofs =
            ProofKeys { initiator: Secret::new(pi.to_vec()), responder: Secret::new(pr.to_vec()) };
        (keys, proofs)
    }

    /// SK_d, SK_pi and SK_pr with a PPK: each is prf+(PPK, SK') (RFC 8784 §3).
    pub fn mixed(&self, id: &str, ppk: &Secret, proofs: &ProofKeys) -> Mixed {
        let proof_keys = ProofKeys {
            initiator: self.mix(ppk, proofs.initiator.expose()),
            responder: self.mix(ppk, proofs.responder.expose()),
        };
        Mixed { base: self.base(id, ppk), proof_keys }
    }

    /// SK_d with a PPK: SK_d' = prf+(PPK, SK_d) (RFC 9867 §3.2.1).
    pub fn base(&self, id: &str, ppk: &Secret) -> Base {
        Base { ppk: Arc::new(UsedPpk::of(id, ppk)), sk_d: self.mix(ppk, self.sk_d()) }
    }

    fn mix(&self, ppk: &Secret, key: &[u8]) -> Secret {
        prf_plus(self.prf_provider(), self.suite.prf, ppk.expose(), &[key], key.len())
    }

    /// Keys after a PPK before the proofs: SKEYSEED' = prf+(PPK, SK_d) (RFC 9867 §3.1.1).
    pub fn after_ppk(&self, id: &str, ppk: &Secret, inputs: KeyInputs<'_>) -> (Self, ProofKeys) {
        let Base { ppk, sk_d } = self.base(id, ppk);
        let suite = (self.suite, Shield::of(true));
        let (keys, proofs) = Self::expand(&self.crypto, suite, &sk_d, inputs);
        (Self { ppk: Some(ppk), ..keys }, proofs)
    }

    /// The confirmation of a PPK.
    pub fn confirmation(
        &self,
        ppk: &Secret,
        nonces: &[&[u8]],
        spis: (IkeSpi, IkeSpi),
    ) -> Confirmation {
        let (initiator, responder) = (spis.0.0.to_be_bytes(), spis.1.0.to_be_bytes());
        let parts = [nonces, &[&initiator[..], &responder[..]]].concat();
        let whole = prf(self.prf_provider(), self.suite.prf, ppk.expose(), &parts);
        Confirmation(*whole.expose().first_chunk().expect("a PRF makes more octets"))
    }

    /// Takes SK_d with a PPK. The keys of messages stay as they are.
    pub fn adopt(&mut self, mixed: &Mixed) {
        let Base { ppk, sk_d } = &mixed.base;
        self.secrets = Secret::new([sk_d.expose(), self.of_directions()].concat());
        self.ppk = Some(Arc::clone(ppk));
        self.shield.derived = true;
    }

    /// A copy for a sink. `spis` and `originator` as the keys were made with.
    pub fn logged(&self, spis: (IkeSpi, IkeSpi), originator: Originator) -> LoggedKeys {
        let (initiator, responder) = originator.in_order(self.ours(), self.theirs());
        let [initiator, responder] =
            [initiator, responder].map(|keys| DirectionKeys::split(&keys, self.suite.integrity));
        LoggedKeys::Ike(IkeKeys {
            initiator_spi: spis.0,
            responder_spi: spis.1,
            suite: self.suite,
            initiator,
            responder,
        })
    }

    /// KEYMAT of a Child SA: prf+(SK_d, [g^ir |] Ni | Nr [| SK(1) | …]) (RFC 9370 §2.2.4). `shared` has g^ir first,
    /// and is empty without a key exchange of the Child SA's own. `base` stands in for SK_d.
    pub fn child(
        &self,
        suite: Suite,
        shared: &[Secret],
        nonces: Nonces<'_>,
        base: Option<&Base>,
    ) -> ChildKeys {
        let len = suite.key_material_len();
        let material = prf_plus(
            self.prf_provider(),
            self.suite.prf,
            base.map_or(self.sk_d(), |base| base.sk_d.expose()),
            &seed(shared, nonces),
            2 * len,
        );
        let (to_responder, to_initiator) = material.expose().split_at(len);
        ChildKeys {
            to_responder: Secret::new(to_responder.to_vec()),
            to_initiator: Secret::new(to_initiator.to_vec()),
            is_quantum_safe: self.shield.derived || base.is_some(),
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

    /// The provider that computes this IKE SA's PRF now.
    pub fn prf_provider(&self) -> Provider {
        prf::provider(&self.crypto, self.suite.prf)
    }

    /// The cipher of the provider that serves now; `operation` is counted for each of its functions.
    fn cipher(
        &self,
        keys: Secret,
        operation: fn(Function, Provider) -> Operation,
    ) -> Box<dyn Cipher> {
        let by = self.crypto.provider(self.protection);
        self.protection.functions().for_each(|function| tally::count(operation(function, by)));
        by.cipher(self.protection, &keys).expect("a provider serves only suites that it has")
    }

    fn theirs_cipher(&self) -> Box<dyn Cipher> {
        self.cipher(self.theirs(), Operation::Decrypt)
    }

    /// Protects a message of ours, in as many datagrams as `cut` asks for.
    pub fn seal(
        &mut self,
        header: &Header,
        content: &Content,
        cut: Cut,
        rng: &mut Rng,
    ) -> Vec<Vec<u8>> {
        let cipher = self.cipher(self.ours(), Operation::Encrypt);
        let Self { protection, sealed, .. } = self;
        // An AEAD needs an IV that never repeats (RFC 5282 §4, RFC 7634 §2), CBC one that cannot be foretold
        // (RFC 3602 §3).
        fragment::seal(header, content, cut, *protection, cipher.as_ref(), || {
            let mut iv = vec![0; protection.iv_len()];
            match protection {
                Suite::AesCbcMac(..) | Suite::DesCbcMac(..) => rng.fill(&mut iv),
                Suite::AesGcm16(_) | Suite::ChaCha20Poly1305 | Suite::AesGmac(_) => {
                    iv.copy_from_slice(&sealed.to_be_bytes());
                }
                // These have no IV, and an IKE SA has none of them.
                Suite::NullMac(_) | Suite::Ah(_) => {}
            }
            *sealed += 1;
            iv
        })
    }

    /// Checks and opens a message of the peer.
    pub fn open(&self, header: &Header, datagram: &[u8]) -> Result<Content, OpenError> {
        protected::open_content(header, datagram, self.protection, self.theirs_cipher().as_ref())
    }

    /// Checks and opens a fragment of a message of the peer.
    pub fn open_fragment(&self, header: &Header, datagram: &[u8]) -> Result<Fragment, OpenError> {
        fragment::open(header, datagram, self.protection, self.theirs_cipher().as_ref())
    }

    /// Returns `true` if a datagram is from the peer; it may be a message or a fragment.
    pub fn proves(&self, header: &Header, datagram: &[u8]) -> bool {
        !(matches!(self.open(header, datagram), Err(OpenError::NotAuthentic(_)))
            && matches!(self.open_fragment(header, datagram), Err(OpenError::NotAuthentic(_))))
    }
}

#[cfg(all(test, feature = "aws-lc"))]
mod tests {
    use super::*;
    use ::crypto::{Choice, Cpu};
    use policy::{EspEncryption, Group, IkeEncryption, KeyBits, Prf};

    fn keys(crypto: &Arc<CryptoProviders>) -> Keys {
        let suite = IkeSuite {
            encryption: IkeEncryption::AesGcm16(KeyBits::B256),
            integrity: None,
            prf: Prf::HmacSha2_256,
            group: Group::Curve25519,
            additional: Default::default(),
        };
        let nonces = Nonces { initiator: &[1; 32], responder: &[2; 32] };
        let shared = Secret::new(vec![3; 32]);
        let spis = (IkeSpi(1), IkeSpi(2));
        let inputs = KeyInputs { nonces, spis, originator: Originator::ThisSide };
        Keys::initial(crypto, suite, &shared, inputs).0
    }

    #[test]
    fn the_choice_of_providers_reaches_the_ciphers_and_the_prf() {
        let aes: ::crypto::Algorithm = "aes-gcm-256".parse().expect("a name");
        let choice = Choice::of(Provider::Portable).with(aes, Provider::Ring);
        let keys = keys(&Arc::new(CryptoProviders::new(choice)));
        assert_eq!(keys.crypto.provider(keys.protection), Provider::Ring);
        assert_eq!(keys.prf_provider(), Provider::Portable);
        let before = tally::done();
        let _cipher = keys.theirs_cipher();
        let operation = Operation::Decrypt(
            Function::Cipher(EspEncryption::AesGcm16(KeyBits::B256)),
            Provider::Ring,
        );
        let count = |done: &std::collections::BTreeMap<_, u64>| done.get(&operation).copied();
        // Other tests of this process may count, too.
        assert!(count(&tally::done()) > count(&before));
    }

    /// Values of Python's hmac and hashlib.
    #[test]
    fn a_resumed_ike_sa_has_keys_that_another_program_computes() {
        let expected = [
            (
                Prf::HmacSha2_256,
                32,
                "d9f3f1b7d45adeaaf316c9e8527642b9f08ea8721de596975dce42bcbab835ec",
                "7b063e8c8d0a0d7e013050e4e91afc7729c472530f0472ddb2cdea5de66d4e68",
            ),
            (
                Prf::HmacSha2_512,
                64,
                "7ba66649211e354c7e972f3b572ed70b984e97a29f893355347cfca6ef47ed36517fa18e311314f5ef0c55c348a68a7aa1315a24e09dee82a7df469b022e4595",
                "7b8a8fb0c544f9ebc7cc3a9ae516d1bc6f111f053d5286ca7b7d245eee63bb5d825e9f874d28e841d4d118d38c1651bc0d7ea658a41a04eb99873ec3b70b1a8d",
            ),
        ];
        for (prf, len, sk_d, sk_pi) in expected {
            let suite =
                IkeSuite::new(IkeEncryption::AesGcm16(KeyBits::B256), None, prf, Group::Curve25519);
            let old = Resumable {
                suite,
                sk_d: Secret::new((0..len).collect()),
                ppk: None,
                quantum_safe: true,
            };
            let nonces = Nonces { initiator: &[0x11; 32], responder: &[0x22; 32] };
            let spis = (IkeSpi(0x0102_0304_0506_0708), IkeSpi(0x1112_1314_1516_1718));
            let of = |originator| {
                Keys::resumed(&Arc::default(), &old, KeyInputs { nonces, spis, originator })
            };
            let (initiator, proofs) = of(Originator::ThisSide);
            let hex = |digits| Secret::from_hex(digits).expect("hexadecimal digits");
            assert_eq!(initiator.sk_d(), hex(sk_d).expose(), "{prf}");
            assert!(proofs.initiator == hex(sk_pi), "{prf}");
            let (responder, _) = of(Originator::Peer);
            assert!(
                initiator.ours() == responder.theirs() && initiator.theirs() == responder.ours()
            );
            assert!(responder.resumable().quantum_safe);
        }
    }

    #[test]
    fn without_instructions_the_portable_provider_serves() {
        let all = ["AES-NI", "PCLMULQDQ", "SHA-NI", "ARMv8 AES", "ARMv8 PMULL", "ARMv8 SHA2"];
        let crypto = Arc::new(CryptoProviders::on(Cpu::with(&all), Choice::default()));
        let keys = keys(&crypto);
        let serving = || [crypto.provider(keys.protection), keys.prf_provider()];
        assert_eq!(serving(), [Provider::AwsLc; 2]);
        crypto.set_in_core(false).expect("off is always possible");
        assert_eq!(serving(), [Provider::Portable; 2]);
    }
}
