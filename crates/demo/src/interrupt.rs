//! Ctrl-C: noted, so that the demo can take everything down in order.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tokio::signal::unix::{SignalKind, signal};

/// A flag that a signal sets, so that the demo ends early.
#[derive(Clone, Default)]
pub struct Interrupt {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    set: AtomicBool,
    connections: Mutex<Vec<UnixStream>>,
}

impl Interrupt {
    /// Takes SIGINT, SIGTERM and SIGHUP over.
    pub fn listen() -> io::Result<Self> {
        let interrupt = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _guard = runtime.enter();
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
        };
        let [interrupted, terminated, hung_up] = signals;
        let (mut interrupted, mut terminated, mut hung_up) = (interrupted?, terminated?, hung_up?);
        let inner = Arc::clone(&interrupt.inner);
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                    _ = hung_up.recv() => {}
                }
            });
            inner.set.store(true, Ordering::SeqCst);
            for connection in
                inner.connections.lock().unwrap_or_else(PoisonError::into_inner).iter()
            {
                // Closed already, perhaps.
                let _ = connection.shutdown(Shutdown::Both);
            }
        })?;
        Ok(interrupt)
    }

    /// Returns `true` after a signal.
    pub fn is_set(&self) -> bool {
        self.inner.set.load(Ordering::SeqCst)
    }

    /// Breaks a connection off when a signal comes, and with it the wait for an answer on it.
    pub fn breaks(&self, connection: io::Result<UnixStream>) {
        // Without it, an interrupted wait lasts until its time is up.
        let Ok(connection) = connection else { return };
        if self.is_set() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        self.inner.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}
