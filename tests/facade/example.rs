//! The examples, run as their first lines say.

use crate::side::{FAR, Side};
use libtest_mimic::{Completion, Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::nobody::{Home, as_nobody};
use testkit::process::Printing;
use testkit::{FILTERED, Need, policies, trial, without};

const NEEDS: &[Need] = &[Need::All(FILTERED), Need::Program("curl"), Need::Program("setpriv")];

pub fn trials() -> Vec<Trial> {
    let at_night = "the example of a database's client asks a PostgreSQL";
    [
        ("the example of a gateway brings a tunnel up", "gateway", runs as Run),
        ("the example of a connection reaches a host behind the peer", "connect", connects),
        ("the example of a server is reached from behind the peer", "serve", serves),
        ("the example of events tells that a tunnel is up", "events", tells),
        (
            "the example of a reverse proxy fetches a page through the tunnel",
            "reverse_proxy",
            proxies,
        ),
        (
            "the example of a responder is reached by another program",
            "responder",
            answers_a_program,
        ),
        ("the example of a responder that cannot start says why", "responder", says_why),
        ("the example of a database's client is answered through the tunnel", "postgres", asks),
        (at_night, "postgres", asks_a_postgresql),
    ]
    .map(|(title, name, run)| {
        trial(title, NEEDS, move || {
            let example = example(name);
            match example.exists() {
                true => run(&example),
                false => without("it is not built; cargo build --examples"),
            }
        })
        .with_ignored_flag(title == at_night)
    })
    .into()
}

/// Plays an example.
type Run = fn(&Path) -> Result<Completion, Failed>;

/// Where cargo puts an example.
fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_vpnd")).with_file_name("examples").join(name)
}

fn runs(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let mut running = start(&left, example, &[]);
    assert_eq!(running.line("site: "), "up");
    assert!(left.reaches(FAR));
    let lines = running.end_by(Signal::SIGINT);
    assert!(lines.ends_with("stopped\n"), "{lines}");
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}

fn connects(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let listener = right.space.run(|| TcpListener::bind((FAR, 0))).expect("free");
    let to = listener.local_addr().expect("bound").to_string();
    let echoing = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accepted");
        std::io::copy(&mut &stream, &mut &stream).expect("copied");
    });
    let mut command = Command::new(example);
    command.args(["tests/policies/site/left.xml", &to]);
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = left.space.run(move || command.spawn()).expect("it is built");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(b"through the tunnel").expect("written");
    drop(input);
    let output = process.wait_with_output().expect("a child of ours");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == b"through the tunnel", "{told}");
    assert!(told.contains("connected from 10.1.0.1:"), "{told}");
    echoing.join().expect("no panic");
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}

/// The arguments of curl for one page.
const CURL: [&str; 6] = ["--silent", "--show-error", "--noproxy", "*", "--max-time", "300"];

/// Starts an example on the left host.
fn start(left: &Side, example: &Path, arguments: &[&str]) -> Printing {
    let mut command = Command::new(example);
    command.arg("tests/policies/site/left.xml").args(arguments);
    // The sample is in the workspace's directory, above that of this package.
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    Printing::start(&left.space.0, command).expect("it is built")
}

fn curl(side: &Side, arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(CURL).args(arguments);
    let output = side.space.run(move || command.output()).expect("it is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn serves(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let mut running = start(&left, example, &["0.0.0.0:8080"]);
    assert_eq!(running.line("serving at "), "10.1.0.1, port 8080");
    let page = curl(&right, &["--interface", FAR, "http://10.1.0.1:8080/page"]);
    assert_eq!(page, format!("/page through the tunnel, {FAR}\n"));
    running.end_by(Signal::SIGINT);
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}

fn tells(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let peer = right.start(right.builder()).expect("started");
    let mut running = start(&left, example, &[]);
    let suite = running.line("site/site_lan: up, ");
    assert!(suite.contains("AES-GCM"), "{suite}");
    running.end_by(Signal::SIGINT);
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}

fn proxies(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let listener = right.space.run(|| TcpListener::bind((FAR, 0))).expect("free");
    let target = listener.local_addr().expect("bound").to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut octet = [0];
            stream.read_exact(&mut octet).expect("a request");
            head.extend(octet);
        }
        let page = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
        stream.write_all(page.as_bytes()).expect("written");
        String::from_utf8(head).expect("text")
    });
    let directory = tempfile::tempdir().expect("a directory");
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| directory.path().join(name));
    let made = rcgen::generate_simple_self_signed(["proxy.example".to_owned()]).expect("made");
    std::fs::write(&chain, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let [chain, key] = [&chain, &key].map(|path| path.to_str().expect("text"));
    let mut running = start(&left, example, &["127.0.0.1:0", chain, key, &target]);
    let at = running.line("https://127.0.0.1:");
    let (to, page) =
        (format!("proxy.example:{at}:127.0.0.1"), format!("https://proxy.example:{at}/a"));
    let page = curl(&left, &["--cacert", chain, "--resolve", &to, &page]);
    assert_eq!(page, "hello");
    let head = server.join().expect("no panic");
    assert!(head.starts_with("GET /a HTTP/1.1\r\n"), "{head}");
    running.end_by(Signal::SIGINT);
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}

/// A directory with a program and a policy that an ordinary user may read.
fn for_nobody(example: &Path, policy: &str) -> (Home, Command) {
    let home = Home::make();
    let program = home.copy(example, "example");
    let mut command = as_nobody("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).arg(home.write("policy.xml", policy));
    (home, command)
}

/// Two ordinary users, on two hosts and on one.
fn answers_a_program(responder: &Path) -> Result<Completion, Failed> {
    let connect = example("connect");
    if !connect.exists() {
        return without("an example is not built; cargo build --examples");
    }
    let on_one_host = policies::site().map(|policy| {
        let policy = policies::changed(&policy, "192.0.2.1\"", "127.0.0.2\"");
        policies::changed(&policy, "192.0.2.2\"", "127.0.0.3\"")
    });
    for (policies, there) in [(policies::site(), 1), (on_one_host, 0)] {
        let sides = Side::pair();
        let watch = sides[1].space.watch("wire");
        let (_home, mut command) = for_nobody(responder, &policies[0]);
        command.arg("0.0.0.0:8080");
        let mut running = Printing::start(&sides[0].space.0, command).expect("it is built");
        assert!(running.line("peers can begin at UDP ").ends_with(":4500"));
        let denied = running.line("  not at UDP ");
        assert!(denied.contains(":500: Permission denied"), "{denied}");
        let (_home, mut command) = for_nobody(&connect, &policies[1]);
        command.arg("10.1.0.1:8080");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = sides[there].space.run(move || command.spawn()).expect("it is built");
        let mut input = process.stdin.take().expect("it is piped");
        input.write_all(b"through the tunnel").expect("written");
        drop(input);
        let output = process.wait_with_output().expect("a child of ours");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"through the tunnel", "{told}");
        assert!(told.contains("connected from 10.2.0.1:"), "{told}");
        assert_eq!(running.line("connected from "), "10.2.0.1");
        running.end_by(Signal::SIGINT);
        watch.nothing_in_the_clear();
    }
    Ok(Completion::Completed)
}

/// An error that `main` returns is printed by its `Debug`.
fn says_why(responder: &Path) -> Result<Completion, Failed> {
    let [left, _right] = Side::pair();
    let holder = left.space.run(|| std::net::UdpSocket::bind("192.0.2.1:4500")).expect("free");
    let [valid, _] = policies::site();
    let invalid = policies::changed(&valid, "IKE_Role=\"Both\"", "IKE_Role=\"Neither\"");
    let taken = "cannot listen on UDP 192.0.2.1:4500: Address already in use (os error 98); ";
    for (policy, reason) in [(valid, taken), (invalid, "\npolicy refused: ")] {
        let (_home, mut command) = for_nobody(responder, &policy);
        command.args(["0.0.0.0:8080", "192.0.2.1"]);
        let output = left.space.run(move || command.output()).expect("it is built");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.starts_with("Error: "), "{told}");
        assert!(told.contains(reason), "{told}");
        // Neither names of types nor escaped lines.
        assert!(!told.contains(" { ") && !told.contains("\\n"), "{told}");
    }
    drop(holder);
    Ok(Completion::Completed)
}

/// A message of PostgreSQL's protocol, version 3: a letter, the length of the rest, the rest.
fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[letter][..], &length, body].concat()
}

/// Answers one query of a client with one row. Returns the query, and the connection, which the client ends.
fn answers(mut stream: TcpStream) -> (String, TcpStream) {
    let mut length = [0; 4];
    let mut read = |stream: &mut TcpStream| {
        stream.read_exact(&mut length).expect("a length");
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        stream.read_exact(&mut body).expect("a body");
        body
    };
    read(&mut stream);
    // AuthenticationOk; ReadyForQuery, idle.
    let ready = message(b'Z', b"I");
    stream.write_all(&[message(b'R', &[0; 4]), ready.clone()].concat()).expect("written");
    let mut letter = [0];
    stream.read_exact(&mut letter).expect("a query");
    assert_eq!(&letter, b"Q");
    let query = String::from_utf8(read(&mut stream)).expect("text");
    // RowDescription with one column of type text, DataRow, CommandComplete.
    let column =
        [&b"\0\x01number\0"[..], &[0; 6], &25_u32.to_be_bytes(), &[0xff; 6], &[0; 2]].concat();
    let row = [&b"\0\x01"[..], &2_u32.to_be_bytes(), b"42"].concat();
    let answer = [message(b'T', &column), message(b'D', &row), message(b'C', b"SELECT 1\0"), ready];
    stream.write_all(&answer.concat()).expect("written");
    (query, stream)
}

fn asks(example: &Path) -> Result<Completion, Failed> {
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    let listener = right.space.run(|| TcpListener::bind((FAR, 0))).expect("free");
    let to = listener.local_addr().expect("bound").to_string();
    let server = std::thread::spawn(move || answers(listener.accept().expect("accepted").0));
    let query = "SELECT count(*) FROM orders";
    let mut running = start(&left, example, &[&to, "user=reader dbname=orders", query]);
    assert_eq!(running.line("4"), "2");
    let (asked, connection) = server.join().expect("no panic");
    assert_eq!(asked, format!("{query}\0"));
    running.end();
    drop(connection);
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}

/// A server of Debian's package, which refuses to run as root.
struct PostgreSql {
    programs: PathBuf,
    /// The cluster, and the socket for programs of the same host.
    data: tempfile::TempDir,
    process: Option<Child>,
}

impl PostgreSql {
    /// `None`: none is installed.
    fn new() -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        let programs = versions.map(|entry| entry.path().join("bin")).max()?;
        let data = tempfile::tempdir().expect("a directory");
        Some(Self { programs, data, process: None })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        command.arg(self.programs.join(program)).arg("-D").arg(self.data.path().join("cluster"));
        command.current_dir(self.data.path());
        command
    }

    /// Answers `reader` of any host of the left network, without a password.
    fn start(&mut self, right: &Side) {
        let owner = nix::unistd::User::from_name("postgres").expect("readable").expect("a user");
        let data = self.data.path().to_owned();
        nix::unistd::chown(&data, Some(owner.uid), Some(owner.gid)).expect("given away");
        let mut make = self.command("initdb");
        make.args(["--auth=trust", "--username=reader", "--no-sync"]);
        testkit::output(make);
        let rules = "host all reader 10.1.0.0/24 trust\n";
        std::fs::write(data.join("cluster/pg_hba.conf"), rules).expect("written");
        let mut serve = self.command("postgres");
        serve.args(["-c", &format!("listen_addresses={FAR}"), "-c", "fsync=off", "-k"]);
        serve.arg(&data).stderr(Stdio::piped());
        let mut process = right.space.run(move || serve.spawn()).expect("it is installed");
        let mut told = BufReader::new(process.stderr.take().expect("it is piped")).lines();
        self.process = Some(process);
        let ready = |line: std::io::Result<String>| {
            line.expect("text").contains("is ready to accept connections")
        };
        assert!(told.any(ready), "PostgreSQL has not started");
        // It goes on to write.
        std::thread::spawn(move || told.for_each(drop));
    }
}

impl Drop for PostgreSql {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let id = Pid::from_raw(i32::try_from(process.id()).expect("an id"));
        // It ends at once, and its helpers with it.
        if kill(id, Signal::SIGQUIT).is_ok() {
            let _ = process.wait();
        }
    }
}

fn asks_a_postgresql(example: &Path) -> Result<Completion, Failed> {
    let Some(mut server) = PostgreSql::new() else {
        return without("PostgreSQL is not installed; apt install postgresql");
    };
    let [left, right] = Side::pair();
    let watch = right.space.watch("wire");
    let peer = right.start(right.builder()).expect("started");
    server.start(&right);
    let to = format!("{FAR}:5432");
    // Rows of several megabytes, whose sum the server knows.
    let query = "CREATE TABLE orders AS SELECT n, repeat(n::text, 1000) AS text FROM generate_series(1, 2000) AS n; \
                 SELECT text FROM orders; SELECT sum(n) FROM orders";
    let rows = start(&left, example, &[&to, "user=reader dbname=postgres", query]).end();
    let rows: Vec<&str> = rows.lines().collect();
    assert_eq!((rows.len(), rows[2000]), (2001, "2001000"));
    assert!(rows[..2000].iter().zip(1..).all(|(row, n)| *row == n.to_string().repeat(1000)));
    watch.nothing_in_the_clear();
    right.run(async move { peer.stop().await });
    Ok(Completion::Completed)
}
