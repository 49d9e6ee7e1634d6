//! Deleting IKE SAs.

use super::*;

#[test]
fn regular() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.delete_ike(A);
        duel.pass(A, DeleteIke);
        duel.pass(B, Empty);
        duel.ends();
    }
}

#[test]
fn collision() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.delete_ike(A);
        duel.delete_ike(B);
        // RFC 7296 §2.25.2: each answers as usual and forgets its own request.
        duel.pass(A, DeleteIke);
        duel.pass(B, DeleteIke);
        duel.pass(B, Empty);
        duel.pass(A, Empty);
        duel.ends();
    }
}
