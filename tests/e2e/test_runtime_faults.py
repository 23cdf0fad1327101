"""The container runtime stops, hangs, is restarted; then the daemon stops, in the midst of it all.

What runs goes on running, a copy too, and what began before goes on after.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import api, cluster, daemon, faulty_api, gated, measure, objects, workloads
from tests.e2e.node.gated import Gated
from tests.e2e.node.journal import Journal
from tests.e2e.node.waiting import NotYetError, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

CONTROLLERS = "kube-controller-manager kube-scheduler"
WATCHDOG = "/etc/systemd/system/checkpointd.service.d/test.conf"
AGENT_PORT = 8081
FAULTS = [
    pytest.param(
        "systemctl stop containerd",
        "systemctl start containerd",
        "/run/containerd/containerd.sock: No such file or directory: is it running?",
        id="stopped",
    ),
    pytest.param(
        "systemctl kill --kill-who=main -s STOP containerd",
        "systemctl kill --kill-who=main -s CONT containerd",
        "no answer in time: it hangs, or has too much to do",
        id="hung",
    ),
    pytest.param("systemctl restart containerd", "true", "", id="restarted"),
]


@pytest.fixture(scope="module")
def node(
    make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gated]:
    """The node of all tests of this module. They build on each other, in their order."""
    machine = make_shared_machine("runtime", "10.99.0.1/24")
    machine.write(WATCHDOG, "[Service]\nWatchdogSec=4\n")
    times = {"tombstone-hold": '"0s"'}
    with gated.make_gated(machine, tmp_path_factory.mktemp("runtime") / "pki", times) as made:
        once = {**workloads.agent_pod_spec(8082), "hostNetwork": False, "restartPolicy": "Never"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "once", "annotations": workloads.MARK},
            "spec": {**once, "nodeName": machine.name},
        }
        # While a marked pod has no checkpoint, the runtime is asked every 2 s.
        made.cluster.api.create(api.PODS, pod)
        yield made


@pytest.mark.parametrize(("breaks", "mends", "says"), FAULTS)
def test_a_runtime_that_fails_changes_nothing_while_the_pods_run(
    node: Gated, breaks: str, mends: str, says: str
) -> None:
    with nothing_changes(node), broken_runtime(node, breaks, mends, says):
        pass


def test_a_copy_is_placed_for_each_pod_that_was_deleted_before_its_api_server_went(
    node: Gated,
) -> None:
    node.machine.sh(f"systemctl stop {CONTROLLERS}")
    for name, pod in node.pods.items():
        node.cluster.api.delete(f"{api.PODS}/{objects.text(pod, 'metadata', 'name')}")
        node.daemon.wait_for_checkpoint(f"ds.{name}", "no longer wanted", is_tombstone, 30)
    node.api_gate.turn(faulty_api.reset)
    for name in node.pods:
        node.daemon.wait_for_checkpoint(f"ds.{name}", "its copy runs", is_serving, 60)


@pytest.mark.parametrize(("breaks", "mends", "says"), FAULTS)
def test_a_runtime_that_fails_stops_no_copy(
    node: Gated, breaks: str, mends: str, says: str
) -> None:
    alarm = f"the container runtime does not answer ({says}" if says else ""
    with nothing_changes(node), broken_runtime(node, breaks, mends, says):
        if says:
            # Nor does an API server that is back, and knows the pod no more.
            wait_until_told(node, alarm if "hangs" not in says else "it hangs")
            node.api_gate.turn(faulty_api.pass_on)
            wait_until_told(node, "API trusted")
    node.api_gate.turn(faulty_api.reset)
    wait_until_told(node, "API unknown")


def test_a_daemon_that_stopped_takes_its_copies_up_again(node: Gated) -> None:
    with nothing_changes(node):
        stop_daemon(node)
    for name in node.pods:
        assert is_serving(node.daemon.checkpoint(f"ds.{name}"))


def test_a_daemon_that_stopped_in_the_midst_of_a_hand_back_ends_it(node: Gated) -> None:
    manifests = measure.DirectoryWatch(node.machine, cluster.MANIFESTS)
    prober = measure.Prober(node.machine, ("127.0.0.1", AGENT_PORT), "/page")
    begun = measure.now()
    prober.wait_for(answers=True, since=begun, timeout=10)
    node.machine.sh(f"systemctl start {CONTROLLERS}")
    node.api_gate.turn(faulty_api.pass_on)
    prefix = f"{daemon.COPY_PREFIX}kube-system.agent"
    manifests.wait_for(prefix, appeared=False, since=begun, timeout=90)
    stop_daemon(node)
    for name in node.pods:
        ready = partial(workloads.ready_pod, node.cluster, name)
        successor = wait_for(f"{name} is Ready", ready, 90)
        node.daemon.wait_until_stored(f"ds.{name}", successor, 90)
        measure.only_process(node.machine, objects.text(successor, "metadata", "uid"))
    assert node.daemon.copies() == []
    manifests.close()
    prober.close()
    appeared = [change.name for change in manifests.changes if change.appeared]
    assert [name for name in appeared if name.startswith(daemon.COPY_PREFIX)] == []


@contextmanager
def broken_runtime(node: Gated, breaks: str, mends: str, says: str) -> Generator[None]:
    """Break the runtime until it has been named and all inside is done; then mend it.

    A restart may be over before anybody has noticed.
    """
    journal = Journal(node.machine)
    node.machine.sh(breaks)
    try:
        if says:
            wait_until_told(node, says)
        yield
    finally:
        node.machine.sh(mends)
    wait_for("the runtime answers", lambda: source(node, "runtime") == "seen", 60)
    gone = journal.count("container runtime: unknown: ")
    assert gone == journal.count("container runtime: containerd *answers")
    assert gone == 1 if says else gone <= 1


@contextmanager
def nothing_changes(node: Gated) -> Generator[None]:
    """Fail if manifests, generations or the pods' and copies' processes change meanwhile."""
    before = look(node)
    manifests = measure.DirectoryWatch(node.machine, cluster.MANIFESTS)
    try:
        yield
    finally:
        manifests.close()
    assert manifests.changes == []
    assert look(node) == before


def look(node: Gated) -> dict[str, object]:
    """Return all that must stay."""
    store, manifests = (node.machine.path(p) for p in (daemon.CHECKPOINTS, cluster.MANIFESTS))
    files = [path for path in store.rglob("*") if path.is_file()]
    return {
        "stored": {str(p): p.read_bytes() for p in files if not p.name.startswith("state.json")},
        "placed": {path.name: path.read_bytes() for path in manifests.iterdir()},
        "running": {name: processes(node, name) for name in node.pods},
    }


def processes(node: Gated, name: str) -> list[int]:
    """Return the web servers of a DaemonSet's pod, or of its copy."""
    copy = objects.find(node.daemon.checkpoint(f"ds.{name}"), "activation", "uid")
    uid = copy if isinstance(copy, str) else node.uid(name)
    found = measure.processes_of(node.machine, uid, "httpd")
    assert len(found) == 1
    return found


def stop_daemon(node: Gated) -> None:
    """Stop the daemon's process; return when its watchdog has brought it back."""
    journal = Journal(node.machine)
    before = node.machine.unit_property("checkpointd", "MainPID")
    node.machine.sh(f"kill -STOP {before}")
    journal.wait_for("checkpointd.service: Watchdog timeout", 30)
    journal.wait_for("Started checkpointd.service", 30)
    wait_for(
        "the daemon is alive",
        lambda: objects.find(node.daemon.status(), "daemon_alive") is True,
        30,
    )
    assert node.machine.unit_property("checkpointd", "MainPID") != before


def wait_until_told(node: Gated, words: str) -> None:
    """Return once `status` says something."""

    def is_told() -> bool:
        text = re.sub(r"\s+", " ", node.machine.sh("checkpointd status", check=False))
        if words not in text:
            raise NotYetError(text)
        return True

    wait_for(f"checkpointd status says: {words}", is_told, 60, 0.2)


def source(node: Gated, name: str) -> object:
    """Return the state of one of the daemon's sources."""
    for found in objects.items(node.daemon.status(), "sources"):
        if objects.find(found, "name") == name:
            return objects.find(found, "state")
    return None


def is_tombstone(checkpoint: object) -> bool:
    """Say whether a slot's pod is no longer wanted."""
    return objects.find(checkpoint, "phase") == "tombstone"


def is_serving(checkpoint: object) -> bool:
    """Say whether a slot's copy runs."""
    return objects.find(checkpoint, "phase") == "serving"
