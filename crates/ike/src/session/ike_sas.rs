//! The IKE SAs of a session: the one that is being set up, and those in use.

use super::Session;
use crate::close_reason::CloseReason;
use crate::sa::attempt::{Attempt, AuthSent};
use crate::sa::path::Path;
use crate::sa::{IkeSa, Phase, State};
use crate::wire::header::IkeSpi;

impl Session {
    // ---- looking

    /// The IKE SA that this side sets up; `None` once it is in use.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.attempt.as_ref()
    }

    #[cfg(feature = "simulation")]
    pub fn attempt_mut(&mut self) -> Option<&mut Attempt> {
        self.attempt.as_mut()
    }

    /// Returns `true` if the IKE SA that is being set up waits for a job.
    pub fn waits_for_job(&self) -> bool {
        matches!(&self.attempt, Some(Attempt::Auth(sa)) if sa.state.working_until().is_some())
    }

    /// The IKE SAs in use, oldest first.
    pub fn sas(&self) -> &[IkeSa] {
        &self.sas
    }

    /// Returns `true` if the session ends with the IKE SA that it has.
    pub fn has_one_sa(&self) -> bool {
        self.sas.len() == 1
    }

    /// The local SPI of the IKE SA that carries new exchanges.
    pub fn current_spi(&self) -> IkeSpi {
        self.current
    }

    /// Every IKE SA: the one that is being set up, or those in use.
    pub fn each_sa(&self) -> impl Iterator<Item = &IkeSa<dyn State>> {
        let in_use = self.sas.iter().map(|sa| sa as &IkeSa<dyn State>);
        self.attempt.iter().map(Attempt::sa).chain(in_use)
    }

    /// The IKE SA that is being set up, or that carries new exchanges; `None`: the session is over.
    pub fn current_sa(&self) -> Option<&IkeSa<dyn State>> {
        match &self.attempt {
            Some(attempt) => Some(attempt.sa()),
            None => self.serving_sa().map(|sa| sa as &IkeSa<dyn State>),
        }
    }

    /// The IKE SA in use that carries new exchanges.
    pub fn serving_sa(&self) -> Option<&IkeSa> {
        self.sa(self.current)
    }

    /// The IKE SA in use with this local SPI.
    pub fn sa(&self, spi: IkeSpi) -> Option<&IkeSa> {
        self.sas.iter().find(|sa| sa.local_spi == spi)
    }

    // ---- what exchanges bring about

    /// Takes out the IKE SA that is being set up, for a message or a job that is about it.
    pub fn take_attempt(&mut self) -> Option<Attempt> {
        self.attempt.take()
    }

    /// Takes out the IKE SA that is being set up if IKE_AUTH has begun on it.
    pub fn take_auth(&mut self) -> Option<Box<IkeSa<AuthSent>>> {
        match self.attempt.take() {
            Some(Attempt::Auth(sa)) => Some(sa),
            other => {
                self.attempt = other;
                None
            }
        }
    }

    /// Keeps the IKE SA that is being set up: it waits for an answer, or for a job.
    pub fn keep_attempt(&mut self, attempt: Attempt) {
        self.attempt = Some(attempt);
    }

    /// Begins to set up another IKE SA in place of the one that came to nothing. `path` is where its IKE_SA_INIT goes.
    pub fn begin_again(&mut self, current: IkeSpi, path: Path) {
        self.current = current;
        self.path = path;
    }

    pub fn sas_mut(&mut self) -> impl Iterator<Item = &mut IkeSa> {
        self.sas.iter_mut()
    }

    /// Has another IKE SA carry new exchanges if the one with this SPI, which is gone, did so.
    pub fn replace_current(&mut self, gone: IkeSpi) {
        if self.current == gone {
            let heir =
                self.sas.iter().rfind(|sa| sa.state.phase == Phase::Serving).or(self.sas.last());
            self.current = heir.map_or(self.current, |sa| sa.local_spi);
        }
    }

    /// The peer deletes an IKE SA. It goes once the request is answered ([`Session::take_deleted`]).
    pub fn note_deleted(&mut self, spi: IkeSpi, reason: CloseReason) {
        self.deleted = Some((spi, reason));
    }

    /// The IKE SA that the request just answered has deleted, and the reason.
    pub fn take_deleted(&mut self) -> Option<(IkeSpi, CloseReason)> {
        self.deleted.take()
    }

    /// Returns `true` if the request that is being answered deletes an IKE SA.
    pub fn is_being_deleted(&self) -> bool {
        self.deleted.is_some()
    }
}
