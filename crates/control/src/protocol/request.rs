//! Parsing of requests by the daemon.

use super::MAX_REQUEST;
use super::command::{Command, Request, VERSION};
use super::refusal::{Refusal, RefusalCode};
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use std::fmt;

/// Reads a request; the refusal of a bad one names what is wrong: its length, its form, its version or its command.
///
/// [`MAX_REQUEST`] octets without a newline are the beginning of a longer request.
///
/// # Errors
/// [`RefusalCode::BadRequest`], [`RefusalCode::UnsupportedVersion`] or [`RefusalCode::UnknownCommand`].
pub fn parse(request: &[u8]) -> Result<Command, Refusal> {
    #[derive(Deserialize)]
    struct Frame {
        version: u32,
        command: String,
    }
    if request.len() >= MAX_REQUEST && !request.ends_with(b"\n") {
        let message = format!("a request has at most {MAX_REQUEST} octets");
        return Err(Refusal::new(RefusalCode::BadRequest, message));
    }
    let frame: Frame = serde_json::from_slice(request).map_err(bad_request)?;
    if frame.version != VERSION {
        return Err(Refusal::new(
            RefusalCode::UnsupportedVersion,
            format!(
                "this vpnd speaks version {VERSION} of the control protocol, not {}; use the vpnctl that came with it",
                frame.version
            ),
        ));
    }
    let names = command_names();
    if !names.contains(&frame.command.as_str()) {
        return Err(Refusal::new(
            RefusalCode::UnknownCommand,
            format!("no command {:?}; there are {}", frame.command, names.join(", ")),
        ));
    }
    let request: Request = serde_json::from_slice(request).map_err(bad_request)?;
    Ok(request.command)
}

fn bad_request(error: serde_json::Error) -> Refusal {
    Refusal::new(RefusalCode::BadRequest, error.to_string())
}

/// Every value of the field `command`, in the order of [`Command`].
///
/// Serde derives these names from the enum and gives them to a caller that asks for a variant that does not exist.
fn command_names() -> &'static [&'static str] {
    let nameless = std::iter::once(("command", ""));
    match Command::deserialize(MapDeserializer::<_, Names>::new(nameless)) {
        Err(Names(names)) => names,
        Ok(_) => &[],
    }
}

/// A deserializer's error that keeps only the variants that would have been understood.
#[derive(Debug)]
struct Names(&'static [&'static str]);

impl serde::de::Error for Names {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self(expected)
    }
}

impl std::error::Error for Names {}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_too_long_is_refused_by_its_length() {
        let request = vec![b' '; MAX_REQUEST];
        let refusal = parse(&request).expect_err("it goes on");
        assert_eq!(refusal.code, RefusalCode::BadRequest);
        assert!(refusal.message.contains("at most 16842752 octets"), "{refusal}");
        // A shorter one without a newline ends with the connection.
        let request = format!("{{\"version\":{VERSION},\"command\":\"filter\"}}");
        assert!(parse(request.as_bytes()).is_ok());
    }

    #[test]
    fn the_names_of_commands_are_those_that_are_understood() {
        let names = command_names();
        assert!(names.contains(&"activate") && names.contains(&"stop"), "{names:?}");
        for name in names {
            let request = format!("{{\"version\":{VERSION},\"command\":\"{name}\"}}");
            // A command with required fields is refused for want of these, and not as unknown.
            if let Err(refusal) = parse(request.as_bytes()) {
                assert_eq!(refusal.code, RefusalCode::BadRequest, "{refusal}");
            }
        }
    }

    #[test]
    fn the_document_has_every_command() {
        let document = include_str!("../../../../docs/reference/control.md");
        let (_, table) = document.split_once("| command | fields | result |").expect("the table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let mut listed: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        let mut understood = command_names().to_vec();
        listed.sort_unstable();
        understood.sort_unstable();
        assert_eq!(listed, understood, "left: docs/reference/control.md");
    }
}
