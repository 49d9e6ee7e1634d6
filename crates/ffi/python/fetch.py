"""Fetches a page from a host behind a tunnel: fetch.py POLICY HOST PORT"""

import asyncio
import sys

import vpn


async def main(path, host, port):
    with open(path, encoding="utf-8") as file:
        policy = file.read()
    async with vpn.Tunnel(policy) as tunnel:
        reader, writer = await tunnel.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        sys.stdout.buffer.write(await reader.read())
        writer.close()
        await writer.wait_closed()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except vpn.Error as error:
        sys.exit(str(error))
