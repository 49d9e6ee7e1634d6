//! Each call by which the daemon changes the host fails once: at the start, while rules are added and changed, and
//! while a tunnel comes up.

use super::scene::{Plane, Scene, Setting};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use testkit::output;
use testkit::policies::changed;
use testkit::until;

/// The library that is loaded into the daemon.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/leaks/faults.c");

/// A kind of call, as in `faults.c`.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The program `nft` cannot be started.
    Spawn = 1,
    /// The program `nft` ends with an error, and nothing has changed.
    Refuse = 2,
    /// A request to the kernel by netlink (routes, addresses, XFRM) is not sent.
    Netlink = 3,
    /// The program `nft` ends with an error whenever it is to change something.
    RefuseChanges = 4,
}

const KINDS: [Kind; 3] = [Kind::Spawn, Kind::Refuse, Kind::Netlink];

/// The memory that the library shares with this process.
struct Faults(File);

impl Faults {
    /// Has the left gateway's daemon load the library from now on.
    fn of(scene: &mut Scene) -> Self {
        let [library, shared] = ["faults.so", "faults"].map(|name| scene.left.path(name));
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        compile.arg(SOURCE).arg("-ldl");
        output(compile);
        let options = File::options().read(true).write(true).create_new(true).open(&shared);
        let file = options.expect("writable");
        file.set_len(4096).expect("writable");
        scene.left.environment = vec![("LD_PRELOAD", library.into()), ("FAULTS", shared.into())];
        Self(file)
    }

    /// The call of this kind with this number from now on fails. 0: none does.
    fn arm(&self, kind: Kind, number: u32) {
        let kind = if number == 0 { 0 } else { kind as u32 };
        // The kind comes last: it arms the others.
        for (place, value) in [(8, 0), (4, number), (0, kind)] {
            self.0.write_all_at(&value.to_ne_bytes(), place).expect("writable");
        }
    }

    fn has_fired(&self) -> bool {
        let mut octets = [0; 4];
        self.0.read_exact_at(&mut octets, 8).expect("readable");
        u32::from_ne_bytes(octets) != 0
    }
}

/// Plays a step again and again: first its first call fails, then a later one, until it makes no further one. With
/// `LEAK_FAULTS=all` in the environment, each of its calls fails once. The step gets the number of the call.
fn for_each_fault(
    scene: &mut Scene,
    faults: &Faults,
    what: &str,
    before: fn(&mut Scene),
    step: fn(&mut Scene, u32),
) {
    let all = std::env::var("LEAK_FAULTS").is_ok_and(|which| which == "all");
    for kind in KINDS {
        // Most calls are requests by netlink, above all where the kernel has the SAs.
        let pace = match (kind, scene.setting.plane) {
            (Kind::Netlink, Plane::Userspace) if !all => 3,
            (Kind::Netlink, Plane::Xfrm) if !all => 10,
            _ => 1,
        };
        for number in (1..).step_by(pace) {
            before(scene);
            faults.arm(kind, number);
            step(scene, number);
            scene.quietly(&format!("{what}: call {number} of {kind:?} has failed"), |_| {});
            let fired = faults.has_fired();
            faults.arm(kind, 0);
            if !fired {
                break;
            }
            // Protected packets pass again, by the same daemon.
            scene.left.ctl_ok(&["reload"]);
            scene.left.ctl_ok(&["activate", "site"]);
            scene.passes_again(&format!("{what}: call {number} of {kind:?} had failed"));
        }
    }
}

pub fn faults(setting: Setting) {
    let mut scene = Scene::new(setting);
    let faults = Faults::of(&mut scene);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();

    for_each_fault(
        &mut scene,
        &faults,
        "reload with other rules",
        |_| {},
        |s, number| {
            let policy = s.setting.policy(0);
            let [_, last] = s.setting.family.ranges[1];
            let larger = last.replace("10.2.0.", "10.2.3.").replace("::", "::3:");
            // Another one than the time before.
            let end = if number % 2 == 0 { last } else { &larger };
            s.left.write_policy(&changed(&policy, last, end));
            s.quietly("a reload that fails in part", |s| drop(s.left.ctl(&["reload"])));
        },
    );
    recovers(&mut scene);

    for_each_fault(
        &mut scene,
        &faults,
        "reload with the tunnel",
        |s| {
            let policy = s.setting.policy(0);
            s.left.write_policy(&without_site(&policy));
            s.left.ctl_ok(&["reload"]);
        },
        |s, _| {
            s.left.write_policy(&s.setting.policy(0));
            drop(s.left.ctl(&["reload"]));
        },
    );
    recovers(&mut scene);

    for_each_fault(
        &mut scene,
        &faults,
        "activate",
        |s| drop(s.left.ctl(&["deactivate", "site"])),
        |s, _| s.quietly("an activation that fails", |s| drop(s.left.ctl(&["activate", "site"]))),
    );
    recovers(&mut scene);

    for_each_fault(
        &mut scene,
        &faults,
        "start",
        |s| s.quietly("a crash", |s| s.left.crash()),
        |s, _| {
            let mut runs = true;
            s.quietly("a start that may fail", |s| runs = s.left.try_start());
            if !runs {
                s.quietly("the next start", |s| s.left.start());
            }
        },
    );
    recovers(&mut scene);
}

/// nftables refuses every change for a while: the daemon says so and goes on trying.
pub fn refusals(setting: Setting) {
    let mut scene = Scene::new(setting);
    let faults = Faults::of(&mut scene);
    scene.start();
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
    let [is_blocked, is_well] = ["blocked", "established"].map(|state| {
        move |s: &Scene| {
            let says = || s.left.ctl_ok(&["list"]).contains(state).then_some(());
            until(&format!("the tunnel is {state}"), says, || s.left.log());
        }
    });

    scene.quietly("the guard goes, and may not come back", |s| {
        faults.arm(Kind::RefuseChanges, 1);
        s.left.space.sh("nft delete table inet vpn_guard_vpn0");
        is_blocked(s);
        let why = s.left.ctl_ok(&["why", "site_lan"]);
        assert!(why.contains("vpn_guard_vpn0 of nftables"), "{why}");
        // It does not wait for nftables to take the table.
        s.left.ctl_ok(&["reload"]);
    });
    assert!(faults.has_fired());
    scene.passes();
    faults.arm(Kind::RefuseChanges, 0);
    is_well(&scene);
    scene.settled();
    scene.passes();

    scene.left.configure("[filter]\nguard = \"required\"\n");
    scene.quietly("a start without the guard that it requires", |s| {
        s.left.crash();
        faults.arm(Kind::RefuseChanges, 1);
        assert!(!s.left.try_start());
    });
    let log = scene.left.log();
    assert!(log.contains("putting the table vpn_guard_vpn0 of nftables in force"), "{log}");
    faults.arm(Kind::RefuseChanges, 0);
    scene.quietly("the next start", |s| s.left.start());
}

/// The policy with the tunnel to another network.
fn without_site(policy: &str) -> String {
    policy.replace("10.2.0.", "10.99.0.").replace("fd02::", "fd99::")
}

/// Without faults, all is well again.
fn recovers(scene: &mut Scene) {
    scene.left.write_policy(&scene.setting.policy(0));
    scene.quietly("a reload without faults", |s| drop(s.left.ctl_ok(&["reload"])));
    scene.left.ctl_ok(&["activate", "site"]);
    scene.passes();
}
