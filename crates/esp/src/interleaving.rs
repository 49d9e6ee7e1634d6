//! Values that threads share, in every order in which the threads may come to them (loom): sequence numbers, the
//! anti-replay window, and packets that wait for their SA in either direction.
//!
//! No module of the library, but the root of the test target `interleaving`: it is beside the sources, which are compiled
//! once more as its modules, with loom's locks in place of the system's.

#![allow(
    dead_code,
    unused_imports,
    reason = "the models use what threads share, and not the unit tests beside it"
)]

mod datapath {
    pub(crate) mod early;
}
mod replay;
mod sequence;
mod spd {
    pub(crate) mod held;
}

mod sync {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
}

mod sa {
    pub(crate) use esp::datapath::Arrival;
}

mod gso {
    pub(crate) use esp::gso::Gso;
}

mod plane {
    pub(crate) use esp::plane::Spi;
}

mod discard {
    pub(crate) use esp::discard::Discard;
}

use datapath::early::Early;
use esp::datapath::Arrival;
use esp::gso::Gso;
use esp::plane::{Encapsulation, Path, Spi};
use libtest_mimic::{Arguments, Trial};
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use replay::Window;
use sequence::{NoNumber, Sequence};
use spd::held::Held;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let model = |name: &str, model: fn()| {
        Trial::test(name, move || {
            // Switches between threads beyond what they wait for; more finds no more and takes minutes.
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(3);
            builder.check(model);
            Ok(())
        })
    };
    let trials = vec![
        model("every sequence number is given once, and none past the last", claimed_once),
        model(
            "a sequence that is closed has counted every number it has given",
            closed_and_counted,
        ),
        model(
            "a number that is claimed while a sequence is frozen is known, and comes once",
            frozen_and_known,
        ),
        model("of two packets with one number one passes", replayed_once),
        model("batches settle as a whole or not at all", settled_once),
        model("a packet that comes while its SA is added is opened, once", early_packet),
        model("a packet that is held while its SA is added is sent, once", held_packet),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn claimed_once() {
    const LAST: u64 = 5;
    let sequence = Arc::new(Sequence::after(0));
    let claim = |sequence: &Sequence| [sequence.claim(2, LAST), sequence.claim(1, LAST)];
    let others = [(); 2].map(|()| {
        let sequence = Arc::clone(&sequence);
        thread::spawn(move || claim(&sequence))
    });
    let mut numbers: Vec<u64> = others
        .into_iter()
        .flat_map(|other| other.join().expect("no panic"))
        .zip([2, 1, 2, 1])
        .filter_map(|(first, count)| first.ok().map(|first| first..first + count))
        .flatten()
        .collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
    assert!(numbers.iter().all(|number| (1..=LAST).contains(number)), "{numbers:?}");
}

fn closed_and_counted() {
    let sequence = Arc::new(Sequence::after(7));
    let others = [1, 2].map(|count| {
        let sequence = Arc::clone(&sequence);
        thread::spawn(move || match sequence.claim(count, 100) {
            Ok(_) => count,
            Err(why) => {
                assert_eq!(why, NoNumber::Closed);
                0
            }
        })
    });
    sequence.close();
    let (given, used) = (sequence.given(), sequence.used());
    let claimed: u64 = others.into_iter().map(|other| other.join().expect("no panic")).sum();
    assert_eq!((given, used), (claimed, 7 + claimed));
    assert_eq!(sequence.given(), given, "none follows");
    assert_eq!(sequence.claim(1, 100), Err(NoNumber::Closed));
}

/// A worker that does not know of it, and a process that goes on elsewhere behind the last number, or here.
fn frozen_and_known() {
    let sequence = Arc::new(Sequence::after(7));
    let others = [1, 2].map(|count| {
        let sequence = Arc::clone(&sequence);
        thread::spawn(move || match sequence.claim(count, 100) {
            Ok(first) => first + count - 1,
            Err(why) => {
                assert_eq!(why, NoNumber::Frozen);
                0
            }
        })
    });
    sequence.freeze();
    let used = sequence.used();
    let highest = others.into_iter().map(|other| other.join().expect("no panic")).max();
    assert!(highest.is_some_and(|highest| highest.max(7) == used), "{highest:?} {used}");
    assert_eq!(sequence.claim(1, 100), Err(NoNumber::Frozen));
    sequence.freeze();
    assert_eq!(sequence.used(), used);
    sequence.thaw();
    assert_eq!(sequence.claim(1, 100), Ok(used + 1));
    sequence.freeze();
    sequence.close();
    assert_eq!((sequence.used(), sequence.given()), (used + 1, used + 1 - 7));
    sequence.thaw();
    assert_eq!(sequence.claim(1, 100), Err(NoNumber::Closed));
}

fn replayed_once() {
    let window = Arc::new(Mutex::new(Window::new(64)));
    // As a packet is taken in: it may be new, it is opened, it is new.
    let receive = |window: &Mutex<Window>, number| {
        let may_be_new = window.lock().expect("no panic").check(number).is_ok();
        may_be_new && window.lock().expect("no panic").commit(number).is_ok()
    };
    let other = {
        let window = Arc::clone(&window);
        thread::spawn(move || [receive(&window, 7), receive(&window, 8)])
    };
    let mine = [receive(&window, 7), receive(&window, 9)];
    let others = other.join().expect("no panic");
    assert!(mine[0] ^ others[0], "one of the two");
    assert!(mine[1] && others[1], "these have no double");
}

fn settled_once() {
    let window = Arc::new(Mutex::new(Window::new(64)));
    // As a batch is settled: at once, or one by one where its numbers are not all new.
    let settle = |window: &Mutex<Window>, mut numbers: Vec<u64>| {
        let mut window = window.lock().expect("no panic");
        if window.takes(&mut numbers) {
            numbers.iter().for_each(|n| assert!(window.commit(*n).is_ok(), "{n}"));
            return numbers;
        }
        numbers.retain(|number| window.commit(*number).is_ok());
        numbers
    };
    let other = {
        let window = Arc::clone(&window);
        thread::spawn(move || settle(&window, vec![1, 2, 4]))
    };
    let mut passed = settle(&window, vec![3, 2, 5]);
    passed.extend(other.join().expect("no panic"));
    passed.sort_unstable();
    assert_eq!(passed, [1, 2, 3, 4, 5]);
}

/// A worker and key management, which adds an SA, as in `Datapath`.
fn early_packet() {
    const SPI: Spi = Spi(256);
    let here = SocketAddr::from(([192, 0, 2, 1], 4500));
    let path = Path { local: here, remote: here, encapsulation: Encapsulation::Udp };
    let arrival = Arrival { path, tos: None, ttl: None };
    let early = Arc::new(Early::default());
    early.expect(SPI, here.ip());
    // The SAs by SPI.
    let there = Arc::new(AtomicBool::new(false));
    let worker = {
        let (early, there) = (Arc::clone(&early), Arc::clone(&there));
        thread::spawn(move || {
            let find = || there.load(Ordering::Acquire);
            // As `find_or_keep`.
            find() || (!early.keep(SPI, &[0; 4], &arrival) && find())
        })
    };
    there.store(true, Ordering::Release);
    let taken = early.take(SPI).len();
    let opened = worker.join().expect("no panic");
    assert_eq!(taken + usize::from(opened), 1);
    assert_eq!(early.take(SPI).len(), 0);
}

fn held_packet() {
    let held = Arc::new(Held::default());
    let served = Arc::new(AtomicBool::new(false));
    let flush = |held: &Held| std::iter::from_fn(|| held.release()).count();
    let worker = {
        let (held, served) = (Arc::clone(&held), Arc::clone(&served));
        thread::spawn(move || {
            if served.load(Ordering::Acquire) {
                return 1;
            }
            // As `miss`.
            let count = |_| panic!("nothing is late");
            held.hold(Duration::ZERO, &[0; 4], Gso::NONE, &count).expect("there is room");
            if served.load(Ordering::Acquire) { flush(&held) } else { 0 }
        })
    };
    // As `serve`.
    served.store(true, Ordering::Release);
    let mine = if held.is_empty() { 0 } else { flush(&held) };
    assert_eq!(mine + worker.join().expect("no panic"), 1);
    assert!(held.is_empty());
}
