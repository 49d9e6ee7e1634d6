//! The crypto providers count the packets of SAs in the kernel and in network cards.

use super::place::{BOTH, plane};
use super::twin::{Twin, inbound, outbound};
use crate::Xfrm;
use crate::placement::Wanted;
use crypto::{Backend, Direction};
use esp::plane::{CryptoAccounting, DataPlane, Maintenance, SaId};

/// Has the kernel count packets of 100 octets.
fn pass(twin: &Twin, spi: u32, packets: u64) {
    let mut tables = twin.tables();
    let lifetime = &mut tables.states.get_mut(&spi).expect("there").user_sa_info.lifetime_cur;
    lifetime.packets += packets;
    lifetime.bytes += packets * 100;
}

fn work(plane: &mut Xfrm) -> Vec<(Direction, Backend, u64, u64)> {
    plane.count_work();
    let work = plane.config.crypto.work();
    work.iter().map(|((_, way, place), n)| (*way, *place, n.operations, n.octets)).collect()
}

#[test]
fn the_work_of_an_sa_is_attributed_to_its_place_and_outlives_it() {
    let (mut plane, twin, _) = plane(Wanted::Auto, None);
    plane.add_inbound(inbound(1, 0x101)).expect("the kernel can");
    plane.add_outbound(outbound(2, 0x201, false)).expect("the kernel can");
    pass(&twin, 0x101, 3);
    pass(&twin, 0x201, 5);
    let sent = (Direction::Encrypt, Backend::Kernel, 5, 500);
    let received = (Direction::Decrypt, Backend::Kernel, 3, 300);
    assert_eq!(work(&mut plane), [sent, received]);
    assert_eq!(work(&mut plane), [sent, received], "nothing is counted twice");

    // A card takes them: the following work is its own.
    pass(&twin, 0x201, 1);
    twin.tables().card = Some(BOTH);
    assert_eq!(plane.resync().expect("the kernel can").moved, 2);
    assert_eq!(twin.in_card(), [2, 0]);
    pass(&twin, 0x101, 20);
    pass(&twin, 0x201, 30);
    // And they end before anybody asks.
    plane.remove(SaId(1));
    plane.remove(SaId(2));
    let expected = [
        (Direction::Encrypt, Backend::Kernel, 6, 600),
        (Direction::Encrypt, Backend::Nic, 30, 3000),
        received,
        (Direction::Decrypt, Backend::Nic, 20, 2000),
    ];
    assert_eq!(work(&mut plane), expected);
}
