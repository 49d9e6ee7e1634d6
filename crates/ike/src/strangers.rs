//! Initiators that have not proved yet who they are: their half-open IKE SAs, and the limits on them.

mod frozen;

use crate::admission::{Admission, Admissions, Origin, Request};
use crate::config::Config;
use crate::crypto::rng::Rng;
use crate::exchange::half_open::{HalfOpen, Init};
use crate::wire::header::IkeSpi;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// All strangers of an engine.
pub(crate) struct Strangers {
    /// By this side's SPI. One that is at work is out of here, but still found by its IKE_SA_INIT.
    half_open: BTreeMap<IkeSpi, Box<HalfOpen>>,
    /// The half-open IKE SA that a repeated IKE_SA_INIT belongs to, and the origin under which it is counted.
    by_init: HashMap<Init, (IkeSpi, Origin)>,
    admissions: Admissions,
}

impl Strangers {
    pub fn new(rng: &mut Rng) -> Self {
        let (half_open, by_init) = (BTreeMap::new(), HashMap::new());
        Self { half_open, by_init, admissions: Admissions::new(rng) }
    }

    // ---- looking

    /// The number of half-open IKE SAs.
    pub fn len(&self) -> usize {
        self.half_open.len()
    }

    /// The number of IKE_SA_INIT requests whose repetition is recognised.
    pub fn known_inits(&self) -> usize {
        self.by_init.len()
    }

    pub fn contains(&self, spi: IkeSpi) -> bool {
        self.half_open.contains_key(&spi)
    }

    pub fn iter(&self) -> impl Iterator<Item = &HalfOpen> {
        self.half_open.values().map(Box::as_ref)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut HalfOpen> {
        self.half_open.values_mut().map(Box::as_mut)
    }

    #[cfg(feature = "simulation")]
    pub fn get_mut(&mut self, spi: IkeSpi) -> Option<&mut HalfOpen> {
        self.half_open.get_mut(&spi).map(Box::as_mut)
    }

    /// The answer that an IKE_SA_INIT request has got before.
    pub fn response_to(&self, init: &Init) -> Option<&[u8]> {
        let (spi, _) = self.by_init.get(init)?;
        self.half_open.get(spi).map(|half| half.begun.response.as_slice())
    }

    // ---- coming and going

    /// Decides about an IKE_SA_INIT request.
    pub fn judge(
        &mut self,
        now: Instant,
        config: &Config,
        rng: &mut Rng,
        request: Request<'_>,
    ) -> Admission {
        self.admissions.judge(now, config, rng, request)
    }

    /// Counts work for a stranger that has left no half-open IKE SA.
    pub fn note_waste(&mut self, now: Instant, origin: Origin) {
        self.admissions.waste(now, origin);
    }

    /// Counts a new half-open IKE SA, and has a repetition of its IKE_SA_INIT find it. It is stored by
    /// [`Strangers::keep`].
    pub fn enter(&mut self, init: Init, spi: IkeSpi, origin: Origin) {
        self.by_init.insert(init, (spi, origin));
        self.admissions.enter(origin);
    }

    /// Takes a half-open IKE SA out to work.
    pub fn take(&mut self, spi: IkeSpi) -> Option<Box<HalfOpen>> {
        self.half_open.remove(&spi)
    }

    /// Stores it, for the first time or again.
    pub fn keep(&mut self, half: Box<HalfOpen>) {
        self.half_open.insert(half.begun.local_spi, half);
    }

    /// Forgets a half-open IKE SA, and its IKE_SA_INIT.
    pub fn forget(&mut self, spi: IkeSpi, init: Init) {
        self.half_open.remove(&spi);
        if let Some((_, origin)) = self.by_init.remove(&init) {
            self.admissions.leave(origin);
        }
    }
}
