"""The only API server is a pod of this node: it is deleted, or the node loses its power."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import cluster, daemon, measure, objects, selfhosted, workloads
from tests.e2e.node.report import Times
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]


def test_the_last_api_server_is_deleted_and_comes_back(
    make_machine: MakeMachine, tmp_path: Path, times: Times
) -> None:
    node = selfhosted.make_self_hosted(make_machine("master", "10.99.0.1/24"), tmp_path / "pki")
    deaths = measure.DeathWatch(measure.processes_of(node.machine, node.uid, workloads.API_SERVER))
    manifests = measure.DirectoryWatch(node.machine, cluster.MANIFESTS)
    prober = node.probe()

    deleted = time.monotonic()
    node.cluster.api.delete(node.url)
    died = deaths.wait(30)
    placed = manifests.wait_for(daemon.COPY_PREFIX, appeared=True, since=deleted, timeout=30)
    ready = prober.wait_for(answers=True, since=died, timeout=90)

    scenario = "API server deleted"
    times.add(scenario, "last process gone to manifest", placed.at - died)
    times.add(scenario, "last process gone to API ready", ready - died)

    successor = wait_for(
        "the DaemonSet's new pod serves",
        lambda: workloads.ready_pod(node.cluster, workloads.API_SERVER, other_than=node.uid),
        180,
    )
    born = objects.text(successor, "metadata", "uid")
    node.daemon.wait_until_stored(selfhosted.SLOT, successor, 120)
    removed = manifests.wait_for(daemon.COPY_PREFIX, appeared=False, since=placed.at, timeout=1)
    times.add(scenario, "API ready to hand-back", removed.at - ready)
    times.add(scenario, "hand-back: API outage", sum(prober.outages(ready)))
    prober.close()
    manifests.close()

    assert node.daemon.copies() == []
    stored = node.daemon.stored(selfhosted.SLOT)
    assert not [path for path in stored if path.startswith("active/")]
    state = node.machine.path(f"{daemon.CHECKPOINTS}/kube-system/{selfhosted.SLOT}/state.json")
    assert born in state.read_text()
    assert node.uid not in state.read_text()
    wait_for(
        "no mirror pod is left",
        lambda: not workloads.pods_of(node.cluster, workloads.API_SERVER, mirrors=True),
        60,
    )


def test_a_power_cut_leaves_only_the_checkpoint_and_the_control_plane_returns(
    make_machine: MakeMachine, tmp_path: Path, times: Times
) -> None:
    node = selfhosted.make_self_hosted(make_machine("master", "10.99.0.1/24"), tmp_path / "pki")

    node.machine.power_cut()
    switched_on = node.machine.boot()
    prober = node.probe()
    placed = wait_for("the manifest is in place", lambda: manifest_times(node), 10)
    kubelet_started = node.machine.started_at("kubelet")

    ready = prober.wait_for(answers=True, since=switched_on, timeout=120)
    scenario = "power cut of the only master"
    times.add(scenario, "switched on to manifest", placed - switched_on)
    times.add(scenario, "manifest to the kubelet's start", kubelet_started - placed)
    times.add(scenario, "kubelet's start to API ready", ready - kubelet_started)

    node.daemon.wait_until_stored(selfhosted.SLOT, node.pod, 180)
    wait_for(
        "the API server's own pod is Ready",
        lambda: workloads.ready_pod(node.cluster, workloads.API_SERVER),
        60,
    )
    times.add(scenario, "hand-back: API outage", sum(prober.outages(ready)))
    prober.close()
    assert measure.processes_of(node.machine, node.uid, workloads.API_SERVER)
    assert node.daemon.copies() == []
    assert placed < kubelet_started, "the kubelet was faster than the manifest"


def manifest_times(node: selfhosted.SelfHosted) -> float | None:
    """Return when the copy's manifest got its name: a rename is the last change of its inode."""
    copies = node.daemon.copies()
    if not copies:
        return None
    status = node.machine.path(f"{cluster.MANIFESTS}/{copies[0]}").stat()
    return measure.wall_clock_to_monotonic(status.st_ctime)
