//! Secrets in texts that may not have any.

/// Whether a text has the beginning of a secret, as it is, in capitals, or as a list of octets. The secret is a text,
/// or octets as hexadecimal digits.
pub fn shows(text: &str, secret: &str) -> bool {
    let octets = |from: &str| -> Vec<u8> {
        let pairs = (0..from.len() / 2).map(|n| u8::from_str_radix(&from[2 * n..2 * n + 2], 16));
        pairs.collect::<Result<_, _>>().unwrap_or_else(|_| from.as_bytes().to_vec())
    };
    let list = format!("{:?}", &octets(secret)[..8]);
    let list = list.trim_matches(['[', ']']);
    let begin = &secret[..16];
    [begin, &begin.to_uppercase(), list].iter().any(|form| text.contains(form))
}

#[cfg(test)]
mod tests {
    use super::shows;

    #[test]
    fn a_secret_is_seen_in_each_form() {
        let secret = "0123456789abcdef";
        for text in [
            "0x0123456789abcdef01",
            "0123456789ABCDEF",
            "octets [1, 35, 69, 103, 137, 171, 205, 239]",
        ] {
            assert!(shows(text, secret), "{text}");
        }
        assert!(!shows("0123456789abcde", secret));
        assert!(shows("[116, 104, 105, 115, 32, 105, 115, 32]", "this is a secret"));
    }
}
