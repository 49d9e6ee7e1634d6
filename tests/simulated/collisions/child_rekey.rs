//! Rekeying Child SAs.

use super::*;
use esp::plane::{Notice, SaId};
use policy::{Group, IkeTunnel, Pfs, Policy};
use std::sync::Arc;

/// As in [`super::ike_rekey`]: the Child SA made with the lowest nonce goes.
fn winner(nonces: [u8; 4]) -> Who {
    if nonces[0] == LOW || nonces[2] == LOW { B } else { A }
}

/// Two ends that each begin with a group the other does not have; both have another.
fn at_odds() -> [Site; 2] {
    [Group::Ecp256, Group::Ecp384].map(|first| {
        let offer = vec![first, Group::Curve25519];
        Site {
            pfs: Pfs {
                offer: offer.clone(),
                accept: offer,
                accept_none: false,
                additional: Vec::new(),
            },
            ..site()
        }
    })
}

impl Duel {
    /// The Child SA of `net0` reaches a limit of its volume on one end.
    fn expire(&mut self, who: Who, sa: SaId, hard: bool) {
        let notice = Notice::Expiring { sa, hard };
        self.world.command(self.host(who), "expiry", |e, now| e.handle_notice(now, notice));
        self.check();
    }

    /// The inbound half of `net0` on one end.
    fn inbound(&mut self, who: Who) -> SaId {
        let host = self.host(who);
        let spi = crate::child_spi(&mut self.world, host, "net0");
        let half = self.world.plane(host).inbound().find(|r| r.spi.0 == spi).map(|r| r.id);
        half.expect("what is listed is in the plane")
    }

    /// Neither end has an exchange, a task or a retry left.
    fn wants_nothing(&mut self) {
        self.silence();
        let waiting = self.world.deadlines();
        assert!(waiting.iter().all(|(.., why)| *why != "retry"), "{waiting:?}");
    }

    /// Both ends ask, and each sees the other's request.
    fn cross(started_by: Who, nonces: [u8; 4]) -> Self {
        let mut duel = Self::new(started_by);
        duel.rekey_child(A, nonces[0]);
        duel.rekey_child(B, nonces[1]);
        duel.pass_answered_with(A, Request, nonces[2]);
        duel.pass_answered_with(B, Request, nonces[3]);
        duel
    }

    /// Both ends ask; B has its answer before A's request arrives, which is returned.
    fn cross_late(started_by: Who, nonces: [u8; 3]) -> (Self, Parcel) {
        let mut duel = Self::new(started_by);
        duel.rekey_child(A, nonces[0]);
        duel.rekey_child(B, nonces[1]);
        let delayed = duel.keep(A, Request);
        duel.pass_answered_with(B, Request, nonces[2]);
        duel.pass(A, Success);
        (duel, delayed)
    }
}

// ---- one end alone

#[test]
fn regular() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.pass(A, Request);
        duel.pass(B, Success);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        assert_eq!(duel.child_made_by(), A);
        duel.settles_with(2);
    }
}

#[test]
fn regular_ke_invalid() {
    for started_by in [A, B] {
        let [a, b] = at_odds();
        let mut duel = Duel::between(&a, &b, started_by);
        duel.rekey_child(A, HIGH);
        duel.pass(A, Request);
        duel.pass(B, InvalidKe);
        // The group that was agreed on comes first from now on.
        for _ in 0..2 {
            duel.pass(A, Request);
            duel.pass(B, Success);
            duel.pass(A, DeleteChild);
            duel.pass(B, DeleteChild);
            assert_eq!(duel.child_made_by(), A);
            duel.silence();
            duel.rekey_child(A, HIGH);
        }
        duel.pass(A, Request);
        duel.pass(B, Success);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        duel.settles_with(2);
    }
}

#[test]
fn regular_responder_ignore_soft_expire() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        let old = duel.inbound(B);
        duel.rekey_child(A, HIGH);
        duel.pass(A, Request);
        duel.pass(B, Success);
        duel.expire(B, old, false);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        duel.settles_with(2);
    }
}

#[test]
fn regular_responder_handle_hard_expire() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        let old = duel.inbound(B);
        duel.rekey_child(A, HIGH);
        duel.pass(A, Request);
        duel.pass(B, Success);
        duel.expire(B, old, true);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        duel.pass(B, Empty);
        duel.pass(A, Empty);
        assert_eq!(duel.child_made_by(), A);
        duel.settles_with(2);
    }
}

#[test]
fn regular_responder_delete() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.pass(A, Request);
        duel.pass(B, Success);
        // The operator of B takes the tunnel down: first the old SA goes, which crosses A's deletion of it.
        duel.delete_child(B);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        duel.pass(A, Empty);
        duel.pass(B, Empty);
        duel.pass(B, DeleteChild);
        duel.pass(A, DeleteChild);
        duel.settles_with(1);
    }
}

#[test]
fn regular_responder_lost_sa() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.serving = false;
        duel.rekey_child(A, HIGH);
        // B forgets the tunnel, gets it back, and its messages about it come late.
        let without = Arc::new(Policy {
            tunnels: vec![Arc::new(IkeTunnel {
                children: duel.site.policy(Side::Right).tunnels[0].children[1..].to_vec(),
                ..IkeTunnel::clone(&duel.site.policy(Side::Right).tunnels[0])
            })],
        });
        let (host, whole) = (duel.host(B), duel.site.policy(Side::Right));
        duel.world
            .command(host, "forget net0", |e, now| e.replace_policy(now, without))
            .expect("a valid policy");
        duel.world
            .command(host, "net0 again", |e, now| e.replace_policy(now, whole))
            .expect("a valid policy");
        duel.check();
        let delayed = duel.keep(B, DeleteChild);
        duel.pass(A, Request);
        duel.pass(B, ChildSaNotFound);
        duel.pass(A, Request);
        duel.pass(B, Success);
        duel.serving = true;
        duel.check();
        duel.late(B, delayed);
        duel.pass(A, Empty);
        assert_eq!(duel.child_made_by(), A);
        duel.settles_with(2);
    }
}

#[test]
fn regular_responder_incorrect_delete() {
    // Some responders delete the old SA themselves, and that may come before their answer.
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        let old = duel.inbound(B);
        duel.rekey_child(A, HIGH);
        duel.pass(A, Request);
        let delayed = duel.keep(B, Success);
        duel.serving = false;
        duel.expire(B, old, true);
        duel.pass(B, DeleteChild);
        duel.pass(A, DeleteChild);
        duel.serving = false;
        duel.late(B, delayed);
        duel.serving = true;
        duel.check();
        assert_eq!(duel.child_made_by(), A);
        duel.settles_with(2);
    }
}

// ---- both ends rekey

#[test]
fn collision() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_FOUR {
            let mut duel = Duel::cross(started_by, nonces);
            duel.pass(B, Success);
            duel.pass(A, Success);
            // RFC 7296 §2.8.1: the winner deletes the old SA, the loser the redundant one.
            duel.pass(A, DeleteChild);
            duel.pass(B, DeleteChild);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            assert_eq!(duel.child_made_by(), winner(nonces), "{nonces:?}");
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_delayed_response() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_FOUR {
            let mut duel = Duel::cross(started_by, nonces);
            let delayed = duel.keep(B, Success);
            duel.pass(A, Success);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            duel.late(B, delayed);
            duel.pass(A, DeleteChild);
            duel.pass(B, DeleteChild);
            assert_eq!(duel.child_made_by(), winner(nonces), "{nonces:?}");
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_delayed_response_delete() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_FOUR {
            let mut duel = Duel::cross(started_by, nonces);
            let delayed = duel.keep(B, Success);
            duel.pass(A, Success);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            // B's operator takes down what is left on its side: two SAs, of which A does not know the one it asked for.
            duel.delete_child(B);
            duel.pass(B, DeleteChild);
            duel.pass_all();
            duel.late(B, delayed);
            duel.pass_all();
            duel.settles_with(1);
        }
    }
}

#[test]
fn collision_delayed_request() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_THREE {
            for deleted_first in [false, true] {
                let (mut duel, delayed) = Duel::cross_late(started_by, nonces);
                if deleted_first {
                    duel.pass(B, DeleteChild);
                }
                // B answers when it knows that A has deleted what B has replaced.
                duel.late(A, delayed);
                if !deleted_first {
                    duel.pass(B, DeleteChild);
                }
                duel.silence_of(B);
                duel.pass(A, DeleteChild);
                duel.pass(B, ChildSaNotFound);
                assert_eq!(duel.child_made_by(), B);
                duel.settles_with(2);
            }
        }
    }
}

#[test]
fn collision_delayed_request_more() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_THREE {
            let (mut duel, delayed) = Duel::cross_late(started_by, nonces);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            duel.late(A, delayed);
            duel.pass(B, ChildSaNotFound);
            assert_eq!(duel.child_made_by(), B);
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_delayed_request_more_delete() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_THREE {
            let (mut duel, delayed) = Duel::cross_late(started_by, nonces);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            duel.delete_child(B);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            duel.late(A, delayed);
            duel.pass(B, ChildSaNotFound);
            duel.settles_with(1);
        }
    }
}

#[test]
fn collision_ke_invalid() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_FOUR {
            let [a, b] = at_odds();
            let mut duel = Duel::between(&a, &b, started_by);
            // The nonces of what is refused do not count.
            duel.rekey_child(A, nonces[1]);
            duel.rekey_child(B, nonces[0]);
            duel.pass(A, Request);
            duel.pass(B, Request);
            duel.pass_answered_with(B, InvalidKe, nonces[0]);
            duel.pass_answered_with(A, InvalidKe, nonces[1]);
            duel.pass_answered_with(A, Request, nonces[2]);
            duel.pass_answered_with(B, Request, nonces[3]);
            duel.pass(B, Success);
            duel.pass(A, Success);
            duel.pass(A, DeleteChild);
            duel.pass(B, DeleteChild);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            assert_eq!(duel.child_made_by(), winner(nonces), "{nonces:?}");
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_ke_invalid_delayed_retry() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_THREE {
            let [a, b] = at_odds();
            let mut duel = Duel::between(&a, &b, started_by);
            duel.rekey_child(A, nonces[1]);
            duel.rekey_child(B, nonces[0]);
            duel.pass(A, Request);
            duel.pass(B, Request);
            duel.pass_answered_with(B, InvalidKe, nonces[0]);
            duel.pass_answered_with(A, InvalidKe, nonces[1]);
            let delayed = duel.keep(A, Request);
            duel.pass_answered_with(B, Request, nonces[2]);
            duel.pass(A, Success);
            duel.late(A, delayed);
            duel.pass(B, DeleteChild);
            duel.pass(A, DeleteChild);
            duel.pass(B, ChildSaNotFound);
            assert_eq!(duel.child_made_by(), B);
            duel.settles_with(2);
        }
    }
}

#[test]
fn collision_responder_incorrect_delete() {
    for started_by in [A, B] {
        for nonces in LOWEST_OF_FOUR {
            let mut duel = Duel::new(started_by);
            let old = duel.inbound(B);
            duel.rekey_child(A, nonces[0]);
            duel.rekey_child(B, nonces[1]);
            duel.pass_answered_with(A, Request, nonces[2]);
            duel.pass_answered_with(B, Request, nonces[3]);
            duel.pass(B, Success);
            duel.pass(A, Success);
            // In either outcome, B deletes the old SA, and A may do so, too.
            duel.expire(B, old, true);
            duel.pass_all();
            assert_eq!(duel.child_made_by(), winner(nonces), "{nonces:?}");
            duel.settles_with(2);
        }
    }
}

// ---- the other end deletes

#[test]
fn collision_delete() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.delete_child(B);
        duel.pass(A, Request);
        duel.pass(B, DeleteChild);
        duel.pass(B, TemporaryFailure);
        duel.pass(A, DeleteChild);
        duel.wants_nothing();
        duel.settles_with(1);
    }
}

#[test]
fn collision_delete_drop_delete() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.delete_child(B);
        duel.pass(A, Request);
        let delayed = duel.keep(B, DeleteChild);
        duel.pass(B, TemporaryFailure);
        duel.silence();
        duel.late(B, delayed);
        duel.pass(A, DeleteChild);
        duel.settles_with(1);
    }
}

#[test]
fn collision_delete_drop_rekey() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.delete_child(B);
        let delayed = duel.keep(A, Request);
        duel.pass(B, DeleteChild);
        duel.pass(A, DeleteChild);
        duel.late(A, delayed);
        duel.pass(B, ChildSaNotFound);
        duel.wants_nothing();
        duel.settles_with(1);
    }
}

#[test]
fn collision_delete_delayed_response() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.pass(A, Request);
        let delayed = duel.keep(B, Success);
        duel.delete_child(B);
        duel.pass(B, DeleteChild);
        duel.pass(A, DeleteChild);
        // A has not heard yet of what is being deleted now.
        duel.pass(B, DeleteChild);
        duel.pass(A, Empty);
        duel.late(B, delayed);
        duel.wants_nothing();
        duel.settles_with(1);
    }
}

// ---- the other end rekeys or deletes the IKE SA

#[test]
fn collision_ike_rekey() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.rekey_ike(B, HIGH);
        duel.pass(A, Request);
        duel.pass(B, Request);
        duel.pass(B, TemporaryFailure);
        duel.pass(A, TemporaryFailure);
        // Both try again, but not at once.
        duel.settles_with(2);
    }
}

#[test]
fn collision_ike_delete() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.rekey_child(A, HIGH);
        duel.delete_ike(B);
        duel.pass(A, Request);
        duel.pass(B, DeleteIke);
        duel.pass(B, TemporaryFailure);
        duel.pass(A, Empty);
        duel.ends();
    }
}
