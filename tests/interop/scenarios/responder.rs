//! The example `responder` of an ordinary user in the place of `vpnd`: strongSwan begins.

use crate::setup::{CONNECTION, Setup};
use crate::world::World;
use crate::{Scenario, scenario};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use testkit::nobody::{Home, as_nobody};
use testkit::process::Printing;

/// Where cargo puts the example.
pub fn example() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_vpnd")).with_file_name("examples/responder")
}

const PORT: u16 = 8080;

pub fn all() -> Vec<Scenario> {
    // From port 500, strongSwan sends no non-ESP marker (RFC 7296 §3.1).
    let ports = "local_port = 4500\n    remote_port = 4500";
    let on_4500 = Setup { charon_connection: ports, ..Setup::default() };
    vec![
        scenario("responder::on_port_4500", on_4500, |world| {
            let mut responder = Responder::start(world);
            let listening = responder.line("peers can begin at UDP ");
            assert!(listening.ends_with(":4500"), "{listening}");
            assert!(responder.line("  not at UDP ").contains(":500: Permission denied"));
            is_reached(world, &mut responder);
        }),
        scenario("responder::on_port_500", Setup::default(), |world| {
            let setting = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
            world.vpnd.space.run(move || fs::write(setting, "500")).expect("a setting of Linux");
            let mut responder = Responder::start(world);
            let listening = responder.line("peers can begin at UDP ");
            assert!(listening.contains(":4500, ") && listening.ends_with(":500"), "{listening}");
            is_reached(world, &mut responder);
        }),
    ]
}

/// strongSwan begins, sends octets through the tunnel, and renews all keys.
fn is_reached(world: &mut World, responder: &mut Responder) {
    world.charon.initiate().expect("strongSwan brings it up");
    assert_eq!(world.charon.counts(), (1, 1));
    send_back(world);
    let rekeyed = |what: &[&str]| world.charon.swanctl(what).expect("it is up");
    rekeyed(&["--rekey", "--child", CONNECTION]);
    rekeyed(&["--rekey", "--ike", CONNECTION]);
    send_back(world);
    assert_eq!(responder.line("connected from "), world.setup.inner()[1].to_string());
    world.assert_nothing_in_the_clear();
}

fn send_back(world: &World) {
    let [to, from] = world.setup.inner();
    let (to, from) = (SocketAddr::new(to, PORT), SocketAddr::new(from, 0));
    let sent: Vec<u8> =
        (0..1_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let back = world.charon.space.run({
        let sent = sent.clone();
        move || {
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
            bind(&socket, &from).expect("an address of this host");
            connect(&socket, &to).expect("connected");
            let mut stream = TcpStream::from(socket);
            let mut writer = stream.try_clone().expect("a descriptor");
            let writing = std::thread::spawn(move || {
                writer.write_all(&sent).expect("written");
                writer.shutdown(Shutdown::Write).expect("shut down");
            });
            let mut back = Vec::new();
            stream.read_to_end(&mut back).expect("read");
            writing.join().expect("no panic");
            back
        }
    });
    assert!(back == sent, "{} octets", back.len());
}

/// The running example.
struct Responder {
    printing: Printing,
    _home: Home,
}

impl Responder {
    /// Starts it once `vpnd` has ended.
    fn start(world: &mut World) -> Self {
        world.vpnd.stop();
        let home = Home::make();
        let program = home.copy(&example(), "responder");
        let policy = home.write("policy.xml", &world.setup.policy());
        let mut command = as_nobody("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).arg(policy);
        command.arg(format!("0.0.0.0:{PORT}"));
        let started = Printing::start(&world.vpnd.space.0, command);
        Self { printing: started.expect("setpriv is there"), _home: home }
    }

    /// The rest of the next line that begins so.
    fn line(&mut self, start: &str) -> String {
        self.printing.line(start)
    }
}
