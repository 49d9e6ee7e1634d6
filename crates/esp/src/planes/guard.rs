//! What keeps traffic of the kernel's tunnels from leaving in the clear while the kernel has no policies for it.
//!
//! The policies themselves protect or drop it. Where another program removes them (`ip xfrm policy flush`) it would pass as
//! it is until they are put back, some milliseconds later: nftables drops it meanwhile.

#![forbid(unsafe_code)]

use crate::filter::{Direction, Filter};
use crate::plane::{Rule, RuleId, TrafficSelectors};
use crate::userspace::nft;
use std::collections::BTreeMap;
use std::sync::Arc;

const CHAIN: &str = "unprotected";

/// The rules that are guarded, and the table that does it. Dropping it removes the table.
pub(super) struct Guard {
    table: String,
    /// Of the userspace plane: what goes there is protected there.
    device: String,
    /// Of ESP in UDP.
    port: u16,
    filter: Arc<Filter>,
    rules: BTreeMap<RuleId, TrafficSelectors>,
    installed: bool,
    /// Whether the log has it that there is none.
    told: bool,
}

impl Guard {
    /// One without rules.
    pub(super) fn new(device: &str, port: u16, filter: &Arc<Filter>) -> Self {
        let (table, device, filter) = (table(device), device.to_owned(), Arc::clone(filter));
        Self { table, device, port, filter, rules: BTreeMap::new(), installed: false, told: false }
    }

    /// Guards these rules, too.
    pub(super) fn cover<'a>(&mut self, rules: impl Iterator<Item = &'a Rule>) {
        let mut script = String::new();
        let mut known = false;
        for rule in rules {
            script.push_str(&verdicts(&self.table, &rule.selectors, "counter drop"));
            known |= self.rules.insert(rule.id, rule.selectors.clone()).is_some();
        }
        // Of a rule that has changed something would be left.
        if known || !self.installed {
            self.rebuild();
        } else if !script.is_empty() {
            self.run(&script);
        }
    }

    /// Guards a rule no more.
    pub(super) fn uncover(&mut self, rule: RuleId) {
        if self.rules.remove(&rule).is_some() {
            self.rebuild();
        }
    }

    /// A rule has another name.
    pub(super) fn rename(&mut self, rule: RuleId, to: RuleId) {
        if let Some(selectors) = self.rules.remove(&rule) {
            self.rules.insert(to, selectors);
        }
    }

    /// Lets pass what this filter lets pass.
    pub(super) fn set_filter(&mut self, filter: &Arc<Filter>) {
        self.filter = Arc::clone(filter);
        if self.installed {
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        if self.rules.is_empty() && !self.installed {
            return;
        }
        let mut script = base(&self.table, &self.device, self.port);
        let bypassed = self.filter.bypasses(Direction::Out);
        bypassed.for_each(|rule| script.push_str(&verdicts(&self.table, &rule.traffic, "accept")));
        for selectors in self.rules.values() {
            script.push_str(&verdicts(&self.table, selectors, "counter drop"));
        }
        self.installed = self.run(&script);
    }

    fn run(&mut self, script: &str) -> bool {
        let outcome = nft::run(script);
        if let Err(error) = &outcome
            && !std::mem::replace(&mut self.told, true)
        {
            tracing::warn!(
                %error,
                "while another program has removed policies from the kernel, traffic would leave in the clear"
            );
        }
        outcome.is_ok()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // As if the process had been killed: traffic stops rather than leaks, and the next start cleans up.
        if self.installed
            && !std::thread::panicking()
            && let Err(error) = nft::remove(&self.table)
        {
            tracing::warn!(%error, table = self.table, "a table stays in nftables");
        }
    }
}

/// Removes what an earlier run has left.
pub(super) fn clear(device: &str) {
    if let Err(error) = nft::remove(&table(device)) {
        tracing::debug!(%error, "nothing can be left in nftables");
    }
}

fn table(device: &str) -> String {
    nft::table("kernel", device)
}

/// The table with everything that may leave.
fn base(name: &str, device: &str, port: u16) -> String {
    // Naming the table before deleting it makes the deletion succeed where there is none yet. Addresses are translated before.
    format!(
        "table inet {name}
delete table inet {name}
table inet {name} {{
  chain {CHAIN} {{
    type filter hook postrouting priority 300; policy accept;
    oifname {{ \"lo\", \"{device}\" }} accept
    rt ipsec exists accept
    meta l4proto {{ 50, 51 }} accept
    udp sport {{ 500, {port} }} accept
    icmpv6 type {{ 133, 134, 135, 136, 137 }} accept
  }}
}}
"
    )
}

fn verdicts(name: &str, traffic: &TrafficSelectors, verdict: &str) -> String {
    nft::verdicts([name, CHAIN], (&traffic.local, &traffic.remote), verdict)
}
