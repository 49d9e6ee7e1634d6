"""The module with the library of stub.c, which VPN_LIBRARY names: nothing that was made stays."""

import asyncio
import concurrent.futures
import ctypes
import gc
import ipaddress
import os
import sys
import threading

import vpn

stub = ctypes.CDLL(os.environ["VPN_LIBRARY"])
stub.stub_listening.restype = ctypes.c_char_p


def live():
    """Tunnels, calls and connections of the library."""
    gc.collect()
    counts = (ctypes.c_int * 3)()
    stub.stub_live(counts)
    return list(counts)


async def turns(number):
    for _ in range(number):
        await asyncio.sleep(0)


async def connected():
    """A connection is freed with its writer."""
    async with vpn.Tunnel("policy") as tunnel:
        opening = asyncio.ensure_future(tunnel.open_connection("h", 1))
        await turns(1)
        stub.stub_answer()
        reader, writer = await opening
        assert live() == [1, 0, 1], live()
        writer.close()
        await writer.wait_closed()
        assert live() == [1, 0, 0], live()


async def dropped():
    """A connection is freed with the objects of Python."""
    async with vpn.Tunnel("policy") as tunnel:
        opening = asyncio.ensure_future(tunnel.open_connection("h", 1))
        await turns(1)
        stub.stub_answer()
        reader, writer = await opening
        writer.transport.abort()
        del reader, writer, opening
        await turns(2)
        assert live() == [1, 0, 0], live()


async def cancelled(after):
    """A connect that is cancelled so many turns of the loop after its connection has come about."""
    async with vpn.Tunnel("policy") as tunnel:
        opening = asyncio.ensure_future(tunnel.open_connection("h", 1))
        await turns(1)
        assert live() == [1, 1, 0], live()
        if after >= 0:
            stub.stub_answer()
            await turns(after)
        was_open = opening.done()
        opening.cancel()
        try:
            _, writer = await opening
        except asyncio.CancelledError:
            assert not was_open
            await turns(3)
        else:
            writer.close()
            await writer.wait_closed()
        assert live() == [1, 0, 0], live()


async def left():
    """The tunnel is left while connects are under way."""
    async with vpn.Tunnel("policy") as tunnel:
        opening = [asyncio.ensure_future(tunnel.open_connection("h", port)) for port in range(3)]
        await turns(1)
    for one in opening:
        try:
            await one
        except vpn.Error as error:
            assert "stopped" in str(error), error
        else:
            raise AssertionError("it has a connection")
    try:
        await tunnel.open_connection("h", 1)
    except vpn.Error:
        pass
    else:
        raise AssertionError("it has a connection")


async def left_with_busy_threads():
    """The tunnel is entered and left though all threads of asyncio are busy."""
    release = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, release.wait)
    async with vpn.Tunnel("policy"):
        assert live() == [1, 0, 0], live()
    assert live() == [0, 0, 0], live()
    release.set()
    await busy


async def not_entered():
    """An `async with` that is cancelled while the library opens."""
    stub.stub_hold(1)
    tunnel = vpn.Tunnel("policy")
    entering = asyncio.ensure_future(tunnel.__aenter__())
    await turns(1)
    stub.stub_await_opening()
    entering.cancel()
    try:
        await entering
    except asyncio.CancelledError:
        pass
    else:
        raise AssertionError("it has entered")
    stub.stub_hold(0)


async def listening():
    """The library gets the addresses at which peers begin."""
    two = [ipaddress.ip_address("192.0.2.1"), "2001:db8::1"]
    for listen, text in ((None, None), ((), b""), ("192.0.2.1", b"192.0.2.1"), (two, b"192.0.2.1,2001:db8::1")):
        async with vpn.Tunnel("policy", listen=listen) as tunnel:
            assert stub.stub_listening() == text, stub.stub_listening()
            error = tunnel.listening_error()
            if listen is None:
                assert isinstance(error, vpn.Error) and str(error) == "tunnel t: the peer cannot begin", error
            else:
                assert error is None, error


def main():
    scenes = [listening, connected, dropped, left, left_with_busy_threads, not_entered]
    scenes += [lambda after=after: cancelled(after) for after in range(-1, 6)]
    for scene in scenes:
        asyncio.run(scene())
    # Threads that are closing something end before this.
    threading._shutdown()
    assert live() == [0, 0, 0], live()
    print("nothing stays")


sys.exit(main())
