//! A `vpnd` in its namespace, commanded by `vpnctl` as an operator would.

use crate::setup::{CHILD_TUNNEL, IKE_TUNNEL, PPK, Setup};
use crate::token;
use control::protocol::{Child as ChildTunnel, ChildSa, Tunnel};
use namespaces::isolation::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use testkit::eventually;

/// A running daemon; dropping it kills it.
pub struct Vpnd {
    pub space: Namespace,
    directory: PathBuf,
    process: Child,
}

impl Vpnd {
    /// Starts it and waits until it is ready.
    pub fn start(space: Namespace, directory: PathBuf, setup: &Setup) -> Result<Self, String> {
        let error = |error: std::io::Error| format!("cannot start vpnd: {error}");
        fs::create_dir_all(&directory).map_err(error)?;
        // It holds a key, and vpnd warns of one that others can read.
        let mut policy = File::options()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(directory.join("policy.xml"))
            .map_err(error)?;
        policy.write_all(setup.policy().as_bytes()).map_err(error)?;
        let token_files = match setup.has_token() {
            true => format!("token_files = [{:?}]", token::directory(&directory)),
            false => String::new(),
        };
        let config = format!(
            "[ike]\nretransmit_after = {:?}\nretransmissions = {}\n{}\n[esp]\nstate_dir = {:?}\n\
             [certificates]\ndirectory = {:?}\n{token_files}\n{}\n[log]\nlevel = \"debug\"\n",
            setup.retransmit.0,
            setup.retransmit.1,
            setup.vpnd_ike,
            directory.join("state"),
            directory.join("certificates"),
            setup.vpnd_certificates
        );
        fs::write(directory.join("vpnd.toml"), config).map_err(error)?;
        if !setup.ppks[0].is_empty() {
            let ppks = directory.join("certificates/ppk");
            fs::create_dir_all(&ppks).map_err(error)?;
            let mut open = File::options();
            let file = open.create_new(true).write(true).mode(0o600).open(ppks.join(PPK));
            file.and_then(|mut file| file.write_all(setup.ppks[0].as_bytes())).map_err(error)?;
        }
        let process = Self::spawn(&space, &directory)?;
        Ok(Self { space, directory, process })
    }

    fn spawn(space: &Namespace, directory: &Path) -> Result<Child, String> {
        let error = |error: std::io::Error| format!("cannot start vpnd: {error}");
        let log = File::options().create(true).append(true).open(directory.join("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_vpnd"));
        command
            .args(["start", "--exit-with-parent", "--policy"])
            .arg(directory.join("policy.xml"))
            .arg("--config")
            .arg(directory.join("vpnd.toml"))
            .arg("--control")
            .arg(directory.join("control.sock"))
            .env_remove("NOTIFY_SOCKET")
            .envs([token::environment(directory)])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.map_err(error)?);
        let mut process = space.run(move || command.spawn()).map_err(error)?;
        let output = process.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(error)?;
        if line.starts_with("ready: 1 tunnel") {
            return Ok(process);
        }
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        Err(format!("vpnd is not ready but {line:?}\n{log}"))
    }

    /// Ends it without a Delete, as a power cut would.
    pub fn crash(&mut self) {
        self.process.kill().expect("it is our child and not waited for");
        self.process.wait().expect("it is our child");
    }

    /// Ends it in order: its ports and the network are free.
    pub fn stop(&mut self) {
        let id = Pid::from_raw(i32::try_from(self.process.id()).expect("a process number"));
        kill(id, Signal::SIGTERM).expect("it is our child and not waited for");
        self.process.wait().expect("it is our child");
    }

    /// Starts it again after [`Vpnd::crash`].
    pub fn restart(&mut self) {
        self.process = Self::spawn(&self.space, &self.directory).expect("it started before");
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Runs `vpnctl`.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        Command::new(testkit::vpnctl())
            .arg("--control")
            .arg(self.directory.join("control.sock"))
            .args(arguments)
            .output()
            .expect("vpnctl is built")
    }

    /// Runs `vpnctl`, which must succeed. Returns its output.
    pub fn must(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        let [stdout, stderr] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert!(
            output.status.success(),
            "vpnctl {}: {}\n{stdout}{stderr}",
            arguments.join(" "),
            output.status
        );
        stdout
    }

    /// Tries to start the tunnel, which must fail. Returns the output of `vpnctl`.
    pub fn refused(&self) -> String {
        let output = self.ctl(&["activate", IKE_TUNNEL]);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "vpnctl activate\n{stdout}");
        stdout
    }

    /// The tunnel as it is now.
    pub fn tunnel(&self) -> Tunnel {
        let text = self.must(&["status", IKE_TUNNEL, "--json"]);
        serde_json::from_str(&text).expect("vpnctl prints what it documents")
    }

    /// The phase 2 tunnel as it is now.
    pub fn child(&self) -> ChildTunnel {
        let children = self.tunnel().children;
        children.into_iter().find(|child| child.name == CHILD_TUNNEL).expect("the policy has it")
    }

    /// The Child SA, which must be up.
    pub fn child_sa(&self) -> ChildSa {
        self.child().child_sa.expect("the Child SA is up")
    }

    /// Discarded datagrams and packets by reason.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        serde_json::from_str(&self.must(&["counters", "--json"])).expect("vpnctl prints numbers")
    }

    /// Waits until the Child SA is up.
    pub fn wait_up(&self) {
        eventually("the Child SA is up at vpnd", || {
            (self.child().state == "established").then_some(())
        });
    }

    /// Waits until nothing is up.
    pub fn wait_down(&self) -> Tunnel {
        eventually("everything is down at vpnd", || {
            let tunnel = self.tunnel();
            (!tunnel.is_active()).then_some(tunnel)
        })
    }

    /// Waits for words in the log.
    pub fn wait_log(&self, words: &str) {
        eventually(&format!("vpnd logs {words:?}"), || self.log().contains(words).then_some(()));
    }
}

impl Drop for Vpnd {
    fn drop(&mut self) {
        // Its namespace goes with it: there is nothing to be undone in order.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
