//! Hosts with part of a processor: a control group for each, in which its daemon and its traffic run.
//!
//! A process that the thread of a namespace starts begins in the group of that thread, so that the thread alone is put
//! there. In version 2 of control groups threads of one process are in different groups only below a group that has the
//! whole process (cgroups(7), threaded mode).
//!
//! A process that is killed leaves its groups. Their names say which process has made them, so that the next run finds
//! and removes those of processes that are gone.

use namespaces::isolation::Namespace;
use nix::unistd::gettid;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// The period of a share in microseconds, as with a hypervisor of POWER. An unused part is lost at its end.
const PERIOD: u32 = 10_000;
/// The start of the name of every group. The number of the process and its start follow.
const PREFIX: &str = "vpnctl-experiment-";
/// The groups of the two hosts.
const HOSTS: [&str; 2] = ["left", "right"];
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
        let Hierarchy { version, root, home, parent } = Hierarchy::find()?;
        remove_leftovers_in(&parent);
        let process = std::process::id();
        let start = start_of(process).ok_or("cannot read when this process started from /proc")?;
        let name = format!("{PREFIX}{process}-{start}");
        let mut confinement = Self { version, groups: Vec::new(), home: None };
        let parent = match version {
            Version::One => parent,
            Version::Two => {
                // Others' groups are left alone: this one is beside them.
                let parent = parent.join(&name);
                confinement.make(parent.clone())?;
                confinement.home = Some(home);
                write(&parent.join("cgroup.procs"), &process.to_string())?;
                parent
            }
        };
        let paths = HOSTS.map(|host| match version {
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

/// The control groups for processors of this system.
struct Hierarchy {
    version: Version,
    root: PathBuf,
    /// The group of this process.
    home: PathBuf,
    /// The group below which those of experiments are.
    parent: PathBuf,
}

impl Hierarchy {
    fn find() -> Result<Self, String> {
        let mounts = read(Path::new("/proc/self/mounts"))?;
        let own = read(Path::new("/proc/self/cgroup"))?;
        let (version, root) = hierarchy(&mounts).ok_or(
            "the system has no control groups for processors (no cgroup with cpu is mounted)",
        )?;
        let controller = if version == Version::One { "cpu" } else { "" };
        let home = home(&root, own_path(&own, controller));
        let parent = if version == Version::One { home.clone() } else { root.clone() };
        Ok(Self { version, root, home, parent })
    }
}

/// Removes the groups of experiments that were killed, if there are any and the system lets this process do so.
pub fn remove_leftovers() {
    if let Ok(hierarchy) = Hierarchy::find() {
        remove_leftovers_in(&hierarchy.parent);
    }
}

fn remove_leftovers_in(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if is_left_over(&entry.file_name().to_string_lossy()) {
            // A group that has a process or another group is not removed.
            HOSTS.iter().for_each(|host| _ = fs::remove_dir(path.join(host)));
            let _ = fs::remove_dir(path);
        }
    }
}

/// Returns `true` if a name is that of a group whose maker is gone. A process that has got the number of the maker has
/// started at another time.
fn is_left_over(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    let mut parts = rest.split('-').map_while(|part| part.parse::<u64>().ok());
    let Some(process) = parts.next().and_then(|number| u32::try_from(number).ok()) else {
        return false;
    };
    match (start_of(process), parts.next()) {
        (Some(found), Some(start)) => found != start,
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// The moment at which a process has started, in ticks since the system has; `None` if there is no such process.
fn start_of(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program stands in parentheses and may have others in it (proc(5)): field 22 is the 20th behind
    // it.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
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
    fn groups_of_processes_that_are_gone_are_removed_and_no_others() {
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let gone = child.id();
        child.wait().expect("it ends");
        let process = std::process::id();
        let start = start_of(process).expect("this process runs");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let groups = |names: &[String]| {
            names.iter().for_each(|name| {
                fs::create_dir_all(directory.path().join(name)).expect("writable");
            })
        };
        let stay = [
            format!("{PREFIX}{process}-{start}/left"),
            format!("{PREFIX}{process}-{start}-right"),
            format!("{PREFIX}{process}"),
            format!("{PREFIX}{gone}-1/somebody's"),
            format!("{PREFIX}of-mine"),
            format!("my-{PREFIX}{gone}"),
        ];
        groups(&stay);
        groups(&[
            format!("{PREFIX}{gone}"),
            format!("{PREFIX}{gone}-2-left"),
            format!("{PREFIX}{gone}-3/left"),
            format!("{PREFIX}{gone}-3/right"),
            // The number of a process that was killed, which this one has now.
            format!("{PREFIX}{process}-{}/left", start - 1),
        ]);
        remove_leftovers_in(directory.path());
        let left = fs::read_dir(directory.path()).expect("readable").count();
        assert_eq!(left, stay.len());
        assert!(stay.iter().all(|name| directory.path().join(name).is_dir()));
    }

    /// Where this process may make control groups.
    #[test]
    fn the_next_run_removes_what_a_killed_one_has_left() {
        const KILLED: &str = "VPN_CONFINEMENT_TEST_KILLED";
        let groups = || {
            let parent = Hierarchy::find().expect("there is one").parent;
            let entries = fs::read_dir(parent).expect("readable").flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| is_left_over(name)).count()
        };
        if std::env::var_os(KILLED).is_some() {
            let _confinement = Confinement::new().expect("it could before");
            std::process::abort();
        }
        let Ok(confinement) = Confinement::new() else { return };
        drop(confinement);
        let killed = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args([
                "--exact",
                "experiment::confinement::tests::the_next_run_removes_what_a_killed_one_has_left",
            ])
            .env(KILLED, "1")
            .output()
            .expect("it can be run");
        assert!(!killed.status.success() && groups() > 0, "{killed:?}");
        remove_leftovers();
        assert_eq!(groups(), 0);
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
