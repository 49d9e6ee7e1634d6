//! The life of the tunnels of a policy, as an ordinary user: `cargo run --example events -- policy.xml`.
//!
//! It prints every event, and every ten seconds how much each Child SA has carried. Control-C stops it.

use futures_util::StreamExt;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;
use vpn::{Gateway, Selection};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let path = std::env::args().nth(1).ok_or("usage: events POLICY")?;
    let text = std::fs::read_to_string(&path)?;
    let loaded = vpn::policy::xml::read(&path, &text)?;

    let builder = Gateway::builder(loaded.policy).in_process();
    // From the first event on.
    let mut events = pin!(builder.subscribe().into_stream());
    let (gateway, _network) = builder.start().await?;
    gateway.tunnels().start_activate(Selection::All).await?;
    let mut look = interval(Duration::from_secs(10));
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => println!("{event}"),
                None => return Err(gateway.closed().await.to_string().into()),
            },
            _ = look.tick() => {
                for tunnel in gateway.tunnels().status().await? {
                    for child in tunnel.children {
                        if let Some(sa) = child.sa {
                            println!("{}: {} octets in, {} out", child.name, sa.bytes_in, sa.bytes_out);
                        }
                    }
                }
            }
            _ = interrupt.recv() => break,
        }
    }
    gateway.stop().await;
    Ok(())
}
