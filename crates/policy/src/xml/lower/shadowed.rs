//! Warnings about tunnels that are never used, because an earlier one covers all their traffic.

use super::context::Context;
use super::draft::Draft;
use super::table::Table;
use crate::shadow::{Shadowed, Traffic, shadowed};
use crate::xml::diagnostic::Span;
use crate::{Bindings, Policy};

/// The IPSecTunnels that the phase 2 tunnels of a policy are made of.
pub(super) struct Origins {
    /// The name of each, the IKETunnel that carries it, and its place in the file.
    written: Vec<(String, String, Span)>,
    /// For each phase 2 tunnel of the policy, an index into these.
    of: Vec<usize>,
}

impl Origins {
    pub fn of(tunnels: &Table<Draft>) -> Self {
        let (mut written, mut of) = (Vec::new(), Vec::new());
        for draft in tunnels.in_order() {
            let first = written.len();
            let carrier = &draft.tunnel.name;
            written.extend(
                draft
                    .children
                    .iter()
                    .map(|c| (c.tunnel.name.clone(), carrier.clone(), c.span.clone())),
            );
            let peers = draft.peers.as_ref().map_or(1, Vec::len);
            (0..peers).for_each(|_| of.extend(first..written.len()));
        }
        Self { written, of }
    }

    /// Warns of each IPSecTunnel that is never used.
    pub fn warn_shadowed(&self, cx: &mut Context<'_>, policy: &Policy) {
        let children: Vec<_> = policy.tunnels.iter().flat_map(|t| &t.children).collect();
        let mut told = vec![false; self.written.len()];
        let none = Bindings::default();
        let bindings = cx.options.bindings.unwrap_or(&none);
        for Shadowed { child, by } in shadowed(policy, bindings) {
            let (Some(&written), Some(&other)) = (self.of.get(child), self.of.get(by)) else {
                return;
            };
            // Peers of one group that have the same traffic are warned of where the group is named.
            if written == other || std::mem::replace(&mut told[written], true) {
                continue;
            }
            let [own, earlier] =
                [child, by].map(|at| Traffic::of(children[at], bindings.of(&children[at].name)));
            let same = own.covers(&earlier);
            self.warn(cx, written, other, same);
        }
    }

    fn warn(&self, cx: &mut Context<'_>, written: usize, other: usize, same: bool) {
        let (name, carrier, span) = &self.written[written];
        let (earlier, earlier_carrier, place) = &self.written[other];
        let message = format!("{name} is never used: covered by {earlier}");
        let help = match (same, carrier == earlier_carrier) {
            (true, _) => {
                "both have the same traffic, and a packet takes the first: remove one of them"
                    .to_owned()
            }
            (false, true) => {
                format!(
                    "a packet takes the first tunnel that covers it: write {name} before {earlier}"
                )
            }
            (false, false) => format!(
                "a packet takes the first tunnel that covers it: write the IKETunnel {carrier} before {earlier_carrier}"
            ),
        };
        cx.report.warning_about(span.clone(), message, place.clone(), help);
    }
}
