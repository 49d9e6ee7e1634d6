//! Memory that grows, and is wiped where it is left.

use zeroize::{Zeroize, Zeroizing};

/// The first size of memory that grows.
const FIRST: usize = 4096;

/// Octets that are being written.
pub(crate) struct Octets(Zeroizing<Vec<u8>>);

impl Octets {
    pub fn with_room(room: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(room.max(FIRST))))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds octets. A vector that grows by itself would leave its former memory as it is.
    pub fn push(&mut self, more: &[u8]) {
        let needed = self.0.len() + more.len();
        if needed > self.0.capacity() {
            let mut larger = Vec::with_capacity(needed.max(2 * self.0.capacity()));
            larger.extend_from_slice(&self.0);
            let mut former = std::mem::replace(&mut *self.0, larger);
            former.zeroize();
        }
        self.0.extend_from_slice(more);
    }

    /// Puts octets in the place of others.
    pub fn put(&mut self, at: usize, octets: &[u8]) {
        self.0[at..at + octets.len()].copy_from_slice(octets);
    }

    /// Takes back everything behind a length that it had.
    pub fn cut(&mut self, len: usize) {
        self.0[len..].zeroize();
        self.0.truncate(len);
    }

    pub fn take(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}
