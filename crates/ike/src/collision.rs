//! Collisions: an exchange of ours meets a request of the peer (RFC 7296 §2.8.1, §2.8.2, §2.25).
//!
//! | ours, and theirs | it is decided in |
//! |---|---|
//! | a rekey of a Child SA, and one of the same | `Place::of` in `exchange/create_child/success.rs`, with the nonces that `note_successor` in `exchange/child_sa.rs` has kept |
//! | a rekey of the IKE SA, and one of the same | `conclude` in `exchange/rekey_ike.rs` |
//! | any request, and one that cannot be answered meanwhile | `admit` and `admit_rekey_child` here |
//! | a rekey of a Child SA, and a Delete of it | `forget_deleted` in `exchange/create_child.rs` |

use crate::rejection::Rejection;
use crate::sa::active::Active;
use crate::sa::child::ChildState;
use crate::sa::{IkeSa, Phase};
use crate::session::Session;
use crate::wire::registry::ProtocolId;
use esp::plane::Spi;

/// IKE SAs that a peer may have beside each other by rekeying without deleting.
const IKE_SAS: usize = 8;

/// The peer's request, as far as collisions are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    CreateChild,
    /// By the SPI on which this side sends.
    RekeyChild(ProtocolId, Spi),
    RekeyIke,
}

/// Checks that a request on an IKE SA can be answered now. Deletes always can.
pub(crate) fn admit(session: &Session, sa: &IkeSa, request: Request) -> Result<(), Rejection> {
    let ike = &sa.state;
    if ike.phase == Phase::Superseded
        || matches!(ike.active, Some(Active::DeleteIke))
        || session.is_closing()
    {
        return Err(Rejection::temporary());
    }
    if request == Request::RekeyIke && session.sas().len() >= IKE_SAS {
        return Err(Rejection::temporary());
    }
    match (request, &ike.active) {
        // RFC 7296 §2.25.2: no Child SAs while the IKE SA is being rekeyed.
        (Request::CreateChild | Request::RekeyChild(..), Some(Active::Rekey(_))) => {
            Err(Rejection::temporary())
        }
        // RFC 7296 §2.25.1.
        (Request::RekeyIke, Some(active)) if active.concerns_child() => Err(Rejection::temporary()),
        // The peer already replaced this IKE SA: a second time would leave two successors.
        (Request::RekeyIke, Some(Active::Rekey(pending))) if pending.rival.is_some() => {
            Err(Rejection::temporary())
        }
        (Request::RekeyChild(protocol, spi_out), active) => {
            admit_rekey_child(session, active.as_ref(), protocol, spi_out)
        }
        _ => Ok(()),
    }
}

/// Returns `true` if a request to rekey a Child SA is answered only when the peer has answered the Delete of a Child SA
/// that this side has replaced, by this one or this one by another. strongSwan (5.9) begins to send on the new one with
/// that Delete:
///
/// - if another rekey comes first, with keys that it has wiped;
/// - if it has got TEMPORARY_FAILURE meanwhile, not at all: it takes the replaced one for current again.
pub(crate) fn waits_for_delete(
    session: &Session,
    sa: &IkeSa,
    protocol: ProtocolId,
    spi_out: Spi,
) -> bool {
    let ike = &sa.state;
    // The Delete may never be sent, or not on this IKE SA, or it waits for an answer of the peer, which may wait, too.
    let ends = ike.phase == Phase::Superseded
        || matches!(ike.active, Some(Active::DeleteIke | Active::Rekey(_) | Active::Child(_)))
        || session.is_closing();
    let child = session.child_by_outbound(protocol, spi_out).filter(|_| !ends);
    child.is_some_and(|child| match child.state {
        ChildState::Established => session.awaits_delete_of_predecessor(child.spi_in),
        ChildState::Replaced(_) => session.is_deleting(child.spi_in),
        ChildState::Unwanted => false,
    })
}

fn admit_rekey_child(
    session: &Session,
    active: Option<&Active>,
    protocol: ProtocolId,
    spi_out: Spi,
) -> Result<(), Rejection> {
    let Some(child) = session.child_by_outbound(protocol, spi_out) else {
        // The answer under way to our own request may be what creates it.
        return Err(match active {
            Some(Active::Child(_)) => Rejection::temporary(),
            _ => Rejection::child_sa_not_found(protocol, spi_out),
        });
    };
    let closing = match active {
        Some(Active::DeleteChildren(spis)) => spis.contains(&child.spi_in),
        _ => false,
    };
    if closing || child.state != ChildState::Established {
        Err(Rejection::temporary())
    } else {
        Ok(())
    }
}
