//! A message of ours as it is sent: in one datagram or in fragments (RFC 7383 §2.5).

use super::keys::Keys;
use super::path::{FRAGMENT_SIZES, Path};
use crate::crypto::rng::Rng;
use crate::wire::fragment::Cut;
use crate::wire::header::Header;
use crate::wire::payload::Payload;
use crate::wire::protected::Content;

/// Octets of messages that fit the smallest IP datagrams that are tried, over either IP version.
const SMALL: usize = 576 - 40 - 8 - 4;

/// A message, kept to be sent again.
#[derive(Debug)]
pub(crate) struct Message {
    datagrams: Vec<Vec<u8>>,
    /// The source of smaller fragments, if the peer takes fragments.
    source: Option<Box<(Header, Content)>>,
}

impl Message {
    /// A message without protection: it cannot be fragmented.
    pub fn unprotected(octets: Vec<u8>) -> Self {
        Self { datagrams: vec![octets], source: None }
    }

    /// Protects a message, in fragments if the path asks for it.
    pub fn seal(
        header: Header,
        payloads: &[Payload],
        keys: &mut Keys,
        path: &Path,
        rng: &mut Rng,
    ) -> Self {
        let content = Content::of(&header, payloads);
        match path.fragment_size {
            None => Self { datagrams: keys.seal(&header, &content, Cut::WHOLE, rng), source: None },
            Some(size) => {
                let datagrams = keys.seal(&header, &content, Cut::to(path.room(size)), rng);
                // Datagrams that fit every path are never made smaller.
                let small = datagrams.iter().all(|d| d.len() <= SMALL);
                Self { datagrams, source: (!small).then(|| Box::new((header, content))) }
            }
        }
    }

    /// A message that was made before: its datagrams, and the source of smaller ones.
    pub fn of_parts(datagrams: Vec<Vec<u8>>, source: Option<(Header, Content)>) -> Self {
        Self { datagrams, source: source.map(Box::new) }
    }

    pub fn datagrams(&self) -> &[Vec<u8>] {
        &self.datagrams
    }

    /// The source of smaller datagrams, if the peer takes fragments.
    pub fn source(&self) -> Option<&(Header, Content)> {
        self.source.as_deref()
    }

    /// The same message in smaller datagrams, and the size of IP datagrams for which that is; `None` if there is no
    /// smaller size or it fits that, too.
    pub fn smaller(&self, keys: &mut Keys, path: &Path, rng: &mut Rng) -> Option<(u16, Self)> {
        let (header, content) = self.source.as_deref()?;
        let largest = self.datagrams.iter().map(Vec::len).max()?;
        let now = path.fragment_size?;
        let below = FRAGMENT_SIZES.into_iter().filter(|s| *s < now);
        let size = std::iter::once(now).chain(below).find(|s| path.room(*s) < largest)?;
        // RFC 7383 §2.5.2: Total Fragments must grow, so that the sets can be told apart.
        let cut = Cut { room: path.room(size), least: self.datagrams.len() + 1 };
        let datagrams = keys.seal(header, content, cut, rng);
        let content = Content { first: content.first, octets: content.octets.clone() };
        Some((size, Self { datagrams, source: Some(Box::new((*header, content))) }))
    }
}
