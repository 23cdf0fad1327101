"""Rule 3: when a copy is started, on the embedded node, with the daemon as a process."""

from __future__ import annotations

import pytest

from tests.fakes import workloads
from tests.fakes.api_objects import Object
from tests.fakes.machine.processes import Processes
from tests.fakes.node import SHORT_TIMES, Node
from tests.fakes.waiting import holds_for, wait_for
from tests.integration import scenes

pytestmark = pytest.mark.integration


def test_3a_a_pod_that_dies_while_kubelet_and_api_have_forgotten_it_is_replaced(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.shareable(port))["metadata"]["uid"]
        scenes.lose_api(node)
        scenes.restart_kubelet_offline(node)
        holds_for("what runs is left alone", lambda: not node.manifests(), 1)
        scenes.kill_program(node, uid)
        scenes.wait_for_phase(node, "pod.web", "serving")
        wait_for("the copy serves", scenes.serves(port))
        assert not scenes.runs(node, uid)


def test_3a_a_pod_that_the_kubelet_restarts_itself_is_left_to_it(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.shareable(port))["metadata"]["uid"]
        scenes.lose_api(node)
        scenes.kill_program(node, uid)
        wait_for("the kubelet starts it again", scenes.serves(port))
        holds_for("no copy is started", lambda: not node.manifests(), 1.5)


def test_3a_after_a_power_cut_the_pod_runs_again_with_the_bytes_that_it_had(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        scenes.store_pod(node, "web", scenes.exclusive(port))
        node.api_server.stop()
        node.power_cut()
        node.boot()
        scenes.wait_for_phase(node, "pod.web", "serving")
        wait_for("the copy serves", scenes.serves(port))
        copy = scenes.copy_uid(node)
        active = node.layout.state / "checkpoints/kube-system/pod.web/active" / copy
        assert (active / "keys" / "key").read_bytes() == scenes.KEY
        assert (active / "keys" / "key").stat().st_mode & 0o777 == 0o400


def test_3a_nothing_is_started_on_a_node_that_has_never_seen_its_api_server(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        node.boot()
        scenes.wait_for_api(node, "has never been in trusted contact")
        holds_for("nothing is placed", lambda: not node.manifests(), 1)
        assert node.status()["checkpoints"] == []


def test_3b_the_last_api_server_comes_back_from_its_checkpoint(processes: Processes) -> None:
    with Node(processes, self_hosted=True) as node:
        node.boot(daemon=False)
        workloads.self_host(node)
        node.start_daemon()
        wait_for("it is known to serve the API", lambda: _serves_api(node))
        (parent,) = workloads.ready_pods(node, workloads.API_SERVER)
        node.api.delete(f"{workloads.PODS}/{parent['metadata']['name']}")
        wait_for("the checkpoint is activated", node.manifests)
        wait_for("the API answers", lambda: node.api.list(workloads.PODS))
        wait_for("the DaemonSet's new pod has taken over", lambda: _has_new_parent(node, parent))
        wait_for("the copy has gone", lambda: not node.manifests())
        scenes.wait_for_phase(node, f"ds.{workloads.API_SERVER}", "stored")
        assert not list(node.layout.state.glob("checkpoints/*/*/active/*"))


def test_3b_a_daemon_sets_pod_deleted_before_the_outage_comes_back(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        scenes.store_daemon_set(node, "web", scenes.exclusive(port))
        (pod,) = workloads.ready_pods(node, "web")
        # The kubelet needs a second to end it: the API server is gone by then.
        node.api.delete(f"{workloads.PODS}/{pod['metadata']['name']}")
        wait_for("the deletion is known", lambda: _is_tombstone(node))
        node.api_server.stop()
        scenes.wait_for_phase(node, "ds.web", "serving")
        wait_for("the copy serves", scenes.serves(port))


def test_3b_a_pod_without_controller_deleted_before_the_outage_stays_gone(
    processes: Processes,
) -> None:
    with Node(processes, times={**SHORT_TIMES, "retire-store": "1m"}) as node:
        scenes.start(node)
        scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))
        node.api.delete(f"{workloads.PODS}/web")
        scenes.wait_for_phase(node, "pod.web", "tombstone")
        scenes.lose_api(node)
        holds_for("it stays gone", lambda: not node.manifests(), 2)


def test_3c_a_kubelet_that_is_cut_off_from_the_api_server_gets_a_copy(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(port))["metadata"]["uid"]
        node.kill_kubelet()
        node.start_kubelet(api_port=node.free_port())
        scenes.kill_program(node, uid)
        scenes.wait_for_phase(node, "pod.web", "serving")
        wait_for("the copy serves", scenes.serves(port))


def _serves_api(node: Node) -> bool:
    return bool(node.checkpoint(f"ds.{workloads.API_SERVER}")["serves_api"])


def _has_new_parent(node: Node, old: Object) -> bool:
    ready = workloads.ready_pods(node, workloads.API_SERVER)
    return any(pod["metadata"]["uid"] != old["metadata"]["uid"] for pod in ready)


def _is_tombstone(node: Node) -> bool:
    return "stored → tombstone" in node.log()
