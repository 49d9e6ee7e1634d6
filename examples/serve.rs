//! A web server behind a tunnel, as an ordinary user: `cargo run --example serve -- policy.xml 0.0.0.0:8080`.
//!
//! Hosts behind the peers reach it at this side's address in the tunnel; no other host does. Control-C stops it.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use tokio::signal::unix::{SignalKind, signal};
use vpn::net::TcpStream;
use vpn::{Gateway, Selection};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: serve POLICY ADDRESS:PORT";
    let (path, at) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let text = std::fs::read_to_string(&path)?;
    let loaded = vpn::policy::xml::read(&path, &text)?;

    let (gateway, network) = Gateway::builder(loaded.policy).in_process().start().await?;
    let listener = network.listen(at.parse()?)?;
    // Tunnels that only the peer may start come up when it does.
    for tunnel in gateway.tunnels().activate(Selection::All).await? {
        match tunnel.outcome {
            Ok(()) => println!("{}: up", tunnel.name),
            Err(failure) => eprintln!("{}: {failure}", tunnel.name),
        }
    }
    for address in network.addresses() {
        println!("serving at {address}, port {}", listener.local_addr().port());
    }
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, from) = accepted?;
                tokio::spawn(serve(stream, from));
            }
            _ = interrupt.recv() => break,
        }
    }
    gateway.stop().await;
    Ok(())
}

/// Answers the requests of a connection.
async fn serve(stream: TcpStream, from: SocketAddr) {
    let answer = |request: Request<Incoming>| async move {
        let text = format!("{} through the tunnel, {}\n", request.uri().path(), from.ip());
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
    };
    let connection =
        http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
    if let Err(error) = connection.await {
        eprintln!("{from}: {error}");
    }
}
