//! A tunnel that cannot come up says why, on both sides; one whose traffic fits in part comes up in part.

use crate::setup::{CHILD_TUNNEL, CONNECTION, IKE_TUNNEL, Second, Setup};
use crate::world::World;
use crate::{Scenario, scenario, traffic};
use control::protocol::FailureInfo;
use testkit::eventually;

/// The tunnel does not come up from `vpnd`; `vpnctl` says so in these words.
pub(super) fn vpnd_says(world: &World, words: &[&str]) {
    let printed = world.vpnd.refused();
    for words in words {
        assert!(printed.contains(words), "{words:?} is not in\n{printed}");
    }
    // Nothing is left on either side.
    world.charon.wait_down();
    world.vpnd.wait_down();
}

/// The tunnel does not come up from strongSwan, which is told `notify`; `vpnd` notes why.
pub(super) fn charon_is_told(world: &World, notify: &str, kind: &str, words: &[&str]) {
    let printed = world.charon.initiate().expect_err("it is refused");
    assert!(printed.contains(notify) || world.charon.log().contains(notify), "{printed}");
    let failure: FailureInfo = eventually("vpnd knows why", || {
        let tunnel = world.vpnd.tunnel();
        tunnel.children.into_iter().find_map(|c| c.last_failure).or(tunnel.last_failure)
    });
    assert_eq!(failure.kind, kind, "{failure:?}");
    for words in words {
        assert!(failure.message.contains(words), "{words:?} is not in {failure:?}");
    }
}

/// `vpnctl why` names the settings of strongSwan that a refusal is about.
fn in_its_words(world: &World, words: &str) {
    world.vpnd.refused();
    let told = world.vpnd.ctl_ok(&["why", IKE_TUNNEL]);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(words), "{words:?} is not in\n{told}");
}

/// Both sides agree on these networks, and traffic between their first hosts passes.
fn narrowed(world: &mut World, local: &str, remote: &str) {
    let child = world.vpnd.child();
    assert_eq!((child.local, child.remote), (vec![local.to_owned()], vec![remote.to_owned()]));
    world.exchange_traffic();
}

/// Two networks on either side belong to one Child SA, which carries traffic between any of them; a rekey keeps them.
fn several_selectors(world: &mut World) {
    let carried = |world: &World| {
        let child = world.vpnd.child();
        assert_eq!(child.local, ["10.1.0.0/24", "10.3.0.0/24"]);
        assert_eq!(child.remote, ["10.2.0.0/24", "10.4.0.0/24"]);
        world.exchange_traffic();
        let [first, second] = [world.setup.inner(), world.setup.second_inner()];
        for (left, right) in [(second[0], second[1]), (first[0], second[1]), (second[0], first[1])]
        {
            traffic::ping((&world.vpnd.space, left), right, 3);
            traffic::ping((&world.charon.space, right), left, 3);
        }
    };
    carried(world);
    world.vpnd.ctl_ok(&["rekey", CHILD_TUNNEL]);
    super::rekey::child_by_charon(world);
    carried(world);
    assert_eq!(world.charon.counts(), (1, 1));
    world.assert_nothing_in_the_clear();
}

pub fn all() -> Vec<Scenario> {
    let wrong_key = Setup {
        keys: ["8c1f0e5d-interop-preshared-key", "another-preshared-key-altogether"],
        ..Setup::default()
    };
    let other_ike = Setup { charon_ike: "aes128-sha256-ecp256", ..Setup::default() };
    let other_esp = Setup { charon_esp: "aes128gcm16", ..Setup::default() };
    let elsewhere = Setup { charon_networks: ["10.1.0.0/24", "10.3.0.0/24"], ..Setup::default() };
    let narrow_charon = Setup {
        networks: [["10.1.0.0", "10.1.255.255"], ["10.2.0.0", "10.2.255.255"]],
        ..Setup::default()
    };
    let narrow_vpnd = Setup { charon_networks: ["10.1.0.0/16", "10.2.0.0/16"], ..Setup::default() };
    let several = Setup {
        networks: [["10.0.0.0", "10.255.255.255"], ["10.0.0.0", "10.255.255.255"]],
        charon_networks: ["10.1.0.0/24,10.3.0.0/24", "10.2.0.0/24,10.4.0.0/24"],
        second: Second::Networks,
        ..Setup::default()
    };
    let other_name =
        Setup { names: true, charon_identity: Some("elsewhere.example.net"), ..Setup::default() };
    let named = |setup: &Setup| Setup { charon: "send_vendor_id = yes", ..setup.clone() };
    // One that refuses IKE_SA_INIT does not say what it is.
    let words = [
        (
            "key",
            named(&wrong_key),
            "the peer runs strongSwan: its settings for this are id of local and remote, and the secret",
        ),
        (
            "ike_proposal",
            named(&other_ike),
            "settings for this are ike (libreswan), proposals (strongSwan), ikesa (OpenIKED)",
        ),
        (
            "esp_proposal",
            named(&other_esp),
            "the peer runs strongSwan: its settings for this are esp_proposals and mode in swanctl.conf",
        ),
        (
            "networks",
            named(&elsewhere),
            "the peer runs strongSwan: its settings for this are local_ts and remote_ts in swanctl.conf; \
             local_ts = 10.2.0.0/24 and remote_ts = 10.1.0.0/24",
        ),
    ];
    let in_words = words.into_iter().map(|(name, setup, words)| {
        scenario(format!("refusal::{name}::in_its_words"), setup, move |world| {
            in_its_words(world, words)
        })
    });
    // strongSwan asks for a key exchange at a rekey, vpnd's policy has none.
    let other_pfs = Setup { pfs: "0", ..Setup::default() };
    let mut all = vec![
        scenario("refusal::key::from_vpnd", wrong_key.clone(), |world| {
            vpnd_says(
                world,
                &["authentication failed", "compare preshared keys and identities on both sides"],
            );
        }),
        scenario("refusal::key::from_charon", wrong_key, |world| {
            let words = ["does not have the preshared key that the policy has for it"];
            charon_is_told(world, "AUTHENTICATION_FAILED", "authentication_failed", &words);
            world.charon.wait_down();
        }),
        scenario("refusal::identity::from_vpnd", other_name.clone(), |world| {
            vpnd_says(
                world,
                &["authentication failed", "the peer should be FQDN right.example.net"],
            );
        }),
        scenario("refusal::identity::from_charon", other_name, |world| {
            let words =
                ["says it is FQDN elsewhere.example.net", "the peer is FQDN right.example.net"];
            charon_is_told(world, "AUTHENTICATION_FAILED", "no_matching_tunnel", &words);
        }),
        scenario("refusal::ike_proposal::from_vpnd", other_ike.clone(), |world| {
            vpnd_says(world, &["no proposal in common", "AES-CBC-256", "CURVE25519"]);
        }),
        scenario("refusal::ike_proposal::from_charon", other_ike, |world| {
            let words = ["offers [AES-CBC-128", "we accept [AES-CBC-256"];
            charon_is_told(world, "NO_PROPOSAL_CHOSEN", "no_proposal_chosen", &words);
        }),
        scenario("refusal::esp_proposal::from_vpnd", other_esp.clone(), |world| {
            vpnd_says(world, &["no proposal in common", "AES-GCM-16-256"]);
        }),
        scenario("refusal::esp_proposal::from_charon", other_esp, |world| {
            let words = ["AES-GCM-16-128", "we accept [AES-GCM-16-256"];
            charon_is_told(world, "NO_PROPOSAL_CHOSEN", "no_proposal_chosen", &words);
        }),
        scenario("refusal::networks::from_vpnd", elsewhere.clone(), |world| {
            vpnd_says(world, &["no traffic selectors in common", "10.2.0.0"]);
        }),
        scenario("refusal::networks::from_charon", elsewhere, |world| {
            charon_is_told(world, "TS_UNACCEPTABLE", "ts_unacceptable", &["10.3.0.0", "10.2.0.0"]);
        }),
        scenario("refusal::key_exchange_of_rekey", other_pfs, |world| {
            world.up_from_charon();
            let before = world.vpnd.child_sa();
            world.charon.swanctl(&["--rekey", "--child", CONNECTION]).expect("strongSwan begins");
            let failure = eventually("vpnd knows why", || world.vpnd.child().last_failure);
            assert_eq!(failure.kind, "no_proposal_chosen", "{failure:?}");
            assert!(failure.message.contains("CURVE25519"), "{failure:?}");
            // The SA that is up stays up.
            assert_eq!(world.vpnd.child_sa().inbound_spi, before.inbound_spi);
            world.exchange_traffic();
        }),
        scenario("narrowing::by_charon", narrow_charon, |world| {
            world.up_from_vpnd();
            narrowed(world, "10.1.0.0/24", "10.2.0.0/24");
        }),
        scenario("narrowing::by_vpnd", narrow_vpnd, |world| {
            world.up_from_charon();
            narrowed(world, "10.1.0.0/24", "10.2.0.0/24");
        }),
        scenario("narrowing::to_several_selectors::from_vpnd", several.clone(), |world| {
            world.up_from_vpnd();
            several_selectors(world);
        }),
        scenario("narrowing::to_several_selectors::from_charon", several, |world| {
            world.up_from_charon();
            several_selectors(world);
        }),
    ];
    all.extend(in_words);
    all
}
