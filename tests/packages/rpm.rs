//! `vpnd.rpm` in the root of a machine whose packages are Debian's: its scripts run, its files come and go.

use crate::{NEEDS, PACKAGES};
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use testkit::test;

pub fn trials() -> Vec<Trial> {
    vec![test(
        "the RPM package: the files of the Debian package come and go",
        NEEDS,
        comes_and_goes,
    )]
}

/// Output of a shell in a mount namespace whose `/mnt` is a layer above Debian's root.
fn in_root(layer: &Path, line: &str) -> String {
    let mut shell = Command::new("unshare");
    let mount = "mount --make-rprivate / && mount -t overlay overlay \
                 -o lowerdir=$0,upperdir=$1/upper,workdir=$1/work /mnt && eval \"$2\"";
    shell.args(["--mount", "--net", "sh", "-e", "-c", mount]);
    shell.arg(Path::new(testkit::PEERS).join("debian")).arg(layer).arg(line);
    testkit::output(shell)
}

fn comes_and_goes() {
    let layer = tempfile::tempdir().expect("a temporary directory");
    for part in ["upper", "work"] {
        std::fs::create_dir(layer.path().join(part)).expect("writable");
    }
    let files = || {
        let found = in_root(layer.path(), "cd /mnt && find etc usr -not -path '*/rpm*'");
        found.lines().map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let before = files();
    let [first, second] = PACKAGES.each_ref().map(|packages| packages.join("vpnd.rpm"));
    let rpm = "rpm --root /mnt --nodeps --ignorearch";
    in_root(layer.path(), &format!("{rpm} --install {}", first.display()));
    let installed: BTreeSet<String> = files().difference(&before).cloned().collect();

    let mut deb = Command::new("sh");
    deb.args(["-c", "dpkg-deb --fsys-tarfile \"$0\" | tar t"]);
    deb.arg(PACKAGES[0].join("vpnd.deb"));
    let of_deb = testkit::output(deb);
    let of_deb = of_deb.lines().map(|path| path.trim_start_matches("./").trim_end_matches('/'));
    let missing: Vec<&str> = of_deb
        .filter(|path| path.starts_with("etc/") || path.starts_with("usr/"))
        .filter(|path| !installed.contains(*path) && !before.contains(*path))
        // Debian's own forms of the licenses and of the changelog.
        .filter(|path| {
            !["copyright", "changelog.Debian.gz"].iter().any(|file| path.ends_with(file))
        })
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
    for directory in ["ca", "certs", "crls", "ocsp", "private"] {
        assert!(installed.contains(&format!("etc/vpnd/{directory}")), "{installed:?}");
    }

    in_root(layer.path(), "echo '# Ours.' >> /mnt/etc/vpnd/vpnd.toml");
    in_root(layer.path(), &format!("{rpm} --upgrade {}", second.display()));
    let version = in_root(layer.path(), "rpm --root /mnt -q vpnd");
    assert!(version.contains("0.1.1"), "{version}");
    assert!(in_root(layer.path(), "cat /mnt/etc/vpnd/vpnd.toml").ends_with("# Ours.\n"));
    in_root(layer.path(), "rpm --root /mnt --erase vpnd");
    let after = files();
    let left: Vec<&String> = after.difference(&before).collect();
    // Debian has no directories for licenses and for the completions of other shells, and this one has no logrotate.
    let shared =
        ["fish/vendor_completions.d", "zsh/site-functions", "share/licenses", "etc/logrotate.d"];
    let ours = |path: &&&String| !shared.iter().any(|directory| path.ends_with(directory));
    let left: Vec<&String> = left.iter().filter(ours).copied().collect();
    assert_eq!(left, ["etc/vpnd", "etc/vpnd/vpnd.toml.rpmsave"]);
}
