//! The kernel's side of the plane: one request and its answers at a time, blocking.
//!
//! The socket belongs to the network namespace of the thread that opened it, whoever uses it later.

#![forbid(unsafe_code)]

use super::algorithm;
use super::reports::{self, By};
use esp::plane::PlaneError;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, ParseableParametrized,
};
use netlink_packet_xfrm::state::{DelGetMessage, ModifyMessage};
use netlink_packet_xfrm::{
    XFRM_MSG_ACQUIRE, XFRM_MSG_DELPOLICY, XFRM_MSG_DELSA, XFRM_MSG_EXPIRE, XFRM_MSG_FLUSHPOLICY,
    XFRM_MSG_FLUSHSA, XFRM_MSG_MAPPING, XFRM_MSG_NEWPOLICY, XFRM_MSG_NEWSA, XFRM_MSG_UPDPOLICY,
    XFRM_MSG_UPDSA, XFRMNLGRP_SA, XfrmAttrs, XfrmMessage,
};
use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use zeroize::{Zeroize, Zeroizing};

/// Octets of the largest batch of answers that the kernel sends at once, with room to spare.
const ANSWERS: usize = 1 << 16;

/// The kernel has refused a request.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refused {
    /// Error number; 0 where the answer could not be understood.
    pub errno: i32,
    /// The kernel's own words where it has any, or what the number means.
    pub text: String,
}

policy::readable_debug!(Refused);

impl Refused {
    /// Returns `true` if the object to be changed does not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, libc::ESRCH | libc::ENOENT)
    }

    /// Returns `true` if the object to be added exists already.
    pub fn is_present(&self) -> bool {
        self.errno == libc::EEXIST
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self { errno: error.raw_os_error().unwrap_or(0), text: error.to_string() }
    }
}

/// An error of the kernel, with advice where the cause is a common one. A card without room is `PlaneError::Full`.
pub(super) fn refusal(what: String, error: &Refused) -> PlaneError {
    let advice = match error.errno {
        libc::EPERM | libc::EACCES => "; is CAP_NET_ADMIN granted?",
        libc::ENOSYS | libc::EPROTONOSUPPORT | libc::ENOENT => {
            "; does this kernel have the algorithm, and the modules esp4, esp6, ah4, ah6?"
        }
        _ => "",
    };
    let why = format!("the kernel says: {error}{advice}");
    match error.errno {
        libc::ENOSPC => PlaneError::Full { what, why },
        _ => PlaneError::System { what, why },
    }
}

/// The receiver of requests about SAs and policies: the kernel, or a twin in memory.
pub trait Kernel: Send {
    /// Carries out a request; returns once it is in force. Keys in the message are wiped.
    fn order(&mut self, message: XfrmMessage) -> Result<(), Refused>;
    /// Asks for one thing. A caller that asks for an SA is to wipe the keys of the answer.
    fn ask(&mut self, message: XfrmMessage) -> Result<XfrmMessage, Refused>;
    /// Removes an SA. Returns what it was in the end, without its keys; `None` where the kernel does not tell.
    fn take(&mut self, sa: DelGetMessage) -> Result<Option<ModifyMessage>, Refused>;
    /// Asks for all of a kind; keys in the answers are wiped.
    fn list(&mut self, message: XfrmMessage) -> Result<Vec<XfrmMessage>, Refused>;
}

/// The kernel.
pub struct Netlink {
    socket: Socket,
    port: u32,
    /// The socket on which the kernel reports the final state of SAs that this one has removed.
    removals: Option<Socket>,
    sequence: u32,
    answers: Zeroizing<Vec<u8>>,
    /// The number of their octets that were written since they were wiped.
    written: usize,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Where the kernel has no XFRM, or CAP_NET_ADMIN is missing.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_XFRM)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // Words rather than numbers, and no copy of the request, which has keys.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        let answers = Zeroizing::new(vec![0; ANSWERS]);
        Ok(Self { socket, port, removals: None, sequence: 0, answers, written: 0 })
    }

    /// Has the kernel tell from now on the final state of SAs that are removed. The caller is to remove SAs by
    /// [`Kernel::take`].
    pub(super) fn hear_of_removals(&mut self) -> io::Result<()> {
        let mut socket = Socket::new(NETLINK_XFRM)?;
        reports::only(&socket, &[(XFRM_MSG_DELSA, By::Only(self.port))])?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.add_membership(XFRMNLGRP_SA)?;
        self.removals = Some(socket);
        Ok(())
    }

    /// The final state of the SA that the last request has removed: the kernel reports it before it answers.
    fn removed(&mut self) -> Option<ModifyMessage> {
        let socket = self.removals.as_ref()?;
        let mut last = None;
        // One that was not waited for may be left over.
        while last.is_none()
            && let Ok(length) = socket.recv(&mut &mut self.answers[..], 0)
        {
            let length = length.min(ANSWERS);
            for report in messages(&self.answers[..length]) {
                if report.sequence_number() == self.sequence {
                    last = parse(report.message_type(), report.payload());
                }
            }
            self.answers[..length].zeroize();
        }
        let mut report = last?;
        wipe(&mut report);
        let XfrmMessage::DeleteSa(DelGetMessage { nlas, .. }) = report else { return None };
        let user_sa_info = nlas.iter().find_map(|attribute| match attribute {
            XfrmAttrs::SaInfo(info) => Some(*info),
            _ => None,
        })?;
        Some(ModifyMessage { user_sa_info, nlas })
    }

    /// By which the kernel says who has asked for what it reports.
    pub(super) fn port(&self) -> u32 {
        self.port
    }

    fn exchange(&mut self, message: XfrmMessage, flags: u16) -> Result<Vec<XfrmMessage>, Refused> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = octets(message, flags, (self.port, self.sequence));
        self.socket.send(&request, 0)?;
        let mut found = Vec::new();
        let outcome = self.collect(&mut found, flags);
        // An answer has some hundred octets; to wipe all there is room for takes longer than the kernel does.
        let written = std::mem::take(&mut self.written);
        self.answers[..written].zeroize();
        outcome.map(|()| found)
    }

    /// Collects answers up to the acknowledgement, the end of the list or, where neither was asked for, the first one.
    fn collect(&mut self, found: &mut Vec<XfrmMessage>, flags: u16) -> Result<(), Refused> {
        let many = flags & (NLM_F_ACK | NLM_F_DUMP) != 0;
        loop {
            let length = self.socket.recv(&mut &mut self.answers[..], 0)?.min(ANSWERS);
            self.written = self.written.max(length);
            for answer in messages(&self.answers[..length]) {
                if answer.sequence_number() != self.sequence {
                    continue;
                }
                match answer.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return verdict(&answer),
                    kind => found.extend(parse(kind, answer.payload())),
                }
                if !many {
                    return Ok(());
                }
            }
        }
    }
}

impl Kernel for Netlink {
    fn order(&mut self, message: XfrmMessage) -> Result<(), Refused> {
        self.exchange(message, NLM_F_ACK).map(drop)
    }

    fn ask(&mut self, message: XfrmMessage) -> Result<XfrmMessage, Refused> {
        let answers = self.exchange(message, 0)?;
        answers.into_iter().next().ok_or_else(|| Refused {
            errno: 0,
            text: "the kernel's answer is not understood".to_owned(),
        })
    }

    fn take(&mut self, sa: DelGetMessage) -> Result<Option<ModifyMessage>, Refused> {
        self.order(XfrmMessage::DeleteSa(sa))?;
        Ok(self.removed())
    }

    fn list(&mut self, message: XfrmMessage) -> Result<Vec<XfrmMessage>, Refused> {
        let mut answers = self.exchange(message, NLM_F_DUMP)?;
        answers.iter_mut().for_each(wipe);
        Ok(answers)
    }
}

/// Overwrites the keys in a message.
pub(super) fn wipe(message: &mut XfrmMessage) {
    match message {
        XfrmMessage::AddSa(sa) | XfrmMessage::UpdateSa(sa) => algorithm::wipe(&mut sa.nlas),
        XfrmMessage::DeleteSa(sa) => algorithm::wipe(&mut sa.nlas),
        _ => {}
    }
}

/// Octets of a request. The kernel reports its changes with this port and number, just as they stand here.
pub(super) fn octets(
    message: XfrmMessage,
    flags: u16,
    (port, sequence): (u32, u32),
) -> Zeroizing<Vec<u8>> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.port_number = port;
    header.sequence_number = sequence;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    request.finalize();
    let mut octets = Zeroizing::new(vec![0; request.buffer_len()]);
    request.serialize(&mut octets);
    if let NetlinkPayload::InnerMessage(message) = &mut request.payload {
        wipe(message);
    }
    octets
}

/// The messages in what one call has received.
pub(super) fn messages(mut octets: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(octets).ok()?;
        let length = (message.length() as usize).next_multiple_of(4);
        octets = octets.get(length..).unwrap_or_default();
        Some(message)
    })
}

/// Reads a message of a kind that this plane knows.
pub(super) fn parse(kind: u16, payload: &[u8]) -> Option<XfrmMessage> {
    // The octets before the attributes (linux/xfrm.h): the parser takes them for granted.
    let fixed = match kind {
        XFRM_MSG_NEWSA | XFRM_MSG_UPDSA => 224,
        XFRM_MSG_DELSA => 24,
        XFRM_MSG_NEWPOLICY | XFRM_MSG_UPDPOLICY => 168,
        XFRM_MSG_DELPOLICY | XFRM_MSG_MAPPING => 64,
        XFRM_MSG_ACQUIRE => 280,
        XFRM_MSG_EXPIRE => 232,
        XFRM_MSG_FLUSHSA => 1,
        XFRM_MSG_FLUSHPOLICY => 0,
        _ => return None,
    };
    if payload.len() < fixed {
        return None;
    }
    let message = XfrmMessage::parse_with_param(payload, kind);
    message.inspect_err(|error| tracing::debug!(%error, kind, "a message of XFRM")).ok()
}

/// The text in an extended acknowledgement (linux/netlink.h: NLMSGERR_ATTR_MSG).
const TEXT: u16 = 1;

fn verdict(answer: &NetlinkBuffer<&[u8]>) -> Result<(), Refused> {
    let payload = answer.payload();
    let code = payload.first_chunk::<4>().map_or(-libc::EPROTO, |code| i32::from_ne_bytes(*code));
    if code == 0 {
        return Ok(());
    }
    // The code, and the header of the request.
    let mut attributes = payload.get(20..).unwrap_or_default();
    let mut text = None;
    while let [l0, l1, k0, k1, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(value) = attributes.get(4..length) else { break };
        if u16::from_ne_bytes([k0, k1]) == TEXT {
            let value = value.strip_suffix(&[0]).unwrap_or(value);
            text = Some(String::from_utf8_lossy(value).into_owned());
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let meaning = io::Error::from_raw_os_error(-code).to_string();
    let text = text.map_or_else(|| meaning.clone(), |text| format!("{text} ({meaning})"));
    Err(Refused { errno: -code, text })
}
