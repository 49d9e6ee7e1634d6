//! Text → elements. XML that is not well-formed is reported here.

mod tag;

use super::diagnostic::Span;
use super::element::{Attribute, Element};
use super::lexical::{is_blank, is_name, is_name_character, is_xml_character};
use super::report::Report;
use super::schema;
use super::source::Source;
use quick_xml::Reader;
use quick_xml::errors::{Error, SyntaxError};
use quick_xml::events::Event;
use quick_xml::events::attributes::Attributes;
use std::ops::Range;
use tag::{Damage, Written, decode};
use zeroize::Zeroizing;

/// Octets above which a file is refused; 20,000 phase 2 tunnels, each with traffic of its own, take less.
pub const MAX_FILE_LEN: usize = 8 << 20;

/// Elements inside each other, elements of a file, and attributes of an element, above which a file is refused.
const MAX_DEPTH: usize = 16;
const MAX_ELEMENTS: usize = 120_000;
const MAX_ATTRIBUTES: usize = 64;

/// Reads the root element; `None` after an error that leaves the rest of the text without meaning. Lesser errors are
/// reported, and the reading goes on.
pub(crate) fn parse<'t>(source: &mut Source<'t>, report: &mut Report) -> Option<Element<'t>> {
    let text = source.text();
    if text.len() > MAX_FILE_LEN {
        let message = format!("the file has {} octets, more than {}", text.len(), MAX_FILE_LEN);
        report.error((0..0).into(), message, "check that it is a policy, or split it");
        return None;
    }
    // XML 1.0 §2.2.
    if let Some(at) = text.find(|c: char| !is_xml_character(c)) {
        report.error((at..at + 1).into(), "control character in the file", "remove it");
        return None;
    }
    Builder { source, report, text, open: Vec::new(), root: None, elements: 0 }.run()
}

struct Builder<'s, 't> {
    source: &'s mut Source<'t>,
    report: &'s mut Report,
    text: &'t str,
    open: Vec<Element<'t>>,
    root: Option<Element<'t>>,
    elements: usize,
}

/// The file cannot be read further; the reason is reported.
struct Stop;

impl<'t> Builder<'_, 't> {
    fn run(mut self) -> Option<Element<'t>> {
        let mut reader = Reader::from_str(self.text);
        let config = reader.config_mut();
        // Unmatched ends are found here, where their spans are known.
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        config.allow_dangling_amp = true;
        loop {
            let start = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
            let event = reader.read_event();
            let end = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
            let range = start.min(self.text.len())..end.min(self.text.len());
            let step = match event {
                Ok(Event::Eof) => break,
                Ok(event) => self.handle(event, range),
                Err(error) => {
                    let at = usize::try_from(reader.error_position()).unwrap_or(0);
                    self.malformed(&error, at.min(self.text.len()));
                    Err(Stop)
                }
            };
            if step.is_err() || self.report.is_full() {
                return None;
            }
        }
        if let Some(element) = self.open.last() {
            let message = format!("{} is not closed before the end of the file", element.name);
            let help = format!("add </{}>", element.name);
            self.report.error(element.span(), message, help);
            return None;
        }
        if self.root.is_none() && !self.report.has_errors() {
            let help = "a policy is one <AIX_VPN Version=\"2.1\">…</AIX_VPN>";
            self.report.error((0..0).into(), "the file holds no XML element", help);
        }
        self.root
    }

    fn handle(&mut self, event: Event<'t>, range: Range<usize>) -> Result<(), Stop> {
        match event {
            Event::Start(_) => {
                let element = self.start(range, 1)?;
                self.open.push(element);
            }
            Event::Empty(_) => {
                let element = self.start(range, 2)?;
                self.close(element);
            }
            Event::End(_) => self.end(range)?,
            Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => self.characters(range),
            Event::Decl(_) => self.declaration(range)?,
            Event::DocType(_) => self.document_type(range)?,
            Event::Comment(_) | Event::PI(_) | Event::Eof => {}
        }
        Ok(())
    }

    /// Reads `<name …>`, whose end takes `closing` octets.
    fn start(&mut self, tag: Range<usize>, closing: usize) -> Result<Element<'t>, Stop> {
        let inside = tag.start + 1..tag.end.saturating_sub(closing).max(tag.start + 1);
        let content = self.text.get(inside.clone()).unwrap_or_default();
        let name_len = content.find(is_blank).unwrap_or(content.len());
        let name = &content[..name_len];
        let name_range = inside.start..inside.start + name_len;
        if !is_name(name) {
            let message = "a tag starts with '<' and the name of an element";
            self.report.error(
                (tag.start..tag.start + 1).into(),
                message,
                "write \"&lt;\" for a '<'",
            );
            return Err(Stop);
        }
        self.elements += 1;
        let mut element = Element {
            name,
            attributes: Vec::new(),
            children: Vec::new(),
            damaged: false,
            name_range: name_range.clone(),
        };
        if self.open.len() >= MAX_DEPTH || self.elements > MAX_ELEMENTS {
            self.source.show(tag.start..name_range.end);
            let message = if self.open.len() >= MAX_DEPTH {
                format!("elements are nested more than {MAX_DEPTH} deep")
            } else {
                format!("the file has more than {MAX_ELEMENTS} elements")
            };
            self.report.error(element.span(), message, "check that it is a policy");
            return Err(Stop);
        }
        if self.open.is_empty() && self.root.is_some() {
            let message = format!("{name} stands after the end of the policy");
            let help = match name {
                "AIX_VPN" => "a file is one policy: move what this holds into the first AIX_VPN",
                _ => "move it inside AIX_VPN",
            };
            self.report.error(element.span(), message, help);
        }

        // Messages mask the rest of the document: a value whose quotes are damaged could be a key.
        self.source.show(tag.start..name_range.end);
        self.attributes(&mut element, content, inside.start);
        if !element.damaged {
            self.source.show(inside.end..tag.end);
        }
        Ok(element)
    }

    /// Reads the attributes in `content`, which starts at `base`. Of what cannot be read, the element is left
    /// without.
    fn attributes(&mut self, element: &mut Element<'t>, content: &'t str, base: usize) {
        let mut end = element.name.len();
        for written in tag::split(content, element.name.len()) {
            let damage = match written {
                Ok(_) if element.attributes.len() >= MAX_ATTRIBUTES => {
                    let message = format!("more than {MAX_ATTRIBUTES} attributes");
                    Damage { at: end, message, help: String::new() }
                }
                // The rest would only be counted.
                Ok(_) if self.report.is_full() => {
                    element.damaged = true;
                    return;
                }
                Ok(written) => {
                    end = written.value_at + written.raw.len() + 1;
                    self.attribute(element, &written, base);
                    continue;
                }
                Err(damage) => damage,
            };
            if schema::kind(element.name).is_some_and(|kind| kind.name != "IKEPresharedKey") {
                // The words before the next mark are names, not values.
                let words = content.get(end..).unwrap_or_default();
                let shown = words.find(['=', '"', '\'', '<', '>']).unwrap_or(words.len());
                self.source.show(base + end..base + end + shown);
            }
            let at = (base + damage.at).min(base + content.len());
            let span = Span { element: Some(element.name.to_owned()), ..(at..at + 1).into() };
            self.report.error(span, damage.message, damage.help);
            self.source.set_partial();
            element.damaged = true;
            return;
        }
    }

    fn attribute(&mut self, element: &mut Element<'t>, written: &Written<'t>, base: usize) {
        let Written { name, name_at, raw, value_at } = *written;
        let secret = !schema::is_public(element.name, name, raw);
        let name_at = base + name_at;
        let value_range = base + value_at..base + value_at + raw.len();
        if secret {
            self.source.show(name_at..value_range.start);
            self.source.show(value_range.end..value_range.end + 1);
        } else {
            self.source.show(name_at..value_range.end + 1);
        }
        let (value, wrong) = match decode(raw) {
            Ok(value) => (value, None),
            Err(wrong) => (Zeroizing::default(), Some(wrong)),
        };
        let name_range = name_at..name_at + name.len();
        let attribute = Attribute { name, value, secret, name_range, value_range };
        if element.attribute(name).is_some() {
            let message = format!("{name} is given twice");
            self.report.error(attribute.name_span(element), message, "remove one of the two");
        } else if let Some((part, message)) = wrong {
            let mut span = Span { value: None, ..attribute.span(element) };
            if !secret {
                span.range = span.range.start + part.start..span.range.start + part.end;
            }
            let help = "only &lt; &gt; &amp; &quot; &apos; and &#number; are known; \
                        write \"&amp;\" for an '&'";
            self.report.error(span, message, help);
            element.damaged = true;
        } else {
            element.attributes.push(attribute);
        }
    }

    fn end(&mut self, range: Range<usize>) -> Result<(), Stop> {
        let content =
            self.text.get(range.start + 2..range.end.saturating_sub(1)).unwrap_or_default();
        let name = content.trim_end_matches(is_blank);
        let shown = is_name(name);
        if shown {
            self.source.show(range.clone());
        }
        let Some(element) = self.open.pop() else {
            let message = "an end tag without a start tag";
            self.report.error(range.into(), message, "remove it, or add the start tag");
            return Err(Stop);
        };
        if element.name != name {
            let (line, _) = self.source.locate(element.name_range.start);
            let message = if shown {
                format!("</{name}> where </{}> should close line {line}", element.name)
            } else {
                format!("no </{}> closes line {line}", element.name)
            };
            let help = format!(
                "write </{0}>, or end the tag in line {line} with \"/>\" if {0} holds nothing",
                element.name
            );
            self.report.error(range.into(), message, help);
            return Err(Stop);
        }
        self.close(element);
        Ok(())
    }

    fn close(&mut self, element: Element<'t>) {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None if self.root.is_none() => self.root = Some(element),
            // Reported at its start.
            None => {}
        }
    }

    /// Everything in a policy is in attributes; text is reported once for each element.
    fn characters(&mut self, range: Range<usize>) {
        let text = self.text.get(range.clone()).unwrap_or_default();
        let Some(at) = text.find(|c: char| !is_blank(c)) else { return };
        let at = range.start + at;
        let span = Span::from(at..range.end);
        match self.open.last_mut() {
            None => self.report.error(span, "text outside the policy", "remove it"),
            Some(element) if element.damaged => {}
            Some(element) => {
                element.damaged = true;
                let span = Span { element: Some(element.name.to_owned()), ..span };
                let message = format!("text inside {}", element.name);
                let help = if text.contains('=') {
                    format!("attributes go before the '>': <{} name=\"value\" …>", element.name)
                } else {
                    "remove it: all of a policy is in attributes".to_owned()
                };
                self.report.error(span, message, help);
            }
        }
    }

    fn declaration(&mut self, range: Range<usize>) -> Result<(), Stop> {
        let content = self.text.get(range.start..range.end).unwrap_or_default();
        let inside = content.trim_start_matches("<?").trim_end_matches("?>");
        let mut attributes = Attributes::new(inside, 3);
        for attribute in attributes.with_checks(false).flatten() {
            let value: &str = attribute.value.as_ref();
            let wrong = match attribute.key.as_ref() {
                "version" => !value.starts_with("1."),
                // The text is UTF-8 already; pure ASCII means the same in all of these.
                "encoding" => {
                    !value.eq_ignore_ascii_case("UTF-8") && !self.text.is_ascii()
                        || value.to_ascii_uppercase().starts_with("UTF-16")
                }
                _ => false,
            };
            if wrong {
                self.source.show(range.clone());
                let message = "only XML 1.0 in UTF-8 is read";
                let help = "convert the file to UTF-8 (iconv -t UTF-8) and change its first line";
                self.report.error(range.into(), message, help);
                return Err(Stop);
            }
        }
        self.source.show(range);
        Ok(())
    }

    fn document_type(&mut self, range: Range<usize>) -> Result<(), Stop> {
        let content = self.text.get(range.clone()).unwrap_or_default();
        let Some(at) = content.find('[') else {
            // An external one is ignored, never fetched.
            self.source.show(range);
            return Ok(());
        };
        self.source.show(range.start..range.start + at + 1);
        let message = "a DOCTYPE with definitions of its own is not allowed";
        let help =
            "remove the part in [ ]; entities are not expanded, so write their text in place";
        self.report.error((range.start..range.start + at).into(), message, help);
        Err(Stop)
    }

    fn malformed(&mut self, error: &Error, at: usize) {
        let (message, help) = match error {
            Error::Syntax(SyntaxError::UnclosedComment) => {
                ("a comment is not closed", "add \"-->\"")
            }
            Error::Syntax(SyntaxError::UnclosedCData) => ("a CDATA section is not closed", ""),
            Error::Syntax(SyntaxError::UnclosedDoctype) => ("the DOCTYPE is not closed", "add '>'"),
            Error::Syntax(SyntaxError::UnclosedPI | SyntaxError::UnclosedXmlDecl) => {
                ("a processing instruction is not closed", "add \"?>\"")
            }
            Error::Syntax(SyntaxError::InvalidBangMarkup) => {
                ("\"<!\" starts neither a comment nor a DOCTYPE", "a comment is <!-- … -->")
            }
            Error::Syntax(_) => (
                "a tag is not closed before the end of the file",
                "add the missing '>' or quotation mark",
            ),
            _ => ("the file is not well-formed XML here", "check it with xmllint --noout"),
        };
        // Only '<' and a name: the rest may be a key whose quotation mark is missing.
        let rest = self.text.get(at..).unwrap_or_default();
        let content = rest.strip_prefix('<').unwrap_or_default();
        let name_len = content.find(|c| !is_name_character(c)).unwrap_or(content.len());
        let shown = if content.is_empty() { 0 } else { 1 + name_len };
        self.source.show(at..at + shown);
        if shown > 1 && !content.contains('>') {
            let message = format!("the file ends inside of {}", &content[..name_len]);
            let help = "it seems to be cut off: fetch it again, or add what is missing";
            return self.report.error((at..at + shown).into(), message, help);
        }
        let damage = tag::split(content, name_len).find_map(Result::err);
        match damage.filter(|_| shown > 1 && matches!(error, Error::Syntax(_))) {
            Some(damage) => {
                let at = (at + 1 + damage.at).min(self.text.len());
                self.report.error((at..at + 1).into(), damage.message, damage.help);
            }
            None => self.report.error((at..at + shown.max(1)).into(), message, help),
        }
    }
}
