"""One machine with its own control plane as services: the API server comes and goes at a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.node import cluster, daemon, selfhosted, workloads
from tests.e2e.node.machine import Machine

CONTROLLERS = "kube-controller-manager kube-scheduler"
TIMES = {
    "answers-apart": '"100ms"',
    "tombstone-hold": '"0s"',
    "boot-hold": '"0s"',
    "hand-back-ready": '"0s"',
    "retire-daemon-set": '"0s"',
    "retire-store": '"1s"',
    "min-dwell": '"0s"',
    "proven-after": '"1s"',
    "stop-quiet": '"1s"',
}
"""What the daemon waits for by the clock, as short as it lets itself be told."""


@dataclass(frozen=True)
class Standalone:
    """A machine, its cluster and its daemon."""

    machine: Machine
    cluster: cluster.Cluster
    daemon: daemon.Daemon

    def stop_controllers(self) -> None:
        """Have nobody make, bind or collect pods: what is deleted now has no successor."""
        self.machine.sh(f"systemctl stop {CONTROLLERS}")

    def start_controllers(self) -> None:
        """Have controllers and scheduler again."""
        self.machine.sh(f"systemctl start {CONTROLLERS}")

    def stop_api(self) -> None:
        """Have no API server."""
        self.machine.sh("systemctl stop kube-apiserver")

    def start_api(self) -> None:
        """Have the API server again; it needs a second or two until it answers."""
        self.machine.sh("systemctl start kube-apiserver")


def make_standalone(
    machine: Machine, directory: Path, times: Mapping[str, str] | None = None
) -> Standalone:
    """Make the node of a machine that has just booted; the daemon runs, with short times."""
    made = selfhosted.make_control_plane(machine, directory)
    made.install_kubelet(machine)
    made.wait_for_node(machine)
    checkpointd = daemon.Daemon(machine)
    checkpointd.install({"times": {**TIMES, **(times or {})}})
    return Standalone(machine, made, checkpointd)


def set_times(node: Standalone, times: Mapping[str, str]) -> None:
    """Change some times of a daemon that runs."""
    lines = "".join(f"{key} = {value}\n" for key, value in times.items())
    node.machine.write(f"{daemon.SETTINGS}/times.toml", f"[times]\n{lines}")
    node.machine.sh("systemctl reload checkpointd")


def web_spec(name: str, port: int, *, host_network: bool) -> dict[str, object]:
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


def create_web(node: Standalone, name: str, port: int, *, host_network: bool = False) -> None:
    """Create a marked DaemonSet of one web server on the node, and its page."""
    page = workloads.config_map(name, {"page": f"{name}\n"})
    node.cluster.api.create(f"{workloads.NAMESPACE}/configmaps", page)
    spec = web_spec(name, port, host_network=host_network)
    node.cluster.api.create(workloads.DAEMON_SETS, workloads.daemon_set(name, spec))


def delete_web(node: Standalone, name: str) -> None:
    """Delete the DaemonSet, and with it its pod, and its page."""
    node.cluster.api.delete(f"{workloads.DAEMON_SETS}/{name}")
    node.cluster.api.delete(f"{workloads.NAMESPACE}/configmaps/{name}")
