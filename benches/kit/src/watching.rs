//! Questions to a daemon and their times: one of them, or one after the other while something else happens.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// Between two questions of a watcher.
const OFTEN: Duration = Duration::from_millis(1);
/// A gateway with very many tunnels needs so long at most.
const LIMIT: Duration = Duration::from_secs(120);

/// An answer of the endpoint for metrics and the page.
pub struct Reading {
    /// The time of the question.
    pub begin: Instant,
    /// The time of the end of its answer.
    pub end: Instant,
    /// Length of the answer.
    pub octets: usize,
}

impl Reading {
    /// Asks the endpoint at a socket for a path.
    ///
    /// # Panics
    /// Where it does not answer with success.
    pub fn of(socket: &Path, path: &str) -> Self {
        let begin = Instant::now();
        let mut stream = UnixStream::connect(socket).expect("the endpoint listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time");
        let request = format!("GET {path} HTTP/1.0\r\nHost: vpnd\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is taken");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        assert!(text.starts_with("HTTP/1.0 200 "), "{path}: {text}");
        Self { begin, end: Instant::now(), octets: text.len() }
    }
}

/// Asks again and again, and keeps the time of each question and until its answer.
pub struct Watcher {
    over: Arc<AtomicBool>,
    asking: JoinHandle<Vec<(Instant, Duration)>>,
}

impl Watcher {
    /// Begins to ask.
    pub fn begin(mut ask: impl FnMut() + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let asking = spawn(move || {
            let mut answers = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let begin = Instant::now();
                ask();
                answers.push((begin, begin.elapsed()));
                sleep(OFTEN);
            }
            answers
        });
        Self { over, asking }
    }

    /// Ends with the next answer. Returns the time of each question, and until its answer.
    ///
    /// # Panics
    /// Where a question has panicked.
    pub fn end(self) -> Vec<(Instant, Duration)> {
        self.over.store(true, Ordering::Relaxed);
        self.asking.join().expect("no panic")
    }
}
