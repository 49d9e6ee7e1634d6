use super::*;
use crypto::Suite;
use esp::datapath::{Datapath, Settings};
use esp::discard::Discard;
use esp::gso::Gso;
use esp::plane::{
    Capabilities, Encapsulation, InboundSa, OutboundSa, Path, PlaneError, Rule, RuleId, Spi,
    TrafficSelectors,
};
use esp::queue::SendQueue;
use policy::{AddressRange, KeyBits, Mode, Secret, Selector};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn sa(direction: SaDirection, key: u8) -> ManualSa {
    let side = |address| vec![Selector::all_of(AddressRange::from(address))];
    ManualSa {
        name: "link".to_owned(),
        direction,
        spi: Spi(7),
        suite: Suite::AesGcm16(KeyBits::B128),
        key: Secret::new(vec![key; 20]),
        shared_key: false,
        mode: Mode::Tunnel,
        path: Path {
            local: SocketAddr::new(HERE, 500),
            remote: SocketAddr::new(THERE, 500),
            encapsulation: Encapsulation::Native,
        },
        selectors: TrafficSelectors { local: side(HERE), remote: side(THERE) },
        replay_window: 32,
        esn: false,
        reqid: None,
    }
}

fn send(plane: &Datapath) {
    assert!(sends(plane), "an SA");
}

fn sends(plane: &Datapath) -> bool {
    // An IPv4 header alone, of a protocol without ports.
    let mut packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let mut queue = SendQueue::new(4096);
    plane.encapsulate(Instant::now(), &mut packet, Gso::default(), &mut queue).is_ok()
}

/// The last number on record of the SA that sends.
fn noted(ledger: &std::path::Path) -> u64 {
    Ledger::look(ledger).expect("ours")[&Fingerprint::of(&sa(SaDirection::Out, 1))]
}

/// A start with these SAs.
fn start(ledger: &std::path::Path) -> Result<(ManualSas, Datapath), ManualSaError> {
    let manual =
        ManualSas::new(vec![sa(SaDirection::Out, 1), sa(SaDirection::In, 2)], ledger.to_owned())?;
    let mut plane = Datapath::new(Settings::default(), Instant::now());
    manual.install(&mut plane)?;
    Ok((manual, plane))
}

#[test]
fn no_sequence_number_is_used_twice_over_restarts_and_crashes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ledger = directory.path().join("new").join("sequences");
    let (manual, mut plane) = start(&ledger).expect("nothing is there yet");
    send(&plane);
    send(&plane);
    assert_eq!(manual.status(&mut plane)[0].sequence, Some(2));
    manual.end(&mut plane);
    assert!(manual.status(&mut plane).is_empty(), "what is noted must not be followed by more");

    // A clean end loses no number; a crash those that may have been used.
    let (crashed, mut plane) = start(&ledger).expect("it has ended");
    send(&plane);
    assert_eq!(crashed.status(&mut plane)[0].sequence, Some(3));
    drop((crashed, plane));
    let (manual, mut plane) = start(&ledger).expect("it has crashed");
    send(&plane);
    assert_eq!(manual.status(&mut plane)[0].sequence, Some(2 + (1 << 24) + 1));
    let text = fs::read_to_string(&ledger).expect("written");
    assert!(!text.contains(&"01".repeat(10)), "no key: {text}");
}

/// A plane whose workers send while it is asked and told things, and which tells of an SA then.
struct Busy(Datapath, ManualSas);

impl Busy {
    fn tell(&self, sa: SaId) {
        self.1.tell(&Notice::Expiring { sa, hard: false });
    }
}

impl DataPlane for Busy {
    fn add_rule(&mut self, rule: Rule) -> Result<(), PlaneError> {
        self.0.add_rule(rule)
    }

    fn renumber_rule(&mut self, rule: RuleId, to: RuleId) {
        self.0.renumber_rule(rule, to);
    }

    fn set_trap(&mut self, rule: RuleId) {
        self.0.set_trap(rule);
    }

    fn remove_rule(&mut self, rule: RuleId) {
        self.0.remove_rule(rule);
    }

    fn add_inbound(&mut self, sa: InboundSa) -> Result<(), PlaneError> {
        self.0.add_inbound(sa)
    }

    fn add_outbound(&mut self, sa: OutboundSa) -> Result<(), PlaneError> {
        self.0.add_outbound(sa)
    }

    fn promote(&mut self, sa: SaId) -> Result<(), PlaneError> {
        self.0.promote(sa)
    }

    fn relocate(&mut self, sa: SaId, path: Path) -> Result<(), PlaneError> {
        self.0.relocate(sa, path)
    }

    fn remove(&mut self, sa: SaId) -> Option<Usage> {
        self.0.remove(sa)
    }

    fn usage(&mut self, sa: SaId) -> Option<Usage> {
        let usage = self.0.usage(sa)?;
        sends(&self.0);
        self.tell(sa);
        Some(usage)
    }
}

impl Capabilities for Busy {
    fn manual_keying(&mut self) -> Option<&mut dyn ManualKeying> {
        Some(self)
    }
}

impl ManualKeying for Busy {
    fn set_reqid(&mut self, rule: RuleId, reqid: u32) -> Result<(), PlaneError> {
        self.0.set_reqid(rule, reqid)
    }

    fn resume(&mut self, sa: SaId, used: u64) -> Result<(), PlaneError> {
        self.0.resume(sa, used)
    }

    fn allow(&mut self, sa: SaId, last: u64) -> Result<(), PlaneError> {
        self.tell(sa);
        self.0.allow(sa, last)
    }

    fn last_sequence(&mut self, sa: SaId) -> Option<u64> {
        let last = self.0.last_sequence(sa)?;
        sends(&self.0);
        self.tell(sa);
        Some(last)
    }

    fn retire(&mut self, sa: SaId) -> Option<u64> {
        sends(&self.0);
        self.tell(sa);
        self.0.retire(sa)
    }
}

#[test]
fn numbers_that_are_used_while_it_ends_are_not_used_again() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ledger = directory.path().join("sequences");
    let (manual, plane) = start(&ledger).expect("nothing is there yet");
    send(&plane);
    let mut busy = Busy(plane, manual.clone());
    // Each of two SAs is asked for its usage, and one for its number, twice.
    assert_eq!(manual.status(&mut busy)[0].sequence, Some(2));
    manual.look(&mut busy);
    manual.end(&mut busy);
    let noted = noted(&ledger);
    assert_eq!(noted, 6, "that of the first packet, and five that were sent meanwhile");
}

#[test]
fn the_ledger_stays_ahead_of_what_is_used() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sequences");
    let (manual, mut plane) = start(&path).expect("nothing is there yet");
    let noted = || noted(&path);
    let id = SaId(SaId::FIRST_MANUAL.0 + 1);
    manual.look(&mut plane);
    assert_eq!(noted(), 1 << 24);
    plane.resume(id, (1 << 23) + 1).expect("installed");
    manual.look(&mut plane);
    assert_eq!(noted(), (1 << 23) + 1 + (1 << 24));
    plane.resume(id, u64::from(u32::MAX) - 5).expect("installed");
    manual.look(&mut plane);
    assert_eq!(noted(), u64::from(u32::MAX));
    drop((manual, plane));
    let error = start(&path).map(drop).expect_err("nothing is left after a crash");
    assert!(error.to_string().contains("has used all sequence numbers of its key"), "{error}");
}

#[test]
fn numbers_that_are_not_on_record_are_not_used() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sequences");
    let (manual, mut plane) = start(&path).expect("nothing is there yet");
    let id = SaId(SaId::FIRST_MANUAL.0 + 1);
    let on_record = noted(&path);
    plane.resume(id, on_record - 1).expect("installed");
    // A directory in the successor's place: nothing can be written.
    let obstacle = directory.path().join("sequences.new");
    fs::create_dir(&obstacle).expect("writable");
    manual.look(&mut plane);
    assert!(sends(&plane), "the last number on record");
    for _ in 0..3 {
        manual.look(&mut plane);
        assert!(!sends(&plane), "no number is used that a restart would use again");
    }
    assert_eq!((plane.last_sequence(id), noted(&path)), (Some(on_record), on_record));
    fs::remove_dir(&obstacle).expect("ours");
    manual.look(&mut plane);
    assert!(noted(&path) > on_record && sends(&plane));
    assert_eq!(plane.last_sequence(id), Some(on_record + 1));
}

#[test]
fn a_second_process_does_not_use_the_numbers_of_the_first() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sequences");
    let (manual, mut plane) = start(&path).expect("nothing is there yet");
    send(&plane);
    let error = start(&path).map(drop).expect_err("it is in use").to_string();
    assert!(error.contains("another process has") && error.contains("stop it"), "{error}");
    assert_eq!(noted(&path), 1 << 24, "nothing is written over");
    manual.end(&mut plane);
    let (_, mut plane) = start(&path).expect("the first has ended");
    send(&plane);
    assert_eq!(plane.last_sequence(SaId(SaId::FIRST_MANUAL.0 + 1)), Some(2));
}

#[test]
fn a_link_in_the_place_of_the_lock_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (path, other) = (directory.path().join("sequences"), directory.path().join("other"));
    std::os::unix::fs::symlink(&other, directory.path().join("sequences.lock")).expect("a link");
    let error = start(&path).map(drop).expect_err("a link").to_string();
    assert!(error.contains("cannot lock") && !other.exists(), "{error}");
}

#[test]
fn a_ledger_that_cannot_be_read_or_written_prevents_a_start() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("sequences");
    fs::write(&path, "what?\n").expect("writable");
    let error = start(&path).map(drop).expect_err("no ledger").to_string();
    assert!(error.contains("sequences:1: not a fingerprint and a number"), "{error}");
    let error = start(&path.join("below")).map(drop).expect_err("not a directory").to_string();
    assert!(error.contains("would use them again with the same keys"), "{error}");
}

/// Adds and removes SAs as a running gateway does.
struct Changing(ManualSas, Datapath);

impl Changing {
    fn new(ledger: &std::path::Path) -> Self {
        let manual = ManualSas::new(Vec::new(), ledger.to_owned()).expect("none");
        let mut plane = Datapath::new(Settings::default(), Instant::now());
        manual.install(&mut plane).expect("nothing to do");
        Self(manual, plane)
    }

    fn add(&mut self, sas: Vec<ManualSa>) -> Result<(), ManualSaError> {
        let sas: Vec<_> = sas.into_iter().map(Arc::new).collect();
        self.0.check_with(&sas)?;
        let rules = self.0.installed().unwrap_or_default().rules_for(&sas);
        self.0.add_now(&mut self.1, &sas, &rules)
    }

    fn remove(&mut self, keep_blocked: bool) -> Result<Removed, ManualSaError> {
        self.0.remove_now(&mut self.1, "link", keep_blocked)
    }

    fn refusal(&self) -> Discard {
        let mut packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let mut queue = SendQueue::new(4096);
        let outcome = self.1.encapsulate(Instant::now(), &mut packet, Gso::default(), &mut queue);
        outcome.expect_err("nothing protects it")
    }
}

#[test]
fn sas_that_are_added_again_use_no_number_twice() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ledger = directory.path().join("sequences");
    let mut gateway = Changing::new(&ledger);
    assert!(!ledger.exists(), "without an SA nothing is kept");
    assert_eq!(gateway.refusal(), Discard::NoPolicy);
    let pair = || vec![sa(SaDirection::Out, 1), sa(SaDirection::In, 2)];
    for round in 0..3 {
        gateway.add(pair()).expect("nothing is in the way");
        send(&gateway.1);
        send(&gateway.1);
        let status = gateway.0.status(&mut gateway.1);
        assert_eq!(status[0].sequence, Some(2 * round + 2));
        assert!(status.iter().all(|sa| sa.added));
        assert_eq!(noted(&ledger), 2 * round + (1 << 24), "what a crash would skip");
        let removed = gateway.remove(round == 1).expect("it is there");
        assert_eq!((removed.sas.len(), removed.blocked), (2, round == 1));
        assert!(!removed.configured);
        assert_eq!(noted(&ledger), 2 * round + 2, "nothing is skipped");
        let blocked = gateway.0.blocked();
        match round {
            1 => assert_eq!((gateway.refusal(), blocked.len()), (Discard::NoSa, 1)),
            _ => assert_eq!((gateway.refusal(), blocked.len()), (Discard::NoPolicy, 0)),
        }
    }
    let Changing(manual, mut plane) = gateway;
    manual.end(&mut plane);
    let (_manual, plane) = start(&ledger).expect("the lock is free");
    send(&plane);
    assert_eq!(noted(&ledger), 6 + (1 << 24), "the next start goes on behind them, too");
}

#[test]
fn a_refused_change_at_run_time_changes_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut gateway = Changing::new(&directory.path().join("sequences"));
    gateway.add(vec![sa(SaDirection::Out, 1)]).expect("nothing is in the way");
    let refused = |gateway: &mut Changing, sas| {
        gateway.add(sas).expect_err("it does not go together").to_string()
    };
    let text = refused(&mut gateway, vec![sa(SaDirection::In, 2), sa(SaDirection::Out, 3)]);
    assert!(text.contains("\"link\" (out) is there already; remove it first"), "{text}");
    let other = |direction, key| ManualSa { name: "other".to_owned(), ..sa(direction, key) };
    assert!(refused(&mut gateway, vec![other(SaDirection::Out, 1)]).contains("the same key"));
    // The plane takes the first of them, and not the second.
    gateway.add(vec![sa(SaDirection::In, 2)]).expect("it completes the pair");
    let text = refused(&mut gateway, vec![other(SaDirection::Out, 3), other(SaDirection::In, 4)]);
    assert!(text.contains("SPI 00000007 is in use"), "{text}");
    let status = gateway.0.status(&mut gateway.1);
    assert_eq!(
        status.iter().map(|s| s.sa.direction).collect::<Vec<_>>(),
        [SaDirection::Out, SaDirection::In]
    );
    assert_eq!(gateway.0.blocked(), [""; 0]);
    assert!(sends(&gateway.1), "the others are as they were");
    let text = gateway.0.remove_now(&mut gateway.1, "lonk", false).expect_err("none").to_string();
    assert!(text.contains("no manual SA has the name \"lonk\"; there are link"), "{text}");
}

#[test]
fn a_blocked_name_keeps_its_traffic_blocked_when_new_sas_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut gateway = Changing::new(&directory.path().join("sequences"));
    gateway
        .add(vec![sa(SaDirection::Out, 1), sa(SaDirection::In, 2)])
        .expect("nothing is in the way");
    gateway.remove(true).expect("it is there");
    let wrong = |direction| ManualSa { key: Secret::new(vec![9; 3]), ..sa(direction, 1) };
    let mut elsewhere = wrong(SaDirection::Out);
    elsewhere.selectors.remote.clone_from(&elsewhere.selectors.local);
    gateway.add(vec![elsewhere]).expect_err("no key of that length");
    assert_eq!(gateway.refusal(), Discard::NoSa, "the rule of before is back");
    assert!(gateway.remove(false).expect("it is blocked").sas.is_empty());
    assert_eq!(gateway.refusal(), Discard::NoPolicy);
}

/// Of two that share a key with consent, the one that stays goes on with what is on record.
#[test]
fn a_removal_frees_no_number_that_another_sa_may_use() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let ledger = directory.path().join("sequences");
    let mut gateway = Changing::new(&ledger);
    let shared = |name: &str| {
        let (name, shared_key) = (name.to_owned(), true);
        ManualSa { name, shared_key, ..sa(SaDirection::Out, 1) }
    };
    gateway.add(vec![shared("link"), shared("other")]).expect("both consent");
    gateway.remove(false).expect("it is there");
    assert_eq!(noted(&ledger), 1 << 24);
}

#[test]
fn sas_that_do_not_go_together_are_refused() {
    let refused = |sas: Vec<ManualSa>| {
        ManualSas::new(sas, PathBuf::new()).expect_err("they do not go together").to_string()
    };
    assert!(
        refused(vec![sa(SaDirection::In, 1), sa(SaDirection::In, 2)])
            .contains("twice with direction in")
    );
    let shared = refused(vec![sa(SaDirection::In, 1), sa(SaDirection::Out, 1)]);
    assert!(shared.contains("\"link\" (in) and \"link\" (out) have the same key"), "{shared}");
    let consent = |direction| ManualSa { shared_key: true, ..sa(direction, 1) };
    assert!(
        ManualSas::new(vec![consent(SaDirection::In), consent(SaDirection::Out)], PathBuf::new())
            .is_ok()
    );
    let mut other = sa(SaDirection::Out, 2);
    other.selectors.local.clone_from(&other.selectors.remote);
    assert!(refused(vec![sa(SaDirection::In, 1), other]).contains("not of the same traffic"));
    // Of three, two have not consented.
    let third = ManualSa { name: "third".to_owned(), ..consent(SaDirection::In) };
    let alone = ManualSa { name: "alone".to_owned(), ..sa(SaDirection::Out, 1) };
    assert!(refused(vec![consent(SaDirection::Out), alone, third]).contains("the same key"));
}

#[test]
fn a_reqid_is_of_one_name_and_not_of_vpnd() {
    let with = |name: &str, direction, reqid| {
        let key = if direction == SaDirection::In { 1 } else { 2 };
        ManualSa { name: name.to_owned(), reqid, ..sa(direction, key) }
    };
    let new = |sas: Vec<ManualSa>| ManualSas::new(sas, PathBuf::new()).map(drop);
    let refused = |sas| new(sas).expect_err("they do not go together").to_string();
    let (first, last) = (0x7600_0001, 0x76ff_ffff);
    for reqid in [0, first, last] {
        let text = refused(vec![with("a", SaDirection::In, Some(reqid))]);
        assert!(text.contains(&format!("{first} to {last}")), "{text}");
    }
    let text =
        refused(vec![with("a", SaDirection::In, Some(7)), with("a", SaDirection::Out, None)]);
    assert!(text.contains("two reqids"), "{text}");
    let text =
        refused(vec![with("a", SaDirection::In, Some(7)), with("b", SaDirection::Out, Some(7))]);
    assert!(text.contains("\"a\" and \"b\" both have reqid 7"), "{text}");
    let pair = vec![with("a", SaDirection::In, Some(7)), with("a", SaDirection::Out, Some(7))];
    new(pair).expect("a pair has one");
}

/// In a time that grows with their number alone: each compared with all others would take long here.
#[test]
fn many_go_together() {
    let one = |number: u32| {
        let key = Secret::new(number.to_be_bytes().repeat(5));
        ManualSa { name: format!("{}", number / 2), key, ..sa(SaDirection::In, 0) }
    };
    let mut sas: Vec<ManualSa> = (0..20_000).map(one).collect();
    for sa in sas.iter_mut().step_by(2) {
        sa.direction = SaDirection::Out;
    }
    ManualSas::new(sas.clone(), PathBuf::new()).expect("each has its own key");
    sas[19_999].key = sas[0].key.clone();
    let refused = ManualSas::new(sas, PathBuf::new()).expect_err("the last has that of the first");
    assert!(matches!(refused, ManualSaError::SharedKey { .. }), "{refused}");
}
