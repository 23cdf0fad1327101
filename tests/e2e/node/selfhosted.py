"""The node of the first scenarios: one machine whose only API server is the pod of a DaemonSet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.e2e.node import cluster, daemon, measure, objects, workloads
from tests.e2e.node.api import PODS
from tests.e2e.node.machine import Machine

SLOT = f"ds.{workloads.API_SERVER}"


@dataclass(frozen=True)
class SelfHosted:
    """A control plane on one node, with the daemon that has stored the API server's pod."""

    machine: Machine
    cluster: cluster.Cluster
    daemon: daemon.Daemon
    pod: object

    @property
    def uid(self) -> str:
        """The UID of the API server's pod that was stored."""
        return objects.text(self.pod, "metadata", "uid")

    @property
    def url(self) -> str:
        """The path of that pod in the API."""
        return f"{PODS}/{objects.text(self.pod, 'metadata', 'name')}"

    def probe(self) -> measure.Prober:
        """Ask the API server whether it is ready, until closed."""
        address = ("127.0.0.1", cluster.API_PORT)
        return measure.Prober(self.machine, address, "/readyz", self.cluster.admin_context)


def make_control_plane(machine: Machine, directory: Path) -> cluster.Cluster:
    """Make a cluster whose control plane is services of a machine that has just booted."""
    made = cluster.Cluster(machine, directory)
    cluster.install_base(machine)
    made.install_control_plane()
    return made


def make_self_hosted(machine: Machine, directory: Path) -> SelfHosted:
    """Make the node; return once the API server's checkpoint is stored and known to serve."""
    made = make_control_plane(machine, directory)
    made.install_kubelet(machine)
    pod = workloads.become_self_hosted(made)
    checkpointd = daemon.Daemon(machine)
    checkpointd.install()
    checkpointd.wait_until_stored(SLOT, pod, 60)
    checkpointd.wait_for_checkpoint(SLOT, "known to serve the API", daemon.serves_api, 60)
    return SelfHosted(machine, made, checkpointd, pod)
