//! Our reasons to start an exchange. Tasks queue; one exchange of ours runs at a time per IKE SA.

use crate::wire::header::IkeSpi;
use esp::plane::Spi;

/// A reason to start an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// A phase 2 tunnel, by name, is to come up.
    CreateChild(String),
    /// The Child SA with this inbound SPI is to be replaced.
    RekeyChild(Spi),
    /// The Child SA with this inbound SPI is to go.
    DeleteChild(Spi),
    /// The IKE SA with this local SPI is to be replaced.
    RekeyIke(IkeSpi),
    /// The IKE SA with this local SPI is to go.
    DeleteIke(IkeSpi),
    /// The peer has been silent.
    Liveness,
    /// The IKE SA, which has come of a rekey, is to have a ticket of session resumption.
    AskTicket,
    /// The peer is to move the SAs to our present addresses.
    UpdateAddresses,
    /// The peer is to show that it receives at its new address.
    VerifyAddress,
    /// The peer is to know our other addresses.
    TellAddresses,
}

impl Task {
    /// Returns `true` if the task names the IKE SA that it is for. Other tasks are for the one that carries new
    /// exchanges.
    pub fn is_particular(&self) -> bool {
        match self {
            Self::DeleteIke(_) | Self::RekeyIke(_) => true,
            // For the one that the peer knows.
            Self::UpdateAddresses | Self::VerifyAddress => true,
            _ => false,
        }
    }
}
