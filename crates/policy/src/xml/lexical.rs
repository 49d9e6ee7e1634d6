//! The characters and names of XML.

/// Octets of the longest name of an element or attribute.
const MAX_NAME: usize = 128;

pub(crate) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

pub(crate) fn is_xml_character(c: char) -> bool {
    is_blank(c) || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'))
}

pub(crate) fn is_name_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':')
}

pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(is_name_character)
}
