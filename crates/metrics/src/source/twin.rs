//! A daemon without a gateway, for tests: it answers when it is let, and counts the questions.

use super::*;
use crate::fleet::Ledger;
use control::protocol::RefusalCode;
use ike::status::IkeStatus;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Twin {
    /// Scrapes, and questions about single tunnels.
    pub scrapes: AtomicUsize,
    pub asked: AtomicUsize,
    /// Scrapes that wait for an answer at the same time, now and at most.
    pub waiting: AtomicUsize,
    pub most: AtomicUsize,
    pub held: Option<Notify>,
    pub stopped: bool,
    pub news: News,
    pub tunnels: Vec<IkeStatus>,
}

impl Source for Twin {
    async fn scrape(&self) -> Option<Bytes> {
        self.scrapes.fetch_add(1, Ordering::SeqCst);
        let waiting = self.waiting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(waiting, Ordering::SeqCst);
        if let Some(held) = &self.held {
            held.notified().await;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        (!self.stopped).then(|| Bytes::from_static(b"vpnd_tunnels 1\n# EOF\n"))
    }

    fn about(&self) -> About {
        About { version: "0.0.0".to_owned(), up: Duration::from_millis(2500), keys_exported: false }
    }

    async fn fleet(&self) -> Option<Reading> {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        let mut round = ledger.round(0, now);
        round.add(&self.tunnels, now);
        let reading = Reading { at: Duration::from_secs(2), fleet: round.finish().into() };
        (!self.stopped).then_some(reading)
    }

    async fn tunnel(&self, name: &str) -> Option<Tunnel> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let named = |t: &&IkeStatus| t.name == name || t.children.iter().any(|c| c.name == name);
        let tunnel = self.tunnels.iter().find(named)?;
        let child = |child: &ike::status::ChildStatus| {
            json!({"name": child.name, "state": child.state.name(), "mode": "tunnel", "local": ["10.1.0.0/24"],
                   "remote": ["10.2.0.0/24"], "child_sa": null, "last_failure": null})
        };
        let children: Vec<_> = tunnel.children.iter().map(child).collect();
        let json = json!({"name": tunnel.name, "state": tunnel.state.name(), "local_id": "left", "remote_id": "right",
                          "local_address": "192.0.2.1", "remote_address": "192.0.2.2", "ike_sa": null,
                          "children": children, "last_failure": null});
        Some(serde_json::from_value(json).expect("a tunnel"))
    }

    async fn why(&self, name: &str) -> Result<Why, Refusal> {
        match name {
            "site" => Ok(Why { state: "down".to_owned(), text: "<b>\n".to_owned() }),
            _ => Err(Refusal::new(RefusalCode::UnknownTunnel, format!("no tunnel {name:?}"))),
        }
    }

    fn certificates(&self) -> Vec<CertificateInfo> {
        Vec::new()
    }

    async fn drops(&self) -> Option<Drops> {
        (!self.stopped).then(Drops::default)
    }

    fn news(&self) -> &News {
        &self.news
    }
}
