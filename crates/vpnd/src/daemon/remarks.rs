//! The remarks of a running daemon about its policy.

use super::Daemon;
use super::refusal::refusal;
use crate::certificates::Certificates;
use crate::config::FilterSection;
use crate::preflight::{self, Surroundings};
use crate::remark::{DaemonState, Remark};
use control::protocol::Refusal;
use esp::families::Families;
use esp::filter::Filter;
use ike::failure::facts::Unsendable;
use policy::Policy;
use std::collections::HashSet;
use vpn::Gateway;

impl Daemon {
    /// What the daemon judges a policy with: its own settings, and what will be in force with the policy.
    pub(super) fn surroundings<'a>(
        &'a self,
        filter: (&'a Filter, &'a FilterSection),
        families: Families,
        certificates: &'a Certificates,
    ) -> Surroundings<'a> {
        let (filter, filter_section) = filter;
        Surroundings {
            config: &self.started_with.config,
            daemon: DaemonState::Running,
            filter_section,
            filter_settings: &self.filter_settings,
            filter,
            family_settings: &self.families,
            families,
            providers: self.crypto.facility(),
            certificates: Some(certificates),
        }
    }

    /// All remarks about the policy in force. `filter`: the one in force.
    pub(super) async fn remarks(&self, filter: &Filter) -> Result<Vec<Remark>, Refusal> {
        let families = self.gateway.tunnels().families().await.map_err(refusal)?;
        let lacking = self.gateway.tunnels().lacking().await.map_err(refusal)?;
        let section = self.filter_section();
        let certificates = self.certificates.current();
        let with = self.surroundings((filter, &section), families, &certificates);
        let mut remarks = preflight::preflight(&self.current(), &with);
        remarks.extend(preflight::of_gateway(&lacking));
        Ok(remarks)
    }
}

/// The tunnels that cannot come up on this host. Those that start by themselves are left out: they say so when they fail.
pub(super) async fn lacking(gateway: &Gateway, policy: &Policy) -> Vec<(String, Unsendable)> {
    // A gateway that has ended already says so itself.
    let mut lacking = gateway.tunnels().lacking().await.unwrap_or_default();
    let starting = policy
        .tunnels
        .iter()
        .filter(|t| t.auto_start || t.children.iter().any(|child| child.auto_start))
        .map(|t| &*t.name);
    let starting: HashSet<&str> = starting.collect();
    lacking.retain(|(name, _)| !starting.contains(&**name));
    lacking
}
