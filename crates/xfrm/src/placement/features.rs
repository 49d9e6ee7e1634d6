//! The ESP features of network devices, from ethtool's netlink interface.

#![forbid(unsafe_code)]

use ethtool::{EthtoolAttr, EthtoolFeatureAttr, EthtoolFeatureBit, EthtoolHeader, EthtoolMessage};
use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use std::collections::BTreeMap;
use std::io;

/// Features of a device by name, as in `esp-hw-offload`, and whether they are switched on.
pub type Features = BTreeMap<String, bool>;

/// Asks the kernel. It belongs to the network namespace of the thread that opened it, whoever uses it later.
pub struct EspFeatures(Socket);

impl EspFeatures {
    /// Opens it in the calling thread's network namespace.
    ///
    /// # Errors
    /// Where the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// The features that work on ESP of every device, by the device's name.
    ///
    /// # Errors
    /// Where the kernel does not tell.
    pub fn list(&self) -> io::Result<BTreeMap<String, Features>> {
        let named = GenlCtrlAttrs::FamilyName("ethtool".to_owned());
        let question = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![named] };
        let mut family = None;
        let question = GenlMessage::from_payload(question);
        exchange(&self.0, question, 0, &mut |answer: GenlCtrl| {
            family = answer.nlas.iter().find_map(|attribute| match attribute {
                GenlCtrlAttrs::FamilyId(id) => Some(*id),
                _ => None,
            });
        })?;
        let family = family.ok_or_else(|| io::Error::other("the kernel has no ethtool netlink"))?;
        let mut question = GenlMessage::from_payload(EthtoolMessage::new_feature_get(None));
        question.set_resolved_family_id(family);
        let mut found = BTreeMap::new();
        exchange(&self.0, question, NLM_F_DUMP, &mut |answer: EthtoolMessage| {
            found.extend(of_device(&answer.nlas));
        })?;
        Ok(found)
    }
}

fn exchange<T>(
    socket: &Socket,
    question: GenlMessage<T>,
    flags: u16,
    take: &mut dyn FnMut(T),
) -> io::Result<()>
where
    T: std::fmt::Debug,
    GenlMessage<T>: NetlinkSerializable + NetlinkDeserializable,
{
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
    request.finalize();
    let mut octets = vec![0; request.buffer_len()];
    request.serialize(&mut octets);
    socket.send(&octets, 0)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = socket.recv(&mut &mut buffer[..], 0)?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        while !rest.is_empty() {
            let message = NetlinkMessage::<GenlMessage<T>>::deserialize(rest);
            let message = message.map_err(io::Error::other)?;
            let taken = (message.header.length as usize).next_multiple_of(4);
            rest = rest.get(taken.max(16)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(answer) => {
                    take(answer.into_parts().1);
                    if flags & NLM_F_DUMP == 0 {
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
    }
}

fn of_device(attributes: &[EthtoolAttr]) -> Option<(String, Features)> {
    let (mut name, mut features) = (None, Features::new());
    for attribute in attributes {
        let EthtoolAttr::Feature(attribute) = attribute else { continue };
        let (bits, active) = match attribute {
            EthtoolFeatureAttr::Header(headers) => {
                name = headers.iter().find_map(|header| match header {
                    EthtoolHeader::DevName(name) => Some(name.clone()),
                    _ => None,
                });
                continue;
            }
            EthtoolFeatureAttr::Hw(bits) => (bits, false),
            // A feature that cannot be switched is not offered, and may be active all the same.
            EthtoolFeatureAttr::Active(bits) => (bits, true),
            _ => continue,
        };
        for EthtoolFeatureBit { name, value, .. } in bits {
            if *value && name.contains("esp") {
                *features.entry(name.clone()).or_default() |= active;
            }
        }
    }
    Some((name?, features))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_esp_are_taken_from_what_the_kernel_tells() {
        let bit = |name: &str, value| EthtoolFeatureBit { index: 0, name: name.to_owned(), value };
        let attributes = [
            EthtoolFeatureAttr::Header(vec![EthtoolHeader::DevName("xs0".to_owned())]),
            EthtoolFeatureAttr::Active(vec![
                bit("tx-esp-segmentation", true),
                bit("esp-hw-offload", true),
                bit("rx-gro", true),
            ]),
            EthtoolFeatureAttr::Hw(vec![
                bit("esp-hw-offload", true),
                bit("esp-tx-csum-hw-offload", true),
                bit("rx-gro", true),
            ]),
            EthtoolFeatureAttr::NoChange(vec![bit("esp-other", true)]),
        ];
        let (name, found) = of_device(&attributes.map(EthtoolAttr::Feature)).expect("named");
        let expected = [
            ("esp-hw-offload", true),
            ("esp-tx-csum-hw-offload", false),
            ("tx-esp-segmentation", true),
        ];
        assert_eq!(name, "xs0");
        assert_eq!(found, expected.map(|(name, active)| (name.to_owned(), active)).into());
    }
}
