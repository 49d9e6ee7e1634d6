//! A web server of a partner's network, for clients here over TLS: hyper and rustls, as an ordinary user.
//!
//! `cargo run --example reverse_proxy -- policy.xml 127.0.0.1:8443 chain.pem key.pem 10.2.0.7:80`: requests that arrive
//! over TLS go through the tunnel that covers the last address. Control-C stops it.

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, UPGRADE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, client, server};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use vpn::Gateway;
use vpn::net::Network;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, at, chain, key, target] = &arguments[..] else {
        return Err("usage: reverse_proxy POLICY ADDRESS:PORT CHAIN KEY TARGET:PORT".into());
    };
    let text = std::fs::read_to_string(path)?;
    let loaded = vpn::policy::xml::read(path, &text).map_err(|errors| errors.to_string())?;
    let chain = CertificateDer::pem_file_iter(chain)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
    let tls = TlsAcceptor::from(Arc::new(tls));

    let (gateway, network) = Gateway::builder(loaded.policy).in_process().start().await?;
    let listener = TcpListener::bind(at).await?;
    println!("https://{}", listener.local_addr()?);
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, client) = accepted?;
                let (tls, network, target) = (tls.clone(), network.clone(), target.clone());
                tokio::spawn(async move {
                    let served = async { serve(tls.accept(stream).await?, network, target).await };
                    if let Err(error) = served.await {
                        eprintln!("{client}: {error}");
                    }
                });
            }
            _ = interrupt.recv() => break,
        }
    }
    gateway.stop().await;
    Ok(())
}

type Failure = Box<dyn Error + Send + Sync>;

/// Serves a client until it or the server ends the connection.
async fn serve(
    stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>,
    network: Network,
    target: String,
) -> Result<(), Failure> {
    let answer = |request| async {
        Ok::<_, Infallible>(match forward(request, &network, &target).await {
            Ok(response) => response.map(Either::Left),
            Err(error) => {
                let mut response =
                    Response::new(Either::Right(Full::<Bytes>::from(format!("{error}\n"))));
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            }
        })
    };
    let connection = server::conn::http1::Builder::new();
    connection.serve_connection(TokioIo::new(stream), service_fn(answer)).await?;
    Ok(())
}

/// Sends a request through the tunnel, and returns the answer while its body still arrives.
async fn forward(
    mut request: Request<Incoming>,
    network: &Network,
    target: &str,
) -> Result<Response<Incoming>, Failure> {
    // These are about one connection, not about the way to the target.
    for name in [CONNECTION, UPGRADE] {
        request.headers_mut().remove(name);
    }
    let stream = network.connect(target).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}
