"""Hand a source the way to a fake API server, with a kubeconfig on disk as on a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from checkpointd.clients.kube import KubeClient, Timeouts
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.model.selection import Selection
from checkpointd.observe.api.access import ApiAccess
from tests.fakes.api_objects import Object
from tests.fakes.api_server import ApiServer

NODE = "node-1"
SHORT = Timeouts(connect=1.0, read=1.0)


@dataclass
class Handed:
    """Hold what a source was handed; a test may change it while the source runs."""

    kubeconfig: Path
    node_name: str = NODE
    selection: Selection = field(default_factory=Selection)
    listeners: frozenset[str] | None = frozenset()
    looks: int = 0
    clients: list[KubeClient] = field(default_factory=list[KubeClient])

    def access(self, timeouts: Timeouts = SHORT) -> ApiAccess:
        """Return it as a source takes it."""
        return ApiAccess(
            credentials=Kubeconfig(self.kubeconfig).read,
            find_node_name=lambda: self.node_name,
            selection=lambda: self.selection,
            find_listeners=self._find_listeners,
            timeouts=timeouts,
        )

    def client(self, timeouts: Timeouts = SHORT, page_size: int = 100) -> KubeClient:
        """Return a client alone, of the kubeconfig as it is named now."""
        client = KubeClient(Kubeconfig(self.kubeconfig).read, timeouts, page_size)
        self.clients.append(client)
        return client

    def __enter__(self) -> Handed:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.drop_connections()

    def _find_listeners(self, _port: int) -> frozenset[str] | None:
        self.looks += 1
        return self.listeners


def hand(server: ApiServer, directory: Path) -> Handed:
    """Write the node's kubeconfig and hand it over."""
    path = directory / "kubelet.conf"
    path.write_bytes(server.kubeconfig())
    return Handed(path)


def bound_pod(name: str, *, node_name: str = NODE, **metadata: object) -> Object:
    """Return a pod of kube-system bound to a node, as a client would create it."""
    spec = {
        "nodeName": node_name,
        "containers": [{"name": "main", "image": "registry.example/a:1"}],
    }
    return {
        "metadata": {"name": name, "namespace": "kube-system", **metadata},
        "spec": spec,
        "status": {"phase": "Running"},
    }
