//! Key exchange methods (IANA, IKEv2 transform type 4).
//!
//! The lists of a row have the word first that is written; the others are read. AIX_VPN has the numbers. The arithmetic
//! is in `crates/ike/src/crypto/key_exchange.rs`.

/// Key exchange method (transform type 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Group 2, 1024-bit MODP; weak, only where the policy names it.
    Modp1024,
    /// Group 5, 1536-bit MODP; weak, only where the policy names it.
    Modp1536,
    /// Group 14, 2048-bit MODP (RFC 3526).
    Modp2048,
    /// Group 15, 3072-bit MODP (RFC 3526).
    Modp3072,
    /// Group 16, 4096-bit MODP (RFC 3526).
    Modp4096,
    /// Group 19, NIST P-256 (RFC 5903).
    Ecp256,
    /// Group 20, NIST P-384 (RFC 5903).
    Ecp384,
    /// Group 21, NIST P-521 (RFC 5903).
    Ecp521,
    /// Group 24, 2048-bit MODP with a subgroup of 256 bits (RFC 5114); weak, only where the policy names it.
    Modp2048Sub256,
    /// Group 31, X25519 (RFC 8031).
    Curve25519,
    /// Method 35, ML-KEM-512 (FIPS 203; draft-ietf-ipsecme-ikev2-mlkem).
    MlKem512,
    /// Method 36, ML-KEM-768.
    MlKem768,
    /// Method 37, ML-KEM-1024.
    MlKem1024,
}

impl Group {
    /// The method that IANA gave a number.
    pub fn of_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.row().number == number)
    }

    /// Returns `true` if a quantum computer does not help to find its shared secret, as far as anyone knows.
    pub const fn is_quantum_safe(self) -> bool {
        self.row().quantum_safe
    }

    /// Returns `true` if RFC 8247 §2.4 advises against it or forbids it.
    pub const fn is_weak(self) -> bool {
        self.row().weak
    }
}

/// A key exchange method.
#[derive(Clone, Copy, Debug)]
pub struct GroupRow {
    /// Its name in logs, reports and JSON.
    pub name: &'static str,
    /// The name of the transform in IANA's style.
    pub iana: &'static str,
    /// IANA's number of the transform, which is also the word of AIX_VPN.
    pub number: u16,
    /// Words in proposals of swanctl.conf and ipsec.conf.
    pub strongswan: &'static [&'static str],
    /// Further words in libreswan's ipsec.conf.
    pub libreswan: &'static [&'static str],
    /// The word behind `group` in iked.conf of OpenIKED.
    pub openiked: Option<&'static str>,
    /// True if RFC 8247 §2.4 advises against it or forbids it.
    pub weak: bool,
    /// True if no method is known by which a quantum computer would find its shared secret.
    pub quantum_safe: bool,
}

/// A group that is neither weak nor safe from quantum computers.
const fn group(
    number: u16,
    [name, iana]: [&'static str; 2],
    strongswan: &'static [&'static str],
    libreswan: &'static [&'static str],
    openiked: Option<&'static str>,
) -> GroupRow {
    let (weak, quantum_safe) = (false, false);
    GroupRow { name, iana, number, strongswan, libreswan, openiked, weak, quantum_safe }
}

const fn weak(row: GroupRow) -> GroupRow {
    GroupRow { weak: true, ..row }
}

const fn quantum_safe(row: GroupRow) -> GroupRow {
    GroupRow { quantum_safe: true, ..row }
}

rows! {
    Group, GroupRow {
        Modp1024 => weak(group(
            2, ["MODP-1024", "MODP_1024"], &["modp1024", "dh2"], &[], Some("modp1024"),
        )),
        Modp1536 => weak(group(
            5, ["MODP-1536", "MODP_1536"], &["modp1536", "dh5"], &[], Some("modp1536"),
        )),
        Modp2048 => group(
            14, ["MODP-2048", "MODP_2048"], &["modp2048", "dh14"], &[], Some("modp2048"),
        ),
        Modp3072 => group(
            15, ["MODP-3072", "MODP_3072"], &["modp3072", "dh15"], &[], Some("modp3072"),
        ),
        Modp4096 => group(
            16, ["MODP-4096", "MODP_4096"], &["modp4096", "dh16"], &[], Some("modp4096"),
        ),
        Ecp256 => group(
            19, ["ECP-256", "ECP_256"], &["ecp256", "dh19"], &["ecp_256"], Some("ecp256"),
        ),
        Ecp384 => group(
            20, ["ECP-384", "ECP_384"], &["ecp384", "dh20"], &["ecp_384"], Some("ecp384"),
        ),
        Ecp521 => group(
            21, ["ECP-521", "ECP_521"], &["ecp521", "dh21"], &["ecp_521"], Some("ecp521"),
        ),
        Modp2048Sub256 => weak(group(
            24, ["MODP-2048-256", "MODP_2048_256"], &["modp2048s256", "dh24"], &[], None,
        )),
        Curve25519 => group(
            31, ["CURVE25519", "CURVE25519"], &["curve25519", "x25519", "dh31"], &[],
            Some("curve25519"),
        ),
        MlKem512 => quantum_safe(group(
            35, ["ML-KEM-512", "ML_KEM_512"], &["mlkem512"], &["ml_kem_512"], None,
        )),
        MlKem768 => quantum_safe(group(
            36, ["ML-KEM-768", "ML_KEM_768"], &["mlkem768"], &["ml_kem_768"], None,
        )),
        MlKem1024 => quantum_safe(group(
            37, ["ML-KEM-1024", "ML_KEM_1024"], &["mlkem1024"], &["ml_kem_1024"], None,
        )),
    }
}
