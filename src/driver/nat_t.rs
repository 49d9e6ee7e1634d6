//! IKE behind NATs, beside a data plane that does not own the port: UDP 4500 (RFC 3948).

use super::socket::{IkeSockets, Received};
use super::{Inlet, SocketError};
use host::{IcmpError, IcmpListener};
use ike::Transmit;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::{JoinHandle, JoinSet};

/// Four zero octets stand before an IKE message, where an ESP packet has its SPI (RFC 3948 §2.2).
const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// A socket that fails is read again after this time.
const PAUSE: Duration = Duration::from_millis(10);
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
    /// A task of the plane that has sockets and ends with the plane.
    pub of_plane: Option<JoinHandle<()>>,
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
                listening.take_reports().into_iter().for_each(|report| report_on(report, &inlet));
            }
        });
        let send = Box::new(move |transmit: &Transmit| {
            let octets = match transmit.keepalive {
                true => KEEPALIVE.to_vec(),
                false => [&NON_ESP_MARKER, transmit.octets.as_slice()].concat(),
            };
            sockets.send(&Transmit { octets, ..transmit.clone() })
        });
        Ok(Self { send, listeners, of_plane: None })
    }
}

/// Hands on an ICMP message about a message of IKE.
fn report_on(report: IcmpError, inlet: &Inlet) {
    if let Some(quoted) = report.quoted.strip_prefix(&NON_ESP_MARKER) {
        let quoted = quoted.to_vec();
        inlet.icmp(IcmpError { quoted, ..report });
    }
}

/// Hears ICMP messages about IKE on a port that a data plane owns. If that is not possible, operators learn less about
/// a peer that does not answer.
pub fn hear_icmp(port: u16, inlet: &Inlet, listeners: &mut JoinSet<()>) {
    let opened = IcmpListener::open(port).and_then(|opened| {
        let watched = opened
            .into_iter()
            .map(|listener| Ok((UdpSocket::from_std(listener.watched()?)?, listener)));
        watched.collect::<io::Result<Vec<_>>>()
    });
    match opened {
        Ok(opened) => {
            for (socket, listener) in opened {
                listeners.spawn(hear(socket, listener, inlet.clone()));
            }
        }
        Err(error) => tracing::debug!(%error, port, "ICMP about IKE will not be noticed"),
    }
}

async fn hear(socket: UdpSocket, listener: IcmpListener, inlet: Inlet) {
    loop {
        match socket.async_io(Interest::READABLE, || listener.take()).await {
            Ok(report) => report.into_iter().for_each(|report| inlet.icmp(report)),
            Err(error) => {
                tracing::debug!(%error, "receiving ICMP");
                tokio::time::sleep(PAUSE).await;
            }
        }
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
