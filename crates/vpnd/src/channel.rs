//! Messages between processes of `vpnd`: JSON after its length, with a descriptor or without.

use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Octets of the longest message: the rules of nftables on a host that has hundreds of thousands.
const LONGEST: usize = 512 << 20;

/// Sends a message.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let octets = serde_json::to_vec(message)?;
    let len = u32::try_from(octets.len()).map_err(io::Error::other)?.to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let (head, flags) = ([IoSlice::new(&len)], SendFlags::NOSIGNAL);
    // Four octets fit, or none.
    retry_on_intr(|| sendmsg(&socket, &head, &mut control, flags))?;
    let mut rest = &octets[..];
    while !rest.is_empty() {
        let written = retry_on_intr(|| write(&socket, rest))?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Receives a message. The other end is gone if the error is `UnexpectedEof`.
pub fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Option<OwnedFd>)> {
    let mut len = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(&mut len)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = loop {
        match recvmsg(&socket, parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    if received.bytes != 4 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let len = usize::try_from(u32::from_ne_bytes(len)).unwrap_or(usize::MAX);
    if len > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut octets = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match retry_on_intr(|| read(&socket, &mut octets[filled..]))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => filled += more,
        }
    }
    Ok((serde_json::from_slice(&octets)?, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_message_brings_its_descriptor() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "text").expect("writable");
        let long = "x".repeat(100_000);
        let opened = File::open(file.path()).expect("there");
        let sender = std::thread::spawn({
            let long = long.clone();
            move || send(&here, &long, Some(opened.as_fd())).map(|()| here)
        });
        let (message, descriptor) = receive::<String>(&there).expect("a message");
        let mut text = String::new();
        let mut file = File::from(descriptor.expect("a descriptor"));
        file.read_to_string(&mut text).expect("readable");
        assert_eq!((message, text.as_str()), (long, "text"));
        drop(sender.join().expect("no panic").expect("sent"));
        let end = receive::<()>(&there).expect_err("the other end is gone");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
