//! IKE behind NATs, beside a data plane that does not own the port: UDP 4500 (RFC 3948).

use super::socket::{IkeSockets, Received};
use super::{Inlet, SocketError};
use ike::Transmit;
use std::io;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Four zero octets stand before an IKE message, where an ESP packet has its SPI (RFC 3948 §2.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// The content of a NAT keepalive (RFC 3948 §2.3).
const KEEPALIVE: [u8; 1] = [0xff];

/// Takes a datagram of ESP in UDP, from the SPI on.
pub type EspSink = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// Sends a message of IKE, or a keepalive, on the port of ESP in UDP.
pub type SendNatT = Box<dyn Fn(&Transmit) -> io::Result<()> + Send>;

/// IKE on the port of ESP in UDP.
pub struct NatT {
    /// Sends a message, or a keepalive.
    pub send: SendNatT,
    /// Receive there, until the engine has ended.
    pub listeners: JoinSet<()>,
}

impl NatT {
    /// Opens sockets of its own: IKE goes to `inlet`, ESP to `esp`.
    pub fn open(
        port: u16,
        mark: u32,
        inlet: Inlet,
        esp: Option<EspSink>,
    ) -> Result<Self, SocketError> {
        let sockets = Arc::new(IkeSockets::open(port, mark)?);
        let mut listeners = JoinSet::new();
        let listening = Arc::clone(&sockets);
        listeners.spawn(async move {
            loop {
                for datagram in listening.receive().await {
                    sort(datagram, &inlet, esp.as_ref());
                }
            }
        });
        let send = Box::new(move |transmit: &Transmit| {
            let octets = match transmit.keepalive {
                true => KEEPALIVE.to_vec(),
                false => [&NON_ESP_MARKER, transmit.octets.as_slice()].concat(),
            };
            sockets.send(&Transmit { octets, ..transmit.clone() })
        });
        Ok(Self { send, listeners })
    }
}

fn sort(datagram: Received, inlet: &Inlet, esp: Option<&EspSink>) {
    let Received { local, remote, octets } = datagram;
    if let Some(message) = octets.strip_prefix(&NON_ESP_MARKER) {
        inlet.datagram(local, remote, message.to_vec());
    } else if octets != KEEPALIVE
        && let Some(take) = esp
    {
        take(&octets);
    }
}
