//! The guide to failures shows what is really printed: every failure of `docs/operate/troubleshooting.md` is made to
//! happen between two engines on a simulated wire, and told by the code behind `vpnctl why`.
//!
//! The blocks whose names begin with `host-` are about the hosts themselves: `tests/netns/no_traffic.rs` compares them.
//!
//! `TROUBLESHOOTING_WRITE=1` puts what is printed into the guide instead of comparing it.

use diagnosis::findings::FindingKind;
use ike::unreachable::{Lack, Obstacle, Unreachable, Unsent};
use ike::{Config, Transmit};
use policy::KeyKind;
use policy::xml::Definitions;
use rcgen::{CustomExtension, SanType};
use sim::certificates::{self, Authority, Wallet};
use sim::link::Content;
use sim::{HostId, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use terminal::report::{Colour, why};
use vpnd::why::explain;

const LEFT: &str = include_str!("../../../../tests/policies/site/left.xml");
const RIGHT: &str = include_str!("../../../../tests/policies/site/right.xml");
const VENDOR_LEFT: &str = include_str!("../../../../config/aix-sample-left.xml");
const VENDOR_RIGHT: &str = include_str!("../../../../config/aix-sample-right.xml");

/// When the operator asks, after what happened.
const LATER: Duration = Duration::from_millis(12_500);

/// Two gateways whose policies come from files.
struct Stage {
    world: World,
    hosts: [HostId; 2],
    definitions: [Definitions; 2],
}

impl Stage {
    /// Gateways at 192.0.2.1 and 192.0.2.2, or where the policies say.
    fn new(addresses: [[u8; 4]; 2], texts: [&str; 2]) -> Self {
        let mut world = World::new(1);
        let config =
            Config { liveness_interval: Some(Duration::from_secs(30)), ..Config::default() };
        let mut definitions = Vec::new();
        let mut hosts = Vec::new();
        for ((name, address), text) in ["left", "right"].into_iter().zip(addresses).zip(texts) {
            let loaded = policy::xml::read("policy.xml", text)
                .unwrap_or_else(|errors| panic!("the policy of {name}: {errors}"));
            definitions.push(loaded.definitions);
            let policy = Arc::new(loaded.policy);
            hosts.push(world.add_host(name, IpAddr::from(address), policy, config.clone()));
        }
        let definitions = definitions.try_into().expect("two");
        Self { world, hosts: hosts.try_into().expect("two"), definitions }
    }

    /// The two sites of the samples, one of them changed.
    fn sites(left: &str, right: &str) -> Self {
        Self::new([[192, 0, 2, 1], [192, 0, 2, 2]], [left, right])
    }

    /// Lets the left side start what it can, and something fail on either side.
    fn starts(mut self, tunnel: &str) -> Self {
        self.world.connect(self.hosts[0], tunnel);
        self.fails()
    }

    fn fails(mut self) -> Self {
        let hosts = self.hosts;
        let failed = |world: &mut World| {
            let [left, right] = hosts.map(|h| {
                let status = world.status(h);
                status.iter().any(|t| {
                    !t.failures.is_empty() || t.children.iter().any(|c| !c.failures.is_empty())
                })
            });
            left || right
        };
        assert!(self.world.run_until(Duration::from_secs(600), failed), "nothing failed");
        // The consequences are over as well, and both sides are asked some time after their failures.
        self.world.run_for(LATER);
        self
    }

    /// Lets the left side begin, and tells it of what this host lacks to send its first message.
    fn cannot_send(mut self, tunnel: &str, lack: Lack) -> Self {
        let (transmit, _) = self.begins(tunnel);
        let unsent = Err(Unsent::Lack(lack));
        self.world.command(self.hosts[0], "sent", |e, now| e.handle_sent(now, &transmit, unsent));
        self.fails()
    }

    /// Lets the left side begin in vain, and an ICMP message come.
    fn unreachable(mut self, tunnel: &str, unreachable: Unreachable) -> Self {
        self.world.cut(self.hosts[1]);
        let (transmit, remote) = self.begins(tunnel);
        self.world.command(self.hosts[0], "icmp", |e, _| {
            e.handle_unreachable(remote, &transmit.octets[..16], unreachable);
        });
        self
    }

    /// The first message of the left side.
    fn begins(&mut self, tunnel: &str) -> (Transmit, SocketAddr) {
        self.world.tap();
        self.world.connect(self.hosts[0], tunnel);
        let first = self.world.take_tapped().into_iter().find_map(|parcel| match parcel.content {
            Content::Ike(octets) => Some((parcel.source, parcel.destination, octets)),
            _ => None,
        });
        let (local, remote, octets) = first.expect("IKE_SA_INIT");
        (Transmit { local, remote, octets, keepalive: false }, remote)
    }

    /// Brings everything up.
    fn up(mut self, tunnel: &str) -> Self {
        self.world.connect(self.hosts[0], tunnel);
        self.world.run_for(Duration::from_secs(2));
        let up = |s: &ike::status::IkeStatus| s.children.iter().all(|c| c.sa.is_some());
        assert!(self.world.status(self.hosts[0]).iter().all(up), "it is up");
        self
    }

    /// The output of `vpnctl why` on one side.
    fn why(&mut self, side: usize, tunnel: &str) -> String {
        let status = self.world.status(self.hosts[side]);
        let status = status.iter().find(|t| t.name == tunnel).expect("a tunnel of that name");
        // The ages of the simulation are always the same, so that the times are.
        let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_262_400);
        why(&explain(status, None, &self.definitions[side], noon), false, Colour(false))
    }
}

/// Replaces what must be there.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in the policy");
    text.replace(from, to)
}

/// A side's certificate for its address, and whom it trusts.
fn wallet(signer: &Authority, name: &str, until: i32, trusted: &Authority) -> Wallet {
    let key = certificates::key(KeyKind::EcdsaP256, name);
    let mut params = certificates::params(name);
    let address = if name == "left" { "192.0.2.1" } else { "192.0.2.2" };
    params.subject_alt_names = vec![SanType::IpAddress(address.parse().expect("an address"))];
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let certificate = signer.sign(&params, &key);
    Wallet {
        own: vec![(certificate, key)],
        trusted: vec![trusted.der.clone()],
        ..Wallet::default()
    }
}

/// Both sites prove themselves by certificates; those of the left are of no use to the right.
fn certificates(printed: &mut BTreeMap<&'static str, String>) {
    let by_certificate = |text: &str| {
        let start = text.find("  <IKEPresharedKey ").expect("it has a key");
        let end =
            text.find("</IKEPresharedKey>\n").expect("it has a key") + "</IKEPresharedKey>\n".len();
        let text = [&text[..start], &text[end..]].concat();
        changed(&text, "\"Preshared_key\"", "\"ECDSA_signatures\"")
    };
    let (left, right) = (by_certificate(LEFT), by_certificate(RIGHT));
    let ours = Authority::root("Example root", KeyKind::EcdsaP256);
    let other = Authority::root("Other root", KeyKind::EcdsaP256);
    let fail = |wallet_left: Wallet| {
        let mut stage = Stage::sites(&left, &right);
        let [l, r] = stage.hosts;
        stage.world.trust(l, wallet_left.trust());
        stage.world.trust(r, wallet(&ours, "right", 2027, &ours).trust());
        let mut stage = stage.starts("site");
        [stage.why(0, "site"), stage.why(1, "site")]
    };
    let mut stage = Stage::sites(&left, &right);
    let [l, r] = stage.hosts;
    stage.world.trust(l, wallet(&ours, "left", 2027, &ours).trust());
    stage.world.trust(r, wallet(&ours, "right", 2026, &ours).trust());
    printed.insert("certificate-expired-responder", stage.starts("site").why(1, "site"));
    let [here, _] = fail(wallet(&ours, "left", 2026, &ours));
    printed.insert("certificate-expired", here);
    let [here, there] = fail(wallet(&other, "left", 2027, &ours));
    printed.insert("certificate-unknown-ca", here);
    printed.insert("certificate-unknown-ca-peer", there);

    let mut stage = Stage::sites(&left, &right);
    let [l, r] = stage.hosts;
    // NameConstraints: 192.0.2.1 is excluded.
    let address = [0x87, 8, 192, 0, 2, 1, 255, 255, 255, 255];
    let content = [&[0x30, 14, 0xa1, 12, 0x30, 10][..], &address].concat();
    let bound = CustomExtension::from_oid_content(&[2, 5, 29, 30], content);
    let bound = Authority::root_with("Example root", bound);
    stage.world.trust(l, wallet(&bound, "left", 2027, &bound).trust());
    stage.world.trust(r, wallet(&bound, "right", 2027, &bound).trust());
    printed.insert("certificate-constraint-peer", stage.starts("site").why(1, "site"));
}

/// The output in each case, by the name of its block in the guide.
fn printed() -> BTreeMap<&'static str, String> {
    let mut printed = BTreeMap::new();

    let mut stage = Stage::sites(LEFT, RIGHT);
    stage.world.cut(stage.hosts[1]);
    printed.insert("no-answer", stage.starts("site").why(0, "site"));

    let mut stage = Stage::sites(LEFT, RIGHT);
    stage.world.cut(stage.hosts[1]);
    stage.world.connect(stage.hosts[0], "site");
    stage.world.run_for(Duration::from_secs(4));
    printed.insert("unanswered", stage.why(0, "site"));

    let mut stage = Stage::sites(LEFT, RIGHT).up("site");
    stage.world.cut(stage.hosts[1]);
    stage.world.run_for(Duration::from_secs(40));
    printed.insert("silent", stage.why(0, "site"));

    let icmp = Unreachable { by: [192, 0, 2, 2].into(), what: Obstacle::Port };
    let mut stage = Stage::sites(LEFT, RIGHT).unreachable("site", icmp).fails();
    printed.insert("port-unreachable", stage.why(0, "site"));
    let mut stage = Stage::sites(LEFT, RIGHT).cannot_send("site", Lack::Address);
    printed.insert("no-address", stage.why(0, "site"));
    let mut stage = Stage::sites(LEFT, RIGHT).cannot_send("site", Lack::Route);
    printed.insert("no-route", stage.why(0, "site"));

    let key = changed(RIGHT, "replace-this-key-before-use", "another key");
    let mut stage = Stage::sites(LEFT, &key).starts("site");
    printed.insert("wrong-key", stage.why(0, "site"));
    printed.insert("wrong-key-peer", stage.why(1, "site"));

    let named = changed(
        RIGHT,
        r#"<IKERemoteIdentity><IPV4_Address Value="192.0.2.1"/></IKERemoteIdentity>"#,
        r#"<IKERemoteIdentity><FQDN Value="left.example"><IPV4_Address Value="192.0.2.1"/></FQDN></IKERemoteIdentity>"#,
    );
    let named = changed(
        &named,
        r#"<PK_IPV4_Address Value="192.0.2.1"/>"#,
        r#"<PK_FQDN Value="left.example"/>"#,
    );
    let mut stage = Stage::sites(LEFT, &named).starts("site");
    printed.insert("identity", stage.why(0, "site"));
    printed.insert("identity-peer", stage.why(1, "site"));

    let other = changed(RIGHT, "\"AES-CBC-256\"", "\"AES-CBC-128\"");
    let mut stage = Stage::sites(LEFT, &other).starts("site");
    printed.insert("ike-proposal", stage.why(0, "site"));
    printed.insert("ike-proposal-peer", stage.why(1, "site"));

    let mut stage = Stage::sites(LEFT, RIGHT).up("site");
    let policy = policy::xml::read("policy.xml", &other).expect("a good policy").policy;
    stage.world.replace_policy(stage.hosts[1], Arc::new(policy));
    printed.insert("ike-renewal", stage.fails().why(0, "site"));

    let other = changed(RIGHT, "ESP_AES256_GCM_16", "ESP_AES128_GCM_16");
    let mut stage = Stage::sites(LEFT, &other).starts("site");
    printed.insert("esp-proposal", stage.why(0, "site"));
    printed.insert("esp-proposal-peer", stage.why(1, "site"));

    let other = changed(
        RIGHT,
        r#"IPSec_InitiatorDHGroup="19" IPSec_ResponderDHGroup="GROUP_19""#,
        r#"IPSec_InitiatorDHGroup="20" IPSec_ResponderDHGroup="GROUP_20""#,
    );
    let mut stage = Stage::sites(LEFT, &other).up("site");
    assert!(stage.world.rekey(stage.hosts[0], "site_lan"), "it is up");
    let mut stage = stage.fails();
    printed.insert("pfs", stage.why(0, "site"));
    printed.insert("pfs-peer", stage.why(1, "site"));

    let groups = r#"IPSec_InitiatorDHGroup="19" IPSec_ResponderDHGroup="GROUP_19""#;
    let none = r#"IPSec_InitiatorDHGroup="0" IPSec_ResponderDHGroup="0""#;
    let mut stage = Stage::sites(&changed(LEFT, groups, none), RIGHT).up("site");
    assert!(stage.world.rekey(stage.hosts[0], "site_lan"), "it is up");
    printed.insert("pfs-demanded", stage.fails().why(0, "site"));

    let other = changed(RIGHT, "10.1.0.", "10.9.0.");
    let mut stage = Stage::sites(LEFT, &other).starts("site");
    printed.insert("traffic", stage.why(0, "site"));
    printed.insert("traffic-peer", stage.why(1, "site"));

    let tunnel = changed(
        VENDOR_RIGHT,
        "ESP_EncapsulationMode=\"Transport\"",
        "ESP_EncapsulationMode=\"Tunnel\"",
    );
    let addresses = [[192, 0, 2, 10], [192, 0, 2, 20]];
    let mut stage = Stage::new(addresses, [VENDOR_LEFT, &tunnel]).starts("LP1");
    printed.insert("mode", stage.why(0, "LP1"));

    let elsewhere = changed(RIGHT, "192.0.2.1\"", "192.0.2.9\"");
    let mut stage = Stage::sites(LEFT, &elsewhere).starts("site");
    printed.insert("address", stage.why(0, "site"));
    printed.insert("address-peer", stage.why(1, "site"));

    let responder = changed(LEFT, "IKE_Role=\"Both\"", "IKE_Role=\"Responder\"");
    printed.insert("responder", Stage::sites(&responder, RIGHT).why(0, "site"));

    let mut stage = Stage::sites(LEFT, RIGHT).up("site");
    stage.world.cut(stage.hosts[1]);
    printed.insert("peer-gone", stage.fails().why(0, "site"));

    let mut stage = Stage::sites(LEFT, RIGHT).up("site");
    assert!(stage.world.disconnect(stage.hosts[1], "site"), "it is up");
    stage.world.run_for(LATER);
    printed.insert("deleted", stage.why(0, "site"));

    let mut stage = Stage::sites(LEFT, RIGHT);
    stage.world.cut(stage.hosts[1]);
    let mut stage = stage.starts("site");
    stage.world.heal();
    let mut stage = stage.up("site");
    printed.insert("history", stage.why(0, "site"));

    certificates(&mut printed);

    let in_use = std::io::Error::from_raw_os_error(nix::errno::Errno::EADDRINUSE as i32);
    let holder = Some(host::Process { id: 1234, name: "charon".to_owned() });
    let taken = vpn::SocketError { port: 500, source: in_use, holder };
    printed.insert(
        "port-taken",
        format!("vpnd: {}\n", vpnd::daemon::StartupError::Gateway(taken.into())),
    );
    for (name, errno, file) in [
        ("no-tun", nix::errno::Errno::ENOENT, None),
        ("closed-tun", nix::errno::Errno::EACCES, Some([0o600, 0, 0])),
    ] {
        let error = std::io::Error::from_raw_os_error(errno as i32);
        let error = host::tun_file::TunFileError::new(error, file, false);
        let error = vpnd::daemon::StartupError::Privilege(error.into());
        printed.insert(name, format!("vpnd: {error}\n"));
    }
    printed
}

#[test]
fn an_icmp_message_is_told_once_while_the_request_is_repeated() {
    let icmp = Unreachable { by: [192, 0, 2, 2].into(), what: Obstacle::Port };
    let mut stage = Stage::sites(LEFT, RIGHT).unreachable("site", icmp);
    stage.world.run_for(Duration::from_secs(4));
    let text = stage.why(0, "site");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("waits for the peer's answer to IKE_SA_INIT, sent 3 times"), "{text}");
    assert_eq!(text.matches("nothing listens on UDP 500").count(), 1, "{text}");
}

#[test]
fn the_documents_have_every_kind_of_finding() {
    let guide = include_str!("../../../../docs/operate/troubleshooting.md");
    let (_, table) = guide.split_once("| `kind` in JSON | the reason |").expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let in_guide: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let protocol = include_str!("../../../../docs/reference/control.md");
    let (_, table) = protocol.split_once("| field of a finding | |").expect("the table");
    let row = table.lines().find(|line| line.starts_with("| `kind` |")).expect("the row");
    let in_protocol: BTreeSet<&str> = row.split('`').skip(3).step_by(2).collect();
    let kinds: BTreeSet<&str> = FindingKind::ALL.into_iter().map(FindingKind::name).collect();
    assert_eq!(in_guide, kinds, "left: docs/operate/troubleshooting.md");
    assert_eq!(in_protocol, kinds, "left: docs/reference/control.md");
}

#[test]
fn the_guide_shows_what_is_printed() {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate/troubleshooting.md");
    let guide = std::fs::read_to_string(&path).expect("the guide is there");
    let printed = printed();
    let mut rewritten = String::new();
    let mut shown = Vec::new();
    let mut lines = guide.split_inclusive('\n');
    while let Some(line) = lines.next() {
        rewritten.push_str(line);
        let Some(name) = line.trim_end().strip_prefix("```text ") else { continue };
        if name.starts_with("host-") {
            continue;
        }
        let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim_end() != "```").collect();
        let printed = printed.get(name).unwrap_or_else(|| panic!("nothing prints {name:?}"));
        if std::env::var_os("TROUBLESHOOTING_WRITE").is_none() {
            assert_eq!(block.concat(), *printed, "the guide's block {name:?} is out of date");
        }
        rewritten.push_str(printed);
        rewritten.push_str("```\n");
        shown.push(name);
    }
    for name in printed.keys() {
        assert!(shown.contains(name), "the guide does not show {name:?}:\n{}", printed[name]);
    }
    if std::env::var_os("TROUBLESHOOTING_WRITE").is_some() {
        std::fs::write(&path, rewritten).expect("the guide can be written");
    }
}
