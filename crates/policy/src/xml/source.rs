//! The text of a file: lines and columns of offsets, and the parts that may be shown.

use std::ops::Range;
use std::sync::Arc;

/// Characters of a quoted line before and after the range that it is quoted for.
const BEFORE: usize = 80;
const AFTER: usize = 100;

/// A file's text. Nothing of it is shown before the reader has recognised it as free of secrets.
pub(crate) struct Source<'t> {
    file_name: Arc<str>,
    text: &'t str,
    line_starts: Vec<usize>,
    /// The parts that may be shown: ascending, disjoint.
    visible: Vec<Range<usize>>,
    whole: bool,
}

/// Texts that are read as one. The offsets of each text begin behind those of the text before it.
#[derive(Default)]
pub(crate) struct Sources<'t> {
    /// Each with the offset at which it begins, ascending.
    texts: Vec<(usize, Source<'t>)>,
    extent: usize,
}

impl<'t> Sources<'t> {
    /// The offset at which the next text begins.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// Puts a text behind the others.
    pub fn push(&mut self, source: Source<'t>) {
        let begin = self.extent;
        // One more, so that the end of a text is not the beginning of the next one.
        self.extent += source.text.len() + 1;
        self.texts.push((begin, source));
    }

    /// Returns `true` if every tag of every text was understood.
    pub fn is_whole(&self) -> bool {
        self.texts.iter().all(|(_, source)| source.whole)
    }

    /// The text in which a range lies, and the range in that text; `None` if there is no text.
    pub fn part(&self, range: &Range<usize>) -> Option<(&Source<'t>, Range<usize>)> {
        let after = self.texts.partition_point(|(begin, _)| *begin <= range.start);
        let (begin, source) = self.texts.get(after.checked_sub(1)?)?;
        Some((source, range.start - begin..range.end - begin))
    }

    /// The name and the line of the place at which a range begins.
    pub fn place(&self, range: &Range<usize>) -> Option<(&Source<'t>, usize)> {
        let (source, range) = self.part(range)?;
        Some((source, source.locate(range.start).0))
    }
}

/// A line as it is shown beneath a message, with the range that is underlined.
pub(crate) struct Excerpt {
    pub text: String,
    /// Characters before the range.
    pub caret: usize,
    /// Characters of the range, at least one.
    pub width: usize,
}

impl<'t> Source<'t> {
    pub fn new(file_name: &str, text: &'t str) -> Self {
        // RFC 3629 §6: a signature, not content.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let line_starts =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { file_name: file_name.into(), text, line_starts, visible: Vec::new(), whole: true }
    }

    pub fn file_name(&self) -> &Arc<str> {
        &self.file_name
    }

    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Notes that a tag was not understood: an object that seems to be missing may stand in it.
    pub fn set_partial(&mut self) {
        self.whole = false;
    }

    /// Allows a part of the text to be shown; parts come in ascending order.
    pub fn show(&mut self, part: Range<usize>) {
        if !part.is_empty() && self.visible.last().is_none_or(|last| last.end <= part.start) {
            self.visible.push(part);
        }
    }

    /// Line and column, both from 1, the column in characters.
    pub fn locate(&self, offset: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts[line - 1];
        let before = self.text.get(start..offset).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    /// The line that holds the start of `range`, cut to a readable length, everything masked that was not shown.
    pub fn excerpt(&self, range: &Range<usize>) -> Excerpt {
        let line = self.line_starts.partition_point(|start| *start <= range.start);
        let line_start = self.line_starts[line - 1];
        let line_end = self.line_starts.get(line).map_or(self.text.len(), |next| next - 1);
        let head = self.text.get(line_start..range.start).unwrap_or_default();
        let tail = self.text.get(range.start..line_end).unwrap_or_default();
        let from = head
            .char_indices()
            .rev()
            .take(BEFORE)
            .last()
            .map_or(line_start, |(at, _)| line_start + at);
        let to = tail.char_indices().nth(AFTER).map_or(line_end, |(at, _)| range.start + at);

        let mut shown = String::new();
        let (mut length, mut caret, mut end) = (0, None, 0);
        if from > line_start {
            shown.push('…');
            length += 1;
        }
        // A masked run is one '…', however long, so that the length of a key does not show.
        let mut masking = false;
        for (at, character) in self.text[from..to].trim_end().char_indices() {
            let at = from + at;
            let visible = self.is_visible(at);
            let printed = match (visible, character) {
                (true, '\t') => Some(' '),
                (true, c) if c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric() => Some(c),
                (true, _) => Some('\u{fffd}'),
                (false, c) if c.is_ascii_whitespace() => (!masking).then_some(' '),
                (false, _) => (!masking).then_some('…'),
            };
            masking = !visible && (masking || !character.is_ascii_whitespace());
            if at >= range.start && caret.is_none() {
                caret = Some(if printed.is_none() { length - 1 } else { length });
            }
            if let Some(character) = printed {
                shown.push(character);
                length += 1;
            }
            if at < range.end {
                end = length;
            }
        }
        if to < line_end {
            shown.push('…');
        }
        let caret = caret.unwrap_or(length);
        Excerpt { text: shown, caret, width: end.saturating_sub(caret).max(1) }
    }

    fn is_visible(&self, offset: usize) -> bool {
        let after = self.visible.partition_point(|part| part.start <= offset);
        after > 0 && offset < self.visible[after - 1].end
    }
}

/// The offset at which a part of a text starts in it.
pub(crate) fn offset_in(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len())
}
