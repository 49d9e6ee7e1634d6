//! The C ABI of the crate `vpn`: a gateway in the process, and connections through its tunnels as descriptors that
//! `poll`, `read` and `write` take.
//!
//! `vpn.h` is made of this file by cbindgen, and a test compares the two. `examples/fetch.c` is a program in C,
//! `python/vpn.py` the module for Python. A new function goes here; then `UPDATE_EXPECTED=1 cargo test -p vpn-ffi`
//! writes `vpn.h`.
//!
//! ```text
//!  vpn_open ──► Tunnel ── vpn_connect_begin ─► Call ── vpn_call_finish ─► Stream ◄─► a task that copies ◄─► TCP
//!                  └──── vpn_listen ─► Listener ── vpn_accept_begin ─► Call
//! ```
//!
//! A handle is a number, so that every function may be called at any time, also with a handle that another thread has
//! freed. A connection is one end of a pair of Unix sockets. Each gateway has a tokio runtime with two threads.
//!
//! | question | file |
//! |---|---|
//! | What is a handle, and how long does the thing behind it live? | `handles.rs` |
//! | How does a gateway start and end? | `gateway.rs` |
//! | How does a connect or an accept wait, and what ends it? | `calls.rs` |
//! | How do octets get from the descriptor to the tunnel, and who learns of an error? | `streams.rs` |
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(non_camel_case_types, reason = "the names are those of the C header")]

mod calls;
mod gateway;
mod handles;
mod streams;

use calls::Call;
use gateway::{Listener, Tunnel};
use handles::Handles;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};
use std::time::Duration;
use streams::Stream;

/// A gateway in this process, with its tunnels. All functions may be called from any thread at any time. With a handle
/// that is closed or freed, or NULL, they return an error, or do nothing.
pub struct vpn_tunnel {
    _private: (),
}

/// A connect or an accept that is under way.
pub struct vpn_call {
    _private: (),
}

/// A TCP connection through a tunnel.
pub struct vpn_stream {
    _private: (),
}

/// Takes TCP connections of peers.
pub struct vpn_listener {
    _private: (),
}

static TUNNELS: Handles<vpn_tunnel, Tunnel> = Handles::new();
static CALLS: Handles<vpn_call, Call> = Handles::new();
static STREAMS: Handles<vpn_stream, Stream> = Handles::new();
static LISTENERS: Handles<vpn_listener, Listener> = Handles::new();

/// Writes a reason to the buffer of the caller, cut off where it ends, with a zero behind it.
///
/// # Safety
/// `buffer` is null, or has `size` octets that may be written.
unsafe fn tell(buffer: *mut c_char, size: usize, reason: &str) {
    if buffer.is_null() || size == 0 {
        return;
    }
    let mut len = reason.len().min(size - 1);
    while !reason.is_char_boundary(len) {
        len -= 1;
    }
    // SAFETY: the caller says that there are `size` octets, of which these are `len + 1`.
    unsafe {
        std::ptr::copy_nonoverlapping(reason.as_ptr(), buffer.cast::<u8>(), len);
        *buffer.add(len) = 0;
    }
}

/// The value, or NULL and the reason in the buffer of the caller.
///
/// # Safety
/// As [`tell`].
unsafe fn told<T>(outcome: Result<*mut T, String>, error: *mut c_char, size: usize) -> *mut T {
    outcome.unwrap_or_else(|reason| {
        // SAFETY: as this function's.
        unsafe { tell(error, size, &reason) };
        null_mut()
    })
}

/// The text of a caller.
///
/// # Safety
/// `text` is null, or ends with a zero and lives as long as the returned text.
unsafe fn text<'t>(text: *const c_char, what: &str) -> Result<&'t str, String> {
    if text.is_null() {
        return Err(format!("{what} is a null pointer"));
    }
    // SAFETY: the caller says that it ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| format!("{what} is not UTF-8"))
}

/// Starts a gateway with a policy: the text of an AIX_VPN XML file. `name_servers`: addresses of DNS servers behind the
/// tunnels, separated by commas, or NULL. Tunnels are started by the connections that need them, or by their peers:
/// `vpn_listening_error` tells whether peers can. Returns NULL after an error, whose reason is then in `error`.
///
/// # Safety
/// The texts end with a zero. `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_open(
    policy: *const c_char,
    name_servers: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_tunnel {
    // SAFETY: as this function's.
    unsafe { vpn_open_listening(policy, name_servers, null(), error, error_size) }
}

/// Starts a gateway as `vpn_open` does, whose peers begin at certain addresses of this host: on UDP port 4500, and on
/// port 500 beside it if this user may have it. `listen`: these addresses, separated by commas; 0.0.0.0 and :: stand for
/// all. It is an error if UDP port 4500 is taken there. With an empty text, only this side begins. With NULL, peers
/// begin at the addresses that the policy gives to this side, as far as the ports are free.
///
/// # Safety
/// As `vpn_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_open_listening(
    policy: *const c_char,
    name_servers: *const c_char,
    listen: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_tunnel {
    let open = || {
        // SAFETY: as this function's.
        let policy = unsafe { text(policy, "policy") }?;
        let servers = match name_servers.is_null() {
            true => "",
            // SAFETY: as this function's.
            false => unsafe { text(name_servers, "name_servers") }?,
        };
        let listen = match listen.is_null() {
            true => None,
            // SAFETY: as this function's.
            false => Some(unsafe { text(listen, "listen") }?),
        };
        Ok(TUNNELS.add(Tunnel::open(policy, servers, listen)?))
    };
    // SAFETY: as this function's.
    unsafe { told(open(), error, error_size) }
}

/// Tells whether peers can begin all tunnels that the policy lets them begin: returns 0 if so, and -1 if not, with the
/// tunnels and the reasons in `error`, one tunnel a line.
///
/// # Safety
/// `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_listening_error(
    tunnel: *const vpn_tunnel,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    let reason = match TUNNELS.get(tunnel, "tunnel") {
        Ok(tunnel) => tunnel.unreachable(),
        Err(reason) => Some(reason),
    };
    let Some(reason) = reason else { return 0 };
    // SAFETY: as this function's.
    unsafe { tell(error, error_size, &reason) };
    -1
}

/// Ends a gateway. All calls that are under way end at once with the error "the gateway has stopped", its connections
/// end with an error, and the peers are told. It waits for their answers, at most three seconds. Streams, listeners and
/// calls keep their handles until each is freed.
#[unsafe(no_mangle)]
pub extern "C" fn vpn_close(tunnel: *mut vpn_tunnel) {
    if let Some(tunnel) = TUNNELS.remove(tunnel) {
        tunnel.close();
    }
}

/// Connects to `HOST:PORT` behind a tunnel, and waits for the tunnel and for the peer, or until the tunnel is closed.
/// Returns NULL after an error, whose reason is then in `error`. `vpn_connect_begin` is the same with a time limit, or
/// without waiting.
///
/// # Safety
/// `target` ends with a zero. `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_connect(
    tunnel: *const vpn_tunnel,
    target: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_stream {
    // SAFETY: as this function's.
    unsafe {
        let call = vpn_connect_begin(tunnel, target, error, error_size);
        vpn_call_finish(call, -1, error, error_size)
    }
}

/// Begins to connect to `HOST:PORT` behind a tunnel, and does not wait. Returns NULL after an error, whose reason is
/// then in `error`.
///
/// # Safety
/// As `vpn_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_connect_begin(
    tunnel: *const vpn_tunnel,
    target: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_call {
    let begin = || {
        // SAFETY: as this function's.
        let target = unsafe { text(target, "target") }?;
        Ok(CALLS.add(TUNNELS.get(tunnel, "tunnel")?.connect(target)?))
    };
    // SAFETY: as this function's.
    unsafe { told(begin(), error, error_size) }
}

/// The descriptor of a call. `poll` says that it is readable once the call has ended: then `vpn_call_finish` does not
/// wait. It belongs to the call: do not read or close it. -1: the call is freed.
#[unsafe(no_mangle)]
pub extern "C" fn vpn_call_fd(call: *const vpn_call) -> c_int {
    CALLS.get(call, "call").map_or(-1, |call| call.descriptor())
}

/// Waits for the end of a call, at most so many milliseconds, or without a limit if `milliseconds` is negative. Frees
/// the call. Returns its connection, or NULL after an error, whose reason is then in `error`. A call that has not ended
/// within the limit is cancelled. If `call` is NULL, it returns NULL and leaves `error` as it is, so that the reason of
/// `vpn_connect_begin` stays:
///
/// `vpn_call_finish(vpn_connect_begin(tunnel, target, error, size), 5000, error, size)`
///
/// # Safety
/// `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_call_finish(
    call: *mut vpn_call,
    milliseconds: c_int,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_stream {
    if call.is_null() {
        return null_mut();
    }
    let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    let finish = || {
        // The handle stays meanwhile, so that `vpn_call_cancel` finds the call.
        let stream = CALLS.get(call, "call")?.finish(limit);
        CALLS.remove(call);
        Ok(STREAMS.add(stream?))
    };
    // SAFETY: as this function's.
    unsafe { told(finish(), error, error_size) }
}

/// Cancels a call and frees it. A connection that has come about meanwhile is closed. A thread that waits in
/// `vpn_call_finish` returns from there with an error.
#[unsafe(no_mangle)]
pub extern "C" fn vpn_call_cancel(call: *mut vpn_call) {
    if let Some(call) = CALLS.remove(call) {
        call.cancel();
    }
}

/// Takes connections of peers at `ADDRESS:PORT` of this end, `0.0.0.0:PORT` for each of its addresses. Returns NULL
/// after an error, whose reason is then in `error`.
///
/// # Safety
/// `local` ends with a zero. `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_listen(
    tunnel: *const vpn_tunnel,
    local: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_listener {
    let listen = || {
        // SAFETY: as this function's.
        let local = unsafe { text(local, "local") }?;
        Ok(LISTENERS.add(TUNNELS.get(tunnel, "tunnel")?.listen(local)?))
    };
    // SAFETY: as this function's.
    unsafe { told(listen(), error, error_size) }
}

/// Waits for the next connection of a peer. Returns NULL after an error, whose reason is then in `error`: the gateway
/// was closed, or the listener was freed. `vpn_accept_begin` is the same with a time limit, or without waiting.
///
/// # Safety
/// `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_accept(
    listener: *const vpn_listener,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_stream {
    // SAFETY: as this function's.
    unsafe {
        let call = vpn_accept_begin(listener, error, error_size);
        vpn_call_finish(call, -1, error, error_size)
    }
}

/// Begins to wait for the next connection of a peer, and returns at once. Returns NULL after an error, whose reason is
/// then in `error`.
///
/// # Safety
/// As `vpn_accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_accept_begin(
    listener: *const vpn_listener,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_call {
    let begin = || Ok(CALLS.add(LISTENERS.get(listener, "listener")?.accept()?));
    // SAFETY: as this function's.
    unsafe { told(begin(), error, error_size) }
}

/// Frees a listener. Accepts that are under way end with an error. Connections that it has given stay.
#[unsafe(no_mangle)]
pub extern "C" fn vpn_listener_free(listener: *mut vpn_listener) {
    if let Some(listener) = LISTENERS.remove(listener) {
        listener.close();
    }
}

/// The descriptor of a connection, a stream socket for `poll`, `read`, `write`, `send`, `recv` and `shutdown`. It
/// belongs to the connection: do not close it. -1: the connection is freed.
#[unsafe(no_mangle)]
pub extern "C" fn vpn_stream_fd(stream: *const vpn_stream) -> c_int {
    STREAMS.get(stream, "stream").map_or(-1, |stream| stream.descriptor())
}

/// Tells whether a connection has ended with an error, once `read` has returned 0: returns 0 if the peer has said all,
/// and -1 if not, with the reason in `error`. A connection also ends with an error after two hours in which neither end
/// has said anything, and after five minutes if one end has said all.
///
/// # Safety
/// `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_stream_error(
    stream: *const vpn_stream,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    let stream = STREAMS.get(stream, "stream");
    let reason = match &stream {
        Ok(stream) => stream.error(),
        Err(reason) => Some(reason.as_str()),
    };
    let Some(reason) = reason else { return 0 };
    // SAFETY: as this function's.
    unsafe { tell(error, error_size, reason) };
    -1
}

/// Closes a connection and frees it, with its descriptor. The peer still gets what was written, within 60 seconds.
#[unsafe(no_mangle)]
pub extern "C" fn vpn_stream_free(stream: *mut vpn_stream) {
    drop(STREAMS.remove(stream));
}
