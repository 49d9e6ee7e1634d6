//! `vpnd` against strongSwan: real daemons, real packets, each scenario between network namespaces of its own.
//!
//! Needs root, `/dev/net/tun`, `curl`, `ip`, `nft`, `openssl`, `ping`, `unshare`, `setpriv`, and strongSwan's `charon` with the
//! plugin kernel-libipsec, `swanctl` and `pki` (Debian: strongswan-swanctl, strongswan-charon, strongswan-pki,
//! libcharon-extra-plugins, libstrongswan-standard-plugins, libstrongswan-extra-plugins). Where one is
//! missing, every scenario is reported as ignored, with the reason; with `VPN_TEST_REQUIRE=all` in the environment it
//! fails. What a daemon logged stands behind the message of a failed scenario.
//!
//! The scenarios `newest` are played with the strongSwan that `tests/peers` puts into a root directory of its own. With
//! `VPN_TEST_STRONGSWAN=newest` in the environment, all of them are.
//!
//! charon's userspace plane knows ESP in UDP and tunnel mode only, and no extended sequence numbers; the tests of this
//! implementation against itself cover those.
#![forbid(unsafe_code)]

mod authority;
mod charon;
mod launch;
mod needs;
mod own_authority;
mod scenarios;
mod setup;
mod traffic;
mod vpnd;
mod world;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use setup::Setup;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::World;

/// After this long, something that is waited for is taken never to happen. No test depends on it: it only ends one that hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// A name, what both sides are configured with, and what then happens.
struct Scenario {
    name: String,
    setup: Setup,
    play: Box<dyn FnOnce(&mut World) + Send>,
}

/// Makes a scenario.
fn scenario(
    name: impl Into<String>,
    setup: Setup,
    play: impl FnOnce(&mut World) + Send + 'static,
) -> Scenario {
    Scenario { name: name.into(), setup, play: Box::new(play) }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a scenario's time is spent waiting for a daemon to start or for a message to be sent again.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads = arguments.test_threads.or(Some(processors * 4));
    let lacking = needs::lacking();
    let all_newest = std::env::var("VPN_TEST_STRONGSWAN").is_ok_and(|which| which == "newest");
    let trials = scenarios::all()
        .into_iter()
        .map(|Scenario { name, mut setup, play }| {
            let lacking = lacking.clone();
            setup.newest |= all_newest;
            let newest = setup.newest;
            Trial::ignorable_test(name, move || match lacking {
                Some(why) => needs::without(&why),
                None if newest => match launch::no_newest() {
                    Some(Ok(unavailable)) => Ok(needs::leave_out(&unavailable)),
                    Some(Err(why)) => needs::without(&why),
                    None => run(setup, play),
                },
                None => run(setup, play),
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run(setup: Setup, play: Box<dyn FnOnce(&mut World) + Send>) -> Result<Completion, Failed> {
    let mut world = World::new(setup).map_err(Failed::from)?;
    match catch_unwind(AssertUnwindSafe(|| play(&mut world))) {
        Ok(()) => Ok(Completion::Completed),
        Err(panic) => {
            let text = (panic.downcast_ref::<String>().map(String::as_str))
                .or(panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without words");
            Err(Failed::from(format!("{text}\n{}", world.last_words())))
        }
    }
}

/// Waits until something is there.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
