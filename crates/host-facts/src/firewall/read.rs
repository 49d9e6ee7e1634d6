//! Reading of the rules that `nft -j` lists.

use super::{Base, Firewall, Hook, Rule};
use serde_json::Value;

/// The tables of this program: their drops are counted and told elsewhere.
const OWN: [&str; 6] =
    ["vpn_guard_", "vpn_held_", "vpn_held2_", "vpn_watch_", "vpn_filter_", "vpn_kernel_"];

impl Firewall {
    /// Reads a listing of `nft -j list ruleset`.
    pub fn parse(text: &str) -> Self {
        let listing: Value = match serde_json::from_str(text) {
            Ok(listing) => listing,
            Err(error) => {
                return Self { unread: Some(format!("nft: {error}")), ..Self::default() };
            }
        };
        let mut firewall = Self::default();
        for object in listing["nftables"].as_array().into_iter().flatten() {
            if let Some(chain) = object.get("chain") {
                firewall.chain(chain);
            } else if let Some(rule) = object.get("rule") {
                firewall.rule(rule);
            }
        }
        firewall.bases.sort_by_key(|base| (base.hook, base.priority));
        firewall
    }

    fn chain(&mut self, chain: &Value) {
        let Some(key) = key(chain, "name") else { return };
        self.chains.entry(key.clone()).or_default();
        let Some(hook) = chain["hook"].as_str().and_then(hook) else { return };
        let priority = chain["prio"].as_i64().unwrap_or(0);
        // Chains for the translation of addresses see the first packet of a flow, and drop none.
        let translates = chain["type"].as_str() == Some("nat");
        let drops = !translates && chain["policy"].as_str() == Some("drop");
        self.bases.push(Base { key, hook, priority, drops, translates });
    }

    fn rule(&mut self, rule: &Value) {
        let Some(key) = key(rule, "chain") else { return };
        let handle = rule["handle"].as_u64().unwrap_or(0);
        let expressions = rule["expr"].as_array().cloned().unwrap_or_default();
        self.chains.entry(key).or_default().push(Rule { handle, expressions });
    }
}

fn key(object: &Value, name: &str) -> Option<super::Key> {
    let [family, table, chain] =
        ["family", "table", name].map(|field| object.get(field).and_then(Value::as_str));
    let (family, table, chain) = (family?.to_owned(), table?.to_owned(), chain?.to_owned());
    let is_own = OWN.iter().any(|own| table.starts_with(own));
    let is_ip = ["inet", "ip", "ip6"].contains(&family.as_str());
    (is_ip && !is_own).then_some((family, table, chain))
}

fn hook(name: &str) -> Option<Hook> {
    Some(match name {
        "prerouting" => Hook::Prerouting,
        "input" => Hook::Input,
        "forward" => Hook::Forward,
        "output" => Hook::Output,
        "postrouting" => Hook::Postrouting,
        _ => return None,
    })
}
