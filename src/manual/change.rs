//! SAs keyed by hand that come and go while the gateway runs.
//!
//! An addition first puts sequence numbers on record, then has the plane guard the traffic, and then installs the SAs.
//! A removal takes the same steps back: the SAs go first, their last sequence numbers are noted, and the rule with its
//! guard goes last. So the traffic is protected or blocked until the operator's wish is that it is neither.

use super::{
    Fingerprint, Ledger, ManualSa, ManualSaError, ManualSas, Running, SaDirection, check,
    numbers_of, reserve,
};
use crate::driver::{GatewayError, Handle};
use esp::manual::Installed;
use esp::plane::{DataPlane, Preparation, Rule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xfrm::placement::{Choice, Placement};

/// SAs that were removed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Removed {
    /// The SAs.
    pub sas: Vec<Arc<ManualSa>>,
    /// Their traffic stays blocked.
    pub blocked: bool,
    /// They were there from the start, and so will be after the next one.
    pub configured: bool,
}

impl ManualSas {
    /// The names without SAs whose traffic is blocked.
    pub fn blocked(&self) -> Vec<String> {
        let installed = self.installed().unwrap_or_default();
        installed.blocked().map(str::to_owned).collect()
    }

    pub(crate) async fn add(
        self,
        handle: Handle,
        placement: Placement,
        sas: Vec<ManualSa>,
        offload: BTreeMap<(String, SaDirection), Choice>,
    ) -> Result<(), GatewayError> {
        let _one_at_a_time = self.0.changing.lock().await;
        let sas: Vec<Arc<ManualSa>> = sas.into_iter().map(Arc::new).collect();
        self.check_with(&sas)?;
        for sa in &sas {
            let choice = offload.get(&(sa.name.clone(), sa.direction)).cloned();
            placement.set_by_hand(&sa.name, sa.direction, choice);
        }
        let rules = self.installed().unwrap_or_default().rules_for(&sas);
        self.prepare(&handle, &rules).await?;
        let manual = self.clone();
        handle.with_plane(move |plane| manual.add_now(plane, &sas, &rules)).await??;
        self.0.added.notify_one();
        Ok(())
    }

    pub(super) fn check_with(&self, sas: &[Arc<ManualSa>]) -> Result<(), ManualSaError> {
        if self.0.path.as_os_str().is_empty() {
            return Err(ManualSaError::NoLedger);
        }
        let installed = self.installed().unwrap_or_default();
        let running = sas.iter().find(|sa| {
            installed
                .iter()
                .any(|(_, other)| (&other.name, other.direction) == (&sa.name, sa.direction))
        });
        if let Some(sa) = running {
            return Err(ManualSaError::Runs { name: sa.name.clone(), direction: sa.direction });
        }
        check(installed.iter().map(|(_, sa)| &**sa).chain(sas.iter().map(|sa| &**sa)))
    }

    /// Has the plane guard the traffic of rules, which takes longer than the engine may wait.
    async fn prepare(&self, handle: &Handle, rules: &[Rule]) -> Result<(), GatewayError> {
        loop {
            // Before the question: no answer is missed.
            let prepared = self.0.prepared.notified();
            let mut prepared = std::pin::pin!(prepared);
            prepared.as_mut().enable();
            let rules = rules.to_vec();
            let are_prepared = handle
                .with_plane(move |plane| rules.iter().all(|rule| plane.preparation().prepare(rule)))
                .await?;
            if are_prepared {
                return Ok(());
            }
            prepared.await;
        }
    }

    pub(super) fn add_now(
        &self,
        plane: &mut dyn DataPlane,
        sas: &[Arc<ManualSa>],
        rules: &[Rule],
    ) -> Result<(), ManualSaError> {
        let outcome = self.reserve_and_install(plane, sas);
        if outcome.is_err() {
            // Remove the rules prepared for SAs that were not installed.
            let installed = self.installed().unwrap_or_default();
            let unused = rules.iter().filter(|rule| !installed.has_rule(rule.id));
            unused.for_each(|rule| plane.remove_rule(rule.id));
        }
        outcome
    }

    fn reserve_and_install(
        &self,
        plane: &mut dyn DataPlane,
        sas: &[Arc<ManualSa>],
    ) -> Result<(), ManualSaError> {
        let (mut installed, numbers) = {
            let mut running = self.running();
            let running = match &mut *running {
                Some(running) => running,
                none => {
                    let ledger = Ledger::open(&self.0.path)?;
                    none.insert(Running { installed: Installed::default(), ledger })
                }
            };
            (running.installed.clone(), reserve(&mut running.ledger, sas)?)
        };
        installed.add(plane, sas, &mut |sa| numbers_of(&numbers, sa))?;
        self.keep_installed(&installed);
        Ok(())
    }

    pub(crate) async fn remove(
        self,
        handle: Handle,
        placement: Placement,
        name: String,
        keep_blocked: bool,
    ) -> Result<Removed, GatewayError> {
        let _one_at_a_time = self.0.changing.lock().await;
        let manual = self.clone();
        let of_plane = name.clone();
        let removed = handle
            .with_plane(move |plane| manual.remove_now(plane, &of_plane, keep_blocked))
            .await??;
        if !removed.blocked {
            [SaDirection::In, SaDirection::Out]
                .into_iter()
                .for_each(|direction| placement.set_by_hand(&name, direction, None));
        }
        Ok(removed)
    }

    pub(super) fn remove_now(
        &self,
        plane: &mut dyn DataPlane,
        name: &str,
        keep_blocked: bool,
    ) -> Result<Removed, ManualSaError> {
        let mut installed = self.installed().unwrap_or_default();
        let gone = installed.remove(plane, name);
        if gone.is_empty() && !installed.blocked().any(|blocked| blocked == name) {
            return Err(unknown(name, &installed));
        }
        // Before the traffic is free: a notice that comes meanwhile is to find what there is.
        self.keep_installed(&installed);
        self.note(&gone, &installed);
        if !keep_blocked {
            installed.unblock(plane, name);
            self.keep_installed(&installed);
        }
        let configured = gone.iter().any(|(sa, _)| self.0.sas.iter().any(|c| Arc::ptr_eq(c, sa)));
        let sas = gone.into_iter().map(|(sa, _)| sa).collect();
        Ok(Removed { sas, blocked: keep_blocked, configured })
    }

    fn keep_installed(&self, installed: &Installed) {
        if let Some(running) = self.running().as_mut() {
            running.installed = installed.clone();
        }
    }

    /// Notes the last numbers that were used with the keys of these SAs, so that nothing is skipped if they come again.
    fn note(&self, gone: &[(Arc<ManualSa>, Option<u64>)], installed: &Installed) {
        // Another SA that shares the key goes on with the numbers on record.
        let senders = installed.iter().filter(|(_, sa)| sa.direction == SaDirection::Out);
        let in_use: BTreeSet<Fingerprint> = senders.map(|(_, sa)| Fingerprint::of(sa)).collect();
        let last = gone.iter().filter_map(|(sa, last)| Some((Fingerprint::of(sa), (*last)?)));
        let last = last.filter(|(key, _)| !in_use.contains(key));
        let mut running = self.running();
        let Some(running) = running.as_mut() else { return };
        if let Err(error) = running.ledger.write(last) {
            tracing::warn!(%error, "sequence numbers are skipped if these keys are used again");
        }
    }
}

fn unknown(name: &str, installed: &Installed) -> ManualSaError {
    let running = installed.iter().map(|(_, sa)| sa.name.as_str());
    let names: BTreeSet<&str> = running.chain(installed.blocked()).collect();
    let names = names.into_iter().map(str::to_owned).collect();
    ManualSaError::Unknown { name: name.to_owned(), names }
}
