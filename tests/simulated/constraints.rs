//! Name constraints of authorities (RFC 5280 §4.2.1.10), for each type of name.

use crate::certificates::{comes_up, is_bad, side, site, wallet};
use crate::der::{content, parts, tlv};
use policy::KeyKind;
use rcgen::{CertificateParams, CustomExtension, DnType, OtherNameValue, SanType};
use sim::certificates::{Authority, Wallet, of_side};
use std::net::IpAddr;

const MAIL: u8 = 0x81;
const DOMAIN: u8 = 0x82;
const DIRECTORY: u8 = 0xa4;
const URI: u8 = 0x86;
const ADDRESS: u8 = 0x87;
const OTHER: u8 = 0xa0;
const REGISTERED: u8 = 0x88;

/// userPrincipalName of Active Directory.
const UPN: [u64; 10] = [1, 3, 6, 1, 4, 1, 311, 20, 2, 3];
/// SmtpUTF8Mailbox (RFC 9598).
const UTF8_MAILBOX: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 8, 9];

/// `/O=…` with more RDNs below it.
fn directory(organization: &str, string_type: u8, below: &[&str]) -> Vec<u8> {
    let rdn = |oid: u8, kind: u8, text: &str| {
        let oid = [0x06, 0x03, 0x55, 0x04, oid];
        let attribute = tlv(0x30, &[&oid, &tlv(kind, &[text.as_bytes()])]);
        tlv(0x31, &[&attribute])
    };
    let below: Vec<u8> = below.iter().flat_map(|unit| rdn(11, 0x0c, unit)).collect();
    tlv(0x30, &[&rdn(10, string_type, organization), &below])
}

/// An otherName of a type that is written in DER, with a text.
fn other(oid: &[u8], text: &str) -> Vec<u8> {
    [tlv(0x06, &[oid]), tlv(0xa0, &[&tlv(0x0c, &[text.as_bytes()])])].concat()
}

const UPN_OID: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x14, 0x02, 0x03];

/// Constraints: permitted subtrees, then excluded ones, each with the tag of its type.
#[derive(Clone, Default)]
struct Constraints {
    permitted: Vec<Vec<u8>>,
    excluded: Vec<Vec<u8>>,
}

impl Constraints {
    fn permit(mut self, kind: u8, base: &[u8]) -> Self {
        self.permitted.push(tlv(0x30, &[&tlv(kind, &[base])]));
        self
    }

    fn exclude(mut self, kind: u8, base: &[u8]) -> Self {
        self.excluded.push(tlv(0x30, &[&tlv(kind, &[base])]));
        self
    }

    fn extension(&self, critical: bool) -> CustomExtension {
        let list = |tag: u8, subtrees: &[Vec<u8>]| match subtrees {
            [] => vec![],
            some => tlv(tag, &[&some.concat()]),
        };
        let content = [list(0xa0, &self.permitted), list(0xa1, &self.excluded)].concat();
        let mut extension =
            CustomExtension::from_oid_content(&[2, 5, 29, 30], tlv(0x30, &[&content]));
        extension.set_criticality(critical);
        extension
    }
}

fn permit(kind: u8, base: &[u8]) -> Constraints {
    Constraints::default().permit(kind, base)
}

fn exclude(kind: u8, base: &[u8]) -> Constraints {
    Constraints::default().exclude(kind, base)
}

fn with(names: &[SanType]) -> CertificateParams {
    let mut params = of_side("left");
    params.subject_alt_names.extend(names.iter().cloned());
    params
}

fn mail(address: &str) -> CertificateParams {
    with(&[SanType::Rfc822Name(address.try_into().expect("ASCII"))])
}

fn uri(uri: &str) -> CertificateParams {
    with(&[SanType::URI(uri.try_into().expect("ASCII"))])
}

fn domain(name: &str) -> CertificateParams {
    with(&[SanType::DnsName(name.try_into().expect("ASCII"))])
}

fn address(address: &str) -> CertificateParams {
    with(&[SanType::IpAddress(address.parse::<IpAddr>().expect("an address"))])
}

/// A certificate whose subject begins with an organization.
fn subject(organization: &str) -> CertificateParams {
    let mut params = of_side("left");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, "left");
    params
}

fn principal(name: &str) -> CertificateParams {
    with(&[SanType::OtherName((UPN.to_vec(), OtherNameValue::Utf8String(name.into())))])
}

/// The sides where the trusted authority has these constraints, where one below it has them, and where both do.
fn chains(constraints: &Constraints, params: &CertificateParams) -> [(Wallet, Wallet); 3] {
    let extension = || constraints.extension(true);
    let right = |root: &Authority| {
        let unbound = Authority::root("unbound", KeyKind::EcdsaP256);
        let trusted = vec![root.der.clone(), unbound.der.clone()];
        Wallet { trusted, ..side(&unbound, KeyKind::EcdsaP256, "right") }
    };
    let left = |root: &Authority, issuer: &Authority, between: Vec<Vec<u8>>| Wallet {
        between,
        trusted: right(root).trusted,
        ..wallet(issuer, KeyKind::EcdsaP256, "left", params)
    };
    let (bound, free) =
        (Authority::root_with("root", extension()), Authority::root("root", KeyKind::EcdsaP256));
    let below = free.below_extended("middle", extension());
    // The authority in the middle has a name itself, which its own authority may not be allowed to give.
    let lower = below.below("lower", KeyKind::EcdsaP256);
    [
        (left(&bound, &bound, vec![]), right(&bound)),
        (left(&free, &below, vec![below.der.clone()]), right(&free)),
        (left(&free, &lower, vec![lower.der.clone(), below.der.clone()]), right(&free)),
    ]
}

/// A certificate with these names comes up under these constraints.
fn is_permitted(constraints: &Constraints, params: &CertificateParams) {
    for (left, right) in chains(constraints, params) {
        comes_up(&site(), &left, &right);
    }
}

/// It is refused, and the refusal has these words.
fn is_refused(constraints: &Constraints, params: &CertificateParams, words: &[&str]) {
    for (left, right) in chains(constraints, params) {
        is_bad(&left, &right, words);
    }
}

#[test]
fn mail_addresses_are_of_a_mailbox_a_host_or_a_domain() {
    for (base, good, bad) in [
        ("vpn.example.net", "ops@VPN.example.net", "ops@a.vpn.example.net"),
        (".example.net", "ops@vpn.EXAMPLE.net", "ops@example.net"),
        (".example.net", "ops@a.vpn.example.net", "ops@vpnexample.net"),
        ("ops@vpn.example.net", "ops@vpn.EXAMPLE.net", "Ops@vpn.example.net"),
        ("", "ops@vpn.example.net", ""),
    ] {
        is_permitted(&permit(MAIL, base.as_bytes()), &mail(good));
        if !bad.is_empty() {
            let words =
                ["CN=left (issued by CN=", &format!("the mail address {bad}"), "permit only", base];
            is_refused(&permit(MAIL, base.as_bytes()), &mail(bad), &words);
        }
        let words = [&format!("the mail address {good}")[..], "exclude", base];
        is_refused(&exclude(MAIL, base.as_bytes()), &mail(good), &words);
        if !bad.is_empty() {
            is_permitted(&exclude(MAIL, base.as_bytes()), &mail(bad));
        }
    }
    let both = permit(MAIL, b".example.net").permit(MAIL, b"example.org");
    is_permitted(&both, &mail("a@example.org"));
    let both = both.exclude(MAIL, b"lab.example.net");
    is_permitted(&both, &mail("a@vpn.example.net"));
    is_refused(&both, &mail("a@lab.example.net"), &["a@lab.example.net", "exclude"]);
    is_refused(&both, &mail("a@example.com"), &["permit only .example.net, example.org"]);
    // No host can be compared.
    let words = ["the mail address nobody", "has no host"];
    is_refused(&permit(MAIL, b".example.net"), &mail("nobody"), &words);
    is_refused(&exclude(MAIL, b".example.net"), &mail("nobody"), &words);
}

#[test]
fn a_mail_address_in_the_subject_or_in_unicode_counts_as_well() {
    let mut params = of_side("left");
    let email = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
    params.distinguished_name.push(email, "ops@evil.example");
    let words = ["the mail address ops@evil.example", "exclude"];
    is_refused(&exclude(MAIL, b"evil.example"), &params, &words);
    is_refused(&permit(MAIL, b".example.net"), &params, &["permit only .example.net"]);
    is_permitted(&permit(MAIL, b"evil.example"), &params);

    let unicode = OtherNameValue::Utf8String("µ@example.net".into());
    let unicode = with(&[SanType::OtherName((UTF8_MAILBOX.to_vec(), unicode))]);
    let words = ["otherName 1.3.6.1.5.5.7.8.9", "mail address", "not supported"];
    is_refused(&permit(MAIL, b"example.net"), &unicode, &words);
    is_permitted(&permit(URI, b"example.net"), &unicode);
}

#[test]
fn uris_are_judged_by_their_host() {
    for (base, good, bad) in [
        ("vpn.example.net", "https://VPN.example.net:8443/a?b", "https://a.vpn.example.net/"),
        (".example.net", "ike://user@vpn.example.net", "https://example.net/"),
        (".example.net", "https://vpn.example.net#a@b", "https://vpnexample.net/"),
        (
            ".example.net",
            "https://vpn.example.net/a@evil.example",
            "https://vpn.example.net@evil.example/",
        ),
    ] {
        is_permitted(&permit(URI, base.as_bytes()), &uri(good));
        let words = [&format!("the URI {bad}")[..], "permit only", base];
        is_refused(&permit(URI, base.as_bytes()), &uri(bad), &words);
        is_refused(&exclude(URI, base.as_bytes()), &uri(good), &["the URI", "exclude", base]);
        is_permitted(&exclude(URI, base.as_bytes()), &uri(bad));
    }
    // RFC 5280: a URI without a host that is a domain name is refused.
    for bad in [
        "urn:ietf:rfc:5280",
        "https://192.0.2.1/",
        "https://[2001:db8::1]/",
        "https:///path",
        "https://evil.example\\.vpn.example.net/",
        "https://evil%2eexample/",
    ] {
        is_refused(&permit(URI, b".example.net"), &uri(bad), &["the URI", "no domain name"]);
        is_refused(&exclude(URI, b".example.net"), &uri(bad), &["the URI", "no domain name"]);
    }
}

#[test]
fn directory_names_begin_with_those_that_are_permitted() {
    let of = |organization| directory(organization, 0x13, &[]);
    // String types and case make no difference.
    let mut permitted = permit(DIRECTORY, &of("EXAMPLE"));
    // The names of the authorities between are no exception.
    for name in ["middle", "lower"] {
        let rdn =
            tlv(0x31, &[&tlv(0x30, &[&[0x06, 3, 0x55, 4, 3], &tlv(0x0c, &[name.as_bytes()])])]);
        permitted = permitted.permit(DIRECTORY, &tlv(0x30, &[&rdn]));
    }
    is_permitted(&permitted, &subject("Example"));
    let words = ["the directory name CN=left,O=Other", "permit only", "O=EXAMPLE"];
    is_refused(&permitted, &subject("Other"), &words);
    let longer = directory("Example", 0x0c, &["Lab"]);
    is_permitted(&exclude(DIRECTORY, &longer), &subject("Example"));
    let words = ["the directory name CN=left,O=Example", "exclude O=example"];
    is_refused(&exclude(DIRECTORY, &of("example")), &subject("Example"), &words);
    is_permitted(&exclude(DIRECTORY, &of("other")), &subject("Example"));
    // Octets of a string type that is not compared might be the same text.
    let words = ["the directory name", "cannot be compared"];
    is_refused(&exclude(DIRECTORY, &directory("Example", 0x14, &[])), &subject("Example"), &words);
}

#[test]
fn domain_names_and_addresses_are_named_in_a_refusal() {
    is_permitted(&permit(DOMAIN, b"left.example"), &of_side("left"));
    let words = ["the domain name other.example", "permit only left.example"];
    is_refused(&permit(DOMAIN, b"left.example"), &domain("other.example"), &words);
    let words = ["the domain name lab.left.example", "exclude lab.left.example"];
    is_refused(&exclude(DOMAIN, b"lab.left.example"), &domain("lab.left.example"), &words);
    is_refused(
        &exclude(DOMAIN, b"lab.left.example"),
        &domain("*.left.example"),
        &["*.left.example"],
    );
    let network = [192, 0, 2, 0, 255, 255, 255, 0];
    is_permitted(&permit(ADDRESS, &network), &address("192.0.2.1"));
    let words = ["the IP address 198.51.100.1", "permit only 192.0.2.0/255.255.255.0"];
    is_refused(&permit(ADDRESS, &network), &address("198.51.100.1"), &words);
    is_refused(&permit(ADDRESS, &network), &address("2001:db8::1"), &["2001:db8::1"]);
    is_refused(&exclude(ADDRESS, &network), &address("192.0.2.1"), &["exclude 192.0.2.0"]);
    // Constraints of several types are checked each by itself.
    let all = permit(DOMAIN, b"left.example").permit(ADDRESS, &network).permit(MAIL, b"a.example");
    is_permitted(
        &all,
        &with(&[
            SanType::IpAddress([192, 0, 2, 7].into()),
            SanType::Rfc822Name("b@a.example".try_into().expect("ASCII")),
        ]),
    );
    is_refused(&all, &address("198.51.100.1"), &["198.51.100.1"]);
    is_refused(&all, &domain("other.example"), &["other.example"]);
}

#[test]
fn constraints_of_types_that_are_not_supported_are_told() {
    let upn = other(UPN_OID, ".example.net");
    let words = [
        "CN=left (issued by CN=",
        "the otherName 1.3.6.1.4.1.311.20.2.3",
        "not supported",
        "have it issued without this name",
    ];
    is_refused(&permit(OTHER, &upn), &principal("a@vpn.example.net"), &words);
    is_refused(&exclude(OTHER, &upn), &principal("a@vpn.example.net"), &words);
    // Another type of name, also among the other names, is none of its matter.
    is_permitted(&permit(OTHER, &upn), &mail("a@vpn.example.net"));
    let jabber = OtherNameValue::Utf8String("a@b".into());
    let jabber = with(&[SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 5], jabber))]);
    is_permitted(&permit(OTHER, &upn), &jabber);
    is_permitted(&permit(REGISTERED, &[0x2a, 0x03]), &jabber);
}

#[test]
fn constraints_that_cannot_be_read_or_are_not_critical_count() {
    let root = Authority::root_with("root", permit(MAIL, b"example.net").extension(false));
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let left = wallet(&root, KeyKind::EcdsaP256, "left", &mail("a@example.org"));
    is_bad(&left, &right, &["the mail address a@example.org", "permit only example.net"]);

    // The type x400Address, in a constraint that no name of the certificate has: no one knows whether it is met.
    let (left, right) = {
        let constraints = exclude(0xa3, &[0x30, 0x00]).extension(true);
        let root = Authority::root("root", KeyKind::EcdsaP256);
        let middle = root.below_extended("middle", constraints);
        let left = Wallet {
            between: vec![middle.der.clone()],
            trusted: vec![root.der.clone()],
            ..wallet(&middle, KeyKind::EcdsaP256, "left", &of_side("left"))
        };
        (left, side(&root, KeyKind::EcdsaP256, "right"))
    };
    is_bad(&left, &right, &["CN=middle", "has name constraints that cannot be read"]);
}

#[test]
fn a_copy_of_an_authority_without_its_constraints_changes_nothing() {
    // The holder of a constrained authority sends its certificate with the constraints cut out, too.
    let root = Authority::root("root", KeyKind::EcdsaP256);
    let constraints = permit(MAIL, b"example.net").extension(true);
    let whole = root.below_extended("middle", constraints);
    let cut = without_constraints(&whole.der);
    let right = side(&root, KeyKind::EcdsaP256, "right");
    let left = |between: Vec<Vec<u8>>| Wallet {
        between,
        trusted: vec![root.der.clone()],
        ..wallet(&whole, KeyKind::EcdsaP256, "left", &mail("a@example.org"))
    };
    let unsigned = ["CN=left", "not signed by the key of its issuer"];
    is_bad(&left(vec![cut.clone(), whole.der.clone()]), &right, &unsigned);
    is_bad(
        &left(vec![whole.der.clone(), cut.clone()]),
        &right,
        &["the mail address a@example.org"],
    );
    is_bad(&left(vec![cut]), &right, &unsigned);
}

/// The certificate with the extension nameConstraints removed and everything else, signature too, as it was.
fn without_constraints(der: &[u8]) -> Vec<u8> {
    let certificate = parts(der);
    let mut tbs = parts(certificate[0]);
    let extensions = tbs.pop().expect("extensions");
    let mut kept = parts(parts(extensions)[0]);
    kept.retain(|extension| !content(extension).starts_with(&[0x06, 0x03, 0x55, 0x1d, 0x1e]));
    let extensions = tlv(0xa3, &[&tlv(0x30, &kept)]);
    tbs.push(&extensions);
    tlv(0x30, &[&tlv(0x30, &tbs), certificate[1], certificate[2]])
}
