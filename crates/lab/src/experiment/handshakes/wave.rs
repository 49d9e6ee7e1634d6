//! Waves: tunnels that come up so many at a time, one after the other, and are deleted together at the end.
//!
//! The side that is sent a Delete answers it only once packets that are still on their way have arrived
//! (`drain_before_answer` of crate `ike`). That wait is no part of a handshake, so deletions are not measured.

use crate::load::PATIENCE;
use crate::site::Tunnels;
use control::protocol::{Command as Ask, Reply};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Sends commands to the initiator, over a connection of its own.
pub(super) type Asking<'a> = Box<dyn FnMut(Ask) -> Result<Reply, String> + Send + 'a>;

/// Between two looks at tunnels that are being deleted.
const LOOK: Duration = Duration::from_millis(5);

/// Begins work on every tunnel, on as many at a time as there are connections; the results, in no order.
///
/// # Errors
/// The first error of the work; some tunnels have not been begun then.
pub(super) fn run<T: Send>(
    connections: &mut [Asking<'_>],
    tunnels: &Tunnels,
    work: impl Fn(&mut Asking<'_>, u8) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let next = AtomicU8::new(0);
    let take = || next.fetch_update(Relaxed, Relaxed, |n| (n < tunnels.number).then_some(n + 1));
    let all = |ask: &mut Asking<'_>| {
        let mut results = Vec::new();
        while let Ok(n) = take() {
            results.push(work(ask, n)?);
        }
        Ok(results)
    };
    scope(|scope| {
        let threads: Vec<_> = connections.iter_mut().map(|ask| scope.spawn(|| all(ask))).collect();
        let mut results = Vec::new();
        for thread in threads {
            let outcome = thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()));
            results.extend(outcome?);
        }
        Ok(results)
    })
}

/// Deletes all tunnels, and returns when none of them is left.
///
/// # Errors
/// If the initiator refuses, or a tunnel stays.
pub(super) fn delete(ask: &mut Asking<'_>, tunnels: &Tunnels) -> Result<(), String> {
    let names: Vec<String> = (0..tunnels.number).map(|n| tunnels.name(n)).collect();
    for name in &names {
        ask(Ask::BeginDeactivation { name: name.clone() })?;
    }
    let begun = Instant::now();
    loop {
        let Reply::Tunnels(active) = ask(Ask::List { all: false })? else {
            return Err("an unexpected reply to the question about tunnels".to_owned());
        };
        let Some(left) = active.iter().find(|tunnel| names.contains(&tunnel.name)) else {
            return Ok(());
        };
        if begun.elapsed() > PATIENCE {
            return Err(format!("the tunnel {} is not deleted in {PATIENCE:?}", left.name));
        }
        sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Authentication;
    use std::sync::Mutex;

    const TUNNELS: Tunnels = Tunnels { authentication: Authentication::PresharedKey, number: 9 };

    #[test]
    fn every_tunnel_is_worked_on_once_over_any_number_of_connections() {
        for connections in [1, 3, 20] {
            let mut connections: Vec<Asking<'_>> =
                (0..connections).map(|_| Box::new(|_| Ok(Reply::Done)) as Asking<'_>).collect();
            let mut seen = run(&mut connections, &TUNNELS, |_, n| Ok(n)).expect("no error");
            seen.sort_unstable();
            assert_eq!(seen, Vec::from_iter(0..9));
        }
    }

    #[test]
    fn an_error_ends_a_wave() {
        let mut connections: Vec<Asking<'_>> = vec![Box::new(|_| Ok(Reply::Done))];
        let work = |_: &mut Asking<'_>, n| if n == 2 { Err("two".to_owned()) } else { Ok(n) };
        assert_eq!(run(&mut connections, &TUNNELS, work), Err("two".to_owned()));
    }

    #[test]
    fn deletion_ends_when_no_tunnel_of_the_wave_is_left() {
        let asked = Mutex::new(Vec::new());
        let mut ask: Asking<'_> = Box::new(|command| {
            let reply = match &command {
                Ask::List { .. } => Reply::Tunnels(vec![]),
                _ => Reply::Done,
            };
            asked.lock().expect("not poisoned").push(command);
            Ok(reply)
        });
        delete(&mut ask, &TUNNELS).expect("all gone");
        drop(ask);
        let asked = asked.into_inner().expect("not poisoned");
        assert_eq!(asked.len(), 10);
        assert!(matches!(&asked[8], Ask::BeginDeactivation { name } if name == "psk8"));
    }
}
