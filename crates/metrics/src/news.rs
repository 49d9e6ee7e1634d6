//! The gateway's events as a stream of server-sent events (SSE), which a browser reads without any library.

use control::protocol::Happening;
use hyper::body::Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver};

/// Events that a new reader is told at once.
const LATEST: usize = 100;
/// Events that wait for a slow reader at most; the oldest are missed then.
const WAITING: usize = 256;

/// The latest events, and all readers.
#[derive(Debug)]
pub struct News {
    readers: broadcast::Sender<Bytes>,
    /// As JSON, the latest last.
    latest: Mutex<VecDeque<String>>,
}

impl Default for News {
    fn default() -> Self {
        Self { readers: broadcast::channel(WAITING).0, latest: Mutex::default() }
    }
}

impl News {
    /// Tells all readers of an event. None of them can hold that up.
    pub fn tell(&self, happening: &Happening) {
        let Ok(text) = serde_json::to_string(happening) else { return };
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody may be reading.
        let _ = self.readers.send(message(&text));
        if latest.len() == LATEST {
            latest.pop_front();
        }
        latest.push_back(text);
    }

    /// Begins to read: the first message has the latest events, and no event is missing after it, or comes twice.
    pub(crate) fn read(&self) -> Reader {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<&str> = latest.iter().map(String::as_str).collect();
        // A browser that has lost the connection comes back after so many milliseconds.
        let first = format!("retry: 1000\nevent: latest\ndata: [{}]\n\n", all.join(","));
        Reader { first: Some(first.into()), receiver: self.readers.subscribe() }
    }
}

/// A reader's messages.
#[derive(Debug)]
pub(crate) struct Reader {
    first: Option<Bytes>,
    receiver: Receiver<Bytes>,
}

impl Reader {
    /// Waits for the next message. `None`: there are no more. No message is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        match self.receiver.recv().await {
            Ok(message) => Some(message),
            Err(RecvError::Lagged(count)) => Some(missed(count)),
            Err(RecvError::Closed) => None,
        }
    }
}

/// JSON has no line breaks outside of its escapes, so that it is one field.
fn message(json: &str) -> Bytes {
    format!("data: {json}\n\n").into()
}

fn missed(count: u64) -> Bytes {
    let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    message(&serde_json::to_string(&Happening::missed(now, count)).unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn happening(message: &str) -> Happening {
        let json = serde_json::json!({"time": "2026-11-21T12:00:00.000Z", "event": "closed", "tunnel": "site",
                                      "message": message});
        serde_json::from_value(json).expect("an event")
    }

    async fn text(reader: &mut Reader) -> String {
        String::from_utf8(reader.next().await.expect("a message").to_vec()).expect("text")
    }

    #[tokio::test]
    async fn a_reader_is_told_the_latest_events_and_each_one_after_them() {
        let news = News::default();
        for n in 0..=LATEST {
            news.tell(&happening(&n.to_string()));
        }
        let mut reader = news.read();
        news.tell(&happening("a line\nand another one"));
        let first = text(&mut reader).await;
        let json = first.strip_prefix("retry: 1000\nevent: latest\ndata: ").expect(&first);
        let latest: Vec<Happening> = serde_json::from_str(json).expect("JSON in one line");
        assert_eq!((latest.len(), latest[0].message.as_str()), (LATEST, "1"));
        let next = text(&mut reader).await;
        let json = next.strip_prefix("data: ").and_then(|n| n.strip_suffix("\n\n")).expect(&next);
        assert!(!json.contains('\n'), "{json}");
        let next: Happening = serde_json::from_str(json).expect("JSON");
        assert_eq!(next.message, "a line\nand another one");
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_how_much_it_has_missed() {
        let news = News::default();
        let mut reader = news.read();
        for n in 0..WAITING + 3 {
            news.tell(&happening(&n.to_string()));
        }
        assert!(text(&mut reader).await.contains("event: latest"));
        assert!(text(&mut reader).await.contains("\"missed\":3,"));
        assert!(text(&mut reader).await.contains("\"message\":\"3\""));
    }
}
