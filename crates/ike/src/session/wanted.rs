//! The wishes of the operator and of the policy: a phase 2 tunnel of a session is to be set up, to change, or to go.

use super::Session;
use crate::close_reason::CloseReason;
use crate::context::Context;
use crate::effect::Effects;
use crate::event::EventKind;
use crate::failure::{Failure, FailureKind};
use crate::sa::active::Active;
use crate::sa::attempt::Attempt;
use crate::sa::child::{ChildState, LatePackets};
use crate::task::Task;
use policy::{ChildTunnel, IkeTunnel};
use std::sync::Arc;

impl Session {
    // ---- of the operator

    /// Has a phase 2 tunnel set up, unless it is there or on its way.
    pub fn want_child(&mut self, name: String) {
        if !self.has_or_wants_child(&name) {
            self.tasks.push_back(Task::CreateChild(name));
        }
    }

    /// Takes a phase 2 tunnel out of a handshake under way; `false` if nothing else is waited for.
    fn goes_on_without(&mut self, name: &str) -> bool {
        let next = self.tasks.iter().position(|t| matches!(t, Task::CreateChild(_)));
        let waiting = next.and_then(|index| match &self.tasks[index] {
            Task::CreateChild(next) => self.tunnel.children.iter().find(|c| c.name == *next),
            _ => None,
        });
        let waiting = waiting.cloned();
        match &mut self.attempt {
            Some(Attempt::Auth(sa)) if sa.state.child.name == name => sa.state.unwanted = true,
            Some(Attempt::Auth(sa)) => return waiting.is_some() || !sa.state.unwanted,
            Some(attempt) => match (attempt.first_child_to_be(), &waiting) {
                (Some(child), Some(next_child)) if child.name == name => {
                    *child = Arc::clone(next_child);
                    self.tasks
                        .retain(|t| !matches!(t, Task::CreateChild(n) if *n == next_child.name));
                    return true;
                }
                (Some(child), None) if child.name != name => return true,
                _ => {}
            },
            None => {}
        }
        waiting.is_some()
    }

    /// Deletes one phase 2 tunnel, or stops setting it up; `false` if there is nothing of it.
    pub fn drop_child(&mut self, cx: &mut Context<'_>, name: &str) -> (bool, Effects) {
        if !self.has_or_wants_child(name) {
            return (false, Effects::none());
        }
        self.tasks.retain(|t| !matches!(t, Task::CreateChild(n) if n == name));
        let pending = self.sas.iter_mut().filter_map(|sa| match &mut sa.state.active {
            Some(Active::Child(pending)) if pending.tunnel.name == name => Some(pending),
            _ => None,
        });
        pending.for_each(|p| p.unwanted = true);
        let spis: Vec<_> = self.children.of_tunnel(name).map(|c| c.spi_in).collect();
        for spi in &spis {
            let Some(mut child) = self.child_mut(*spi) else { continue };
            // Its deletion may have to wait; a request for the tunnel meanwhile wants a new one.
            if child.state == ChildState::Established {
                child.state = ChildState::Unwanted;
            }
        }
        if spis.is_empty() && !self.is_established() && !self.goes_on_without(name) {
            return (true, self.close(cx, CloseReason::Deactivated));
        }
        if spis.is_empty() {
            let failure = Failure::new(FailureKind::Cancelled, "deactivated".into());
            cx.out.event(&self.tunnel.name, Some(name), EventKind::Failed(failure));
        }
        for spi in spis {
            self.forget_delete(spi);
            self.tasks.push_back(Task::DeleteChild(spi));
        }
        (true, Effects::none())
    }

    // ---- of a new policy

    /// Takes over what a policy says now about the tunnel.
    pub fn replace_tunnel(&mut self, tunnel: &Arc<IkeTunnel>) {
        self.tunnel = Arc::clone(tunnel);
    }

    /// Returns `true` if its IKE SA is up and not being replaced.
    pub fn is_settled(&self) -> bool {
        self.attempt.is_none()
            && !self.sas.iter().any(|sa| matches!(sa.state.active, Some(Active::Rekey(_))))
    }

    /// Returns `true` if a phase 2 tunnel is up, and nothing about it is under way.
    pub fn has_settled_child(&self, name: &str) -> bool {
        self.serving_child(name).is_some()
            && self.attempt.is_none()
            && !self.sas.iter().any(|sa| match &sa.state.active {
                Some(Active::Child(pending)) => pending.tunnel.name == name,
                _ => false,
            })
    }

    /// Gives the Child SAs of a phase 2 tunnel its new version.
    pub fn replace_child(&mut self, tunnel: &Arc<ChildTunnel>) {
        let spis: Vec<_> = self.children.of_tunnel(&tunnel.name).map(|c| c.spi_in).collect();
        for spi in spis {
            self.child_mut(spi).into_iter().for_each(|mut c| c.tunnel = Arc::clone(tunnel));
        }
    }

    /// Has the Child SA replaced that serves a phase 2 tunnel.
    pub fn rekey_serving(&mut self, name: &str) {
        if let Some(spi) = self.serving_child(name).map(|c| c.spi_in) {
            self.queue(Task::RekeyChild(spi));
        }
    }

    /// Stops serving a phase 2 tunnel at once, whatever the peer says to its Delete.
    pub fn abandon_child(&mut self, cx: &mut Context<'_>, name: &str) -> Effects {
        let (_, mut effects) = self.drop_child(cx, name);
        let spis: Vec<_> = self.children.of_tunnel(name).map(|c| c.spi_in).collect();
        for spi in &spis {
            effects += self.remove_child(cx, *spi, LatePackets::Dropped).1;
        }
        if !spis.is_empty() {
            let reason = CloseReason::PolicyChanged;
            cx.out.close(cx.now, &self.tunnel, Some(name), reason);
        }
        effects
    }
}
