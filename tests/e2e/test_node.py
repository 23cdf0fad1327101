"""The test node itself: without the daemon, what a deletion or a power cut takes stays gone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import cluster, measure, objects, workloads
from tests.e2e.node.api import PODS
from tests.e2e.node.waiting import holds_for, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def test_without_checkpointd_the_last_api_server_stays_gone(
    make_machine: MakeMachine, tmp_path: Path
) -> None:
    machine = make_machine("master", "10.99.0.1/24")
    kube = cluster.Cluster(machine, tmp_path / "pki")
    cluster.install_base(machine)
    kube.install_control_plane()
    kube.install_kubelet(machine)
    pod = workloads.become_self_hosted(kube)

    deaths = measure.DeathWatch(
        measure.processes_of(machine, objects.text(pod, "metadata", "uid"), workloads.API_SERVER)
    )
    kube.api.delete(f"{PODS}/{objects.text(pod, 'metadata', 'name')}")
    deaths.wait(30)
    holds_for("no API server", lambda: not kube.api.is_ready(), 15)

    machine.power_cut()
    booted = machine.boot()
    wait_for("the kubelet is healthy", lambda: cluster.is_kubelet_healthy(machine), 60)
    holds_for("no API server", lambda: not kube.api.is_ready(), 20 - (time.monotonic() - booted))
