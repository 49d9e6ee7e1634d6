//! A gateway whose packet filter is slow, or refuses a change: `nft` is replaced by a program that waits, fails, or runs it.

use crate::harness::{FILTERED, test, until};
use crate::side::{FAR, Side, TUNNEL};
use host::nft;
use libtest_mimic::Trial;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use policy::{AddressRange, Policy};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use vpn::Gateway;

pub fn trials() -> Vec<Trial> {
    vec![
        test("peers are answered while nftables is slow", FILTERED, slow),
        test("a change that nftables refuses is made up for", FILTERED, refused),
    ]
}

/// The network behind the tunnel that comes and goes, and the name of its child tunnel.
const OTHER: &str = "10.3.0";
const OTHER_CHILD: &str = "other_lan";

/// The replaced `nft` of one side: the directory of its files.
struct Nft(TempDir);

impl Nft {
    /// Replaces the `nft` of a side, whose runtime begins anew.
    fn of(side: &mut Side) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| directory.path().join(name);
        let place = nft::program().expect("nft is there");
        fs::copy(&place, path("nft")).expect("a copy");
        File::create(path("gate")).expect("writable");
        let [gate, refuse, real, wrapper] = ["gate", "refuse", "nft", "wrapper"].map(path);
        let script = format!(
            "#!/bin/sh\nflock --shared {} true\nif rm {} 2>/dev/null; then echo refused >&2; exit 1; fi\nexec {} \"$@\"\n",
            gate.display(),
            refuse.display(),
            real.display()
        );
        fs::write(&wrapper, script).expect("writable");
        fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).expect("ours");
        side.end_runtime();
        side.space.run(move || {
            let none = None::<&str>;
            unshare(CloneFlags::CLONE_NEWNS).expect("as root");
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("ours");
            mount(Some(&wrapper), &place, none, MsFlags::MS_BIND, none).expect("ours");
        });
        side.new_runtime();
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Has every call wait until this is dropped.
    fn hold(&self) -> Flock<File> {
        let gate = File::open(self.path("gate")).expect("it is there");
        Flock::lock(gate, FlockArg::LockExclusive).expect("nobody else has it for long")
    }

    /// Has the next call fail.
    fn refuse(&self) {
        File::create(self.path("refuse")).expect("writable");
    }

    fn has_refused(&self) -> bool {
        !Path::exists(&self.path("refuse"))
    }
}

/// The policy with one more child tunnel.
fn with_other(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    let tunnel = Arc::make_mut(&mut policy.tunnels[0]);
    let mut child = (*tunnel.children[0]).clone();
    OTHER_CHILD.clone_into(&mut child.name);
    let address = |last: u8| format!("{OTHER}.{last}").parse().expect("an address");
    child.remote[0].addresses = AddressRange::new(address(0), address(255)).expect("a range");
    tunnel.children.push(Arc::new(child));
    policy
}

fn names(side: &Side, gateway: &Gateway) -> Vec<String> {
    let gateway = gateway.clone();
    let status = side.run(async move { gateway.tunnels().status().await.expect("it runs") });
    status.iter().flat_map(|tunnel| &tunnel.children).map(|child| child.name.clone()).collect()
}

fn guarded(side: &Side) -> bool {
    side.space.sh("nft list table inet vpn_guard_vpn0").contains(OTHER)
}

fn slow() {
    let [mut left, right] = Side::pair();
    let nft = Nft::of(&mut left);
    let gateway = left.start(left.builder()).expect("started");
    let peer = right.start(right.builder()).expect("started");
    let replace = |policy: Policy| {
        let gateway = gateway.clone();
        left.spawn(async move { gateway.replace_policy(policy).await })
    };

    let held = nft.hold();
    let replacing = replace(with_other(&left.policy));
    // The peer begins, and this side answers it.
    let activating = peer.clone();
    right.run(async move { activating.tunnel(TUNNEL).activate().await.expect("up") });
    assert!(!replacing.is_finished(), "the new tunnel is guarded before it is there");
    assert!(!names(&left, &gateway).iter().any(|name| name == OTHER_CHILD));
    drop(held);
    left.run(replacing).expect("no panic").expect("a valid policy");
    assert!(names(&left, &gateway).iter().any(|name| name == OTHER_CHILD));
    assert!(guarded(&left));
    assert!(left.reaches(FAR));

    let held = nft.hold();
    let replacing = replace(left.policy.clone());
    let gone = || (!names(&left, &gateway).iter().any(|name| name == OTHER_CHILD)).then_some(());
    until("the tunnel is gone", gone, String::new);
    let rekeying = peer.clone();
    right.run(async move { rekeying.tunnel(TUNNEL).rekey().await.expect("rekeyed") });
    assert!(!replacing.is_finished(), "the former tunnel is still guarded");
    drop(held);
    left.run(replacing).expect("no panic").expect("a valid policy");
    assert!(!guarded(&left));

    // One after the other, although none is waited for.
    let held = nft.hold();
    let several = [with_other(&left.policy), left.policy.clone(), with_other(&left.policy)];
    let several = several.map(replace);
    drop(held);
    for replacing in several {
        left.run(replacing).expect("no panic").expect("a valid policy");
    }
    assert!(guarded(&left));
    left.run(async move { gateway.stop().await });
    right.run(async move { peer.stop().await });
}

fn refused() {
    let [mut left, _right] = Side::pair();
    let nft = Nft::of(&mut left);
    let gateway = left.start(left.builder()).expect("started");
    let replace = |policy: Policy| {
        let gateway = gateway.clone();
        left.run(async move { gateway.replace_policy(policy).await.expect("a valid policy") });
    };
    nft.refuse();
    replace(with_other(&left.policy));
    assert!(nft.has_refused());
    assert!(guarded(&left), "the tunnel is not there without its guard");

    nft.refuse();
    replace(left.policy.clone());
    assert!(nft.has_refused());
    until("the guard is up to date", || (!guarded(&left)).then_some(()), String::new);
    left.run(async move { gateway.stop().await });
}
