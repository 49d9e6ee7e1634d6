//! A data plane of the caller's.

use super::{Builder, EngineSettings, StartError, seed};
use crate::driver::{self, EspSink, Inlet, Inputs, NatT, PlaneHooks, Surroundings};
use crate::gateway::{Gateway, Handles};
use esp::plane::{DataPlane, Notice};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Mark of IKE's packets where nothing else is said: none.
const NO_MARK: u32 = 0;

/// A data plane of the caller's, with its inlet, its mark and its ESP sink.
pub struct CustomPlane<P> {
    plane: P,
    inlet: PlaneInlet,
    mark: u32,
    esp: Option<EspSink>,
}

/// The way from a custom data plane to the engine. Clones lead to the same engine; calls never block.
#[derive(Clone)]
pub struct PlaneInlet {
    inlet: Inlet,
    /// Taken by the start.
    inputs: Arc<Mutex<Option<Inputs>>>,
}

impl PlaneInlet {
    /// An inlet for one gateway.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it is no value, but the end of a channel")]
    pub fn new() -> Self {
        let (inlet, inputs) = driver::inlet();
        Self { inlet, inputs: Arc::new(Mutex::new(Some(inputs))) }
    }

    /// Tells the engine something, for example that a packet waits for an SA. Before the start and after the end of the
    /// gateway notices are kept or dropped silently.
    pub fn notice(&self, notice: Notice) {
        self.inlet.notice(notice);
    }
}

impl fmt::Debug for PlaneInlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaneInlet")
    }
}

impl<P: fmt::Debug> fmt::Debug for CustomPlane<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomPlane").field("plane", &self.plane).finish_non_exhaustive()
    }
}

impl<P: DataPlane + Send + 'static> CustomPlane<P> {
    pub(super) fn new(plane: P, inlet: PlaneInlet) -> Self {
        Self { plane, inlet, mark: NO_MARK, esp: None }
    }
}

impl<P: DataPlane + Send + 'static> Builder<CustomPlane<P>> {
    /// Mark (SO_MARK) of IKE's packets. Default: none.
    pub fn mark(mut self, mark: u32) -> Self {
        self.plane.mark = mark;
        self
    }

    /// Takes ESP that arrives on UDP port [`natt_port`](Self::natt_port), which the gateway shares between IKE and ESP:
    /// each call is one datagram, from the SPI on. Default: such datagrams are dropped. The function is called in a
    /// task of the runtime and must not block.
    pub fn on_esp(mut self, take: impl Fn(&[u8]) + Send + Sync + 'static) -> Self {
        self.plane.esp = Some(Arc::new(take));
        self
    }

    /// Starts the gateway inside the current tokio runtime, in the network namespace of the calling thread. It opens
    /// UDP 500 and [`natt_port`](Self::natt_port); everything else is the plane's business.
    ///
    /// # Errors
    /// If the runtime lacks a driver, a socket cannot be opened, or the inlet belongs to another gateway already.
    ///
    /// # Cancellation
    /// The future completes the first time it is polled: it starts nothing, or all.
    pub async fn start(self) -> Result<Gateway, StartError> {
        let Self { mut engine, plane } = self;
        engine.check()?;
        start(engine, plane)
    }
}

fn start<P: DataPlane + Send + 'static>(
    engine: EngineSettings,
    plane: CustomPlane<P>,
) -> Result<Gateway, StartError> {
    let CustomPlane { plane, inlet, mark, esp } = plane;
    let inputs = inlet.inputs.lock().unwrap_or_else(PoisonError::into_inner).take();
    let inputs = inputs.ok_or(StartError::Setting {
        setting: "data_plane",
        value: "inlet".to_owned(),
        why: "this inlet belongs to another gateway; make one for each",
    })?;
    let seed = seed()?;
    let sockets = driver::Sockets::open(mark)?;
    let nat_t = NatT::open(engine.ike.natt_port, mark, inlet.inlet, esp)?;
    let policy = Arc::clone(&engine.policy);
    let (make, fetcher, events) = engine.into_parts(plane, seed);
    let surroundings = Surroundings {
        sockets,
        inputs,
        nat_t,
        plane_hooks: PlaneHooks {
            counters: |_: &mut P| Box::new(BTreeMap::new),
            expect_policy: |_: &mut P, _| Box::new(|| {}),
            retry_preparation: |_: &mut P| None,
            forget_former_policy: |_: &mut P| Box::new(|| {}),
            complete_policy: |policy| policy,
            follow_policy: Box::new(|_| Vec::new()),
        },
        on_end: Box::new(|_, _| {}),
        fetcher,
        policy,
        events,
    };
    Ok(Gateway::new(driver::start(surroundings, make), Handles::default()))
}
