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

// ---- beyond those suites: both ends set up the same phase 2 tunnel, and one of them rekeys its own

/// Each of the nonces of three exchanges the lowest once: A's creation, B's creation, and A's rekey. Of each exchange,
/// the nonce of the request comes first.
const LOWEST_OF_SIX: [[u8; 6]; 6] = [
    [LOW, HIGH, HIGH, HIGH, HIGH, HIGH],
    [HIGH, LOW, HIGH, HIGH, HIGH, HIGH],
    [HIGH, HIGH, LOW, HIGH, HIGH, HIGH],
    [HIGH, HIGH, HIGH, LOW, HIGH, HIGH],
    [HIGH, HIGH, HIGH, HIGH, LOW, HIGH],
    [HIGH, HIGH, HIGH, HIGH, HIGH, LOW],
];

impl Duel {
    fn create_child(&mut self, who: Who, nonce: u8) {
        let host = self.host(who);
        self.world.begin_nonces_with(host, Some(nonce));
        self.world.connect(host, "net0");
        self.check();
    }

    /// Both ends ask for `net0`. A has its Child SA before B's request arrives, which is returned.
    fn create_late(started_by: Who, nonces: [u8; 6]) -> (Self, Parcel) {
        let mut duel = Self::new(started_by);
        duel.delete_child(A);
        duel.pass(A, DeleteChild);
        duel.pass(B, DeleteChild);
        duel.create_child(A, nonces[0]);
        duel.create_child(B, nonces[2]);
        let delayed = duel.keep(B, Request);
        duel.pass_answered_with(A, Request, nonces[1]);
        duel.pass(B, Success);
        (duel, delayed)
    }

    /// Hands over B's request for `net0`.
    fn create_now(&mut self, request: Parcel, nonces: [u8; 6]) {
        let to = self.host(A);
        self.world.begin_nonces_with(to, Some(nonces[3]));
        self.late(B, request);
    }

    /// Only one Child SA is left: that of the creation without the lowest nonce, or what has replaced it.
    fn settles_by_creation(mut self, nonces: [u8; 6]) {
        self.pass_all();
        self.serving = true;
        self.check();
        let loser = nonces[..4].iter().position(|n| *n == LOW).map(|n| [A, A, B, B][n]);
        if let Some(loser) = loser {
            assert_eq!(self.child_made_by(), other(loser), "{nonces:?}");
        }
        self.settles_with(2);
    }
}

#[test]
fn collision_rekey() {
    // A rekeys its Child SA while B's request for another one is on its way.
    for started_by in [A, B] {
        for nonces in LOWEST_OF_SIX {
            let (mut duel, delayed) = Duel::create_late(started_by, nonces);
            duel.rekey_child(A, nonces[4]);
            duel.pass_answered_with(A, Request, nonces[5]);
            duel.create_now(delayed, nonces);
            duel.settles_by_creation(nonces);
        }
    }
}

#[test]
fn collision_rekey_delayed_response() {
    // The same, and B learns of the other one after A's rekey is over.
    for started_by in [A, B] {
        for nonces in LOWEST_OF_SIX {
            let (mut duel, delayed) = Duel::create_late(started_by, nonces);
            duel.rekey_child(A, nonces[4]);
            duel.pass_answered_with(A, Request, nonces[5]);
            duel.create_now(delayed, nonces);
            let rekeyed = duel.keep(B, Success);
            let created = duel.keep(A, Success);
            duel.late(B, rekeyed);
            duel.pass(A, DeleteChild);
            duel.late(A, created);
            duel.settles_by_creation(nonces);
        }
    }
}

#[test]
fn collision_rekey_delayed_request() {
    // B's request arrives when A's rekey is over.
    for started_by in [A, B] {
        for nonces in LOWEST_OF_SIX {
            let (mut duel, delayed) = Duel::create_late(started_by, nonces);
            duel.rekey_child(A, nonces[4]);
            duel.pass_answered_with(A, Request, nonces[5]);
            duel.pass(B, Success);
            duel.create_now(delayed, nonces);
            duel.settles_by_creation(nonces);
        }
    }
}

#[test]
fn collision_rekey_of_what_stays() {
    // A knows both, rekeys its own if that stays, and B learns of the other one after that.
    for started_by in [A, B] {
        for nonces in LOWEST_OF_SIX.into_iter().filter(|nonces| nonces[2].min(nonces[3]) == LOW) {
            for low in [4, 5] {
                let mut nonces = nonces;
                nonces[low] = LOW;
                let (mut duel, delayed) = Duel::create_late(started_by, nonces);
                duel.create_now(delayed, nonces);
                let created = duel.keep(A, Success);
                duel.rekey_child(A, nonces[4]);
                duel.pass_answered_with(A, Request, nonces[5]);
                duel.late(A, created);
                duel.settles_by_creation(nonces);
            }
        }
    }
}
