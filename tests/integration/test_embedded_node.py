"""The embedded node itself: it behaves as a kubelet was seen to behave (kubelet facts)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checkpointd.clients.cri.client import CriClient
from tests.fakes import workloads
from tests.fakes.api_objects import Object
from tests.fakes.machine.processes import Processes
from tests.fakes.node import Node
from tests.fakes.waiting import holds_for, wait_for
from tests.integration import scenes

pytestmark = pytest.mark.integration


def static(name: str, uid: str, **more: object) -> Object:
    """Return a static pod."""
    spec: Object = {"containers": [{"name": "pause", "image": "pause:1", "command": ["pause"]}]}
    spec["terminationGracePeriodSeconds"] = 1
    metadata = {"name": name, "namespace": "kube-system", "uid": uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **more}}


def place(node: Node, file: str, pod: Object) -> Path:
    """Put a manifest into the static-pod directory, at once."""
    path = node.layout.manifests / file
    fresh = path.with_name(f".{file}")
    fresh.write_text(json.dumps(pod))
    fresh.rename(path)
    return path


def has_container(node: Node, uid: str) -> bool:
    """Tell whether a container of the pod runs."""
    picture = node.ask_containerd("picture", since=0, seconds=0)
    of_pod = {s["id"] for s in picture["sandboxes"] if s["uid"] == uid}
    return any(c["sandbox"] in of_pod and c["running"] for c in picture["containers"])


def stop_through_cri(node: Node, uid: str) -> None:
    """Stop a pod's sandboxes as the daemon does."""
    client = CriClient(str(node.layout.cri_socket))
    try:
        for sandbox in client.list_sandboxes(uid):
            client.stop_sandbox(sandbox.id)
    finally:
        client.close()


def test_k6_a_static_pod_has_the_nodes_name_behind_its_own_and_the_uid_that_it_was_given(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        node.api_server.start()
        node.boot(daemon=False)
        path = place(node, "a.json", static("a", "aaaa-1"))
        wait_for("it runs", lambda: has_container(node, "aaaa-1"))
        wait_for("it has a mirror", lambda: scenes.find_pod(node, "a-node-1"))
        path.unlink()
        wait_for("it has ended", lambda: not has_container(node, "aaaa-1"))
        wait_for("its mirror has gone", lambda: scenes.find_pod(node, "a-node-1") is None)


def test_k6_a_uid_with_an_underscore_panics_the_kubelet(processes: Processes) -> None:
    with Node(processes) as node:
        node.boot(daemon=False)
        place(node, "a.json", static("a", "aaaa_1"))
        assert node.kubelet is not None
        assert node.kubelet.wait(10) == 2


def test_k1_k2_of_two_files_of_one_name_the_last_wins_whatever_its_extension(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        node.api_server.start()
        node.boot(daemon=False)
        place(node, "a.json", static("a", "aaaa-1"))
        wait_for("the first runs", lambda: has_container(node, "aaaa-1"))
        place(node, "a.json.bak", static("a", "aaaa-2"))
        wait_for("the other runs in its place", lambda: has_container(node, "aaaa-2"))
        assert not has_container(node, "aaaa-1")


def test_k13_k17_an_offline_kubelet_stops_nothing_and_never_starts_a_name_again(
    processes: Processes,
) -> None:
    with Node(processes) as node:
        node.boot(daemon=False)
        path = place(node, "a.json", static("a", "aaaa-1"))
        wait_for("it runs", lambda: has_container(node, "aaaa-1"))
        path.unlink()
        holds_for("it runs on", lambda: has_container(node, "aaaa-1"), 0.5)
        stop_through_cri(node, "aaaa-1")
        holds_for("it stays stopped", lambda: not has_container(node, "aaaa-1"), 0.5)
        place(node, "a.json", static("a", "aaaa-2"))
        place(node, "b.json", static("b", "bbbb-1"))
        wait_for("another name starts", lambda: has_container(node, "bbbb-1"))
        holds_for("the same name waits", lambda: not has_container(node, "aaaa-2"), 0.5)
        node.api_server.start()
        wait_for("with the API server it starts", lambda: has_container(node, "aaaa-2"))


def test_k18_after_an_offline_restart_api_pods_run_on_unmanaged(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start_without_daemon(node)
        uid = scenes.create_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        wait_for("it runs", lambda: scenes.runs(node, uid))
        node.api_server.stop()
        scenes.restart_kubelet_offline(node)
        holds_for("it runs on", lambda: scenes.runs(node, uid), 0.3)
        scenes.kill_program(node, uid)
        holds_for("nobody restarts it", lambda: not scenes.runs(node, uid), 1)
        node.api_server.start()
        wait_for("with the API server it is restarted", lambda: scenes.runs(node, uid))


def test_k14_a_pod_whose_host_port_is_taken_is_rejected_for_good(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start_without_daemon(node)
        port = node.free_port()
        ports = [{"containerPort": port, "hostPort": port}]
        copy = static("a", "aaaa-1")
        copy["spec"]["containers"][0]["ports"] = ports
        place(node, "a.json", copy)
        wait_for("the static pod runs", lambda: has_container(node, "aaaa-1"))
        scenes.create_pod(node, "web", scenes.blocking(port))
        rejected = wait_for("the other is rejected", lambda: _failed(node, "web"))
        assert rejected["status"]["reason"] == "NodePorts"


@pytest.mark.parametrize(
    "more",
    [
        {"serviceAccountName": "default"},
        {"imagePullSecrets": [{"name": "pull"}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "keys"}}]},
        {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]},
    ],
)
def test_k7_a_static_pod_that_refers_to_an_object_is_refused(
    processes: Processes, more: Object
) -> None:
    with Node(processes) as node:
        node.boot(daemon=False)
        place(node, "a.json", static("a", "aaaa-1", **more))
        wait_for("it is refused", lambda: "static pods may not reference" in node.log("kubelet"))
        assert not has_container(node, "aaaa-1")


def test_k15_a_host_path_of_type_directory_must_exist(processes: Processes) -> None:
    with Node(processes) as node:
        node.boot(daemon=False)
        path = node.layout.root / "files"
        volume = {"name": "v", "hostPath": {"path": str(path), "type": "Directory"}}
        pod = static("a", "aaaa-1", volumes=[volume])
        pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        place(node, "a.json", pod)
        wait_for("it waits", lambda: "is not a directory" in node.log("kubelet"))
        path.mkdir()
        wait_for("it runs", lambda: has_container(node, "aaaa-1"))


def test_k19_a_power_cut_leaves_config_maps_and_takes_secrets(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start_without_daemon(node)
        uid = scenes.create_pod(node, "web", scenes.exclusive(node.free_port()))["metadata"]["uid"]
        wait_for("it runs", lambda: scenes.runs(node, uid))
        volumes = node.layout.kubelet / "pods" / uid / "volumes"
        secret = volumes / "kubernetes.io~secret" / "keys"
        site = volumes / "kubernetes.io~configmap" / "site"
        assert (secret / "key").read_bytes() == scenes.KEY
        assert (secret / "..data").readlink().name.startswith("..")
        boot_id = node.layout.boot_id.read_text()
        node.power_cut()
        assert not secret.exists()
        assert (site / "index.html").read_text() == scenes.SITE
        assert not scenes.runs(node, uid)
        node.boot(daemon=False)
        assert node.layout.boot_id.read_text() != boot_id
        wait_for("it runs again", lambda: scenes.runs(node, uid))


def test_a_daemon_sets_pod_is_replaced_once_it_has_gone(processes: Processes) -> None:
    with Node(processes) as node:
        scenes.start_without_daemon(node)
        scenes.create_daemon_set(node, "web", scenes.exclusive(node.free_port()))
        (first,) = wait_for("a pod is ready", lambda: workloads.ready_pods(node, "web"))
        node.api.delete(f"{workloads.PODS}/{first['metadata']['name']}")
        wait_for("another is ready", lambda: _is_replaced(node, first))


def _failed(node: Node, name: str) -> Object | None:
    found = scenes.find_pod(node, name)
    return found if found is not None and found.get("status", {}).get("phase") == "Failed" else None


def _is_replaced(node: Node, first: Object) -> bool:
    ready = workloads.ready_pods(node, "web")
    return bool(ready) and ready[0]["metadata"]["uid"] != first["metadata"]["uid"]
