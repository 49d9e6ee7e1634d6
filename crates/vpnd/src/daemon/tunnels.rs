//! The daemon's answers about tunnels, and the commands for them.

use super::Daemon;
use super::refusal::{refusal, unknown_tunnel};
use crate::view;
use crate::why::explain;
use control::protocol::{Activation, Explanation, Refusal, Tunnel};
use ike::CommandError;
use ike::status::IkeStatus;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};
use vpn::findings::Finding;
use vpn::{GatewayError, Selection};

/// For so long, a status does not read the packet filter again: programs ask often.
pub(super) const FILTER_KNOWN: Duration = Duration::from_secs(10);

impl Daemon {
    pub(super) async fn tunnels(&self) -> Result<Vec<Tunnel>, Refusal> {
        let status = self.gateway.tunnels().status().await.map_err(refusal)?;
        let mut tunnels = self.seen(&status);
        self.numbers.apply(&mut tunnels);
        Ok(tunnels)
    }

    /// These tunnels without their numbers.
    fn seen(&self, status: &[IkeStatus]) -> Vec<Tunnel> {
        let directory = self.keys_exported_to.as_ref().map(|d| d.display().to_string());
        let now = SystemTime::now();
        let tunnels = status.iter().map(|status| Tunnel {
            keys_exported_to: directory.clone(),
            ..view::tunnel(status, now)
        });
        let mut tunnels: Vec<Tunnel> = tunnels.collect();
        self.place(&mut tunnels);
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        view::describe(&mut tunnels, &in_force.0, &in_force.1);
        tunnels
    }

    /// A phase 1 tunnel, or a phase 2 tunnel with the phase 1 tunnel that carries it and no other child, with the
    /// findings about its traffic.
    pub(super) async fn status(&self, name: &str) -> Result<Tunnel, Refusal> {
        let Some(status) = self.gateway.tunnel(name).status().await.map_err(refusal)? else {
            return Err(unknown_tunnel(name, &self.tunnels().await?));
        };
        let mut tunnel = self.seen(std::slice::from_ref(&status));
        if !self.numbers.apply_known(&mut tunnel) {
            self.tunnels().await?;
            self.numbers.apply_known(&mut tunnel);
        }
        let mut tunnel = tunnel.swap_remove(0);
        let findings = self.findings(&status, FILTER_KNOWN).await?;
        for child in &mut tunnel.children {
            child.findings = view::findings(&findings, &child.name);
        }
        Ok(tunnel)
    }

    async fn findings(&self, tunnel: &IkeStatus, age: Duration) -> Result<Vec<Finding>, Refusal> {
        self.gateway.findings(tunnel, &self.current(), age).await.map_err(refusal)
    }

    /// Explains a phase 1 tunnel, or a phase 2 tunnel alone. The knowledge of the packet filter may be as old as `age`.
    pub(super) async fn why(&self, name: &str, age: Duration) -> Result<Explanation, Refusal> {
        let Some(tunnel) = self.gateway.tunnel(name).status().await.map_err(refusal)? else {
            return Err(unknown_tunnel(name, &self.tunnels().await?));
        };
        let only = (tunnel.name != name).then_some(name);
        let findings = self.findings(&tunnel, age).await?;
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let mut explanation = explain(&tunnel, only, &in_force.1, SystemTime::now());
        for child in &mut explanation.children {
            child.findings = view::findings(&findings, &child.name);
        }
        Ok(explanation)
    }

    pub(super) async fn activate(&self, names: Vec<String>) -> Result<Vec<Activation>, Refusal> {
        let activations =
            self.known(self.gateway.tunnels().activate(selection(names)).await).await?;
        Ok(activations.into_iter().map(view::activation).collect())
    }

    pub(super) async fn start_activate(
        &self,
        names: Vec<String>,
    ) -> Result<Vec<Activation>, Refusal> {
        let begun =
            self.known(self.gateway.tunnels().start_activate(selection(names)).await).await?;
        let shown = begun.into_iter().map(|begun| Activation {
            name: begun.name,
            up: begun.up,
            failure: None,
        });
        Ok(shown.collect())
    }

    pub(super) async fn start_deactivate(&self, name: &str) -> Result<(), Refusal> {
        self.known(self.gateway.tunnel(name).start_deactivate().await).await
    }

    pub(super) async fn deactivate(&self, name: &str) -> Result<(), Refusal> {
        self.known(self.gateway.tunnel(name).deactivate().await).await
    }

    pub(super) async fn rekey(&self, name: &str) -> Result<(), Refusal> {
        self.known(self.gateway.tunnel(name).rekey().await).await
    }

    pub(super) async fn list(&self, all: bool) -> Result<Vec<Tunnel>, Refusal> {
        let mut tunnels = self.tunnels().await?;
        tunnels.retain(|tunnel| all || tunnel.is_active());
        Ok(tunnels)
    }

    /// The gateway's result. If it does not know a tunnel's name, the refusal names a similar one.
    async fn known<T>(&self, outcome: Result<T, GatewayError>) -> Result<T, Refusal> {
        match outcome {
            Err(GatewayError::Command(CommandError::NoSuchTunnel(name, _))) => {
                Err(unknown_tunnel(&name, &self.tunnels().await?))
            }
            outcome => outcome.map_err(refusal),
        }
    }

    /// Refuses names that no tunnel has, for commands that the gateway does not see.
    pub(super) async fn know(&self, names: &[String]) -> Result<(), Refusal> {
        if names.is_empty() {
            return Ok(());
        }
        let tunnels = self.tunnels().await?;
        let unknown = names.iter().find(|name| {
            !tunnels.iter().any(|tunnel| tunnel.name == **name || has_child(tunnel, name))
        });
        match unknown {
            Some(name) => Err(unknown_tunnel(name, &tunnels)),
            None => Ok(()),
        }
    }
}

/// The tunnels of a request to start some: one without names is for all.
fn selection(names: Vec<String>) -> Selection {
    match names.is_empty() {
        true => Selection::All,
        false => Selection::Named(names),
    }
}

fn has_child(tunnel: &Tunnel, name: &str) -> bool {
    tunnel.children.iter().any(|child| child.name == name)
}
