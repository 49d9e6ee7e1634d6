"""The module where peers begin at an address of the loopback device: listening.py POLICY ADDRESS"""

import asyncio
import errno
import ipaddress
import socket
import sys

import vpn


def is_free(address):
    """Whether another socket can have the port of NAT traversal."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        try:
            own.bind((address, 4500))
        except OSError as error:
            assert error.errno == errno.EADDRINUSE, error
            return False
        return True


async def refused(policy, listen, *words):
    try:
        async with vpn.Tunnel(policy, listen=listen):
            raise AssertionError(f"it listens at {listen}")
    except vpn.Error as error:
        for word in words:
            assert word in str(error), error


async def main(path, address):
    with open(path, encoding="utf-8") as file:
        policy = file.read()
    at = f"{address}:4500"
    for listen in (address, [address], [ipaddress.ip_address(address)], None):
        async with vpn.Tunnel(policy, listen=listen) as tunnel:
            assert tunnel.listening_error() is None, tunnel.listening_error()
            assert not is_free(address)
        assert is_free(address)
    async with vpn.Tunnel(policy, listen=()) as tunnel:
        assert tunnel.listening_error() is None, tunnel.listening_error()
        assert is_free(address)
    async with vpn.Tunnel(policy):
        await refused(policy, address, at, "this process has it already", "leave the choice to the policy")
        async with vpn.Tunnel(policy) as second:
            told = str(second.listening_error())
            assert "tunnel waits: the peer cannot begin" in told and at in told, told
    await refused(policy, "192.0.2.99", "192.0.2.99:4500", "it is not an address of this host")
    await refused(policy, "192.0.2.300", '"192.0.2.300"', "it has to be an address of this host")
    print("listened")


asyncio.run(main(*sys.argv[1:]))
