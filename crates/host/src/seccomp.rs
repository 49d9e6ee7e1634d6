//! Filters of system calls whose refusals the kernel logs (`seccomp(2)`).

#![allow(unsafe_code)]

use libc::{sock_filter, sock_fprog};
use std::io;

/// Installs a filter for the calling thread and all that it will start. The kernel's log names each call that the
/// filter refuses, unless a filter that was installed later refuses it, too: `audit: type=1326 … syscall=`. The
/// thread needs `no_new_privs`.
///
/// # Errors
/// If the kernel lacks it, or the program is none.
pub fn refuse_and_log(program: &[sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The kernel copies the program, and does not write to it.
    let program = sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the pointer and the length are those of the slice, which lives until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_LOG,
            &raw const program,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
