"""Read the kernel's routing tables: is there a way out, and which addresses are our own?

Not through netlink (psutil.net_if_addrs): the unit's RestrictAddressFamilies= has no AF_NETLINK.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from checkpointd.errors import SourceError

_UP = 0x1
_REJECT = 0x200
"""RTF_UP and RTF_REJECT of include/uapi/linux/route.h."""


def has_default_route(proc: Path) -> bool:
    """Tell whether IPv4 or IPv6 has a default route that leads somewhere.

    ``proc`` is where procfs is. Raises SourceError where neither table can be read.
    """
    tables = [_read(proc / "net" / name) for name in ("route", "ipv6_route")]
    if tables == [None, None]:
        raise SourceError(f"{proc}/net: no routing table can be read")
    try:
        return _has_ipv4(tables[0] or "") or _has_ipv6(tables[1] or "")
    except ValueError as error:
        raise SourceError(f"{proc}/net: not a routing table: {error}") from error


def read_own_addresses(proc: Path) -> frozenset[str]:
    """Return the addresses of this host, in their shortest form; empty where none can be read."""
    return _own_ipv4(_read(proc / "net" / "fib_trie")) | _own_ipv6(_read(proc / "net" / "if_inet6"))


def _own_ipv4(table: str | None) -> frozenset[str]:
    # "|-- 192.0.2.2" and below it "/32 host LOCAL": net/ipv4/fib_trie.c, fib_trie_seq_show.
    found: set[str] = set()
    address = ""
    for line in (table or "").splitlines():
        text = line.strip()
        if text.startswith("|-- "):
            address = text.removeprefix("|-- ")
        elif text == "/32 host LOCAL":
            found.add(address)
    return frozenset(found)


def _own_ipv6(table: str | None) -> frozenset[str]:
    # The address in hex, interface number, prefix length, ...: net/ipv6/addrconf.c, if6_seq_show.
    found: set[str] = set()
    for line in (table or "").splitlines():
        first = line.partition(" ")[0]
        if len(first) == 32:
            found.add(str(ipaddress.IPv6Address(int(first, 16))))
    return frozenset(found)


def _has_ipv4(table: str) -> bool:
    # Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT: net/ipv4/fib_trie.c.
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(
        len(row) > 7 and int(row[1], 16) == 0 and int(row[7], 16) == 0 and _leads_out(row[3])
        for row in rows
    )


def _has_ipv6(table: str) -> bool:
    # Destination, prefix length, source, its length, next hop, metric, references, use, flags,
    # device: net/ipv6/route.c, rt6_info_route. The kernel keeps a rejecting default on lo.
    rows = [line.split() for line in table.splitlines()]
    return any(
        len(row) > 9
        and int(row[0], 16) == 0
        and row[1] == "00"
        and row[9] != "lo"
        and _leads_out(row[8])
        for row in rows
    )


def _leads_out(flags: str) -> bool:
    return int(flags, 16) & (_UP | _REJECT) == _UP


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
