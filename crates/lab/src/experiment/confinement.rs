//! Hosts with part of a processor: a control group for each, in which its daemon and its traffic run.
//!
//! Whatever is started from the thread of a namespace begins in the group of that thread, so that the thread alone is put
//! there. In version 2 of control groups threads of one process are in different groups only below a group that has the
//! whole process (cgroups(7), threaded mode).

use crate::isolation::Namespace;
use nix::unistd::gettid;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// The period of a share in microseconds, as with a hypervisor of POWER. An unused part is lost at its end.
const PERIOD: u32 = 10_000;
/// The number of attempts to remove a group whose last thread is just ending, and the pause between them.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The version of the control groups for processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// A hierarchy of its own for the controller `cpu`.
    One,
    /// One hierarchy for all controllers.
    Two,
}

/// Groups for two hosts; dropped after what runs in them.
pub struct Confinement {
    version: Version,
    /// In the order of their removal: the hosts', then what they are in.
    groups: Vec<PathBuf>,
    /// The group of this process before, in version 2.
    home: Option<PathBuf>,
}

impl Confinement {
    /// Makes a group for each of two hosts, without a limit so far.
    ///
    /// # Errors
    /// Where the system has no control groups for processors, or does not let them be changed.
    pub fn new() -> Result<Self, String> {
        let mounts = read(Path::new("/proc/self/mounts"))?;
        let own = read(Path::new("/proc/self/cgroup"))?;
        let (version, root) = hierarchy(&mounts).ok_or(
            "the system has no control groups for processors (no cgroup with cpu is mounted)",
        )?;
        let name = format!("vpnctl-experiment-{}", std::process::id());
        let mut confinement = Self { version, groups: Vec::new(), home: None };
        let parent = match version {
            Version::One => home(&root, own_path(&own, "cpu")),
            Version::Two => {
                // Others' groups are left alone: this one is beside them.
                let parent = root.join(&name);
                confinement.make(parent.clone())?;
                confinement.home = Some(home(&root, own_path(&own, "")));
                write(&parent.join("cgroup.procs"), &std::process::id().to_string())?;
                parent
            }
        };
        let paths = ["left", "right"].map(|host| match version {
            Version::One => parent.join(format!("{name}-{host}")),
            Version::Two => parent.join(host),
        });
        for path in &paths {
            confinement.make(path.clone())?;
            if version == Version::Two {
                write(&path.join("cgroup.type"), "threaded")?;
            }
        }
        if version == Version::Two {
            write(&root.join("cgroup.subtree_control"), "+cpu")?;
            write(&parent.join("cgroup.subtree_control"), "+cpu")?;
        }
        Ok(confinement)
    }

    /// Puts both hosts in their groups, with what is started there from now on.
    ///
    /// # Errors
    /// Where the system refuses it.
    pub fn admit(&self, hosts: [&Namespace; 2]) -> Result<(), String> {
        let file = match self.version {
            Version::One => "tasks",
            Version::Two => "cgroup.threads",
        };
        // The left one was made first.
        let groups = self.groups.iter().rev().filter(|path| self.is_host(path));
        groups
            .zip(hosts)
            .try_for_each(|(path, host)| write(&path.join(file), &host.run(gettid).to_string()))
    }

    /// Gives each host so many processors, or as many as there are.
    ///
    /// # Errors
    /// Where the system refuses it.
    pub fn allow(&self, processors: Option<f64>) -> Result<(), String> {
        let share = processors.map(|processors| (processors * f64::from(PERIOD)) as u32);
        self.groups.iter().filter(|path| self.is_host(path)).try_for_each(|path| {
            match self.version {
                Version::One => {
                    write(&path.join("cpu.cfs_period_us"), &PERIOD.to_string())?;
                    let share = share.map_or("-1".to_owned(), |share| share.to_string());
                    write(&path.join("cpu.cfs_quota_us"), &share)
                }
                Version::Two => {
                    let share = share.map_or("max".to_owned(), |share| share.to_string());
                    write(&path.join("cpu.max"), &format!("{share} {PERIOD}"))
                }
            }
        })
    }

    /// Not the group that the hosts' are in.
    fn is_host(&self, path: &Path) -> bool {
        self.version == Version::One || self.groups.last().is_none_or(|last| last != path)
    }

    fn make(&mut self, path: PathBuf) -> Result<(), String> {
        fs::create_dir(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        self.groups.insert(0, path);
        Ok(())
    }
}

impl Drop for Confinement {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            // Without it the group below stays; it limits nothing.
            let _ = write(&home.join("cgroup.procs"), &std::process::id().to_string());
        }
        for group in &self.groups {
            for _ in 0..TRIES {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                sleep(PAUSE);
            }
        }
    }
}

/// The version and the mount point of the controller for processors.
fn hierarchy(mounts: &str) -> Option<(Version, PathBuf)> {
    let mounts = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, place, kind, options, ..] = fields[..] else { return None };
        Some((PathBuf::from(place), kind, options))
    });
    let mut second = None;
    for (place, kind, options) in mounts {
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => {
                return Some((Version::One, place));
            }
            "cgroup2" => second = Some((Version::Two, place)),
            _ => {}
        }
    }
    second
}

/// The group of a process below the mount, from `/proc/self/cgroup`; an empty controller is version 2.
fn own_path<'t>(text: &'t str, controller: &str) -> &'t str {
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        Some((fields.nth(1)?, fields.next()?))
    });
    let mut fitting =
        lines.filter(|(controllers, _)| controllers.split(',').any(|c| c == controller));
    fitting.next().map_or("/", |(_, path)| path)
}

/// The directory of a group; the mount itself where a container sees another part of the tree.
fn home(root: &Path, path: &str) -> PathBuf {
    let home = root.join(path.trim_start_matches('/'));
    if home.is_dir() { home } else { root.to_owned() }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text)
        .map_err(|error| format!("cannot write {text} to {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_for_processors_is_found() {
        let one = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                   cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                   cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n";
        let found = hierarchy(one);
        assert_eq!(found, Some((Version::One, "/sys/fs/cgroup/cpu,cpuacct".into())));
        let two = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(hierarchy(two), Some((Version::Two, "/sys/fs/cgroup".into())));
        assert_eq!(hierarchy("proc /proc proc rw 0 0\n"), None);
    }

    #[test]
    fn a_process_finds_its_group() {
        let text = "4:memory:/a\n3:cpu,cpuacct:/b/c\n0::/user.slice\n";
        assert_eq!(own_path(text, "cpu"), "/b/c");
        assert_eq!(own_path(text, ""), "/user.slice");
        assert_eq!(own_path(text, "pids"), "/");
        assert_eq!(home(Path::new("/proc"), "/self"), Path::new("/proc/self"));
        assert_eq!(home(Path::new("/proc"), "/no/such/group"), Path::new("/proc"));
    }
}
