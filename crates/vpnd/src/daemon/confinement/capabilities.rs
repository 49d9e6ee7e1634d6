//! Capabilities: three stay, in every set that has them.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// The capabilities that a gateway needs; `privilege.rs` says what for.
const KEPT: CapabilitySet =
    CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW).union(CapabilitySet::NET_BIND_SERVICE);

/// Drops every other capability from all sets of the calling thread. The bounding set stays as it is if the thread
/// lacks CAP_SETPCAP; with no_new_privs, a program cannot gain capabilities from it.
pub fn restrict() -> io::Result<()> {
    let sets = capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        let others = (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit));
        for capability in others.filter(|capability| !KEPT.contains(*capability)) {
            match capability_is_in_bounding_set(capability) {
                Ok(true) => remove_capability_from_bounding_set(capability)?,
                Ok(false) => {}
                // The kernel has no capability with this or a higher number.
                Err(_) => break,
            }
        }
    }
    // The kernel drops from the ambient set the capabilities that these sets lose.
    fewer(&sets).map_or(Ok(()), |fewer| set_capabilities(None, fewer))
}

/// The capabilities that stay; `None` if there are no others. Then nothing has to be set: the system call filter of the
/// systemd service forbids that.
fn fewer(sets: &CapabilitySets) -> Option<CapabilitySets> {
    let all = [sets.effective, sets.permitted, sets.inheritable];
    let [effective, permitted, inheritable] = all.map(|set| set & KEPT);
    let fewer = CapabilitySets { effective, permitted, inheritable };
    (all != [effective, permitted, inheritable]).then_some(fewer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_set_if_there_is_nothing_to_drop() {
        let sets = |effective, inheritable| {
            let sets = CapabilitySets { effective, permitted: KEPT, inheritable };
            fewer(&sets).map(|fewer| (fewer.effective, fewer.inheritable))
        };
        let none = CapabilitySet::empty();
        assert_eq!(sets(KEPT, none), None);
        let more = KEPT | CapabilitySet::SYS_ADMIN;
        assert_eq!(sets(more, none), Some((KEPT, none)));
        assert_eq!(sets(KEPT, CapabilitySet::SYS_ADMIN), Some((KEPT, none)));
    }
}
