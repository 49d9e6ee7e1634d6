//! AES-XCBC-MAC (RFC 3566 §4), which no library in use has, on AWS-LC's AES or any other; AES-CMAC (RFC 4493), which
//! differs only in its keys, for AES that brings none.

#[cfg(feature = "aws-lc")]
use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};
use zeroize::Zeroizing;

type Block = [u8; 16];

/// AES-128, one block at a time.
pub(super) trait Aes {
    fn new(key: &Block) -> Self;
    fn encrypt(&self, block: &mut Block);
}

/// The three keys that one key makes.
pub(super) struct Chain<A> {
    aes: A,
    /// For a last block that is full.
    full: Zeroizing<Block>,
    /// For one that is not.
    padded: Zeroizing<Block>,
}

impl<A: Aes> Chain<A> {
    /// The keys of AES-XCBC-MAC: K1, K2 and K3 are blocks that the key encrypts.
    pub(super) fn xcbc(key: &Block) -> Self {
        let whole = A::new(key);
        let [key, full, padded] = [1, 2, 3].map(|octet| {
            let mut block = Zeroizing::new([octet; 16]);
            whole.encrypt(&mut block);
            block
        });
        Self { aes: A::new(&key), full, padded }
    }

    /// The keys of AES-CMAC: the encrypted zero block, doubled once and twice (RFC 4493 §2.3).
    #[cfg(feature = "portable")]
    pub(super) fn cmac(key: &Block) -> Self {
        let aes = A::new(key);
        let mut zero = Zeroizing::new([0; 16]);
        aes.encrypt(&mut zero);
        let full = double(&zero);
        let padded = double(&full);
        Self { aes, full, padded }
    }

    /// The MAC of `parts[0] | parts[1] | …`.
    pub(super) fn tag(&self, parts: &[&[u8]]) -> Block {
        let mut state = [0; 16];
        // The number of octets of the current block in the state. It is encrypted only when more follow, because the
        // last block is treated otherwise.
        let mut filled = 0;
        for mut part in parts.iter().copied() {
            while !part.is_empty() {
                if filled == state.len() {
                    self.aes.encrypt(&mut state);
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
        self.aes.encrypt(&mut state);
        state
    }
}

#[cfg(feature = "aws-lc")]
impl Aes for EncryptingKey {
    fn new(key: &Block) -> Self {
        // AWS-LC wipes it.
        let key = UnboundCipherKey::new(&AES_128, key).expect("16 octets are a key of AES-128");
        EncryptingKey::ecb(key).expect("AES has an ECB mode")
    }

    fn encrypt(&self, block: &mut Block) {
        self.less_safe_encrypt(block, EncryptionContext::None).expect("a block is whole");
    }
}

/// Times x in GF(2^128), without a branch on the secret.
#[cfg(feature = "portable")]
fn double(block: &Block) -> Zeroizing<Block> {
    let value = u128::from_be_bytes(*block);
    let reduction = (value >> 127).wrapping_neg() & 0x87;
    Zeroizing::new((value << 1 ^ reduction).to_be_bytes())
}

fn xor(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}
