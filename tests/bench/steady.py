"""Measure the node at rest: start, idle CPU, memory, requests, the cost of an event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from tests.bench import usage
from tests.bench.crowd import LIGHT, Crowd
from tests.bench.figures import Rounds, Row, percentile
from tests.fakes import workloads
from tests.fakes.machine.daemon import Daemon

SETTLE_SECONDS = 75.0
"""Until all is proven (60 s) and nothing is left to be stored."""
WINDOWS = 5
EVENT_SECONDS = 1.2
"""After which a daemon that was woken rests again: its status is written once a second."""


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
    before, began = _requests(node), time.monotonic()
    shares = tuple(_idle_share(node, seconds / WINDOWS) for _ in range(WINDOWS))
    an_hour = (_requests(node) - before) / (time.monotonic() - began) * 3600
    yield Row(pods=pods, what="idle: CPU of one core", unit="%", samples=shares, limits=(0.2,))
    yield Row(
        pods=pods, what="idle: requests to the API an hour", unit="", samples=(an_hour,),
        limits=(12,),
    )  # fmt: skip
    yield from _events(node, pods, rounds.events, percentile(shares, 50) / 100)
    yield Row(
        pods=pods, what="memory, gRPC loaded: RSS", unit="MiB", samples=(_rss(node),), limits=(56,)
    )


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


def _requests(node: Crowd) -> int:
    return sum(request.agent == "checkpointd" for request in list(node.api_server.requests))


def _events(node: Crowd, pods: int, count: int, idle: float) -> Iterator[Row]:
    """Yield the CPU of events, less what rest would have taken."""

    def change(path: str) -> Callable[[int], object]:
        names = [pod["metadata"]["name"] for pod in node.api.list(path)]
        return lambda number: node.api.patch(
            f"{path}/{names[number % len(names)]}",
            {"metadata": {"annotations": {"bench": str(number)}}},
        )

    for what, path in (("another", LIGHT), ("a marked", workloads.PODS)):
        cause = change(path)
        yield Row(
            pods=pods,
            what=f"event: {what} pod changes, CPU",
            unit="ms",
            samples=tuple(_cost(node, cause, number, idle) for number in range(count)),
            limits=(3,),
        )


def _cost(node: Crowd, cause: Callable[[int], object], number: int, idle: float) -> float:
    before, began = usage.cpu_seconds(_daemon(node).pid), time.monotonic()
    cause(number)
    threading.Event().wait(EVENT_SECONDS)
    used = usage.cpu_seconds(_daemon(node).pid) - before
    return max(0.0, used - idle * (time.monotonic() - began)) * 1000


def _rss(node: Crowd) -> float:
    return usage.rss_mib(_daemon(node).pid)


def _daemon(node: Crowd) -> Daemon:
    assert node.daemon is not None
    return node.daemon
