//! What a plane that crashed has left in the kernel: everything in this plane's ranges, as there is one at a time.

#![forbid(unsafe_code)]

use super::netlink::Kernel;
use super::state::name_of;
use super::{PRIORITIES, REQIDS, refusal};
use crate::plane::PlaneError;
use netlink_packet_xfrm::policy::{DelGetMessage, ModifyMessage as PolicyMessage};
use netlink_packet_xfrm::state::GetDumpMessage;
use netlink_packet_xfrm::{UserPolicyId, UserSaInfo, XfrmAttrs, XfrmMessage};

/// Removes SAs, whose keys nobody has any more; returns the policies, which are removed later.
pub(super) fn take(kernel: &mut dyn Kernel) -> Result<Vec<DelGetMessage>, PlaneError> {
    let what = || "removing what an earlier run left in the kernel".to_owned();
    let (mut orders, mut stale) = (Vec::new(), Vec::new());
    let states = XfrmMessage::GetDumpSa(GetDumpMessage::default());
    for message in kernel.list(states).map_err(|e| refusal(what(), &e))? {
        let XfrmMessage::AddSa(state) = message else { continue };
        let info = &state.user_sa_info;
        if is_our_state(info) {
            orders.push(XfrmMessage::DeleteSa(name_of(info, &state.nlas)));
        }
    }
    let policies = XfrmMessage::GetPolicy(DelGetMessage::default());
    for message in kernel.list(policies).map_err(|e| refusal(what(), &e))? {
        let XfrmMessage::AddPolicy(policy) = message else { continue };
        if is_our_policy(&policy) {
            let info = &policy.user_policy_info;
            let user_policy_id =
                UserPolicyId { selector: info.selector, index: 0, direction: info.direction };
            let kept = |a: &&XfrmAttrs| matches!(a, XfrmAttrs::Mark(_) | XfrmAttrs::IfId(_));
            let nlas = policy.nlas.iter().filter(kept).cloned().collect();
            stale.push(DelGetMessage { user_policy_id, nlas });
        }
    }
    if !orders.is_empty() || !stale.is_empty() {
        let (sas, policies) = (orders.len(), stale.len());
        tracing::info!(sas, policies, "removing what an earlier run has left in the kernel");
    }
    for order in orders {
        match kernel.order(order) {
            Err(error) if !error.is_absent() => return Err(refusal(what(), &error)),
            _ => {}
        }
    }
    Ok(stale)
}

pub(super) fn is_our_state(info: &UserSaInfo) -> bool {
    // Without an SPI it only waits for an SA.
    REQIDS.contains(&info.reqid) && info.id.spi != 0
}

pub(super) fn is_our_policy(policy: &PolicyMessage) -> bool {
    // Those of sockets have other directions.
    PRIORITIES.contains(&policy.user_policy_info.priority)
        && policy.user_policy_info.direction < netlink_packet_xfrm::XFRM_POLICY_MAX
        && policy.nlas.iter().all(|attribute| match attribute {
            XfrmAttrs::Template(templates) => templates.iter().all(|t| REQIDS.contains(&t.reqid)),
            _ => true,
        })
}
