//! One end: a `vpnd start` in a namespace, and the control connection to it.

use control::client::{Client, ClientError};
use control::protocol::{Command as Ask, Reply, Tunnel};
use namespaces::isolation::Namespace;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The longest time in which a daemon starts, and answers one command.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest time in which a daemon stops; after that it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// The policy and the configuration of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The program `vpnd`.
    pub program: &'a Path,
    /// Text of the policy.
    pub policy: &'a str,
    /// Further lines of section `[esp]` of the configuration, and further sections.
    pub config: &'a str,
    /// Variables of its environment, beside those of this process.
    pub environment: &'a [(&'a str, &'a str)],
}

/// A daemon. Dropping it ends the process.
pub struct Node {
    name: &'static str,
    directory: PathBuf,
    process: Child,
    client: Client,
}

impl Node {
    /// Starts a daemon in `namespace` with its files in a new `directory`, and waits until it is ready.
    pub fn start(
        name: &'static str,
        namespace: &Namespace,
        directory: &Path,
        setup: Setup<'_>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, String> {
        let files = Files::write(directory, setup).map_err(|e| format!("{name}: {e}"))?;
        let mut process = namespace
            .run(move || files.spawn())
            .map_err(|error| format!("{name}: cannot start vpnd: {error}"))?;
        let client = match await_ready(&mut process, interrupted)
            .and_then(|()| Ok(Client::connect(&directory.join("control.sock"))?))
            .and_then(|client| {
                client.set_timeout(PATIENCE)?;
                Ok(client)
            }) {
            Ok(client) => client,
            Err(why) => {
                end(&mut process);
                return Err(format!("{name}: {why}{}", last_words(directory)));
            }
        };
        Ok(Self { name, directory: directory.to_owned(), process, client })
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Another connection to it.
    ///
    /// # Errors
    /// Where it takes none.
    pub fn client(&self) -> Result<Client, String> {
        let client = Client::connect(&self.directory.join("control.sock"));
        client.map_err(|error| format!("{}: {error}{}", self.name, last_words(&self.directory)))
    }

    /// Sends a command.
    pub fn ask(&mut self, command: Ask) -> Result<Reply, String> {
        self.client.ask(command).map_err(|error: ClientError| {
            format!("{}: {error}{}", self.name, last_words(&self.directory))
        })
    }

    /// The status of one tunnel.
    pub fn tunnel(&mut self, name: &str) -> Result<Tunnel, String> {
        match self.ask(Ask::Status { name: name.to_owned() })? {
            Reply::Tunnels(tunnels) => {
                tunnels.into_iter().next().ok_or_else(|| format!("{}: no tunnel {name}", self.name))
            }
            reply => Err(self.client.unexpected(&reply).to_string()),
        }
    }

    /// The connection, so that another thread can break off a wait for an answer.
    pub fn connection(&self) -> io::Result<std::os::unix::net::UnixStream> {
        self.client.connection()
    }

    /// Stops the daemon as an operator would, and says whether it ended well.
    pub fn stop(mut self) -> Result<(), String> {
        match end(&mut self.process) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!(
                "{}: vpnd ended with {status}{}",
                self.name,
                last_words(&self.directory)
            )),
            None => {
                Err(format!("{}: vpnd did not stop in {STOP_LIMIT:?} and was killed", self.name))
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

struct Files {
    program: PathBuf,
    directory: PathBuf,
    environment: Vec<(String, String)>,
}

impl Files {
    fn write(directory: &Path, setup: Setup<'_>) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).recursive(true).create(directory)?;
        fs::write(directory.join("policy.xml"), setup.policy)?;
        let state = directory.join("state");
        DirBuilder::new().mode(0o700).create(&state)?;
        // Both ends are on this machine and answer in milliseconds, but a busy machine may let them wait: after 68 s
        // the other end is given up.
        let config = format!(
            "[ike]\nretransmit_after = \"500ms\"\nretransmissions = 7\n[esp]\nstate_dir = {:?}\n{}\n",
            state.display().to_string(),
            setup.config,
        );
        fs::write(directory.join("vpnd.toml"), config)?;
        let environment = setup.environment.iter();
        let environment =
            environment.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let program = setup.program.to_owned();
        Ok(Self { program, directory: directory.to_owned(), environment })
    }

    fn spawn(&self) -> io::Result<Child> {
        Command::new(&self.program)
            .arg("start")
            .arg("--exit-with-parent")
            .arg("--policy")
            .arg(self.directory.join("policy.xml"))
            .arg("--config")
            .arg(self.directory.join("vpnd.toml"))
            .arg("--control")
            .arg(self.directory.join("control.sock"))
            .env_remove("NOTIFY_SOCKET")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(self.directory.join("log"))?)
            // Ctrl-C is for the demo alone, which then ends this process in order.
            .process_group(0)
            .spawn()
    }
}

/// Waits for the one line on standard output.
fn await_ready(
    process: &mut Child,
    interrupted: &dyn Fn() -> bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let output = process.stdout.take().ok_or("vpnd has no standard output")?;
    let (tell, line) = mpsc::channel();
    thread::Builder::new().name("ready".to_owned()).spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(output).read_line(&mut line);
        // Nobody waits any more if the time is up.
        let _ = tell.send(line);
    })?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match line.recv_timeout(Duration::from_millis(50)) {
            Ok(line) if line.starts_with("ready") => return Ok(()),
            Ok(_) => return Err("vpnd did not start".into()),
            Err(_) if interrupted() => return Err("interrupted".into()),
            Err(_) if Instant::now() >= deadline => {
                return Err(format!("vpnd was not ready in {PATIENCE:?}").into());
            }
            Err(_) => {}
        }
    }
}

/// Ends a process, in order if it can; `None` if it had to be killed.
fn end(process: &mut Child) -> Option<std::process::ExitStatus> {
    if let Ok(Some(status)) = process.try_wait() {
        return Some(status);
    }
    if let Ok(pid) = i32::try_from(process.id()) {
        // It is a child of ours that was not waited for: the number cannot be another's.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    let deadline = Instant::now() + STOP_LIMIT;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = process.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = process.kill();
    let _ = process.wait();
    None
}

/// The end of a daemon's log, for a message.
fn last_words(directory: &Path) -> String {
    let Ok(log) = fs::read_to_string(directory.join("log")) else { return String::new() };
    let lines: Vec<&str> = log.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let last = &lines[lines.len().saturating_sub(12)..];
    last.iter().fold("\n  its log ends:".to_owned(), |text, line| text + "\n    " + line)
}
