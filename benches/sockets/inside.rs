//! A gateway inside of this process, which is started by the bench on the left host.

use crate::ends::{Clients, Traffic};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;
use vpn::Gateway;

/// The server, and the traffic of the clients.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    policy: PathBuf,
    target: String,
    traffic: Traffic,
    number: usize,
    /// Seconds in which the connections have to come about.
    patience: u64,
}

/// Opens the connections and writes their number. A line of standard input begins the traffic. After one more line, it
/// writes the median of the round trips.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let Arguments { policy, target, traffic, number, patience } = arguments;
        let name = policy.display().to_string();
        let text = std::fs::read_to_string(policy).map_err(|error| format!("{name}: {error}"))?;
        let loaded = policy::xml::read(&name, &text).map_err(|errors| errors.to_string())?;
        let starting = Gateway::builder(loaded.policy).in_process().start();
        let (gateway, network) = starting.await.map_err(|error| error.to_string())?;
        let connect = || {
            let (network, target) = (network.clone(), target.clone());
            async move {
                let stream = network.connect(&target).await.map_err(|error| error.to_string())?;
                stream.set_nodelay(true);
                Ok(stream)
            }
        };
        let patience = Duration::from_secs(*patience);
        let mut clients = Clients::open(*number, *traffic, patience, connect).await?;
        say(clients.number())?;
        hear().await?;
        clients.start();
        hear().await?;
        say(crate::median(&clients.trips()).as_nanos())?;
        gateway.stop().await;
        Ok(())
    })
}

fn say(figure: impl std::fmt::Display) -> Result<(), String> {
    println!("{figure}");
    std::io::stdout().flush().map_err(|error| error.to_string())
}

/// Waits for a line.
async fn hear() -> Result<(), String> {
    let line = tokio::task::spawn_blocking(|| std::io::stdin().lock().lines().next());
    line.await.map(drop).map_err(|error| error.to_string())
}
