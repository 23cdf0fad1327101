"""Read the kernel's routing tables: is there a way out?"""

from __future__ import annotations

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
