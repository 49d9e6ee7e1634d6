//! The order in which members claim a service that has no owner. Each service has its own order, so that the services of
//! a dead node are spread over the others.

use crate::store::{NodeId, ServiceId};

/// The number of members that claim the service before this node.
pub(crate) fn rank(service: ServiceId, node: NodeId, members: impl Iterator<Item = NodeId>) -> u32 {
    let own = (weight(service, node), node);
    let before = members.filter(|other| (weight(service, *other), *other) > own).count();
    u32::try_from(before).unwrap_or(u32::MAX)
}

/// Highest random weight: all nodes calculate the same number.
fn weight(service: ServiceId, node: NodeId) -> u64 {
    // SplitMix64.
    let mut z =
        (u64::from(service.0) << 16 | u64::from(node.0)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_its_own_rank() {
        let members: Vec<NodeId> = (1..=5).map(NodeId).collect();
        for service in (0..50).map(ServiceId) {
            let mut ranks: Vec<u32> =
                members.iter().map(|n| rank(service, *n, members.iter().copied())).collect();
            ranks.sort_unstable();
            assert_eq!(ranks, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn services_are_spread_and_stay_where_they_are_if_another_node_goes() {
        let members: Vec<NodeId> = (1..=4).map(NodeId).collect();
        let first = |service, members: &[NodeId]| {
            let all = || members.iter().copied();
            all().find(|n| rank(service, *n, all()) == 0).expect("one is the first")
        };
        let mut served = [0; 5];
        for service in (0..400).map(ServiceId) {
            let owner = first(service, &members);
            served[usize::from(owner.0)] += 1;
            let left: Vec<NodeId> = members.iter().copied().filter(|n| *n != NodeId(4)).collect();
            if owner != NodeId(4) {
                assert_eq!(first(service, &left), owner);
            }
        }
        assert!(served[1..].iter().all(|n| (60..=140).contains(n)), "{served:?}");
    }
}
