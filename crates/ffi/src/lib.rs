//! The C ABI of the crate `vpn`: a gateway in the process, and connections through its tunnels as descriptors that
//! `poll`, `read` and `write` take.
//!
//! `vpn.h` is made of this file by cbindgen, and a test compares the two. `examples/fetch.c` is a program in C,
//! `python/vpn.py` the module for Python.
//!
//! A connection is one end of a pair of Unix sockets. A task copies between the other end and the TCP connection in the
//! tunnel. So that an end of the TCP connection that was no orderly one can be told from an orderly one,
//! [`vpn_stream_error`] has the reason.
//!
//! A new function goes here; then `UPDATE_EXPECTED=1 cargo test -p vpn-ffi` writes `vpn.h`. Each gateway has a tokio
//! runtime with two threads.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(non_camel_case_types, reason = "the names are those of the C header")]

use std::ffi::{CStr, c_char, c_int};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::runtime::Runtime;
use vpn::net::{Network, TcpListener, TcpStream};
use vpn::policy::xml;

/// Octets that are copied at once.
const COPIED: usize = 64 << 10;

/// A gateway in this process, with its tunnels. All functions may be called from any thread.
pub struct vpn_tunnel {
    runtime: Runtime,
    gateway: vpn::Gateway,
    network: Network,
}

/// A TCP connection through a tunnel.
pub struct vpn_stream {
    descriptor: OwnedFd,
    error: Arc<OnceLock<String>>,
}

/// Takes TCP connections of peers.
pub struct vpn_listener {
    runtime: tokio::runtime::Handle,
    listener: TcpListener,
}

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

fn boxed<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Starts a gateway with a policy: the text of an AIX_VPN XML file. `name_servers`: addresses of DNS servers behind the
/// tunnels, separated by commas, or NULL. Tunnels are started by the connections that need them. Returns NULL after an
/// error, whose reason is then in `error`.
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
    let opened = unsafe { text(policy, "policy") }.and_then(|policy| {
        let servers = match name_servers.is_null() {
            true => "",
            // SAFETY: as this function's.
            false => unsafe { text(name_servers, "name_servers") }?,
        };
        open(policy, servers)
    });
    match opened {
        Ok(tunnel) => boxed(tunnel),
        Err(reason) => {
            // SAFETY: as this function's.
            unsafe { tell(error, error_size, &reason) };
            std::ptr::null_mut()
        }
    }
}

fn open(policy: &str, servers: &str) -> Result<vpn_tunnel, String> {
    let loaded = xml::read("policy", policy).map_err(|errors| errors.to_string())?;
    let servers = servers.split(',').map(str::trim).filter(|server| !server.is_empty());
    let servers: Result<Vec<SocketAddr>, String> = servers
        .map(|server| {
            let address = server.parse().map(|address: IpAddr| SocketAddr::new(address, 53));
            let address = address.or_else(|_| server.parse());
            address.map_err(|_| format!("{server:?} is not ADDRESS or ADDRESS:PORT"))
        })
        .collect();
    let servers = servers?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let builder = vpn::Gateway::builder(loaded.policy).in_process().name_servers(servers);
    let (gateway, network) =
        runtime.block_on(builder.start()).map_err(|error| error.to_string())?;
    Ok(vpn_tunnel { runtime, gateway, network })
}

/// Ends a gateway: its connections end with an error, and the peers are told. It waits for their answers, at most three
/// seconds.
///
/// # Safety
/// `tunnel` is NULL or comes from `vpn_open`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_close(tunnel: *mut vpn_tunnel) {
    if tunnel.is_null() {
        return;
    }
    // SAFETY: it was made by `boxed`, and nobody else has it.
    let vpn_tunnel { runtime, gateway, network } = *unsafe { Box::from_raw(tunnel) };
    runtime.block_on(gateway.stop());
    drop(network);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Connects to `HOST:PORT` behind a tunnel, and waits for the tunnel and for the peer. Returns NULL after an error,
/// whose reason is then in `error`.
///
/// # Safety
/// `tunnel` comes from `vpn_open`. `target` ends with a zero. `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_connect(
    tunnel: *const vpn_tunnel,
    target: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_stream {
    // SAFETY: as this function's.
    let (tunnel, target) = unsafe { (tunnel.as_ref(), text(target, "target")) };
    let connected =
        tunnel.ok_or_else(|| "tunnel is a null pointer".to_owned()).and_then(|tunnel| {
            let connected = tunnel.runtime.block_on(tunnel.network.connect(target?));
            let stream = connected.map_err(|error| error.to_string())?;
            relayed(tunnel.runtime.handle(), stream)
        });
    match connected {
        Ok(stream) => boxed(stream),
        Err(reason) => {
            // SAFETY: as this function's.
            unsafe { tell(error, error_size, &reason) };
            std::ptr::null_mut()
        }
    }
}

/// Takes connections of peers at `ADDRESS:PORT` of this end, `0.0.0.0:PORT` for each of its addresses. Returns NULL
/// after an error, whose reason is then in `error`.
///
/// # Safety
/// As `vpn_connect`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_listen(
    tunnel: *const vpn_tunnel,
    local: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_listener {
    // SAFETY: as this function's.
    let (tunnel, local) = unsafe { (tunnel.as_ref(), text(local, "local")) };
    let listening =
        tunnel.ok_or_else(|| "tunnel is a null pointer".to_owned()).and_then(|tunnel| {
            let local = local?;
            let local = local.parse().map_err(|_| format!("{local:?} is not ADDRESS:PORT"))?;
            let listener = tunnel.network.listen(local).map_err(|error| error.to_string())?;
            Ok(vpn_listener { runtime: tunnel.runtime.handle().clone(), listener })
        });
    match listening {
        Ok(listener) => boxed(listener),
        Err(reason) => {
            // SAFETY: as this function's.
            unsafe { tell(error, error_size, &reason) };
            std::ptr::null_mut()
        }
    }
}

/// Waits for the next connection of a peer. Returns NULL once the gateway is closed.
///
/// # Safety
/// `listener` comes from `vpn_listen`, and its gateway is not closed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_accept(
    listener: *const vpn_listener,
    error: *mut c_char,
    error_size: usize,
) -> *mut vpn_stream {
    // SAFETY: as this function's.
    let listener = unsafe { listener.as_ref() };
    let accepted = listener.ok_or_else(|| "listener is a null pointer".to_owned());
    let accepted = accepted.and_then(|vpn_listener { runtime, listener }| {
        let (stream, _) = runtime.block_on(listener.accept()).map_err(|error| error.to_string())?;
        relayed(runtime, stream)
    });
    match accepted {
        Ok(stream) => boxed(stream),
        Err(reason) => {
            // SAFETY: as this function's.
            unsafe { tell(error, error_size, &reason) };
            std::ptr::null_mut()
        }
    }
}

/// Ends a listener. Connections that it has given stay.
///
/// # Safety
/// `listener` is NULL or comes from `vpn_listen`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_listener_free(listener: *mut vpn_listener) {
    if !listener.is_null() {
        // SAFETY: it was made by `boxed`, and nobody else has it.
        drop(unsafe { Box::from_raw(listener) });
    }
}

/// The descriptor of a connection, a stream socket for `poll`, `read`, `write`, `send`, `recv` and `shutdown`. It
/// belongs to the connection: do not close it.
///
/// # Safety
/// `stream` comes from `vpn_connect` or `vpn_accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_stream_fd(stream: *const vpn_stream) -> c_int {
    // SAFETY: as this function's.
    unsafe { stream.as_ref() }.map_or(-1, |stream| stream.descriptor.as_raw_fd())
}

/// Tells whether a connection has ended with an error, once `read` has returned 0: returns 0 if the peer has said all,
/// and -1 if not, with the reason in `error`.
///
/// # Safety
/// `stream` comes from `vpn_connect` or `vpn_accept`. `error` is NULL, or has `error_size` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_stream_error(
    stream: *const vpn_stream,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: as this function's.
    match unsafe { stream.as_ref() }.and_then(|stream| stream.error.get()) {
        None => 0,
        Some(reason) => {
            // SAFETY: as this function's.
            unsafe { tell(error, error_size, reason) };
            -1
        }
    }
}

/// Closes a connection. The peer still gets all that was written.
///
/// # Safety
/// `stream` is NULL or comes from `vpn_connect` or `vpn_accept`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vpn_stream_free(stream: *mut vpn_stream) {
    if !stream.is_null() {
        // SAFETY: it was made by `boxed`, and nobody else has it.
        drop(unsafe { Box::from_raw(stream) });
    }
}

/// Gives a connection a descriptor, with a task that copies.
fn relayed(runtime: &tokio::runtime::Handle, mut stream: TcpStream) -> Result<vpn_stream, String> {
    let failed = |error: std::io::Error| format!("cannot make a descriptor: {error}");
    let (theirs, ours) = UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let _inside = runtime.enter();
    let mut ours = tokio::net::UnixStream::from_std(ours).map_err(failed)?;
    let error = Arc::new(OnceLock::new());
    let told = Arc::clone(&error);
    // The other end is told at once, as it would be without the pair.
    stream.set_nodelay(true);
    runtime.spawn(async move {
        let copied = copy_bidirectional_with_sizes(&mut ours, &mut stream, COPIED, COPIED).await;
        if let Err(error) = copied {
            let _ = told.set(error.to_string());
        }
        // Only now the end is seen: the reason is there before it.
        drop(ours);
    });
    Ok(vpn_stream { descriptor: theirs.into(), error })
}
