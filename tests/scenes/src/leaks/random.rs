//! Transitions in random order.

use super::scene::{Kind, Plane, Scene, Setting};
use std::process::Stdio;
use std::time::Duration;
use testkit::policies::changed;
use testkit::until;

/// Steps of a random sequence.
const STEPS: usize = 12;

/// Transitions in any order. `LEAK_SEEDS` says how many sequences are tried, `LEAK_SEED` which one is the first.
pub fn sequences(setting: Setting) {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let first: u64 = number("LEAK_SEED", 1);
    let mut scene = Scene::new(setting);
    // After a flush of nftables and a crash, only routes hold the traffic until the start. A socket that is bound to a
    // device does not ask them.
    scene.without(&[Kind::Device]);
    if setting.plane == Plane::Xfrm {
        // The policies of the kernel know the tunnel's sources alone.
        scene.without(&Kind::WITHOUT_SOURCE);
    }
    scene.left.configure("[filter]\non_stop = \"block\"\n");
    scene.start();
    let others: &[(&str, Transition)] = match setting.plane {
        Plane::Userspace => &OTHERS_IN_USERSPACE,
        Plane::Xfrm => &OTHERS_IN_THE_KERNEL,
    };
    for seed in first..first + number("LEAK_SEEDS", 2) {
        let mut random = Seeded(seed);
        let mut done = Vec::new();
        for _ in 0..STEPS {
            let step = random.below((OWN.len() + others.len()) as u64) as usize;
            let (what, transition) = *OWN.get(step).unwrap_or_else(|| &others[step - OWN.len()]);
            done.push(what);
            scene.quietly(&format!("seed {seed}: {}", done.join(", ")), |s| {
                transition(s, random.below(1000));
                // Now and then a transition of the gateway's own follows before the daemon has put anything back. If
                // others removed tables and routes at once, nothing would hold.
                if random.below(3) == 0 {
                    let (_, second) = OWN[random.below(OWN.len() as u64) as usize];
                    second(s, random.below(1000));
                }
            });
            scene.settled();
        }
    }
    scene.left.write_policy(&setting.policy(0));
    scene.left.ctl_ok(&["reload"]);
    scene.held();
    scene.left.ctl_ok(&["activate", "site"]);
    let [from, to] = setting.family.inner;
    let option = scene.option();
    let passes = || scene.left.space.pings(&format!("{option} -I {from}"), 1, to).ok();
    until("traffic passes after all", passes, || scene.left.log());
}

/// Numbers that look random and are the same in every run (SplitMix64).
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

type Transition = fn(&mut Scene, u64);

/// Everything that may happen to a gateway by itself. The number chooses among variants.
const OWN: [(&str, Transition); 8] = [
    ("activate", |s, _| drop(s.left.ctl(&["activate", "site"]))),
    ("deactivate", |s, _| drop(s.left.ctl(&["deactivate", "site"]))),
    ("rekey", |s, n| drop(s.left.ctl(&["rekey", ["site", "site_lan"][n as usize % 2]]))),
    ("reload", |s, n| {
        let sample = s.setting.policy(0);
        let policy = match n % 5 {
            0 => sample.replace("site_lan", "other_lan"),
            1 => changed(&sample, "OnDemand=\"No\"", "OnDemand=\"Yes\""),
            2 => changed(&sample, "KeyRefreshMinutes=\"60\"", "KeyRefreshMinutes=\"50\""),
            3 => "<AIX_VPN".to_owned(),
            _ => sample,
        };
        s.left.write_policy(&policy);
        drop(s.left.ctl(&["reload"]));
        // A later start is to succeed.
        s.left.write_policy(&s.setting.policy(0));
    }),
    ("crash", |s, _| {
        s.left.crash();
        s.left.start();
    }),
    ("crash while it starts", |s, n| {
        s.left.crash();
        let mut command = s.left.command();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut starting = s.left.space.run(move || command.spawn()).expect("vpnd is built");
        // The start is killed at any point. Nothing depends on the point that it has reached.
        std::thread::sleep(Duration::from_micros(n * 200));
        starting.kill().expect("a child of ours");
        starting.wait().expect("a child of ours");
        s.left.start();
    }),
    ("SIGTERM", |s, _| {
        s.left.stop();
        s.left.start();
    }),
    ("stop --keep-guard", |s, _| {
        s.left.ctl_ok(&["stop", "--keep-guard"]);
        s.left.wait();
        s.left.start();
    }),
];

/// Others change what the userspace plane needs.
const OTHERS_IN_USERSPACE: [(&str, Transition); 5] = [
    ("the rules are flushed", |s, _| {
        let option = s.option();
        s.left.space.try_sh(&format!("ip {option} rule flush"));
        s.left.space.try_sh(&format!("ip {option} rule add from all lookup main priority 32766"));
    }),
    ("the routes are flushed", |s, _| {
        s.left.space.try_sh(&format!("ip {} route flush table 4500", s.option()));
    }),
    ("the address goes and comes", address_goes_and_comes),
    ("the device is deleted", |s, _| drop(s.left.space.try_sh("ip link del vpn0"))),
    ("nftables is flushed", nftables_is_flushed),
];

/// Others change what the kernel's plane needs.
const OTHERS_IN_THE_KERNEL: [(&str, Transition); 4] = [
    ("policies are flushed", |s, _| drop(s.left.space.try_sh("ip xfrm policy flush"))),
    ("SAs are flushed", |s, _| drop(s.left.space.try_sh("ip xfrm state flush"))),
    ("the address goes and comes", address_goes_and_comes),
    ("nftables is flushed", nftables_is_flushed),
];

/// The address from which the tunnel's traffic is sent.
fn address_goes_and_comes(s: &mut Scene, _: u64) {
    let address = format!("{}/{} dev lo", s.setting.family.inner[0], s.setting.family.lengths[0]);
    s.left.space.try_sh(&format!("ip address del {address}"));
    s.left.space.try_sh(&format!("ip address add {address}"));
}

fn nftables_is_flushed(s: &mut Scene, _: u64) {
    s.left.space.try_sh("nft flush ruleset");
}
