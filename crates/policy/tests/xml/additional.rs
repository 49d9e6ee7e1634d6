//! `vpn:AdditionalKE`, `vpn:PPK` and `vpn:Resumption`, attributes of this project's own vocabulary.

use policy::xml::read;
use policy::{AdditionalKe, Database, Group, Ppk};

const GOOD: &str = include_str!("../../../../tests/policies/good/06_additional_key_exchanges.xml");

/// The message of the error that the file gives with one text replaced by another.
fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let changed = GOOD.replacen(from, to, 1);
    read("p.xml", &changed).err().unwrap_or_else(|| panic!("{to} is accepted")).to_string()
}

#[test]
fn exchanges_methods_and_none_are_read() {
    let loaded = read("p.xml", GOOD).unwrap_or_else(|errors| panic!("{errors}"));
    let tunnel = &loaded.policy.tunnels[0];
    let first = AdditionalKe::required(vec![Group::MlKem1024, Group::MlKem768]);
    let second = AdditionalKe { methods: vec![Group::Ecp384], optional: true };
    assert_eq!(tunnel.proposals[0].additional, [first, second]);
    let expected = [AdditionalKe::required(vec![Group::MlKem768])];
    assert_eq!(tunnel.children[0].pfs.additional, expected);
    assert!(!tunnel.children[0].pfs.accept_none);
}

#[test]
fn an_impossible_additional_exchange_is_refused() {
    let value = "ML-KEM-1024|ML-KEM-768 20|NONE";
    let declared = " xmlns:vpn=\"urn:vpnd:policy\"";
    for (from, to, expected) in [
        (declared, "", "is not declared"),
        (declared, " xmlns:vpn=\"urn:other\"", "xmlns:vpn is"),
        (value, "", "names no key exchange"),
        (value, "NONE", "there is no method"),
        (value, "ML-KEM-768|ML-KEM-768", "listed twice"),
        (value, "ML-KEM-999", "cannot be"),
        (value, "35 36 37 14 15 16 19 20", "more than 7"),
        (" IPSec_InitiatorDHGroup=\"19\"", "", "needs a key exchange that it adds to"),
    ] {
        let errors = error(from, to);
        assert!(errors.contains(expected), "{to}: {errors}");
    }
}

#[test]
fn a_stored_policy_keeps_it() {
    let database = Database::read("p.xml", GOOD).expect("it is a policy");
    let again = read("written.xml", &database.to_xml()).unwrap_or_else(|errors| panic!("{errors}"));
    let before = read("p.xml", GOOD).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(again.policy, before.policy);
}

/// The file with PPKs.
fn with_ppk(value: &str) -> String {
    let tunnel = "<IKETunnel ";
    assert!(GOOD.contains(tunnel));
    GOOD.replacen(tunnel, &format!("{tunnel}vpn:PPK=\"{value}\" "), 1)
}

#[test]
fn names_of_ppks_are_read_and_stored() {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    for (value, expected) in [
        ("site-1", Ppk::required(names(&["site-1"]))),
        ("  site-2  site-1 ", Ppk::required(names(&["site-2", "site-1"]))),
        ("a@b.example NONE", Ppk::optional(names(&["a@b.example"]))),
        ("a none", Ppk::optional(names(&["a"]))),
    ] {
        let text = with_ppk(value);
        let loaded = read("p.xml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.policy.tunnels[0].ppk, Some(expected), "{value}");
        let database = Database::read("p.xml", &text).expect("it is a policy");
        let again = read("w.xml", &database.to_xml()).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(again.policy, loaded.policy);
    }
    let without = read("p.xml", GOOD).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(without.policy.tunnels[0].ppk, None);
}

#[test]
fn names_that_cannot_be_ppks_are_refused() {
    let many = (0..17).map(|n| format!("k{n} ")).collect::<String>();
    let long = "k".repeat(65);
    for (value, expected) in [
        ("", "PPK"),
        ("NONE", "PPK"),
        ("NONE a", "is not the name of a PPK"),
        ("a/b", "is not the name of a PPK"),
        (".hidden", "is not the name of a PPK"),
        (&long, "is not the name of a PPK"),
        ("a a", "twice"),
        (&many, "17 PPKs, more than 16"),
    ] {
        let text = with_ppk(value);
        let errors = read("p.xml", &text).err().unwrap_or_else(|| panic!("{value} is accepted"));
        assert!(errors.to_string().contains(expected), "{value}: {errors}");
    }
    let undeclared = with_ppk("a").replacen(" xmlns:vpn=\"urn:vpnd:policy\"", "", 1);
    let errors = read("p.xml", &undeclared).expect_err("the prefix is not declared").to_string();
    assert!(errors.contains("is not declared"), "{errors}");
}

/// The file with the word about resumption.
fn with_resumption(value: &str) -> String {
    GOOD.replacen("<IKETunnel ", &format!("<IKETunnel vpn:Resumption=\"{value}\" "), 1)
}

#[test]
fn resumption_is_allowed_only_where_the_policy_says_so() {
    for (text, expected) in
        [(with_resumption("Yes"), true), (with_resumption("No"), false), (GOOD.to_owned(), false)]
    {
        let loaded = read("p.xml", &text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(loaded.policy.tunnels[0].resumption, expected);
        let database = Database::read("p.xml", &text).expect("it is a policy");
        let again = read("w.xml", &database.to_xml()).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(again.policy, loaded.policy);
    }
    let errors = read("p.xml", &with_resumption("maybe")).expect_err("it is refused");
    assert!(errors.to_string().contains("vpn:Resumption"), "{errors}");
    let undeclared = with_resumption("Yes").replacen(" xmlns:vpn=\"urn:vpnd:policy\"", "", 1);
    assert!(read("p.xml", &undeclared).is_err());
}
