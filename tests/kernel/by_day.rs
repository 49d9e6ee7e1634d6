//! The scenarios that are played for each change. Of a matrix these are so many that each pair of its columns' values
//! that matters is among them; the whole matrix is played at night (`.ci/nightly`).

/// Words of the names of the scenarios of a group that are played for each change. `None`: all of them are.
pub fn chosen(group: &str) -> Option<&'static [&'static str]> {
    let words: &[&str] = match group {
        "strongSwan, matrix" => &[
            "ESP aes256gcm16 tunnel IPv4 native ESN, begun by vpnd",
            "ESP aes128-sha1 transport IPv4 in UDP no ESN, begun by strongSwan",
            "ESP chacha20poly1305 tunnel IPv6 in UDP no ESN, begun by vpnd",
            "AH sha256 transport IPv4 native ESN, begun by strongSwan",
        ],
        "strongSwan, kernel plane" => &[
            "ESP aes256gcm16 transport IPv4 native ESN, begun by vpnd",
            "ESP aes128gcm16 tunnel IPv4 in UDP no ESN, begun by strongSwan",
            "ESP aes128gmac tunnel IPv6 native ESN, begun by vpnd",
        ],
        "libreswan, matrix" => &[
            "aes_gcm256 tunnel IPv4 native ESN PSK, begun by vpnd",
            "aes_gcm128 transport IPv6 native no ESN PSK, begun by libreswan",
            "aes_gcm128 tunnel IPv4 in UDP no ESN RSA, begun by libreswan",
            "aes256-sha2_256 tunnel IPv4 native ESN ECDSA, begun by vpnd",
        ],
        "libreswan, scenes" => &[
            "a policy wider than the request, begun by vpnd",
            "two Child SAs under one IKE SA, begun by vpnd",
            "messages in fragments, begun by libreswan",
            "a key exchange that only libreswan wants, begun by libreswan",
            "rekeys by libreswan beside the kernel plane",
            "refusals in the words of libreswan",
            "libreswan is killed, begun by vpnd",
            "the initiator moves, begun by libreswan",
            "the responder moves, begun by vpnd",
        ],
        "OpenIKED" => &[
            "AES-CBC-256 with HMAC-SHA2-512, tunnel, begun by vpnd",
            "AES-CBC-192 with HMAC-SHA2-384, transport over IPv6, begun by vpnd",
            "RSA certificates, begun by OpenIKED",
            "refusals in the words of OpenIKED",
        ],
        "manual keys" => &[
            "ESP in tunnel mode over IPv4",
            "ESP in UDP in transport mode over IPv6",
            "AH in transport mode over IPv4",
            "AH in tunnel mode over IPv6",
        ],
        "manual keys, kernel plane" => &[
            "ESP in transport mode over IPv6",
            "ESP in UDP in tunnel mode over IPv4",
            "AH in tunnel mode over IPv4",
        ],
        "cleartext" => &[
            "a stop that is to block",
            "the daemon ends and starts",
            "the guard is held",
            "for what it looks like",
            "nftables refuses every change",
            "the policy changes",
        ],
        "cleartext over IPv6" => &["the daemon ends and starts", "the policy changes"],
        "crowd" => &["auto"],
        "daemon with a card" => &[
            "the card does the cryptography",
            "SAs and policies are flushed under traffic",
            "a full card, and tunnels that are rekeyed under traffic",
            "the card that does everything is taken out under traffic",
        ],
        "example" => &[
            "printed commands make the same state elsewhere",
            "TCP flows both ways by SAs that cards have",
            "SAs keyed by hand come and go",
            "the remains of a crash",
        ],
        "cleartext of 500 tunnels" | "own clock, vpnd" | "own clock, strongSwan" => &[],
        "why" => &["forwarding is off", "an MTU black hole", "the peer is killed"],
        _ => return None,
    };
    Some(words)
}
