use super::*;
use crate::cure::{Cure, Step};
use crate::explanation::Row;
use ike::failure::facts::{Alternatives, Identities, Layer, Offer, Offers, Parties};
use ike::failure::{Facts, FailureKind};
use policy::Identity;

fn texts(cures: &[Cure]) -> Vec<&str> {
    cures.iter().map(|cure| cure.text.as_str()).collect()
}

#[test]
fn a_key_exchange_that_the_peer_demands_is_compared_with_none() {
    let offers = Offers {
        layer: Layer::Child,
        ours: Vec::new(),
        theirs: None,
        group_optional: false,
        wanted_group: Some("ECP-256".to_owned()),
        renewal: true,
    };
    let there = Some("ECP-256".to_owned());
    let row = Row { item: "group".to_owned(), here: "none".to_owned(), there, differs: true };
    assert_eq!(comparison::of(&Facts::Offers(offers)), [row]);
}

/// The cures for two offers of these algorithms by kind.
fn cures(layer: Layer, ours: &[[&'static str; 2]], theirs: &[[&'static str; 2]]) -> Vec<Cure> {
    let offer = |of: &[[&'static str; 2]]| {
        let transform = |&[kind, name]: &[&'static str; 2]| {
            let names = vec![name.to_owned()];
            Alternatives { kind, names }
        };
        vec![Offer { transforms: of.iter().map(transform).collect() }]
    };
    let offers = Offers {
        layer,
        ours: offer(ours),
        theirs: Some(offer(theirs)),
        group_optional: false,
        wanted_group: None,
        renewal: false,
    };
    explain(&offers.into(), Background::default()).cures
}

#[test]
fn the_cure_names_the_words_of_a_policy() {
    let cbc = [["encryption", "AES-CBC-256"], ["integrity", "HMAC-SHA2-256-128"]];
    let gcm = [["encryption", "AES-GCM-16-256"]];
    let told = "set IKE_Encryption in IKEProtection to the peer's AES-GCM-16-256, or the peer's to AES-CBC-256";
    let cures_of_ike = cures(Layer::Ike, &cbc, &gcm);
    assert_eq!(cures_of_ike[0].text, told);
    assert!(
        !texts(&cures_of_ike).concat().contains("IKE_Hash"),
        "none is needed: {cures_of_ike:?}"
    );
    let told = [
        "set ESP_Encryption in IPSecProposal to the peer's AES-GCM-16-256 (write ESP_AES256_GCM_16), or the peer's \
         to AES-CBC-256",
        "set ESP_Authentication in IPSecProposal to the peer's none (write NONE), or the peer's to HMAC-SHA2-256-128",
    ];
    assert_eq!(texts(&cures(Layer::Child, &cbc, &gcm))[..2], told);
    let ah = |name: &'static str| [["protocol", "AH"], ["integrity", name]];
    let told = "set AH_Authentication in IPSecProposal to the peer's HMAC-SHA2-256-128 (write AH_SHA2_256), or the \
                peer's to HMAC-SHA1-96";
    let cures = cures(Layer::Child, &ah("HMAC-SHA1-96"), &ah("HMAC-SHA2-256-128"));
    assert_eq!(cures[0].text, told);
}

#[test]
fn identities_of_different_types_differ_whatever_their_values_are() {
    let key_id = Identity::KeyId(b"branch-7".to_vec());
    let fqdn = |name: &str| Identity::Fqdn(name.into());
    let tunnel = "site".to_owned();
    let known = vec![Parties { tunnel, local: fqdn("HUB.example"), remote: key_id.clone() }];
    let asked = Some(fqdn("hub.example"));
    let identities =
        Identities { peer: fqdn("branch-7"), address: None, own_address: None, asked, known };
    let row = |item: &str, here: &str, there: &str, differs| Row {
        item: item.to_owned(),
        here: here.to_owned(),
        there: Some(there.to_owned()),
        differs,
    };
    let told = [
        row("the peer is", "Key_ID branch-7", "FQDN branch-7", true),
        // They match, RFC 5280 §7.2.
        row("this side is", "HUB.example", "hub.example", false),
    ];
    let facts = Facts::Identities(identities);
    assert_eq!(comparison::of(&facts), told);
    assert!(facts.to_string().contains("says it is FQDN branch-7"), "{facts}");
    assert!(facts.to_string().contains("the peer is Key_ID branch-7"), "{facts}");
    let failure = Failure::with(FailureKind::NoMatchingTunnel, facts);
    let cures = explain(&failure, Background::default()).cures;
    let told = [
        "set IKERemoteIdentity in IKETunnel to the peer's FQDN branch-7 (write <FQDN Value=\"branch-7\">), or the \
         peer's own identity to Key_ID branch-7",
    ];
    assert_eq!(texts(&cures), told);
}

#[test]
fn the_cure_for_ah_against_esp_is_one_protocol_for_both() {
    let gcm = [["encryption", "AES-GCM-16-256"], ["sequence numbers", "32 bits"]];
    let ah = [["protocol", "AH"], ["integrity", "HMAC-SHA1-96"]];
    let told = "protect with AH as the peer does (IPSecAHProtocol in IPSecProposal), or have the peer protect \
                with ESP";
    assert_eq!(texts(&cures(Layer::Child, &gcm, &ah)), [told]);
    let told = "protect with ESP as the peer does (IPSecESPProtocol in IPSecProposal), or have the peer protect \
                with AH";
    assert_eq!(texts(&cures(Layer::Child, &ah, &gcm)), [told]);
}

#[test]
fn a_cure_tells_programs_what_to_set_and_run() {
    let element = |kind: &str, name: &str, line| Element {
        kind: kind.to_owned(),
        name: name.to_owned(),
        file: "policy.xml".to_owned(),
        line,
    };
    let elements = [element("IPSecProposal", "lan_p2", 12), element("IKETunnel", "site", 30)];
    let transform = |kind, name: &str| Alternatives { kind, names: vec![name.to_owned()] };
    let offer = |name: &str| vec![Offer { transforms: vec![transform("encryption", name)] }];
    let offers = Offers {
        layer: Layer::Child,
        ours: offer("AES-CBC-256"),
        theirs: Some(offer("AES-GCM-16-256")),
        group_optional: false,
        wanted_group: None,
        renewal: false,
    };
    let background = Background { elements: &elements, ..Background::default() };
    let explanation = explain(&offers.into(), background);
    let [cure, ..] = &*explanation.cures else { panic!("{explanation:?}") };
    let place = "set ESP_Encryption in IPSecProposal \"lan_p2\" (policy.xml:12) to the peer's";
    assert!(cure.text.starts_with(place), "{cure}");
    let step = Step::Set {
        element: "IPSecProposal".to_owned(),
        name: Some("lan_p2".to_owned()),
        attributes: vec!["ESP_Encryption".to_owned()],
        value: Some("ESP_AES256_GCM_16".to_owned()),
    };
    assert_eq!(cure.step, step);
    assert!(explanation.evidence[0].starts_with("the peer offers [AES-GCM-16-256]"));

    let off =
        ike::failure::facts::FamilyOff { family: esp::families::Family::Ipv6, of_traffic: true };
    let cures = explain(&off.into(), Background::default()).cures;
    assert_eq!(cures[0].text, "to switch it on: vpnctl family ipv6 on");
    let words = ["vpnctl", "family", "ipv6", "on"].map(str::to_owned);
    assert_eq!(cures[0].step, Step::Run(words.to_vec()));
    assert_eq!(cures[1].step, Step::Ask);
}
