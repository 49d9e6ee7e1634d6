//! Another program removes every policy from a gateway's kernel, again and again, under traffic.

use nix::sys::signal::Signal;
use testkit::gateway::Gateway;
use testkit::space::Space;
use testkit::until;

/// How often under traffic, while the daemon puts them back as fast as it can.
const TIMES: usize = 10;
/// Echoes that are asked for while it cannot.
const ECHOES: &str = "-q -c 10 -i 0.01 -W 0.2";

/// Flushes often while traffic flows, of which `goes_on` waits for more.
pub fn often(gateway: &Gateway, goes_on: impl Fn()) {
    let before = policies(gateway);
    assert!(before > 0);
    for _ in 0..TIMES {
        gateway.space.ip("xfrm policy flush");
        await_policies(gateway, before);
        goes_on();
    }
}

/// Flushes once while the daemon is stopped, so that these pings meet a kernel without policies for certain. Returns
/// how many packets the guard has dropped.
pub fn unnoticed(gateway: &Gateway, pings: &[(&Space, &str)]) -> u64 {
    let before = policies(gateway);
    gateway.signal(Signal::SIGSTOP);
    gateway.space.ip("xfrm policy flush");
    let dropped_before = guarded(gateway);
    for (space, ping) in pings {
        let (_, said) = space.try_sh(&format!("ping {ECHOES} {ping}"));
        assert!(said.contains(" 0 received"), "{said}");
    }
    let dropped = guarded(gateway) - dropped_before;
    gateway.signal(Signal::SIGCONT);
    await_policies(gateway, before);
    dropped
}

/// Waits until the kernel has so many policies of the daemon.
pub fn await_policies(gateway: &Gateway, count: usize) {
    let back = || (policies(gateway) == count).then_some(());
    until("all policies", back, || gateway.space.ip("xfrm policy"));
}

/// How many policies of the daemon the kernel has.
pub fn policies(gateway: &Gateway) -> usize {
    let policies = gateway.space.ip("xfrm policy");
    policies.lines().filter(|line| line.contains("priority 19")).count()
}

/// How many packets the guard has dropped; 0 where there is none.
fn guarded(gateway: &Gateway) -> u64 {
    let (_, counter) =
        gateway.space.try_sh("nft list counter inet vpn_guard_vpn0 unprotected_leaving");
    let packets = counter.split_whitespace().skip_while(|word| *word != "packets").nth(1);
    packets.and_then(|number| number.parse().ok()).unwrap_or(0)
}
