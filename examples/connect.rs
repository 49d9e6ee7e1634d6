//! A connection through a tunnel, as an ordinary user: `cargo run --example connect -- policy.xml 10.2.0.7:80`.
//!
//! Standard input goes to the peer, and its answer to standard output. No device, no route and no privilege is needed.

use std::error::Error;
use tokio::io::AsyncWriteExt;
use vpn::Gateway;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: connect POLICY ADDRESS:PORT";
    let (path, to) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let text = std::fs::read_to_string(&path)?;
    let loaded = vpn::policy::xml::read(&path, &text)?;

    let (gateway, network) = Gateway::builder(loaded.policy).in_process().start().await?;
    // This starts the tunnel that covers the address.
    let stream = network.connect(&to).await?;
    eprintln!("connected from {} to {}", stream.local_addr(), stream.peer_addr());

    let (mut reader, mut writer) = stream.into_split();
    let sending = async {
        tokio::io::copy(&mut tokio::io::stdin(), &mut writer).await?;
        writer.shutdown().await
    };
    let receiving = async {
        let mut output = tokio::io::stdout();
        tokio::io::copy(&mut reader, &mut output).await?;
        output.flush().await
    };
    tokio::try_join!(sending, receiving)?;
    gateway.stop().await;
    Ok(())
}
