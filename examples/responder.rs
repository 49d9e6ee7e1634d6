//! A gateway that waits for its peers, as an ordinary user: `cargo run --example responder -- policy.xml 0.0.0.0:8080`.
//!
//! It sends every connection of theirs back what it gets. Further arguments are the addresses of this host at which the
//! peers begin; by default the policy names them. The example `connect` is such a peer, and so is a strongSwan whose
//! connection has `remote_port = 4500`. Control-C stops it.

use std::error::Error;
use std::net::IpAddr;
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{SignalKind, signal};
use vpn::Gateway;
use vpn::net::TcpStream;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: responder POLICY ADDRESS:PORT [ADDRESS ...]";
    let (path, at) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let addresses = arguments.map(|a| a.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
    let text = std::fs::read_to_string(&path)?;
    let loaded = vpn::policy::xml::read(&path, &text)?;

    let mut builder = Gateway::builder(loaded.policy).in_process();
    if !addresses.is_empty() {
        // With addresses of its own choice, the start fails if the port is taken.
        builder = builder.listen(addresses);
    }
    let mut events = builder.subscribe();
    let (gateway, network) = builder.start().await?;
    let listener = network.listen(at.parse()?)?;
    if let Some(listening) = gateway.listening() {
        println!("{listening}");
    }
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, from) = accepted?;
                println!("connected from {}", from.ip());
                tokio::spawn(send_back(stream));
            }
            event = events.recv() => match event {
                Some(event) => println!("{event}"),
                None => return Err(gateway.closed().await.to_string().into()),
            },
            _ = interrupt.recv() => break,
        }
    }
    gateway.stop().await;
    Ok(())
}

/// Sends a connection back what it gets.
async fn send_back(stream: TcpStream) {
    let from = stream.peer_addr();
    let (mut reader, mut writer) = stream.into_split();
    let copied = async {
        tokio::io::copy(&mut reader, &mut writer).await?;
        writer.shutdown().await
    };
    if let Err(error) = copied.await {
        eprintln!("{from}: {error}");
    }
}
