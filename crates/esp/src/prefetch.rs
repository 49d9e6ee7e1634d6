//! Has memory read into the cache before it is needed: with very many SAs the state of the next one is in none.
//!
//! One value leads to the next, and each has to be waited for. Asked for on behalf of many packets before the first of
//! them goes on, they come together.

// A hint to the CPU, for which there is no safe function.
#![allow(unsafe_code)]

use std::ptr;

/// Asks for what is about to be used. Nothing is read but into the cache.
#[inline]
pub(crate) fn soon<T: ?Sized>(value: &T) {
    octets(ptr::from_ref(value).cast(), size_of_val(value));
}

/// The same for what may be gone already.
#[inline]
pub(crate) fn soon_at<T>(value: *const T) {
    octets(value.cast(), size_of::<T>());
}

#[inline]
fn octets(first: *const i8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        let last = len.saturating_sub(1);
        for at in (0..last).step_by(LINE).chain([last]) {
            // SAFETY: a hint that has no effect on memory and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, len);
}
