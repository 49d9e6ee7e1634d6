//! A gateway inside of this process, which is started by the bench on the left host.

use crate::ends::{Clients, Traffic};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use vpn::Gateway;

/// Where the clients are, what they do, and how many.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    policy: PathBuf,
    target: String,
    traffic: Traffic,
    number: usize,
}

/// Opens the connections, says so in a line, and writes the median of the round trips once standard input has a line.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let Arguments { policy, target, traffic, number } = arguments;
        let name = policy.display().to_string();
        let text = std::fs::read_to_string(policy).map_err(|error| format!("{name}: {error}"))?;
        let loaded = policy::xml::read(&name, &text).map_err(|errors| errors.to_string())?;
        let starting = Gateway::builder(loaded.policy).in_process().start();
        let (gateway, network) = starting.await.map_err(|error| error.to_string())?;
        let connect = async || {
            let stream = network.connect(target).await.map_err(|error| error.to_string())?;
            stream.set_nodelay(true);
            Ok(stream)
        };
        let clients = Clients::open(*number, *traffic, connect).await?;
        println!("open");
        std::io::stdout().flush().map_err(|error| error.to_string())?;
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lock().lines().next());
        line.await.map_err(|error| error.to_string())?;
        println!("{}", crate::median(&clients.trips()).as_nanos());
        gateway.stop().await;
        Ok(())
    })
}
