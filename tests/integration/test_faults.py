"""Break each source: what runs goes on, what is stored stays, and the status says it."""

from __future__ import annotations

import pytest

from tests.fakes.api_faults import Fault
from tests.fakes.machine.control import Fields
from tests.fakes.machine.processes import Processes
from tests.fakes.node import Node
from tests.fakes.waiting import NotYetError, holds_for, wait_for
from tests.integration import scenes

pytestmark = pytest.mark.integration

SECONDS = 1.0
"""How long each fault is held once it is known; the deadlines that it might trip are as long."""

API_FAULTS = [
    Fault.RESET, Fault.HANG, Fault.UNAUTHORIZED, Fault.INTERNAL, Fault.TRUNCATED, Fault.NULL_ITEMS,
]  # fmt: skip
"""One of each kind; the contract tests of the client have all of them."""


def test_b1_no_fault_of_the_api_server_stops_a_pod_or_loses_a_checkpoint(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        kept = _Kept(node)
        for fault in API_FAULTS:
            node.api_server.break_(fault, on="" if fault.is_of_connection else "/api/v1/")
            node.api_server.end_watches()
            node.api_server.close_connections()
            wait_for(f"{fault.value}: it is known", lambda: _api_is_named(node))
            kept.check(fault.value, SECONDS)
            node.api_server.repair()
            wait_for(f"{fault.value}: it is over", lambda: _api_is_well(node))
        kept.check("all over", SECONDS)


def test_b1_another_cluster_at_the_same_address_changes_nothing(processes: Processes) -> None:
    with Node(processes) as node:
        kept = _Kept(node)
        node.api_server.stop()
        node.api_server.store.wipe()
        node.api_server.store.make_world(node.name)
        node.kill_kubelet()
        node.api_server.start()
        scenes.wait_for_api(node, "foreign world")
        kept.check("a foreign world", SECONDS)


@pytest.mark.parametrize("kind", ["hang", "fail", "garble", "refuse"])
def test_a3_no_fault_of_the_runtime_stops_a_copy(processes: Processes, kind: str) -> None:
    with Node(processes) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        copy = scenes.activate(node, uid)
        before = scenes.photograph(node.layout.manifests)
        node.runtime_fault(kind)
        wait_for("it is known", lambda: _source(node, "runtime")["state"] == "unknown")
        holds_for("the copy runs", lambda: scenes.runs(node, copy), SECONDS)
        assert scenes.photograph(node.layout.manifests) == before
        node.runtime_fault("")
        wait_for("it is over", lambda: _source(node, "runtime")["state"] == "seen")
        assert scenes.photograph(node.layout.manifests) == before


def test_a3_without_the_runtime_no_copy_is_stopped(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(port))["metadata"]["uid"]
        copy = scenes.activate(node, uid)
        node.runtime_fault("refuse")
        node.api_server.start()
        wait_for("the API server is back", lambda: _api_is_well(node))
        holds_for("the copy serves", lambda: scenes.runs(node, copy), 2)
        assert node.manifests()
        node.runtime_fault("")
        wait_for("then it steps aside", lambda: not scenes.runs(node, copy))
        wait_for("the parent serves", scenes.serves(port))


def test_a4_a_kubelet_that_hangs_changes_nothing(processes: Processes) -> None:
    with Node(processes) as node:
        kept = _Kept(node)
        node.kubelet_fault("pods")
        node.kubelet_fault("healthy", value=False)
        scenes.lose_api(node)
        wait_for("it is known", lambda: _source(node, "kubelet list")["state"] == "unknown")
        kept.check("a kubelet that hangs", 2)


class _Kept:
    """Two pods with their checkpoints, one of each kind, which no fault may touch."""

    def __init__(self, node: Node) -> None:
        self.node = node
        scenes.start(node)
        specs = {"a": scenes.exclusive(node.free_port()), "b": scenes.shareable(node.free_port())}
        made = [scenes.create_pod(node, name, spec) for name, spec in specs.items()]
        for name in specs:
            scenes.wait_until_stored(node, f"pod.{name}")
        uids = [str(pod["metadata"]["uid"]) for pod in made]
        self.pids = {uid: node.find_process(uid, "web") for uid in uids}
        scenes.wait_until_quiet(node)
        self.generations = self._photograph()

    def check(self, what: str, seconds: float) -> None:
        """Hold that nothing has changed."""
        holds_for(f"{what}: the pods run", self._run, seconds)
        assert self._photograph() == self.generations, what
        assert not self.node.manifests(), what
        assert self.node.daemon is not None
        assert self.node.daemon.is_alive, what

    def _run(self) -> bool:
        return all(self.node.find_process(uid, "web") == pid for uid, pid in self.pids.items())

    def _photograph(self) -> set[str]:
        found = scenes.photograph(self.node.layout.state / "checkpoints")
        return {path for path in found if "/content/" in path or "/generations/" in path}


def _api_is_named(node: Node) -> bool:
    status = node.status()
    if status["api"]["state"] == "trusted" and _source(node, "api pods")["state"] == "seen":
        raise NotYetError(str(status["api"]))
    return True


def _api_is_well(node: Node) -> bool:
    status = node.status()
    if status["api"]["state"] != "trusted" or _source(node, "api pods")["state"] != "seen":
        raise NotYetError(f"{status['api']}, {_source(node, 'api pods')}")
    return True


def _source(node: Node, name: str) -> Fields:
    sources = {source["name"]: source for source in node.status()["sources"]}
    return dict(sources[name])
