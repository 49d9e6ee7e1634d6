//! Checks before a measurement: the directory for reports, and requirements without which parts of a report are
//! missing.

use super::lab::{Effort, Lab};
use super::{handshakes, null_vs_gcm, offload};
use nix::sys::statvfs::statvfs;
use std::fs;
use std::path::Path;

/// The space that all reports, pictures and figures together need at most, octets.
const ROOM: u64 = 32 << 20;
/// The mount point of the experiments' own file system.
const PRIVATE: &str = "/run";

/// The command that builds programs with DES and 3DES.
const LEGACY: &str = "cargo build --release -p vpn-daemon -p vpn-lab --features legacy";

/// Makes the directory for reports.
///
/// # Errors
/// Where reports could not be written there, or would be gone in the end.
pub(super) fn place(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    let named = |why: String| format!("{why}; name another directory with --output");
    fs::create_dir_all(directory).map_err(|e| named(format!("cannot make {shown}: {e}")))?;
    let whole = directory.canonicalize().map_err(|e| named(format!("{shown}: {e}")))?;
    if whole.starts_with(PRIVATE) {
        // Unless something was there before.
        let _ = fs::remove_dir(&whole);
        return Err(named(format!(
            "{shown} is in {PRIVATE}, which experiments have to themselves"
        )));
    }
    let probe = whole.join(format!(".vpnctl-experiment-{}", std::process::id()));
    fs::write(&probe, "").map_err(|e| named(format!("cannot write to {shown}: {e}")))?;
    // Nothing is in it.
    let _ = fs::remove_file(&probe);
    let free = statvfs(&whole).map_err(|errno| named(format!("{shown}: {errno}")))?;
    let free = free.blocks_available() as u64 * free.fragment_size() as u64;
    if free < ROOM {
        return Err(named(format!(
            "{shown} has {} MiB of room, and reports want {} MiB",
            free >> 20,
            ROOM >> 20
        )));
    }
    Ok(())
}

/// A note about ciphers that only some builds have.
fn without_legacy(names: &[&str], has_legacy: bool) -> Option<String> {
    let of_ciphers: Vec<&str> =
        ["in-core", "multicore"].into_iter().filter(|name| names.contains(name)).collect();
    (!has_legacy && !of_ciphers.is_empty()).then(|| {
        format!(
            "DES and 3DES are left out ({}), because this build does not have them; in a checkout `{LEGACY}` makes one",
            of_ciphers.join(", ")
        )
    })
}

/// Notes about parts that will be missing in the reports of these experiments, each with a cure.
pub(super) fn notes(lab: &Lab, names: &[&str]) -> Vec<String> {
    let mut notes = Vec::new();
    if !lab.machine.optimised {
        notes.push(
            "this is a build without optimisation, whose figures say nothing; `cargo build --release` makes one".to_owned(),
        );
    }
    let cores = lab.machine.cores as f64;
    if lab.effort != Effort::Rehearsal && lab.machine.load > cores / 2.0 {
        notes.push(format!(
            "the machine is busy with other things (a load of {:.1} on {cores} cores), which will be measured, too",
            lab.machine.load
        ));
    }
    notes.extend(without_legacy(names, cfg!(feature = "legacy")));
    if names.contains(&"handshakes") && !handshakes::has_token() {
        notes.push(
            "handshakes leaves out keys in a token, because SoftHSM is not installed; Debian has it as softhsm2"
                .to_owned(),
        );
    }
    if names.contains(&"null-vs-gcm") && null_vs_gcm::program(lab).is_none() {
        notes.push(format!(
            "null-vs-gcm leaves out the bare NULL cipher, because no vpnd was built with it; in a checkout `{}` makes one",
            null_vs_gcm::BUILD
        ));
    }
    let with_guest = names.contains(&"offload") && lab.effort != Effort::Rehearsal;
    notes.extend(offload::lacking().filter(|_| with_guest));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphers_that_this_build_lacks_are_named() {
        let note = without_legacy(&["in-core", "offload", "multicore"], false).expect("a note");
        assert!(note.starts_with("DES and 3DES are left out (in-core, multicore)"), "{note}");
        assert!(note.contains(LEGACY), "{note}");
        assert_eq!(without_legacy(&["offload"], false), None);
        assert_eq!(without_legacy(&["in-core"], true), None);
    }

    #[test]
    fn reports_need_a_place_that_stays() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let inside = directory.path().join("a/b");
        assert_eq!(place(&inside), Ok(()));
        assert_eq!(fs::read_dir(&inside).expect("it was made").count(), 0);
        let file = directory.path().join("file");
        fs::write(&file, "").expect("writable");
        for (wrong, why) in
            [(file.join("x").as_path(), "cannot make "), (Path::new("/run"), "is in /run")]
        {
            let said = place(wrong).expect_err("not there");
            assert!(said.contains(why) && said.ends_with("with --output"), "{said}");
        }
    }
}
