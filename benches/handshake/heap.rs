//! Octets that the program has from the C library's allocator, which serves Rust's allocations and AWS-LC's alike.

/// Octets in use, allocator's own overhead included.
pub fn in_use() -> usize {
    // SAFETY: it only reads the allocator's statistics, under its own locks.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
