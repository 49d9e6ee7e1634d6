//! Name constraints of authorities (RFC 5280 §4.2.1.10) mean to `vpnd` what they mean to OpenSSL.

use crate::certificates::{policies, two_of};
use libtest_mimic::Trial;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::gateway::Gateway;
use testkit::policies::changed;
use testkit::{GATEWAYS, Need, output, test};

const WITH_OPENSSL: &[Need] = &[Need::All(GATEWAYS), Need::Program("openssl")];

pub fn trials() -> Vec<Trial> {
    vec![test(
        "name constraints mean what they mean to OpenSSL",
        WITH_OPENSSL,
        mean_what_they_mean_to_openssl,
    )]
}

/// A constraint of the authority, and an alternative name of the certificate below it, as OpenSSL writes them. The
/// subject of the certificate is `/C=NL/O=Example/OU=Lab/CN=left.example.net`.
const CASES: &[[&str; 2]] = &[
    ["permitted;email:vpn.example.net", "email:ops@vpn.example.net"],
    ["permitted;email:vpn.example.net", "email:ops@lab.vpn.example.net"],
    ["permitted;email:.example.net", "email:ops@vpn.EXAMPLE.net"],
    ["permitted;email:.example.net", "email:ops@example.net"],
    ["permitted;email:ops@vpn.example.net", "email:ops@vpn.example.net"],
    ["permitted;email:ops@vpn.example.net", "email:Ops@vpn.example.net"],
    ["permitted;email:.example.org,permitted;email:.example.net", "email:ops@vpn.example.net"],
    ["excluded;email:evil.example", "email:ops@vpn.example.net"],
    ["excluded;email:vpn.example.net", "email:ops@vpn.example.net"],
    ["permitted;email:.example.net", "URI:https://vpn.example.org/"],
    ["permitted;URI:.example.net", "URI:https://vpn.example.net:8443/a"],
    ["permitted;URI:.example.net", "URI:https://vpn.example.org/"],
    ["permitted;URI:.example.net", "URI:urn:ietf:rfc:5280"],
    ["excluded;URI:vpn.example.net", "URI:https://vpn.example.net/"],
    ["excluded;URI:vpn.example.net", "URI:https://example.net/"],
    ["permitted;dirName:ours", "email:ops@vpn.example.net"],
    ["permitted;dirName:others", "email:ops@vpn.example.net"],
    ["excluded;dirName:ours", "email:ops@vpn.example.net"],
    ["excluded;dirName:others", "email:ops@vpn.example.net"],
    ["permitted;DNS:example.net", "DNS:left.example.net"],
    ["permitted;DNS:example.net", "DNS:left.example.org"],
    ["excluded;DNS:left.example.net", "DNS:a.left.example.net"],
    ["permitted;IP:192.0.2.0/255.255.255.0", "IP:192.0.2.1"],
    ["permitted;IP:192.0.2.0/255.255.255.0", "IP:198.51.100.1"],
    ["permitted;otherName:1.3.6.1.4.1.311.20.2.3;UTF8:.example.net", "email:ops@vpn.example.net"],
    [
        "permitted;otherName:1.3.6.1.4.1.311.20.2.3;UTF8:.example.net",
        "otherName:1.3.6.1.4.1.311.20.2.3;UTF8:ops@vpn.example.net",
    ],
];

/// Sections of directory names that constraints name; the case of letters makes no difference.
const DIRECTORIES: &str = "[ours]\nC=NL\nO=EXAMPLE\n[others]\nC=NL\nO=Other\n";
const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign";

/// Keys and certificates that `openssl` makes.
struct Workshop(PathBuf);

impl Workshop {
    fn openssl(&self, line: &str) -> Command {
        let mut command = Command::new("openssl");
        command.args(line.split_whitespace()).current_dir(&self.0);
        command
    }

    /// A key, and the request for a certificate of it.
    fn request(&self, name: &str, subject: &str) {
        let key = format!("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {name}.key");
        output(self.openssl(&key));
        output(self.openssl(&format!("req -new -key {name}.key -subj {subject} -out {name}.csr")));
    }

    /// The certificate of a request with these extensions, signed by an issuer or by its own key.
    fn sign(&self, name: &str, issuer: Option<&str>, extensions: &str) {
        let file = format!("[all]\n{extensions}\n{DIRECTORIES}");
        fs::write(self.0.join("extensions"), file).expect("writable");
        let by = match issuer {
            Some(issuer) => format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial"),
            None => format!("-signkey {name}.key"),
        };
        let files = format!("-in {name}.csr -out {name}.pem -extfile extensions -extensions all");
        output(self.openssl(&format!("x509 -req -days 30 {files} {by}")));
    }

    fn accepts(&self, leaf: &str, between: Option<&str>) -> bool {
        let untrusted = between.map(|name| format!("-untrusted {name}.pem")).unwrap_or_default();
        let line = format!("verify -CAfile root.pem {untrusted} {leaf}.pem");
        self.openssl(&line).output().expect("openssl is here").status.success()
    }

    fn give(&self, file: &str, to: &Path) {
        fs::create_dir_all(to.parent().expect("a directory")).expect("writable");
        fs::copy(self.0.join(file), to).expect("it was made");
        fs::set_permissions(to, Permissions::from_mode(0o600)).expect("ours");
    }
}

fn mean_what_they_mean_to_openssl() {
    let unasked = policies().map(|policy| {
        let policy = policy.replace("_Flags_AutoStart=\"Yes\"", "_Flags_AutoStart=\"No\"");
        changed(&policy, "IKE_Flags_UseCRL=\"Yes\"", "IKE_Flags_UseCRL=\"No\"")
    });
    let [mut left, mut right] = two_of(unasked);
    let shop = Workshop(left.path("workshop"));
    fs::create_dir_all(&shop.0).expect("writable");
    for name in ["root", "middle", "unbound"] {
        shop.request(name, &format!("/C=NL/O=Example/CN={name}"));
    }
    for host in ["left", "right"] {
        shop.request(host, &format!("/C=NL/O=Example/OU=Lab/CN={host}.example.net"));
    }
    shop.sign("unbound", None, AUTHORITY);
    shop.sign("right", Some("unbound"), "keyUsage=digitalSignature");
    let (mut good, mut bad) = (0, 0);
    for [constraint, name] in CASES {
        for between in [None, Some("middle")] {
            let constrained = format!("{AUTHORITY}\nnameConstraints=critical,{constraint}");
            shop.sign("root", None, if between.is_none() { &constrained } else { AUTHORITY });
            shop.sign("middle", Some("root"), &constrained);
            shop.sign("left", between.or(Some("root")), &format!("subjectAltName={name}"));
            let expected = shop.accepts("left", between);
            equip(&shop, &left, "left", between);
            equip(&shop, &right, "right", None);
            for gateway in [&mut right, &mut left] {
                if good + bad == 0 { gateway.start() } else { drop(gateway.ctl_ok(&["reload"])) }
            }
            let up = left.ctl(&["activate", "cert_k"]);
            assert_eq!(up.status.success(), expected, "{constraint} {name} {between:?}: {up:?}");
            match expected {
                true => {
                    good += 1;
                    left.ctl_ok(&["deactivate", "cert_k"]);
                }
                false => bad += 1,
            }
        }
    }
    assert!(good > 20 && bad > 20, "{good} certificates are valid, {bad} are not");
    let why = right.ctl_ok(&["why", "cert_k"]).replace('\n', " ");
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "the certificate CN=left.example.net,OU=Lab,O=Example,C=NL",
        "the otherName 1.3.6.1.4.1.311.20.2.3",
        "CN=middle,O=Example,C=NL has a name constraint",
        "have it issued without this name, or by an authority without this constraint",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
}

fn equip(shop: &Workshop, gateway: &Gateway, host: &str, between: Option<&str>) {
    let directory = gateway.path("certificates");
    for authority in ["root", "unbound"] {
        shop.give(&format!("{authority}.pem"), &directory.join(format!("ca/{authority}.pem")));
    }
    shop.give(&format!("{host}.pem"), &directory.join("certs/own.pem"));
    shop.give(&format!("{host}.key"), &directory.join("private/own.key"));
    let middle = directory.join("certs/middle.pem");
    match between {
        Some(name) => shop.give(&format!("{name}.pem"), &middle),
        None => {
            let _ = fs::remove_file(middle);
        }
    }
}
