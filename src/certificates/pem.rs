//! Sections of a PEM file (RFC 7468).
//!
//! Written here rather than taken from a crate because those at hand leave copies of a private key in freed memory; the
//! decoding itself is `base64ct`'s, whose time does not depend on what it decodes.

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// The part of a file between a BEGIN and its END.
#[derive(Debug)]
pub(super) struct Section<'a> {
    /// As in `CERTIFICATE`.
    pub label: &'a str,
    /// Line of the file where it begins, from 1.
    pub line: usize,
    /// The decoded base64.
    pub octets: Zeroizing<Vec<u8>>,
}

/// A section cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PemError {
    /// The file ends first.
    #[error("line {line}: the {label} that begins here never ends; the file is cut short")]
    Endless { line: usize, label: String },
    /// It ends as something else.
    #[error("line {line}: the {label} that begins here ends as a {end}; the file is damaged")]
    Mismatch { line: usize, label: String, end: String },
    /// A key that is encrypted in the way of old OpenSSL.
    #[error("line {line}: the {label} is encrypted")]
    Encrypted { line: usize, label: String },
    /// The base64 is damaged.
    #[error("line {line}: the {label} that begins here is not valid base64; the file is damaged")]
    Base64 { line: usize, label: String },
}

/// Returns `true` if a file is PEM rather than DER. Every DER file that is read here begins with the octet of a
/// SEQUENCE.
pub(super) fn is_pem(octets: &[u8]) -> bool {
    octets.windows(BEGIN.len()).any(|window| window == BEGIN.as_bytes())
}

/// The first revocation list of a PEM file, in DER: some servers have no other.
pub(crate) fn crl(octets: &[u8]) -> Option<Vec<u8>> {
    if !is_pem(octets) {
        return None;
    }
    let sections = sections(std::str::from_utf8(octets).ok()?).ok()?;
    let list = sections.into_iter().find(|section| section.label == "X509 CRL")?;
    Some(list.octets.to_vec())
}

/// All sections of a text, whatever stands between them.
pub(super) fn sections(text: &str) -> Result<Vec<Section<'_>>, PemError> {
    let mut sections = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let Some(label) = boundary(first, BEGIN) else { continue };
        let line = index + 1;
        let mut base64 = Zeroizing::new(String::with_capacity(text.len()));
        loop {
            let Some((_, next)) = lines.next() else {
                return Err(PemError::Endless { line, label: label.to_owned() });
            };
            if let Some(end) = boundary(next, END) {
                if end != label {
                    let (label, end) = (label.to_owned(), end.to_owned());
                    return Err(PemError::Mismatch { line, label, end });
                }
                break;
            }
            // RFC 1421 §4.6: headers, which no certificate has and no key that can be read without a password.
            if next.contains(':') {
                return Err(PemError::Encrypted { line, label: label.to_owned() });
            }
            base64.extend(next.split_ascii_whitespace());
        }
        let mut octets = Zeroizing::new(vec![0; base64.len() / 4 * 3]);
        let length = Base64::decode(base64.as_bytes(), &mut octets)
            .map_err(|_| PemError::Base64 { line, label: label.to_owned() })?
            .len();
        octets.truncate(length);
        sections.push(Section { label, line, octets });
    }
    Ok(sections)
}

fn boundary<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    line.trim_end().strip_prefix(prefix)?.strip_suffix(DASHES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_among_other_text_and_line_ends() {
        let text = "Certificate:\r\n  Data\r\n-----BEGIN CERTIFICATE-----\r\nAQID\r\nBA==\r\n-----END CERTIFICATE-----\r\n\
                    \n-----BEGIN PRIVATE KEY-----\n  BQ==  \n-----END PRIVATE KEY-----";
        let sections = sections(text).expect("both are whole");
        let seen: Vec<_> =
            sections.iter().map(|s| (s.label, s.line, s.octets.as_slice())).collect();
        assert_eq!(seen, [("CERTIFICATE", 3, &[1, 2, 3, 4][..]), ("PRIVATE KEY", 8, &[5][..])]);
    }

    #[test]
    fn a_damaged_section_is_named_with_its_line() {
        let error = |text: &str| sections(text).expect_err("damaged");
        let label = || "X".to_owned();
        assert_eq!(
            error("\n-----BEGIN X-----\nAQID\n"),
            PemError::Endless { line: 2, label: label() }
        );
        assert_eq!(
            error("-----BEGIN X-----\nAQID\n-----END Y-----\n"),
            PemError::Mismatch { line: 1, label: label(), end: "Y".into() }
        );
        assert_eq!(
            error("-----BEGIN X-----\nProc-Type: 4,ENCRYPTED\n\nAQID\n-----END X-----\n"),
            PemError::Encrypted { line: 1, label: label() }
        );
        for damaged in ["A", "AQI", "AQ=D", "A*ID"] {
            let text = format!("-----BEGIN X-----\n{damaged}\n-----END X-----\n");
            assert_eq!(error(&text), PemError::Base64 { line: 1, label: label() }, "{damaged}");
        }
    }
}
