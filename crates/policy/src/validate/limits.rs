//! The limits of lists.

/// Most proposals for an IKE SA, and most for a Child SA. A peer of this implementation reads no more than these from
/// one message.
pub const MAX_PROPOSALS: usize = 64;

/// Most algorithms in all proposals for an IKE SA together. They travel in IKE_SA_INIT, which cannot be fragmented; a
/// responder of this implementation ignores one above 10,000 octets.
pub const MAX_IKE_ALGORITHMS: usize = 700;
