//! Encodings in DER that no library writes.

/// A DER encoding of fewer than 65536 octets.
pub fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).expect("short").to_be_bytes();
    let length = match length {
        [0, short @ 0..=0x7f] => vec![short],
        [0, long] => vec![0x81, long],
        [high, low] => vec![0x82, high, low],
    };
    [&[tag], length.as_slice(), &content].concat()
}

/// The encodings within an encoding.
pub fn parts(der: &[u8]) -> Vec<&[u8]> {
    let (mut rest, mut parts) = (content(der), Vec::new());
    while !rest.is_empty() {
        let (first, others) = rest.split_at(header(rest) + size(rest));
        parts.push(first);
        rest = others;
    }
    parts
}

/// The content of an encoding.
pub fn content(der: &[u8]) -> &[u8] {
    &der[header(der)..header(der) + size(der)]
}

/// Octets of the tag and the length.
fn header(der: &[u8]) -> usize {
    2 + if der[1] < 0x80 { 0 } else { usize::from(der[1] & 0x7f) }
}

fn size(der: &[u8]) -> usize {
    match der[1] {
        short @ 0..=0x7f => usize::from(short),
        _ => der[2..header(der)].iter().fold(0, |size, octet| size << 8 | usize::from(*octet)),
    }
}
