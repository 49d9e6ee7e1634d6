//! A machine with a root of its own, which is as empty as Debian's installer leaves it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;
use testkit::space::Space;
use testkit::until;

/// The root that `tests/peers` makes. It stays as it is: each machine has a layer above it.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/newcomer");

/// Mounts the root in a mount namespace of its own, which is gone with the last process in it.
const MOUNTS: &str = r#"set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
exec chroot . sh -c 'echo ready; exec sleep infinity'
"#;

/// A machine; all of its processes end with this value.
pub struct Machine {
    pub name: &'static str,
    pub space: Space,
    /// `unshare`, the parent of the machine's first process.
    first: Child,
    daemon: Option<Child>,
    directory: TempDir,
}

impl Machine {
    /// A machine with the built programs in /src/target/release.
    pub fn new(name: &'static str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for part in ["upper", "work", "root"] {
            fs::create_dir(directory.path().join(part)).expect("writable");
        }
        let space = Space::new(name);
        let first = boot(&space, &directory);
        let machine = Self { name, space, first, daemon: None, directory };
        machine.run_in("/", "mkdir -p /src/target/release");
        for program in [env!("CARGO_BIN_EXE_vpnd"), testkit::vpnctl()] {
            let to = PathBuf::from(program);
            let to = to.file_name().expect("a file").to_string_lossy().into_owned();
            let copy = format!("cat > /src/target/release/{to}; chmod +x /src/target/release/{to}");
            let mut command = machine.command("/", &copy);
            command.stdin(File::open(program).expect("it is built"));
            machine.finish(command, &copy);
        }
        machine
    }

    /// Ends all processes, and begins again with what is on the disk: the network is as empty as a kernel makes it.
    pub fn reboot(&mut self) {
        self.first.kill().expect("a child of ours");
        self.first.wait().expect("a child of ours");
        self.await_end();
        self.space = Space::new(self.name);
        self.first = boot(&self.space, &self.directory);
    }

    /// The first process, whose namespaces are the machine's.
    fn target(&self) -> String {
        let id = self.first.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        children.expect("unshare runs").trim().to_owned()
    }

    /// A shell of the operator, who is root already: `sudo` is not there.
    fn command(&self, directory: &str, line: &str) -> Command {
        let line = format!("cd {directory} && {}", line.replace("sudo ", ""));
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.target(), "--mount", "--pid", "--root", "--wd"])
            .args(["--", "/bin/sh", "-c", &line])
            .env_clear()
            .env("HOME", "/root")
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    fn output(&self, mut command: Command) -> Output {
        self.space.run(move || command.output()).expect("nsenter is there")
    }

    fn finish(&self, command: Command, line: &str) -> String {
        let output = self.output(command);
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{}: {line}: {out}{error}\n{}", self.name, self.log());
        out
    }

    fn run_in(&self, directory: &str, line: &str) -> String {
        self.finish(self.command(directory, line), line)
    }

    /// Standard output of a line that must succeed. Programs that were built are called from their source.
    pub fn run(&self, line: &str) -> String {
        let directory = if line.contains("target/release") { "/src" } else { "/root" };
        self.run_in(directory, line)
    }

    /// Output of a line, standard error included, whether it succeeds or not.
    pub fn try_run(&self, line: &str) -> (bool, String) {
        let output = self.output(self.command("/root", line));
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs a line with a text on its standard input.
    pub fn feed(&self, line: &str, text: &str) {
        let path = self.directory.path().join("fed");
        File::create(&path).and_then(|mut file| file.write_all(text.as_bytes())).expect("writable");
        let mut command = self.command("/root", line);
        command.stdin(File::open(&path).expect("it was written"));
        self.finish(command, line);
    }

    /// Starts the daemon by a line, and waits until it is ready.
    pub fn start(&mut self, line: &str) {
        let log = self.directory.path().join("log");
        let ready = |log: &str| log.matches("ready: ").count();
        let before = ready(&self.log());
        let open = || File::options().create(true).append(true).open(&log).expect("writable");
        let mut command = self.command("/root", &format!("exec {line}"));
        command.stdout(Stdio::null()).stderr(open());
        self.daemon = Some(self.space.run(move || command.spawn()).expect("nsenter is there"));
        let is_ready = || (ready(&self.log()) > before).then_some(());
        until(&format!("{} to be ready", self.name), is_ready, || self.log());
    }

    /// Ends the daemon as a failure of power would.
    pub fn crash(&mut self) {
        self.run("kill -9 $(pidof vpnd)");
        self.await_end();
    }

    /// Waits until the daemon has ended.
    pub fn await_end(&mut self) {
        self.daemon.take().expect("it was started").wait().expect("a child of ours");
    }

    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        format!("---- log of {}\n{text}", self.name)
    }
}

/// Mounts the root, and starts the first process.
fn boot(space: &Space, directory: &TempDir) -> Child {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", MOUNTS, "sh", ROOT])
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut first = space.run(move || unshare.spawn()).expect("unshare is there");
    let mut line = String::new();
    let output = first.stdout.take().expect("it is piped");
    BufReader::new(output).read_line(&mut line).expect("text");
    assert_eq!(line, "ready\n", "the root cannot be mounted");
    first
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The kernel ends all processes of the machine with its first one.
        let _ = self.first.kill();
        let _ = self.first.wait();
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.wait();
        }
    }
}
