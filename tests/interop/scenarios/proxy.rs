//! `vpnd proxy` of an ordinary user, beside a `vpnd` on the same host that has no tunnel up.

use crate::setup::{CONNECTION, Setup};
use crate::world::World;
use crate::{Scenario, scenario};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::eventually;
use testkit::nobody::{Home, as_nobody};
use testkit::process::Printing;

pub fn all() -> Vec<Scenario> {
    vec![scenario("proxy::curl", Setup::default(), |world| {
        let proxy = Proxy::start(world);
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
        drop(proxy);
        world.assert_nothing_in_the_clear();
    })]
}

struct Proxy {
    _printing: Printing,
    address: String,
    _home: Home,
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
        let home = Home::make();
        let program = home.copy(Path::new(env!("CARGO_BIN_EXE_vpnd")), "vpnd");
        let policy = home.write("policy.xml", &world.setup.policy());
        let config =
            home.write("vpnd.toml", "[ike]\nretransmit_after = \"500ms\"\nretransmissions = 8\n");
        let mut command = as_nobody(program);
        command
            .args(["proxy", "--exit-with-parent", "--listen", "127.0.0.1:0", "--policy"])
            .arg(policy)
            .arg("--config")
            .arg(config)
            .args(["--address", &world.setup.inner()[0].to_string()]);
        let started = Printing::start(&world.vpnd.space.0, command);
        let mut printing = started.expect("setpriv is there");
        let address = printing.line("ready: SOCKS5 and HTTP CONNECT on ");
        Self { _printing: printing, address, _home: home }
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
