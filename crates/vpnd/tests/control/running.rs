//! A daemon that runs in a thread of a test.

use host::socket_file::SocketFile;
use metrics::Bound;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use tokio::net::UnixListener;
use vpnd::daemon::metrics::serve;
use vpnd::daemon::{self, Daemon, Signals};

/// Returns when it listens at that path; the thread ends when the daemon is told to.
pub fn start(daemon: Daemon, socket: PathBuf) -> JoinHandle<()> {
    start_with(daemon, socket, None)
}

/// The same, which also serves metrics.
pub fn start_with(daemon: Daemon, socket: PathBuf, endpoint: Option<Bound>) -> JoinHandle<()> {
    let (listening, ready) = mpsc::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async move {
            let (control, listener) = SocketFile::bind(&socket).expect("a free path");
            let listener = UnixListener::from_std(listener).expect("a runtime");
            let signals = Signals::new().expect("signals");
            listening.send(()).expect("the test waits");
            let log = tokio::spawn(std::future::ready(()));
            let daemon = Arc::new(daemon);
            let events = daemon.gateway().events();
            let metrics = endpoint.map(|endpoint| serve(endpoint, &daemon, events));
            let metrics = metrics.unwrap_or_default();
            daemon::run(daemon, control, listener, signals, log, metrics, "ready").await;
        });
    });
    ready.recv().expect("the daemon listens");
    thread
}
