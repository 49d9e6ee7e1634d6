//! Creating Child SAs.

use super::*;

#[test]
fn duplicate() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        for who in [A, B] {
            let host = duel.host(who);
            duel.world.connect(host, Site::TUNNEL);
            duel.world.connect(host, "net0");
        }
        duel.settles_with(2);
    }
}

#[test]
fn collision_ike_rekey() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.delete_child(A);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        let a = duel.host(A);
        duel.world.connect(a, "net0");
        duel.rekey_ike(B, HIGH);
        duel.pass(A, Request);
        duel.pass(B, Request);
        duel.pass(B, TemporaryFailure);
        duel.pass(A, TemporaryFailure);
        // Both try again, but not at once.
        duel.settles_with(2);
    }
}
