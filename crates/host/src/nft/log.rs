//! Packets that a rule of nftables logs (`log group`), for one listener in each network namespace.

use super::listener::Listener;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigMode, ConfigNla, PacketNla, ULogMessage, config_request,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Octets of a packet that are told: enough for its headers.
const OCTETS: u32 = 128;

/// A thread that hears of logged packets. Dropping this ends it.
pub struct Log(#[expect(dead_code, reason = "kept for its end")] Listener);

impl Log {
    /// Calls `logged` with the beginning of each packet that a rule of this network namespace logs to a group. The
    /// function is called in a thread of its own.
    ///
    /// # Errors
    /// If the kernel cannot log packets, or another process has the group.
    pub fn start(group: u16, mut logged: impl FnMut(&[u8]) + Send + 'static) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        ask(&socket, group, vec![ConfigCmd::Bind.into(), ConfigMode::new_packet(OCTETS).into()])?;
        socket.set_non_blocking(true)?;
        let lost = "packets that nftables logs are no longer heard of";
        Listener::start("nft-log", socket, lost, move |datagram| {
            // Another one comes soon if some were lost.
            packets(datagram.unwrap_or_default()).for_each(|packet| logged(&packet));
        })
        .map(Self)
    }
}

/// Asks the kernel for something about a group, and waits for its answer.
fn ask(socket: &Socket, group: u16, settings: Vec<ConfigNla>) -> io::Result<()> {
    let request = config_request(NetfilterProtoFamily::Unspec, group, settings);
    let mut octets = vec![0; request.buffer_len()];
    request.serialize(&mut octets);
    socket.send(&octets, 0)?;
    let mut answer = Vec::with_capacity(1 << 12);
    socket.recv(&mut answer, 0)?;
    match messages(&answer).next().map(|message| message.payload) {
        Some(NetlinkPayload::Error(error)) if error.code.is_some() => Err(error.to_io()),
        Some(NetlinkPayload::Error(_)) => Ok(()),
        _ => Err(io::Error::other("the kernel gives no answer about logged packets")),
    }
}

/// The beginnings of the packets in a datagram.
fn packets(datagram: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    messages(datagram).filter_map(|message| {
        let NetlinkPayload::InnerMessage(message) = message.payload else { return None };
        let NetfilterMessageInner::ULog(ULogMessage::Packet(attributes)) = message.inner else {
            return None;
        };
        attributes.into_iter().find_map(|attribute| match attribute {
            PacketNla::Payload(packet) => Some(packet),
            _ => None,
        })
    })
}

/// The messages of a datagram, up to one that is malformed.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkMessage<NetfilterMessage>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
        let message = NetlinkMessage::deserialize(datagram.get(..length)?).ok()?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message about a packet, as the kernel lays it out: a header, and the packet.
    fn message(packet: &[u8]) -> Vec<u8> {
        let attribute = |kind: u16, value: &[u8]| {
            let mut octets = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
            octets.extend(kind.to_ne_bytes());
            octets.extend(value);
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets
        };
        let attributes = [attribute(1, &[8, 0, 4, 0]), attribute(9, packet)].concat();
        let mut octets = ((20 + attributes.len()) as u32).to_ne_bytes().to_vec();
        // NFULNL_MSG_PACKET of NFNL_SUBSYS_ULOG.
        octets.extend([0, 4, 0, 0]);
        octets.extend([0; 8]);
        octets.extend([2, 0, 17, 148]);
        octets.extend(attributes);
        octets
    }

    #[test]
    fn packets_are_found_in_messages() {
        let datagram = [message(b"first"), message(b"another")].concat();
        let found: Vec<_> = packets(&datagram).collect();
        assert_eq!(found, [b"first".to_vec(), b"another".to_vec()]);
        for length in 0..datagram.len() {
            let found = packets(&datagram[..length]).count();
            assert!(found <= 1, "{length}");
        }
    }
}
