"""Rules 4, 5 and 9: how a copy goes, on the embedded node, with the daemon as a process."""

from __future__ import annotations

import pytest

from tests.fakes import workloads
from tests.fakes.machine.processes import Processes
from tests.fakes.node import SHORT_TIMES, Node
from tests.fakes.waiting import holds_for, wait_for
from tests.integration import scenes

pytestmark = pytest.mark.integration


def test_4_a_shareable_copy_stays_until_the_parent_is_ready(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.shareable(port))["metadata"]["uid"]
        copy = scenes.activate(node, uid)
        node.api_server.start()
        wait_for("the parent runs", lambda: scenes.runs(node, uid))
        wait_for("the copy has gone", lambda: not scenes.runs(node, copy))
        assert "serving → yielding: the real pod is back" in node.log()
        _expect_nothing_left(node, copy)
        wait_for("the parent serves", scenes.serves(port))


def test_4_an_exclusive_copy_goes_when_the_parent_may_start(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(port))["metadata"]["uid"]
        copy = scenes.activate(node, uid)
        node.api_server.start()
        wait_for("the parent runs", lambda: scenes.runs(node, uid))
        _expect_nothing_left(node, copy)
        wait_for("the parent serves", scenes.serves(port))


def test_4_a_blocking_copy_makes_room_at_the_first_trusted_word(processes: Processes) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        scenes.store_daemon_set(node, "web", scenes.blocking(port))
        node.api_server.stop()
        node.power_cut()
        node.boot()
        scenes.wait_for_phase(node, "ds.web", "serving")
        copy = scenes.copy_uid(node)
        node.api_server.start()
        wait_for("the copy has gone", lambda: not scenes.runs(node, copy))
        wait_for("a pod of the DaemonSet is ready", lambda: workloads.ready_pods(node, "web"))
        _expect_nothing_left(node, copy)


def test_4_the_copy_returns_where_its_successor_fails_again_and_again(
    processes: Processes,
) -> None:
    with Node(processes, kubelet=("--back-off=0.2",)) as node:
        port = node.free_port()
        scenes.start(node)
        old = scenes.store_daemon_set(node, "web", scenes.exclusive(port))
        (pod,) = workloads.ready_pods(node, "web")
        first = scenes.activate(node, pod["metadata"]["uid"], slot="ds.web")
        # A bad rollout while nobody looked: the new pod's program fails.
        template = old["spec"]["template"]
        (container,) = template["spec"]["containers"]
        container["command"] = ["fail", "0.1"]
        container["readinessProbe"] = {"tcpSocket": {"port": port}}
        node.api_server.store.merge(
            "daemonsets", workloads.NAMESPACE, "web", {"spec": {"template": template}}
        )
        node.api_server.store.finalise(workloads.NAMESPACE, pod["metadata"]["name"])
        node.api_server.start()
        wait_for("the copy makes room", lambda: not scenes.runs(node, first))
        wait_for("a copy is there again", node.manifests)
        second = scenes.copy_uid(node)
        assert second != first
        wait_for("it serves", scenes.serves(port))


def test_5_the_copy_of_a_pod_that_was_deleted_meanwhile_goes_and_so_does_its_store(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        copy = scenes.activate(node, uid)
        node.api_server.store.finalise(workloads.NAMESPACE, "web")
        node.api_server.start()
        wait_for("the copy has gone", lambda: not scenes.runs(node, copy))
        scenes.wait_until_forgotten(node, "pod.web")


def test_b6_what_was_deleted_while_the_node_was_off_runs_until_the_api_tells_and_leaves_nothing(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        scenes.store_pod(node, "web", scenes.exclusive(port))
        node.api_server.stop()
        node.power_cut()
        node.api_server.store.finalise(workloads.NAMESPACE, "web")
        node.boot()
        wait_for("the copy serves", scenes.serves(port))
        node.api_server.start()
        scenes.wait_until_forgotten(node, "pod.web")
        assert list((node.layout.state / "checkpoints").iterdir()) == []


def test_5_the_copy_of_a_daemon_sets_pod_stays_until_the_daemon_set_says_no(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        port = node.free_port()
        scenes.start(node)
        node.api.create(workloads.DAEMON_SETS, workloads.daemon_set("web", scenes.exclusive(port)))
        made = node.api.get(f"{workloads.DAEMON_SETS}/web")
        owner = {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web",
            "uid": made["metadata"]["uid"], "controller": True,
        }  # fmt: skip
        pod = scenes.create_pod(node, "web-1", scenes.exclusive(port), owner=owner)
        scenes.wait_until_stored(node, "ds.web")
        copy = scenes.activate(node, pod["metadata"]["uid"], slot="ds.web")
        # No controller runs: nobody makes another pod.
        node.api_server.store.finalise(workloads.NAMESPACE, "web-1")
        node.api_server.start()
        scenes.wait_for_api(node, "trusted")
        holds_for("the copy stays", lambda: scenes.runs(node, copy), 2)
        node.api.delete(f"{workloads.DAEMON_SETS}/web")
        # It asks once a minute, and when it starts.
        assert node.daemon is not None
        node.daemon.kill()
        node.start_daemon()
        wait_for("the copy has gone", lambda: not scenes.runs(node, copy))
        scenes.wait_until_forgotten(node, "ds.web")


def test_5_all_checkpoints_gone_at_once_is_an_alarm_and_nothing_more(
    processes: Processes,
) -> None:
    with Node(processes, times={**SHORT_TIMES, "retire-store": "1m"}) as node:
        scenes.start(node)
        specs = {name: scenes.exclusive(node.free_port()) for name in ("a", "b")}
        pods = [scenes.create_pod(node, name, spec) for name, spec in specs.items()]
        for name in ("a", "b"):
            scenes.wait_until_stored(node, f"pod.{name}")
        scenes.lose_api(node)
        scenes.restart_kubelet_offline(node)
        for pod in pods:
            scenes.kill_program(node, pod["metadata"]["uid"])
        for name in ("a", "b"):
            scenes.wait_for_phase(node, f"pod.{name}", "serving")
            node.api_server.store.finalise(workloads.NAMESPACE, name)
        node.api_server.start()
        wait_for("there is an alarm", lambda: "all at once" in " ".join(scenes.alarms(node)))
        holds_for("the copies stay", lambda: len(node.manifests()) == 2, 2)


def test_5_a_pod_that_is_no_longer_marked_is_forgotten(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        unmark = {"metadata": {"annotations": {"checkpointd.io/checkpoint": None}}}
        node.api.patch(f"{workloads.PODS}/web", unmark)
        scenes.wait_until_forgotten(node, "pod.web")
        assert scenes.runs(node, uid)


def test_9_where_the_kubelet_does_not_obey_the_copy_is_stopped_through_the_runtime(
    processes: Processes,
) -> None:
    with Node(processes, kubelet=("--settle=60",)) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        copy = scenes.activate(node, uid)
        node.override("kube-system.pod.web", "deactivate")
        wait_for("the copy has gone", lambda: not scenes.runs(node, copy))
        holds_for("it stays gone", lambda: not scenes.runs(node, copy), 1)
        _expect_nothing_left(node, copy)


def test_8_a_copy_that_the_kubelet_refuses_is_offered_again_under_another_name(
    processes: Processes,
) -> None:
    with Node(processes, times={**SHORT_TIMES, "start-deadline": "1s"}) as node:
        scenes.start(node)
        uid = scenes.store_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        scenes.lose_api(node)
        scenes.restart_kubelet_offline(node)
        node.ask_containerd("set_registry", answers=False)
        node.ask_containerd("forget_image", image="registry.example/web:1")
        scenes.kill_program(node, uid)
        (first,) = wait_for("a copy is offered", node.manifests)
        wait_for("another is offered", lambda: [m for m in node.manifests() if m != first])
        node.ask_containerd("set_registry", answers=True)
        scenes.wait_for_phase(node, "pod.web", "serving")


def _expect_nothing_left(node: Node, copy: str) -> None:
    wait_for("its manifest has gone", lambda: not node.manifests())
    active = f"checkpoints/*/*/active/{copy}"
    wait_for("its files have gone", lambda: not list(node.layout.state.glob(active)))
