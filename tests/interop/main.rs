//! `vpnd` against strongSwan: real daemons, real packets, each scenario between network namespaces of its own.
//!
//! Needs root, `/dev/net/tun`, `curl`, `ip`, `nft`, `openssl`, `ping`, `unshare`, `setpriv`, and strongSwan's `charon`
//! with the plugin kernel-libipsec, `swanctl` and `pki` (Debian: strongswan-swanctl, strongswan-charon, strongswan-pki,
//! libcharon-extra-plugins, libstrongswan-standard-plugins, libstrongswan-extra-plugins); for tokens softhsm2. Where
//! one is missing, every scenario is reported as ignored, with the reason; with `VPN_TEST_REQUIRE=all` in the
//! environment it fails. The daemons' logs follow the message of a failed scenario.
//!
//! The scenarios `newest` are played with the strongSwan that `tests/peers` puts into a root directory of its own. With
//! `VPN_TEST_STRONGSWAN=newest` in the environment, all of them are.
//!
//! charon's userspace plane knows ESP in UDP and tunnel mode only, and no extended sequence numbers; the tests of this
//! implementation against itself cover those.
#![forbid(unsafe_code)]

mod authority;
mod charon;
mod own_authority;
mod scenarios;
mod setup;
mod token;
mod traffic;
mod vpnd;
mod world;

use libtest_mimic::{Completion, Failed, Trial};
use scenes::documented;
use setup::Setup;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use testkit::strongswan::{self, NEWEST_NEEDED};
use world::World;

/// A name, the configuration of both sides, and the steps.
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
    let lacking = strongswan::lacking();
    let all_newest = std::env::var("VPN_TEST_STRONGSWAN").is_ok_and(|which| which == "newest");
    let scenarios = scenarios::all();
    let names = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    let tables = documented::tables(names, |name| name.contains("::"));
    let trials = scenarios
        .into_iter()
        .map(|Scenario { name, mut setup, play }| {
            let lacking = lacking.clone();
            // The newest one's root directory has no token.
            setup.newest |= all_newest && !setup.has_token();
            let needs = match (setup.newest, setup.has_token()) {
                (true, _) => NEWEST_NEEDED,
                (false, true) => token::NEEDS,
                (false, false) => &[],
            };
            let unbuilt =
                name.starts_with("responder::") && !scenarios::responder::example().exists();
            Trial::ignorable_test(name, move || {
                if unbuilt {
                    return testkit::without("the example is not built; cargo build --examples");
                }
                if let Some(unavailable) = testkit::unavailable(needs) {
                    return Ok(testkit::leave_out(&unavailable));
                }
                match lacking {
                    Some(why) => testkit::without(&why),
                    None => testkit::with_needs(needs, || run(setup, play)),
                }
            })
        })
        .chain([tables])
        .collect();
    testkit::run(trials)
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
