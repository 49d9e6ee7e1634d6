//! A question to a PostgreSQL server of a partner's network, as an ordinary user.
//!
//! `cargo run --example postgres -- policy.xml 10.2.0.7:5432 'user=reader dbname=orders' 'SELECT count(*) FROM orders'`

use std::error::Error;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};
use vpn::Gateway;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, server, parameters, question] = &arguments[..] else {
        return Err("usage: postgres POLICY ADDRESS:PORT PARAMETERS QUERY".into());
    };
    let text = std::fs::read_to_string(path)?;
    let loaded = vpn::policy::xml::read(path, &text).map_err(|errors| errors.to_string())?;
    let config: Config = parameters.parse()?;

    let (gateway, network) = Gateway::builder(loaded.policy).in_process().start().await?;
    // The tunnel protects the connection; NoTls leaves out a second protection inside of it.
    let stream = network.connect(server).await?;
    let (client, connection) = config.connect_raw(stream, NoTls).await?;
    let connection = tokio::spawn(connection);
    for message in client.simple_query(question).await? {
        if let SimpleQueryMessage::Row(row) = message {
            let cells = (0..row.len()).map(|column| row.get(column).unwrap_or("NULL"));
            println!("{}", cells.collect::<Vec<_>>().join("\t"));
        }
    }
    // The connection ends when its client is gone.
    drop(client);
    connection.await??;
    gateway.stop().await;
    Ok(())
}
