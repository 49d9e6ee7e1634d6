//! IKE messages: unprotected ones, the inside of protected ones, and fragments.

use crypto::{Cipher, Provider, Suite};
use ike::wire::fragment::{self, Cut};
use ike::wire::header::{Header, IkeSpi};
use ike::wire::message::{decode, encode};
use ike::wire::protected::{Content, OpenError, open};
use ike::wire::registry::{ExchangeType, PayloadType};
use policy::{Integrity, KeyBits, Secret};
use std::sync::LazyLock;

const SUITES: [Suite; 4] = [
    Suite::AesGcm16(KeyBits::B128),
    Suite::ChaCha20Poly1305,
    Suite::AesCbcMac(KeyBits::B256, Integrity::HmacSha2_256_128),
    Suite::AesCbcMac(KeyBits::B128, Integrity::AesXcbc96),
];

static CIPHERS: LazyLock<Vec<(Suite, Box<dyn Cipher>)>> = LazyLock::new(|| {
    let key = |suite: Suite| Secret::new(vec![7; suite.key_material_len()]);
    let cipher = |suite| Provider::AwsLc.cipher(suite, &key(suite)).expect("it has every suite");
    SUITES.into_iter().map(|suite| (suite, cipher(suite))).collect()
});

/// Reads a message as it is, as one whose length is right, and its octets as the inside of a protected message. A
/// message that was read is written and read again.
pub fn wire(data: &[u8]) {
    clear(data);
    let mut fitting = data.to_vec();
    if let (Some(field), Ok(len)) = (fitting.get_mut(24..28), u32::try_from(data.len())) {
        field.copy_from_slice(&len.to_be_bytes());
        clear(&fitting);
    }
    if let [choice, first, room, octets @ ..] = data {
        let (suite, cipher) = &CIPHERS[usize::from(*choice) % CIPHERS.len()];
        protected(PayloadType(*first), octets, *suite, &**cipher, usize::from(*room));
    }
}

/// Reads a message that a stranger may send.
fn clear(datagram: &[u8]) {
    let Ok(header) = Header::parse(datagram) else { return };
    let _ = fragment::place(&header, datagram);
    for (suite, cipher) in CIPHERS.iter() {
        let _ = open(&header, datagram, *suite, &**cipher);
    }
    let Ok(payloads) = decode(&header, datagram) else { return };
    let written = encode(&header, &payloads);
    let reread = Header::parse(&written).expect("our own header");
    assert_eq!(decode(&reread, &written).as_ref(), Ok(&payloads));
    assert_eq!(encode(&reread, &payloads), written);
}

/// Reads a protected message that a peer may send.
fn protected(first: PayloadType, octets: &[u8], suite: Suite, cipher: &dyn Cipher, room: usize) {
    if octets.len() > 20_000 {
        return;
    }
    let header = Header {
        initiator_spi: IkeSpi(1),
        responder_spi: IkeSpi(2),
        next_payload: PayloadType::NONE,
        exchange: ExchangeType::CREATE_CHILD_SA,
        from_initiator: true,
        response: false,
        higher_version: false,
        minor_version: 0,
        message_id: 3,
    };
    let content = Content { first, octets: octets.to_vec().into() };
    let mut sealed = 0_u64;
    let mut next_iv = || {
        sealed += 1;
        let mut iv = vec![0; suite.iv_len()];
        iv[..8].copy_from_slice(&sealed.to_be_bytes());
        iv
    };
    // Whole: the content reads as it would without protection.
    let whole = fragment::seal(&header, &content, Cut::WHOLE, suite, cipher, &mut next_iv);
    let [whole] = &whole[..] else { panic!("one message where there is room") };
    let parsed = Header::parse(whole).expect("our own header");
    let inside = content.read(&parsed);
    match open(&parsed, whole, suite, cipher) {
        Ok(payloads) => assert_eq!(Ok(payloads), inside),
        Err(OpenError::Inside(error)) => assert_eq!(Err(error), inside),
        Err(error) => panic!("our own message: {error}"),
    }
    if let Ok(payloads) = inside {
        let again = Content::of(&parsed, &payloads);
        assert_eq!(again.read(&parsed), Ok(payloads));
    }
    // In fragments: together they are the whole again.
    let mut joined = Vec::new();
    let cut = Cut { room: 100 + room, least: 2 };
    for sealed in fragment::seal(&header, &content, cut, suite, cipher, &mut next_iv) {
        let parsed = Header::parse(&sealed).expect("our own header");
        let place = fragment::place(&parsed, &sealed).expect("our own fragment");
        let opened = fragment::open(&parsed, &sealed, suite, cipher).expect("our own fragment");
        assert_eq!(place, Some(opened.place));
        if opened.place.number == 1 {
            assert_eq!(opened.content.first, first);
        }
        joined.extend_from_slice(&opened.content.octets);
        let mut forged = sealed;
        let at = octets.len() % forged.len();
        forged[at] ^= 1;
        if let Ok(parsed) = Header::parse(&forged) {
            assert!(fragment::open(&parsed, &forged, suite, cipher).is_err(), "bit of octet {at}");
        }
    }
    assert_eq!(joined, octets);
}
