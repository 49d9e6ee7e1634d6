//! Hand-overs between two ends of one connection. The kernel closes the descriptors of a process that is killed: dropping
//! them is the same to the other end.

use super::*;
use std::fs::File;
use std::io::{Read, Seek, Write};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn ends() -> (Predecessor, Successor) {
    let (here, there) = UnixStream::pair().expect("sockets");
    (Predecessor::new(here).expect("an end"), Successor::new(there).expect("an end"))
}

/// A file for each number, which has it as its text.
fn files(count: usize) -> Descriptors {
    let mut descriptors = Descriptors::default();
    for number in 0..count {
        let mut file = tempfile::tempfile().expect("a file");
        write!(file, "{number}").expect("writable");
        descriptors.add(&format!("file.{number}"), file.into()).expect("a new name");
    }
    descriptors
}

/// Has a successor do something with what is handed over, and tells how that ends for its predecessor.
fn ending(limit: Duration, succeed: impl FnOnce(Inheritance) + Send) -> Ending {
    let (predecessor, successor) = ends();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let memory = BlankState::new().expect("memory");
            succeed(successor.ask(memory, LONG).expect("everything"));
        });
        let memory = predecessor.await_successor(LONG).expect("it is ready");
        let state = memory.fill(b"state").expect("there is memory");
        predecessor.hand_over(&state, &files(3), limit)
    })
}

#[test]
fn a_successor_gets_everything_and_goes_on() {
    let (predecessor, successor) = ends();
    let count = 3 * TOGETHER + 1;
    let ended = std::thread::spawn(move || {
        let memory = predecessor.await_successor(LONG).expect("it is ready");
        let state = memory.fill(b"all keys").expect("there is memory");
        predecessor.hand_over(&state, &files(count), LONG)
    });
    let memory = BlankState::new().expect("memory");
    let inheritance = successor.ask(memory, LONG).expect("everything");
    let Inheritance { state, mut descriptors, right } = inheritance;
    assert_eq!(&**state.read().expect("readable"), b"all keys");
    assert_eq!(descriptors.names().count(), count);
    for number in 0..count {
        let mut file = File::from(descriptors.take(&format!("file.{number}")).expect("named"));
        let mut text = String::new();
        file.rewind().expect("a file");
        file.read_to_string(&mut text).expect("readable");
        assert_eq!(text, number.to_string());
    }
    assert!(descriptors.take("file.0").is_none(), "it was taken");
    let confirmation = right.take().expect("known").expect("nobody else has it");
    confirmation.confirm("vpnd 2, process 17").expect("it waits");
    let by = Some("vpnd 2, process 17".to_owned());
    assert_eq!(ended.join().expect("no panic"), Ending::Succeeded { by });
}

#[test]
fn a_successor_that_ends_before_it_has_the_right_leaves_it() {
    let why = "the other process has ended".to_owned();
    assert_eq!(ending(LONG, drop), Ending::GoOn { why });
    let refused = ending(LONG, |inheritance| inheritance.right.refuse("format 9 is unknown"));
    assert_eq!(refused, Ending::GoOn { why: "format 9 is unknown".to_owned() });
}

#[test]
fn a_predecessor_does_not_go_on_after_a_successor_that_had_the_right() {
    // Killed before it could say so.
    let ended = ending(LONG, |inheritance| drop(inheritance.right.take()));
    assert_eq!(ended, Ending::Succeeded { by: None });
}

#[test]
fn a_successor_that_is_too_slow_finds_that_its_predecessor_goes_on() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let ended = ending(SHORT, |inheritance| sender.send(inheritance.right).expect("kept"));
    let why = "the other process takes too long".to_owned();
    // The successor keeps its end of the connection: it was stopped, and not killed.
    assert_eq!(ended, Ending::GoOn { why });
    let right = receiver.recv().expect("kept");
    assert!(right.take().expect("known").is_none());
}

#[test]
fn a_successor_goes_on_after_a_predecessor_that_was_killed() {
    let (predecessor, successor) = ends();
    let memory = BlankState::new().expect("memory");
    let asking = std::thread::spawn(move || successor.ask(memory, LONG));
    let state = predecessor.await_successor(LONG).expect("ready").fill(b"x").expect("memory");
    let Predecessor(link) = predecessor;
    give(&link, &state, &files(1), &Baton::new().expect("a pipe")).expect("it listens");
    drop(link);
    let inheritance = asking.join().expect("no panic").expect("all was sent");
    let confirmation = inheritance.right.take().expect("known").expect("nobody else has it");
    assert!(confirmation.confirm("it does not matter").is_err());
}

#[test]
fn a_predecessor_that_is_killed_before_everything_is_sent_leaves_nothing() {
    let (predecessor, successor) = ends();
    let memory = BlankState::new().expect("memory");
    let asking = std::thread::spawn(move || successor.ask(memory, LONG));
    predecessor.await_successor(LONG).expect("it is ready");
    let Predecessor(link) = predecessor;
    let file = tempfile::tempfile().expect("a file");
    link.send(LONG, kind::NAMED, "tun.0", &[file.as_fd()]).expect("it listens");
    drop(link);
    let refused = asking.join().expect("no panic").expect_err("the state is missing");
    assert!(refused.to_string().ends_with("the other process has ended"), "{refused}");
}

#[test]
fn a_confirmation_without_the_right_counts_for_nothing() {
    let ended = ending(LONG, |inheritance| {
        let Right { link, .. } = &inheritance.right;
        link.send(LONG, kind::CONFIRMED, "me", &[]).expect("it waits");
    });
    let why = "the successor has confirmed what it has not".to_owned();
    assert_eq!(ended, Ending::GoOn { why });
}

#[test]
fn a_refusal_is_told() {
    let (predecessor, successor) = ends();
    let memory = BlankState::new().expect("memory");
    let asking = std::thread::spawn(move || successor.ask(memory, LONG));
    predecessor.await_successor(LONG).expect("it is ready");
    predecessor.refuse(&format!("worker vpn0-1 is stuck{}", "!".repeat(2 * LONGEST_TEXT)));
    match asking.join().expect("no panic") {
        Err(HandoverError::Refused(why)) => {
            assert!(why.starts_with("worker vpn0-1 is stuck!") && why.len() == LONGEST_TEXT);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_successor_that_is_not_ready_is_not_waited_for() {
    let (predecessor, successor) = ends();
    let late = predecessor.await_successor(SHORT).expect_err("it says nothing");
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    drop(successor);
    let gone = predecessor.await_successor(LONG).expect_err("it has ended");
    assert_eq!(gone.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn keys_are_sent_to_no_file_on_a_disk() {
    let (predecessor, Successor(link)) = ends();
    let file = tempfile::tempfile().expect("a file");
    link.send(LONG, kind::FREEZE, "", &[file.as_fd()]).expect("it listens");
    assert!(predecessor.await_successor(LONG).is_err());
    link.send(LONG, kind::FREEZE, "", &[]).expect("it listens");
    assert!(predecessor.await_successor(LONG).is_err());
}

#[test]
fn a_predecessor_that_does_not_keep_to_the_protocol_is_refused() {
    let file = tempfile::tempfile().expect("a file");
    let sealed = BlankState::new().expect("memory").fill(b"x").expect("memory");
    let baton = Baton::new().expect("a pipe");
    let (file, sealed, baton) = (file.as_fd(), sealed.as_fd(), baton.as_fd());
    let frames: [(u8, &str, &[BorrowedFd<'_>]); 9] = [
        (kind::NAMED, "a\nb", &[file]),
        (kind::NAMED, "a\na", &[file, file]),
        (kind::NAMED, "", &[file]),
        (kind::NAMED, "../a", &[file]),
        (kind::FROZEN, "", &[sealed]),
        (kind::FROZEN, "", &[baton, sealed]),
        (kind::FROZEN, "", &[file, baton]),
        (kind::CONFIRMED, "", &[]),
        (77, "", &[]),
    ];
    for (kind, text, descriptors) in frames {
        let (Predecessor(link), successor) = ends();
        link.send(LONG, kind, text, descriptors).expect("room");
        let memory = BlankState::new().expect("memory");
        let outcome = successor.ask(memory, LONG).map(drop);
        assert!(matches!(outcome, Err(HandoverError::System(_))), "{kind} {text:?}: {outcome:?}");
    }
}

#[test]
fn names_are_those_of_a_protocol_and_stand_once() {
    let mut descriptors = Descriptors::default();
    let mut add = |name: &str| {
        let file = tempfile::tempfile().expect("a file");
        descriptors.add(name, file.into()).is_ok()
    };
    assert!(add("port.joined.0.4") && add("lock.device") && add("tun-0"));
    assert!(!add("tun-0"));
    let long = "x".repeat(LONGEST_NAME + 1);
    for name in ["", "a b", "a\n", "A", "a/b", &long] {
        assert!(!add(name), "{name:?}");
    }
    assert_eq!(
        descriptors.names().collect::<Vec<_>>(),
        ["lock.device", "port.joined.0.4", "tun-0"]
    );
}
