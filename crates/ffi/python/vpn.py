"""Tunnels for programs in Python: IKEv2 and ESP in this process, without root, device or route.

    async with vpn.Tunnel(policy) as tunnel:
        reader, writer = await tunnel.open_connection("10.2.0.7", 80)

The module needs the library vpn_ffi (crates/ffi): at the path in the environment variable VPN_LIBRARY, or beside the
module, as in a wheel, or where the system finds libraries. It needs Python 3.9 and nothing else.
"""

import asyncio
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
        ("vpn_open", handle, (text, text, text, size)),
        ("vpn_close", None, (handle,)),
        ("vpn_connect", handle, (handle, text, text, size)),
        ("vpn_stream_fd", ctypes.c_int, (handle,)),
        ("vpn_stream_error", ctypes.c_int, (handle, text, size)),
        ("vpn_stream_free", None, (handle,)),
    ):
        getattr(library, function).restype = result
        getattr(library, function).argtypes = arguments
    return library


class _Reader(asyncio.StreamReader):
    """A reader for which a broken connection is an exception, and not the end of the stream."""

    def __init__(self, library, stream):
        super().__init__()
        self._library, self._stream = library, stream

    def feed_eof(self):
        reason = ctypes.create_string_buffer(_ERROR)
        if self._stream and self._library.vpn_stream_error(self._stream, reason, _ERROR):
            self.set_exception(Error(reason.value.decode()))
        super().feed_eof()


class _Protocol(asyncio.StreamReaderProtocol):
    """Frees the connection once the transport is closed."""

    def connection_lost(self, error):
        super().connection_lost(error)
        reader = self._reader_of_stream
        if reader._stream:
            reader._library.vpn_stream_free(reader._stream)
            reader._stream = None


class Tunnel:
    """A gateway in this process with a policy: the text of an AIX_VPN XML file.

    name_servers are addresses of DNS servers behind the tunnels. Tunnels are started by the connections that need them.
    """

    def __init__(self, policy, name_servers=()):
        self._policy, self._servers = policy, ",".join(name_servers)
        self._library, self._tunnel = _load(), None

    async def __aenter__(self):
        reason = ctypes.create_string_buffer(_ERROR)
        self._tunnel = await asyncio.to_thread(
            self._library.vpn_open, self._policy.encode(), self._servers.encode(), reason, _ERROR
        )
        if not self._tunnel:
            raise Error(reason.value.decode())
        return self

    async def __aexit__(self, *_):
        tunnel, self._tunnel = self._tunnel, None
        await asyncio.to_thread(self._library.vpn_close, tunnel)

    async def open_connection(self, host, port):
        """Connects to a host behind a tunnel. Returns asyncio's reader and writer."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        reason = ctypes.create_string_buffer(_ERROR)
        stream = await asyncio.to_thread(
            self._library.vpn_connect, self._tunnel, target.encode(), reason, _ERROR
        )
        if not stream:
            raise Error(reason.value.decode())
        # A descriptor of its own, which the transport closes.
        own = socket.socket(fileno=os.dup(self._library.vpn_stream_fd(stream)))
        own.setblocking(False)
        loop = asyncio.get_running_loop()
        reader = _Reader(self._library, stream)
        protocol = _Protocol(reader, loop=loop)
        protocol._reader_of_stream = reader
        transport, _ = await loop.create_connection(lambda: protocol, sock=own)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
