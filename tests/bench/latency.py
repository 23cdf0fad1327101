"""Measure how long it takes from the last process's death, or from a start, to the manifest."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.bench.crowd import Crowd
from tests.bench.figures import Row
from tests.demo import stopwatch
from tests.fakes import workloads
from tests.fakes.waiting import NotYetError, wait_for
from tests.integration import scenes

API_SLOT = f"ds.{workloads.API_SERVER}"
LIMITS = (20, 60)


def measure_silent(node: Crowd, pods: int) -> Row:
    """Kill the marked pods one by one while kubelet and API server have forgotten them."""
    _start_timed(node)
    node.wait_until_stored(len(node.uids))
    scenes.lose_api(node)
    scenes.restart_kubelet_offline(node)
    samples: list[float] = []
    for name, uid in node.uids.items():
        slot = f"pod.{name}"
        wait_for("the kubelet does not know it", partial(_is_unmanaged, node, slot), 30)
        before = len(node.durable())
        gone = _kill(node.find_process(uid, "web"))
        samples.append(_wait_for_manifest(node, before) - gone)
        scenes.wait_for_phase(node, slot, "serving")
    return Row(
        pods=pods,
        what="3a, hold 0: last process gone to manifest durable",
        unit="ms",
        samples=tuple(sample * 1000 for sample in samples),
        limits=LIMITS,
    )


def measure_deleted(node: Crowd, pods: int, rounds: int) -> Row:
    """Delete the only API server again and again; return when all is as before."""
    _start_timed(node)
    samples: list[float] = []
    for _ in range(rounds):
        wait_for("the API server is stored and runs", lambda: _is_at_rest(node), 60)
        parent = workloads.ready_pods(node, workloads.API_SERVER)[0]["metadata"]
        pid = node.find_process(parent["uid"], workloads.API_SERVER)
        before = len(node.durable())
        with stopwatch.watch_death(pid) as death:
            node.api.delete(f"{workloads.PODS}/{parent['name']}")
            gone = death.wait("the API server's process ends", 20)
        samples.append(_wait_for_manifest(node, before) - gone)
    wait_for("the API server is stored and runs", lambda: _is_at_rest(node), 60)
    return Row(
        pods=pods,
        what="3b: last process gone to manifest durable",
        unit="ms",
        samples=tuple(sample * 1000 for sample in samples),
        limits=LIMITS,
    )


def measure_boot(node: Crowd, pods: int, rounds: int) -> Iterator[Row]:
    """Cut the power and boot again and again, without an API server, each time from one state."""
    node.power_cut()
    kept = node.layout.root / "kept"
    shutil.copytree(node.layout.state, kept)
    placed: list[float] = []
    ready: list[float] = []
    for _ in range(rounds):
        before = len(node.durable())
        node.boot()
        daemon = node.daemon
        assert daemon is not None
        placed.append(_wait_for_manifest(node, before) - daemon.started)
        ready.append(next(h.at for h in daemon.heard if "READY" in h.variables) - daemon.started)
        node.power_cut()
        _put_back(node, kept)
    yield Row(
        pods=pods,
        what="boot without API: exec to manifest durable",
        unit="ms",
        samples=tuple(sample * 1000 for sample in placed),
    )
    yield Row(
        pods=pods,
        what="boot without API: manifest before READY (the kubelet waits for it)",
        unit="ms",
        samples=tuple((after - at) * 1000 for at, after in zip(placed, ready, strict=True)),
    )


def _start_timed(node: Crowd) -> None:
    if node.daemon is not None:
        node.daemon.stop()
    node.timed = True
    node.start_daemon()


def _wait_for_manifest(node: Crowd, before: int) -> float:
    return wait_for("a manifest is durable", lambda: node.durable()[before:], 20)[0]


def _kill(pid: int) -> float:
    with stopwatch.watch_death(pid) as death:
        os.kill(pid, signal.SIGKILL)
        return death.wait("the program ends", 10)


def _is_unmanaged(node: Crowd, slot: str) -> bool:
    return scenes.answer_of(node, slot, "kubelet restart") == "no"


def _is_at_rest(node: Crowd) -> bool:
    if node.manifests():
        raise NotYetError("a copy is there")
    checkpoint = node.checkpoint(API_SLOT)
    if checkpoint["phase"] != "stored" or not checkpoint["serves_api"]:
        raise NotYetError(str(checkpoint["sentence"]))
    (pod,) = workloads.ready_pods(node, workloads.API_SERVER)
    return bool(checkpoint["parent"]["uid"] == pod["metadata"]["uid"])


def _put_back(node: Crowd, kept: Path) -> None:
    """Restore the store, and take the copy's manifest away."""
    shutil.rmtree(node.layout.state)
    shutil.copytree(kept, node.layout.state)
    for manifest in node.manifests():
        with suppress(FileNotFoundError):
            manifest.unlink()
