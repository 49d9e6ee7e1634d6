//! Handles: numbers in the place of addresses.
//!
//! A program in C has pointers to opaque types. Nothing is at these addresses: they are numbers, of which each is used
//! once. So a call with a handle that another thread has freed meanwhile is an error, and no access to freed memory.
//! The thing behind a handle lives until its last user is done.

use std::collections::BTreeMap;
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The next number. Numbers are odd, so that none is the address of something that a program has.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The things of one kind that programs have handles of. `Opaque` is the type in the header.
pub struct Handles<Opaque, T> {
    by_number: Mutex<BTreeMap<usize, Arc<T>>>,
    opaque: std::marker::PhantomData<fn() -> Opaque>,
}

impl<Opaque, T> Handles<Opaque, T> {
    pub const fn new() -> Self {
        Self { by_number: Mutex::new(BTreeMap::new()), opaque: std::marker::PhantomData }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a handle.
    pub fn add(&self, thing: T) -> *mut Opaque {
        let number = NEXT.fetch_add(2, Ordering::Relaxed);
        self.lock().insert(number, Arc::new(thing));
        without_provenance_mut(number)
    }

    /// The thing of a handle.
    ///
    /// # Errors
    /// If the handle is null, or is freed. `what` names it in the reason.
    pub fn get(&self, handle: *const Opaque, what: &str) -> Result<Arc<T>, String> {
        if handle.is_null() {
            return Err(format!("{what} is a null pointer"));
        }
        let found = self.lock().get(&handle.addr()).cloned();
        found.ok_or_else(|| format!("{what} was freed or closed, or never was one"))
    }

    /// Frees a handle. `None`: it is freed already, or null.
    pub fn remove(&self, handle: *mut Opaque) -> Option<Arc<T>> {
        // The lock is released before the thing is dropped, which may free other handles.
        self.lock().remove(&handle.addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Opaque;

    #[test]
    fn a_freed_handle_is_known_no_more_and_its_thing_lives_until_its_last_user_is_done() {
        let handles = Handles::<Opaque, String>::new();
        let handle = handles.add("thing".to_owned());
        let user = handles.get(handle, "handle").expect("it is there");
        let freed = handles.remove(handle).expect("it is there");
        assert_eq!(Arc::strong_count(&user), 2);
        drop(freed);
        assert_eq!(*user, "thing");
        assert!(handles.remove(handle).is_none());
        for handle in
            [handle, std::ptr::null_mut(), handles.add("other".to_owned()).wrapping_byte_add(2)]
        {
            let reason = handles.get(handle, "handle").expect_err("it is none");
            assert!(reason.starts_with("handle "), "{reason}");
        }
        let next = handles.add("next".to_owned());
        assert_ne!(next, handle, "a number is not used twice");
    }
}
