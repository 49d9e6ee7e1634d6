//! Questions and commands for one tunnel look at one tunnel, however many there are: the gateway gives no page of its
//! tunnels here.

use crate::running;
use control::client::{Client, ClientError};
use control::protocol::{Command, Reply, Tunnel};
use std::sync::Arc;
use vpn::MemoryGateway;
use vpnd::certificates::Keeper;
use vpnd::config::Log;
use vpnd::daemon::{self, Daemon};

const SAMPLE: &str = include_str!("../../../../tests/policies/site/left.xml");

fn status(client: &mut Client, name: &str) -> Tunnel {
    match client.ask(Command::Status { name: name.to_owned() }) {
        Ok(Reply::Tunnels(mut tunnels)) if tunnels.len() == 1 => tunnels.remove(0),
        answer => panic!("{answer:?}"),
    }
}

fn refused(client: &mut Client, command: Command) -> String {
    match client.ask(command) {
        Err(ClientError::Refused(refusal)) => refusal.message,
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn a_question_about_one_tunnel_reads_no_other() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let loaded = policy::xml::read("left.xml", SAMPLE).expect("the sample is valid");
    let policy = Arc::new(loaded.policy);
    let memory = MemoryGateway::new(Arc::clone(&policy));
    let levels = daemon::start_log(&Log::default());
    let file = directory.path().join("policy.xml");
    let daemon = Daemon::new(memory.gateway().clone(), file, Arc::new(Keeper::default()), levels)
        .with_policy(policy, loaded.definitions);
    let socket = directory.path().join("control.sock");
    let thread = running::start(daemon, socket.clone());
    let mut client = Client::connect(&socket).expect("the daemon listens");
    memory.keep_pages();

    client.ask(Command::Activate { names: vec!["site".to_owned()] }).expect("it comes up");
    for name in ["site", "site_lan"] {
        let tunnel = status(&mut client, name);
        assert_eq!((&*tunnel.name, tunnel.number), ("site", 1));
        let settings = tunnel.policy.expect("the policy's");
        assert_eq!(settings.protection.as_deref(), Some("site_p1"));
        let [child] = &tunnel.children[..] else { panic!("{:?}", tunnel.children) };
        assert_eq!((&*child.name, child.number), ("site_lan", 1));
        let settings = child.policy.as_ref().expect("the policy's");
        assert_eq!(settings.protection.as_deref(), Some("site_p2"));
    }
    let Ok(Reply::Why(why)) = client.ask(Command::Why { name: "site_lan".to_owned() }) else {
        panic!("no explanation")
    };
    assert_eq!(why.children[0].defined[0].file, "left.xml");
    let name = || "site_lam".to_owned();
    for command in [
        Command::Status { name: name() },
        Command::Why { name: name() },
        Command::Rekey { name: name() },
        Command::Deactivate { name: name() },
        Command::Activate { names: vec![name()] },
        Command::Events { names: vec![name()] },
    ] {
        let message = refused(&mut client, command);
        assert!(message.contains("did you mean \"site_lan\"?"), "{message}");
    }
    client.ask(Command::Stop { keep_guard: false }).expect("it stops");
    thread.join().expect("no panic");
}
