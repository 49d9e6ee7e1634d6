"""The module with a peer that does not answer, at a loopback address: absent.py POLICY ADDRESS"""

import asyncio
import socket
import sys

import vpn


async def main(path, address):
    with open(path, encoding="utf-8") as file:
        policy = file.read()
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind((address, 4500))
    peer.setblocking(False)
    loop = asyncio.get_running_loop()
    for _ in range(10):
        async with vpn.Tunnel(policy) as tunnel:
            opening = [asyncio.ensure_future(tunnel.open_connection("10.2.0.7", 80)) for _ in range(4)]
            # A message of IKE says that they are under way.
            begun = loop.create_future()
            loop.add_reader(peer, lambda: begun.done() or begun.set_result(None))
            await begun
            loop.remove_reader(peer)
            opening[0].cancel()
            try:
                await asyncio.wait_for(opening[1], 0.001)
            except asyncio.TimeoutError:
                pass
        for one in opening[2:]:
            try:
                await one
            except vpn.Error as error:
                assert "stopped" in str(error), error
            else:
                raise AssertionError("nobody has answered")
        while True:
            try:
                peer.recv(4096)
            except BlockingIOError:
                break
    print("left ten times")


asyncio.run(main(*sys.argv[1:]))
