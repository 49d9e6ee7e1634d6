//! Putting the peer's fragments together (RFC 7383 §2.6).

mod frozen;

use super::keys::Keys;
use super::path::Path;
use crate::deadlines::after;
use crate::discard::Discard;
use crate::wire::fragment::{self, Fragment};
use crate::wire::header::Header;
use crate::wire::payload::Payload;
use crate::wire::protected::{Content, OpenError};
use crate::wire::reader::WireError;
use crate::wire::registry::{ExchangeType, PayloadType};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The most fragments a message may have. A request that exceeds this or the octets below is answered with
/// INVALID_SYNTAX.
const MOST_FRAGMENTS: u16 = 256;
/// Octets of the longest message of a peer (RFC 7383 §5 advises against more than 64 KB).
const MOST_OF_PEER: usize = 64 * 1024;
/// Octets of the longest IKE_AUTH request: its sender has proved nothing yet.
const MOST_OF_STRANGER: usize = 16 * 1024;

/// At most one message of the peer, of which some fragments are there. A fragment that is not authentic never gets in.
#[derive(Debug)]
pub(crate) struct Reassembly {
    most: usize,
    partial: Option<Box<Partial>>,
}

#[derive(Debug)]
struct Partial {
    message_id: u32,
    exchange: ExchangeType,
    total: u16,
    since: Instant,
    /// Octets of `contents` together.
    octets: usize,
    contents: BTreeMap<u16, Content>,
    /// Fragment 1 as it came.
    first: Vec<u8>,
    /// Octets of the largest fragment as it came.
    largest: usize,
}

/// The content of an authentic datagram.
pub(crate) enum Received {
    /// A message, or the reason why it cannot be read.
    Message { body: Result<Body, WireError>, fragments: Option<Fragments> },
    /// One of several fragments, of which others are missing.
    Fragment,
}

/// The content of a message.
pub(crate) struct Body {
    pub payloads: Vec<Payload>,
    /// The payloads as they are written.
    pub content: Content,
}

/// Facts about the fragments of a message that is complete.
pub(crate) struct Fragments {
    /// Fragment 1: by it the message is recognised when it comes again.
    pub first: Vec<u8>,
    /// Octets of the largest.
    pub largest: usize,
}

impl Body {
    fn of(header: &Header, content: Content) -> Result<Self, WireError> {
        Ok(Self { payloads: content.read(header)?, content })
    }
}

impl Default for Reassembly {
    fn default() -> Self {
        Self { most: MOST_OF_PEER, partial: None }
    }
}

impl Reassembly {
    /// For what comes before the peer has proved who it is.
    pub fn of_stranger() -> Self {
        Self { most: MOST_OF_STRANGER, ..Self::default() }
    }

    /// Takes a datagram of a message that is awaited: the message itself, or one of its fragments.
    ///
    /// # Errors
    /// The reason for which it is to be discarded; nothing has changed then.
    pub fn receive(
        &mut self,
        now: Instant,
        path: &Path,
        keys: &Keys,
        header: &Header,
        datagram: &[u8],
    ) -> Result<Received, Discard> {
        let Some(place) = fragment::place(header, datagram).map_err(|_| Discard::NotAuthentic)?
        else {
            let body = match keys.open(header, datagram) {
                Err(OpenError::NotAuthentic(_)) => return Err(Discard::NotAuthentic),
                Err(OpenError::Inside(error)) => Err(error),
                Ok(content) => Body::of(header, content),
            };
            return Ok(Received::Message { body, fragments: None });
        };
        // RFC 7383 §2.4: not unless both sides have said so.
        if path.fragment_size.is_none() {
            return Err(Discard::UnexpectedFragment);
        }
        let started = self.partial.as_ref().filter(|p| p.message_id == header.message_id);
        if let Some(partial) = started {
            if place.total < partial.total {
                return Err(Discard::OutdatedFragment);
            }
            if place.total == partial.total && partial.contents.contains_key(&place.number) {
                return Err(Discard::RepeatedFragment);
            }
        }
        let fragment = match keys.open_fragment(header, datagram) {
            Ok(fragment) => fragment,
            Err(OpenError::NotAuthentic(_)) => return Err(Discard::NotAuthentic),
            Err(OpenError::Inside(error)) => return Ok(self.unreadable(datagram, error)),
        };
        if started.is_some_and(|p| p.exchange != header.exchange) {
            return Err(Discard::WrongExchange);
        }
        // RFC 7383 §2.6: fragments of a smaller size replace those of a larger one.
        let goes_on = started.is_some_and(|p| p.total == place.total);
        if place.total > MOST_FRAGMENTS {
            return Ok(self.unreadable(datagram, WireError::TooMany("fragments")));
        }
        let mut partial = self.partial.take().filter(|_| goes_on).unwrap_or_else(|| {
            Box::new(Partial {
                message_id: header.message_id,
                exchange: header.exchange,
                total: place.total,
                since: now,
                octets: 0,
                contents: BTreeMap::new(),
                first: Vec::new(),
                largest: 0,
            })
        });
        partial.octets += fragment.content.octets.len();
        if partial.octets > self.most {
            return Ok(self.unreadable(datagram, WireError::TooMany("octets in its fragments")));
        }
        partial.add(fragment, datagram);
        if partial.contents.len() < usize::from(partial.total) {
            self.partial = Some(partial);
            return Ok(Received::Fragment);
        }
        let body = Body::of(header, partial.join());
        let Partial { first, largest, .. } = *partial;
        let fragments = Some(Fragments { first, largest });
        Ok(Received::Message { body, fragments })
    }

    /// RFC 7383 §5: a peer that asks for too much is refused, and its fragments are not kept.
    fn unreadable(&mut self, datagram: &[u8], error: WireError) -> Received {
        let first = self.partial.take().map(|p| p.first).filter(|f| !f.is_empty());
        let first = first.unwrap_or_else(|| datagram.to_vec());
        let fragments = Some(Fragments { first, largest: datagram.len() });
        Received::Message { body: Err(error), fragments }
    }

    /// Forgets fragments whose message is no longer awaited.
    pub fn clear(&mut self) {
        self.partial = None;
    }

    /// Forgets fragments whose others have not come in time.
    pub fn forget(&mut self, now: Instant, patience: Duration) {
        self.partial.take_if(|p| after(p.since, patience) <= now);
    }
}

impl Partial {
    fn add(&mut self, fragment: Fragment, datagram: &[u8]) {
        if fragment.place.number == 1 {
            self.first = datagram.to_vec();
        }
        self.largest = self.largest.max(datagram.len());
        self.contents.insert(fragment.place.number, fragment.content);
    }

    fn join(&self) -> Content {
        let mut octets = Zeroizing::new(Vec::with_capacity(self.octets));
        for content in self.contents.values() {
            octets.extend_from_slice(&content.octets);
        }
        let first = self.contents.get(&1).map_or(PayloadType::NONE, |c| c.first);
        Content { first, octets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::rng::Rng;
    use crate::negotiation::suite::IkeSuite;
    use crate::originator::Originator;
    use crate::sa::keys::{KeyInputs, Nonces};
    use crate::wire::fragment::Cut;
    use crate::wire::header::IkeSpi;
    use policy::{Group, IkeEncryption, KeyBits, Prf, Secret};
    use std::net::SocketAddr;

    const PATIENCE: Duration = Duration::from_secs(40);

    struct Peer {
        theirs: Keys,
        ours: Keys,
        rng: Rng,
        path: Path,
        now: Instant,
    }

    fn peer() -> Peer {
        let suite = IkeSuite {
            encryption: IkeEncryption::AesGcm16(KeyBits::B128),
            integrity: None,
            prf: Prf::HmacSha2_256,
            group: Group::Curve25519,
            additional: Default::default(),
        };
        let keys = |originator| {
            let nonces = Nonces { initiator: &[1; 32], responder: &[2; 32] };
            let shared = Secret::new(vec![3; 32]);
            let inputs = KeyInputs { nonces, spis: (IkeSpi(1), IkeSpi(2)), originator };
            Keys::initial(&Default::default(), suite, &shared, inputs).0
        };
        let address = SocketAddr::from(([192, 0, 2, 1], 500));
        let path = Path { fragment_size: Some(1280), ..Path::new(address, address) };
        let rng = Rng::from_seed([5; 32]);
        Peer {
            theirs: keys(Originator::ThisSide),
            ours: keys(Originator::Peer),
            rng,
            path,
            now: Instant::now(),
        }
    }

    impl Peer {
        fn header(id: u32) -> Header {
            Header {
                initiator_spi: IkeSpi(1),
                responder_spi: IkeSpi(2),
                next_payload: PayloadType::NONE,
                exchange: ExchangeType::INFORMATIONAL,
                from_initiator: true,
                response: false,
                higher_version: false,
                minor_version: 0,
                message_id: id,
            }
        }

        /// A message of so many octets in so many fragments.
        fn cut(&mut self, id: u32, octets: usize, least: usize) -> Vec<Vec<u8>> {
            let header = Self::header(id);
            let content = Content::of(&header, &[Payload::VendorId(vec![7; octets])]);
            self.theirs.seal(&header, &content, Cut { room: 60_000, least }, &mut self.rng)
        }

        fn give(&self, to: &mut Reassembly, datagram: &[u8]) -> Result<Received, Discard> {
            let header = Header::parse(datagram).expect("it was written by us");
            to.receive(self.now, &self.path, &self.ours, &header, datagram)
        }
    }

    fn is_part(received: Result<Received, Discard>) -> bool {
        matches!(received, Ok(Received::Fragment))
    }

    fn is_whole(received: Result<Received, Discard>, octets: usize) -> bool {
        let expected = [Payload::VendorId(vec![7; octets])];
        matches!(received, Ok(Received::Message { body: Ok(b), .. }) if b.payloads == expected)
    }

    fn is_refused(received: Result<Received, Discard>) -> bool {
        matches!(received, Ok(Received::Message { body: Err(WireError::TooMany(_)), .. }))
    }

    #[test]
    fn in_any_order_and_recognised_by_the_first() {
        let mut peer = peer();
        let fragments = peer.cut(0, 500, 5);
        let mut reassembly = Reassembly::default();
        for i in [3, 0, 4, 1] {
            assert!(is_part(peer.give(&mut reassembly, &fragments[i])));
            let again = peer.give(&mut reassembly, &fragments[i]);
            assert_eq!(again.err(), Some(Discard::RepeatedFragment));
        }
        let whole = peer.give(&mut reassembly, &fragments[2]);
        let Ok(Received::Message { body: Ok(_), fragments: Some(was) }) = whole else {
            panic!("it is complete")
        };
        assert_eq!(was.first, fragments[0]);
        assert_eq!(Some(was.largest), fragments.iter().map(Vec::len).max());
        assert!(reassembly.partial.is_none());
    }

    #[test]
    fn a_larger_set_replaces_a_smaller_one() {
        let mut peer = peer();
        let (few, many) = (peer.cut(0, 500, 2), peer.cut(0, 500, 3));
        let mut reassembly = Reassembly::default();
        assert!(is_part(peer.give(&mut reassembly, &few[0])));
        assert!(is_part(peer.give(&mut reassembly, &many[1])));
        assert_eq!(peer.give(&mut reassembly, &few[1]).err(), Some(Discard::OutdatedFragment));
        assert!(is_part(peer.give(&mut reassembly, &many[0])));
        assert!(is_whole(peer.give(&mut reassembly, &many[2]), 500));
    }

    #[test]
    fn another_message_or_none_within_time_replaces_what_is_there() {
        let mut peer = peer();
        let (old, new) = (peer.cut(4, 500, 2), peer.cut(5, 300, 2));
        let mut reassembly = Reassembly::default();
        assert!(is_part(peer.give(&mut reassembly, &old[0])));
        assert!(is_part(peer.give(&mut reassembly, &new[1])));
        assert!(is_whole(peer.give(&mut reassembly, &new[0]), 300));
        assert!(is_part(peer.give(&mut reassembly, &old[1])), "half of it was forgotten");
        reassembly.forget(peer.now + PATIENCE / 2, PATIENCE);
        assert!(reassembly.partial.is_some());
        reassembly.forget(peer.now + PATIENCE, PATIENCE);
        assert!(reassembly.partial.is_none());
    }

    #[test]
    fn a_fragment_that_is_not_authentic_displaces_nothing() {
        let mut peer = peer();
        let fragments = peer.cut(0, 500, 2);
        let mut reassembly = Reassembly::default();
        assert!(is_part(peer.give(&mut reassembly, &fragments[0])));
        for (id, number, total) in [(0, 2, 2), (0, 1, 3), (0, 1, 60_000), (1, 1, 2), (0, 1, 1)] {
            let mut forged = fragments[1].clone();
            forged[23] = id;
            forged[32..34].copy_from_slice(&u16::to_be_bytes(number));
            forged[34..36].copy_from_slice(&u16::to_be_bytes(total));
            *forged.last_mut().expect("it has octets") ^= 1;
            assert!(peer.give(&mut reassembly, &forged).is_err());
        }
        assert!(is_whole(peer.give(&mut reassembly, &fragments[1]), 500));
    }

    #[test]
    fn a_peer_takes_no_more_memory_than_it_may() {
        let mut peer = peer();
        for (mut reassembly, most) in
            [(Reassembly::default(), MOST_OF_PEER), (Reassembly::of_stranger(), MOST_OF_STRANGER)]
        {
            // The payload's header has four octets.
            let fits = (most - 4).min(usize::from(u16::MAX) - 4);
            let fragments = peer.cut(0, fits, 256);
            assert_eq!(fragments.len(), 256);
            for fragment in &fragments[..255] {
                assert!(is_part(peer.give(&mut reassembly, fragment)));
                let kept = reassembly.partial.as_ref().expect("it is kept");
                assert!(kept.octets <= most && kept.contents.len() <= 256);
            }
            assert!(is_whole(peer.give(&mut reassembly, &fragments[255]), fits));
            let many = peer.cut(1, 5000, 257);
            assert!(is_refused(peer.give(&mut reassembly, &many[0])));
            assert!(reassembly.partial.is_none());
        }
        let mut reassembly = Reassembly::of_stranger();
        let fragments = peer.cut(0, MOST_OF_STRANGER, 4);
        assert!(fragments[..3].iter().all(|f| is_part(peer.give(&mut reassembly, f))));
        let refused = peer.give(&mut reassembly, &fragments[3]);
        assert!(is_refused(refused));
        assert!(reassembly.partial.is_none(), "what it sent is not kept");
    }

    #[test]
    fn without_agreement_nothing_is_kept() {
        let mut peer = peer();
        let fragments = peer.cut(0, 500, 2);
        peer.path.fragment_size = None;
        let mut reassembly = Reassembly::default();
        let received = peer.give(&mut reassembly, &fragments[0]);
        assert_eq!(received.err(), Some(Discard::UnexpectedFragment));
        assert!(reassembly.partial.is_none());
    }
}
