"""Measure the node at rest: start, idle CPU, memory, requests, the cost of an event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.bench import usage
from tests.bench.crowd import LIGHT, Crowd
from tests.bench.figures import Rounds, Row, percentile
from tests.fakes import workloads
from tests.fakes.api_faults import Request
from tests.fakes.machine.daemon import Daemon

SETTLE_SECONDS = 75.0
"""Until all is proven (60 s) and nothing is left to be stored."""
WINDOWS = 5
EVENT_SECONDS = 2.5
"""After which a daemon that was woken rests again: its status is drawn at most once a second."""
LOOK_SECONDS = 32.0
"""Within which a marked pod's volumes and spec are looked at again."""
BURST = 400
"""Events in a row after which no memory may be left taken."""


def measure(node: Crowd, pods: int, marked: int, rounds: Rounds) -> Iterator[Row]:
    """Yield the rows of a node whose API server stands elsewhere and answers.

    Left idle for less than a minute it is measured before all has settled.
    """
    seconds = rounds.idle_seconds
    node.start_daemon()
    node.wait_until_stored(marked)
    samples = tuple(_start_again(node) for _ in range(rounds.starts))
    yield Row(pods=pods, what="start: exec to READY", unit="ms", samples=samples, limits=(600,))
    threading.Event().wait(min(SETTLE_SECONDS, seconds))
    settled, before, began = _rss(node), _requests(node), time.monotonic()
    shares = tuple(_idle_share(node, seconds / WINDOWS) for _ in range(WINDOWS))
    yield Row(pods=pods, what="idle: CPU of one core", unit="%", samples=shares, limits=(0.2,))
    yield from _asked(node, pods, before, (time.monotonic() - began) / 3600)
    yield from _events(node, pods, rounds.events, percentile(shares, 50) / 100)
    for number in range(BURST if rounds.events > 1 else 1):
        _touch(node, LIGHT, number)
    threading.Event().wait(EVENT_SECONDS)
    after = _rss(node)
    yield Row(
        pods=pods, what="memory, gRPC loaded: RSS", unit="MiB", samples=(after,), limits=(56,)
    )
    grown = (after - settled,)
    yield Row(
        pods=pods, what="memory: growth in idle time and hundreds of events", unit="MiB",
        samples=grown, limits=(1,),
    )  # fmt: skip


def _start_again(node: Crowd) -> float:
    _daemon(node).stop()
    daemon = node.start_daemon()
    ready = next(heard.at for heard in daemon.heard if "READY" in heard.variables)
    node.wait_until_stored(1)
    return (ready - daemon.started) * 1000


def _idle_share(node: Crowd, seconds: float) -> float:
    before, began = usage.cpu_seconds(_daemon(node).pid), time.monotonic()
    threading.Event().wait(seconds)
    used = usage.cpu_seconds(_daemon(node).pid) - before
    return used / (time.monotonic() - began) * 100


def _requests(node: Crowd) -> list[Request]:
    return [each for each in list(node.api_server.requests) if each.agent == "checkpointd"]


def _asked(node: Crowd, pods: int, before: list[Request], hours: float) -> Iterator[Row]:
    """Yield what was asked of the API server since: the watch apart, leases aside."""
    since = _requests(node)[len(before) :]
    lists = [each for each in since if each.path.endswith("/pods") and not each.is_watch]
    others = [each for each in since if not each.is_watch and "/leases/" not in each.path]
    for what, found, limits in (
        ("watches opened anew", [each for each in since if each.is_watch], ()),
        ("LISTs of pods", lists, (0,)),
        ("requests, watches aside", others, (12,)),
    ):
        yield Row(
            pods=pods, what=f"idle: {what} an hour", unit="", samples=(len(found) / hours,),
            limits=limits,
        )  # fmt: skip


def _touch(node: Crowd, path: str, number: int) -> None:
    """Change a pod as its kubelet does: what is said of it, not what it is."""
    names = sorted(pod["metadata"]["name"] for pod in node.api.list(path))
    changed = f"{path}/{names[number % len(names)]}/status"
    node.api.patch(changed, {"status": {"message": f"bench {number}"}})


def _change(node: Crowd, path: str, number: int) -> None:
    """Change what a pod is: a new generation of a marked one, stored at the next look."""
    names = sorted(pod["metadata"]["name"] for pod in node.api.list(path))
    changed = f"{path}/{names[number % len(names)]}"
    node.api.patch(changed, {"metadata": {"annotations": {"bench": str(number)}}})


def _events(node: Crowd, pods: int, count: int, idle: float) -> Iterator[Row]:
    """Yield the CPU of events, less what rest would have taken."""
    for what, path in (("another", LIGHT), ("a marked", workloads.PODS)):
        cause = partial(_touch, node, path)
        yield Row(
            pods=pods,
            what=f"event: {what} pod's status changes, CPU",
            unit="ms",
            samples=tuple(
                _cost(node, cause, number, EVENT_SECONDS, idle) for number in range(count)
            ),
            limits=(3,),
        )
    yield Row(
        pods=pods,
        what="a marked pod's spec changes, CPU until it is stored",
        unit="ms",
        samples=tuple(
            _cost(node, partial(_change, node, workloads.PODS), number, LOOK_SECONDS, idle)
            for number in range(min(count, 3))
        ),
    )


def _cost(
    node: Crowd, cause: Callable[[int], object], number: int, seconds: float, idle: float
) -> float:
    before, began = usage.cpu_seconds(_daemon(node).pid), time.monotonic()
    cause(number)
    threading.Event().wait(seconds)
    used = usage.cpu_seconds(_daemon(node).pid) - before
    return max(0.0, used - idle * (time.monotonic() - began)) * 1000


def _rss(node: Crowd) -> float:
    return usage.rss_mib(_daemon(node).pid)


def _daemon(node: Crowd) -> Daemon:
    assert node.daemon is not None
    return node.daemon
