//! The vocabulary as a document type definition, for editors and other programs that check files before they are read.

use super::schema;
use std::fmt::Write;

/// A document type definition of what [`read`](super::read) takes. It is made from the reader's own vocabulary, and
/// says less than the reader knows: no order, no number, no values.
pub fn dtd() -> String {
    let mut text =
        String::from("<!-- AIX_VPN as this reader takes it. Elements may come in any order. -->\n");
    for kind in schema::kinds() {
        let content = match kind.children {
            [] => "EMPTY".to_owned(),
            children => format!("({})*", children.join(" | ")),
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "\n<!ELEMENT {} {content}>", kind.name);
        let required = kind.required.iter().map(|name| (name, "#REQUIRED"));
        let optional = kind.optional.iter().map(|name| (name, "#IMPLIED"));
        let attributes: Vec<String> = required
            .chain(optional)
            .map(|(name, use_)| format!("\n  {name} CDATA {use_}"))
            .collect();
        if !attributes.is_empty() {
            let _ = writeln!(text, "<!ATTLIST {}{}>", kind.name, attributes.concat());
        }
    }
    text
}
