//! The keys of one direction of one SA, ready to seal and open: the trait that every provider implements.

/// Additional authenticated data: octets that are authenticated together with the ciphertext but are not part of it.
#[derive(Clone, Copy, Debug)]
pub enum Aad<'a> {
    /// An ESP header; with `esn` the high half of the sequence number is authenticated, too (RFC 4303 §2.2.1,
    /// RFC 4106 §5).
    Esp {
        /// SPI.
        spi: u32,
        /// Whole sequence number.
        sequence: u64,
        /// True if the SA uses extended sequence numbers.
        esn: bool,
    },
    /// Octets as they are (IKE header up to and with the generic header of SK, RFC 5282 §5.1).
    Octets(&'a [u8]),
}

impl<'a> Aad<'a> {
    /// The octets an AEAD authenticates (RFC 4106 §5, RFC 7634 §2.1), and those GMAC begins with (RFC 4543 §3.3).
    pub(crate) fn of_aead(self, buffer: &'a mut [u8; 12]) -> &'a [u8] {
        match self {
            Self::Esp { spi, sequence, esn: false } => {
                buffer[..4].copy_from_slice(&spi.to_be_bytes());
                buffer[4..8].copy_from_slice(&sequence.to_be_bytes()[4..]);
                &buffer[..8]
            }
            Self::Esp { spi, sequence, esn: true } => {
                buffer[..4].copy_from_slice(&spi.to_be_bytes());
                buffer[4..].copy_from_slice(&sequence.to_be_bytes());
                &buffer[..]
            }
            Self::Octets(octets) => octets,
        }
    }

    /// The octets a MAC takes before the IV and those it takes after the ciphertext (RFC 4303 §2.2.1).
    pub(crate) fn of_mac(self, buffer: &'a mut [u8; 12]) -> (&'a [u8], &'a [u8]) {
        match self {
            Self::Esp { spi, sequence, esn } => {
                buffer[..4].copy_from_slice(&spi.to_be_bytes());
                buffer[4..8].copy_from_slice(&sequence.to_be_bytes()[4..]);
                buffer[8..].copy_from_slice(&sequence.to_be_bytes()[..4]);
                let (before, after) = buffer.split_at(8);
                (before, if esn { after } else { &[] })
            }
            Self::Octets(octets) => (octets, &[]),
        }
    }
}

/// A packet failed authentication, or its lengths cannot be those of a sealed packet.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("integrity check failed")]
pub struct Forged;

policy::readable_debug!(Forged);

/// The keys of one direction of one SA, ready for use.
pub trait Cipher: Send + Sync {
    /// Writes IV ‖ ciphertext ‖ ICV of `plaintext ‖ trailer` to `out`, whose length must be exactly theirs.
    /// If the suite does not encrypt, `plaintext ‖ trailer` stands in place of the ciphertext.
    ///
    /// `iv` has [`Suite::iv_len`](crate::Suite::iv_len) octets: unique per key for AEADs and GMAC, unpredictable for
    /// CBC. The caller pads: `plaintext ‖ trailer` is a multiple of [`Suite::block_len`](crate::Suite::block_len).
    ///
    /// # Panics
    /// If a length is not as above: a bug of the caller.
    fn seal(&self, iv: &[u8], aad: Aad<'_>, plaintext: &[u8], trailer: &[u8], out: &mut [u8]);

    /// Opens IV ‖ ciphertext ‖ ICV into `out` and returns how many octets of plaintext (with its padding) were
    /// written. `out` must hold at least `sealed.len() − iv_len − icv_len` octets: a shorter one is refused,
    /// too. On error `out` holds nothing secret.
    fn open(&self, aad: Aad<'_>, sealed: &[u8], out: &mut [u8]) -> Result<usize, Forged>;
}
