//! `vpnd install` with the programs as they are built.

use libtest_mimic::Trial;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Need, output, test};

pub fn trials() -> Vec<Trial> {
    vec![
        test("an installed vpnd works, and is removed again", &[], installed),
        test("systemd accepts the installed units", &[Need::Program("systemd-analyze")], units),
    ]
}

fn vpnd(arguments: &[&str], root: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vpnd"));
    command.args(arguments).arg("--root").arg(root);
    output(command)
}

/// The files below a directory, as paths from there.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).expect("readable").flatten();
        for path in entries.map(|entry| entry.path()) {
            match path.is_dir() {
                true => directories.push(path),
                false => {
                    let path = path.strip_prefix(root).expect("it is in it");
                    found.push(path.display().to_string());
                }
            }
        }
    }
    found.sort();
    found
}

fn installed() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path();
    assert!(vpnd(&["install", "--dry-run"], root).contains("nothing is changed"));
    assert_eq!(files(root), Vec::<String>::new());

    let told = vpnd(&["install"], root);
    let found = files(root);
    for file in [
        "etc/vpnd/vpnd.toml",
        "usr/local/bin/vpnctl",
        "usr/local/bin/vpnd",
        "usr/local/lib/systemd/system/vpn-guard.service",
        "usr/local/share/bash-completion/completions/vpnctl",
        "usr/local/share/fish/vendor_completions.d/vpnd.fish",
        "usr/local/share/man/man1/vpnctl-policy-new.1",
        "usr/local/share/zsh/site-functions/_vpnctl",
    ] {
        assert!(found.iter().any(|path| path == file), "{file} is missing\n{told}\n{found:#?}");
    }
    let page = |path: &&String| {
        path.starts_with("usr/local/share/man/man") && path.contains("vpnd-start.")
    };
    assert!(found.iter().any(|path| page(&path)), "vpnd has manual pages\n{found:#?}");
    let listed = fs::read_to_string(root.join("usr/local/share/vpnd/installed")).expect("a list");
    for file in found.iter().filter(|path| path.starts_with("usr/")) {
        let line = format!("file /{file}\n");
        assert!(listed.contains(&line) || file.ends_with("/installed"), "{file} is not listed");
    }
    for program in ["vpnd", "vpnctl"] {
        let mut command = Command::new(root.join("usr/local/bin").join(program));
        command.arg("--version");
        assert!(output(command).starts_with(&format!("{program} ")));
    }
    let mut check = Command::new(root.join("usr/local/bin/vpnd"));
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policies/site/left.xml");
    check.arg("check").arg(site).arg("--config").arg(root.join("etc/vpnd/vpnd.toml"));
    output(check);

    let again = vpnd(&["install"], root);
    assert!(again.contains("unchanged /usr/local/bin: vpnd, vpnctl\n"), "{again}");
    vpnd(&["uninstall"], root);
    assert_eq!(files(root), ["etc/vpnd/vpnd.toml"]);
    assert!(root.join("etc/vpnd/private").is_dir() && !root.join("usr").exists());
}

fn units() {
    for prefix in ["/usr", "/usr/local", "/opt/vpnd"] {
        let place = tempfile::tempdir().expect("a temporary directory");
        vpnd(&["install", "--prefix", prefix], place.path());
        let found = files(place.path());
        let units: Vec<PathBuf> = found
            .iter()
            .filter(|path| path.ends_with(".service"))
            .map(|path| place.path().join(path))
            .collect();
        assert_eq!(units.len(), 2, "{found:#?}");
        for unit in units {
            let text = fs::read_to_string(&unit).expect("text");
            assert!(text.contains(&format!("ExecStart={prefix}/bin/vpnd ")), "{text}");
            // systemd looks for the programs in /, which the root stands for.
            let real = place.path().join(prefix.trim_start_matches('/')).join("bin/vpn");
            let text = text.replace(&format!("{prefix}/bin/vpn"), &real.display().to_string());
            fs::write(&unit, text).expect("writable");
            let mut verify = Command::new("systemd-analyze");
            let verify = verify.args(["verify", "--man=no"]).arg(&unit);
            let said = verify.output().expect("it is there");
            let text = String::from_utf8_lossy(&said.stderr);
            let name = unit.file_name().expect("a file").to_string_lossy();
            let ours: Vec<&str> = text.lines().filter(|line| line.contains(&*name)).collect();
            assert!(said.status.success() && ours.is_empty(), "{prefix}: {text}");
        }
    }
}
