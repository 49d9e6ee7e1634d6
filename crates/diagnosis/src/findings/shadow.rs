//! Phase 2 tunnels that no packet takes, because an earlier one of the policy covers all their traffic.

use super::finding::{Finding, FindingKind};
use super::subject::Subject;
use policy::shadow::{Carried, Traffic, shadowed as shadowed_children, shadower};
use policy::{Bindings, Policy};
use std::collections::BTreeMap;

/// The phase 2 tunnel that takes the packets of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    /// Its name.
    pub child: String,
    /// Both have the same traffic.
    pub same: bool,
    /// The phase 1 tunnel of the other one and its own, if those differ.
    pub carriers: Option<[String; 2]>,
}

/// Notes which of these phase 2 tunnels no packet takes. `bindings`: of all phase 2 tunnels, as they are now.
pub(super) fn find(subjects: &mut [Subject], policy: &Policy, bindings: &Bindings) {
    // One tunnel is not worth an index of all tunnels. A phase 1 tunnel with very many of them is.
    if let [subject] = subjects {
        if let Some(pair) = shadower(policy, bindings, &subject.child) {
            note(subject, pair, bindings);
        }
        return;
    }
    let found = shadowed_children(policy, bindings);
    if found.is_empty() {
        return;
    }
    let children: Vec<Carried<'_>> =
        policy.tunnels.iter().flat_map(|t| t.children.iter().map(|c| (&**t, &**c))).collect();
    let mut by_name: BTreeMap<String, &mut Subject> =
        subjects.iter_mut().map(|subject| (subject.child.clone(), subject)).collect();
    for pair in found {
        let [own, by] = [pair.child, pair.by].map(|at| children[at]);
        if let Some(subject) = by_name.get_mut(&own.1.name) {
            note(subject, [own, by], bindings);
        }
    }
}

fn note(subject: &mut Subject, pair: [Carried<'_>; 2], bindings: &Bindings) {
    let [(own, child), (carrier, by)] = pair;
    let [wanted, taken] = [child, by].map(|child| Traffic::of(child, bindings.of(&child.name)));
    subject.shadowed_by = Some(Shadow {
        child: by.name.clone(),
        same: wanted.covers(&taken),
        carriers: (own.name != carrier.name).then(|| [&own.name, &carrier.name].map(Clone::clone)),
    });
}

/// No packet takes the tunnel.
pub(super) fn shadowed(subject: &Subject) -> Option<Finding> {
    let (child, Shadow { child: by, same, carriers }) =
        (&subject.child, subject.shadowed_by.as_ref()?);
    let message = format!(
        "{by} comes before {child} in the policy and covers all its traffic, so that {by} takes every packet of {child}"
    );
    let order = match carriers {
        Some([own, other]) => format!("write the IKETunnel {own} before {other}"),
        None => format!("write {child} before {by}"),
    };
    let cure = match same {
        true => vec![
            "both have the same traffic: remove one of them from the policy".to_owned(),
            format!(
                "to use both, let the kernel tell their packets apart: in vpnd.toml, give [tunnel.\"{child}\"] and \
                 [tunnel.\"{by}\"] dataplane = \"xfrm\" and an if_id or a mark of its own (docs/operate/planes.md)"
            ),
        ],
        false => vec![format!("{order} in the policy, then: vpnctl reload")],
    };
    Some(Finding::new(child, FindingKind::Shadowed, true, message).with_cure(cure))
}
