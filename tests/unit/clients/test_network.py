from __future__ import annotations

from pathlib import Path

import pytest

from checkpointd.clients import network
from checkpointd.errors import SourceError

HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
DEFAULT = "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
SUBNET = "eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
HALF = "tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n"
REJECT = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"
ZERO = "0" * 32
DEFAULT6 = f"{ZERO} 00 {ZERO} 00 fe80{'0' * 28} 00000400 00000001 00000000 00000003     eth0\n"
REJECT6 = f"{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo\n"
LINK6 = f"fe80{'0' * 28} 40 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001     eth0\n"


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "answer"),
    [
        (HEAD + SUBNET + DEFAULT, None, True),
        (HEAD + SUBNET, None, False),
        (HEAD, "", False),
        (HEAD + HALF, REJECT6, False),
        (HEAD + REJECT, REJECT6 + LINK6, False),
        (HEAD, LINK6 + DEFAULT6 + REJECT6, True),
        (None, DEFAULT6, True),
        ("", "", False),
    ],
)
def test_a_default_route_is_one_that_leads_out(
    tmp_path: Path, ipv4: str | None, ipv6: str | None, *, answer: bool
) -> None:
    (tmp_path / "net").mkdir()
    for name, table in (("route", ipv4), ("ipv6_route", ipv6)):
        if table is not None:
            (tmp_path / "net" / name).write_text(table, encoding="ascii")
    assert network.has_default_route(tmp_path) is answer


def test_no_table_at_all_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no routing table"):
        network.has_default_route(tmp_path)


def test_a_table_that_is_none_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "route").write_text("a\nq r s t u v w x\n", encoding="ascii")
    with pytest.raises(SourceError, match="not a routing table"):
        network.has_default_route(tmp_path)


def test_own_addresses_of_both_families_are_read_in_their_shortest_form(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/fib_trie").write_text(
        "Main:\n  +-- 192.0.2.0/24 2 0 2\n     |-- 192.0.2.0\n        /24 link UNICAST\n"
        "     |-- 192.0.2.7\n        /32 host LOCAL\n     |-- 192.0.2.255\n"
        "        /32 link BROADCAST\n"
    )
    (tmp_path / "net/if_inet6").write_text(
        "fd000000000000000000000000000002 04 40 00 82     eth0\n"
    )
    assert network.read_own_addresses(tmp_path) == {"192.0.2.7", "fd00::2"}


def test_own_addresses_are_none_where_no_table_can_be_read(tmp_path: Path) -> None:
    assert network.read_own_addresses(tmp_path) == frozenset()
