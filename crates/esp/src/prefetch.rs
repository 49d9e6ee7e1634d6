//! Has memory read into the cache before it is needed: with very many SAs the state of the next one is in none.
//!
//! One value leads to the next, and each has to be waited for. Asked for on behalf of many packets before the first of them
//! goes on, they come together.

// A hint to the CPU, for which there is no safe function.
#![allow(unsafe_code)]

/// Asks for what is about to be used. Nothing is read but into the cache.
#[inline]
pub(crate) fn soon<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        const LINE: usize = 64;
        let first: *const i8 = std::ptr::from_ref(value).cast();
        let last = size_of_val(value).saturating_sub(1);
        for at in (0..last).step_by(LINE).chain([last]) {
            // SAFETY: a hint that has no effect on memory and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
