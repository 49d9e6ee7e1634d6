//! An IKE SA with the session that it belongs to, while an exchange goes on it.

use super::Session;
use crate::context::Context;
use crate::sa::IkeSa;
use crate::sa::active::Active;
use crate::sa::path::Path;
use crate::wire::header::IkeSpi;
use crate::wire::payload::Payload;
use crate::wire::registry::ExchangeType;
use policy::IkeTunnel;
use std::ops::{Deref, DerefMut};

/// An IKE SA in use: the one that carries an exchange. It is a reference to the IKE SA that leads to the session, too,
/// since an exchange reads and changes both. An exchange that ends the session, or drops the IKE SA, does so last.
pub(crate) struct Carrier<'a> {
    pub session: &'a mut Session,
    /// The place of the IKE SA in the list of the session.
    place: usize,
}

impl Session {
    /// The IKE SA in use with this local SPI.
    pub fn carrier(&mut self, spi: IkeSpi) -> Option<Carrier<'_>> {
        let place = self.sas.iter().position(|sa| sa.local_spi == spi)?;
        Some(Carrier { session: self, place })
    }

    /// Takes in an IKE SA that is in use from now on.
    pub fn take_in(&mut self, sa: IkeSa) -> Carrier<'_> {
        let place = self.sas.len();
        self.sas.push(sa);
        Carrier { session: self, place }
    }
}

impl<'a> Carrier<'a> {
    /// Sends a protected request and remembers what it is for.
    pub fn ask(
        &mut self,
        cx: &mut Context<'_>,
        exchange: ExchangeType,
        payloads: &[Payload],
        active: Active,
    ) {
        let (sa, path, tunnel) = self.split();
        sa.state.active = Some(active);
        sa.request(cx, tunnel, path, exchange, payloads);
    }

    /// The IKE SA, with the path and the tunnel of its messages.
    pub fn split(&mut self) -> (&mut IkeSa, &mut Path, &IkeTunnel) {
        let Session { sas, path, tunnel, .. } = &mut *self.session;
        (&mut sas[self.place], path, tunnel)
    }

    /// Takes the IKE SA out of the session.
    pub fn remove(self) -> (&'a mut Session, IkeSa) {
        let sa = self.session.sas.remove(self.place);
        (self.session, sa)
    }
}

impl Deref for Carrier<'_> {
    type Target = IkeSa;

    fn deref(&self) -> &IkeSa {
        &self.session.sas[self.place]
    }
}

impl DerefMut for Carrier<'_> {
    fn deref_mut(&mut self) -> &mut IkeSa {
        &mut self.session.sas[self.place]
    }
}
