"""A node of its own control plane whose daemon sees the API server and the kubelet through gates.

The kubelet itself speaks to the API server directly: what the daemon is told is not what the
kubelet is told, and nobody but the daemon could stop a pod.
"""

from __future__ import annotations

import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.node import cluster, daemon, objects, selfhosted, workloads
from tests.e2e.node.api import client_context
from tests.e2e.node.cluster import Cluster
from tests.e2e.node.faulty_api import Gate
from tests.e2e.node.machine import Machine
from tests.e2e.node.waiting import wait_for

KUBELET_CONFIG = "/etc/kubernetes/kubelet.conf"
DAEMON_CONFIG = "/etc/kubernetes/checkpointd.conf"
API_GATE, KUBELET_GATE, HEALTHZ_GATE = 7443, 11250, 11248
KUBELET_PORT, HEALTHZ_PORT = 10250, 10248
TIMES = {
    "answers-apart": '"1s"',
    "silent-for": '"2s"',
    "unlisted-for": '"2s"',
    "proven-after": '"1s"',
    "hand-back-ready": '"1s"',
    "min-dwell": '"0s"',
    "stop-quiet": '"1s"',
}
"""What the daemon waits for, shorter than usual: so it would start and stop sooner, too."""


@dataclass(frozen=True)
class Gated:
    """The node, its daemon, its gates, and the pods of its two DaemonSets by name."""

    machine: Machine
    cluster: Cluster
    daemon: daemon.Daemon
    api_gate: Gate
    kubelet_gate: Gate
    healthz_gate: Gate
    pods: Mapping[str, object]

    def uid(self, name: str) -> str:
        """Return the UID of the pod of a DaemonSet."""
        return objects.text(self.pods[name], "metadata", "uid")

    def cut_kubelet_off(self) -> None:
        """Restart the kubelet with an API server's address where nobody listens."""
        self._point_kubelet_at("1")

    def connect_kubelet(self) -> None:
        """Restart the kubelet with the API server's address."""
        self._point_kubelet_at(str(cluster.API_PORT))

    def _point_kubelet_at(self, port: str) -> None:
        original = self.machine.path(DAEMON_CONFIG).read_text()
        text = original.replace(f":{API_GATE}", f":{port}")
        self.machine.write(KUBELET_CONFIG, text, 0o600)
        self.machine.sh("systemctl restart kubelet")


@contextmanager
def make_gated(
    machine: Machine, directory: Path, times: Mapping[str, str] | None = None
) -> Generator[Gated]:
    """Make the node of a machine that has just booted; return once its two pods are stored.

    The copy of `agent` is exclusive, that of `shared` shareable.

    The kubelet's socket of pod resources is off, so that its ports alone give its list.
    """
    made = selfhosted.make_control_plane(machine, directory)
    made.install_kubelet(machine)
    unit = "/etc/systemd/system/kubelet.service"
    flag = "--feature-gates=KubeletPodResources=false"
    machine.sh(f"sed -i 's/^ExecStart=.*/& {flag}/' {unit}")
    machine.sh("systemctl daemon-reload && systemctl restart kubelet")
    made.wait_for_node(machine)
    config = machine.path(KUBELET_CONFIG).read_text()
    machine.write(DAEMON_CONFIG, config.replace(f":{cluster.API_PORT}", f":{API_GATE}"), 0o600)
    shared = {**workloads.agent_pod_spec(8080), "hostNetwork": False}
    agent = workloads.start_agent(made, 8081)
    made.api.create(workloads.DAEMON_SETS, workloads.daemon_set("shared", shared))
    gates = make_gates(made, machine)
    checkpointd = daemon.Daemon(machine)
    try:
        checkpointd.install(
            {
                "times": {**TIMES, **(times or {})},
                "kubelet": {
                    "kubeconfig": f'"{DAEMON_CONFIG}"',
                    "port": str(KUBELET_GATE),
                    "healthz-port": str(HEALTHZ_GATE),
                    "ca-file": f'"{cluster.PKI}/ca.crt"',
                },
            }
        )
        found = wait_for("shared is Ready", lambda: workloads.ready_pod(made, "shared"), 90)
        pods = {"agent": agent, "shared": found}
        for name, pod in pods.items():
            checkpointd.wait_until_stored(f"ds.{name}", pod, 60)
        yield Gated(machine, made, checkpointd, *gates, pods)
    finally:
        for gate in gates:
            gate.close()


def make_gates(made: Cluster, machine: Machine) -> tuple[Gate, Gate, Gate]:
    """Open the gates before the API server, the kubelet's port, and its health port."""
    server = server_context(made, machine.name)
    node = made.authority.issue("gate-node", f"/O=system:nodes/CN=system:node:{machine.name}")
    to_kubelet = client_context(made.authority, made.admin)
    to_kubelet.check_hostname = False
    to_kubelet.verify_mode = ssl.CERT_NONE  # its certificate is signed by itself
    to_api = client_context(made.authority, node)
    here = "127.0.0.1"
    return (
        Gate(machine, API_GATE, server, (here, cluster.API_PORT), to_api),
        Gate(machine, KUBELET_GATE, server, (here, KUBELET_PORT), to_kubelet),
        Gate(machine, HEALTHZ_GATE, None, (here, HEALTHZ_PORT), None),
    )


def server_context(made: Cluster, name: str) -> ssl.SSLContext:
    """Return a TLS context with a certificate for loopback and a node's name."""
    own = made.authority.issue("gate", "/CN=gate", ("IP:127.0.0.1", f"DNS:{name}"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(own.certificate), str(own.key))
    return context
