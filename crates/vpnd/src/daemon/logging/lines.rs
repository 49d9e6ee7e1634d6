//! Lines of the log for people: text of a peer or a client begins none of them.

use std::io::{self, Write};
use tracing_subscriber::fmt::MakeWriter;

/// Stands before each line of an event but the first.
const MARK: &[u8] = b"    | ";
const ESCAPE: u8 = 0x1b;

/// Writes events so that no line looks like an event of its own, and no other control character gets through. The
/// escape sequences of colours stay; the formatter has replaced those of the text.
pub struct Lines<W>(pub W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Lines<W> {
    type Writer = Lines<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Lines(self.0.make_writer())
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        Lines(self.0.make_writer_for(meta))
    }
}

impl<W: Write> Write for Lines<W> {
    /// Takes a whole event, which the formatter writes at once.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(&marked(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn marked(event: &[u8]) -> Vec<u8> {
    let (text, end) = match event.strip_suffix(b"\n") {
        Some(text) => (text, &b"\n"[..]),
        None => (event, &b""[..]),
    };
    let mut marked = Vec::with_capacity(event.len());
    for &octet in text {
        match octet {
            b'\n' => {
                marked.push(b'\n');
                marked.extend(MARK);
            }
            b'\t' | ESCAPE => marked.push(octet),
            _ if octet.is_ascii_control() => marked.extend(octet.escape_ascii()),
            _ => marked.push(octet),
        }
    }
    marked.extend(end);
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_begins_a_line() {
        for (event, written) in [
            ("WARN one\n", "WARN one\n"),
            ("WARN one\nWARN two\n", "WARN one\n    | WARN two\n"),
            ("a\r\x08b\tc\u{e9}\n\n", "a\\r\\x08b\tc\u{e9}\n    | \n"),
            ("\u{1b}[33mWARN\u{1b}[0m a\n", "\u{1b}[33mWARN\u{1b}[0m a\n"),
        ] {
            assert_eq!(marked(event.as_bytes()), written.as_bytes(), "{event:?}");
        }
    }
}
