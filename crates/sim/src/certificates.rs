//! Authorities, certificates and revocation lists for scenarios: only with the feature `certificates`.

use ike::proof::certificate::Certificate;
use ike::proof::crl::Crl;
use ike::proof::trust::{Item, Material, Trust};
use ike::ticket::TicketKey;
use policy::{KeyKind, Secret};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
    CrlIssuingDistributionPoint, CrlScope, CustomExtension, DistinguishedName, DnType, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

type Keys = BTreeMap<(KeyKind, String), Arc<KeyPair>>;

/// Keys are made once for each kind and owner: those of RSA take their time.
pub fn key(kind: KeyKind, owner: &str) -> Arc<KeyPair> {
    static KEYS: LazyLock<Mutex<Keys>> = LazyLock::new(Mutex::default);
    let algorithm = match kind {
        KeyKind::Rsa => &rcgen::PKCS_RSA_SHA256,
        KeyKind::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        KeyKind::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        KeyKind::EcdsaP521 => &rcgen::PKCS_ECDSA_P521_SHA512,
        KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
    };
    let mut keys = KEYS.lock().expect("no test panics in here");
    let made = || Arc::new(KeyPair::generate_for(algorithm).expect("the system gives randomness"));
    Arc::clone(keys.entry((kind, owner.into())).or_insert_with(made))
}

/// Parameters of a certificate that is valid in the year in which every world begins.
pub fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2025, 12, 1);
    params.not_after = rcgen::date_time_ymd(2026, 12, 1);
    params
}

/// Those of a side that is called `name.example`.
pub fn of_side(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.subject_alt_names =
        vec![SanType::DnsName(format!("{name}.example").try_into().expect("ASCII"))];
    params
}

/// An authority that signs certificates.
pub struct Authority {
    params: CertificateParams,
    /// Its key.
    pub key: Arc<KeyPair>,
    /// Its certificate.
    pub der: Vec<u8>,
}

impl Authority {
    /// An authority that vouches for itself.
    pub fn root(name: &str, kind: KeyKind) -> Self {
        let params = Self::params(name);
        let key = key(kind, name);
        let der = params.self_signed(&*key).expect("signs").der().to_vec();
        Self { params, key, der }
    }

    /// An authority below this one.
    pub fn below(&self, name: &str, kind: KeyKind) -> Self {
        let params = Self::params(name);
        let key = key(kind, name);
        let der = params.signed_by(&*key, &self.issuer()).expect("signs").der().to_vec();
        Self { params, key, der }
    }

    /// An authority that this one vouches for, with other key usages than those of an authority.
    pub fn below_with(&self, name: &str, usages: Vec<KeyUsagePurpose>) -> Self {
        let mut params = Self::params(name);
        params.key_usages = usages;
        let key = key(KeyKind::EcdsaP256, name);
        let der = self.sign(&params, &key);
        Self { params, key, der }
    }

    /// A new key of this authority under its name, for which the old one vouches.
    pub fn renewed(&self, name: &str, key: Arc<KeyPair>) -> Self {
        let params = Self::params(name);
        let der = self.sign(&params, &key);
        Self { params, key, der }
    }

    /// A side, and no authority, whose subject is the name of an authority.
    pub fn side_named(&self, name: &str, side: &str) -> Self {
        let mut params = of_side(side);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = key(KeyKind::EcdsaP256, side);
        let der = self.sign(&params, &key);
        Self { params, key, der }
    }

    /// An authority of its own with this extension.
    pub fn root_with(name: &str, extension: CustomExtension) -> Self {
        let mut params = Self::params(name);
        params.custom_extensions.push(extension);
        let key = key(KeyKind::EcdsaP256, name);
        let der = params.self_signed(&*key).expect("signs").der().to_vec();
        Self { params, key, der }
    }

    /// An authority below this one with this extension.
    pub fn below_extended(&self, name: &str, extension: CustomExtension) -> Self {
        let mut params = Self::params(name);
        params.custom_extensions.push(extension);
        let key = key(KeyKind::EcdsaP256, name);
        let der = self.sign(&params, &key);
        Self { params, key, der }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }

    /// Its own certificate and key.
    pub fn own(&self) -> (Vec<u8>, Arc<KeyPair>) {
        (self.der.clone(), Arc::clone(&self.key))
    }

    /// A certificate for a key.
    pub fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Vec<u8> {
        params.signed_by(key, &self.issuer()).expect("signs").der().to_vec()
    }

    /// The list of what it has revoked, good for a week from the beginning of every world on.
    pub fn crl(&self, revoked: &[u64]) -> Vec<u8> {
        self.crl_until(revoked, 8)
    }

    /// The list of what it has revoked, good until this day of January 2026.
    pub fn crl_until(&self, revoked: &[u64], day: u8) -> Vec<u8> {
        let serials = revoked.iter().map(|serial| SerialNumber::from(*serial)).collect();
        self.crl_about(serials, day, None)
    }

    /// A list with the certificate of another authority.
    pub fn crl_against(&self, other: &Self) -> Vec<u8> {
        let other = Certificate::read(&other.der).expect("ours");
        self.crl_about(vec![SerialNumber::from_slice(other.serial())], 8, None)
    }

    /// A list of the certificates that name this address, and are of this kind.
    pub fn crl_of(&self, url: &str, scope: Option<CrlScope>) -> Vec<u8> {
        let distribution_point = CrlDistributionPoint { uris: vec![url.into()] };
        self.crl_about(vec![], 8, Some(CrlIssuingDistributionPoint { distribution_point, scope }))
    }

    fn crl_about(
        &self,
        revoked: Vec<SerialNumber>,
        day: u8,
        issuing_distribution_point: Option<CrlIssuingDistributionPoint>,
    ) -> Vec<u8> {
        let entry = |serial_number: SerialNumber| RevokedCertParams {
            serial_number,
            revocation_time: rcgen::date_time_ymd(2025, 12, 20),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2025, 12, 31),
            next_update: rcgen::date_time_ymd(2026, 1, day),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point,
            revoked_certs: revoked.into_iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer()).expect("signs").der().to_vec()
    }
}

/// The credentials of a side: its certificate and key, intermediate certificates, trusted authorities, and revocation
/// lists.
#[derive(Clone, Default)]
pub struct Wallet {
    /// Its certificates, each with its key.
    pub own: Vec<(Vec<u8>, Arc<KeyPair>)>,
    /// Intermediate certificates.
    pub between: Vec<Vec<u8>>,
    /// Certificates of the authorities that it trusts.
    pub trusted: Vec<Vec<u8>>,
    /// Revocation lists.
    pub crls: Vec<Vec<u8>>,
    /// Answers of OCSP responders about its own certificate.
    pub ocsp: Vec<Vec<u8>>,
    /// Postquantum preshared keys.
    pub ppks: BTreeMap<String, Secret>,
    /// Keys of tickets of session resumption.
    pub ticket_keys: Vec<TicketKey>,
    /// A certificate whose revocation is unknown is accepted.
    pub lenient: bool,
    /// How old such answers of peers may be.
    pub ocsp_max_age: Option<Duration>,
}

impl Wallet {
    /// The trust store of it.
    ///
    /// # Panics
    /// Where a credential has a defect.
    pub fn trust(&self) -> Arc<Trust> {
        let item = |der: &Vec<u8>| Item { name: "item".into(), der: der.clone() };
        let own = self.own.iter().map(|(der, _)| der);
        let secret =
            |key: &Arc<KeyPair>| Item { name: "key".into(), der: Secret::new(key.serialize_der()) };
        let (trust, defects) = Trust::new(Material {
            outside_keys: Vec::new(),
            authorities: self.trusted.iter().map(item).collect(),
            certificates: own.chain(&self.between).map(item).collect(),
            keys: self.own.iter().map(|(_, key)| secret(key)).collect(),
            crls: self.crls.iter().map(item).collect(),
            ocsp: self.ocsp.iter().map(item).collect(),
            lenient_revocation: self.lenient,
            ocsp_max_age: self.ocsp_max_age,
            ppks: self.ppks.clone(),
            ticket_keys: self.ticket_keys.clone(),
        });
        assert_eq!(defects, []);
        Arc::new(trust)
    }
}

/// Adds the address of the issuer's revocation list.
pub fn with_crl_at(mut params: CertificateParams, url: &str) -> CertificateParams {
    params.crl_distribution_points = vec![CrlDistributionPoint { uris: vec![url.into()] }];
    params
}

/// Reads a list as a fetcher does.
pub fn read_crl(der: &[u8]) -> Arc<Crl> {
    Arc::new(Crl::read(der).expect("a list"))
}
