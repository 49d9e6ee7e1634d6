//! Counters of the cryptographic functions of IKE in this process, over all engines. Only reports read them, so that
//! they need not be passed to every place that computes.

use policy::{Group, KeyKind, Prf};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// An operation that a handshake or a rekey needs once or a few times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// A pseudorandom function of one input; prf+ takes several.
    Prf(Prf),
    /// A public value was made.
    Generate(Group),
    /// A shared secret was made.
    Agree(Group),
    /// A signature was made.
    Sign(KeyKind),
    /// A signature in an AUTH payload was checked.
    Verify(KeyKind),
}

static DONE: Mutex<BTreeMap<Operation, u64>> = Mutex::new(BTreeMap::new());

/// Takes note of one.
pub(crate) fn count(operation: Operation) {
    *DONE.lock().unwrap_or_else(PoisonError::into_inner).entry(operation).or_default() += 1;
}

/// The counter of each function, since the process began.
pub fn done() -> BTreeMap<Operation, u64> {
    DONE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
