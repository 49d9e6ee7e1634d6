//! One authority, a certificate for either side, and a postquantum preshared key for both.

use ike::proof::trust::{Item, Material, Trust};
use policy::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Name of the postquantum preshared key that both sides have.
pub(super) const PPK: &str = "k";

/// The trusted and own certificates of the left and the right side; made once, because it takes its time.
static SIDES: LazyLock<[Arc<Trust>; 2]> = LazyLock::new(|| {
    let mut authority = params("authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = key();
    let root = authority.self_signed(&key).expect("signs").der().to_vec();
    let issuer = Issuer::from_params(&authority, &key);
    ["left.example", "right.example"].map(|name| side(name, &root, &issuer))
});

/// The trusted and own certificates of both sides.
pub(super) fn sides() -> [Arc<Trust>; 2] {
    SIDES.clone()
}

fn side(name: &str, root: &[u8], issuer: &Issuer<'_, &KeyPair>) -> Arc<Trust> {
    let mut params = params(name);
    params.subject_alt_names = vec![SanType::DnsName(name.try_into().expect("ASCII"))];
    let key = key();
    let certificate = params.signed_by(&key, issuer).expect("signs").der().to_vec();
    let item = |der: &[u8]| Item { name: name.into(), der: der.to_vec() };
    let (trust, defects) = Trust::new(Material {
        authorities: vec![item(root)],
        certificates: vec![item(&certificate)],
        keys: vec![Item { name: name.into(), der: Secret::new(key.serialize_der()) }],
        ppks: BTreeMap::from([(PPK.to_owned(), Secret::new(vec![7; 32]))]),
        ..Material::default()
    });
    assert_eq!(defects, []);
    Arc::new(trust)
}

/// Parameters of a certificate that is valid in the year in which every world begins.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2025, 12, 1);
    params.not_after = rcgen::date_time_ymd(2026, 12, 1);
    params
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("the system gives randomness")
}
