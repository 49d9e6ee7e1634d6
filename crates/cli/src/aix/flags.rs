//! Flags and operands.

use super::Trouble;

/// Flags and values as AIX's commands take them: letters may share a minus, a value follows its letter or is the next
/// word.
pub(super) struct Flags {
    pub given: Vec<(char, Option<String>)>,
    pub operands: Vec<String>,
}

/// A minus, and the dashes that typesetting makes of one.
const DASHES: [char; 4] = ['-', '\u{2013}', '\u{2014}', '\u{2212}'];

fn is_known(known: &str, letter: char) -> bool {
    letter != ':' && known.contains(letter)
}

impl Flags {
    /// Reads words; a letter that a colon follows in `known` takes a value.
    pub(super) fn read(
        words: &[String],
        known: &str,
        usage: &'static str,
    ) -> Result<Self, Trouble> {
        let mut flags = Self { given: Vec::new(), operands: Vec::new() };
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let letters = match word.strip_prefix(DASHES) {
                // A document has been pasted whose typesetting put a blank behind the minus. A minus that stands for
                // standard input is the last word.
                Some("") => match words.next_if(|next| next.starts_with(|c| is_known(known, c))) {
                    Some(next) => next,
                    None => "",
                },
                Some(letters) => letters,
                None => "",
            };
            if letters.is_empty() {
                flags.operands.push(word.clone());
                continue;
            }
            let mut rest = letters.chars();
            while let Some(letter) = rest.next() {
                let Some(at) = known.find(letter).filter(|_| is_known(known, letter)) else {
                    return Err(Trouble::usage(format!("there is no flag -{letter}"), usage));
                };
                if !known[at + letter.len_utf8()..].starts_with(':') {
                    flags.given.push((letter, None));
                    continue;
                }
                let value = match rest.as_str() {
                    "" => words.next().cloned(),
                    joined => Some(joined.to_owned()),
                };
                let Some(value) = value else {
                    return Err(Trouble::usage(format!("-{letter} needs a value"), usage));
                };
                flags.given.push((letter, Some(value)));
                break;
            }
        }
        Ok(flags)
    }

    pub(super) fn has(&self, letter: char) -> bool {
        self.given.iter().any(|(given, _)| *given == letter)
    }

    pub(super) fn value(&self, letter: char) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == letter)?.1.as_deref()
    }

    /// The letters of a set that are given.
    pub(super) fn of(&self, letters: &str) -> Vec<char> {
        letters.chars().filter(|letter| self.has(*letter)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_aix_reads_them() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = |line: &str| Flags::read(&words(line), "pFst:n:", "");
        let flags = read("-pF -t IKETunnel -nsite file").expect("known flags");
        assert!(flags.has('p') && flags.has('F') && !flags.has('s'));
        assert_eq!((flags.value('t'), flags.value('n')), (Some("IKETunnel"), Some("site")));
        assert_eq!(flags.operands, ["file"]);
        assert_eq!(read("-pt IKETunnel -").expect("known flags").operands, ["-"]);
        assert_eq!(read("-x").err().expect("unknown").message, "there is no flag -x");
        assert_eq!(read("-p -t").err().expect("unfinished").message, "-t needs a value");
        assert!(read("-:").is_err());
    }

    #[test]
    fn flags_are_read_as_documents_print_them() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in
            ["-c ipsec -t 4", "-c ipsec \u{2013}t 4", "-c ipsec \u{2013} t 4", "-c ipsec - t 4"]
        {
            let flags = Flags::read(&words(line), "c:t:", "").expect("known flags");
            assert_eq!((flags.value('c'), flags.value('t')), (Some("ipsec"), Some("4")), "{line}");
            assert_eq!(flags.operands, [""; 0], "{line}");
        }
        let flags = Flags::read(&words("-p - site.xml"), "pF", "").expect("known flags");
        assert_eq!(flags.operands, ["-", "site.xml"]);
    }
}
