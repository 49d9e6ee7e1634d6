//! Commands that end when something has happened: up, gone, rekeyed.

use super::handle::{Activation, Begun, GatewayError, Reply};
use super::selection::Selection;
use esp::plane::DataPlane;
use ike::event::{Event, EventKind};
use ike::failure::{Failure, FailureKind};
use ike::{CommandError, Engine, Startable, Target};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The longest time that a command waits. Negotiations give up sooner by themselves.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Up,
    Gone,
    Rekeyed,
}

/// One tunnel that is waited for.
struct Item {
    /// The name the command was given.
    name: String,
    tunnel: String,
    /// Its phase 2 tunnels that are still to come; empty where the phase 1 tunnel itself is waited for.
    children: HashSet<String>,
    failure: Option<Failure>,
    done: bool,
}

enum Answer {
    All(Reply<Result<Vec<Activation>, GatewayError>>),
    One(Reply<Result<(), GatewayError>>),
}

struct Wait {
    what: What,
    items: Vec<Item>,
    /// Places of items by their phase 1 tunnel.
    by_tunnel: HashMap<String, Vec<usize>>,
    /// The number of items that are not done.
    left: usize,
    until: Instant,
    answer: Answer,
}

/// Everything that is waited for.
#[derive(Default)]
pub(super) struct Waiting(Vec<Wait>);

impl Waiting {
    pub fn activate<P: DataPlane>(
        &mut self,
        engine: &mut Engine<P>,
        now: Instant,
        selection: &Selection,
        reply: Reply<Result<Vec<Activation>, GatewayError>>,
    ) {
        let startable = match startable(engine, selection) {
            Ok(startable) => startable,
            Err(error) => return drop(reply.send(Err(error.into()))),
        };
        let started = match start(engine, now, &startable) {
            Ok(started) => started,
            Err(error) => return drop(reply.send(Err(error.into()))),
        };
        // The sessions are looked at once all have been started: two names may be of one session.
        let items = startable
            .iter()
            .zip(started)
            .map(|(startable, up)| Item::started(startable, engine.not_up(startable), up))
            .collect();
        self.add(now, What::Up, items, Answer::All(reply));
    }

    pub fn deactivate<P: DataPlane>(
        &mut self,
        engine: &mut Engine<P>,
        now: Instant,
        name: String,
        reply: Reply<Result<(), GatewayError>>,
    ) {
        let begun = engine.disconnect(now, &name);
        self.add_one(now, What::Gone, begun, reply);
    }

    pub fn rekey<P: DataPlane>(
        &mut self,
        engine: &mut Engine<P>,
        now: Instant,
        name: String,
        reply: Reply<Result<(), GatewayError>>,
    ) {
        let begun = engine.rekey(now, &name);
        self.add_one(now, What::Rekeyed, begun, reply);
    }

    fn add_one(
        &mut self,
        now: Instant,
        what: What,
        begun: Result<Target, CommandError>,
        reply: Reply<Result<(), GatewayError>>,
    ) {
        match begun {
            Ok(target) => self.add(now, what, vec![Item::of(&target)], Answer::One(reply)),
            Err(error) => drop(reply.send(Err(error.into()))),
        }
    }

    fn add(&mut self, now: Instant, what: What, items: Vec<Item>, answer: Answer) {
        let mut by_tunnel: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            by_tunnel.entry(item.tunnel.clone()).or_default().push(index);
        }
        let left = items.iter().filter(|i| !i.done).count();
        self.0.push(Wait { what, items, by_tunnel, left, until: now + PATIENCE, answer });
        self.answer_done();
    }

    /// Takes note of an event. `under_way`: a session of its tunnel is there, so that a failure of the tunnel was not
    /// the end of it, but one of its rekeys or a stranger's attempt.
    pub fn see(&mut self, event: &Event, under_way: bool) {
        self.0.iter_mut().for_each(|wait| wait.see(event, under_way));
        self.answer_done();
    }

    /// When the first wait ends in vain.
    pub fn next(&self) -> Option<Instant> {
        self.0.iter().map(|w| w.until).min()
    }

    /// Ends waits that have been in vain.
    pub fn expire(&mut self, now: Instant) {
        for wait in self.0.iter_mut().filter(|w| w.until <= now) {
            for item in wait.items.iter_mut().filter(|i| !i.done) {
                let detail = "nothing came of it in time; see the log".to_owned();
                item.fail(Failure::new(FailureKind::NoAnswer, detail));
            }
            wait.left = 0;
        }
        self.answer_done();
    }

    fn answer_done(&mut self) {
        for wait in self.0.extract_if(.., |w| w.left == 0) {
            match wait.answer {
                Answer::All(reply) => {
                    let all = wait.items.iter();
                    let all = all.map(|item| Activation {
                        name: item.name.clone(),
                        outcome: item.outcome(),
                    });
                    drop(reply.send(Ok(all.collect())));
                }
                Answer::One(reply) => {
                    let done = wait.items.iter().try_for_each(Item::outcome);
                    drop(reply.send(done.map_err(GatewayError::from)));
                }
            }
        }
    }
}

/// Starts tunnels without waiting.
pub(super) fn start_activate<P: DataPlane>(
    engine: &mut Engine<P>,
    now: Instant,
    selection: &Selection,
) -> Result<Vec<Begun>, GatewayError> {
    let startable = startable(engine, selection)?;
    let started = start(engine, now, &startable)?;
    let begun = startable
        .iter()
        .zip(started)
        .map(|(startable, up)| Begun { name: startable.target().name().to_owned(), up });
    Ok(begun.collect())
}

impl Item {
    fn outcome(&self) -> Result<(), Failure> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// The selected tunnels: of all, those that this side may start; if one of the named ones may not be started, none is.
fn startable<P: DataPlane>(
    engine: &Engine<P>,
    selection: &Selection,
) -> Result<Vec<Startable>, CommandError> {
    match selection {
        Selection::All => Ok(engine.startable_tunnels()),
        Selection::Named(names) => names.iter().map(|name| to_start(engine, name)).collect(),
    }
}

/// Starts them; for each, whether it is up already.
fn start<P: DataPlane>(
    engine: &mut Engine<P>,
    now: Instant,
    startable: &[Startable],
) -> Result<Vec<bool>, CommandError> {
    startable.iter().map(|startable| engine.start(now, startable)).collect()
}

fn to_start<P: DataPlane>(engine: &Engine<P>, name: &str) -> Result<Startable, CommandError> {
    let startable = engine.startable(name)?;
    startable.addresses()?;
    Ok(startable)
}

impl Wait {
    fn see(&mut self, event: &Event, under_way: bool) {
        for index in self.by_tunnel.get(&event.tunnel).into_iter().flatten() {
            let item = &mut self.items[*index];
            if !item.done {
                item.see(self.what, event, under_way);
                self.left -= usize::from(item.done);
            }
        }
    }
}

impl Item {
    fn of(target: &Target) -> Self {
        Self {
            name: target.name().to_owned(),
            tunnel: target.tunnel().to_owned(),
            children: target.child().map(str::to_owned).into_iter().collect(),
            failure: None,
            done: false,
        }
    }

    fn started(startable: &Startable, not_up: Vec<&str>, done: bool) -> Self {
        let children = not_up.into_iter().map(str::to_owned).collect();
        Self { children, done, ..Self::of(startable.target()) }
    }

    fn see(&mut self, what: What, event: &Event, under_way: bool) {
        let child = event.child.as_ref().is_some_and(|c| self.children.contains(c));
        let tunnel = event.child.is_none();
        let only_tunnel = tunnel && self.children.is_empty();
        match (what, &event.kind) {
            (What::Up, EventKind::Established { .. } | EventKind::Rekeyed { .. }) if child => {
                self.settle(event)
            }
            (What::Up, EventKind::Failed(failure)) if child => {
                self.failure.get_or_insert_with(|| failure.clone());
                self.settle(event);
            }
            // A peer that has lost the SA, or that has been restarted, sets up a new one instead (RFC 7296 §2.25).
            (What::Rekeyed, EventKind::Rekeyed { .. } | EventKind::Established { .. })
                if child || only_tunnel =>
            {
                self.done = true
            }
            (What::Rekeyed, EventKind::Failed(failure)) if child || only_tunnel => {
                self.fail(failure.clone())
            }
            (What::Gone, EventKind::Closed { .. } | EventKind::Failed(_)) if child || tunnel => {
                self.done = true
            }
            (What::Rekeyed, EventKind::Closed { reason }) if child => {
                self.fail(Failure::new(FailureKind::Cancelled, reason.to_string()));
            }
            // The IKE SA could not be set up, or is gone: so is anything it was to carry.
            (What::Up, EventKind::Failed(failure)) if tunnel && !under_way => {
                self.fail(failure.clone())
            }
            // Another IKE SA of the tunnel may serve instead.
            (What::Up | What::Rekeyed, EventKind::Closed { reason }) if tunnel && !under_way => {
                self.fail(Failure::new(FailureKind::Cancelled, reason.to_string()));
            }
            _ => {}
        }
    }

    /// One of the phase 2 tunnels is up or has failed.
    fn settle(&mut self, event: &Event) {
        event.child.iter().for_each(|child| _ = self.children.remove(child));
        self.done = self.children.is_empty();
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.done = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esp::plane::Spi;
    use ike::CloseReason;
    use ike::event::Negotiated;
    use ike::negotiation::suite::ChildSuite;
    use policy::{EspEncryption, KeyBits, Mode, Protection};
    use tokio::sync::oneshot;

    fn item() -> Item {
        Item {
            name: "site".into(),
            tunnel: "site".into(),
            children: HashSet::from(["net".into()]),
            failure: None,
            done: false,
        }
    }

    fn of_child(kind: EventKind) -> Event {
        let mut event = Event::new("site", kind);
        event.child = Some("net".into());
        event
    }

    #[test]
    fn a_rekey_ends_with_a_new_child_sa_in_place_of_one_that_the_peer_has_lost() {
        let mut waiting = Waiting::default();
        let (reply, mut answer) = oneshot::channel();
        waiting.add(Instant::now(), What::Rekeyed, vec![item()], Answer::One(reply));
        let suite = Negotiated::Child {
            mode: Mode::Tunnel,
            suite: ChildSuite::new(Protection::aead(EspEncryption::AesGcm16(KeyBits::B256))),
            inbound_spi: Spi(1),
            outbound_spi: Spi(2),
        };
        waiting.see(&of_child(EventKind::Established { suite }), true);
        assert!(matches!(answer.try_recv(), Ok(Ok(()))));
    }

    #[test]
    fn an_ike_sa_that_ends_beside_another_one_ends_no_wait() {
        let mut waiting = Waiting::default();
        let (reply, mut answer) = oneshot::channel();
        waiting.add(Instant::now(), What::Up, vec![item()], Answer::All(reply));
        let closed = Event::new("site", EventKind::Closed { reason: CloseReason::DeletedByPeer });
        waiting.see(&closed, true);
        assert!(answer.try_recv().is_err(), "the other one may bring it up");
        waiting.see(&closed, false);
        let activations = answer.try_recv().expect("answered").expect("known names");
        assert!(activations[0].outcome.is_err());
    }

    #[test]
    fn a_strangers_failure_ends_no_wait() {
        let mut waiting = Waiting::default();
        let (reply, mut answer) = oneshot::channel();
        let item = item();
        waiting.add(Instant::now(), What::Up, vec![item], Answer::All(reply));
        let failure = Failure::new(FailureKind::NoProposalChosen, String::new());
        let event = Event::new("site", EventKind::Failed(failure.clone()));
        waiting.see(&event, true);
        assert!(answer.try_recv().is_err(), "our own attempt goes on");
        waiting.see(&event, false);
        let activations = answer.try_recv().expect("answered").expect("known names");
        assert_eq!(activations[0].outcome, Err(failure));
    }
}
