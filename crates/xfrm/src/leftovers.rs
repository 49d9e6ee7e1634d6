//! The remains of a crashed plane in the kernel: everything that belongs to this plane, since only one runs at a time.

#![forbid(unsafe_code)]

use super::netlink::{Kernel, refusal};
use super::ownership::Own;
use super::state::{binding_in, name_of};
use esp::plane::PlaneError;
use netlink_packet_xfrm::policy::DelGetMessage;
use netlink_packet_xfrm::{UserPolicyId, XfrmMessage};

/// Removes policies that [`take`] has returned.
pub(super) fn remove_policies(
    kernel: &mut dyn Kernel,
    policies: Vec<DelGetMessage>,
) -> Result<(), PlaneError> {
    for policy in policies {
        match kernel.order(XfrmMessage::DeletePolicy(policy)) {
            Err(error) if !error.is_absent() => {
                return Err(refusal("removing a policy of an earlier run".to_owned(), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes SAs, whose keys nobody has any more; returns the policies, which are removed later.
pub(super) fn take(kernel: &mut dyn Kernel) -> Result<Vec<DelGetMessage>, PlaneError> {
    const WHAT: &str = "removing what an earlier run left in the kernel";
    let mut orders = Vec::new();
    let own = Own::list(kernel).map_err(|e| refusal(WHAT.to_owned(), &e))?;
    for state in &own.states {
        orders.push(XfrmMessage::DeleteSa(name_of(&state.user_sa_info, &state.nlas)));
    }
    let stale = policies_of(&own);
    if !orders.is_empty() || !stale.is_empty() {
        let (sas, policies) = (orders.len(), stale.len());
        tracing::info!(sas, policies, "removing what an earlier run has left in the kernel");
    }
    for order in orders {
        match kernel.order(order) {
            Err(error) if !error.is_absent() => return Err(refusal(WHAT.to_owned(), &error)),
            _ => {}
        }
    }
    Ok(stale)
}

/// The names of all policies.
pub(super) fn policies_of(own: &Own) -> Vec<DelGetMessage> {
    let policies = own.policies.iter().map(|policy| {
        let info = &policy.user_policy_info;
        let user_policy_id =
            UserPolicyId { selector: info.selector, index: 0, direction: info.direction };
        DelGetMessage { user_policy_id, nlas: binding_in(&policy.nlas) }
    });
    policies.collect()
}
