//! The page: what a browser is shown of the gateway. It is only read, and all of it comes from this program.
//!
//! ```text
//! /              page.html ─┬─ page.css, icon.svg
//!                           └─ page.js ─┬─ /api/tunnels       a page of rows, every second
//!                                       ├─ /api/why           on demand
//!                                       ├─ /api/certificates, /api/drops   now and then
//!                                       └─ /api/events        a stream, as things happen
//! ```
//!
//! Names and messages may come from peers: the script inserts text only as text, and the policy that the browser is
//! given with each answer ([`crate::endpoint`]) forbids everything else.

use crate::source::{Source, Why};
use control::protocol::{Refusal, RefusalCode};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::http::request::Parts;
use list::List;
use query::Query;
use serde::Serialize;
use tables::{Certificates, Discards};

mod condition;
mod list;
mod query;
mod tables;

/// An answer that is complete.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    pub content: &'static str,
    pub body: Bytes,
}

/// The paths of the page. The stream of events is not one of them: it does not end.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html; charset=utf-8", include_str!("page/page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page/page.js")),
    ("/icon.svg", "image/svg+xml", include_str!("page/icon.svg")),
];

/// The path of the stream of events.
pub(crate) const EVENTS: &str = "/api/events";

/// Returns `true` if the page has something at this path.
pub(crate) fn has(path: &str) -> bool {
    const API: [&str; 5] = ["/api/tunnels", "/api/why", "/api/certificates", "/api/drops", EVENTS];
    FILES.iter().any(|(file, ..)| *file == path) || API.contains(&path)
}

/// Answers a request for one of the paths that [`has`] knows.
pub(crate) async fn answer<S: Source>(request: &Parts, source: &S) -> Answer {
    let path = request.uri.path();
    if let Some((_, content, text)) = FILES.iter().find(|(file, ..)| *file == path) {
        return Answer {
            status: StatusCode::OK,
            content,
            body: Bytes::from_static(text.as_bytes()),
        };
    }
    let query = request.uri.query().unwrap_or_default();
    match path {
        "/api/tunnels" => match Query::read(query) {
            Ok(query) => told(List::read(source, query).await),
            Err(wrong) => words(StatusCode::BAD_REQUEST, wrong),
        },
        "/api/why" => match query::only("name", query) {
            Some(name) => explained(&name, source.why(&name).await),
            None => {
                words(StatusCode::BAD_REQUEST, "the request names no tunnel, as in ?name=site\n")
            }
        },
        "/api/certificates" => told(Some(Certificates::of(source.certificates()))),
        _ => told(source.drops().await.map(Discards::of)),
    }
}

/// The explanation of a tunnel, as JSON.
#[derive(Serialize)]
struct Explained<'a> {
    name: &'a str,
    state: String,
    text: String,
}

fn explained(name: &str, why: Result<Why, Refusal>) -> Answer {
    match why {
        Ok(Why { state, text }) => told(Some(Explained { name, state, text })),
        Err(refusal) => {
            let status = match refusal.code {
                RefusalCode::UnknownTunnel => StatusCode::NOT_FOUND,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            words(status, format!("{}\n", refusal.message))
        }
    }
}

fn told(value: Option<impl Serialize>) -> Answer {
    let Some(value) = value else {
        return words(StatusCode::SERVICE_UNAVAILABLE, "the gateway has stopped\n");
    };
    match serde_json::to_vec(&value) {
        Ok(json) => {
            Answer { status: StatusCode::OK, content: "application/json", body: json.into() }
        }
        Err(error) => words(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// A sentence for people.
pub(crate) fn words(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    Answer { status, content: "text/plain; charset=utf-8", body: text.into() }
}
