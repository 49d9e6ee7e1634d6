//! Elements → text that reads back to the same.

use super::Node;
use super::schema::NAMESPACE;
use zeroize::Zeroizing;

/// Characters up to which a tag stands in one line.
const WIDTH: usize = 110;

/// Writes the text of an AIX_VPN file with these objects, in their order. It may hold keys, and is wiped when dropped.
pub fn write<'n>(objects: impl IntoIterator<Item = &'n Node>) -> Zeroizing<String> {
    let objects: Vec<&Node> = objects.into_iter().collect();
    // All at once: a buffer that grows leaves copies of the keys in freed memory.
    let size = objects.iter().map(|node| bound(node, 1)).sum::<usize>() + 256;
    let mut text = Zeroizing::new(String::with_capacity(size));
    text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<AIX_VPN Version=\"2.1\"");
    if objects.iter().any(|node| has_prefix(node)) {
        let (name, uri) = NAMESPACE;
        text.push_str(&format!(" {name}=\"{uri}\""));
    }
    text.push_str(">\n");
    for node in objects {
        element(&mut text, node, 1);
    }
    text.push_str("</AIX_VPN>\n");
    debug_assert!(text.len() <= size, "the buffer has grown");
    text
}

/// Returns `true` if an attribute is of this project's own vocabulary.
fn has_prefix(node: &Node) -> bool {
    node.attributes().any(|(name, _)| name.contains(':')) || node.children().iter().any(has_prefix)
}

/// Octets that an element takes at most.
fn bound(node: &Node, depth: usize) -> usize {
    let attributes: usize = node
        .attributes()
        .map(|(name, value)| {
            name.len() + value.chars().map(written_len).sum::<usize>() + 2 * depth + 10
        })
        .sum();
    let children: usize = node.children().iter().map(|child| bound(child, depth + 1)).sum();
    attributes + children + 2 * node.name().len() + 4 * depth + 10
}

fn element(text: &mut String, node: &Node, depth: usize) {
    indent(text, depth);
    text.push('<');
    text.push_str(node.name());
    let width: usize =
        node.attributes().map(|(name, value)| name.len() + value.chars().count() + 4).sum();
    let lines = 2 * depth + node.name().len() + width > WIDTH;
    for (name, value) in node.attributes() {
        if lines {
            text.push('\n');
            indent(text, depth + 2);
        } else {
            text.push(' ');
        }
        text.push_str(name);
        text.push_str("=\"");
        value.chars().for_each(|c| push(text, c));
        text.push('"');
    }
    if node.children().is_empty() {
        return text.push_str("/>\n");
    }
    text.push_str(">\n");
    for child in node.children() {
        element(text, child, depth + 1);
    }
    indent(text, depth);
    text.push_str("</");
    text.push_str(node.name());
    text.push_str(">\n");
}

fn indent(text: &mut String, depth: usize) {
    (0..depth).for_each(|_| text.push_str("  "));
}

/// The escape of a character that has a meaning of its own in a value, or would be read as a blank (XML 1.0 §3.3.3).
fn reference(c: char) -> Option<&'static str> {
    match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '"' => Some("&quot;"),
        '\t' => Some("&#9;"),
        '\n' => Some("&#10;"),
        '\r' => Some("&#13;"),
        _ => None,
    }
}

fn push(text: &mut String, c: char) {
    match reference(c) {
        Some(reference) => text.push_str(reference),
        None => text.push(c),
    }
}

fn written_len(c: char) -> usize {
    reference(c).map_or(c.len_utf8(), str::len)
}
