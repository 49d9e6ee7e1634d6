"""The other end of every SA that it is told of, as scapy has ESP and AH.

Takes a JSON list of cases on standard input. Of each it opens `sealed`, a whole IP packet, refuses `spoiled`, and seals
`inner` itself; a JSON list of the outcomes goes to standard output. What scapy lacks is put together from the AES of
python's cryptography and its own notion of what is covered: AES-GMAC in AH (RFC 4543), and AES-XCBC (RFC 3566).
"""

import json
import struct
import sys
import warnings

warnings.filterwarnings("ignore")

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: E402
from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.ipsec import (  # noqa: E402
    AH,
    AUTH_ALGOS,
    AuthAlgo,
    CRYPT_ALGOS,
    ESP,
    IPSecIntegrityError,
    SecurityAssociation,
    zero_mutable_fields,
)


class Gmac:
    """AUTH_AES_*_GMAC: an IV of 8 octets, and the tag."""

    icv_size = 24

    def _tag(self, packet, key, iv, esn_en, esn, sending):
        covered = bytes(zero_mutable_fields(packet.copy(), sending=sending))
        if esn_en:
            covered += struct.pack("!L", esn)
        return AESGCM(key[:-4]).encrypt(key[-4:] + iv, b"", covered)

    def sign(self, packet, key, esn_en=False, esn=0):
        iv = struct.pack("!LL", esn, packet[AH].seq)
        packet[AH].icv = iv + self._tag(packet, key, iv, esn_en, esn, True)
        return packet

    def verify(self, packet, key, esn_en=False, esn=0):
        ah = packet[AH]
        ah.icv, ah.padding = ah.icv[:24], ah.icv[24:]
        if self._tag(packet, key, ah.icv[:8], esn_en, esn, False) != ah.icv[8:]:
            raise IPSecIntegrityError("the tags differ")


class Xcbc:
    """AES-XCBC-MAC of what is given to `update`."""

    def __init__(self, key):
        self.keys = [self._aes(key, bytes([n]) * 16) for n in (1, 2, 3)]
        self.message = b""

    @staticmethod
    def _aes(key, block):
        return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)

    def update(self, octets):
        self.message += octets

    def finalize(self):
        blocks = [self.message[at : at + 16] for at in range(0, len(self.message), 16)] or [b""]
        last = blocks.pop()
        whole = len(last) == 16
        last = last if whole else (last + b"\x80").ljust(16, b"\0")
        state = bytes(16)
        for block in blocks:
            state = self._aes(self.keys[0], bytes(a ^ b for a, b in zip(state, block)))
        tweak = self.keys[1 if whole else 2]
        return self._aes(self.keys[0], bytes(a ^ b ^ c for a, b, c in zip(state, last, tweak)))


class XcbcAlgo(AuthAlgo):
    def new_mac(self, key):
        return Xcbc(key)


AUTH_ALGOS["AES-GMAC"] = Gmac()
AUTH_ALGOS["AES-XCBC-96"] = XcbcAlgo("AES-XCBC-96", mac=Xcbc, digestmod=None, icv_size=12)


def association(case):
    """An SA of one direction."""
    family = IPv6 if case["ipv6"] else IP
    outer = family(src=case["source"], dst=case["destination"])
    octets = {name: bytes.fromhex(case[name]) for name in ("crypt_key", "auth_key")}
    return SecurityAssociation(
        AH if case["ah"] else ESP,
        spi=case["spi"],
        crypt_algo=case["crypt"],
        crypt_key=octets["crypt_key"] or None,
        auth_algo=case["auth"],
        auth_key=octets["auth_key"] or None,
        tunnel_header=outer if case["tunnel"] else None,
        nat_t_header=UDP(sport=4500, dport=4500) if case["udp"] else None,
        esn_en=case["esn"],
        esn=case["high"],
    )


def read(octets):
    return (IPv6 if octets[0] >> 4 == 6 else IP)(octets)


def outcome(case):
    sealed, inner = bytes.fromhex(case["sealed"]), bytes.fromhex(case["inner"])
    try:
        association(case).decrypt(read(bytes.fromhex(case["spoiled"])))
        spoiled = "accepted"
    except IPSecIntegrityError:
        spoiled = "refused"
    opened = bytes(association(case).decrypt(read(sealed)))
    made = bytes(association(case).encrypt(read(inner), seq_num=case["low"]))
    return {"spoiled": spoiled, "opened": opened.hex(), "made": made.hex()}


def lacking():
    """What this scapy has not, among what the cases need."""
    return "AES-NULL-GMAC" not in CRYPT_ALGOS and "AES-NULL-GMAC (scapy 2.6 has it)"


if __name__ == "__main__":
    if lacking():
        sys.exit(f"lacking: {lacking()}")
    json.dump([outcome(case) for case in json.load(sys.stdin)], sys.stdout)
