"""Small web servers for scenarios: marked DaemonSets, and what the disk says of their slots."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial

from tests.e2e.node import api, daemon, measure, objects, workloads
from tests.e2e.node.standalone import Standalone
from tests.e2e.node.waiting import NotYetError, wait_for


def spec(name: str, port: int, *, host_network: bool) -> dict[str, object]:
    """Return the spec of a small web server's pod, whose page is a configMap of that name.

    With the host's network its copy is exclusive, else shareable. It ends at once when told to.
    """
    command = f"trap 'exit 0' TERM; httpd -f -p {port} -h /www & wait"
    return {
        "hostNetwork": host_network,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "web",
                "image": "registry.local/busybox:1",
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-c", command],
                "volumeMounts": [{"name": "page", "mountPath": "/www"}],
            }
        ],
        "volumes": [{"name": "page", "configMap": {"name": name}}],
    }


def create(node: Standalone, name: str, port: int, *, host_network: bool = False) -> None:
    """Create a marked DaemonSet of one web server on the node, and its page."""
    page = workloads.config_map(name, {"page": f"{name}\n"})
    node.cluster.api.create(f"{workloads.NAMESPACE}/configmaps", page)
    made = workloads.daemon_set(name, spec(name, port, host_network=host_network))
    node.cluster.api.create(workloads.DAEMON_SETS, made)


def delete(node: Standalone, name: str) -> None:
    """Delete the DaemonSet, and with it its pod, and its page."""
    node.cluster.api.delete(f"{workloads.DAEMON_SETS}/{name}")
    node.cluster.api.delete(f"{workloads.NAMESPACE}/configmaps/{name}")


def delete_pods(node: Standalone, names: Iterable[str]) -> None:
    """Delete the pods, with nobody there to make others, and let the daemon see it."""
    node.stop_controllers()
    remove_pods(node, names)
    for name in names:
        wait_for(f"{name} is a tombstone", partial(is_tombstone, node, name), 30)


def remove_pods(node: Standalone, names: Iterable[str]) -> None:
    """Delete the pods at once, whether anybody sees it or not."""
    for name in names:
        for pod in workloads.pods_of(node.cluster, name):
            pod_name = objects.text(pod, "metadata", "name")
            node.cluster.api.delete(f"{api.PODS}/{pod_name}", grace_seconds=0)


# ---- what the disk says --------------------------------------------------------------------------
def state(node: Standalone, name: str) -> object:
    """Return what state.json of a DaemonSet's slot holds; NotYetError where there is none."""
    path = node.machine.path(f"{daemon.CHECKPOINTS}/kube-system/ds.{name}/state.json")
    try:
        return objects.find(json.loads(path.read_text()), "body")
    except FileNotFoundError as error:
        raise NotYetError(f"{name}: no state.json") from error


def is_tombstone(node: Standalone, name: str) -> bool:
    """Say whether the daemon knows that a pod is not wanted any more."""
    return objects.find(state(node, name), "phase") == "tombstone"


def generations(node: Standalone, name: str) -> list[object]:
    """Return the hashes of the generations of a slot, which must be whole on the disk."""
    hashes = [
        objects.find(each, "hash") for each in objects.items(state(node, name), "generations")
    ]
    for each in hashes:
        for file in ("manifest.json", "meta.json"):
            top = f"{daemon.CHECKPOINTS}/kube-system/ds.{name}/generations/{each}"
            assert node.machine.path(f"{top}/{file}").is_file()
    return hashes


def is_stored(node: Standalone, name: str) -> bool:
    """Say whether a slot's only pod is the real one, with a checkpoint."""
    now = state(node, name)
    if objects.find(now, "phase") != "stored" or not objects.items(now, "generations"):
        raise NotYetError(str(objects.find(now, "phase")))
    uid = objects.text(now, "parent", "uid")
    return bool(measure.processes_of(node.machine, uid, "httpd")) and not manifests(node, name)


def is_serving(node: Standalone, name: str) -> bool:
    """Say whether a slot's copy runs, and alone."""
    now = state(node, name)
    if objects.find(now, "phase") != "serving":
        raise NotYetError(str(objects.find(now, "phase")))
    return runs(node, name) and manifests(node, name) == [objects.text(now, "activation", "file")]


def runs(node: Standalone, name: str) -> bool:
    """Say whether a slot's copy has a process, whatever the daemon thinks of it."""
    uid = objects.text(state(node, name), "activation", "uid")
    return len(measure.processes_of(node.machine, uid, "httpd")) == 1


def is_removed(node: Standalone, name: str) -> bool:
    """Say whether nothing of a slot is left."""
    return not node.daemon.stored(f"ds.{name}") and not manifests(node, name)


def manifests(node: Standalone, name: str) -> list[str]:
    """Return the copies' manifests of one DaemonSet's pods."""
    prefix = f"{daemon.COPY_PREFIX}kube-system.{name}-"
    return [file for file in node.daemon.copies() if file.startswith(prefix)]
