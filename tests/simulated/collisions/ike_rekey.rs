//! Rekeying IKE SAs.

use super::*;
use policy::{Group, IkeEncryption, KeyBits};
use sim::host::ike_offer;

/// Of crossing rekeys, the one of the request that led to the lowest nonce goes: nonces are made by A and B for their
/// requests, then by B for its answer to A's, then by A.
fn winner(nonces: [u8; 4]) -> Who {
    if nonces[0] == LOW || nonces[2] == LOW { B } else { A }
}

/// Two ends that prefer different proposals with different groups: the end that answers insists on its own.
fn at_odds() -> [Site; 2] {
    let strong = |mut offer: policy::IkeProposal| {
        offer.encryption = vec![IkeEncryption::AesGcm16(KeyBits::B256)];
        offer
    };
    let first = ike_offer(&[Group::Curve25519]);
    let second = strong(ike_offer(&[Group::Ecp256]));
    let a = Site { ike: vec![first.clone(), second.clone()], ..site() };
    [a, Site { ike: vec![second, first], ..site() }]
}

#[test]
fn regular() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_ike(A, HIGH);
        duel.pass(A, Request);
        duel.pass(B, Success);
        duel.pass(A, DeleteIke);
        duel.pass(B, Empty);
        assert_eq!(duel.ike_made_by(), A);
        duel.settles_with(2);
    }
}

#[test]
fn regular_ke_invalid() {
    // The IKE SA has the group that its responder prefers, which the other end is not content with.
    let [a, b] = at_odds();
    let mut duel = Duel::between(&a, &b, A);
    duel.rekey_ike(B, HIGH);
    duel.pass(B, Request);
    duel.pass(A, InvalidKe);
    duel.pass(B, Request);
    duel.pass(A, Success);
    duel.pass(B, DeleteIke);
    duel.pass(A, Empty);
    assert_eq!(duel.ike_made_by(), B);
    duel.settles_with(2);
}

#[test]
fn collision() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_FOUR {
            let mut duel = Duel::new(started_by);
            duel.rekey_ike(A, nonces[0]);
            duel.rekey_ike(B, nonces[1]);
            duel.pass_answered_with(A, Request, nonces[2]);
            duel.pass_answered_with(B, Request, nonces[3]);
            duel.pass(B, Success);
            duel.pass(A, Success);
            // RFC 7296 §2.8.2: the winner deletes the old IKE SA, the loser the redundant one.
            duel.pass(A, DeleteIke);
            duel.pass(B, DeleteIke);
            duel.pass(B, Empty);
            duel.pass(A, Empty);
            assert_eq!(duel.ike_made_by(), winner(nonces), "{nonces:?}");
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_ke_invalid() {
    // A group that both refuse cannot be in use, since the end that answered last has chosen it.
    let [a, b] = at_odds();
    let mut duel = Duel::between(&a, &b, A);
    duel.rekey_ike(A, HIGH);
    duel.rekey_ike(B, LOW);
    duel.pass(B, Request);
    duel.pass(A, Request);
    duel.pass(A, InvalidKe);
    duel.pass(B, Success);
    // A's rekey was answered before B could try again, and stands whatever the nonces.
    duel.pass(A, DeleteIke);
    duel.pass(B, Empty);
    assert_eq!(duel.ike_made_by(), A);
    duel.settles_with(2);
}

#[test]
fn collision_ke_invalid_retried() {
    for nonces in LOWEST_OF_FOUR {
        let [a, b] = at_odds();
        let mut duel = Duel::between(&a, &b, A);
        duel.rekey_ike(A, nonces[0]);
        let first = duel.keep(A, Request);
        duel.rekey_ike(B, HIGH);
        duel.pass(B, Request);
        let host = duel.host(B);
        duel.world.begin_nonces_with(host, Some(nonces[1]));
        duel.pass(A, InvalidKe);
        duel.world.begin_nonces_with(host, Some(nonces[2]));
        duel.late(A, first);
        duel.pass_answered_with(B, Request, nonces[3]);
        duel.pass(B, Success);
        duel.pass(A, Success);
        duel.pass(A, DeleteIke);
        duel.pass(B, DeleteIke);
        duel.pass(B, Empty);
        duel.pass(A, Empty);
        assert_eq!(duel.ike_made_by(), winner(nonces), "{nonces:?}");
        duel.settles_with(2);
    }
}

#[test]
fn collision_ke_invalid_delayed_retry() {
    for nonces in LOWEST_OF_THREE {
        let [a, b] = at_odds();
        let mut duel = Duel::between(&a, &b, A);
        duel.rekey_ike(B, HIGH);
        duel.pass(B, Request);
        let host = duel.host(B);
        duel.world.begin_nonces_with(host, Some(nonces[0]));
        duel.pass(A, InvalidKe);
        let delayed = duel.keep(B, Request);
        duel.rekey_ike(A, nonces[1]);
        duel.pass_answered_with(A, Request, nonces[2]);
        duel.pass(B, Success);
        duel.late(B, delayed);
        duel.pass(A, DeleteIke);
        let refused = duel.keep(A, TemporaryFailure);
        duel.late(A, refused);
        duel.pass(B, Empty);
        assert_eq!(duel.ike_made_by(), A);
        duel.settles_with(2);
    }
}

#[test]
fn collision_delayed_response() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_FOUR {
            let mut duel = Duel::new(started_by);
            duel.rekey_ike(A, nonces[0]);
            duel.rekey_ike(B, nonces[1]);
            duel.pass_answered_with(A, Request, nonces[2]);
            duel.pass_answered_with(B, Request, nonces[3]);
            let delayed = duel.keep(B, Success);
            duel.pass(A, Success);
            duel.pass(B, DeleteIke);
            duel.pass(A, Empty);
            duel.late(B, delayed);
            if winner(nonces) == A {
                // B has deleted the IKE SA of its own request; A, which learns only now that it has won, the old one.
                duel.pass(A, DeleteIke);
                duel.pass(B, Empty);
            }
            // Otherwise A never learns of the IKE SA it asked for, and B gives it up after a while.
            assert_eq!(duel.ike_made_by(), winner(nonces), "{nonces:?}");
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_dropped_request() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_THREE {
            for arrives_in_the_end in [false, true] {
                let mut duel = Duel::new(started_by);
                duel.rekey_ike(A, nonces[0]);
                duel.rekey_ike(B, nonces[1]);
                let dropped = duel.keep(A, Request);
                duel.pass_answered_with(B, Request, nonces[2]);
                duel.pass(A, Success);
                duel.pass(B, DeleteIke);
                duel.pass(A, Empty);
                if arrives_in_the_end {
                    duel.late(A, dropped);
                }
                assert_eq!(duel.ike_made_by(), B);
                duel.settles_with(2);
            }
        }
    }
}

#[test]
fn collision_delayed_request() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_THREE {
            let mut duel = Duel::new(started_by);
            duel.rekey_ike(A, nonces[0]);
            duel.rekey_ike(B, nonces[1]);
            let delayed = duel.keep(A, Request);
            duel.pass_answered_with(B, Request, nonces[2]);
            duel.pass(A, Success);
            duel.late(A, delayed);
            duel.pass(B, DeleteIke);
            // Its IKE SA is gone.
            duel.pass(B, TemporaryFailure);
            duel.pass(A, Empty);
            assert_eq!(duel.ike_made_by(), B);
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_delayed_request_and_delete() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_THREE {
            let mut duel = Duel::new(started_by);
            duel.rekey_ike(A, nonces[0]);
            duel.rekey_ike(B, nonces[1]);
            let delayed = duel.keep(A, Request);
            duel.pass_answered_with(B, Request, nonces[2]);
            duel.pass(A, Success);
            duel.late(A, delayed);
            let delete = duel.keep(B, DeleteIke);
            duel.pass(B, TemporaryFailure);
            duel.late(B, delete);
            duel.pass(A, Empty);
            assert_eq!(duel.ike_made_by(), B);
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_delete() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_ike(A, HIGH);
        duel.delete_ike(B);
        duel.pass(A, Request);
        duel.pass(B, DeleteIke);
        duel.pass(B, TemporaryFailure);
        duel.pass(A, Empty);
        duel.ends();
    }
}

#[test]
fn collision_delete_drop_delete() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_ike(A, HIGH);
        duel.delete_ike(B);
        duel.pass(A, Request);
        let delayed = duel.keep(B, DeleteIke);
        duel.pass(B, TemporaryFailure);
        duel.silence();
        duel.late(B, delayed);
        duel.pass(A, Empty);
        duel.ends();
    }
}
