//! Network cards, and what they offer ESP: asked of the kernel by ethtool's netlink interface.

#![forbid(unsafe_code)]

use crate::userspace::Routes;
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
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The kernel's number.
    pub index: u32,
    /// As in `eth4`.
    pub name: String,
    /// Whether its `esp-hw-offload` is switched on; `None`: it has none.
    pub esp: Option<bool>,
    /// Whether it fills in the checksums of what it encrypts (`esp-tx-csum-hw-offload`).
    pub checksum: bool,
}

/// Who knows the host's cards: the kernel, or a twin in memory.
pub trait Cards: Send {
    /// The one of that name.
    fn named(&mut self, name: &str) -> Option<Card>;
    /// The one by which packets to that address leave.
    fn towards(&mut self, remote: IpAddr) -> Option<Card>;
}

/// How long features are taken for what they were: thousands of SAs may come at once.
const FRESH: Duration = Duration::from_secs(1);

/// Asks the kernel. It belongs to the network namespace of the thread that opened it, whoever uses it later.
pub struct KernelCards {
    routes: Routes,
    generic: Socket,
    /// By name.
    features: Option<(Instant, BTreeMap<String, Features>)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Features {
    esp: Option<bool>,
    checksum: bool,
}

impl KernelCards {
    /// Opens it in the calling thread's network namespace.
    ///
    /// # Errors
    /// Where the kernel gives no netlink socket.
    pub fn open() -> io::Result<Self> {
        let mut generic = Socket::new(NETLINK_GENERIC)?;
        generic.bind_auto()?;
        generic.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { routes: Routes::open()?, generic, features: None })
    }

    fn features(&mut self, name: &str) -> Features {
        let fresh = self.features.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH);
        if !fresh {
            let found = features(&self.generic).inspect_err(|error| {
                tracing::warn!(%error, "what network cards offer cannot be found out");
            });
            self.features = Some((Instant::now(), found.unwrap_or_default()));
        }
        let known = self.features.as_ref().and_then(|(_, features)| features.get(name));
        known.copied().unwrap_or_default()
    }

    fn card(&mut self, index: u32, name: String) -> Card {
        let Features { esp, checksum } = self.features(&name);
        Card { index, name, esp, checksum }
    }
}

impl Cards for KernelCards {
    fn named(&mut self, name: &str) -> Option<Card> {
        let index = self.routes.index(name).ok()??;
        Some(self.card(index, name.to_owned()))
    }

    fn towards(&mut self, remote: IpAddr) -> Option<Card> {
        let (index, name) = self.routes.egress(remote).ok()??;
        Some(self.card(index, name))
    }
}

/// The features of every device that concern ESP.
fn features(socket: &Socket) -> io::Result<BTreeMap<String, Features>> {
    let named = GenlCtrlAttrs::FamilyName("ethtool".to_owned());
    let question = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![named] };
    let mut family = None;
    exchange(socket, GenlMessage::from_payload(question), 0, &mut |answer: GenlCtrl| {
        family = answer.nlas.iter().find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(id) => Some(*id),
            _ => None,
        });
    })?;
    let family = family.ok_or_else(|| io::Error::other("the kernel has no ethtool netlink"))?;
    let mut question = GenlMessage::from_payload(EthtoolMessage::new_feature_get(None));
    question.set_resolved_family_id(family);
    let mut found = BTreeMap::new();
    exchange(socket, question, NLM_F_DUMP, &mut |answer: EthtoolMessage| {
        found.extend(of_device(&answer.nlas));
    })?;
    Ok(found)
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
    let has = |bits: &[EthtoolFeatureBit], name: &str| {
        bits.iter().any(|bit| bit.value && bit.name == name)
    };
    let (mut name, mut offered, mut features) = (None, false, Features::default());
    let mut active = false;
    for attribute in attributes {
        let EthtoolAttr::Feature(attribute) = attribute else { continue };
        match attribute {
            EthtoolFeatureAttr::Header(headers) => {
                name = headers.iter().find_map(|header| match header {
                    EthtoolHeader::DevName(name) => Some(name.clone()),
                    _ => None,
                });
            }
            EthtoolFeatureAttr::Hw(bits) => offered |= has(bits, "esp-hw-offload"),
            EthtoolFeatureAttr::Active(bits) => {
                active |= has(bits, "esp-hw-offload");
                features.checksum = has(bits, "esp-tx-csum-hw-offload");
            }
            _ => {}
        }
    }
    // What cannot be switched is not offered, and may be active all the same.
    features.esp = (offered || active).then_some(active);
    Some((name?, features))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_taken_from_what_the_kernel_tells() {
        let bit = |name: &str, value| EthtoolFeatureBit { index: 0, name: name.to_owned(), value };
        let of = |hw: &str, active: &str| {
            let attributes = [
                EthtoolFeatureAttr::Header(vec![EthtoolHeader::DevName("xs0".to_owned())]),
                EthtoolFeatureAttr::Hw(vec![bit(hw, true)]),
                EthtoolFeatureAttr::Active(vec![bit(active, true), bit("rx-gro", true)]),
            ];
            of_device(&attributes.map(EthtoolAttr::Feature)).expect("it has a name").1
        };
        let (esp, checksum) = ("esp-hw-offload", "esp-tx-csum-hw-offload");
        assert_eq!(of(esp, esp), Features { esp: Some(true), checksum: false });
        assert_eq!(of(esp, checksum), Features { esp: Some(false), checksum: true });
        assert_eq!(of("rx-gro", "rx-gro"), Features::default());
    }
}
