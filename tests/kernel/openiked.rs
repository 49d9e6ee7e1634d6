//! `vpnd` in userspace, and an OpenIKED whose packets the kernel protects, by PF_KEY.

mod iked;
mod setup;

use crate::guest::{Group, Kernel, Scenario, scenario};
use crate::peer::{PATIENT, Peer, USERSPACE, World, endurance, gateway};
use iked::Iked;
use policy::{EspEncryption, Group as Method, IkeEncryption, Integrity, KeyBits, Prf};
use setup::{AES_CBC, Begun, CBC_256, Esp, Ike, IkeAlgorithms, Proof, Setup};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use testkit::{Need, output, until};

const NEEDS: &[Need] =
    &[Need::Program("chroot"), Need::Program("ping"), Need::Peer("openiked", "usr/sbin/iked")];

pub fn group() -> Group {
    Group { name: "OpenIKED", kernel: Kernel::Built, scenarios: scenarios() }
}

impl Setup {
    fn world(&self) -> World<Iked> {
        let ends = match self.proof {
            Proof::PresharedKey => None,
            Proof::Certificates(method) => Some(certify(method, self.outer())),
        };
        let directory = ends.as_ref().map(|ends| ends.join("left"));
        let lines = directory.map(|d| format!("[certificates]\ndirectory = {d:?}\n"));
        let vpnd = gateway(USERSPACE, &self.policy(), PATIENT);
        vpnd.configure(&lines.unwrap_or_default());
        World::with(vpnd, USERSPACE, self.outer(), self.inner(), ["site", "site_lan"], |space| {
            if !self.transport {
                // Policies of the kernel take packets off whatever route they go.
                space.ip("route add 10.1.0.0/16 dev wire src 10.2.0.1");
            }
            let files = ends.map(|ends| ends.join("right"));
            Iked::start(space, &self.configuration(), files.as_deref())
        })
    }
}

/// Makes certificates of both ends that name their addresses. Returns where the ends `left` and `right` have their
/// files; they vanish with the guest.
fn certify(method: &str, addresses: [&str; 2]) -> PathBuf {
    let directory = tempfile::tempdir().expect("a temporary directory").keep();
    let key = if method.starts_with("RSA") { "rsa3072" } else { "ecdsa256" };
    let pki = |arguments: &[&str]| {
        let mut command = Command::new(testkit::vpnctl());
        command.args(["pki", "--dir"]).arg(&directory).args(arguments).args(["--key", key]);
        output(command);
    };
    pki(&["init", "--name", "authority"]);
    for (end, address) in ["left", "right"].into_iter().zip(addresses) {
        pki(&["issue", end, "--ip", address]);
    }
    directory.join("ends")
}

fn scenarios() -> Vec<Scenario> {
    let by_iked = Setup { begun: Begun::ByIked, ..Setup::default() };
    let cbc = EspEncryption::AesCbc;
    let sha1 = Esp::of(cbc(KeyBits::B128), Integrity::HmacSha1_96);
    let sha384 = Esp::of(cbc(KeyBits::B192), Integrity::HmacSha2_384_192);
    let certificates = |method| Proof::Certificates(method);
    let table = [
        ("AES-CBC-256 with HMAC-SHA2-512, tunnel, begun by vpnd", Setup::default()),
        (
            "AES-CBC-128 with HMAC-SHA1, tunnel, begun by OpenIKED",
            Setup { esp: sha1, ..by_iked.clone() },
        ),
        (
            "AES-CBC-192 with HMAC-SHA2-384, transport over IPv6, begun by vpnd",
            Setup { esp: sha384, v6: true, transport: true, ..Setup::default() },
        ),
        (
            "AES-CBC-256 with HMAC-SHA2-512, transport, begun by OpenIKED",
            Setup { transport: true, ..by_iked.clone() },
        ),
        (
            "AES-CBC-128 with HMAC-SHA1, tunnel in UDP, begun by vpnd",
            Setup { esp: sha1, udp: true, ..Setup::default() },
        ),
        (
            "ECDSA certificates, begun by vpnd",
            Setup { proof: certificates("ECDSA_signatures"), ..Setup::default() },
        ),
        (
            "ECDSA certificates, begun by OpenIKED",
            Setup { proof: certificates("ECDSA_signatures"), ..by_iked.clone() },
        ),
        (
            "RSA certificates, begun by vpnd",
            Setup { proof: certificates("RSA_signatures"), ..Setup::default() },
        ),
        (
            "RSA certificates, begun by OpenIKED",
            Setup { proof: certificates("RSA_signatures"), ..by_iked.clone() },
        ),
    ];
    let mut all: Vec<Scenario> = table
        .into_iter()
        .map(|(name, setup)| scenario(name, NEEDS, move || comes_and_goes(&setup)))
        .collect();
    all.push(scenario("every group and cipher of the IKE SA", NEEDS, suites));
    all.push(scenario("short lifetimes", NEEDS, short_lifetimes));
    all.push(scenario("keys renewed by OpenIKED's clock", NEEDS, renewed_by_openiked));
    all.push(scenario("vpnd moves", NEEDS, moves));
    all.push(scenario("refusals in the words of OpenIKED", NEEDS, refusals));
    all.push(scenario("either daemon restarts", NEEDS, restarts));
    all
}

/// Comes up, carries traffic, is rekeyed by vpnd under it, and goes.
fn comes_and_goes(setup: &Setup) {
    let mut world = setup.world();
    world.up(setup.begun == Begun::ByVpnd);
    let echoes = || world.vpnd.space.pings(&from(setup), 2, &setup.inner()[1].to_string());
    assert!(echoes().is_ok(), "{} {}", world.state(), world.peer.state());
    let counts = world.count(|| {
        for _ in 0..3 {
            world.vpnd.ctl_ok(&["rekey", "site_lan"]);
            world.peer.await_one();
        }
        world.vpnd.ctl_ok(&["rekey", "site"]);
        world.peer.await_one();
    });
    // While OpenIKED replaces its flows, which takes time on a loaded host, its kernel answers in the clear or refuses
    // packets.
    let spoilt = world.arrived_in_the_clear() + world.refused_by_peer();
    assert!(counts.lost <= spoilt && counts.unexpected == 0, "{counts:?} {}", world.state());
    world.streams();
    match setup.begun {
        Begun::ByVpnd => drop(world.vpnd.ctl_ok(&["deactivate", "site"])),
        Begun::ByIked => {
            world.peer.ctl(&["reset", "id", &format!("IPV4/{}", setup.outer()[0])]);
            world.vpnd.await_list(&[]);
        }
    }
    world.peer.await_none();
    world.vpnd.stop();
}

/// The source of pings.
fn from(setup: &Setup) -> String {
    format!("-I {}", setup.inner()[0])
}

/// Each suite of the IKE SA, one after the other.
fn suites() {
    let groups = Method::ALL.into_iter().filter(|group| group.row().openiked.is_some());
    let (sha1, sha256) = (Integrity::HmacSha1_96, Integrity::HmacSha2_256_128);
    let (sha384, sha512) = (Integrity::HmacSha2_384_192, Integrity::HmacSha2_512_256);
    let with_mac =
        |bits, mac, group| Ike::of(IkeEncryption::AesCbc(bits), Some(mac), Prf::of(mac), group);
    let gcm = |bits, prf, group| Ike::of(IkeEncryption::AesGcm16(bits), None, prf, group);
    let ciphers = [
        gcm(KeyBits::B256, Prf::HmacSha2_384, Method::Ecp384),
        gcm(KeyBits::B128, Prf::HmacSha2_256, Method::Curve25519),
        with_mac(KeyBits::B128, sha1, Method::Ecp256),
        with_mac(KeyBits::B192, sha384, Method::Ecp256),
        with_mac(KeyBits::B256, sha512, Method::Ecp256),
    ];
    let all = groups.map(|group| with_mac(KeyBits::B256, sha256, group)).chain(ciphers);
    let world = Setup::default().world();
    for ike in all {
        let setup = Setup { ike, pfs: ike.policy.group, ..Setup::default() };
        world.peer.load(&setup.configuration());
        world.vpnd.write_policy(&setup.policy());
        world.vpnd.ctl_ok(&["reload"]);
        world.up(true);
        world.vpnd.ctl_ok(&["rekey", "site_lan"]);
        world.vpnd.ctl_ok(&["rekey", "site"]);
        world.peer.await_one();
        let echoes = world.vpnd.space.pings(&from(&setup), 2, "10.2.0.1");
        assert!(echoes.is_ok(), "{ike:?} {}", world.peer.state());
        world.vpnd.ctl_ok(&["deactivate", "site"]);
        world.peer.await_none();
    }
}

/// OpenIKED renews the IKE SA every eight seconds, and `vpnd` the Child SA each time: no packet is lost.
fn short_lifetimes() {
    let world = Setup { lifetimes: [10, 20], ..Setup::default() }.world();
    world.up(true);
    let end = Instant::now() + endurance();
    let mut commands = 0;
    world.under_traffic(|| {
        while Instant::now() < end {
            let [ike, child] = rekeys(&world);
            let next = || (rekeys(&world)[0] > ike).then_some(());
            until("a rekey of the IKE SA", next, || world.peer.state());
            world.vpnd.ctl_ok(&["rekey", "site_lan"]);
            world.peer.await_one();
            commands += 1;
            assert_eq!(rekeys(&world)[1], child + 1, "OpenIKED renews no Child SA");
        }
    });
    println!("{:?} rekeys of the IKE SA and of the Child SA", rekeys(&world));
    world.nothing_refused();
    assert!(commands > 1, "{commands}");
}

/// OpenIKED renews both SAs by its clock. It removes the old Child SA before it has the answer to its Delete, and sends
/// that before it has the new one: its kernel refuses what comes and goes meanwhile. Nothing else is lost.
fn renewed_by_openiked() {
    let world = Setup { lifetimes: [10, 10], ..Setup::default() }.world();
    world.up(true);
    let [_, before] = rekeys(&world);
    let counts = world.count(|| {
        let renewed = || (rekeys(&world)[1] >= before + 3).then_some(());
        until("rekeys of the Child SA", renewed, || world.peer.state());
    });
    let refused = world.refused_by_peer();
    assert!(counts.lost <= refused && counts.unexpected == 0, "{counts:?} {}", world.state());
    world.nothing_refused_by_vpnd();
}

/// The rekeys so far, of the IKE SA and of the Child SA.
fn rekeys(world: &World<Iked>) -> [u64; 2] {
    let status = world.vpnd.json(&["status", "site", "--json"]);
    let of = |sa: &serde_json::Value| sa["rekeys"].as_u64().unwrap_or(0);
    [of(&status["ike_sa"]), of(&status["children"][0]["child_sa"])]
}

/// Each daemon dies and begins again.
fn restarts() {
    let setup = Setup { begun: Begun::ByIked, ..Setup::default() };
    let mut world = setup.world();
    world.up(false);
    let ping = |world: &World<Iked>| {
        let echoes = world.vpnd.space.pings(&from(&setup), 2, "10.2.0.1");
        assert!(echoes.is_ok(), "{} {}", world.state(), world.peer.state());
    };
    ping(&world);
    world.peer.crash();
    world.peer.restart();
    world.up(false);
    ping(&world);
    world.vpnd.crash();
    world.vpnd.start();
    world.up(true);
    ping(&world);
}

/// The address of `vpnd` changes, which has begun the tunnel. Linux refuses to change the address of an SA of PF_KEY,
/// so that only the next Child SA carries packets.
fn moves() {
    let setup = Setup::default();
    let world = setup.world();
    world.up(true);
    let echo = || {
        let (passes, _) = world.vpnd.space.try_sh("ping -q -c 1 -W 1 -I 10.1.0.1 10.2.0.1");
        passes.then_some(())
    };
    until("an echo", echo, || world.state());
    let spi = || world.vpnd.json(&["status", "site", "--json"])["ike_sa"]["initiator_spi"].clone();
    let before = spi();
    world.vpnd.space.ip("address del 192.0.2.1/24 dev wire");
    world.vpnd.space.ip("address add 192.0.2.11/24 dev wire");
    let refused = || world.peer.log().contains("pfkey_reply: message: Invalid argument");
    until("OpenIKED to try", || refused().then_some(()), || world.peer.log());
    world.vpnd.ctl_ok(&["rekey", "site_lan"]);
    until("an echo from the new address", echo, || {
        format!("{}{}{}", world.state(), world.peer.log(), world.vpnd.log())
    });
    assert_eq!(spi(), before, "the IKE SA stays");
}

/// `vpnctl why` names the settings of OpenIKED that a refusal is about. If it refuses IKE_SA_INIT, it does not say what
/// it is.
fn refusals() {
    let sha1 = Integrity::HmacSha1_96;
    let esp = Esp { iked: (EspEncryption::AesCbc(KeyBits::B128), sha1), ..CBC_256 };
    let other = IkeAlgorithms {
        encryption: IkeEncryption::AesCbc(KeyBits::B128),
        integrity: Some(sha1),
        prf: Prf::HmacSha1,
        group: Method::Ecp256,
    };
    let ike = Ike { iked: other, ..AES_CBC };
    let cases = [
        (
            Setup { networks: ["10.2.9.0/24", "10.1.9.0/24"], ..Setup::default() },
            "settings for this are from and to in iked.conf; from 10.2.0.0/24 to 10.1.0.0/24",
        ),
        (
            Setup { esp, ..Setup::default() },
            "settings for this are childsa, and tunnel or transport in iked.conf",
        ),
        (
            Setup { key: "another-key-that-is-long-enough", ..Setup::default() },
            "settings for this are srcid, dstid and psk in iked.conf",
        ),
        (Setup { ike, ..Setup::default() }, "ikesa (OpenIKED)"),
    ];
    for (setup, words) in cases {
        let world = setup.world();
        let output = world.vpnd.ctl(&["activate", "site"]);
        assert!(!output.status.success(), "{output:?}");
        let told = world.vpnd.ctl_ok(&["why", "site"]);
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(words), "{words:?}: {told} {}", world.peer.log());
    }
}
