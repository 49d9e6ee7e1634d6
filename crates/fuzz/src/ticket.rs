//! Tickets of session resumption, which a stranger may present.

use crypto::CryptoProviders;
use ike::crypto::rng::Rng;
use ike::ticket::{Content, KEY_LEN, Sealer, TicketKey};
use ike::wire::header::IkeSpi;
use ike::wire::payload::{Proposal, Transform};
use ike::wire::registry::{AuthMethod, ProtocolId, TransformType};
use policy::Secret;

/// Opens octets as they are. Then it seals a ticket whose content is made of them, and opens that one whole, and with
/// some of its octets changed.
pub fn ticket(data: &[u8]) {
    let crypto = CryptoProviders::default();
    let key = TicketKey::new(Secret::new(vec![7; KEY_LEN])).expect("the length is right");
    let keys = [key];
    let mut sealer = Sealer::new(&mut Rng::from_seed([7; 32]));
    assert!(sealer.open(&crypto, &keys, data).is_err(), "nobody else has the key");
    let content = content(data);
    let (id, sealed) = sealer.seal(&crypto, &keys, &content).expect("the first of many");
    assert_eq!(sealer.open(&crypto, &keys, &sealed), Ok((id, content)));
    let mut forged = sealed.clone();
    for change in data.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % forged.len();
        forged[at] ^= change[2];
    }
    assert!(forged == sealed || sealer.open(&crypto, &keys, &forged).is_err());
    let cut = data.len() % sealed.len();
    assert!(sealer.open(&crypto, &keys, &sealed[..cut]).is_err());
}

/// A content that the octets decide about.
fn content(data: &[u8]) -> Content {
    let mut octets = data.iter().copied().chain(std::iter::repeat(0));
    let mut next = || octets.next().expect("endless");
    let expires = u64::from(next()) << 24;
    let (resumptions, method) = (next(), AuthMethod(next()));
    let ppk = (next() & 1 == 1).then_some([next(); 32]);
    let quantum_safe = next() & 1 == 1;
    let transforms = (0..next() % 12).map(|_| Transform {
        kind: TransformType(next()),
        id: u16::from_be_bytes([next(), next()]),
        key_length: Some(u16::from(next())).filter(|length| *length != 0),
        unknown_attribute: false,
    });
    let transforms = transforms.collect();
    let len = usize::from(next() % 65);
    Content {
        expires,
        proved: expires / 2,
        proof_until: expires,
        resumptions,
        method,
        tunnel: [next(); 32],
        initiator: [next(); 32],
        responder: [next(); 32],
        credential: [next(); 32],
        ppk,
        quantum_safe,
        spis: (IkeSpi(u64::from(next())), IkeSpi(u64::from(next()))),
        suite: Proposal { number: 1, protocol: ProtocolId::IKE, spi: vec![], transforms },
        sk_d: Secret::new(std::iter::repeat_with(next).take(len).collect()),
    }
}
