//! The daemon's answers about the kernel plane, and its resynchronisation.

use super::Daemon;
use super::refusal::refusal;
use crate::view;
use control::protocol::{OffloadInfo, Refusal, RefusalCode, ResyncInfo, Tunnel};
use host::Devices;
use std::collections::{BTreeMap, BTreeSet};
use tracing::info;
use zeroize::Zeroizing;

impl Daemon {
    pub(super) fn offload(&self) -> OffloadInfo {
        view::offload(&self.gateway().offload().report())
    }

    /// Says of tunnels' SAs where the kernel has them.
    pub(super) fn place(&self, tunnels: &mut [Tunnel]) {
        let children = tunnels.iter().flat_map(|tunnel| &tunnel.children);
        let names: BTreeSet<&str> = children.map(|child| &*child.name).collect();
        let sas = self.gateway().offload().sas_of(|tunnel| names.contains(tunnel));
        if sas.is_empty() {
            return;
        }
        let sas: BTreeMap<_, _> = sas
            .iter()
            .map(|sa| ((sa.tunnel.clone(), sa.inbound, sa.spi.to_string()), view::placed(sa)))
            .collect();
        for child in tunnels.iter_mut().flat_map(|tunnel| &mut tunnel.children) {
            let Some(sa) = &mut child.child_sa else { continue };
            let both = [(true, &sa.inbound_spi), (false, &sa.outbound_spi)];
            let placed = both.into_iter().filter_map(|(inbound, spi)| {
                sas.get(&(child.name.clone(), inbound, spi.clone())).cloned()
            });
            sa.placed = placed.collect();
        }
    }

    pub(super) async fn xfrm(&self, keys: bool) -> Result<Zeroizing<String>, Refusal> {
        if keys && self.keys_exported_to.is_none() {
            let message = "this daemon keeps its keys; start it with --insecure-export-keys to have them shown";
            return Err(Refusal::new(RefusalCode::NotPossible, message));
        }
        let commands = tokio::task::spawn_blocking(move || {
            let mut devices = Devices::default();
            let names = std::cell::RefCell::new(&mut devices);
            xfrm::commands(keys, &|index| names.borrow_mut().name(index))
        });
        let commands = commands.await.map_err(std::io::Error::other).and_then(|listed| listed);
        let commands = commands.map_err(|error| {
            let message = format!("what the kernel has cannot be listed: {error}");
            Refusal::new(RefusalCode::DataPlane, message)
        })?;
        // In one piece from the beginning: a growing buffer leaves copies of keys behind.
        let length = commands.iter().map(|command| command.len() + 1).sum();
        let mut text = Zeroizing::new(String::with_capacity(length));
        for command in commands {
            text.push_str(&command);
            text.push('\n');
        }
        Ok(text)
    }

    pub(super) async fn resync(&self) -> Result<ResyncInfo, Refusal> {
        let done = self.gateway().offload().resync().await.map_err(refusal)?;
        let esp::plane::Resynced { sas, policies, moved } = done;
        info!(sas, policies, moved, "resynchronised with the kernel");
        Ok(ResyncInfo { sas, policies, moved })
    }
}
