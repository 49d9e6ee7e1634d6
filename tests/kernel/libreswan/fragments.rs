//! Messages of IKE in fragments of their own (RFC 7383).

use super::certificates::RSA_4096;
use super::setup::{GCM_256, Setup};
use crate::peer::{Peer, World};
use testkit::space::Space;

/// Messages with large certificates exceed a packet. They go in fragments of IKE, so that no host makes fragments of IP
/// of them. The same messages are in fragments of IP if `vpnd` takes none of IKE.
pub fn of_large_certificates(by_vpnd: bool) {
    let setup = Setup { certificates: Some(RSA_4096), lines: &["fragmentation=yes"], ..GCM_256 };
    let ike = "retransmit_after = \"2s\"\nfragment_size = 576\n";
    let world = Setup { ike, ..setup }.world();
    world.up(by_vpnd);
    world.under_traffic(|| {
        world.rekey_by_both();
        world.vpnd.ctl_ok(&["rekey", "site"]);
        world.peer.rekey_ike();
    });
    assert_eq!(cut_by_ip(&world), [0, 0], "{}", world.state());
    drop(world);
    let ike = "retransmit_after = \"2s\"\nfragmentation = false\n";
    let world = Setup { ike, ..setup }.world();
    world.up(by_vpnd);
    let cut = cut_by_ip(&world);
    assert!(cut.iter().all(|datagrams| *datagrams > 0), "{cut:?}");
}

/// How many datagrams each host has sent in fragments of IP.
fn cut_by_ip<P: Peer>(world: &World<P>) -> [u64; 2] {
    let cut = |space: &Space| space.counter("Ip FragOKs");
    [cut(&world.vpnd.space), cut(world.peer.space())]
}
