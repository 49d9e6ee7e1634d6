//! What `vpnctl` leaves to `vpnd`: the program beside it, the arguments that it gets, and its end.
#![forbid(unsafe_code)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const SITE: &str = include_str!("../../../tests/policies/site/left.xml");

/// A directory with a `vpnctl` and a policy, on the file system of the programs, so that a link is enough.
fn alone() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("writable");
    let vpnctl = directory.path().join("vpnctl");
    fs::hard_link(env!("CARGO_BIN_EXE_vpnctl"), vpnctl).expect("one file system");
    fs::write(directory.path().join("site.xml"), SITE).expect("writable");
    fs::set_permissions(directory.path().join("site.xml"), Permissions::from_mode(0o600))
        .expect("ours");
    directory
}

const PUT: [&str; 5] = ["policy", "put", "site.xml", "--directory", "store"];

/// Runs the `vpnctl` in a directory, in which the search path has nothing else.
fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut vpnctl = Command::new(directory.join("vpnctl"));
    vpnctl.args(arguments);
    vpnctl.current_dir(directory).env("PATH", directory.join("none"));
    vpnctl.output().expect("vpnctl is built")
}

#[test]
fn a_vpnctl_without_vpnd_says_which_program_is_missing() {
    let directory = alone();
    let here = directory.path().canonicalize().expect("it is there");
    let wanted = format!(
        "vpnctl: this needs the program vpnd, which is neither in {} nor in the search path\n  \
         copy the vpnd that came with this program there, or install its package\n",
        here.display()
    );
    for arguments in [&PUT[..], &["policy", "check", "site.xml"], &["crypto", "info"]] {
        let output = run(directory.path(), arguments);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert_eq!(error, wanted, "{arguments:?}");
    }
    assert!(!directory.path().join("store").exists());
}

#[test]
fn vpnd_gets_the_arguments_as_they_were_typed() {
    let directory = alone();
    let vpnd = directory.path().join("vpnd");
    fs::write(&vpnd, "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n").expect("writable");
    fs::set_permissions(&vpnd, Permissions::from_mode(0o755)).expect("ours");
    for (typed, given) in [
        (&["sa", "mirror", "--with-keys", "--", "-x y"][..], "<sa><mirror><--with-keys><--><-x y>"),
        (&["--control=s", "support", "-o", "a b"], "<--control=s><support><-o><a b>"),
        (&["crypto", "bench", "--control", "s"], "<crypto><bench><--control><s>"),
    ] {
        let output = run(directory.path(), typed);
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("<vpnctl>{given}"));
        assert_eq!(output.status.code(), Some(7), "that of vpnd");
    }
    // What is wrong is told by vpnctl, which needs no vpnd for that.
    assert_eq!(run(directory.path(), &["sa", "mirror"]).status.code(), Some(2));
}

#[test]
fn a_vpnd_that_ends_without_an_answer_is_told() {
    let directory = alone();
    let vpnd = directory.path().join("vpnd");
    fs::write(&vpnd, "#!/bin/sh\necho \"$@\" >&2\nexit 3\n").expect("writable");
    fs::set_permissions(&vpnd, Permissions::from_mode(0o755)).expect("ours");
    let output = run(directory.path(), &PUT);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "3 would say that no daemon answers: {error}");
    assert!(error.contains("offline --directory=store\n"), "{error}");
    let told = error.lines().find(|line| line.starts_with("vpnctl: ")).unwrap_or_default();
    assert!(told.contains("/vpnd ended without an answer: "), "{error}");
    assert!(error.ends_with("\n  use the vpnd that came with this program\n"), "{error}");
}

#[test]
fn a_vpnd_that_others_could_have_changed_is_not_run() {
    let directory = alone();
    let vpnd = directory.path().join("vpnd");
    fs::write(&vpnd, "#!/bin/sh\necho run\n").expect("writable");
    fs::set_permissions(&vpnd, Permissions::from_mode(0o757)).expect("ours");
    for arguments in [&PUT[..], &["policy", "check", "site.xml"]] {
        let output = run(directory.path(), arguments);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), output.stdout), (Some(1), Vec::new()), "{error}");
        assert!(error.starts_with("vpnctl: vpnctl does not run the vpnd beside it: "), "{error}");
        assert!(error.contains("chmod"), "it has a cure: {error}");
    }
}

#[test]
fn a_file_of_the_working_directory_is_not_the_vpnd_of_the_search_path() {
    let directory = alone();
    let [here, path] = ["here", "path"].map(|name| directory.path().join(name));
    for (place, mode) in [(&here, 0o757), (&path, 0o755)] {
        fs::create_dir(place).expect("writable");
        fs::write(place.join("vpnd"), "#!/bin/sh\necho run\n").expect("writable");
        fs::set_permissions(place.join("vpnd"), Permissions::from_mode(mode)).expect("ours");
    }
    let mut vpnctl = Command::new(directory.path().join("vpnctl"));
    vpnctl.args(["crypto", "info"]).current_dir(&here).env("PATH", &path);
    let output = vpnctl.output().expect("vpnctl is built");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "run\n", "{output:?}");
}
