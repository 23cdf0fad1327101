"""Be the kubelet's pod-resources socket: List of every pod that the kubelet has, without UIDs."""

from __future__ import annotations

from pathlib import Path

from checkpointd.clients import pod_resources
from checkpointd.clients.messages import Messages
from tests.fakes.grpc_server import Answer, Faults, GrpcServer

PodName = tuple[str, str]


class FakePodResources:
    """Serve ``pods`` (namespace, name), a set that may change at any time."""

    def __init__(self, root_dir: Path, packages: tuple[str, ...] = ("v1", "v1alpha1")) -> None:
        self.pods: set[PodName] = set()
        self.packages = packages
        self.faults = Faults()
        self.server = GrpcServer(Path(pod_resources.socket_path(str(root_dir))), self.faults)

    def start(self) -> None:
        """Serve."""
        services = {
            f"{package}.PodResourcesLister": {"List": self._list(package)}
            for package in self.packages
        }
        self.server.start(services)

    def stop(self) -> None:
        """Refuse connections."""
        self.server.stop()

    def __enter__(self) -> FakePodResources:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _list(self, package: str) -> Answer:
        messages = Messages(package, pod_resources.TABLE)

        def answer(_request: bytes) -> bytes:
            pods = [{"namespace": space, "name": name} for space, name in sorted(self.pods)]
            return messages.encode("ListPodResourcesResponse", {"pod_resources": pods})

        return answer
