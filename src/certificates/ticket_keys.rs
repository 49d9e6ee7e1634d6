//! Files of ticket keys (RFC 5723 §9.5): one key in each line, the newest first.

use ike::ticket::TicketKey;
use policy::Secret;

/// Keys of one file: one that seals, and those before it.
const MOST: usize = 16;

/// The keys of a file. Empty lines, and those that begin with #, say nothing.
pub(super) fn keys(octets: &[u8]) -> Result<Vec<TicketKey>, String> {
    let lines = octets.split(|octet| *octet == b'\n').zip(1..);
    let lines = lines.map(|(line, number)| (line.trim_ascii(), number));
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with(b"#"));
    let mut keys: Vec<TicketKey> = Vec::new();
    for (line, number) in lines {
        let digits = std::str::from_utf8(line).ok().and_then(Secret::from_hex);
        let key = digits.and_then(TicketKey::new).ok_or_else(|| {
            format!("line {number} is no ticket key, which has 64 hexadecimal digits; make one with: openssl rand -hex 32")
        })?;
        if keys.contains(&key) {
            return Err(format!("line {number} has the key of a line before; remove it"));
        }
        keys.push(key);
    }
    match keys.len() {
        0 => Err("the file has no ticket key; make one with: openssl rand -hex 32".to_owned()),
        1..=MOST => Ok(keys),
        more => Err(format!(
            "the file has {more} ticket keys, more than {MOST}; keep the first, and those that sealed in the last 8 hours"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(octet: &str) -> String {
        octet.repeat(32)
    }

    #[test]
    fn a_file_has_a_key_in_each_line_the_newest_first() {
        let text = format!("# rotated\n{}\r\n\n  {}\n", digits("a1"), digits("B2"));
        let read = keys(text.as_bytes()).expect("two keys");
        let expected = ["a1", "b2"].map(|octet| {
            TicketKey::new(Secret::from_hex(&digits(octet)).expect("digits")).expect("a key")
        });
        assert_eq!(read, expected);
        let many = (0..17).map(|n| format!("{n:02x}").repeat(32) + "\n").collect::<String>();
        for (wrong, why) in [
            ("", "no ticket key"),
            ("# none\n", "no ticket key"),
            ("\nab\n", "line 2 is no ticket key"),
            (&digits("zz"), "line 1 is no ticket key"),
            (&format!("{0}\n{0}\n", digits("a1")), "line 2 has the key of a line before"),
            (&many, "17 ticket keys, more than 16"),
        ] {
            let refused = keys(wrong.as_bytes()).expect_err(wrong);
            assert!(refused.contains(why), "{wrong:?}: {refused}");
        }
    }
}
