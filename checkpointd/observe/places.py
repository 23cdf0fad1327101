"""Say where things are on this host and who told of it: settings, kubelet, record, default.

Pure. What a kubelet once had is kept in node.json and holds at boot, before one runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.observation import KubeletProcess
from checkpointd.settings import KubeletSettings

DEFAULTS = {
    "manifest_dir": "/etc/kubernetes/manifests",
    "root_dir": "/var/lib/kubelet",
    "cri_socket": "/run/containerd/containerd.sock",
    "kubeconfig": "/etc/kubernetes/kubelet.conf",
}
"""What kubeadm sets up (cmd/kubeadm/app/constants) and the kubelet's own --root-dir."""


class Origin(Enum):
    """Say who told of a place."""

    SET = "set in the configuration"
    KUBELET = "of the running kubelet"
    RECORD = "as last found"
    DEFAULT = "the default"


@dataclass(frozen=True, slots=True)
class Place:
    """Hold a path or a name and who told of it."""

    value: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.value} ({self.origin.value})"


def find(
    name: str, settings: KubeletSettings, kubelet: KubeletProcess | None, record: NodeRecord | None
) -> Place:
    """Return one of ``DEFAULTS`` as it stands."""
    set_value = str(getattr(settings, name))
    if set_value:
        return Place(set_value, Origin.SET)
    if kubelet is not None and getattr(kubelet, name):
        return Place(str(getattr(kubelet, name)), Origin.KUBELET)
    recorded = record.discovered.get(name, "") if record is not None else ""
    if recorded:
        return Place(recorded, Origin.RECORD)
    return Place(DEFAULTS[name], Origin.DEFAULT)


def find_node_name(
    set_name: str, kubelet: KubeletProcess | None, record: NodeRecord | None
) -> Place:
    """Return the node's name, "" while it is not known."""
    if set_name:
        return Place(set_name, Origin.SET)
    if kubelet is not None and kubelet.node_name:
        return Place(kubelet.node_name, Origin.KUBELET)
    if record is not None and record.node_name:
        return Place(record.node_name, Origin.RECORD)
    return Place("", Origin.DEFAULT)
