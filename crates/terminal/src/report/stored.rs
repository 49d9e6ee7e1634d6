//! The result of a change of the policy store.

use super::reload::changes;
use super::{Colour, plain};
use control::protocol::{ObjectChange, Stored};
use std::fmt::Write;

/// The changes, or those that a real run would make: objects first, then tunnels.
pub fn stored(stored: &Stored, colour: Colour) -> String {
    let counts = ["added", "replaced", "deleted", "unchanged"].map(|effect| {
        let count = stored.objects.iter().filter(|object| object.effect == effect).count();
        (count, if effect == "added" { "new" } else { effect })
    });
    let mut parts: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let others = match stored.others {
        0 => None,
        1 => Some("1 other object unchanged".to_owned()),
        others => Some(format!("{others} other objects unchanged")),
    };
    // One clause for the objects of the command, and one for the others.
    parts = [(!parts.is_empty()).then(|| parts.join(", ")), others].into_iter().flatten().collect();
    let nothing = stored.objects.iter().all(|object| object.effect == "unchanged");
    let directory = plain(&stored.directory);
    let head = match (stored.dry_run, nothing) {
        (true, true) => format!("the policy store {directory} would not change"),
        (true, false) => format!("the policy store {directory} would change"),
        (false, true) => format!("the policy store {directory} has not changed"),
        (false, false) => format!("the policy store {directory} has changed"),
    };
    let mut text = match parts.as_slice() {
        [] => format!("{head}: there was nothing\n"),
        parts => format!("{head}: {}\n", parts.join("; ")),
    };
    for object in stored.objects.iter().filter(|object| object.effect != "unchanged") {
        describe(&mut text, object, colour);
    }
    // Writing to a String cannot fail, here and below.
    let _ = match &stored.reloaded {
        None if stored.dry_run => Ok(()),
        None => writeln!(text, "no vpnd is running from it: the next start puts it in force"),
        Some(reloaded) => {
            let all = reloaded.changes.iter();
            let head = match (stored.dry_run, all.clone().all(|c| c.effect == "untouched")) {
                (true, true) => "no tunnel would change",
                (true, false) => "tunnels would change",
                (false, true) => "no tunnel has changed",
                (false, false) => "tunnels have changed",
            };
            writeln!(text, "{head}\n{}", changes(&reloaded.changes, colour).trim_end_matches('\n'))
        }
    };
    text
}

fn describe(text: &mut String, object: &ObjectChange, colour: Colour) {
    let name = format!("{} {}", object.kind, plain(&object.name));
    let line = match object.effect.as_str() {
        "added" => colour.good(&format!("+ {name}")),
        "deleted" => colour.bad(&format!("- {name}")),
        _ => colour.notice(&format!("~ {name}")),
    };
    let _ = writeln!(text, "  {line}");
    for difference in &object.differences {
        let _ = writeln!(text, "      {}", plain(difference));
    }
}
