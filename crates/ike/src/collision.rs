//! Collisions: an exchange of ours meets a request of the peer (RFC 7296 §2.8.1, §2.8.2, §2.25).

use crate::rejection::Rejection;
use crate::sa::active::Active;
use crate::sa::child::ChildState;
use crate::sa::{Established, Phase};
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
pub(crate) fn admit(
    session: &Session,
    ike: &Established,
    request: Request,
) -> Result<(), Rejection> {
    if ike.phase == Phase::Superseded
        || matches!(ike.active, Some(Active::DeleteIke))
        || session.is_closing()
    {
        return Err(Rejection::temporary());
    }
    if request == Request::RekeyIke && session.sas.len() >= IKE_SAS {
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
    let closing = closing || session.awaits_delete_of_predecessor(child.spi_in);
    if closing || child.state != ChildState::Established {
        Err(Rejection::temporary())
    } else {
        Ok(())
    }
}
