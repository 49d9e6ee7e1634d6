//! A gateway in thirty lines: `cargo run --example gateway -- policy.xml`, as root. Control-C stops it.

use std::error::Error;
use tokio::signal::unix::{SignalKind, signal};
use vpn::{Gateway, Selection};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let path = std::env::args().nth(1).ok_or("usage: gateway POLICY")?;
    let text = std::fs::read_to_string(&path)?;
    let loaded = vpn::policy::xml::read(&path, &text)?;

    let builder = Gateway::builder(loaded.policy);
    let mut events = builder.subscribe();
    let gateway = builder.start().await?;
    println!("started");

    for tunnel in gateway.tunnels().activate(Selection::All).await? {
        match tunnel.outcome {
            Ok(()) => println!("{}: up", tunnel.name),
            Err(failure) => println!("{}: {failure}", tunnel.name),
        }
    }
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => println!("{event}"),
                None => return Err(gateway.closed().await.to_string().into()),
            },
            _ = interrupt.recv() => break,
        }
    }
    gateway.stop().await;
    println!("stopped");
    Ok(())
}
