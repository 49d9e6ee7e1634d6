//! A machine that systemd has booted, from a minimal Debian.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use testkit::space::Space;
use testkit::until;

/// The roots that `tests/peers` makes. They stay as they are: each machine has a layer above one of them.
pub const DEBIAN_13: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/debian");
pub const DEBIAN_12: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/debian12");

/// Arguments: the root, the machine's directory, the name of its control group.
///
/// systemd gets a control group of its own, so that it has the whole tree as on a machine; the mounts of this script
/// are gone with its last process.
const BOOT: &str = r#"set -e
mount --make-rprivate /
mount -t cgroup2 none "$2/groups"
mkdir -p "$2/groups/$3"
echo $$ > "$2/groups/$3/cgroup.procs"
umount "$2/groups"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs dev
for node in null zero full random urandom tty; do touch dev/$node; mount --bind /dev/$node dev/$node; done
mkdir dev/net dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
touch dev/net/tun; mount --bind /dev/net/tun dev/net/tun
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
exec unshare --cgroup sh -c 'mount -t cgroup2 cgroup2 sys/fs/cgroup
exec chroot . env -i container=test /lib/systemd/systemd --log-target=journal --show-status=no'
"#;

/// Argument: the machine's directory, the name of its control group.
const FORGET: &str = r#"mount --make-rprivate / && mount -t cgroup2 none "$1/groups" &&
find "$1/groups/$2" -depth -type d -exec rmdir {} +"#;

/// A machine; all of its processes end with this value.
pub struct Machine {
    pub name: &'static str,
    pub space: Space,
    root: &'static str,
    /// `unshare`, the parent of systemd.
    first: Child,
    directory: TempDir,
}

impl Machine {
    /// A machine with Debian 13 that has booted.
    pub fn new(name: &'static str) -> Self {
        Self::of(DEBIAN_13, name)
    }

    /// A machine with this root that has booted.
    pub fn of(root: &'static str, name: &'static str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for part in ["upper", "work", "root", "groups"] {
            fs::create_dir(directory.path().join(part)).expect("writable");
        }
        let space = Space::new(name);
        let first = boot(root, &space, &directory);
        let machine = Self { name, space, root, first, directory };
        machine.await_boot();
        machine
    }

    /// Ends all processes, and boots what is on the disk: the network is as empty as a kernel makes it.
    pub fn reboot(&mut self) {
        self.end();
        self.forget_network();
        self.boot();
    }

    /// Shuts down as systemd does. The network stays as the machine has left it.
    pub fn power_off(&mut self) {
        // The answer may get lost.
        let _ = self.try_run("systemctl poweroff");
        let ended = || self.first.try_wait().ok().flatten().map(drop);
        until(&format!("{} to be off", self.name), ended, String::new);
        self.end();
    }

    /// Gives a machine that is off a network that is as empty as a kernel makes it.
    pub fn forget_network(&mut self) {
        self.space = Space::new(self.name);
    }

    /// Boots a machine that is off.
    pub fn boot(&mut self) {
        self.first = boot(self.root, &self.space, &self.directory);
        self.await_boot();
    }

    fn await_boot(&self) {
        let booted = || {
            // Some of Debian's units cannot work here: it is then "degraded".
            let (_, state) = self.try_run("systemctl is-system-running");
            ["running", "degraded"].contains(&state.trim()).then_some(())
        };
        until(&format!("{} to boot", self.name), booted, || self.try_run("systemctl list-jobs").1);
    }

    fn end(&mut self) {
        // The kernel ends all processes of the machine with its first one.
        let _ = self.first.kill();
        let _ = self.first.wait();
        let mut forget = Command::new("unshare");
        forget.args(["--mount", "sh", "-c", FORGET, "sh"]);
        forget.arg(self.directory.path()).arg(group(&self.directory));
        let _ = forget.stderr(Stdio::null()).status();
    }

    /// systemd's process, whose namespaces are the machine's; `None` while it is being made.
    fn target(&self) -> Option<String> {
        let id = self.first.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        let child = children.split_whitespace().next()?.to_owned();
        let command = fs::read_to_string(format!("/proc/{child}/cmdline")).ok()?;
        command.starts_with("/lib/systemd/systemd").then_some(child)
    }

    /// The number by which this host knows a process of the machine.
    pub fn process(&self, number: &str) -> i32 {
        let target = until("the machine's systemd", || self.target(), String::new);
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
        let machines = namespace(&target);
        let is_it = |process: &String| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let own = numbers.and_then(|numbers| numbers.split_whitespace().last());
            own == Some(number) && namespace(process) == machines
        };
        let all = fs::read_dir("/proc").expect("it is mounted").flatten();
        let mut all = all.filter_map(|entry| entry.file_name().into_string().ok());
        let process = all.find(is_it).unwrap_or_else(|| panic!("{} has no {number}", self.name));
        process.parse().expect("a number")
    }

    fn output(&self, line: &str, input: Stdio) -> Output {
        let target = until("the machine's systemd", || self.target(), String::new);
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &target, "--all", "--root", "--wd", "--", "/bin/sh", "-c"])
            .arg(format!("cd /root && {line}"))
            .env_clear()
            .env("HOME", "/root")
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(input);
        command.output().expect("nsenter is there")
    }

    /// Standard output of a line that must succeed.
    pub fn run(&self, line: &str) -> String {
        self.finish(line, self.output(line, Stdio::null()))
    }

    /// Output of a line, standard error included, whether it succeeds or not.
    pub fn try_run(&self, line: &str) -> (bool, String) {
        let output = self.output(line, Stdio::null());
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// A file in the home directory of root, as this host sees it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("upper/root").join(name)
    }

    /// Copies a file of this host.
    pub fn copy(&self, from: &Path, to: &str) {
        let line = format!("umask 077; cat > {to}");
        let file = File::open(from).expect("it is there");
        self.finish(&line, self.output(&line, Stdio::from(file)));
    }

    fn finish(&self, line: &str, output: Output) -> String {
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{}: {line}: {out}{error}\n{}", self.name, self.log());
        out
    }

    /// The log of vpnd and systemd about the units.
    pub fn log(&self) -> String {
        if self.target().is_none() {
            return format!("---- {} is off\n", self.name);
        }
        let (_, log) = self.try_run("journalctl --no-pager -o cat -u vpnd -u vpn-guard -n 60");
        format!("---- journal of {}\n{log}", self.name)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// The machine's control group, named as its directory is.
fn group(directory: &TempDir) -> String {
    let name = directory.path().file_name().expect("a name").to_string_lossy();
    format!("vpn-test-{}", name.trim_start_matches('.'))
}

/// Starts systemd in namespaces of its own, with this network.
fn boot(root: &str, space: &Space, directory: &TempDir) -> Child {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"])
        .args(["sh", "-c", BOOT, "sh", root])
        .arg(directory.path())
        .arg(group(directory))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    space.run(move || unshare.spawn()).expect("unshare is there")
}
