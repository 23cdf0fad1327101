"""The kubelet is restarted while no API server answers: from then on it knows no pod of the API.

Those that run are left running, and nobody restarts one that ends (kubelet fact K-18) before the
API server is back, and even then it takes the kubelet some 30 s.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import cluster, daemon, firewall, measure, objects, selfhosted, workloads
from tests.e2e.node.report import Times
from tests.e2e.node.waiting import holds_for, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

AGENT_PORT = 8081
SLOTS = (selfhosted.SLOT, "ds.agent")
UNLISTED_SECONDS = 11  # a kubelet that has not listed a pod for 10 s will not restart it
API_COPY = f"{daemon.COPY_PREFIX}kube-system.{workloads.API_SERVER}"


def test_of_pods_that_a_restarted_kubelet_forgot_only_one_that_ends_gets_a_copy(
    make_machine: MakeMachine, tmp_path: Path, times: Times
) -> None:
    node = selfhosted.make_self_hosted(make_machine("master", "10.99.0.1/24"), tmp_path / "pki")
    agent = workloads.start_agent(node.cluster, AGENT_PORT)
    agent_uid = objects.text(agent, "metadata", "uid")
    node.daemon.wait_until_stored("ds.agent", agent, 60)
    processes = {
        uid: measure.only_process(node.machine, uid, command)
        for uid, command in ((node.uid, workloads.API_SERVER), (agent_uid, "httpd"))
    }
    manifests = measure.DirectoryWatch(node.machine, cluster.MANIFESTS)
    prober = node.probe()
    agent_prober = measure.Prober(node.machine, ("127.0.0.1", AGENT_PORT), "/page")

    # Both pods run on: when the API server is back, the kubelet adopts them.
    forget_pods(node)
    holds_for("no copy is placed", lambda: not manifests.changes, UNLISTED_SECONDS)
    firewall.accept(node.machine, cluster.API_PORT)
    back = prober.wait_for(answers=True, since=measure.now(), timeout=30)
    scenario = "kubelet restarted without an API server"
    times.add(scenario, "API back to pods adopted", wait_until_adopted(node, *processes) - back)
    for uid, command in ((node.uid, workloads.API_SERVER), (agent_uid, "httpd")):
        assert processes[uid] in measure.processes_of(node.machine, uid, command)
    assert manifests.changes == []

    # The API server's own container ends, and nobody restarts it.
    forget_pods(node)
    deaths = measure.DeathWatch([processes[node.uid]])
    os.kill(processes[node.uid], signal.SIGKILL)
    died = deaths.wait(10)
    firewall.accept(node.machine, cluster.API_PORT)
    placed = manifests.wait_for(API_COPY, appeared=True, since=died, timeout=30)
    ready = prober.wait_for(answers=True, since=died, timeout=60)
    times.add(scenario, "last process gone to manifest", placed.at - died)
    times.add(scenario, "last process gone to API ready", ready - died)

    # It is back as a copy; then the kubelet wakes up and starts the real pod.
    lacking = wait_until_adopted(node, node.uid)
    removed = manifests.wait_for(API_COPY, appeared=False, since=ready, timeout=90)
    node.daemon.wait_until_stored(selfhosted.SLOT, node.pod, 120)
    times.add(scenario, "API ready to hand-back", removed.at - ready)
    times.add(scenario, "hand-back: API outage", sum(prober.outages(ready)))
    assert removed.at > lacking, "the copy went before the kubelet knew of its parent"
    assert measure.processes_of(node.machine, node.uid, workloads.API_SERVER)
    assert processes[agent_uid] in measure.processes_of(node.machine, agent_uid, "httpd")
    assert agent_prober.outages(0) == []
    assert {change.name for change in manifests.changes if not change.name.startswith(".")} == {
        placed.name
    }
    for watch in (prober, agent_prober, manifests):
        watch.close()


def forget_pods(node: selfhosted.SelfHosted) -> None:
    """Restart the kubelet without an API server; return when the daemon is sure of it."""
    firewall.refuse(node.machine, cluster.API_PORT)
    node.machine.sh("systemctl restart kubelet")
    node.daemon.wait_for_kubelet(60)
    for slot in SLOTS:
        node.daemon.wait_for_checkpoint(
            slot, "it runs and nobody would restart it", daemon.is_forgotten, 120
        )


def wait_until_adopted(node: selfhosted.SelfHosted, *uids: str) -> float:
    """Return the last moment at which the kubelet lacked one of these pods, once it has them."""
    lacking = measure.now()

    def is_adopted() -> bool:
        nonlocal lacking
        asked = measure.now()
        pods = node.cluster.kubelet_pods(node.machine)
        has_them = {*uids} <= {objects.text(pod, "metadata", "uid") for pod in pods}
        if not has_them:
            lacking = asked
        return has_them

    wait_for("the kubelet has its pods again", is_adopted, 90)
    return lacking
