"""Tunnels for programs in Python: IKEv2 and ESP in this process, without root, device or route.

    async with vpn.Tunnel(policy) as tunnel:
        reader, writer = await tunnel.open_connection("10.2.0.7", 80)

The module needs the library vpn_ffi (crates/ffi): at the path in the environment variable VPN_LIBRARY, or beside the
module, as in a wheel, or where the system finds libraries. It needs Python 3.9 and nothing else.
"""

import asyncio
import concurrent.futures
import ctypes
import ctypes.util
import os
import socket

__all__ = ["Error", "Tunnel"]

_ERROR = 1024


class Error(OSError):
    """A tunnel does not come up, a peer does not answer, or a connection is broken."""


def _load():
    name = os.environ.get("VPN_LIBRARY")
    if not name:
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libvpn_ffi.so")
        name = beside if os.path.exists(beside) else ctypes.util.find_library("vpn_ffi")
    library = ctypes.CDLL(name or "libvpn_ffi.so")
    text, handle, size = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
    for function, result, arguments in (
        ("vpn_open_listening", handle, (text, text, text, text, size)),
        ("vpn_listening_error", ctypes.c_int, (handle, text, size)),
        ("vpn_close", None, (handle,)),
        ("vpn_connect_begin", handle, (handle, text, text, size)),
        ("vpn_call_fd", ctypes.c_int, (handle,)),
        ("vpn_call_finish", handle, (handle, ctypes.c_int, text, size)),
        ("vpn_call_cancel", None, (handle,)),
        ("vpn_stream_fd", ctypes.c_int, (handle,)),
        ("vpn_stream_error", ctypes.c_int, (handle, text, size)),
        ("vpn_stream_free", None, (handle,)),
    ):
        getattr(library, function).restype = result
        getattr(library, function).argtypes = arguments
    return library


class _Stream:
    """A connection of the library."""

    def __init__(self, library, handle):
        self._library, self._handle = library, handle

    def socket(self):
        """A socket with a descriptor of its own, for a transport to close."""
        own = socket.socket(fileno=os.dup(self._library.vpn_stream_fd(self._handle)))
        own.setblocking(False)
        return own

    def error(self):
        """Why it has ended, or None if that was in order."""
        reason = ctypes.create_string_buffer(_ERROR)
        if self._handle and self._library.vpn_stream_error(self._handle, reason, _ERROR):
            return Error(reason.value.decode())
        return None

    def free(self):
        handle, self._handle = self._handle, None
        if handle:
            self._library.vpn_stream_free(handle)

    __del__ = free


class _Reader(asyncio.StreamReader):
    """A reader for which a broken connection is an exception, and not the end of the stream."""

    def __init__(self, stream, loop):
        super().__init__(loop=loop)
        self._stream = stream

    def feed_eof(self):
        error = self._stream.error()
        if error:
            self.set_exception(error)
        super().feed_eof()


class _Protocol(asyncio.StreamReaderProtocol):
    """Frees the connection once the transport is closed."""

    def __init__(self, stream, reader, loop):
        super().__init__(reader, loop=loop)
        self._stream_of_library = stream

    def connection_lost(self, error):
        super().connection_lost(error)
        self._stream_of_library.free()


async def _readable(descriptor):
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


class Tunnel:
    """A gateway in this process with a policy: the text of an AIX_VPN XML file.

    name_servers are addresses of DNS servers behind the tunnels. Tunnels are started by the connections that need them,
    or by their peers. listen has the addresses of this host at which peers begin, on UDP port 4500; it is an Error if
    the port is taken there. Without it, peers begin at the addresses that the policy gives to this side, as far as the
    port is free. With (), only this side begins.

    Leaving `async with` ends connects that are under way with an Error, and takes at most a few seconds.
    """

    def __init__(self, policy, name_servers=(), listen=None):
        self._policy, self._servers = policy, ",".join(name_servers)
        if isinstance(listen, str):
            listen = (listen,)
        self._listen = None if listen is None else ",".join(map(str, listen)).encode()
        self._library, self._tunnel = _load(), None

    def _open(self):
        reason = ctypes.create_string_buffer(_ERROR)
        self._tunnel = self._library.vpn_open_listening(
            self._policy.encode(), self._servers.encode(), self._listen, reason, _ERROR
        )
        if not self._tunnel:
            raise Error(reason.value.decode())

    def _close(self):
        tunnel, self._tunnel = self._tunnel, None
        self._library.vpn_close(tunnel)

    async def __aenter__(self):
        # A thread of its own, which opens before it closes: those of asyncio may all be busy.
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        try:
            await asyncio.shield(loop.run_in_executor(self._thread, self._open))
        except BaseException:
            self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_):
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)
        await asyncio.shield(closing)

    def listening_error(self):
        """Why peers cannot begin tunnels that the policy lets them begin, or None if they can."""
        reason = ctypes.create_string_buffer(_ERROR)
        if self._library.vpn_listening_error(self._tunnel, reason, _ERROR):
            return Error(reason.value.decode())
        return None

    async def open_connection(self, host, port):
        """Connects to a host behind a tunnel. Returns asyncio's reader and writer.

        It waits for the tunnel and for the host, without a limit of its own: asyncio.wait_for has one. If it is
        cancelled, nothing of the connection stays.
        """
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        library, reason = self._library, ctypes.create_string_buffer(_ERROR)
        call = library.vpn_connect_begin(self._tunnel, target.encode(), reason, _ERROR)
        if not call:
            raise Error(reason.value.decode())
        try:
            await _readable(library.vpn_call_fd(call))
        except BaseException:
            library.vpn_call_cancel(call)
            raise
        handle = library.vpn_call_finish(call, 0, reason, _ERROR)
        if not handle:
            raise Error(reason.value.decode())
        stream = _Stream(library, handle)
        loop = asyncio.get_running_loop()
        reader = _Reader(stream, loop)
        protocol = _Protocol(stream, reader, loop)
        own = stream.socket()
        try:
            transport, _ = await loop.create_connection(lambda: protocol, sock=own)
        except BaseException:
            own.close()
            stream.free()
            raise
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
