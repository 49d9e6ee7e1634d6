//! What keeps traffic of the kernel's tunnels from leaving in the clear while the kernel has no policies for it.
//!
//! The policies themselves protect or drop it. Where another program removes them (`ip xfrm policy flush`) it would pass as
//! it is until they are put back, some milliseconds later: nftables drops it meanwhile, because the route of a packet that
//! a policy covers has a transformation (`rt ipsec exists`), and then it has none.
//!
//! What a card protects as a whole comes to nftables twice, before and after its transformation has been taken from the
//! route, and looks the second time as it would without a policy. So it is marked the first time.

#![forbid(unsafe_code)]

mod sets;

use esp::filter::{Direction, Filter};
use esp::plane::{Rule, RuleId, TrafficSelectors};
use host::nft;
use sets::{HANDED, Member, PROTECTED, Sets, UNPROTECTED};
use std::collections::BTreeMap;
use std::sync::Arc;

const CHAIN: &str = "leaving";

/// What else than addresses decides about the packets of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    /// Value and mask of their mark.
    pub mark: Option<(u32, u32)>,
    /// Whether a card may do everything for them.
    pub by_card: bool,
}

/// The rules that are guarded, and the table that does it. Dropping it removes the table.
pub(super) struct Guard {
    table: String,
    /// Of the userspace plane: what goes there is protected there.
    device: String,
    /// Of ESP in UDP.
    port: u16,
    filter: Arc<Filter>,
    rules: BTreeMap<RuleId, Vec<Member>>,
    sets: Sets,
    installed: bool,
    kept: bool,
    /// Whether the log has it that there is none.
    told: bool,
}

impl Guard {
    /// One without rules.
    pub(super) fn new(device: &str, port: u16, filter: &Arc<Filter>) -> Self {
        let table = table(device);
        Self {
            sets: Sets::new(&table),
            table,
            device: device.to_owned(),
            port,
            filter: Arc::clone(filter),
            rules: BTreeMap::new(),
            installed: false,
            kept: false,
            told: false,
        }
    }

    /// Guards these rules in their manner, and those without one no more.
    pub(super) fn cover<'a>(&mut self, rules: impl Iterator<Item = (&'a Rule, Option<Manner>)>) {
        let mut script = Some(String::new());
        for (rule, manner) in rules {
            let members = manner.map(|manner| Member::all(&rule.selectors, manner));
            // What the kernel has taken has few enough.
            let members = members.and_then(Result::ok).unwrap_or_default();
            let change = self.put(rule.id, members);
            script = script.zip(change).map(|(script, change)| script + &change);
        }
        self.tell(script);
    }

    /// Guards a rule no more.
    pub(super) fn uncover(&mut self, rule: RuleId) {
        let script = self.put(rule, Vec::new());
        self.tell(script);
    }

    /// A rule has another name.
    pub(super) fn rename(&mut self, rule: RuleId, to: RuleId) {
        if let Some(members) = self.rules.remove(&rule) {
            self.rules.insert(to, members);
        }
    }

    /// Lets pass what this filter lets pass.
    pub(super) fn set_filter(&mut self, filter: &Arc<Filter>) {
        self.filter = Arc::clone(filter);
        if self.installed {
            self.rebuild();
        }
    }

    /// Guards a rule's flows, and its former ones no more: what nftables is to be told, or `None` for all of it anew.
    fn put(&mut self, rule: RuleId, members: Vec<Member>) -> Option<String> {
        // Those that stay are never without a guard.
        let added: String = members.iter().map(|member| self.sets.add(member)).collect();
        let before = match members.is_empty() {
            true => self.rules.remove(&rule),
            false => self.rules.insert(rule, members),
        };
        let removed: Vec<Option<String>> =
            before.unwrap_or_default().iter().map(|member| self.sets.remove(member)).collect();
        let removed: Option<String> = removed.into_iter().collect();
        Some(added + &removed?)
    }

    fn tell(&mut self, script: Option<String>) {
        match script {
            Some(script) if script.is_empty() => {}
            // Where others have removed the table, it is made anew.
            Some(script) if self.installed && nft::run(&script).is_ok() => {}
            _ => self.rebuild(),
        }
    }

    fn rebuild(&mut self) {
        if self.sets.is_empty() && !self.installed {
            return;
        }
        let mut script = base(&self.table, &self.device, self.port);
        let bypassed = self.filter.bypasses(Direction::Out);
        bypassed.for_each(|rule| script.push_str(&verdicts(&self.table, &rule.traffic, "accept")));
        for chain in [HANDED, UNPROTECTED] {
            script.push_str(&format!("add rule inet {} {CHAIN} jump {chain}\n", self.table));
        }
        script.push_str(&self.sets.all());
        let outcome = nft::run(&script);
        if let Err(error) = &outcome
            && !std::mem::replace(&mut self.told, true)
        {
            tracing::warn!(
                %error,
                "while another program has removed policies from the kernel, traffic would leave in the clear"
            );
        }
        self.installed = outcome.is_ok();
    }
}

impl Guard {
    /// Says whether dropping this leaves the table in force.
    pub(super) fn keep_on_drop(&mut self, kept: bool) {
        self.kept = kept;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // As if the process had been killed: traffic stops rather than leaks, and the next start cleans up.
        if self.installed
            && !self.kept
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
  chain {PROTECTED} {{
  }}
  chain {HANDED} {{
  }}
  chain {UNPROTECTED} {{
  }}
  chain {CHAIN} {{
    type filter hook postrouting priority 300; policy accept;
    oifname {{ \"lo\", \"{device}\" }} accept
    rt ipsec exists goto {PROTECTED}
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
