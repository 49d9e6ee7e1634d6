//! The files of an installation, and their contents.

use super::error::InstallError;
use super::layout::Layout;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file.
pub(super) struct Content {
    /// Its path, without the directory that stands for `/`.
    pub path: PathBuf,
    pub mode: u32,
    pub octets: Vec<u8>,
}

/// The units, with the path of the programs that the texts have.
pub(super) const UNITS: [(&str, &str); 2] = [
    ("vpnd.service", include_str!("../../../../config/vpnd.service")),
    ("vpn-guard.service", include_str!("../../../../config/vpn-guard.service")),
];
const PROGRAMS_IN_UNITS: &str = "/usr/bin/";

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// Everything that is installed, for this `vpnd` and the `vpnctl` beside it.
pub(super) fn contents(layout: &Layout, vpnd: &Path) -> Result<Vec<Content>, InstallError> {
    let vpnctl = vpnd.with_file_name("vpnctl");
    if !vpnctl.is_file() {
        return Err(InstallError::Incomplete(vpnctl));
    }
    let mut files = Vec::new();
    for (name, program) in [("vpnd", vpnd), ("vpnctl", &vpnctl)] {
        let octets = read(program)?;
        files.push(Content { path: layout.programs().join(name), mode: 0o755, octets });
    }
    for (name, text) in UNITS {
        let octets = unit(text, layout).into_bytes();
        files.push(Content { path: layout.units().join(name), mode: 0o644, octets });
    }
    for (name, program) in [("vpnd", vpnd), ("vpnctl", &vpnctl)] {
        files.extend(pages(layout, program)?);
        for shell in SHELLS {
            let octets = completion(program, name, shell)?;
            files.push(Content { path: layout.completion(shell, name), mode: 0o644, octets });
        }
    }
    Ok(files)
}

/// The text of a unit that names the programs of this layout.
fn unit(text: &str, layout: &Layout) -> String {
    let programs = layout.programs();
    let programs = programs.display();
    let lines = text.split_inclusive('\n').map(|line| match line.starts_with("Exec") {
        true => line.replace(PROGRAMS_IN_UNITS, &format!("{programs}/")),
        false => line.to_owned(),
    });
    lines.collect()
}

/// The manual pages that a program writes.
fn pages(layout: &Layout, program: &Path) -> Result<Vec<Content>, InstallError> {
    let directory = Temporary::new()?;
    run(program, &["man", &directory.0.display().to_string()])?;
    let entries = fs::read_dir(&directory.0).map_err(system("read", &directory.0))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.sort();
    let mut pages = Vec::new();
    for page in found {
        let (name, section) = (page.file_name(), page.extension());
        let section = section.and_then(|section| section.to_str()).unwrap_or("1");
        let path = layout.pages(section).join(name.unwrap_or_default());
        pages.push(Content { path, mode: 0o644, octets: read(&page)? });
    }
    Ok(pages)
}

/// The completion that a program prints.
fn completion(program: &Path, name: &str, shell: &str) -> Result<Vec<u8>, InstallError> {
    let mut script = run(program, &["completions", shell])?;
    if shell == "zsh" {
        // zsh loads the file at the first completion, as the body of a function: the script then has to complete, too.
        let last = format!(
            "\nif [ \"$funcstack[1]\" = \"_{name}\" ]; then\n    _clap_dynamic_completer_{name} \"$@\"\nfi\n"
        );
        script.extend(last.into_bytes());
    }
    Ok(script)
}

/// Standard output of a program.
fn run(program: &Path, arguments: &[&str]) -> Result<Vec<u8>, InstallError> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(program, format!("cannot be run: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let why = format!("{} ended with {}: {said}", arguments.join(" "), output.status);
        return Err(failed(program, why));
    }
    Ok(output.stdout)
}

fn failed(program: &Path, why: String) -> InstallError {
    InstallError::Program { program: program.to_owned(), why }
}

fn read(path: &Path) -> Result<Vec<u8>, InstallError> {
    fs::read(path).map_err(system("read", path))
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> InstallError + use<> {
    let path = path.to_owned();
    move |source| InstallError::System { what, path, source }
}

/// A directory of this process, which goes with the value.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self, InstallError> {
        let mut random = [0; 8];
        ::crypto::fill_random(&mut random);
        let name = format!("vpnd-install-{:016x}", u64::from_ne_bytes(random));
        let path = std::env::temp_dir().join(name);
        // It fails if another user has made it first.
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(system("make the directory", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of a setting of a unit, from all its lines.
    fn values<'a>(unit: &'a str, setting: &str) -> Vec<&'a str> {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
        lines.flat_map(str::split_whitespace).collect()
    }

    #[test]
    fn the_guard_is_there_before_the_network_and_nothing_ends_it() {
        let [(_, daemon), (_, guard)] = UNITS;
        // cloud-init has a network before network-pre.target.
        assert_eq!(values(guard, "Before"), ["network-pre.target", "cloud-init-local.service"]);
        assert_eq!(values(guard, "Wants"), ["network-pre.target"]);
        // Services that flush the rules of nftables when they load their own.
        for unit in ["nftables.service", "ufw.service", "netfilter-persistent.service"] {
            assert!(values(guard, "After").contains(&unit), "{unit}");
        }
        // A circle with cloud-init: systemd could leave the guard out.
        for unit in ["firewalld.service", "basic.target", "sysinit.target"] {
            assert!(!values(guard, "After").contains(&unit), "{unit}");
        }
        assert_eq!(values(guard, "DefaultDependencies"), ["no"]);
        assert_eq!(values(guard, "IgnoreOnIsolate"), ["yes"]);
        // Other units flush the rules of nftables as they end.
        for setting in ["Conflicts", "ExecStop", "ExecStopPost", "PartOf", "BindsTo", "Requires"] {
            assert_eq!(values(guard, setting), [""; 0], "{setting}");
        }
        assert_eq!(values(guard, "WantedBy"), ["sysinit.target"]);
        // It is in force when the units after it begin, and stays so.
        assert_eq!(values(guard, "Type"), ["notify"]);
        assert!(values(guard, "ExecStart").contains(&"--watch"));
        assert_eq!(values(guard, "Restart"), ["on-failure"]);
        for setting in ["Wants", "After"] {
            assert!(values(daemon, setting).contains(&"vpn-guard.service"), "{setting}");
        }
        assert_eq!(values(daemon, "Also"), ["vpn-guard.service"]);
        // Errors of the operator, which another start does not mend.
        for unit in [daemon, guard] {
            assert_eq!(values(unit, "RestartPreventExitStatus"), ["78"]);
        }
    }

    #[test]
    fn units_name_the_programs_of_the_prefix() {
        let layout = Layout::new(Path::new("/opt/vpnd")).expect("a prefix");
        for (name, text) in UNITS {
            let unit = unit(text, &layout);
            let commands: Vec<&str> = unit.lines().filter(|l| l.starts_with("Exec")).collect();
            assert!(!commands.is_empty(), "{name}");
            for command in commands {
                assert!(command.contains("=/opt/vpnd/bin/vpn"), "{name}: {command}");
            }
            assert_eq!(unit.lines().count(), text.lines().count());
        }
    }
}
