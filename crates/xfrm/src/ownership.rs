//! The states and policies in the kernel that belong to this plane. They are recognised by the plane's ranges of reqids
//! and priorities; with a reqid of the operator's, by a policy of this plane that names the SA.

#![forbid(unsafe_code)]

use super::flow::address;
use super::netlink::{Kernel, Refused};
use super::offload::{Offload, offload_of};
use super::state::{Name, binding_in, is_larval};
use netlink_packet_core::{Emitable, Nla};
use netlink_packet_xfrm::policy::{DelGetMessage, ModifyMessage as PolicyMessage};
use netlink_packet_xfrm::state::{GetDumpMessage, ModifyMessage as StateMessage};
use netlink_packet_xfrm::{
    Selector, UserPolicyId, UserPolicyInfo, UserSaId, UserTemplate, XFRM_POLICY_MAX, XfrmAttrs,
    XfrmMessage,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The reqids of this plane. strongSwan counts from 1, libreswan and the kernel itself from 0x4000.
pub const REQIDS: RangeInclusive<u32> = 0x7600_0001..=0x76ff_ffff;

/// The priorities of this plane's policies; 0, the first, is what `ip xfrm policy` gives by default.
pub const PRIORITIES: RangeInclusive<u32> = 0x7600_0000..=0x76ff_ffff;

/// This plane's states and policies, without keys, in the order in which they came.
pub(super) struct Own {
    pub states: Vec<StateMessage>,
    pub policies: Vec<PolicyMessage>,
}

impl Own {
    pub(super) fn list(kernel: &mut dyn Kernel) -> Result<Self, Refused> {
        let policies = kernel.list(XfrmMessage::GetPolicy(DelGetMessage::default()))?;
        // The kernel begins with the youngest.
        let policies: Vec<PolicyMessage> = (policies.into_iter().rev())
            .filter_map(|message| match message {
                XfrmMessage::AddPolicy(policy) if is_ours(&policy) => Some(policy),
                _ => None,
            })
            .collect();
        let named: BTreeSet<Named> =
            policies.iter().flat_map(|p| templates(&p.nlas)).filter_map(Named::by).collect();
        let states = kernel.list(XfrmMessage::GetDumpSa(GetDumpMessage::default()))?;
        let states = states.into_iter().rev().filter_map(|message| match message {
            XfrmMessage::AddSa(state) => Some(state),
            _ => None,
        });
        let states = states.filter(|state| {
            let info = &state.user_sa_info;
            // Without an SPI it only waits for an SA.
            info.id.spi != 0 && (REQIDS.contains(&info.reqid) || named.contains(&Named::of(state)))
        });
        Ok(Self { states: states.collect(), policies })
    }
}

/// All SAs, and what is said of their offload; without notes that a packet has asked for one.
pub(super) fn states(kernel: &mut dyn Kernel) -> Result<BTreeMap<Name, Option<Offload>>, Refused> {
    let listed = kernel.list(XfrmMessage::GetDumpSa(GetDumpMessage::default()))?;
    let states = listed.into_iter().filter_map(|message| match message {
        XfrmMessage::AddSa(state) if !is_larval(&state) => {
            Some((Name::of_info(&state.user_sa_info), offload_of(&state)))
        }
        _ => None,
    });
    Ok(states.collect())
}

/// All policies, by what the kernel tells them apart by.
pub(super) fn policies(kernel: &mut dyn Kernel) -> Result<BTreeSet<PolicyName>, Refused> {
    let listed = kernel.list(XfrmMessage::GetPolicy(DelGetMessage::default()))?;
    let policies = listed.iter().filter_map(|message| match message {
        XfrmMessage::AddPolicy(PolicyMessage { user_policy_info: info, nlas }) => {
            Some(PolicyName::new(info.selector, info.direction, nlas))
        }
        _ => None,
    });
    Ok(policies.collect())
}

/// The fields by which the kernel finds a policy: its selector, its direction, and its mark or interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PolicyName(Vec<u8>);

impl PolicyName {
    pub(super) fn new(selector: Selector, direction: u8, attributes: &[XfrmAttrs]) -> Self {
        let mut bound = binding_in(attributes);
        bound.sort_by_key(Nla::kind);
        let named = DelGetMessage {
            user_policy_id: UserPolicyId { selector, index: 0, direction },
            nlas: bound,
        };
        let mut octets = vec![0; named.buffer_len()];
        named.emit(&mut octets);
        Self(octets)
    }
}

/// An SA that no other can be taken for.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    name: Name,
    source: IpAddr,
    reqid: u32,
}

impl Named {
    fn of(state: &StateMessage) -> Self {
        let info = &state.user_sa_info;
        let source = address(&info.saddr, info.family);
        Self { name: Name::of_info(info), source, reqid: info.reqid }
    }

    /// The SA that a template is for; `None` where it is for several.
    fn by(template: &UserTemplate) -> Option<Self> {
        let UserTemplate { id, family, saddr, reqid, .. } = template;
        let name =
            Name::of(&UserSaId { daddr: id.daddr, spi: id.spi, family: *family, proto: id.proto });
        let source = address(saddr, *family);
        (id.spi != 0 && *reqid != 0).then_some(Self { name, source, reqid: *reqid })
    }
}

fn is_ours(policy: &PolicyMessage) -> bool {
    let info = &policy.user_policy_info;
    has_our_rank(info)
        && templates(&policy.nlas).all(|t| REQIDS.contains(&t.reqid) || Named::by(t).is_some())
}

/// Returns `true` if a policy has a priority of this plane.
pub(super) fn has_our_rank(info: &UserPolicyInfo) -> bool {
    // Those of sockets have other directions.
    PRIORITIES.contains(&info.priority) && info.direction < XFRM_POLICY_MAX
}

/// For which SAs a policy is, or a packet asks.
pub(super) fn templates(attributes: &[XfrmAttrs]) -> impl Iterator<Item = &UserTemplate> {
    let lists = attributes.iter().filter_map(|attribute| match attribute {
        XfrmAttrs::Template(templates) => Some(templates),
        _ => None,
    });
    lists.flatten()
}
