//! `vpnd proxy` of an ordinary user, beside a `vpnd` on the same host that has no tunnel up.

use crate::setup::{CONNECTION, Setup};
use crate::world::World;
use crate::{Scenario, scenario};
use nix::unistd::chown;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use testkit::{NOBODY, eventually};

pub fn all() -> Vec<Scenario> {
    vec![scenario("proxy::curl", Setup::default(), |world| {
        let mut proxy = Proxy::start(world);
        let port = serve(world);
        let to = format!("http://{}:{port}/", world.setup.inner()[1]);
        proxy.fetches(world, &["--socks5-hostname", &proxy.address.clone(), &to]);
        let http = format!("http://{}", proxy.address);
        proxy.fetches(world, &["--proxytunnel", "--proxy", &http, &to]);
        // strongSwan renews the keys of both.
        let rekeyed = |what: &[&str]| world.charon.swanctl(what).expect("it is up");
        rekeyed(&["--rekey", "--child", CONNECTION]);
        rekeyed(&["--rekey", "--ike", CONNECTION]);
        proxy.fetches(world, &["--socks5", &proxy.address.clone(), &to]);
        proxy.process.kill().expect("ours");
        proxy.process.wait().expect("ours");
        world.assert_nothing_in_the_clear();
    })]
}

struct Proxy {
    process: Child,
    address: String,
    _directory: tempfile::TempDir,
}

fn megabyte() -> Vec<u8> {
    (0..1_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A server of HTTP behind strongSwan.
fn serve(world: &World) -> u16 {
    let address = world.setup.inner()[1];
    let listener = world.charon.space.run(move || TcpListener::bind((address, 0))).expect("free");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
            while request.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = "HTTP/1.0 200 OK\r\nContent-Length: 1000000\r\n\r\n";
            let _ = stream.write_all(&[head.as_bytes(), &megabyte()].concat());
        }
    });
    port
}

impl Proxy {
    fn start(world: &World) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [program, policy, config] =
            ["vpnd", "policy.xml", "vpnd.toml"].map(|name| directory.path().join(name));
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_vpnd")).arg(&program).status();
        assert!(copied.is_ok_and(|status| status.success()));
        fs::write(&policy, world.setup.policy()).expect("writable");
        fs::set_permissions(&policy, Permissions::from_mode(0o600)).expect("ours");
        chown(&policy, Some(NOBODY.into()), Some(NOBODY.into())).expect("given away");
        fs::write(&config, "[ike]\nretransmit_after = \"500ms\"\nretransmissions = 8\n")
            .expect("writable");
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).expect("ours");
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"])
            .arg(program)
            .args(["proxy", "--exit-with-parent", "--listen", "127.0.0.1:0", "--policy"])
            .arg(policy)
            .arg("--config")
            .arg(config)
            .args(["--address", &world.setup.inner()[0].to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = world.vpnd.space.run(move || command.spawn()).expect("setpriv is there");
        let mut line = String::new();
        let printed = process.stdout.take().expect("it is piped");
        BufReader::new(printed).read_line(&mut line).expect("text");
        let address = line.strip_prefix("ready: SOCKS5 and HTTP CONNECT on ");
        let address = address.unwrap_or_else(|| panic!("{line:?}")).trim().to_owned();
        Self { process, address, _directory: directory }
    }

    /// curl gets every octet.
    fn fetches(&self, world: &World, arguments: &[&str]) {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "120"]).args(arguments);
        command.stdout(Stdio::piped());
        let mut curl = world.vpnd.space.run(move || command.spawn()).expect("curl is there");
        let mut body = Vec::new();
        curl.stdout.take().expect("it is piped").read_to_end(&mut body).expect("octets");
        let ended = eventually("curl ends", || curl.try_wait().expect("a child of ours"));
        assert!(ended.success() && body == megabyte(), "{ended}: {} octets", body.len());
    }
}
