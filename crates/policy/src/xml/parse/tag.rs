//! The attributes of a tag: split, and their values decoded.

use crate::xml::lexical::{is_blank, is_name, is_xml_character};
use crate::xml::schema;
use crate::xml::source::offset_in;
use quick_xml::events::attributes::{AttrError, Attributes};
use std::borrow::Cow;
use std::ops::Range;
use zeroize::Zeroizing;

/// Typographic quotation marks, which word processors put in place of the straight ones.
const TYPOGRAPHIC: [char; 8] = ['“', '”', '„', '‘', '’', '«', '»', '″'];

/// An attribute as written; offsets are those in the tag.
#[derive(Clone, Copy)]
pub(super) struct Written<'t> {
    pub name: &'t str,
    pub name_at: usize,
    pub raw: &'t str,
    pub value_at: usize,
}

/// The reason why the rest of a tag cannot be read. Neither text holds a value.
pub(super) struct Damage {
    pub at: usize,
    pub message: String,
    pub help: String,
}

impl Damage {
    fn new(at: usize, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { at, message: message.into(), help: help.into() }
    }
}

/// Splits a tag's content, after its name, into attributes.
pub(super) fn split<'t>(
    content: &'t str,
    name_len: usize,
) -> impl Iterator<Item = Result<Written<'t>, Damage>> {
    let mut attributes = Attributes::new(content, name_len);
    // Repeated names are found where their places are known.
    attributes.with_checks(false);
    let mut end = name_len;
    let mut last: Option<Written<'t>> = None;
    attributes.map(move |attribute| {
        let written = attribute
            .map_err(|error| describe(&error, content))
            .and_then(|attribute| check(content, attribute, end))
            // The text after a missing mark is nonsense. A mark is missing where a value runs on into the next line.
            .map_err(|damage| match &last {
                Some(last) if last.raw.contains('\n') || last.raw.trim_end().ends_with('=') => {
                    Damage::new(
                        last.name_at,
                        format!("the value of {} is not closed in its line", last.name),
                        "add the closing quotation mark",
                    )
                }
                _ => damage,
            })?;
        end = written.value_at + written.raw.len() + 1;
        last = Some(written);
        Ok(written)
    })
}

/// Checks what the reader leaves to its caller; `end` is that of the attribute before.
fn check<'t>(
    content: &'t str,
    attribute: quick_xml::events::attributes::Attribute<'t>,
    end: usize,
) -> Result<Written<'t>, Damage> {
    let name = attribute.key.0;
    let name_at = offset_in(content, name);
    let Cow::Borrowed(raw) = attribute.value else {
        return Err(Damage::new(name_at, "the value cannot be read", ""));
    };
    if !is_name(name) {
        return Err(Damage::new(name_at, "this is not the name of an attribute", ""));
    }
    if name_at == end {
        let help = "put a blank after the quotation mark";
        return Err(Damage::new(name_at, "no blank before the attribute", help));
    }
    // Never right in a tag (XML 1.0 §3.1): the values that seem to follow may belong to other tags.
    if raw.contains('<') {
        let help = "close the quotation marks, or write \"&lt;\"";
        return Err(Damage::new(name_at, format!("'<' in the value of {name}"), help));
    }
    Ok(Written { name, name_at, raw, value_at: offset_in(content, raw) })
}

fn describe(error: &AttrError, content: &str) -> Damage {
    const FORM: &str = "write name=\"value\"";
    match *error {
        AttrError::ExpectedEq(after) => {
            // The position is that of what follows the name.
            let head = content.get(..after).unwrap_or_default().trim_end_matches(is_blank);
            let at = head.rfind(is_blank).map_or(0, |blank| blank + 1);
            match joined_name(&content[at..]) {
                Some(name) => {
                    let help = format!("did you mean {name}?");
                    Damage::new(at, "blank in the name of an attribute", help)
                }
                None => Damage::new(at, "'=' expected after the name of an attribute", FORM),
            }
        }
        AttrError::ExpectedValue(at) => Damage::new(at, "an attribute has no value", FORM),
        AttrError::UnquotedValue(at) if content[at..].starts_with(TYPOGRAPHIC) => Damage::new(
            at,
            "typographic quotation marks around a value",
            "write the plain mark \" on both sides: word processors and web pages change it",
        ),
        AttrError::UnquotedValue(at) => {
            Damage::new(at, "the value of an attribute is not in quotation marks", FORM)
        }
        AttrError::ExpectedQuote(at, _) => {
            Damage::new(at, "the quotation marks of a value are not closed", "add the closing mark")
        }
        AttrError::Duplicated(at, _) => {
            Damage::new(at, "an attribute is given twice", "remove one")
        }
    }
}

/// The attribute's name that two words with a blank between make: IBM's documentation prints `IKE ProtectionName`.
fn joined_name(words: &str) -> Option<String> {
    let mut words = words.split(|c| is_blank(c) || c == '=');
    let name = format!("{}_{}", words.next()?, words.next()?);
    schema::is_attribute(&name).then_some(name)
}

/// Resolves references and makes line breaks and tabs blanks (XML 1.0 §2.11, §3.3.3). The buffer is as long as it can
/// get, so that a key leaves no copy behind. The error is the part that is wrong, and why.
pub(super) fn decode(raw: &str) -> Result<Zeroizing<String>, (Range<usize>, &'static str)> {
    let mut value = Zeroizing::new(String::with_capacity(raw.len()));
    let mut rest = raw;
    while let Some(character) = rest.chars().next() {
        let at = raw.len() - rest.len();
        let mut length = character.len_utf8();
        match character {
            '&' => {
                let end = rest.find(';').ok_or((at..at + 1, "'&' starts no reference"))?;
                length = end + 1;
                value.push(referred(&rest[1..end]).map_err(|why| (at..at + length, why))?);
            }
            '\r' if rest.starts_with("\r\n") => {}
            '\t' | '\r' | '\n' => value.push(' '),
            character => value.push(character),
        }
        rest = &rest[length..];
    }
    Ok(value)
}

/// The character that a reference stands for; there are no entities beyond the five of XML.
fn referred(name: &str) -> Result<char, &'static str> {
    match name {
        "lt" => return Ok('<'),
        "gt" => return Ok('>'),
        "amp" => return Ok('&'),
        "quot" => return Ok('"'),
        "apos" => return Ok('\''),
        _ => {}
    }
    let number = name.strip_prefix('#').ok_or("reference to an unknown entity")?;
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    // from_str_radix would take a sign.
    Some(digits)
        .filter(|digits| digits.starts_with(|c: char| c.is_digit(radix)))
        .and_then(|digits| u32::from_str_radix(digits, radix).ok())
        .and_then(char::from_u32)
        .filter(|c| is_xml_character(*c))
        .ok_or("reference to no character")
}
