//! Rules that random worlds need only in rare circumstances, each by itself.

use cluster::store::{
    Answer, Attempt, Claim, Lease, Member, NodeId, Record, Request, Revision, ServiceId, View,
};
use cluster::{Ask, Epoch, Life, Moment, Node, Output, RequestId, Settings, Standing, Waiver};
use std::collections::BTreeMap;
use std::time::Duration;

const ME: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const LIFE: Life = Life(7);
const S: ServiceId = ServiceId(1);

/// A node whose store is played by the test.
struct Alone {
    node: Node,
    now: Moment,
    view: View,
    reads: Vec<RequestId>,
    claims: Vec<(RequestId, Claim)>,
    waived: Vec<Waiver>,
    asked: Vec<Ask>,
    fence: Moment,
}

impl Alone {
    fn new() -> Self {
        let member = |node| Member { node, joined: Revision(1), acknowledged: Revision(1) };
        let view = View {
            revision: Revision(9),
            members_at: Revision(1),
            members: vec![member(ME), member(OTHER)],
            services: BTreeMap::from([(S, Record::default())]),
            ..View::default()
        };
        let now = Moment::new(Duration::from_secs(100));
        let node = Node::new(Settings::default(), ME, LIFE, now).expect("good settings");
        let (reads, claims, waived, asked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let fence = Moment::ZERO;
        Self { node, now, view, reads, claims, waived, asked, fence }
    }

    /// The store knows the present life of the node.
    fn confirmed(mut self) -> Self {
        self.view.attempt = Attempt { at: Revision(3), life: LIFE, number: 1 };
        self
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
        self.node.handle_timeout(self.now);
        self.poll();
    }

    fn poll(&mut self) {
        while let Some(output) = self.node.poll() {
            match output {
                Output::Request { id, request: Request::Read { .. } } => self.reads.push(id),
                Output::Request { id, request: Request::Claim(claim) } => {
                    self.claims.push((id, claim));
                }
                Output::Request { id, request: Request::Grant { .. } } => {
                    self.node.handle_answer(self.now, id, Answer::Granted(Lease(4)));
                }
                Output::Waive { waiver, .. } => self.waived.push(waiver),
                Output::Ask { ask, .. } => self.asked.push(ask),
                Output::Fence { until, .. } => self.fence = until,
                _ => {}
            }
        }
    }

    /// Time passes, and the store answers reads.
    fn read_for(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.pass(100);
            for id in std::mem::take(&mut self.reads) {
                self.node.handle_answer(self.now, id, Answer::View(self.view.clone()));
                self.poll();
            }
        }
    }

    /// Time passes until the node claims.
    fn read_until_claim(&mut self) {
        for _ in 0..50 {
            if self.claims.is_empty() {
                self.read_for(100);
            }
        }
    }

    /// Lets the first claim take effect.
    fn win(&mut self) -> Record {
        let (id, claim) = self.claims.remove(0);
        let record = Record {
            at: Revision(20),
            epoch: Epoch(1),
            node: ME,
            life: LIFE,
            attempt: claim.attempt,
            in_force: true,
            released: false,
        };
        self.view.services.insert(S, record);
        self.view.revision = Revision(20);
        self.node.handle_answer(self.now, id, Answer::Claimed(record.at, record.epoch));
        self.poll();
        record
    }

    fn ask(&mut self) -> usize {
        let ask = Ask { life: Life(50), round: 3, services: vec![S] };
        self.node.handle_ask(self.now, OTHER, &ask);
        self.poll();
        self.waived.len()
    }
}

#[test]
fn a_node_waives_only_while_the_store_is_away_and_then_claims_nothing() {
    let mut alone = Alone::new().confirmed();
    alone.read_for(500);
    assert_eq!(alone.ask(), 0, "the store is there");
    alone.pass(600);
    assert_eq!(alone.ask(), 1);
    assert_eq!((alone.waived[0].life, alone.waived[0].round), (Life(50), 3));
    // Without the promise, it would claim now.
    alone.read_for(1000);
    assert!(alone.claims.is_empty());
    alone.read_for(800);
    assert_eq!(alone.claims.len(), 1);
}

#[test]
fn a_node_waives_nothing_before_claims_of_its_earlier_lives_are_out_of_force() {
    let mut alone = Alone::new();
    alone.view.attempt = Attempt { at: Revision(2), life: Life(6), number: 1 };
    let owned = Record { at: Revision(5), node: OTHER, in_force: true, ..Record::default() };
    alone.view.services.insert(S, owned);
    alone.read_for(500);
    alone.pass(600);
    assert_eq!(alone.ask(), 0);
    let mut alone = alone.confirmed();
    alone.read_for(500);
    alone.pass(600);
    assert_eq!(alone.ask(), 1);
}

#[test]
fn a_claim_without_an_answer_is_over_only_when_the_store_shows_its_withdrawal() {
    let mut alone = Alone::new().confirmed();
    alone.read_for(3000);
    assert_eq!(alone.claims.len(), 1);
    // Reads do not show it, but it may come.
    alone.read_for(3000);
    assert_eq!(alone.node.standing(S), Standing::Claiming);
    alone.pass(1000);
    assert_eq!(alone.ask(), 0, "it may take effect yet");
    alone.view.attempt.number = 2;
    alone.read_for(300);
    assert_eq!(alone.claims.len(), 2, "the first one never takes effect now");
    assert_eq!(alone.claims[1].1.attempt, 2);
}

#[test]
fn a_waiver_counts_for_the_life_and_the_round_that_asked() {
    let mut alone = Alone::new().confirmed();
    alone.read_until_claim();
    alone.win();
    let fence = alone.fence;
    alone.pass(600);
    let Ask { round, .. } = alone.asked[0].clone();
    let services = vec![S];
    for (life, round) in [(Life(6), round), (LIFE, round + 1)] {
        let waiver = Waiver { life, round, services: services.clone() };
        alone.node.handle_waiver(alone.now, OTHER, &waiver);
        alone.poll();
        assert_eq!(alone.fence, fence, "{waiver:?}");
    }
    let stranger = Waiver { life: LIFE, round, services: services.clone() };
    alone.node.handle_waiver(alone.now, NodeId(9), &stranger);
    alone.poll();
    assert_eq!(alone.fence, fence);
    let asked = alone.now;
    alone.pass(50);
    alone.node.handle_waiver(alone.now, OTHER, &Waiver { life: LIFE, round, services });
    alone.poll();
    let relied = Duration::from_millis(1480);
    assert_eq!(alone.fence, asked.after(relied), "counted from the question");
}

#[test]
fn a_claim_counts_from_its_sending_and_a_read_likewise() {
    let mut alone = Alone::new().confirmed();
    alone.read_until_claim();
    let claimed = alone.now;
    alone.pass(200);
    alone.win();
    let relied = Duration::from_millis(1480);
    assert_eq!(alone.fence, claimed.after(relied));
    alone.reads.clear();
    alone.pass(300);
    let (sent, id) = (alone.now, alone.reads.remove(0));
    alone.now = alone.now.after(Duration::from_millis(250));
    alone.node.handle_answer(alone.now, id, Answer::View(alone.view.clone()));
    alone.poll();
    assert_eq!(alone.fence, sent.after(relied));
}

/// A store that was restored gives the revision of one claim to another.
#[test]
fn a_claim_of_the_same_revision_is_another_one() {
    let mut alone = Alone::new().confirmed();
    alone.read_until_claim();
    let record = alone.win();
    let (node, life) = (OTHER, Life(50));
    alone.view.services.insert(S, Record { node, life, ..record });
    alone.read_for(400);
    assert_eq!((alone.node.standing(S), alone.fence), (Standing::Owned(OTHER), Moment::ZERO));
}

#[test]
fn a_wait_begins_again_if_the_store_was_silent_long_enough_to_be_restored() {
    let dead = Record { at: Revision(5), epoch: Epoch(1), node: OTHER, ..Record::default() };
    for (silent, claims) in [(9_000, 1), (10_000, 0)] {
        let mut alone = Alone::new().confirmed();
        alone.view.services.insert(S, dead);
        alone.read_for(1000);
        alone.pass(silent);
        alone.reads.clear();
        alone.read_for(400);
        assert_eq!(alone.claims.len(), claims, "after {silent} ms");
        alone.read_for(2000);
        assert_eq!(alone.claims.len(), 1);
    }
}
