//! A page of the list of tunnels: at most [`ROWS`] rows, however many tunnels there are.

use super::condition::Condition;
use super::query::Query;
use crate::fleet::{Fleet, Line};
use crate::source::{About, Reading, Source};
use control::protocol::{Child, Tunnel};
use ike::status::State;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows of a page.
pub(crate) const ROWS: usize = 50;
/// Networks of a side that a row names.
const NETWORKS: usize = 3;
/// Characters of a remark.
const REMARK: usize = 300;

/// A page of the list, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    version: String,
    up_seconds: u64,
    keys_exported: bool,
    /// Tunnels by condition.
    totals: BTreeMap<&'static str, usize>,
    /// All traffic.
    traffic: Traffic,
    /// The number of this page from 1, and of all pages.
    page: usize,
    pages: usize,
    /// Tunnels that the reader wants to see.
    matched: usize,
    /// Milliseconds since the daemon's start, when the rows were read.
    at: u128,
    rows: Vec<Row>,
}

/// Octets of all tunnels since the daemon's start.
#[derive(Debug, Serialize)]
struct Traffic {
    /// As [`List::at`].
    at: u128,
    bytes_in: u64,
    bytes_out: u64,
}

/// A phase 2 tunnel, or a phase 1 tunnel without any.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    tunnel: String,
    child: Option<String>,
    state: String,
    condition: Condition,
    /// The peer's address, if it is known, and its identity.
    peer: Option<String>,
    peer_id: String,
    local: String,
    remote: String,
    /// Octets since the tunnel came up.
    bytes_in: u64,
    bytes_out: u64,
    /// Time in which it is up, or down after it was up.
    seconds: Option<u64>,
    /// The reason why it is not up or carries nothing.
    remark: Option<String>,
}

/// The tunnels of a page.
#[derive(Debug)]
struct Selected {
    totals: [usize; Condition::ALL.len()],
    matched: usize,
    page: usize,
    pages: usize,
    lines: Vec<Line>,
}

impl List {
    /// Reads a page. `None`: the gateway has stopped.
    pub async fn read<S: Source>(source: &S, query: Query) -> Option<Self> {
        let Reading { at: read_at, fleet } = source.fleet().await?;
        let total = fleet.total;
        // With very many tunnels, a search takes milliseconds.
        let selected = tokio::task::spawn_blocking(move || select(&fleet, &query)).await.ok()?;
        let at = source.about().up;
        let rows = rows(source, &selected.lines).await;
        let About { version, up, keys_exported } = source.about();
        Some(Self {
            version,
            up_seconds: up.as_secs(),
            keys_exported,
            totals: Condition::ALL.map(Condition::name).into_iter().zip(selected.totals).collect(),
            traffic: Traffic {
                at: read_at.as_millis(),
                bytes_in: total.octets()[0],
                bytes_out: total.octets()[1],
            },
            page: selected.page,
            pages: selected.pages,
            matched: selected.matched,
            at: at.as_millis(),
            rows,
        })
    }
}

/// The lines of a page. A page behind the last one is the last one.
fn select(fleet: &Fleet, query: &Query) -> Selected {
    let mut totals = [0; Condition::ALL.len()];
    fleet.lines.iter().for_each(|line| totals[Condition::of(line.state).number()] += 1);
    let has = |text: &str| text.to_lowercase().contains(&query.filter);
    let wanted = |line: &&Line| {
        query.condition.is_none_or(|condition| Condition::of(line.state) == condition)
            && (line.peer.contains(&query.filter)
                || line.child.as_deref().is_some_and(has)
                || has(&line.tunnel))
    };
    let matching: Vec<&Line> = fleet.lines.iter().filter(wanted).collect();
    let pages = matching.len().div_ceil(ROWS).max(1);
    let page = query.page.clamp(1, pages);
    let lines = matching.chunks(ROWS).nth(page - 1).unwrap_or_default();
    let lines = lines.iter().copied().cloned().collect();
    Selected { totals, matched: matching.len(), page, pages, lines }
}

/// The rows of these lines as they are now. A reload may have removed some since the lines were read.
async fn rows<S: Source>(source: &S, lines: &[Line]) -> Vec<Row> {
    let mut rows = Vec::with_capacity(lines.len());
    let mut whole: BTreeMap<&str, Option<Tunnel>> = BTreeMap::new();
    for line in lines {
        let name = line.child.as_deref().unwrap_or(&line.tunnel);
        let row = source.tunnel(name).await.and_then(|tunnel| row(&tunnel, line));
        if row.is_some() || line.child.is_none() {
            rows.extend(row);
            continue;
        }
        // Another phase 1 tunnel may have the name of this phase 2 tunnel.
        if !whole.contains_key(&*line.tunnel) {
            whole.insert(&line.tunnel, source.tunnel(&line.tunnel).await);
        }
        let tunnel = whole.get(&*line.tunnel).and_then(Option::as_ref);
        rows.extend(tunnel.and_then(|tunnel| self::row(tunnel, line)));
    }
    rows
}

fn row(tunnel: &Tunnel, line: &Line) -> Option<Row> {
    if tunnel.name != *line.tunnel {
        return None;
    }
    let child = match &line.child {
        Some(name) => Some(tunnel.children.iter().find(|child| child.name == *name)?),
        None => None,
    };
    let state = match child {
        // A child that waits for its IKE SA is being negotiated, too.
        Some(child) if child.state != "down" || tunnel.state != "negotiating" => &child.state,
        _ => &tunnel.state,
    };
    let condition = Condition::of(State::named(state)?);
    let sa = child.and_then(|child| child.child_sa.as_ref());
    let up = match child {
        Some(_) => sa.map(|sa| sa.established_seconds),
        None => tunnel.ike_sa.as_ref().and_then(|sa| sa.established_seconds),
    };
    let down = child.and_then(|child| child.down.as_ref()).or(tunnel.down.as_ref());
    let address = tunnel.ike_sa.as_ref().map(|sa| sa.remote.ip()).or(tunnel.remote_address);
    Some(Row {
        tunnel: tunnel.name.clone(),
        child: line.child.clone(),
        state: state.clone(),
        condition,
        peer: address.map(|address| address.to_string()),
        peer_id: tunnel.remote_id.clone(),
        local: child.map(|child| networks(&child.local)).unwrap_or_default(),
        remote: child.map(|child| networks(&child.remote)).unwrap_or_default(),
        bytes_in: sa.map_or(0, |sa| sa.bytes_in),
        bytes_out: sa.map_or(0, |sa| sa.bytes_out),
        seconds: match condition {
            Condition::Up | Condition::Blocked => up,
            Condition::Down => down.map(|down| down.seconds_ago),
            Condition::Negotiating => None,
        },
        remark: remark(tunnel, child, condition).map(|text| text.chars().take(REMARK).collect()),
    })
}

/// `10.1.0.0/24, 10.3.0.0/24`, or the first few of many.
fn networks(all: &[String]) -> String {
    let shown = all[..all.len().min(NETWORKS)].join(", ");
    match all.len() - all.len().min(NETWORKS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn remark(tunnel: &Tunnel, child: Option<&Child>, condition: Condition) -> Option<String> {
    if let Some(fault) = child.and_then(|child| child.fault.as_ref()) {
        return Some(format!("no packet passes: {fault}"));
    }
    if let Some(unanswered) = &tunnel.unanswered {
        return Some(unanswered.message.clone());
    }
    if condition == Condition::Up {
        return None;
    }
    let failure = child.and_then(|child| child.last_failure.as_ref());
    let failure = failure.or(tunnel.last_failure.as_ref()).map(|failure| &failure.message);
    let down = child.and_then(|child| child.down.as_ref()).or(tunnel.down.as_ref());
    let reason = failure.or(down.map(|down| &down.reason));
    let waits = child.and_then(|child| child.waits.as_ref());
    let waits = waits.map(|waits| format!("waits for {}", waits.message));
    match (reason, waits) {
        (Some(reason), Some(waits)) => Some(format!("{reason}; {waits}")),
        (reason, waits) => reason.cloned().or(waits),
    }
}

#[cfg(test)]
mod tests;
