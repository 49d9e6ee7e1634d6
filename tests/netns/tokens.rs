//! Private keys in PKCS#11 tokens: SoftHSM, and a module before it that fails as tokens do.

mod softhsm;

use libtest_mimic::Trial;
use softhsm::{
    Authority, Failing, MODULE, PIN, equip, key_file, move_key, pin_file, token, write, write_uri,
};
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::gateway::{Gateway, PATIENT};
use testkit::policies::{self, changed};
use testkit::{GATEWAYS, Need, test, until};

const TOKENS: &[Need] = &[Need::All(GATEWAYS), Need::Program("softhsm2-util"), Need::File(MODULE)];
const FAILING: &[Need] = &[Need::All(TOKENS), Need::Program("cc")];

const POLICIES: [&str; 2] = [
    include_str!("../../config/certificates-left.xml"),
    include_str!("../../config/certificates-right.xml"),
];

pub fn trials() -> Vec<Trial> {
    vec![
        test("keys of each kind in tokens", TOKENS, each_kind),
        test("a token with a wrong PIN", TOKENS, a_wrong_pin),
        test("each mistake about a token has its own message", TOKENS, mistakes),
        test("a token is reset, removed and returned", FAILING, removed_and_returned),
        test("a token that hangs delays nobody else", FAILING, a_hanging_token),
    ]
}

/// The sample policies with certificates; nothing starts by itself.
fn samples() -> [String; 2] {
    POLICIES.map(|text| text.replace("_Flags_AutoStart=\"Yes\"", "_Flags_AutoStart=\"No\""))
}

/// Two gateways with certificates of these kinds, whose keys are in files yet.
fn two(policies: &[String; 2], keys: [&str; 2], timeout: &str) -> [Gateway; 2] {
    let mut both = Gateway::pair(policies, [1, 2], PATIENT);
    let authority = Authority::new();
    for (gateway, key) in both.iter_mut().zip(keys) {
        token(gateway, timeout);
        equip(gateway, &authority.issue(gateway.name, key));
    }
    both
}

fn up(gateway: &Gateway, tunnel: &str) {
    gateway.ctl_ok(&["activate", tunnel]);
    assert_eq!(gateway.json(&["status", tunnel, "--json"])["state"], "established");
}

fn check(gateway: &Gateway) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    command
        .arg("check")
        .arg(gateway.path("policy.xml"))
        .arg("--config")
        .arg(gateway.path("vpnd.toml"));
    let output = command.envs(gateway.environment.iter().cloned()).output().expect("vpnd is built");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    assert!(!text.contains(PIN), "{text}");
    text
}

fn each_kind() {
    for keys in [["ecdsa256", "rsa3072"], ["rsa4096", "ecdsa384"]] {
        let [mut left, mut right] = two(&samples(), keys, "10s");
        move_key(&left, Path::new(MODULE));
        move_key(&right, Path::new(MODULE));
        if keys[0] == "rsa4096" {
            pass_credential(&mut left);
        }
        right.start();
        left.start();
        up(&left, "site");
        let certs = left.json(&["certs", "--json"]);
        let own = certs.as_array().and_then(|all| all.iter().find(|c| c["role"] == "own"));
        let own = own.expect("it is listed");
        assert_eq!(own["token"], "token \"vpn\", object \"left\"");
        let file = key_file(&left).display().to_string();
        assert!(own["private_key"].as_str().is_some_and(|key| key.starts_with(&file)), "{own}");
        assert!(left.ctl_ok(&["certs"]).contains("(token \"vpn\", object \"left\")"));
        // The other one begins, too.
        left.ctl_ok(&["deactivate", "site"]);
        up(&right, "site");
        // The same token serves after a reload.
        left.ctl_ok(&["reload"]);
        right.ctl_ok(&["deactivate", "site"]);
        up(&left, "site");
        for gateway in [&left, &right] {
            assert!(!gateway.log().contains(PIN), "{}", gateway.log());
        }
    }
}

/// Passes the PIN as systemd passes a credential, in place of its file.
fn pass_credential(gateway: &mut Gateway) {
    let directory = gateway.path("credentials");
    fs::create_dir(&directory).expect("writable");
    write(&directory.join("vpn.pin"), PIN);
    fs::remove_file(pin_file(gateway)).expect("it was written");
    let uri = format!(
        "pkcs11:token=vpn;object={}?module-path={MODULE}&pin-source=credential:vpn.pin",
        gateway.name
    );
    write(&key_file(gateway), &uri);
    assert!(check(gateway).contains("LoadCredential=vpn.pin"));
    gateway.environment.push(("CREDENTIALS_DIRECTORY", directory.into()));
}

fn a_wrong_pin() {
    let [mut left, mut right] = two(&samples(), ["ecdsa256"; 2], "10s");
    move_key(&left, Path::new(MODULE));
    let wrong = "111111";
    write(&pin_file(&left), wrong);
    let text = check(&left);
    let pin = pin_file(&left).display().to_string();
    let refused = format!("the token refuses the PIN in {pin}");
    assert!(text.contains(&refused) && text.contains("set the PIN right"), "{text}");
    assert!(text.contains("no certificate of this side is for left.example.net"), "{text}");
    right.start();
    left.start();
    left.await_log(&["ERROR", &refused]);
    left.ctl_fails(&["activate", "site"], 1);
    let said = left.ctl_fails(&["reload"], 1);
    assert!(said.contains(&refused) && said.contains("the old policy stays in force"), "{said}");
    assert!(!left.log().contains(wrong), "{}", left.log());
    write(&pin_file(&left), PIN);
    left.ctl_ok(&["reload"]);
    up(&left, "site");
}

fn mistakes() {
    let [left, right] = two(&samples(), ["ecdsa256"; 2], "10s");
    // The key of another certificate, in place of the own one.
    fs::copy(key_file(&right), key_file(&left)).expect("writable");
    move_key(&left, Path::new(MODULE));
    let text = check(&left);
    let (key, certificate) = (key_file(&left), left.path("certificates/certs/left.pem"));
    let stray = format!(
        "{} (token \"vpn\", object \"left\"): belongs to no certificate here",
        key.display()
    );
    assert!(text.contains(&stray), "{text}");
    let other = format!(
        "the key of {}: its public key and that of this object differ",
        certificate.display()
    );
    assert!(text.contains(&other), "{text}");

    let module = Path::new(MODULE);
    let says = |words: &[&str]| {
        let text = check(&left);
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
    };
    write_uri(&left, "token=vpn;object=left", Path::new("/usr/lib/absent.so"));
    says(&["module /usr/lib/absent.so cannot be loaded", "install the package"]);
    write_uri(&left, "token=vpn;object=left", &left.path("vpnd.toml"));
    says(&["vpnd.toml cannot be loaded", "token_files"]);
    write_uri(&left, "token=other;object=left", module);
    says(&["token \"other\" is not there", "has \"vpn\" (serial number", "plug the token in"]);
    write_uri(&left, "token=vpn;object=other", module);
    says(&[
        "no private key with the label \"other\"; it has \"left\" (id 01)",
        "correct object or id",
    ]);
    write_uri(&left, "token=vpn;id=%02", module);
    says(&["no private key with the id 02"]);
    write_uri(&left, "token=vpn", module);
    says(&["names no object"]);
    write(&key_file(&left), &format!("pkcs11:object=left?module-path={MODULE}&pin-value={PIN}"));
    says(&["the PIN in it (pin-value)", "pin-source=file:"]);
    write(&key_file(&left), &format!("pkcs11:object=left?module-path={MODULE}"));
    says(&["wants a PIN, and the URI names none"]);
    fs::remove_file(key_file(&left)).expect("it was written");
    let text = fs::read_to_string(left.path("vpnd.toml")).expect("it was written");
    left.configure("token_keys = [\"pkcs11:token=other;object=left\"]\n");
    left.configure(&format!("token_module = {MODULE:?}\n"));
    says(&["token_keys in [certificates]: token \"other\"", "is not there"]);
    fs::write(left.path("vpnd.toml"), text).expect("writable");
    write(&key_file(&left), "pkcs11:object=left");
    says(&["names the PKCS#11 module"]);
    write_uri(&left, "token=vpn;object=left", module);
    fs::remove_file(pin_file(&left)).expect("it was written");
    says(&["token.pin with the PIN cannot be read"]);
}

fn removed_and_returned() {
    let [mut left, mut right] = two(&samples(), ["ecdsa256"; 2], "10s");
    let failing = Failing::of(&mut left);
    move_key(&left, &failing.module);
    right.start();
    left.start();
    up(&left, "site");
    // Reset: vpnd logs in again, and nobody notices but the log.
    left.ctl_ok(&["deactivate", "site"]);
    failing.set("session");
    up(&left, "site");
    left.await_log(&["logging in to the token again", "CKR_SESSION_HANDLE_INVALID"]);
    // Removed.
    left.ctl_ok(&["deactivate", "site"]);
    failing.set("removed");
    let said = left.ctl_fails(&["activate", "site"], 1);
    assert!(said.contains("did not sign: token \"vpn\" is not there"), "{said}");
    let why = left.ctl_ok(&["why", "site"]);
    let file = key_file(&left).display().to_string();
    for words in [&*file, "token \"vpn\", object \"left\"", "is not there", "plug the token in"] {
        assert!(why.contains(words), "{words} in {why}");
    }
    // Returned.
    failing.set("works");
    up(&left, "site");
}

/// The policies of two tunnels: that of the sample, and `keyed` with a preshared key between other addresses.
fn with_another_tunnel() -> [String; 2] {
    let [keyed, certified] = [policies::site(), samples()];
    let mut both = certified.into_iter().zip(keyed).map(|(certified, keyed)| {
        let mut keyed = keyed.replace("site", "keyed");
        for (old, new) in [("192.0.2.1\"", "192.0.2.3\""), ("192.0.2.2\"", "192.0.2.4\"")] {
            keyed = changed(&keyed, old, new);
        }
        keyed = changed(&changed(&keyed, "\"10.1.0.", "\"10.3.0."), "\"10.2.0.", "\"10.4.0.");
        let start = keyed.find("<AIX_VPN").expect("the root");
        let start = start + keyed[start..].find('>').expect("its end") + 1;
        let end = keyed.find("</AIX_VPN>").expect("its end");
        changed(&certified, "</AIX_VPN>", &format!("{}</AIX_VPN>", &keyed[start..end]))
    });
    [(); 2].map(|()| both.next().expect("two"))
}

fn a_hanging_token() {
    let [mut left, mut right] = two(&with_another_tunnel(), ["ecdsa256"; 2], "5s");
    for (gateway, address) in [(&left, "192.0.2.3/24"), (&right, "192.0.2.4/24")] {
        gateway.space.ip(&format!("address add {address} dev wire"));
    }
    let failing = Failing::of(&mut left);
    move_key(&left, &failing.module);
    right.start();
    left.start();
    up(&left, "site");
    left.ctl_ok(&["deactivate", "site"]);
    failing.set("hangs");
    left.ctl_ok(&["activate", "--no-wait", "site"]);
    until("a signature that hangs", || failing.hangs().then_some(()), || left.log());
    // Meanwhile another tunnel comes up.
    up(&left, "keyed");
    let told = || {
        let why = left.ctl(&["why", "site"]);
        let why = String::from_utf8(why.stdout).expect("text");
        why.contains("the token did not answer for 5 s").then_some(why)
    };
    let why = until("the failure", told, || left.log());
    assert!(why.contains("restart vpnd if the token stays silent"), "{why}");
    // Nobody waits for a token that is known to hang.
    let said = left.ctl_fails(&["activate", "site"], 1);
    assert!(said.contains("the token did not answer for 5 s"), "{said}");
    let said = left.ctl_fails(&["reload"], 1);
    assert!(said.contains("the token did not answer for 5 s"), "{said}");
    assert!(failing.hangs(), "it has hung all the time");
    failing.set("works");
    let answers = || left.ctl(&["activate", "site"]).status.success().then_some(());
    until("the token to answer", answers, || left.log());
}
