"""Writes whole packets made by scapy for suites that have no published ones: `vectors.py esp` those of AES-CBC in tunnel
mode, `vectors.py ah` those of AH. Keys, IVs and contents are arbitrary, but always the same."""

import hashlib
import json
import sys

from peer import AH, ESP, IP, UDP, IPv6, SecurityAssociation

ORIGIN = "packets made by scapy 2.8.0 (scapy.layers.ipsec) with tests/scapy/vectors.py"
MACS = {
    "HMAC-MD5-96": ("HMAC-MD5-96", 16),
    "HMAC-SHA1-96": ("HMAC-SHA1-96", 20),
    "HMAC-SHA2-256-128": ("SHA2-256-128", 32),
    "HMAC-SHA2-384-192": ("SHA2-384-192", 48),
    "HMAC-SHA2-512-256": ("SHA2-512-256", 64),
    "AES-XCBC-96": ("AES-XCBC-96", 16),
    "AES-CMAC-96": ("AES-CMAC-96", 16),
}
SPI = 0x1000ABCD


def octets(name, length):
    return hashlib.shake_128(name.encode()).digest(length)


def inner(number, ipv6=False):
    data = octets(f"data {number}", 3 + 17 * number)
    if ipv6:
        return IPv6(src="fd00:0:0:1::1", dst="fd00:0:0:2::2", hlim=63, tc=2) / UDP(sport=4000, dport=53) / data
    return IP(src="10.1.0.1", dst="10.2.0.2", ttl=63, tos=2, flags="DF", id=0x1234) / UDP(sport=4000, dport=53) / data


def case(number, suite, key, esn):
    low, high = (1000 + number, 7) if esn else (1000 + number, 0)
    return {
        "suite": suite,
        "key_material": key.hex(),
        "spi": f"{SPI:x}",
        "sequence": f"{(high << 32) | low:x}",
        "esn": esn,
    }, {"spi": SPI, "esn_en": esn, "esn": high}, low


def esp():
    for number, (bits, (name, (mac, length))) in enumerate((b, m) for b in (128, 192, 256) for m in MACS.items()):
        suite = f"AES-CBC-{bits}/{name}"
        cipher_key, mac_key = octets(suite, bits // 8), octets(suite + " MAC", length)
        told, common, low = case(number, suite, cipher_key + mac_key, number % 2 == 1)
        sa = SecurityAssociation(
            ESP,
            crypt_algo="AES-CBC",
            crypt_key=cipher_key,
            auth_algo=mac,
            auth_key=mac_key,
            tunnel_header=IP(src="192.0.2.1", dst="192.0.2.2"),
            **common,
        )
        plain, iv = bytes(inner(number)), octets(f"IV {number}", 16)
        packet = bytes(sa.encrypt(IP(plain), seq_num=low, iv=iv)[ESP])
        padding = -(len(plain) + 2) % 16
        text = plain + bytes(range(1, padding + 1)) + bytes([padding, 4])
        yield told | {"iv": iv.hex(), "inner": plain.hex(), "text": text.hex(), "packet": packet.hex()}


def ah():
    gmacs = {f"AES-GMAC-{bits}": ("AES-GMAC", bits // 8 + 4) for bits in (128, 192, 256)}
    for index, (name, (mac, length)) in enumerate((gmacs | MACS).items()):
        for ipv6 in (False, True):
            for tunnel in (False, True):
                number = index * 4 + ipv6 * 2 + tunnel
                suite = f"AH/{name}"
                key = octets(suite, length)
                told, common, low = case(number, suite, key, number % 3 == 1)
                plain = inner(number % 7, ipv6)
                family, ends = (IPv6, ("2001:db8::1", "2001:db8::2")) if ipv6 else (IP, ("192.0.2.1", "192.0.2.2"))
                outer = family(src=ends[0], dst=ends[1])
                if ipv6:
                    outer.tc, outer.hlim = 2, 64
                else:
                    # What this datapath writes: TTL, identification, and what RFC 6040 makes of the inner ECN field.
                    outer.tos, outer.ttl = 2, 64
                    outer.id = ((common["esn"] << 32) | low) % 65535 + 1
                sa = SecurityAssociation(
                    AH, auth_algo=mac, auth_key=key, tunnel_header=outer if tunnel else None, **common
                )
                plain = bytes(plain)
                packet = bytes(sa.encrypt(family(plain), seq_num=low))
                yield told | {"tunnel": tunnel, "inner": plain.hex(), "packet": packet.hex()}


if __name__ == "__main__":
    cases = {"esp": esp, "ah": ah}[sys.argv[1]]()
    json.dump({"origin": ORIGIN, "cases": list(cases)}, sys.stdout, indent=1)
    print()
