"""Say where an embedded node keeps its things, below one directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Name the paths of one node."""

    root: Path

    @property
    def proc(self) -> Path:
        """The proc directory."""
        return self.root / "proc"

    @property
    def cgroup(self) -> Path:
        """The cgroup tree."""
        return self.root / "cgroup"

    @property
    def manifests(self) -> Path:
        """The static-pod directory."""
        return self.root / "manifests"

    @property
    def kubelet(self) -> Path:
        """The kubelet's root directory."""
        return self.root / "kubelet"

    @property
    def volatile(self) -> Path:
        """What a power cut empties: sockets, status, the freeze file."""
        return self.root / "run"

    @property
    def state(self) -> Path:
        """The daemon's store."""
        return self.root / "state"

    @property
    def pki(self) -> Path:
        """The cluster's certificates."""
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.root / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The node's kubeconfig."""
        return self.root / "kubeconfig"

    @property
    def boot_id(self) -> Path:
        """The file with the boot id."""
        return self.root / "boot_id"

    @property
    def api_state(self) -> Path:
        """The API server's etcd."""
        return self.root / "etcd" / "state.json"

    @property
    def config(self) -> Path:
        """The daemon's configuration."""
        return self.root / "checkpointd.toml"

    @property
    def cri_socket(self) -> Path:
        """The container runtime's socket."""
        return self.volatile / "containerd.sock"

    @property
    def containerd_control(self) -> Path:
        """Where the kubelet asks the runtime for what it wants started."""
        return self.volatile / "containerd.control"

    @property
    def kubelet_control(self) -> Path:
        """Where tests ask the kubelet for faults."""
        return self.volatile / "kubelet.control"

    @property
    def manager(self) -> Path:
        """PID 1's socket."""
        return self.volatile / "private"

    @property
    def notify(self) -> Path:
        """systemd's notification socket."""
        return self.volatile / "notify"

    def make(self) -> None:
        """Make the directories."""
        for path in (
            self.manifests,
            self.kubelet,
            self.volatile,
            self.state / "overrides",
            self.pki,
            self.logs,
            self.api_state.parent,
        ):
            path.mkdir(parents=True, exist_ok=True)
