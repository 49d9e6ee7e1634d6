//! Two gateways with the sample policies, each in a namespace; and the commands that act on them.

use cli::demo::isolation::Namespace;
use cli::demo::network::{self, Addresses};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};

pub const LEFT: Addresses =
    Addresses { outer: Ipv4Addr::new(192, 0, 2, 1), inner: Ipv4Addr::new(10, 1, 0, 1) };
pub const RIGHT: Addresses =
    Addresses { outer: Ipv4Addr::new(192, 0, 2, 2), inner: Ipv4Addr::new(10, 2, 0, 1) };

pub const LEFT_POLICY: &str = include_str!("../../config/left.xml");
pub const RIGHT_POLICY: &str = include_str!("../../config/right.xml");

/// A gateway's namespace and files; its daemon runs between [`Gateway::start`] and [`Gateway::wait`].
pub struct Gateway {
    pub space: Namespace,
    directory: tempfile::TempDir,
    process: Option<Child>,
}

/// Both gateways, connected but without daemons; `None` where this process may not make them.
pub fn two() -> Option<[Gateway; 2]> {
    let gateway = |name, policy| {
        let space = Namespace::new(name).map_err(|error| crate::skip(&error.to_string())).ok()?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let gateway = Gateway { space, directory, process: None };
        gateway.write_policy(policy);
        fs::write(
            gateway.path("vpnd.toml"),
            format!(
                "[ike]\nretransmit_after = \"200ms\"\nretransmissions = 2\n[esp]\nstate_dir = {:?}\n",
                gateway.path("state")
            ),
        )
        .expect("writable");
        Some(gateway)
    };
    let (left, right) = (gateway("left", LEFT_POLICY)?, gateway("right", RIGHT_POLICY)?);
    network::connect((&left.space, LEFT), (&right.space, RIGHT)).expect("a wire");
    Some([left, right])
}

impl Gateway {
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write_policy(&self, text: &str) {
        let path = self.path("policy.xml");
        fs::write(&path, text).expect("writable");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("ours");
    }

    /// A `vpnd start` of this gateway that does not run yet.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vpnd"));
        command
            .args(["start", "--exit-with-parent", "--log-format", "json", "--policy"])
            .arg(self.path("policy.xml"))
            .arg("--config")
            .arg(self.path("vpnd.toml"))
            .arg("--control")
            .arg(self.path("control.sock"))
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null());
        command
    }

    /// Starts the daemon and waits for its one line.
    pub fn start(&mut self) {
        let command = self.command();
        self.start_as(command);
    }

    pub fn start_as(&mut self, mut command: Command) {
        let log = File::options().create(true).append(true).open(self.path("log"));
        command.stdout(Stdio::piped()).stderr(log.expect("writable"));
        let mut process = self.space.run(move || command.spawn()).expect("vpnd is built");
        let output = process.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("text");
        self.process = Some(process);
        assert!(line.starts_with("ready: 1 tunnel, control socket "), "{line:?}\n{}", self.log());
    }

    pub fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        kill(Pid::from_raw(i32::try_from(process.id()).expect("a process")), signal).expect("ours");
    }

    /// Waits until the daemon has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.take().expect("it runs").wait().expect("a child of ours")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the log has a line with all of `words`.
    pub fn await_log(&self, words: &[&str]) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !self.log().lines().any(|line| words.iter().all(|word| line.contains(word))) {
            assert!(std::time::Instant::now() < deadline, "no {words:?} in\n{}", self.log());
            std::thread::yield_now();
        }
    }

    pub fn ctl(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_vpnctl"))
            .arg("--control")
            .arg(self.path("control.sock"))
            .args(arguments)
            .output()
            .expect("vpnctl is built")
    }

    /// Standard output of a command that must succeed.
    pub fn ctl_ok(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}\n{}", self.log());
        String::from_utf8(output.stdout).expect("text")
    }

    /// Standard error of a command that must fail with this status.
    pub fn ctl_fails(&self, arguments: &[&str], status: i32) -> String {
        let output = self.ctl(arguments);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
            + std::str::from_utf8(&output.stdout).expect("text")
    }

    /// Devices, rules and all routes of the namespace.
    pub fn system(&self) -> String {
        let show = |arguments: &'static [&'static str]| {
            let output = self.space.run(move || Command::new("ip").args(arguments).output());
            String::from_utf8(output.expect("iproute2").stdout).expect("text")
        };
        [
            show(&["-br", "link"]),
            show(&["rule"]),
            show(&["-6", "rule"]),
            show(&["route", "show", "table", "all"]),
            show(&["-6", "route", "show", "table", "all"]),
        ]
        .join("\n")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
