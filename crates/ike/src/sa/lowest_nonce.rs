//! The lowest nonce of an exchange, which decides between SAs that both sides made at once (RFC 7296 §2.8.1).

use super::keys::Nonces;

/// The lower of the two nonces that made an SA, as far as it takes to compare it: nonces have 16 random octets and more
/// (RFC 7296 §2.10), and compare octet by octet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LowestNonce(pub [u8; 16]);

impl LowestNonce {
    pub fn of(nonces: Nonces<'_>) -> Self {
        let mut lowest = Self::default();
        let nonce = nonces.initiator.min(nonces.responder);
        lowest.0.iter_mut().zip(nonce).for_each(|(to, from)| *to = *from);
        lowest
    }
}

/// Returns `true` if, of two SAs from crossing rekeys, ours stays. The SA made with the lowest of the four nonces is
/// deleted by the side that asked for it (RFC 7296 §2.8.1).
pub(crate) fn ours_survives(ours: LowestNonce, theirs: LowestNonce) -> bool {
    ours >= theirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sa_with_the_lowest_nonce_goes() {
        let lowest = |initiator: u8, responder: u8| {
            LowestNonce::of(Nonces { initiator: &[initiator; 32], responder: &[responder; 16] })
        };
        assert!(ours_survives(lowest(9, 5), lowest(4, 8)));
        assert!(!ours_survives(lowest(9, 3), lowest(4, 8)));
    }
}
