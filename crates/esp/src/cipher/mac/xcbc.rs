//! AES-XCBC-MAC (RFC 3566 §4), which no library in use has, on AWS-LC's AES.

use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use zeroize::Zeroizing;

type Block = [u8; 16];

/// The three keys that one key makes.
pub(super) struct Xcbc {
    /// K1: AWS-LC wipes it.
    chain: EncryptingKey,
    /// K2, for a last block that is full.
    full: Zeroizing<Block>,
    /// K3, for one that is not.
    padded: Zeroizing<Block>,
}

impl Xcbc {
    pub(super) fn new(key: &Block) -> Self {
        let whole = aes(key);
        let derive = |octet| {
            let mut block = Zeroizing::new([octet; 16]);
            encrypt(&whole, &mut block);
            block
        };
        Self { chain: aes(&derive(1)), full: derive(2), padded: derive(3) }
    }

    /// The MAC of `parts[0] | parts[1] | …`.
    pub(super) fn tag(&self, parts: &[&[u8]]) -> Block {
        let mut state = [0; 16];
        // How many octets of the current block are in the state: encrypted only when more follow, because the last
        // block is treated otherwise.
        let mut filled = 0;
        for mut part in parts.iter().copied() {
            while !part.is_empty() {
                if filled == state.len() {
                    encrypt(&self.chain, &mut state);
                    filled = 0;
                }
                let (now, later) = part.split_at(part.len().min(state.len() - filled));
                xor(&mut state[filled..], now);
                filled += now.len();
                part = later;
            }
        }
        if filled == state.len() {
            xor(&mut state, &*self.full);
        } else {
            state[filled] ^= 0x80;
            xor(&mut state, &*self.padded);
        }
        encrypt(&self.chain, &mut state);
        state
    }
}

fn aes(key: &Block) -> EncryptingKey {
    let key = UnboundCipherKey::new(&AES_128, key).expect("16 octets are a key of AES-128");
    EncryptingKey::ecb(key).expect("AES has an ECB mode")
}

fn encrypt(key: &EncryptingKey, block: &mut Block) {
    key.less_safe_encrypt(block, EncryptionContext::None).expect("a block is whole");
}

fn xor(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}
