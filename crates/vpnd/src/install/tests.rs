//! Installing below a root, with shell scripts in the place of the programs.

use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const PREFIX: &str = "/usr/local";

/// A directory with programs, and one that stands for `/`.
struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { directory: tempfile::tempdir().expect("a temporary directory") };
        machine.program("vpnd", "two");
        machine.program("vpnctl", "two");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A program that writes a manual page of this name beside its own.
    fn program(&self, name: &str, page: &str) {
        let path = self.path(name);
        let text = format!(
            "#!/bin/sh\ncase $1 in\nman) echo page > \"$2/{name}.1\"; echo page > \"$2/{name}-{page}.1\";;\n\
             completions) echo \"$2 of {name}\";;\nesac\n"
        );
        // Not by this process: a child of another thread could still have the file open when it is to be run.
        let made = std::process::Command::new("sh")
            .args(["-c", "printf %s \"$0\" > \"$1\" && chmod 755 \"$1\""])
            .arg(text)
            .arg(path)
            .status();
        assert!(made.expect("a shell").success());
    }

    fn request(&self) -> Request {
        Request { prefix: PREFIX.into(), root: Some(self.path("root")), dry_run: false }
    }

    fn install(&self) -> String {
        self.request().install(&self.path("vpnd")).expect("nothing is in the way")
    }

    /// The paths of all files, and of all directories that are empty.
    fn found(&self) -> Vec<String> {
        let root = self.path("root");
        let mut found = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            if paths.is_empty() {
                found.push(format!("{}/", directory.strip_prefix(&root).expect("in it").display()));
            }
            for path in paths {
                match path.is_dir() {
                    true => directories.push(path),
                    false => {
                        let path = path.strip_prefix(&root).expect("in it");
                        found.push(path.display().to_string());
                    }
                }
            }
        }
        found.sort();
        found
    }

    fn mode(&self, path: &str) -> u32 {
        let metadata = fs::metadata(self.path("root").join(path)).expect("it is there");
        metadata.permissions().mode() & 0o777
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path("root").join(path)).expect("it is there")
    }
}

const CONFIGURED: [&str; 8] = [
    "etc/vpnd/ca/",
    "etc/vpnd/certs/",
    "etc/vpnd/crls/",
    "etc/vpnd/ocsp/",
    "etc/vpnd/ppk/",
    "etc/vpnd/private/",
    "etc/vpnd/vpnd.toml",
    "var/lib/vpnd/",
];

#[test]
fn everything_is_installed_and_removed_but_the_configuration() {
    let machine = Machine::new();
    let told = machine.install();
    let share = "usr/local/share";
    let mut expected: Vec<String> = [
        "usr/local/bin/vpnctl",
        "usr/local/bin/vpnd",
        "usr/local/lib/systemd/system/vpn-guard.service",
        "usr/local/lib/systemd/system/vpnd.service",
    ]
    .map(str::to_owned)
    .into();
    for name in ["vpnctl", "vpnd"] {
        expected.extend([
            format!("{share}/bash-completion/completions/{name}"),
            format!("{share}/fish/vendor_completions.d/{name}.fish"),
            format!("{share}/man/man1/{name}-two.1"),
            format!("{share}/man/man1/{name}.1"),
            format!("{share}/zsh/site-functions/_{name}"),
        ]);
    }
    expected.push(format!("{share}/vpnd/installed"));
    expected.extend(CONFIGURED.map(str::to_owned));
    expected.sort();
    assert_eq!(machine.found(), expected, "{told}");
    assert!(told.contains("  installed /usr/local/bin: vpnd, vpnctl\n"), "{told}");
    let unit = machine.text("usr/local/lib/systemd/system/vpnd.service");
    assert!(
        unit.contains("ExecStart=/usr/local/bin/vpnd start"),
        "the unit does not name the root"
    );
    for (path, mode) in [
        ("usr/local/bin/vpnd", 0o755),
        ("usr/local/share/man/man1/vpnd.1", 0o644),
        ("usr/local/share/zsh", 0o755),
        ("etc/vpnd", 0o755),
        ("etc/vpnd/private", 0o700),
        ("etc/vpnd/vpnd.toml", 0o644),
    ] {
        assert_eq!(machine.mode(path), mode, "{path}");
    }
    let config = crate::config::Config::read(&machine.path("root/etc/vpnd/vpnd.toml"));
    assert_eq!(config.expect("it is only comments"), crate::config::Config::default());

    let told = machine.request().uninstall().expect("it was installed");
    assert!(told.contains("  14 files\n") && told.contains("/etc/vpnd (configuration"), "{told}");
    assert_eq!(machine.found(), CONFIGURED);
    let error = machine.request().uninstall().expect_err("it is gone").to_string();
    assert!(error.contains("share/vpnd/installed does not exist"), "{error}");
}

#[test]
fn a_second_time_installs_a_new_version_and_keeps_the_configuration() {
    let machine = Machine::new();
    machine.install();
    let settings = machine.path("root/etc/vpnd/vpnd.toml");
    fs::write(&settings, "[log]\nlevel = \"debug\"\n").expect("writable");
    fs::set_permissions(&settings, Permissions::from_mode(0o600)).expect("ours");
    fs::write(machine.path("root/usr/local/share/zsh/other"), "").expect("writable");
    machine.program("vpnd", "three");
    let told = machine.install();
    for part in [
        "  replaced  /usr/local/bin: vpnd\n",
        "  unchanged /usr/local/bin: vpnctl\n",
        "  removed   /usr/local/share/man/man1: vpnd-two.1\n",
        "  installed /usr/local/share/man/man1: vpnd-three.1\n",
        "  kept      /etc/vpnd: vpnd.toml\n",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(machine.text("etc/vpnd/vpnd.toml"), "[log]\nlevel = \"debug\"\n");
    assert_eq!(machine.mode("etc/vpnd/vpnd.toml"), 0o600);

    machine.request().uninstall().expect("it was installed");
    let mut left: Vec<String> = CONFIGURED.map(str::to_owned).into();
    left.push("usr/local/share/zsh/other".to_owned());
    left.sort();
    assert_eq!(machine.found(), left, "a file of somebody else stays");
}

#[test]
fn a_dry_run_changes_nothing() {
    let machine = Machine::new();
    let dry = Request { dry_run: true, ..machine.request() };
    let told = dry.install(&machine.path("vpnd")).expect("nothing is in the way");
    assert!(told.starts_with("nothing is changed; without --dry-run: vpnd "), "{told}");
    assert!(told.contains("  installed /usr/local/bin: vpnd, vpnctl\n"), "{told}");
    assert!(!machine.path("root").exists());
    machine.install();
    let before = machine.found();
    let told = dry.uninstall().expect("it is installed");
    assert!(told.contains("  14 files\n"), "{told}");
    assert_eq!(machine.found(), before);
}

#[test]
fn a_missing_program_is_told_before_anything_is_installed() {
    let machine = Machine::new();
    fs::remove_file(machine.path("vpnctl")).expect("it is there");
    let error = machine.request().install(&machine.path("vpnd")).expect_err("one of two");
    assert!(error.to_string().contains("vpnctl is missing"), "{error}");
    assert!(!machine.path("root").exists(), "nothing is half done");
}

/// Package managers do not run this program: their scripts make the directories.
#[test]
fn the_scripts_of_packages_make_the_same_directories() {
    for (package, script) in [
        ("debian", include_str!("../../../../packaging/debian/postinst")),
        ("rpm", include_str!("../../../../packaging/rpm/post")),
    ] {
        for (name, mode) in DIRECTORIES.iter().filter(|(name, _)| !name.is_empty()) {
            let command = format!("install -d -m {mode:o} ");
            let path = format!("{CONFIGURATION}/{name}");
            let makes = |line: &str| {
                line.trim()
                    .strip_prefix(&command)
                    .is_some_and(|rest| rest.split(' ').any(|word| word == path))
            };
            assert!(script.lines().any(makes), "{package}: {path} with mode {mode:o}");
        }
    }
}
