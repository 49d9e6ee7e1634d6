//! The policy with certificates as it stands among the samples: X.500 names, RSA keys, revocation lists, IPv6.

use libtest_mimic::Trial;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{changed, exchange};
use testkit::space::Space;
use testkit::{GATEWAYS, Need, PINGED, output, shows, test, until};

const POLICY: &str = include_str!("../../crates/policy/fixtures/04_ikev2_certificates_dn_ipv6.xml");
const WITH_OPENSSL: &[Need] =
    &[Need::Root, Need::Namespaces, Need::Tun, Need::Program("ip"), Need::Program("openssl")];

pub fn trials() -> Vec<Trial> {
    vec![
        test("the sample policy with certificates", PINGED, the_sample_policy),
        test(
            "answers of an OCSP responder in place of lists",
            WITH_OPENSSL,
            answers_of_a_responder,
        ),
        test("a certificate that is missing is told at once", GATEWAYS, a_missing_certificate),
        test("a responder's own certificate out of time", GATEWAYS, out_of_time),
        test("a revocation list that expires soon is told", GATEWAYS, list_expires_soon),
    ]
}

/// The policy seen from both ends. Only the first begins by itself: a tunnel that it takes down stays down.
pub fn policies() -> [String; 2] {
    let names = exchange(POLICY, "left.example.net", "right.example.net");
    let networks = exchange(&names, "2001:db8:1:", "2001:db8:2:");
    let other = exchange(&networks, "::10\"", "::20\"");
    [POLICY.to_owned(), changed(&other, "_Flags_AutoStart=\"Yes\"", "_Flags_AutoStart=\"No\"")]
}

/// Both gateways of the policy, without certificates yet.
fn two() -> [Gateway; 2] {
    two_of(policies())
}

pub fn two_of([left, right]: [String; 2]) -> [Gateway; 2] {
    let [left, right] = [("left", left), ("right", right)].map(|(name, policy)| {
        let gateway = Gateway::new(name, &policy, PATIENT, "");
        let config = gateway.path("vpnd.toml");
        let text = fs::read_to_string(&config).expect("it was written");
        let directory = gateway.path("certificates");
        let text = format!("{text}[certificates]\ndirectory = {directory:?}\n");
        fs::write(config, text).expect("writable");
        gateway
    });
    Space::connect(
        (&left.space, "wire", &["2001:db8:1::10/32"]),
        (&right.space, "wire", &["2001:db8:2::20/32"]),
    );
    left.space.ip("address add 2001:db8:1:100::1/128 dev lo");
    right.space.ip("address add 2001:db8:2:100::1/128 dev lo");
    [left, right]
}

/// An authority and its list.
pub struct Authority {
    der: Vec<u8>,
    list: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("root")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = rsa();
        let der = params.self_signed(&key).expect("signs").der().to_vec();
        let issuer = Issuer::new(params, key);
        let list = signed(&issuer, list(vec![]));
        Self { der, list, issuer }
    }

    /// From now on, its list has the certificates of this serial number.
    pub fn revoke(&mut self, serial: u64) {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        self.list = signed(&self.issuer, list(vec![revoked]));
    }

    /// From now on, its list has so many days left of a year.
    fn expires_in(&mut self, days: u32) {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let now = UNIX_EPOCH.elapsed().expect("a clock after 1970");
        let next_update = date_time_ymd(1970, 1, 1) + now + days * DAY;
        let this_update = next_update - 365 * DAY;
        let list = CertificateRevocationListParams { this_update, next_update, ..list(vec![]) };
        self.list = signed(&self.issuer, list);
    }

    /// Gives a gateway all it needs to be the host of that name.
    pub fn equip(&self, gateway: &Gateway, host: &str) {
        self.equip_for(gateway, host, [2020, 2900]);
    }

    /// The same, with a certificate that is valid from the first of these years to the second.
    pub fn equip_for(&self, gateway: &Gateway, host: &str, [from, until]: [i32; 2]) {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.serial_number = Some(SerialNumber::from(serial(host)));
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let mut name = DistinguishedName::new();
        name.push(DnType::CountryName, "NL");
        name.push(DnType::OrganizationName, "Example");
        name.push(DnType::OrganizationalUnitName, "Lab");
        name.push(DnType::CommonName, host);
        params.distinguished_name = name;
        let key = rsa();
        let own = params.signed_by(&key, &self.issuer).expect("signs").der().to_vec();
        let directory = gateway.path("certificates");
        write(&directory.join("ca/root.der"), &self.der);
        write(&directory.join("certs/own.der"), &own);
        write(&directory.join("private/own.der"), key.serialized_der());
        write(&directory.join("crls/root.crl"), &self.list);
    }
}

fn list(revoked_certs: Vec<RevokedCertParams>) -> CertificateRevocationListParams {
    CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2900, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    }
}

fn signed(issuer: &Issuer<'_, KeyPair>, list: CertificateRevocationListParams) -> Vec<u8> {
    list.signed_by(issuer).expect("signs").der().to_vec()
}

/// The serial number of a host's certificate.
pub fn serial(host: &str) -> u64 {
    host.bytes().map(u64::from).sum()
}

fn rsa() -> KeyPair {
    KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key")
}

fn write(path: &Path, octets: &[u8]) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("writable");
    fs::write(path, octets).expect("writable");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("ours");
}

fn the_sample_policy() {
    let [mut left, mut right] = two();
    let authority = Authority::new();
    authority.equip(&left, "left.example.net");
    authority.equip(&right, "right.example.net");
    left.configure("[log]\nlevel = \"trace\"\n");
    right.start();
    left.start();
    // The policy has it started with the daemon.
    let up =
        || (left.json(&["status", "cert_d", "--json"])["state"] == "established").then_some(());
    until("the tunnel", up, || left.ctl_ok(&["status", "cert_k"]));
    left.space
        .pings("-6 -I 2001:db8:1:100::1", 3, "2001:db8:2:100::1")
        .expect("the networks reach each other");

    let status = left.json(&["status", "cert_k", "--json"]);
    assert_eq!(status["remote_id"], "CN=right.example.net,OU=Lab,O=Example,C=NL");
    let certs = left.json(&["certs", "--json"]);
    let certs = certs.as_array().expect("an array");
    let roles: Vec<_> = certs.iter().map(|c| c["role"].as_str().unwrap_or_default()).collect();
    assert_eq!(roles, ["authority", "own", "revocation_list"]);
    assert_eq!(certs[1]["subject"], "CN=left.example.net,OU=Lab,O=Example,C=NL");
    assert_eq!(certs[1]["key"], "RSA 2048");
    assert_eq!(certs[1]["tunnels"], serde_json::json!(["cert_k"]));

    left.await_log(&["\"level\":\"TRACE\""]);
    let log = left.log();
    let key = fs::read(left.path("certificates/private/own.der")).expect("it was written");
    // Behind the modulus, which is in the certificate, too.
    for part in key[400..].chunks_exact(8) {
        let secret: String = part.iter().map(|octet| format!("{octet:02x}")).collect();
        assert!(!shows(&log, &secret), "the log shows a part of the private key");
    }
}

impl Authority {
    /// Puts an answer about a gateway's certificate, made by `openssl`, in the place of the list.
    fn answer(&self, gateway: &Gateway) {
        let directory = gateway.path("responder");
        let file = |name: &str| directory.join(name);
        let own = gateway.path("certificates/certs/own.der");
        write(&file("root.key"), self.issuer.key().serialized_der());
        write(&file("root.der"), &self.der);
        let mut serial = Command::new("openssl");
        serial.args(["x509", "-noout", "-serial", "-in"]).arg(&own);
        let serial = output(serial);
        let serial = serial.trim().strip_prefix("serial=").expect("openssl says so");
        let index = format!("V\t491231000000Z\t\t{serial}\tunknown\t/CN=own\n");
        write(&file("index.txt"), index.as_bytes());
        let answer = gateway.path("certificates/ocsp/own.ocsp");
        fs::create_dir_all(answer.parent().expect("a directory")).expect("writable");
        let mut responder = Command::new("openssl");
        responder.args(["ocsp", "-ndays", "5", "-index"]).arg(file("index.txt"));
        for (option, path) in [("-CA", "root.der"), ("-rsigner", "root.der"), ("-rkey", "root.key")]
        {
            responder.arg(option).arg(file(path));
        }
        responder.arg("-issuer").arg(file("root.der")).arg("-cert").arg(own);
        responder.arg("-respout").arg(answer);
        output(responder);
        fs::remove_file(gateway.path("certificates/crls/root.crl")).expect("it was written");
    }
}

fn answers_of_a_responder() {
    let [mut left, mut right] = two();
    let authority = Authority::new();
    for (gateway, host) in [(&left, "left.example.net"), (&right, "right.example.net")] {
        authority.equip(gateway, host);
        authority.answer(gateway);
    }
    right.start();
    left.start();
    let up =
        || (left.json(&["status", "cert_d", "--json"])["state"] == "established").then_some(());
    until("the tunnel", up, || left.ctl_ok(&["status", "cert_k"]));
    let certs = left.ctl_ok(&["certs"]);
    let line = certs.lines().find(|line| line.starts_with("OCSP response")).expect("it is listed");
    // Five days, less the time since it was made.
    let lasts = ["(in 4 days)", "(in 5 days)"].iter().any(|text| line.contains(text));
    assert!(line.contains("CN=left.example.net") && lasts, "{line}");

    // Without its answer the peer is no longer believed.
    left.ctl_ok(&["deactivate", "cert_k"]);
    fs::remove_file(right.path("certificates/ocsp/own.ocsp")).expect("it was written");
    right.ctl_ok(&["reload"]);
    let said = left.ctl_fails(&["activate", "cert_k"], 1);
    assert!(said.contains("CN=right.example.net") && said.contains("is not known"), "{said}");
}

fn a_missing_certificate() {
    let [mut left, mut right] = two();
    Authority::new().equip(&right, "right.example.net");
    right.start();
    left.start();
    left.await_log(&[
        "WARN",
        "tunnel cert_k: no certificate of this side is for CN=left.example.net",
    ]);
    let said = left.ctl_fails(&["activate", "cert_k"], 1);
    assert!(said.contains("no certificate of this side is for CN=left.example.net"), "{said}");
    assert!(said.contains("add one, or name this side as its certificate does"), "{said}");
}

fn out_of_time() {
    let cases =
        [([2001, 2002], "has expired on 2002-01-01"), ([2800, 2900], "is not valid before 2800")];
    for (years, words) in cases {
        let [left, right] = policies();
        let left = changed(&left, "_Flags_AutoStart=\"Yes\"", "_Flags_AutoStart=\"No\"");
        let [mut left, mut right] = two_of([left, right]);
        let authority = Authority::new();
        authority.equip(&left, "left.example.net");
        authority.equip_for(&right, "right.example.net", years);
        right.start();
        left.start();
        right.await_log(&["WARN", "tunnel cert_k cannot come up", words]);
        let status = right.ctl_ok(&["status"]);
        assert!(status.contains("tunnel cert_k cannot come up"), "{status}");
        left.ctl_fails(&["activate", "cert_k"], 1);
        // The peer has proved who it is: it is no stranger.
        let why = right.json(&["why", "cert_k", "--json"]);
        let message = why["failures"][0]["message"].as_str().unwrap_or_default();
        assert!(message.contains("we cannot prove who we are"), "{why}");
        assert_eq!(why["turned_away"], serde_json::json!([]), "{why}");
        right.await_log(&["WARN", "\"event\":\"failed\"", "we cannot prove who we are"]);
    }
}

fn list_expires_soon() {
    let [mut left, _right] = two();
    let mut authority = Authority::new();
    authority.expires_in(40);
    authority.equip(&left, "left.example.net");
    left.start();
    let told = "root.crl: the revocation list expires in ";
    assert!(!left.log().contains(told), "{}", left.log());
    authority.expires_in(20);
    authority.equip(&left, "left.example.net");
    let reloaded = left.ctl(&["reload"]);
    let reloaded = String::from_utf8([reloaded.stdout, reloaded.stderr].concat()).expect("text");
    let status = left.ctl_ok(&["status"]);
    for text in [reloaded, status] {
        assert!(text.contains(told) && text.contains("vpnctl pki crl"), "{text}");
    }
    let certs = left.json(&["certs", "--json"]);
    assert_eq!(certs[2]["role"], "revocation_list");
    assert_eq!(certs[2]["expires_soon"], true);
    left.stop();
    left.start();
    left.await_log(&["WARN", told]);
}
