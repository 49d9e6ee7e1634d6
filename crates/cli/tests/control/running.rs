//! A daemon that runs in a thread of a test.

use crate::memory::MemoryGateway;
use cli::daemon::server::ControlSocket;
use cli::daemon::{self, Daemon, Signals};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use tokio::net::UnixListener;

/// Returns when it listens at that path; the thread ends when the daemon is told to.
pub fn start(daemon: Daemon<MemoryGateway>, socket: PathBuf) -> JoinHandle<()> {
    let (listening, ready) = mpsc::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async move {
            let (control, listener) = ControlSocket::bind(&socket).expect("a free path");
            let listener = UnixListener::from_std(listener).expect("a runtime");
            let signals = Signals::new().expect("signals");
            listening.send(()).expect("the test waits");
            let log = tokio::spawn(std::future::ready(()));
            daemon::run(Arc::new(daemon), control, listener, signals, log, "ready").await;
        });
    });
    ready.recv().expect("the daemon listens");
    thread
}
