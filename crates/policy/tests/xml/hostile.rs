//! Files made to break the reader: it must not panic, must answer soon, and must not show a key.

use policy::xml::{MAX_FILE_LEN, read};
use proptest::prelude::*;

const FILES: [&str; 5] = [
    include_str!("../../fixtures/01_ikev2_psk_gcm_transport_v4.xml"),
    include_str!("../../fixtures/02_ikev2_tunnel_multi_child_pfs.xml"),
    include_str!("../../fixtures/05_ikev1_aggressive_group_responder_generic.xml"),
    include_str!("../../fixtures/07_whitespace_and_order_quirks.xml"),
    include_str!("../../fixtures/08_roles_autostart_ondemand_matrix.xml"),
];

/// Occurs in a key and nowhere else; no part of the vocabulary has these letters.
const MARK: &str = "Zq9wJx7ZkQv";

/// Reads a text, renders all that comes of it, and checks that nothing is left out of a policy that loads.
fn render(text: &str) -> String {
    match read("p.xml", text) {
        Ok(loaded) => {
            let written = |tag: &str| text.matches(tag).count();
            assert!(loaded.policy.tunnels.len() <= written("<IKETunnel") || written("Group") > 0);
            let mut shown = format!("{:?}", loaded.policy);
            for warning in &loaded.warnings {
                shown += &format!("{warning}\n{warning:?}");
            }
            shown
        }
        Err(errors) => {
            assert!(errors.errors().count() > 0 || errors.omitted() > 0);
            format!("{errors}\n{errors:?}")
        }
    }
}

fn marked() -> String {
    FILES[0].replace("correct-horse-battery-staple-0192", MARK)
}

/// Pieces that mutations put in.
const PIECES: &[&str] = &[
    "<",
    ">",
    "/>",
    "\"",
    "'",
    "=",
    "&",
    "&#0;",
    "&#x110000;",
    "&x;",
    " ",
    "\n",
    "\0",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "<?",
    "?>",
    "<!DOCTYPE a [",
    "<IKEPresharedKey ",
    "<IKETunnel ",
    "</IKETunnel>",
    "<a>",
    "4294967296",
    "-1",
    "é",
    "\u{202e}",
    "\u{feff}",
    "::",
    "255.255.255.255",
    "GROUP_",
    " Value=\"x\"",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text(text in any::<String>()) {
        render(&text);
    }

    #[test]
    fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..512)) {
        render(&String::from_utf8_lossy(&octets));
    }

    #[test]
    fn soup(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..40)) {
        render(&pieces.concat());
        render(&format!("<AIX_VPN Version=\"2.1\">{}</AIX_VPN>", pieces.concat()));
    }

    #[test]
    fn mutated_files(
        file in proptest::sample::select(&FILES[..]),
        changes in proptest::collection::vec(
            (any::<proptest::sample::Index>(), 0_usize..30, proptest::sample::select(PIECES)), 1..4
        ),
    ) {
        let mut characters: Vec<char> = file.chars().collect();
        for (at, cut, piece) in changes {
            let at = at.index(characters.len());
            let end = (at + cut).min(characters.len());
            characters.splice(at..end, piece.chars());
        }
        render(&characters.into_iter().collect::<String>());
    }

    /// The key that a file holds is not shown, in whole or in part, whatever is wrong with the file.
    #[test]
    fn keys_stay_secret(
        changes in proptest::collection::vec(
            (any::<proptest::sample::Index>(), 0_usize..12, proptest::sample::select(PIECES)), 1..4
        ),
    ) {
        let mut characters: Vec<char> = marked().chars().collect();
        for (at, cut, piece) in changes {
            let at = at.index(characters.len());
            let end = (at + cut).min(characters.len());
            characters.splice(at..end, piece.chars());
        }
        let shown = render(&characters.into_iter().collect::<String>());
        for part in MARK.as_bytes().windows(4) {
            let part = std::str::from_utf8(part).expect("the mark is ASCII");
            prop_assert!(!shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn truncated_files(file in proptest::sample::select(&FILES[..]), at in any::<proptest::sample::Index>()) {
        let at = at.index(file.len());
        prop_assume!(file.is_char_boundary(at));
        let cut = &file[..at];
        prop_assert!(cut.trim_end().ends_with("</AIX_VPN>") || read("p.xml", cut).is_err());
    }
}

/// Every tag of the file in turn loses each of its marks; the key must not come to light.
#[test]
fn a_missing_mark_shows_no_key() {
    let text = marked();
    for (at, mark) in text.match_indices(['<', '>', '"', '=', '/', ' ']) {
        let broken = format!("{}{}", &text[..at], &text[at + mark.len()..]);
        let shown = render(&broken);
        assert!(!shown.contains(MARK), "without {mark:?} at {at}: {shown}");
    }
}

#[test]
fn misspelt_names_show_no_key() {
    let text = marked();
    for (from, to) in [
        ("IKEPresharedKey", "IKEPresharedKy"),
        ("IKEPresharedKey", "ikepresharedkey"),
        ("IKEPresharedKey", "IKETunne"),
        ("IKEPresharedKey", "IKETunnel"),
        ("IKEPresharedKey Format=", "IKETunnel Format"),
        (" Value=\"Zq", " Valeu=\"Zq"),
        (" Value=\"Zq", " Value=\"&unknown;Zq"),
        ("Format=\"ASCII\" Value=\"Zq9wJx7ZkQv\"", "Format=\"Zq9wJx7ZkQv\" Value=\"ASCII\""),
        ("Value=\"Zq9wJx7ZkQv\"", "Value=Zq9wJx7ZkQv"),
        ("Value=\"Zq9wJx7ZkQv\"", "Value=\"Zq9wJx7ZkQv"),
        ("Value=\"Zq9wJx7ZkQv\"", "Value=\"é Zq9wJx7ZkQv\""),
        ("Value=\"Zq9wJx7ZkQv\"", "Value=\"\">Zq9wJx7ZkQv<x/"),
        ("Format=\"ASCII\" Value=\"Zq9wJx7ZkQv\"", "Format=\"HEX\" Value=\"Zq9wJx7ZkQv\""),
        ("Format=\"ASCII\" Value=\"Zq9wJx7ZkQv\"", "Value=\"a\" Value=\"Zq9wJx7ZkQv\""),
        ("<IKEPresharedKey ", "<!-- IKEPresharedKey "),
        ("<IKEPresharedKey ", "<IKETunnel IKE_TunnelName=\"x>\n<IKEPresharedKey "),
        ("<IKEPresharedKey ", "<IKETunnel IKE_TunnelName=\"x\"\n<IKEPresharedKey "),
        ("<IKEPresharedKey ", "IKEPresharedKey "),
        ("<IKEPresharedKey ", "< IKEPresharedKey "),
        ("<IKEPresharedKey ", "</IKEPresharedKey "),
        ("<IKEPresharedKey ", "<?IKEPresharedKey "),
        ("<IKEPresharedKey ", "<![CDATA[ "),
        ("<IKEPresharedKey ", "<!ENTITY "),
        ("<AIX_VPN", "<!DOCTYPE a [<!ENTITY k \"Zq9wJx7ZkQv\">]><AIX_VPN"),
    ] {
        assert!(text.contains(from), "{from}");
        let broken = text.replace(from, to);
        if from != "<IKEPresharedKey " || !to.contains("!--") {
            assert!(read("p.xml", &broken).is_err(), "{from} → {to}");
        }
        let shown = render(&broken);
        assert!(!shown.contains(MARK), "{from} → {to}: {shown}");
    }
}

#[test]
fn bounds() {
    let error = |text: &str| read("p.xml", text).expect_err("beyond a bound").to_string();
    let long = format!("<AIX_VPN><!--{}--></AIX_VPN>", "x".repeat(MAX_FILE_LEN));
    assert!(error(&long).contains("more than 8388608"));
    let deep = format!("<AIX_VPN>{}", "<IKETunnel>".repeat(100_000 / 11));
    assert!(error(&deep).contains("nested more than 16 deep"));
    let wide = format!("<AIX_VPN>{}</AIX_VPN>", "<IKETunnel/>".repeat(130_000));
    assert!(error(&wide).contains("more than 120000 elements"));
    let attributes: String = (0..50_000).map(|n| format!(" a{n}=\"\"")).collect();
    assert!(error(&format!("<AIX_VPN{attributes}/>")).contains("more than 64 attributes"));
    let name = "a".repeat(500_000);
    assert!(error(&format!("<{name}/>")).len() < 2_000);
    let line = format!("<AIX_VPN>{}</AIX_VPN>", "<IKETunnel/>".repeat(10_000));
    let many = read("p.xml", &line).expect_err("nothing in it");
    assert_eq!(many.errors().count(), 50);
    assert!(many.omitted() > 1_000 && many.to_string().len() < 50_000);
}

/// Entities that grow are neither defined nor expanded.
#[test]
fn no_entity_is_expanded() {
    let bomb =
        "<!DOCTYPE a [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><AIX_VPN Version=\"&b;\"/>";
    let errors = read("p.xml", bomb).expect_err("an internal subset");
    assert!(errors.to_string().contains("DOCTYPE with definitions"), "{errors}");
    let errors = read("p.xml", "<AIX_VPN Version=\"&b;\"/>").expect_err("an unknown entity");
    assert!(errors.to_string().contains("unknown entity"), "{errors}");
}

/// Text for a terminal has no control characters.
#[test]
fn no_control_characters_are_shown() {
    let text = "<AIX_VPN Version=\"2.1\" Vers\u{202e}ion=\"&#x85;\u{9b}31m\u{202e}\"/>";
    let shown = read("p.xml", text).expect_err("an unknown attribute").to_string();
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{shown:?}");
}

/// Checks that compare everything with everything stay bearable at the largest size a file may have.
#[test]
fn a_large_policy_loads() {
    let tunnel = |n: usize| {
        format!(
            "<IPSecTunnel IPSec_TunnelName='t{n}' IKE_TunnelName='hh_k' IPSec_ProtectionRef='hh_p2'>\
             <IPSecLocalIdentity><IPV4_Address_Range From_IPAddr='192.0.2.10' To_IPAddr='192.0.2.10'/>\
             </IPSecLocalIdentity><IPSecRemoteIdentity>\
             <IPV4_Address_Range From_IPAddr='10.0.{}.{}' To_IPAddr='10.0.{}.{}'/>\
             </IPSecRemoteIdentity></IPSecTunnel>\n",
            n / 256,
            n % 256,
            n / 256,
            n % 256
        )
    };
    let tunnels: String = (0..2_500).map(tunnel).collect();
    let text = FILES[0]
        .replace("ESP_EncapsulationMode=\"Transport\"", "ESP_EncapsulationMode=\"Tunnel\"")
        .replace("</AIX_VPN>", &format!("{tunnels}</AIX_VPN>"));
    let loaded = read("p.xml", &text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.policy.tunnels[0].children.len(), 2_501);
    let broken = text.replace("'hh_p2'", "'hh_p'");
    let errors = read("p.xml", &broken).expect_err("no such protection");
    assert_eq!((errors.errors().count(), errors.omitted()), (50, 2_450));
}
