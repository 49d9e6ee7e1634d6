"""Connects that are cancelled at any moment leave nothing behind: cancelled.py POLICY HOST PORT"""

import asyncio
import os
import sys

import vpn


def descriptors():
    return len(os.listdir("/proc/self/fd"))


async def main(path, host, port):
    with open(path, encoding="utf-8") as file:
        policy = file.read()
    async with vpn.Tunnel(policy) as tunnel:
        before = descriptors()
        # The tunnel is up from here on.
        _, writer = await tunnel.open_connection(host, int(port))
        writer.close()
        await writer.wait_closed()
        for turns in range(100):
            opening = asyncio.ensure_future(tunnel.open_connection(host, int(port)))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            try:
                _, writer = await opening
            except asyncio.CancelledError:
                continue
            writer.close()
            await writer.wait_closed()
        # The library ends its side of each by itself.
        while descriptors() > before:
            await asyncio.sleep(0.01)
        reader, _ = await tunnel.open_connection(host, int(port))
    try:
        await reader.read()
    except vpn.Error:
        print("nothing stays")
    else:
        raise AssertionError("a connection that the end of its gateway has ended looks complete")


asyncio.run(main(*sys.argv[1:]))
