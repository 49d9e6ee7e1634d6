//! All tunnels of a daemon, one page after the other, so that neither side has to hold all of them at once.

use super::{Client, ClientError};
use crate::protocol::{Command, RefusalCode, Reply, Tunnel, TunnelPage};

/// Phase 2 tunnels of a page.
const PAGE: u32 = 500;

/// A reading of a daemon's tunnels.
pub struct Pages {
    all: bool,
    place: Place,
    /// The name of the last tunnel that was told.
    last: Option<String>,
}

/// The place where the next page begins.
enum Place {
    First,
    After(String),
    End,
}

/// Some of the tunnels, in the order of the policy.
pub struct Page {
    /// The tunnels.
    pub tunnels: Vec<Tunnel>,
    /// The first of them is the rest of the last one of the page before, with further phase 2 tunnels.
    pub continues: bool,
}

impl Pages {
    /// A reading of the tunnels that are up or being negotiated, or of all of them.
    pub fn new(all: bool) -> Self {
        Self { all, place: Place::First, last: None }
    }

    /// Reads the next page; `None` after the last one.
    ///
    /// # Errors
    /// As [`Client::ask`]. After [`RefusalCode::Outdated`] a new reading must begin: the policy was replaced.
    pub fn read(&mut self, client: &mut Client) -> Result<Option<Page>, ClientError> {
        let after = match std::mem::replace(&mut self.place, Place::End) {
            Place::First => None,
            Place::After(place) => Some(place),
            Place::End => return Ok(None),
        };
        let TunnelPage { tunnels, next } = self.ask(client, after)?;
        self.place = next.map_or(Place::End, Place::After);
        let first = tunnels.first().map(|tunnel| &tunnel.name);
        let continues = first.is_some() && first == self.last.as_ref();
        if let Some(tunnel) = tunnels.last() {
            self.last = Some(tunnel.name.clone());
        }
        Ok(Some(Page { tunnels, continues }))
    }

    /// Returns `true` once the last page has been read.
    pub fn is_at_end(&self) -> bool {
        matches!(self.place, Place::End)
    }

    fn ask(&self, client: &mut Client, after: Option<String>) -> Result<TunnelPage, ClientError> {
        let (all, is_first) = (self.all, after.is_none());
        match client.ask(Command::ListPage { all, after, count: PAGE }) {
            Ok(Reply::TunnelPage(page)) => return Ok(page),
            Ok(reply) => return Err(client.unexpected(&reply)),
            // A daemon of an earlier version tells all of them at once.
            Err(ClientError::Refused(refusal))
                if is_first && refusal.code == RefusalCode::UnknownCommand => {}
            Err(error) => return Err(error),
        }
        match client.ask(Command::List { all })? {
            Reply::Tunnels(tunnels) => Ok(TunnelPage { tunnels, next: None }),
            reply => Err(client.unexpected(&reply)),
        }
    }
}

impl Page {
    /// Puts the tunnels behind those of earlier pages, each tunnel once.
    pub fn join(self, earlier: &mut Vec<Tunnel>) {
        let mut tunnels = self.tunnels.into_iter();
        if self.continues
            && let Some(rest) = tunnels.next()
            && let Some(begun) = earlier.last_mut()
        {
            begun.children.extend(rest.children);
        }
        earlier.extend(tunnels);
    }
}

impl Client {
    /// The tunnels that are up or being negotiated, or all of them, read one page after the other. All belong to one
    /// policy: if it is replaced meanwhile, the reading begins again.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn tunnels(&mut self, all: bool) -> Result<Vec<Tunnel>, ClientError> {
        let (mut pages, mut tunnels) = (Pages::new(all), Vec::new());
        loop {
            match pages.read(self) {
                Ok(None) => return Ok(tunnels),
                Ok(Some(page)) => page.join(&mut tunnels),
                Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::Outdated => {
                    tunnels.clear();
                    pages = Pages::new(all);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Refusal, Request, Response};
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    fn tunnel(name: &str, children: &[&str]) -> Tunnel {
        let child = |name: &&str| {
            serde_json::json!({
                "name": name, "state": "down", "mode": "tunnel", "local": [], "remote": [],
                "child_sa": null, "last_failure": null,
            })
        };
        let children: Vec<_> = children.iter().map(child).collect();
        let tunnel = serde_json::json!({
            "name": name, "state": "down", "local_id": "", "remote_id": "", "local_address": null,
            "remote_address": null, "ike_sa": null, "children": children, "last_failure": null,
        });
        serde_json::from_value(tunnel).expect("the fields of a tunnel")
    }

    fn page(tunnels: Vec<Tunnel>, next: Option<&str>) -> Result<Reply, Refusal> {
        Ok(Reply::TunnelPage(TunnelPage { tunnels, next: next.map(str::to_owned) }))
    }

    fn refused(code: RefusalCode) -> Result<Reply, Refusal> {
        Err(Refusal::new(code, "no"))
    }

    /// Reads all tunnels of a daemon that gives these answers. Returns its questions, too.
    fn read(answers: Vec<Result<Reply, Refusal>>) -> (Vec<Tunnel>, Vec<Command>) {
        let (ours, theirs) = UnixStream::pair().expect("the system has sockets");
        let mut client = Client::over(ours, "vpnd".into());
        let daemon = thread::spawn(move || {
            let mut lines = BufReader::new(&theirs).lines();
            let asked = answers.into_iter().map(|answer| {
                let line = lines.next().expect("a question").expect("it is text");
                (&theirs).write_all(&Response::new(answer).line()).expect("the client reads");
                serde_json::from_str::<Request>(&line).expect("a request").command
            });
            asked.collect()
        });
        let tunnels = client.tunnels(true).expect("it is told");
        (tunnels, daemon.join().expect("no panic"))
    }

    fn asked(after: Option<&str>) -> Command {
        Command::ListPage { all: true, after: after.map(str::to_owned), count: PAGE }
    }

    #[test]
    fn pages_make_the_whole() {
        let (tunnels, questions) = read(vec![
            page(vec![tunnel("a", &["1", "2"])], Some("x")),
            page(vec![], Some("y")),
            page(vec![tunnel("a", &["3"]), tunnel("b", &[])], Some("z")),
            page(vec![tunnel("c", &["4"])], None),
        ]);
        let whole = [tunnel("a", &["1", "2", "3"]), tunnel("b", &[]), tunnel("c", &["4"])];
        assert_eq!(tunnels, whole);
        assert_eq!(questions, [None, Some("x"), Some("y"), Some("z")].map(asked));
    }

    #[test]
    fn a_reading_begins_again_with_another_policy() {
        let (tunnels, questions) = read(vec![
            page(vec![tunnel("old", &["1"])], Some("x")),
            refused(RefusalCode::Outdated),
            page(vec![tunnel("new", &["1"])], None),
        ]);
        assert_eq!(tunnels, [tunnel("new", &["1"])]);
        assert_eq!(questions, [None, Some("x"), None].map(asked));
    }

    #[test]
    fn a_daemon_that_knows_no_pages_tells_all_tunnels_at_once() {
        let all = vec![tunnel("a", &["1"]), tunnel("b", &[])];
        let answers = vec![refused(RefusalCode::UnknownCommand), Ok(Reply::Tunnels(all.clone()))];
        assert_eq!(read(answers), (all, vec![asked(None), Command::List { all: true }]));
    }
}
