"""Prove that a copy was never started, not even for a moment, by what the kubelet cannot hide."""

from __future__ import annotations

from tests.e2e.node import measure, objects
from tests.e2e.node.cluster import MANIFESTS
from tests.e2e.node.machine import Machine

POD_LOGS = "/var/log/pods"
"""The kubelet makes <namespace>_<name>_<uid> there before it asks for a sandbox (kuberuntime)."""


class NoCopies:
    """Watches a machine on which no static pod at all is meant to run, until closed."""

    def __init__(self, machine: Machine) -> None:
        """Watch from now on; the machine's kubelet must have started once."""
        self.machine = machine
        self._manifests = measure.DirectoryWatch(machine, MANIFESTS)
        self._pods = measure.DirectoryWatch(machine, POD_LOGS)

    def has_seen(self, pod: object) -> bool:
        """Say whether the kubelet prepared a sandbox for a pod of the API while we watched."""
        name, uid = objects.text(pod, "metadata", "name"), objects.text(pod, "metadata", "uid")
        return any(made.name.endswith(f"_{name}_{uid}") for made in self._pods.changes)

    def check(self) -> None:
        """Fail if a manifest came or went, or if a static pod had or has a sandbox."""
        assert self._manifests.changes == []
        # The kubelet lets the names of static pods, and of no others, end with the node's.
        suffix = f"-{self.machine.name}"
        made = [change.name for change in self._pods.changes if f"{suffix}_" in change.name]
        assert made == []
        query = f"""'labels."io.kubernetes.pod.name"~="{suffix}$"'"""
        assert self.machine.sh(f"ctr -n k8s.io containers list -q {query}") == ""

    def close(self) -> None:
        """Stop watching."""
        self._manifests.close()
        self._pods.close()
