//! Traffic between two namespaces: streams of TCP, requests with their responses, and datagrams at a size and a rate.
//! Generator and sink are threads of this process inside the namespaces; nothing else needs to be installed.

pub mod datagrams;
pub mod processor;
pub mod streams;
pub mod transactions;

use namespaces::isolation::Namespace;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

/// The longest time for a connection, and for an octet that is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// An end of traffic: a namespace and an address there.
#[derive(Clone, Copy)]
pub struct End<'a> {
    /// The namespace of this end.
    pub space: &'a Namespace,
    /// Its address; unspecified: whichever the route prefers.
    pub address: Ipv4Addr,
}

impl End<'_> {
    /// Does something in a new thread inside, which may run where the threads of the namespace may.
    fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.space.run(move || std::thread::spawn(work))
    }
}

fn connect(source: Ipv4Addr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind(&SockAddr::from(SocketAddrV4::new(source, 0)))?;
    socket.connect_timeout(&target.into(), PATIENCE)?;
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn failed(error: io::Error) -> String {
    format!("traffic: {error}")
}

fn join<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the traffic panicked")))
}

#[cfg(test)]
mod tests;
