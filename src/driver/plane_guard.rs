//! An engine whose plane hears of the end, also if the runtime is dropped with the engine's task.

use super::OnEnd;
use crate::closed::Closed;
use esp::plane::DataPlane;
use ike::Engine;
use std::ops::{Deref, DerefMut};

/// An engine, and the function that is called once before its plane is dropped.
pub(super) struct PlaneGuard<P: DataPlane> {
    engine: Engine<P>,
    on_end: Option<OnEnd<P>>,
}

impl<P: DataPlane> PlaneGuard<P> {
    pub(super) fn new(engine: Engine<P>, on_end: OnEnd<P>) -> Self {
        Self { engine, on_end: Some(on_end) }
    }

    /// Ends the engine for a reason.
    pub(super) fn end(mut self, closed: &Closed) {
        self.call_on_end(closed);
    }

    fn call_on_end(&mut self, closed: &Closed) {
        if let Some(on_end) = self.on_end.take() {
            on_end(self.engine.plane(), closed);
        }
    }
}

impl<P: DataPlane> Deref for PlaneGuard<P> {
    type Target = Engine<P>;

    fn deref(&self) -> &Engine<P> {
        &self.engine
    }
}

impl<P: DataPlane> DerefMut for PlaneGuard<P> {
    fn deref_mut(&mut self) -> &mut Engine<P> {
        &mut self.engine
    }
}

impl<P: DataPlane> Drop for PlaneGuard<P> {
    fn drop(&mut self) {
        // After a panic nothing about the engine is certain: the plane is dropped as it is.
        if !std::thread::panicking() {
            self.call_on_end(&Closed::RuntimeEnded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esp::datapath::{Datapath, Settings};
    use policy::Policy;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    fn guarded() -> (PlaneGuard<Datapath>, Arc<Mutex<Vec<Closed>>>) {
        let now = Instant::now();
        let plane = Datapath::new(Settings::default(), now);
        let policy = Arc::new(Policy::default());
        let engine = Engine::new(policy, ike::Config::default(), plane, [0; 32], now);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let on_end = Box::new(move |_: &mut Datapath, closed: &Closed| {
            hears.lock().expect("no panic").push(closed.clone());
        });
        (PlaneGuard::new(engine.expect("an empty policy is valid"), on_end), heard)
    }

    #[test]
    fn the_plane_hears_of_the_end_once() {
        let (engine, heard) = guarded();
        engine.end(&Closed::Stopped);
        assert_eq!(*heard.lock().expect("no panic"), [Closed::Stopped]);
    }

    #[test]
    fn the_plane_hears_of_a_runtime_that_ends() {
        let (engine, heard) = guarded();
        drop(engine);
        assert_eq!(*heard.lock().expect("no panic"), [Closed::RuntimeEnded]);
    }

    #[test]
    fn after_a_panic_the_plane_is_left_as_it_is() {
        let (engine, heard) = guarded();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _engine = engine;
            panic!("a bug on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*heard.lock().expect("no panic"), []);
    }
}
