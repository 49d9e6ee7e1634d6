//! Follows a running `vpnd`: prints its tunnels once, and then every event as it happens.
//!
//! ```text
//! cargo run -p vpn-control --example monitor -- /run/vpnd/control.sock
//! ```

use control::client::{Client, ClientError};
use control::protocol::{Command, DEFAULT_SOCKET, Reply};
use control::quantity::{bytes, duration};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let socket = std::env::args_os().nth(1).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from);
    match follow(&socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("monitor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn follow(socket: &Path) -> Result<(), ClientError> {
    // Events first, on a connection of their own: nothing that happens while the tunnels are listed is missed.
    let mut events = Client::connect(socket)?;
    let reply = events.ask(Command::Events { names: Vec::new() })?;
    if reply != Reply::Done {
        return Err(events.unexpected(&reply));
    }
    list(&mut Client::connect(socket)?)?;
    while let Some(event) = events.next_event()? {
        let child = event.child.map(|child| format!("/{child}")).unwrap_or_default();
        println!("{}  {}{child}: {}", event.time, event.tunnel, event.message);
    }
    println!("vpnd has stopped");
    Ok(())
}

fn list(client: &mut Client) -> Result<(), ClientError> {
    let tunnels = match client.ask(Command::List { all: true })? {
        Reply::Tunnels(tunnels) => tunnels,
        reply => return Err(client.unexpected(&reply)),
    };
    for tunnel in tunnels {
        println!("{}: {}", tunnel.name, tunnel.state);
        for child in tunnel.children {
            let carried = child.child_sa.map_or_else(String::new, |sa| {
                let age = duration(Duration::from_secs(sa.established_seconds));
                format!(", {} in, {} out, up for {age}", bytes(sa.bytes_in), bytes(sa.bytes_out))
            });
            println!("  {}: {}{carried}", child.name, child.state);
        }
    }
    Ok(())
}
