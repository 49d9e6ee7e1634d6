//! Tunnels by the names that commands give them. A command looks its name up once and passes on the result.

use super::{CommandError, Engine};
use crate::families::off;
use esp::plane::DataPlane;
use policy::{ChildTunnel, IkeTunnel};
use std::iter;
use std::net::IpAddr;
use std::sync::Arc;

/// A tunnel that a command has named: a phase 1 tunnel of the policy with its phase 2 tunnels, or one phase 2 tunnel.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub(super) tunnel: Arc<IkeTunnel>,
    pub(super) child: Option<Arc<ChildTunnel>>,
}

impl Target {
    /// The name that the command gave.
    pub fn name(&self) -> &str {
        self.child().unwrap_or(&self.tunnel.name)
    }

    /// The phase 1 tunnel.
    pub fn tunnel(&self) -> &str {
        &self.tunnel.name
    }

    /// The phase 2 tunnel, if the name is that of a phase 2 tunnel.
    pub fn child(&self) -> Option<&str> {
        self.child.as_deref().map(|child| child.name.as_str())
    }
}

/// A tunnel that this side may start, with the phase 2 tunnels to be set up. [`Engine::startable`] returns it.
#[derive(Clone, Debug, PartialEq)]
pub struct Startable {
    pub(super) target: Target,
    /// At least one.
    pub(super) children: Vec<Arc<ChildTunnel>>,
}

impl Startable {
    /// The tunnel that was named.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The names of the phase 2 tunnels to be set up.
    pub fn children(&self) -> impl Iterator<Item = &str> {
        self.children.iter().map(|child| child.name.as_str())
    }

    /// The addresses of this side and of the peer in the policy, between which a new session is set up.
    ///
    /// # Errors
    /// If the policy does not name one of them: only the peer can begin then.
    pub fn addresses(&self) -> Result<(IpAddr, IpAddr), CommandError> {
        let Target { tunnel, .. } = &self.target;
        let name = self.target.name();
        let local =
            tunnel.local.address.ok_or_else(|| CommandError::NoLocalAddress(name.to_owned()))?;
        let remote =
            tunnel.remote.address.ok_or_else(|| CommandError::NoPeerAddress(name.to_owned()))?;
        Ok((local, remote))
    }
}

impl<P: DataPlane> Engine<P> {
    /// Looks up a tunnel by its name.
    pub(super) fn find(&self, name: &str) -> Result<Target, CommandError> {
        if let Some(tunnel) = self.policy.tunnel(name) {
            return Ok(Target { tunnel: Arc::clone(tunnel), child: None });
        }
        if let Some((tunnel, child)) = self.policy.child(name) {
            return Ok(Target { tunnel: Arc::clone(tunnel), child: Some(Arc::clone(child)) });
        }
        Err(self.no_such_tunnel(name))
    }

    /// Looks up a tunnel that [`Engine::start`] can start.
    ///
    /// # Errors
    /// If there is no such tunnel, or this side may not start it.
    pub fn startable(&self, name: &str) -> Result<Startable, CommandError> {
        if self.stopping {
            return Err(CommandError::Stopping);
        }
        self.without_off(startable(self.find(name)?)?)
    }

    /// The same without the phase 2 tunnels of address families that are off.
    fn without_off(&self, mut startable: Startable) -> Result<Startable, CommandError> {
        let tunnel = Arc::clone(&startable.target.tunnel);
        let mut reason = None;
        startable.children.retain(|child| {
            let off = off(self.config.families, &tunnel, child);
            reason = reason.or(off);
            off.is_none()
        });
        match reason.filter(|_| startable.children.is_empty()) {
            Some(off) => Err(CommandError::FamilyOff(startable.target.name().to_owned(), off)),
            None => Ok(startable),
        }
    }

    /// Every phase 1 tunnel that this side may start; without those of address families that are off.
    pub fn startable_tunnels(&self) -> Vec<Startable> {
        if self.stopping {
            return Vec::new();
        }
        let all = self.policy.tunnels.iter();
        let targets = all.map(|tunnel| Target { tunnel: Arc::clone(tunnel), child: None });
        targets
            .filter_map(|target| self.without_off(startable(target).ok()?).ok())
            .filter(|startable| startable.addresses().is_ok())
            .collect()
    }

    /// The names of the phase 2 tunnels that are not up yet.
    pub fn not_up<'a>(&self, startable: &'a Startable) -> Vec<&'a str> {
        let session = self.session_of(startable.target.tunnel());
        let session = session.and_then(|id| self.sessions.get(id));
        startable
            .children()
            .filter(|name| session.is_none_or(|s| s.serving_child(name).is_none()))
            .collect()
    }

    fn no_such_tunnel(&self, name: &str) -> CommandError {
        let tunnels = self.policy.tunnels.iter();
        let names =
            tunnels.flat_map(|t| iter::once(&t.name).chain(t.children.iter().map(|c| &c.name)));
        let near = names
            .map(|n| (strsim::jaro_winkler(&n.to_lowercase(), &name.to_lowercase()), n))
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        CommandError::NoSuchTunnel(name.into(), near.map(|(_, n)| n.clone()))
    }
}

fn startable(target: Target) -> Result<Startable, CommandError> {
    let children: Vec<_> = match &target.child {
        Some(child) => vec![Arc::clone(child)],
        None => target
            .tunnel
            .children
            .iter()
            .filter(|child| child.role.may_initiate())
            .cloned()
            .collect(),
    };
    if !target.tunnel.role.may_initiate() || !children.iter().all(|c| c.role.may_initiate()) {
        return Err(CommandError::ResponderOnly(target.name().to_owned()));
    }
    if children.is_empty() {
        return Err(CommandError::NothingToStart(target.name().to_owned()));
    }
    Ok(Startable { target, children })
}
