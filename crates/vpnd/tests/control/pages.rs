//! All tunnels a page at a time, over the socket of a daemon.

use crate::running;
use control::client::{Client, ClientError, Pages};
use control::protocol::{Command, RefusalCode, Reply, Tunnel, TunnelPage};
use policy::xml::Definitions;
use policy::{ChildTunnel, Policy, Secret};
use std::sync::Arc;
use vpn::MemoryGateway;
use vpnd::certificates::Keeper;
use vpnd::config::Log;
use vpnd::daemon::{self, Daemon};

/// A policy whose tunnels have so many phase 2 tunnels each.
fn policy(children: &[usize]) -> Arc<Policy> {
    let site = Policy::site_to_site("site")
        .local("192.0.2.1")
        .remote("192.0.2.2")
        .psk(Secret::new(b"secret".to_vec()))
        .protect("10.1.0.0/24", "10.2.0.0/24")
        .build()
        .expect("a good description");
    let tunnels = children.iter().enumerate().map(|(number, count)| {
        let mut tunnel = (*site.tunnels[0]).clone();
        let child = (*tunnel.children[0]).clone();
        tunnel.name = format!("site{number}");
        let named = |child_number| ChildTunnel {
            name: format!("net{number}-{child_number}"),
            ..child.clone()
        };
        tunnel.children = (0..*count).map(|number| Arc::new(named(number))).collect();
        Arc::new(tunnel)
    });
    Arc::new(Policy { tunnels: tunnels.collect() })
}

fn page(client: &mut Client, all: bool, after: Option<String>, count: u32) -> TunnelPage {
    match client.ask(Command::ListPage { all, after, count }) {
        Ok(Reply::TunnelPage(page)) => page,
        answer => panic!("{answer:?}"),
    }
}

fn refused(client: &mut Client, after: &str) -> RefusalCode {
    let after = Some(after.to_owned());
    match client.ask(Command::ListPage { all: true, after, count: 1 }) {
        Err(ClientError::Refused(refusal)) => refusal.code,
        answer => panic!("{answer:?}"),
    }
}

/// The names of tunnels with those of their phase 2 tunnels.
fn names(tunnels: &[Tunnel]) -> Vec<(&str, Vec<&str>)> {
    assert!(tunnels.iter().all(|tunnel| tunnel.number > 0));
    let named = tunnels.iter().map(|tunnel| {
        let children = tunnel.children.iter().map(|child| &*child.name);
        (&*tunnel.name, children.collect())
    });
    named.collect()
}

#[test]
fn tunnels_are_listed_a_page_at_a_time() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let in_force = policy(&[1, 0, 1300, 2]);
    let memory = MemoryGateway::new(Arc::clone(&in_force));
    let levels = daemon::start_log(&Log::default());
    let file = directory.path().join("policy.xml");
    let daemon = Daemon::new(memory.gateway().clone(), file, Arc::new(Keeper::default()), levels)
        .with_policy(in_force, Definitions::default());
    let socket = directory.path().join("control.sock");
    let thread = running::start(daemon, socket.clone());
    let mut client = Client::connect(&socket).expect("the daemon listens");

    // A page may end within a tunnel.
    let first = page(&mut client, true, None, 4);
    let told = names(&first.tunnels);
    assert_eq!(told[0], ("site0", vec!["net0-0"]));
    assert_eq!(told[1], ("site1", vec![]));
    assert_eq!(told[2], ("site2", vec!["net2-0", "net2-1"]));
    let second = page(&mut client, true, first.next.clone(), u32::MAX);
    assert_eq!(second.tunnels.len(), 1, "the longest page ends within the same tunnel");
    assert_eq!(second.tunnels[0].children.len(), 1000);
    assert_eq!(second.tunnels[0].children[0].name, "net2-2");
    let third = page(&mut client, true, second.next, u32::MAX);
    assert_eq!(names(&third.tunnels)[1], ("site3", vec!["net3-0", "net3-1"]));
    assert_eq!((third.tunnels[0].children.len(), third.next), (298, None));

    // All pages together are the list.
    let Ok(Reply::Tunnels(list)) = client.ask(Command::List { all: true }) else {
        panic!("no list")
    };
    assert_eq!(client.tunnels(true).expect("it is told"), list);
    assert!(list.iter().flat_map(|tunnel| &tunnel.children).all(|child| child.number > 0));

    // Tunnels that are down are left out, however many lie before one that is up.
    let mut pages = Pages::new(false);
    let none = pages.read(&mut client).expect("an answer").expect("a page");
    assert!(none.tunnels.is_empty() && pages.is_at_end());
    client.ask(Command::Activate { names: vec!["site3".to_owned()] }).expect("it comes up");
    let up = page(&mut client, false, None, 1);
    assert_eq!(names(&up.tunnels), [("site3", vec!["net3-0"])]);
    let rest = page(&mut client, false, up.next, 1);
    assert_eq!(names(&rest.tunnels), [("site3", vec!["net3-1"])]);

    // No page joins tunnels of two policies.
    let place = first.next.expect("further tunnels");
    assert_eq!(refused(&mut client, "nowhere"), RefusalCode::BadRequest);
    assert!(matches!(
        client.ask(Command::ListPage { all: true, after: Some(place.clone()), count: 1 }),
        Ok(Reply::TunnelPage(_))
    ));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let replaced = memory.gateway().replace_policy(policy(&[0, 5]));
    runtime.block_on(replaced).expect("it is valid");
    assert_eq!(refused(&mut client, &place), RefusalCode::Outdated);
    let tunnels = client.tunnels(true).expect("it is told");
    let sizes: Vec<_> = tunnels.iter().map(|tunnel| tunnel.children.len()).collect();
    assert_eq!(sizes, [0, 5]);
    assert_eq!(refused(&mut client, &place), RefusalCode::Outdated);

    client.ask(Command::Stop { keep_guard: false }).expect("it stops");
    thread.join().expect("no panic");
}
