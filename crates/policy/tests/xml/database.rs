//! Objects by name: an object that is put comes back, and objects that belong together stay together.

use policy::database::{DatabaseError, Effect, Kind, PutOptions, Selection, mirror};
use policy::xml::{Diagnostic, Diagnostics, Options, read, read_with};
use policy::{Binding, Bindings, Credential, Database, Policy, Role};
use proptest::prelude::*;
use std::fmt::Write;

const FILES: [&str; 9] = [
    include_str!("../../fixtures/01_ikev2_psk_gcm_transport_v4.xml"),
    include_str!("../../fixtures/02_ikev2_tunnel_multi_child_pfs.xml"),
    include_str!("../../fixtures/03_ikev1_main_combined_transforms_subnet.xml"),
    include_str!("../../fixtures/04_ikev2_certificates_dn_ipv6.xml"),
    include_str!("../../fixtures/05_ikev1_aggressive_group_responder_generic.xml"),
    include_str!("../../fixtures/06_ah_gmac_and_null_encryption.xml"),
    include_str!("../../fixtures/07_whitespace_and_order_quirks.xml"),
    include_str!("../../fixtures/08_roles_autostart_ondemand_matrix.xml"),
    include_str!("../../fixtures/vendor_sample.xml"),
];

const SITE: &str = include_str!("../../../../tests/policies/site/left.xml");

const FORCE: PutOptions<'_> =
    PutOptions { force: true, swap: false, lenient: false, bindings: None };

fn database(text: &str) -> Database {
    Database::read("p.xml", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn policy(text: &str) -> Policy {
    read("p.xml", text).unwrap_or_else(|errors| panic!("{errors}\n{text}")).policy
}

fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from}");
    text.replace(from, to)
}

fn only(kind: Kind, name: &str) -> Selection {
    Selection { kind: Some(kind), name: Some(name.into()), id_type: None }
}

/// Put, get, put.
fn comes_back(text: &str) {
    let stored = database(text);
    let written = stored.to_xml();
    assert_eq!(policy(&written), policy(text), "{}", &*written);
    assert_eq!(database(&written), stored, "{}", &*written);
    assert_eq!(database(&written).to_xml(), written);
}

#[test]
fn every_file_that_loads_comes_back() {
    let loadable: Vec<_> = FILES.iter().filter(|text| read("p.xml", text).is_ok()).collect();
    assert!(loadable.len() >= 5, "{}", loadable.len());
    loadable.into_iter().for_each(|text| comes_back(text));
    let good = std::fs::read_dir("../../tests/policies/good").expect("the directory is there");
    let good = good.map(|entry| entry.expect("readable").path());
    let mut count = 0;
    for path in good.filter(|path| path.extension().is_some_and(|kind| kind == "xml")) {
        comes_back(&std::fs::read_to_string(path).expect("readable"));
        count += 1;
    }
    assert!(count >= 3, "{count}");
}

#[test]
fn a_written_database_reads_well() {
    let text = changed(FILES[6], "Value=\"12345\"", "Value=\" &#9;a&lt;b&amp;&quot;c&quot; \"");
    let written = database(&text).to_xml();
    let lines: Vec<_> = written.lines().take(11).collect();
    assert_eq!(
        lines,
        [
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>",
            "<AIX_VPN Version=\"2.1\">",
            "  <IPSecTunnel",
            "      IPSec_TunnelName=\"Q2\"",
            "      IKE_TunnelName=\"Q1\"",
            "      IPSec_ProtectionRef=\"Q2Pol\"",
            "      IPSec_Flags_AutoStart=\"No\"",
            "      IPSec_Flags_OnDemand=\"No\">",
            "    <IPSecLocalIdentity Protocol=\"0\" Port=\"0\" EndPort=\"65535\">",
            "      <IPV4_Address_Range From_IPAddr=\"192.0.2.101\" To_IPAddr=\"192.0.2.101\"/>",
            "    </IPSecLocalIdentity>",
        ]
    );
    assert!(written.contains("IPSec_ProposalRefs=\"Q2Prop Q2Prop_b\""));
    assert!(written.contains("ESP_KeyRefreshMinutes=\"3\""));
    assert!(written.contains("Value=\" &#9;a&lt;b&amp;&quot;c&quot; \""), "{}", &*written);
}

#[test]
fn no_key_is_in_what_is_written_without_keys_or_printed() {
    let stored = database(SITE);
    let hidden = stored.export(&Selection::default(), false, false).expect("it is there");
    assert!(!hidden.contains("replace-this-key") && hidden.contains("<IKEPresharedKey"));
    assert!(!format!("{stored:?}").contains("replace-this-key"));
    let errors = read("p.xml", &hidden).expect_err("it is no policy");
    assert_eq!(errors.errors().next().expect("one").message, "the key is empty");

    let put = stored.put("p.xml", &changed(SITE, "replace-this-key", "secret-number"), &FORCE);
    let changes = put.expect("valid").changes;
    let key = changes.iter().find(|c| c.kind == "IKEPresharedKey").expect("it is there");
    assert_eq!(
        (key.effect, &key.differences[..]),
        (Effect::Replaced, &["Value: another key".to_owned()][..])
    );
}

/// One file after the other.
fn put(stored: &Database, text: &str, options: &PutOptions<'_>) -> Result<Database, Diagnostics> {
    Ok(stored.put("next.xml", text, options)?.database)
}

/// An IPSecTunnel for the sample.
const SECOND: &str = "<AIX_VPN Version='2.1'>
<IPSecTunnel IPSec_TunnelName='second' IKE_TunnelName='site' IPSec_ProtectionRef='site_p2'>
  <IPSecLocalIdentity><IPV4_Address_Range From_IPAddr='10.3.0.0' To_IPAddr='10.3.0.255'/></IPSecLocalIdentity>
  <IPSecRemoteIdentity><IPV4_Address_Range From_IPAddr='10.4.0.0' To_IPAddr='10.4.0.255'/></IPSecRemoteIdentity>
</IPSecTunnel>
</AIX_VPN>";

/// Wherever a policy is read.
#[test]
fn tunnels_with_equal_traffic_are_warned_of_unless_marks_or_interfaces_tell_them_apart() {
    let second = changed(&changed(SECOND, "10.3.", "10.1."), "10.4.", "10.2.");
    let interface =
        |name: &str, if_id| (name.to_owned(), Binding { if_id: Some(if_id), ..Binding::default() });
    for (if_ids, told) in [([1, 2], 0), ([1, 1], 1), ([0, 0], 1), ([1, 0], 0)] {
        let names = ["site_lan", "second"].into_iter().zip(if_ids);
        let bindings: Bindings = names.map(|(name, if_id)| interface(name, if_id)).collect();
        let bindings = Some(&bindings);
        let unused = |warnings: &[Diagnostic]| {
            let told = warnings.iter().map(ToString::to_string);
            told.filter(|w| w.contains("second is never used: covered by site_lan, line")).count()
        };
        let options = PutOptions { bindings, ..PutOptions::default() };
        let put = database(SITE).put("next.xml", &second, &options).expect("it fits");
        assert_eq!(unused(&put.warnings), told, "{if_ids:?}: {:?}", put.warnings);
        let options = Options { bindings, ..Options::default() };
        let loaded = put.database.load_with("stored.xml", &options).expect("it fits");
        assert_eq!(unused(&loaded.warnings), told, "{if_ids:?}: {:?}", loaded.warnings);
        let read = read_with("p.xml", &put.database.to_xml(), &options).expect("it fits");
        assert_eq!(unused(&read.warnings), told, "{if_ids:?}");
    }
}

#[test]
fn a_file_may_refer_to_what_is_stored() {
    let stored = database(SITE);
    let errors = put(&Database::default(), SECOND, &FORCE).expect_err("nothing to refer to");
    assert!(errors.to_string().contains("next.xml:2:"), "{errors}");
    let both = put(&stored, SECOND, &PutOptions::default()).expect("it refers to the sample");
    assert_eq!(both.objects().len(), stored.objects().len() + 1);
    let children = &policy(&both.to_xml()).tunnels[0].children;
    assert_eq!(
        children.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        ["site_lan", "second"]
    );
}

#[test]
fn a_name_that_is_taken_is_an_error_where_it_stands() {
    let stored = put(&database(SITE), SECOND, &PutOptions::default()).expect("valid");
    let errors = put(&stored, SECOND, &PutOptions::default()).expect_err("taken");
    let error = errors.errors().next().expect("one");
    assert_eq!((error.file.as_str(), error.line, error.column), ("next.xml", 2, 32));
    assert_eq!(error.message, "the policy store has an IPSecTunnel named \"second\" already");
    assert_eq!(errors.errors().count(), 1);
    // Every object of it, the key by its identity.
    let errors = put(&stored, SITE, &PutOptions::default()).expect_err("taken");
    assert_eq!(errors.errors().count(), 6, "{errors}");
    assert!(!errors.to_string().contains("replace-this-key"));

    let moved = changed(SECOND, "10.4.0.", "10.5.0.");
    let put = stored.put("next.xml", &moved, &FORCE).expect("meant");
    let [change] = &put.changes[..] else { panic!("{:?}", put.changes) };
    assert_eq!(change.effect, Effect::Replaced);
    assert_eq!(
        change.differences,
        [
            "IPSecRemoteIdentity/IPV4_Address_Range/From_IPAddr: \"10.4.0.0\" → \"10.5.0.0\"",
            "IPSecRemoteIdentity/IPV4_Address_Range/To_IPAddr: \"10.4.0.255\" → \"10.5.0.255\""
        ]
    );
    assert_eq!(put.database.objects().len(), stored.objects().len());
    let again = put.database.put("next.xml", &moved, &FORCE).expect("meant").changes;
    assert_eq!(again[0].effect, Effect::Unchanged);
}

#[test]
fn an_error_that_a_put_causes_elsewhere_is_shown_there() {
    let transport = "<AIX_VPN Version='2.1'><IPSecProposal IPSec_ProposalName='site_gcm'>
        <IPSecESPProtocol ESP_Encryption='ESP_AES256_GCM_16' ESP_EncapsulationMode='Transport'/>
        </IPSecProposal></AIX_VPN>";
    let stored = database(SITE);
    let errors = put(&stored, transport, &FORCE).expect_err("the tunnel needs tunnel mode");
    let error = errors.errors().next().expect("one");
    let line =
        1 + stored.to_xml().lines().position(|l| l.contains("<IPSecLocalIdentity")).expect("there");
    assert_eq!((error.file.as_str(), error.line), ("policy store", line), "{errors}");
    assert!(error.source.contains("<IPSecLocalIdentity"), "{errors}");
}

#[test]
fn an_object_that_others_refer_to_stays() {
    let stored = database(SITE);
    let in_use = |kind, name: &str| match stored.delete(&only(kind, name)) {
        Err(DatabaseError::InUse { by, .. }) => by.join(", "),
        other => panic!("{other:?}"),
    };
    assert_eq!(in_use(Kind::IpsecProposal, "site_gcm"), "IPSecProtection site_p2");
    assert_eq!(in_use(Kind::IpsecProtection, "site_p2"), "IPSecTunnel site_lan");
    assert_eq!(in_use(Kind::IkeTunnel, "site"), "IPSecTunnel site_lan");
    assert_eq!(in_use(Kind::IkeProtection, "site_p1"), "IKETunnel site");
    assert_eq!(in_use(Kind::IkePresharedKey, "192.0.2.2"), "IKETunnel site");
    let missing = stored.delete(&only(Kind::IkeTunnel, "sit")).expect_err("another name");
    assert_eq!(
        missing.to_string(),
        "the policy store has no IKETunnel named \"sit\"; did you mean \"site\"?"
    );
    let order = [
        (Kind::IpsecTunnel, "site_lan"),
        (Kind::IpsecProtection, "site_p2"),
        (Kind::IkeTunnel, "site"),
        (Kind::IkePresharedKey, "192.0.2.2"),
        (Kind::IpsecProposal, "site_gcm"),
        (Kind::IkeProtection, "site_p1"),
    ];
    let rest = order.iter().fold(stored.clone(), |stored, (kind, name)| {
        stored.delete(&only(*kind, name)).unwrap_or_else(|e| panic!("{e}"))
    });
    assert!(rest.is_empty());
    let all = Selection { kind: Some(Kind::IkeTunnel), ..Selection::default() };
    assert!(matches!(stored.delete(&all), Err(DatabaseError::InUse { .. })));
}

#[test]
fn a_tunnel_is_selected_with_all_that_belongs_to_it() {
    let stored = put(&database(FILES[1]), SITE, &PutOptions::default()).expect("others");
    let text = stored.export(&only(Kind::IkeTunnel, "site"), true, true).expect("it is there");
    assert_eq!(database(&text), database(SITE));
    let alone = stored.export(&only(Kind::IkeTunnel, "site"), false, true).expect("there");
    assert_eq!(alone.matches("<IKE").count(), 3, "{}", &*alone);
    let text = stored.export(&only(Kind::IpsecTunnel, "gw_https"), true, true).expect("there");
    let https = policy(&text);
    assert_eq!((https.tunnels.len(), https.tunnels[0].children.len()), (1, 1));
}

#[test]
fn a_key_is_named_by_whom_it_is_for() {
    let key = |kind: &str, value: &str, key: &str| {
        format!(
            "<IKEPresharedKey Value='{key}'><IKEPresharedRemoteID><{kind} Value='{value}'/></IKEPresharedRemoteID></IKEPresharedKey>"
        )
    };
    let file = |keys: &str| format!("<AIX_VPN Version='2.1'>{keys}</AIX_VPN>");
    let both =
        key("PK_FQDN", "b.example", "0123456789abcdef") + &key("PK_Key_ID", "b.example", "other");
    let stored = database(&file(&both));
    let named = |id_type: Option<&str>| Selection {
        id_type: id_type.map(str::to_owned),
        ..only(Kind::IkePresharedKey, "B.example")
    };
    let exact = only(Kind::IkePresharedKey, "b.example");
    assert!(matches!(stored.delete(&exact), Err(DatabaseError::Ambiguous(_))));
    assert_eq!(stored.delete(&named(Some("FQDN"))).expect("one").objects().len(), 1);
    let again = file(&key("PK_FQDN", "B.EXAMPLE", "another-key-of-octets"));
    assert!(put(&stored, &again, &PutOptions::default()).is_err());
    assert_eq!(put(&stored, &again, &FORCE).expect("meant").objects().len(), 2);
}

/// A responder for a group of peers, the key of each beside it.
fn group() -> String {
    let members = [
        ("FQDN", "ann.example.net", "<FQDN Value='ann.example.net'/>"),
        (
            "IPV4_Address",
            "192.0.2.33",
            "<IPV4_Address_Range From_IPAddr='192.0.2.33' To_IPAddr='192.0.2.34'/>",
        ),
        ("IPV4_Address", "192.0.2.34", ""),
        (
            "IPV4_Address",
            "198.51.100.2",
            "<IPV4_Subnet Value='198.51.100.2' Netmask='255.255.255.255'/>",
        ),
    ];
    let keys: String = members
        .iter()
        .map(|(kind, peer, _)| {
            format!("<IKEPresharedKey Value='a key of enough octets'><IKEPresharedRemoteID><PK_{kind} Value='{peer}'/></IKEPresharedRemoteID></IKEPresharedKey>")
        })
        .collect();
    let inside: String = members.iter().map(|(_, _, member)| *member).collect();
    let text = changed(
        SITE,
        "</AIX_VPN>",
        &format!("<IKEGroup IKE_GroupName='all'>{inside}</IKEGroup>{keys}</AIX_VPN>"),
    );
    let text = changed(&text, "Role=\"Both\"", "Role=\"Responder\"");
    changed(
        &text,
        "<IKERemoteIdentity><IPV4_Address Value=\"192.0.2.2\"/>",
        "<IKERemoteIdentity><IKEGroupRef Value=\"all\"/>",
    )
}

#[test]
fn a_group_belongs_to_its_tunnel_with_the_keys_of_its_members() {
    let text = group();
    comes_back(&text);
    let stored = database(&text);
    let part = stored.export(&only(Kind::IkeTunnel, "site"), true, true).expect("it is there");
    let keys = |text: &str| text.matches("<IKEPresharedKey").count();
    assert_eq!((keys(&text), keys(&part)), (5, 4), "{}", &*part);
    assert_eq!(policy(&part), policy(&text));
    for (kind, name) in [
        (Kind::IkeGroup, "all"),
        (Kind::IkePresharedKey, "192.0.2.34"),
        (Kind::IkePresharedKey, "198.51.100.2"),
    ] {
        let error = stored.delete(&only(kind, name)).expect_err("the tunnel wants it").to_string();
        assert!(error.contains("in use by IKETunnel site"), "{error}");
    }
    stored.delete(&only(Kind::IkePresharedKey, "192.0.2.2")).expect("nobody wants it any more");
    let errors = mirrored(&text, None).expect_err("whose file would it be");
    let error = errors.errors().next().expect("one");
    assert!(error.message.contains("the remote identity is a group"), "{error}");
    assert!(error.source.contains("IKEGroupRef"), "{error}");
}

#[test]
fn a_tunnel_with_certificates_has_no_key() {
    let text = changed(SITE, "Preshared_key", "ECDSA_signatures");
    let stored = database(&text);
    stored.delete(&only(Kind::IkePresharedKey, "192.0.2.2")).expect("nothing uses it");
    let part = stored.export(&only(Kind::IkeTunnel, "site"), true, true).expect("it is there");
    assert!(!part.contains("IKEPresharedKey"));
}

fn mirrored(text: &str, tunnel: Option<&str>) -> Result<Database, Diagnostics> {
    Ok(mirror("p.xml", text, tunnel)?.database)
}

#[test]
fn the_mirror_of_one_sample_is_the_other() {
    let right = include_str!("../../../../tests/policies/site/right.xml");
    let found = mirrored(SITE, None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(policy(&found.to_xml()), policy(right));
    assert_eq!(
        put(&Database::default(), right, &PutOptions { swap: true, ..FORCE }).expect("valid"),
        database(SITE)
    );
}

/// Whatever a NAT does to a side, its own file has the address that it is named by.
#[test]
fn a_mirrored_side_is_where_its_identity_says() {
    let prefix = "<AIX_VPN Version=\"2.1\" xmlns:vpn=\"urn:vpnd:policy\">";
    let own = changed(SITE, "<AIX_VPN Version=\"2.1\">", prefix);
    for own_side in ["192.0.2.1", "192.0.2.2"] {
        let named = format!("<IPV4_Address Value=\"{own_side}\"/>");
        let placed = format!("<IPV4_Address Value=\"{own_side}\" vpn:Address=\"10.0.0.61\"/>");
        let identity = |side: &str, named: &str| format!("<{side}>{named}</{side}>");
        let sides = ["IKELocalIdentity", "IKERemoteIdentity"];
        let text = sides.iter().fold(own.clone(), |text, side| {
            text.replace(&identity(side, &named), &identity(side, &placed))
        });
        assert_ne!(text, own, "{own_side}");
        let found = mirrored(&text, None).unwrap_or_else(|e| panic!("{e}"));
        let mirrored = policy(&found.to_xml());
        let tunnel = &mirrored.tunnels[0];
        for side in [&tunnel.local, &tunnel.remote] {
            assert_eq!(side.address, side.identity.address(), "{own_side}");
        }
    }
}

#[test]
fn mirrors_fit_each_other() {
    for text in FILES.iter().filter(|text| read("p.xml", text).is_ok()) {
        let here = policy(text);
        let there = mirrored(text, None).unwrap_or_else(|e| panic!("{e}"));
        let there = policy(&there.to_xml());
        assert_eq!(here.tunnels.len(), there.tunnels.len());
        for (a, b) in here.tunnels.iter().zip(&there.tunnels) {
            assert_eq!((&a.local, &a.remote), (&b.remote, &b.local));
            assert_eq!(a.credential, b.credential);
            assert_eq!(
                (a.role == Role::Responder, a.role == Role::Initiator),
                (b.role == Role::Initiator, b.role == Role::Responder)
            );
            for (a, b) in a.children.iter().zip(&b.children) {
                assert_eq!((&a.local, &a.remote), (&b.remote, &b.local));
                assert!(b.role.may_initiate() || !b.auto_start && !b.on_demand);
            }
        }
    }
}

/// The sample as a hub: a second peer with another key.
fn hub(key: &str) -> String {
    let second = "<IKETunnel IKE_TunnelName='branch' IKE_ProtectionRef='site_p1'>
        <IKELocalIdentity><IPV4_Address Value='192.0.2.1'/></IKELocalIdentity>
        <IKERemoteIdentity><IPV4_Address Value='192.0.2.3'/></IKERemoteIdentity></IKETunnel>
        <IKEPresharedKey Value='KEY'><IKEPresharedRemoteID><PK_IPV4_Address Value='192.0.2.3'/>
        </IKEPresharedRemoteID></IKEPresharedKey></AIX_VPN>";
    changed(SITE, "</AIX_VPN>", &changed(second, "KEY", key))
}

#[test]
fn peers_with_keys_of_their_own_are_mirrored_one_at_a_time() {
    let errors = mirrored(&hub("branch-key-of-the-hub"), None).expect_err("two keys for one side");
    assert!(errors.to_string().contains("--tunnel"), "{errors}");
    let branch = mirrored(&hub("branch-key-of-the-hub"), Some("branch")).expect("one peer");
    let [tunnel] = &policy(&branch.to_xml()).tunnels[..] else { panic!("one") };
    let Credential::PresharedKey(key) = &tunnel.credential else { panic!("a key") };
    assert_eq!(key.expose(), b"branch-key-of-the-hub");
    let errors = mirrored(&hub("k"), Some("brunch")).expect_err("no such tunnel");
    assert!(errors.to_string().contains("did you mean \"branch\"?"), "{errors}");
    // With one key for all, one file serves all.
    let shared = SITE.split('"').find(|part| part.contains("replace-this-key")).expect("there");
    let both = mirrored(&hub(shared), None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(policy(&both.to_xml()).tunnels.len(), 2);
}

#[test]
fn one_key_for_two_of_this_sides_identities_becomes_two() {
    let text = changed(&hub("unused-key-of-the-peer"), "Value='192.0.2.3'", "Value='192.0.2.2'");
    let text = changed(
        &text,
        "<IKELocalIdentity><IPV4_Address Value='192.0.2.1'/>",
        "<IKELocalIdentity><IPV4_Address Value='192.0.2.9'/>",
    );
    let from = text.find("<IKEPresharedKey Value='").expect("the second");
    let text = format!("{}</AIX_VPN>", &text[..from]);
    let found = mirrored(&text, None).unwrap_or_else(|e| panic!("{e}"));
    let keys = Selection { kind: Some(Kind::IkePresharedKey), ..Selection::default() };
    let names: Vec<_> =
        found.select(&keys, false).expect("there").iter().map(|o| o.name()).collect();
    assert_eq!(names, ["192.0.2.1", "192.0.2.9"]);
}

// ---- generated policies

/// A value as a careless author writes it, in either kind of quotation marks.
fn sloppy(value: &str, style: u8, padded: bool) -> String {
    let quote = if style & 1 == 0 { '"' } else { '\'' };
    let mut text = String::from(quote);
    let pad = |text: &mut String| {
        if padded && style & 2 != 0 {
            text.push_str(if style & 4 == 0 { " " } else { "\n\t" });
        }
    };
    pad(&mut text);
    for c in value.chars() {
        match c {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '\t' | '\n' | '\r' => {
                let _ = write!(text, "&#{};", u32::from(c));
            }
            c if c == quote || style & 8 != 0 && c.is_ascii_digit() => {
                let _ = write!(text, "&#x{:x};", u32::from(c));
            }
            c => text.push(c),
        }
    }
    pad(&mut text);
    text.push(quote);
    text
}

/// Network, length of its prefix, first and last port.
type Child = (u8, u8, Option<(u16, u16)>);

#[derive(Clone, Debug)]
struct Tunnel {
    name: String,
    key: String,
    host: u8,
    role: usize,
    flags: [bool; 3],
    minutes: u32,
    overlap: u8,
    offers: Vec<usize>,
    groups: Vec<usize>,
    children: Vec<Child>,
}

fn tunnels() -> impl Strategy<Value = Vec<Tunnel>> {
    let name = "[A-Za-z0-9<>&'\"_.é-]([A-Za-z0-9<>&'\" _.é-]{0,8}[A-Za-z0-9<>&'\"_.é-])?";
    let key = "[ -~\t\r\n]{1,40}";
    let ports = proptest::option::of((0..1000_u16, 1000..=u16::MAX));
    let children = proptest::collection::vec((any::<u8>(), 0..=32_u8, ports), 0..3);
    let numbers = (0..3_usize, any::<[bool; 3]>(), 1..=525_600_u32, 1..=99_u8);
    let lists = (
        proptest::sample::subsequence(vec![0, 1, 2, 3], 1..=4).prop_shuffle(),
        proptest::sample::subsequence(vec![0, 1, 2, 3], 1..=4).prop_shuffle(),
    );
    let tunnel = (name, key, numbers, lists, children).prop_map(
        |(name, key, (role, flags, minutes, overlap), (offers, groups), children)| Tunnel {
            name,
            key,
            host: 0,
            role,
            flags,
            minutes,
            overlap,
            offers,
            groups,
            children,
        },
    );
    proptest::collection::vec(tunnel, 1..4).prop_map(|mut tunnels| {
        for (at, tunnel) in tunnels.iter_mut().enumerate() {
            let _ = write!(tunnel.name, "{at}");
            tunnel.host = u8::try_from(at).expect("few") + 2;
        }
        tunnels
    })
}

/// Objects in some order, each attribute in some style.
fn document(tunnels: &[Tunnel], styles: &[u8], turn: usize) -> String {
    const ROLES: [&str; 3] = ["Both", "Initiator", "Responder"];
    const OFFERS: [&str; 4] = [
        "ESP_Encryption='ESP_AES256_GCM_16'",
        "ESP_Authentication='HMAC-SHA' ESP_Encryption='ESP_AES_CBC_128' ESP_KeyRefreshKB='0100'",
        "ESP_ExtendedSeqNum=' 1' ESP_Encryption='ESP_AES128_GCM_16'",
        "ESP_KeyRefreshMinutes='007' ESP_Encryption='ESP_AES192_GCM_16'",
    ];
    const GROUPS: [&str; 4] = ["14", "GROUP_19", "20", "GROUP_14"];
    let mut drawn = styles.iter().copied().cycle();
    let mut quote = |value: &str, padded| sloppy(value, drawn.next().unwrap_or(0), padded);
    let yes = |flag: bool| if flag { "Yes" } else { "No" };
    let mut objects: Vec<String> = Vec::new();
    for t in tunnels {
        let address = format!("192.0.2.{}", t.host);
        let groups: Vec<_> = t.groups.iter().map(|g| GROUPS[*g]).collect();
        objects.push(format!(
            "<IKEProtection IKE_KeyOverlap={} IKE_Role={} IKE_Version='2' IKE_ProtectionName={}>\
             <IKETransform IKE_Encryption='AES-CBC-256'/><IKETransform IKE_DHGroup='014'/>\
             <IKETransform IKE_Hash='HMAC_SHA2_256'/><IKETransform IKE_KeyRefreshMinutes={}/></IKEProtection>",
            quote(&t.overlap.to_string(), true),
            quote(ROLES[t.role], true),
            quote(&t.name, true),
            quote(&t.minutes.to_string(), true),
        ));
        objects.push(format!(
            "<IKETunnel IKE_Flags_AutoStart={} IKE_ProtectionRef={} IKE_TunnelName={}>\
             <IKELocalIdentity><IPV4_Address Value='192.0.2.1'/></IKELocalIdentity>\
             <IKERemoteIdentity><IPV4_Address Value={}/></IKERemoteIdentity></IKETunnel>",
            quote(yes(t.flags[0]), true),
            quote(&t.name, true),
            quote(&t.name, true),
            quote(&address, true),
        ));
        objects.push(format!(
            "<IKEPresharedKey Value={}><IKEPresharedRemoteID><PK_IPV4_Address Value={}/>\
             </IKEPresharedRemoteID></IKEPresharedKey>",
            quote(&t.key, false),
            quote(&address, true),
        ));
        let mut refs = String::new();
        for offer in &t.offers {
            let name = format!("p{}-{offer}", t.host);
            objects.push(format!(
                "<IPSecProposal IPSec_ProposalName={}><IPSecESPProtocol {}/></IPSecProposal>",
                quote(&name, true),
                OFFERS[*offer],
            ));
            let _ = write!(refs, "{name}  ");
        }
        objects.push(format!(
            "<IPSecProtection IPSec_Flags_UseLifeSize={} IPSec_ProposalRefs={} IPSec_ResponderDHGroup={} IPSec_ProtectionName={}/>",
            quote(yes(t.flags[1]), true), quote(&refs, true), quote(&groups.join(" "), true), quote(&t.name, true),
        ));
        for (at, (net, prefix, ports)) in t.children.iter().enumerate() {
            let ports = match ports {
                Some((port, end)) => format!("EndPort='{end}' Port='0{port}' Protocol='17'"),
                None => String::new(),
            };
            let protocol = if ports.is_empty() { "" } else { "Protocol='17'" };
            objects.push(format!(
                "<IPSecTunnel IPSec_Flags_OnDemand={} IPSec_ProtectionRef={} IKE_TunnelName={} IPSec_TunnelName={}>\
                 <IPSecLocalIdentity {ports}><IPV4_Subnet Netmask='{prefix}' Value='10.{net}.0.0'/></IPSecLocalIdentity>\
                 <IPSecRemoteIdentity {protocol}><IPV4_Address_Range From_IPAddr={} To_IPAddr={}/></IPSecRemoteIdentity>\
                 </IPSecTunnel>",
                quote(yes(t.flags[2]), true), quote(&t.name, true), quote(&t.name, true),
                quote(&format!("c{at}{}", t.name), true),
                quote("172.16.0.0", true), quote("172.16.3.9", true),
            ));
        }
    }
    let turn = turn % objects.len();
    objects.rotate_left(turn);
    format!("<AIX_VPN Version='2.1'><!-- generated -->{}</AIX_VPN>", objects.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn generated_policies_come_back(
        tunnels in tunnels(),
        styles in proptest::collection::vec(any::<u8>(), 1..40),
        turn in any::<usize>(),
    ) {
        let text = document(&tunnels, &styles, turn);
        comes_back(&text);
        let stored = database(&text);
        let again = stored.put("p.xml", &text, &FORCE).expect("it is the same");
        prop_assert_eq!(&again.database, &stored);
        prop_assert!(again.changes.iter().all(|c| c.effect == Effect::Unchanged));
        for object in stored.objects() {
            let selection = Selection {
                kind: object.kind(),
                name: Some(object.name().to_owned()),
                id_type: object.id_type().map(str::to_owned),
            };
            let part = stored.export(&selection, true, true).expect("it is there");
            database(&part);
        }
        // Twice mirrored is the same as before, but for flags that have no effect.
        let there = mirrored(&text, None);
        if let Ok(there) = there {
            let here = mirrored(&there.to_xml(), None).expect("it has another side");
            for (a, b) in policy(&here.to_xml()).tunnels.iter().zip(&policy(&text).tunnels) {
                prop_assert_eq!((&a.local, &a.remote, &a.credential), (&b.local, &b.remote, &b.credential));
                prop_assert_eq!(a.role, b.role);
            }
        } else {
            prop_assert!(tunnels.len() > 1, "different keys for one side");
        }
    }
}
