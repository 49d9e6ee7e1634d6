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
    set_capabilities(
        None,
        CapabilitySets {
            effective: sets.effective & KEPT,
            permitted: sets.permitted & KEPT,
            inheritable: sets.inheritable & KEPT,
        },
    )
}
