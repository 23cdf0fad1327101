"""Histories that were reported of others, lived through on the simulated node.

Safety is checked at each action, as in ``test_decide_simulated``; here the history is told and its
end is known. ``tests/field-reports.md`` says which report each is.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.pods import Slot
from checkpointd.model.policy import Times
from tests.simulation import surroundings
from tests.simulation.node import Node
from tests.simulation.surroundings import TICK, Workload

TIMES = Times()
HOUR = 3600.0
PROXY = surroundings.PROXY.slot
WEB = surroundings.WEB.slot


def at_rest(*workloads: Workload) -> Node:
    """Return a node on which every pod runs, is stored and proven."""
    node = Node(workloads)
    node.run(200)
    assert set(node.stored.checkpoints) == {work.slot for work in workloads}
    return node


def serving(*workloads: Workload) -> Node:
    """Return a node that lost its power while its API server was out of reach: copies serve."""
    node = at_rest(*workloads)
    node.api_goes("refused")
    node.power_cut()
    node.run(120)
    assert all(of(node, work.slot).phase is Phase.SERVING for work in workloads)
    return node


def of(node: Node, slot: Slot) -> Checkpoint:
    return node.stored.checkpoints[slot]


def runs(node: Node, slot: Slot) -> bool:
    return any(p.running for p in node.processes.values() if p.slot == slot)


def moves(node: Node) -> list[str]:
    """Return what was placed, removed and stopped so far."""
    words = ("place", "RemoveManifest", "StopCopy", "RemoveStore")
    return [line for line in node.log if any(word in line for word in words)]


def most_within(times: Iterable[float], seconds: float) -> int:
    """Return how many of these moments lie within so many seconds, at most."""
    known = sorted(times)
    return max((sum(t <= s < t + seconds for s in known) for t in known), default=0)


# ---- the runtime, the kubelet, the API server do not answer -------------------------------------
def test_a3b_a_copy_outlives_an_hour_without_the_runtime_and_goes_when_it_is_back() -> None:
    node = serving(surroundings.PROXY)
    before = moves(node)
    node.blindfold("runtime")
    node.api_goes("ok")
    node.run(HOUR, tick=10)
    assert moves(node) == before
    assert node.placed
    node.see("runtime")
    node.run(600)
    assert not node.placed
    assert of(node, PROXY).phase is Phase.STORED
    assert runs(node, PROXY)


def test_b1_no_outage_however_long_loses_a_checkpoint() -> None:
    node = at_rest(surroundings.PROXY, surroundings.WEB)
    node.blindfold("kubelet")
    for how in ("silent", "refused", "429"):
        node.api_goes(how)
        node.run(8 * HOUR, tick=60)
        assert set(node.stored.checkpoints) == {PROXY, WEB}
    assert not [line for line in node.log if "RemoveStore" in line]


def test_i5_a_link_that_flaps_for_ten_minutes_starts_and_stops_nothing() -> None:
    node = at_rest(surroundings.PROXY, surroundings.WEB)
    for _ in range(15):
        node.api_goes("silent")
        node.run(20)
        node.api_goes("ok")
        node.run(20)
    assert moves(node) == []


# ---- nothing without need -----------------------------------------------------------------------
def test_d1_a_thousand_ticks_of_the_same_write_nothing() -> None:
    for node in (at_rest(surroundings.PROXY), serving(surroundings.PROXY)):
        before = list(node.log)
        node.run(1000 * TICK)
        assert node.log == before


@pytest.mark.parametrize("rough", [False, True])
def test_b5_in_half_an_hour_of_jitter_copy_and_parent_do_not_take_turns(*, rough: bool) -> None:
    node = serving(surroundings.PROXY, surroundings.WEB)
    chance = random.Random(443)
    begun = node.now
    while node.now < begun + 1800:
        if not rough or chance.random() < 0.1:  # rough: outages last long enough to be believed
            node.api_goes(chance.choice(("ok", "ok", "silent", "refused", "429")))
        for source in ("runtime", "kernel", "kubelet", "machine"):
            (node.blindfold if chance.random() < 0.2 else node.see)(source)
        if rough and chance.random() < 0.1:
            node.restart_kubelet()
            node.crash_container(chance.choice(("proxy", "web")))
        node.run(5, tick=5)
    starts = {
        slot: [at for at, started, _ in node.starts if started == slot and at >= begun]
        for slot in (PROXY, WEB)
    }
    assert any(starts.values()) is rough
    for moments in starts.values():
        assert most_within(moments, TIMES.min_dwell) <= 1


def test_a8_a_parent_that_comes_up_for_two_seconds_again_and_again_is_not_waited_for() -> None:
    node = serving(surroundings.PROXY)
    begun = node.now
    node.api_goes("ok")
    while node.now < begun + 1800:
        node.run(2)
        for process in node.processes.values():
            if not process.is_copy and process.running:
                node.end(process)
    starts = [at for at, _, _ in node.starts if at >= begun]
    assert most_within(starts, 1800) <= 1
    assert of(node, PROXY).phase is Phase.SERVING


# ---- how long nobody serves ---------------------------------------------------------------------
def test_b13_after_a_boot_without_an_api_server_everything_runs_within_its_hold() -> None:
    node = at_rest(surroundings.API, surroundings.PROXY, surroundings.DNS)
    node.power_cut(pause=20)
    node.tick()
    assert {slot for _, slot, _ in node.starts} == {surroundings.API.slot}
    assert node.kubelet_since is None
    node.api_goes("refused")
    node.run(20 + TIMES.boot_hold * (1 + TIMES.jitter) + 2 * TICK)
    assert {slot for _, slot, _ in node.starts} == set(node.stored.checkpoints)


def test_b3_a_successor_that_fails_costs_no_more_than_the_hand_back() -> None:
    node = at_rest(surroundings.API)
    node.replace_after = 60.0
    node.delete("api")
    node.run(30)
    assert of(node, surroundings.API.slot).phase is Phase.SERVING
    down: list[float] = []
    for _ in range(300):
        node.tick()
        for uid in node.api_pods:
            node.break_pod(uid)
        if not runs(node, surroundings.API.slot):
            down.append(node.now)
    # The port was given up for the successor, which never came up: the old copy is back.
    assert down
    assert max(down) - min(down) <= TIMES.hand_back + 2 * TICK
    assert of(node, surroundings.API.slot).phase is Phase.SERVING


def test_b6_replay_366_what_was_deleted_while_the_node_was_off_runs_until_the_api_tells() -> None:
    node = at_rest(surroundings.WEB)
    node.unwant("web")
    node.api_goes("refused")
    node.power_cut()
    node.run(120)
    assert of(node, WEB).phase is Phase.SERVING
    node.api_goes("ok")
    node.run(120)
    assert not node.placed
    assert not runs(node, WEB)
    node.run(TIMES.retire_store + 60)
    assert node.stored.checkpoints == {}
