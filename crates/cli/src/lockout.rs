//! Questions before commands that may shut out the operator who types them: with `deny`, ssh to this host is dropped as
//! well.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

/// The shortest and the longest time until a change is undone.
const TIMES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));

/// The answer to the question whether a change may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Make it.
    Yes,
    /// Leave everything as it is.
    No,
}

/// The warning about a default that drops these families of addresses.
fn warning(families: &[&str]) -> String {
    format!(
        "warning: from now on {} that no rule and no tunnel covers is dropped, ssh to this host as well, unless a rule of \
         vpnd.toml passes it",
        families.join(" and ")
    )
}

/// Asks on the terminal. Without a terminal nobody can answer: the warning is printed, and the answer is yes.
///
/// # Errors
/// Where the terminal cannot be read or written.
pub fn ask(program: &str, families: &[&str]) -> io::Result<Answer> {
    ask_about(&format!("{program}: {}", warning(families)))
}

/// As [`ask`], with a warning that names these changes of the filter.
///
/// # Errors
/// Where the terminal cannot be read or written.
pub fn ask_about_reload(changes: &[&str]) -> io::Result<Answer> {
    ask_about(&format!("vpnctl: {}", reload_warning(changes)))
}

fn ask_about(warning: &str) -> io::Result<Answer> {
    let (input, mut output) = (io::stdin(), io::stderr());
    ask_on(is_terminal(), &mut input.lock(), &mut output, warning)
}

/// Returns `true` if somebody can be asked.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The warning about a reload that changes the filter like this.
pub fn reload_warning(changes: &[&str]) -> String {
    let mut text =
        "warning: the reload changes the filter, and may drop ssh to this host as well".to_owned();
    for change in changes {
        text.push_str("\n  ");
        text.push_str(change);
    }
    text
}

fn ask_on(
    is_terminal: bool,
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    warning: &str,
) -> io::Result<Answer> {
    if !is_terminal {
        writeln!(output, "{warning}")?;
        return Ok(Answer::Yes);
    }
    write!(
        output,
        "{warning}\nTo have it undone unless you confirm it in time, use --for 60s.\nGo on? [y/N] "
    )?;
    output.flush()?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(Answer::Yes),
        _ => {
            writeln!(output, "nothing was changed")?;
            Ok(Answer::No)
        }
    }
}

/// Reads the time after which a change is undone, as in `60s`.
///
/// # Errors
/// Where it is no time, or too short or long; the text says so.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|_| format!("{text:?} is no time; write one such as 60s or 5m"))?;
    match (TIMES.0..=TIMES.1).contains(&time) {
        true => Ok(time),
        false => Err(format!("{text} is not between 1s and 24h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(is_terminal: bool, typed: &str) -> (Answer, String) {
        let mut output = Vec::new();
        let warning = format!("mkfilt: {}", warning(&["IPv4"]));
        let answer = ask_on(is_terminal, &mut typed.as_bytes(), &mut output, &warning);
        (answer.expect("memory"), String::from_utf8(output).expect("text"))
    }

    #[test]
    fn a_terminal_is_asked_and_only_yes_means_yes() {
        for (typed, expected) in [
            ("y\n", Answer::Yes),
            ("YES\n", Answer::Yes),
            ("\n", Answer::No),
            ("no\n", Answer::No),
            ("", Answer::No),
        ] {
            let (answer, output) = asked(true, typed);
            assert_eq!(answer, expected, "{typed:?}");
            assert!(output.contains("ssh") && output.contains("--for 60s"), "{output}");
            assert_eq!(output.contains("nothing was changed"), expected == Answer::No);
        }
    }

    #[test]
    fn a_script_is_warned_and_goes_on() {
        let (answer, output) = asked(false, "");
        assert_eq!(answer, Answer::Yes);
        assert!(output.starts_with("mkfilt: warning: from now on IPv4 that no rule"), "{output}");
    }

    #[test]
    fn times_have_bounds() {
        assert_eq!(time("60s"), Ok(Duration::from_secs(60)));
        for wrong in ["60", "0s", "25h", "soon"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
