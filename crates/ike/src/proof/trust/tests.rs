use super::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
}

fn params(name: &str, authority: bool) -> CertificateParams {
    let mut params = CertificateParams::new(vec![format!("{name}.example")]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    if authority {
        params.subject_alt_names.clear();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    params
}

fn root(name: &str) -> Authority {
    let key = KeyPair::generate().expect("a key");
    let certificate = params(name, true).self_signed(&key).expect("signs");
    let der = certificate.der().to_vec();
    Authority { issuer: Issuer::new(params(name, true), key), der }
}

fn below(authority: &Authority, name: &str) -> Authority {
    let key = KeyPair::generate().expect("a key");
    let certificate = params(name, true).signed_by(&key, &authority.issuer).expect("signs");
    let der = certificate.der().to_vec();
    Authority { issuer: Issuer::new(params(name, true), key), der }
}

fn side(authority: &Authority, name: &str, key: &KeyPair) -> Vec<u8> {
    let certificate = params(name, false).signed_by(key, &authority.issuer).expect("signs");
    certificate.der().to_vec()
}

fn item(name: &str, der: Vec<u8>) -> Item {
    Item { name: name.into(), der }
}

fn secret(name: &str, key: &KeyPair) -> Item<Secret> {
    Item { name: name.into(), der: Secret::new(key.serialize_der()) }
}

fn fqdn(name: &str) -> Identity {
    Identity::Fqdn(name.into())
}

#[test]
fn a_chain_is_put_together_from_what_lies_around() {
    let (top, other) = (root("top"), root("other"));
    let middle = below(&top, "middle");
    let low = below(&middle, "low");
    let key = KeyPair::generate().expect("a key");
    let leaf = side(&low, "gate", &key);
    let certificates = [&low.der, &other.der, &leaf, &top.der, &middle.der, &leaf];
    let certificates = certificates.iter().map(|der| item("c", der.to_vec())).collect();
    let (trust, defects) = Trust::new(Material {
        authorities: vec![item("top", top.der.clone())],
        certificates,
        keys: vec![secret("k", &key)],
        ..Material::default()
    });
    assert_eq!(defects, []);
    let [own] = &trust.own[..] else { panic!("one own certificate: {trust:?}") };
    let chain: Vec<&[u8]> = own.chain.iter().map(Certificate::der).collect();
    assert_eq!(chain, [&leaf[..], &low.der, &middle.der], "without the authority");
    assert!(own.authorities.contains(&trust.authority_hashes()[0]));
    let roles: Vec<Role> = trust.listing().iter().map(|l| l.role).collect();
    let middle = Role::Intermediate;
    assert_eq!(roles, [Role::Authority, middle, middle, Role::Own, middle, middle]);
    let listed = &trust.listing()[3];
    assert_eq!((listed.subject.as_str(), listed.issuer.as_str()), ("CN=gate", "CN=low"));
    assert_eq!(
        (listed.names.as_slice(), listed.key),
        (&["gate.example".to_owned()][..], Some((KeyKind::EcdsaP256, 256)))
    );
}

#[test]
fn material_that_does_not_go_together_is_told() {
    let top = root("top");
    let (key, stray) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let leaf = side(&top, "gate", &key);
    let (trust, defects) = Trust::new(Material {
        authorities: vec![item("leaf-as-ca", leaf.clone()), item("junk", vec![1, 2, 3])],
        certificates: vec![item("keyless", leaf)],
        keys: vec![
            secret("stray", &stray),
            Item { name: "no-key".into(), der: Secret::new(vec![0x30, 0]) },
        ],
        crls: vec![item("crl", vec![0x30, 0])],
        ..Material::default()
    });
    let told: Vec<String> = defects.iter().map(ToString::to_string).collect();
    let expected = [
        "junk: the certificate cannot be read",
        "leaf-as-ca: is not the certificate of an authority",
        "no-key: is no private key",
        "keyless: has no private key here",
        "stray: belongs to no certificate here",
        "crl: the revocation list cannot be read",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}");
    }
    assert_eq!(trust.listing(), []);
}

#[test]
fn an_own_certificate_is_found_by_name_and_kind() {
    let top = root("top");
    let key = KeyPair::generate().expect("a key");
    let certificates =
        vec![item("a", side(&top, "gate", &key)), item("b", side(&top, "gate2", &key))];
    let (trust, defects) =
        Trust::new(Material { certificates, keys: vec![secret("k", &key)], ..Material::default() });
    assert_eq!(defects, [], "one key may serve several certificates");
    let kinds = [KeyKind::EcdsaP256];
    assert_eq!(trust.check_own(&fqdn("GATE.example"), &kinds), Ok(()));
    let name = Identity::Dn("CN=gate2".parse().expect("a name"));
    assert_eq!(trust.check_own(&name, &kinds), Ok(()));
    let other = trust.check_own(&fqdn("other.example"), &kinds).expect_err("nobody is that");
    assert!(
        other.contains("those with a private key are for CN=gate, gate.example; CN=gate2"),
        "{other}"
    );
    let kind = trust.check_own(&fqdn("gate.example"), &[KeyKind::Rsa]).expect_err("not RSA");
    assert!(kind.contains("ECDSA P-256, the policy wants RSA"), "{kind}");
}
