//! The daemon's answers about tunnels, and the commands for them.

use super::Daemon;
use super::refusal::{refusal, unknown_tunnel};
use crate::view;
use crate::why::explain;
use control::protocol::{Activation, Explanation, Refusal, Tunnel};
use ike::CommandError;
use ike::status::IkeStatus;
use std::time::{Duration, SystemTime};
use vpn::findings::Finding;
use vpn::{GatewayError, Selection};

/// For so long, a status does not read the packet filter again: programs ask often.
pub(super) const FILTER_KNOWN: Duration = Duration::from_secs(10);

impl Daemon {
    /// These tunnels without their numbers.
    pub(super) fn seen(&self, status: &[IkeStatus]) -> Vec<Tunnel> {
        let directory = self.keys_exported_to.as_ref().map(|d| d.display().to_string());
        let now = SystemTime::now();
        let tunnels = status.iter().map(|status| Tunnel {
            keys_exported_to: directory.clone(),
            ..view::tunnel(status, now)
        });
        let mut tunnels: Vec<Tunnel> = tunnels.collect();
        self.place(&mut tunnels);
        view::describe(&mut tunnels, &self.in_force());
        tunnels
    }

    /// A phase 1 tunnel, or a phase 2 tunnel with the phase 1 tunnel that carries it and no other child, with the
    /// findings about its traffic.
    pub(super) async fn status(&self, name: &str) -> Result<Tunnel, Refusal> {
        let Some(status) = self.gateway.tunnel(name).status().await.map_err(refusal)? else {
            return Err(self.unknown(name));
        };
        let mut tunnel = self.seen(std::slice::from_ref(&status));
        self.number(&mut tunnel).await?;
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
            return Err(self.unknown(name));
        };
        let only = (tunnel.name != name).then_some(name);
        let findings = self.findings(&tunnel, age).await?;
        let in_force = self.in_force();
        let mut explanation = explain(&tunnel, only, in_force.definitions(), SystemTime::now());
        for child in &mut explanation.children {
            child.findings = view::findings(&findings, &child.name);
        }
        Ok(explanation)
    }

    pub(super) async fn activate(&self, names: Vec<String>) -> Result<Vec<Activation>, Refusal> {
        let activations = self.known(self.gateway.tunnels().activate(selection(names)).await)?;
        Ok(activations.into_iter().map(view::activation).collect())
    }

    pub(super) async fn start_activate(
        &self,
        names: Vec<String>,
    ) -> Result<Vec<Activation>, Refusal> {
        let begun = self.known(self.gateway.tunnels().start_activate(selection(names)).await)?;
        let shown = begun.into_iter().map(|begun| Activation {
            name: begun.name,
            up: begun.up,
            failure: None,
        });
        Ok(shown.collect())
    }

    pub(super) async fn start_deactivate(&self, name: &str) -> Result<(), Refusal> {
        self.known(self.gateway.tunnel(name).start_deactivate().await)
    }

    pub(super) async fn deactivate(&self, name: &str) -> Result<(), Refusal> {
        self.known(self.gateway.tunnel(name).deactivate().await)
    }

    pub(super) async fn rekey(&self, name: &str) -> Result<(), Refusal> {
        self.known(self.gateway.tunnel(name).rekey().await)
    }

    pub(super) async fn list(&self, all: bool) -> Result<Vec<Tunnel>, Refusal> {
        let status = self.gateway.tunnels().status().await.map_err(refusal)?;
        let mut tunnels = self.seen(&status);
        self.number(&mut tunnels).await?;
        tunnels.retain(|tunnel| all || tunnel.is_active());
        Ok(tunnels)
    }

    /// The gateway's result. If it does not know a tunnel's name, the refusal names a similar one.
    fn known<T>(&self, outcome: Result<T, GatewayError>) -> Result<T, Refusal> {
        match outcome {
            Err(GatewayError::Command(CommandError::NoSuchTunnel(name, _))) => {
                Err(self.unknown(&name))
            }
            outcome => outcome.map_err(refusal),
        }
    }

    /// The refusal of a name that no tunnel has.
    fn unknown(&self, name: &str) -> Refusal {
        unknown_tunnel(name, self.in_force().names())
    }

    /// Refuses names that no tunnel has, for commands that the gateway does not see.
    pub(super) async fn know(&self, names: &[String]) -> Result<(), Refusal> {
        let in_force = self.in_force();
        for name in names.iter().filter(|name| !in_force.has(name)) {
            // A peer may have asked for it.
            let status = self.gateway.tunnel(name).status().await.map_err(refusal)?;
            status.ok_or_else(|| self.unknown(name))?;
        }
        Ok(())
    }
}

/// The tunnels of a request to start some: one without names is for all.
fn selection(names: Vec<String>) -> Selection {
    match names.is_empty() {
        true => Selection::All,
        false => Selection::Named(names),
    }
}
