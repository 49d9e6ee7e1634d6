//! Commands, and what they start and end: tunnels, the policy's rules, one session per tunnel.

use super::{CommandError, Engine, Startable, Target};
use crate::close_reason::CloseReason;
use crate::effect::Effects;
use crate::exchange::{resume, sa_init};
use crate::proof::trust::Trust;
use crate::sa::path::Path;
use crate::session_id::SessionId;
use crate::task::Task;
use esp::plane::{DataPlane, PacketSummary};
use policy::IkeTunnel;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

impl<P: DataPlane> Engine<P> {
    /// Starts a phase 1 or phase 2 tunnel by name. A phase 2 tunnel brings up its phase 1 tunnel; a phase 1 tunnel
    /// brings up all of its phase 2 tunnels that this side may start. `Ok(true)`: all of it is up already.
    ///
    /// # Errors
    /// If there is no such tunnel, or this side cannot start it.
    pub fn connect(&mut self, now: Instant, name: &str) -> Result<bool, CommandError> {
        let startable = self.startable(name)?;
        self.start(now, &startable)
    }

    /// As [`Engine::connect`], for a tunnel that has been looked up.
    ///
    /// # Errors
    /// If a new session is needed and the policy does not name the addresses of both sides.
    pub fn start(&mut self, now: Instant, startable: &Startable) -> Result<bool, CommandError> {
        self.begin(now, startable, None)
    }

    /// As [`Engine::start`]; `packet` is the packet that asks for the tunnel.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        startable: &Startable,
        packet: Option<PacketSummary>,
    ) -> Result<bool, CommandError> {
        let Startable { target: Target { tunnel, .. }, children } = startable;
        for child in children {
            self.reconnection.allow(&child.name);
        }
        let names: Vec<String> = startable.children().map(str::to_owned).collect();
        if let Some(id) = self.session_of(&tunnel.name) {
            return Ok(self.ask_session(now, id, |session, _| {
                for name in names {
                    packet.into_iter().for_each(|p| session.note_packet(&name, p));
                    session.want_child(name);
                }
                let up = session.is_established()
                    && children.iter().all(|c| session.serving_child(&c.name).is_some());
                (up, Effects::none())
            }));
        }
        let (local, remote) = startable.addresses()?;
        let port = self.config.first_port();
        let path = Path::new(SocketAddr::new(local, port), SocketAddr::new(remote, port));
        let first = Arc::clone(&children[0]);
        let kept = self.resumption.take(now, tunnel, &self.trust);
        let mut cx = self.cx(now);
        let mut session = match kept {
            Some(kept) => resume::begin(&mut cx, tunnel, &first, path, kept),
            None => sa_init::begin(&mut cx, tunnel, &first, path),
        };
        packet.into_iter().for_each(|p| session.note_packet(&first.name, p));
        session.queue_all(names.into_iter().skip(1).map(Task::CreateChild));
        self.take_in(now, session, Effects::none());
        Ok(false)
    }

    /// Replaces the certificates and authorities. SAs that are up stay up; the next proof on either side uses the new
    /// ones.
    pub fn replace_trust(&mut self, trust: Arc<Trust>) {
        self.trust = trust;
    }

    /// The certificates and authorities in use.
    pub fn trust(&self) -> &Arc<Trust> {
        &self.trust
    }

    /// Deletes a phase 1 tunnel with all it carries, or one phase 2 tunnel. Returns the tunnel that has the name.
    ///
    /// # Errors
    /// If there is no such tunnel, or it is not up.
    pub fn disconnect(&mut self, now: Instant, name: &str) -> Result<Target, CommandError> {
        let target = self.find(name)?;
        let done = match &target.child {
            None => self.disconnect_tunnel(now, &target.tunnel),
            Some(child) => self.disconnect_child(now, &target.tunnel, &child.name),
        };
        if done { Ok(target) } else { Err(CommandError::NotUp(name.into())) }
    }

    /// Returns `false` if the tunnel has no session.
    fn disconnect_tunnel(&mut self, now: Instant, tunnel: &IkeTunnel) -> bool {
        let ids: Vec<SessionId> = self.sessions_of(&tunnel.name).map(|(id, _)| id).collect();
        for child in &tunnel.children {
            if !ids.is_empty() || self.is_retrying(&child.name) {
                self.deactivate(&child.name);
            }
        }
        for id in &ids {
            self.with_session(now, *id, |session, cx| session.close(cx, CloseReason::Deactivated));
        }
        !ids.is_empty()
    }

    /// Returns `false` if no session has the phase 2 tunnel, or is setting it up.
    fn disconnect_child(&mut self, now: Instant, tunnel: &IkeTunnel, name: &str) -> bool {
        let retrying = self.is_retrying(name);
        // If both sides have started the tunnel at the same time, there are two sessions for a moment.
        let ids: Vec<SessionId> = self.sessions_of(&tunnel.name).map(|(id, _)| id).collect();
        let mut done = false;
        for id in ids {
            done |= self.ask_session(now, id, |session, cx| session.drop_child(cx, name));
        }
        if done || retrying {
            self.deactivate(name);
        }
        done
    }

    /// Replaces the SA of a phase 1 or phase 2 tunnel by a new one without interruption. Returns the tunnel that has
    /// the name.
    ///
    /// # Errors
    /// If there is no such tunnel, or it is not up.
    pub fn rekey(&mut self, now: Instant, name: &str) -> Result<Target, CommandError> {
        let target = self.find(name)?;
        let id =
            self.session_of(target.tunnel()).ok_or_else(|| CommandError::NotUp(name.into()))?;
        let started = self.ask_session(now, id, |session, _| {
            let task = match target.child() {
                None => session.is_established().then_some(Task::RekeyIke(session.current_spi())),
                Some(child) => session.serving_child(child).map(|c| Task::RekeyChild(c.spi_in)),
            };
            let started = task.is_some();
            task.into_iter().for_each(|task| session.queue(task));
            (started, Effects::none())
        });
        if started { Ok(target) } else { Err(CommandError::NotUp(name.into())) }
    }

    /// Deletes everything and refuses all that is new; [`Engine::is_idle`] tells when the peers have answered.
    pub fn stop(&mut self, now: Instant) {
        self.stopping = true;
        // Nobody waits for them: packets on their way when the plane ends are lost.
        self.out.send_final_answers_now();
        for name in self.reconnection.tried().cloned().collect::<Vec<_>>() {
            self.forget_retry(&name);
        }
        self.forget_half_open_of(|_| true);
        for id in self.sessions.ids() {
            self.with_session(now, id, |session, cx| session.close(cx, CloseReason::Stopping));
        }
    }
}
