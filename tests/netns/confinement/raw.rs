//! System calls by their numbers, for those that no library offers without `unsafe`.
#![allow(unsafe_code)]

use nix::errno::Errno;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;

/// Makes a system call whose arguments are all zero. The kernel reads or writes no memory for them.
pub fn call(number: i64) -> nix::Result<()> {
    // SAFETY: no call that the tests make uses memory at the address zero: it is refused, or fails.
    let result =
        unsafe { libc::syscall(number, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize, 0_usize) };
    Errno::result(result).map(drop)
}

/// Asks the terminal for something.
pub fn ask_terminal(request: u64) -> nix::Result<()> {
    // SAFETY: the kernel reads one octet, if any, and that is there.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, 0, request, &raw const TYPED) };
    Errno::result(result).map(drop)
}

static TYPED: u8 = b'\n';

/// Maps the beginning of a file, or memory without a file, as code.
pub fn map_as_code(file: Option<&File>) -> nix::Result<()> {
    let (flags, descriptor) = match file {
        Some(file) => (libc::MAP_PRIVATE, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    map(libc::PROT_READ | libc::PROT_EXEC, flags, descriptor).map(drop)
}

/// Makes code of memory with data.
pub fn turn_into_code() -> nix::Result<()> {
    let data = libc::PROT_READ | libc::PROT_WRITE;
    let memory = map(data, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
    // SAFETY: nothing else is in this page.
    Errno::result(unsafe { libc::mprotect(memory, PAGE, libc::PROT_READ | libc::PROT_EXEC) })
        .map(drop)
}

const PAGE: usize = 4096;

fn map(protection: i32, flags: i32, descriptor: i32) -> nix::Result<*mut libc::c_void> {
    // SAFETY: the kernel chooses a place that nothing else has.
    let memory = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, descriptor, 0) };
    if memory == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(memory) }
}
