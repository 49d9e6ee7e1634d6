//! Deleting Child SAs.

use super::*;

#[test]
fn regular() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.delete_child(A);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        duel.settles_with(1);
    }
}

#[test]
fn collision() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.delete_child(A);
        duel.delete_child(B);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        // RFC 7296 §1.4.1: neither answer names what its sender has asked to delete itself.
        duel.pass(B, Empty);
        duel.pass(A, Empty);
        duel.settles_with(1);
    }
}

#[test]
fn collision_drop() {
    for started_by in [A, B] {
        let mut duel = Duel::new(started_by);
        duel.delete_child(A);
        duel.delete_child(B);
        duel.pass(A, DeleteChild);
        let delayed = duel.keep(B, DeleteChild);
        duel.pass(B, Empty);
        duel.late(B, delayed);
        duel.pass(A, Empty);
        duel.settles_with(1);
    }
}
