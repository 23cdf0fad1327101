"""Ask the kubelet's pod-resources socket which pods it has: root only, no API server needed.

Its List names all pods that the kubelet manages, without UID, and says nothing of whether they run
(kubelet facts K-16).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from checkpointd.clients import unix_grpc
from checkpointd.clients.messages import Field, Messages, Table
from checkpointd.errors import RejectedError
from checkpointd.model.observation import PodName

TIMEOUT = 5.0
"""Seconds for one List."""

# kubernetes/kubernetes, staging/src/k8s.io/kubelet/pkg/apis/podresources/{v1,v1alpha1}/api.proto:
# the packages are named "v1" and "v1alpha1" and agree in all of this.
TABLE: Table = {
    "ListPodResourcesRequest": (),
    "PodResources": (Field("name", 1), Field("namespace", 2)),
    "ListPodResourcesResponse": (Field("pod_resources", 1, "PodResources", repeated=True),),
}
PACKAGES = ("v1", "v1alpha1")


class _Pod(Protocol):
    name: str
    namespace: str


class _Answer(Protocol):
    pod_resources: Sequence[_Pod]


def socket_path(root_dir: str) -> str:
    """Return the socket below the kubelet's root directory (pkg/kubelet/apis/podresources)."""
    return str(Path(root_dir) / "pod-resources" / "kubelet.sock")


class PodResourcesClient:
    """List the kubelet's pods through the pod-resources socket."""

    def __init__(self, root_dir: str, *, timeout: float = TIMEOUT) -> None:
        self._connection = unix_grpc.UnixGrpc(socket_path(root_dir))
        self._timeout = timeout
        self._messages = [Messages(package, TABLE) for package in PACKAGES]

    def list_pods(self) -> frozenset[PodName]:
        """List (namespace, name) of every pod: v1, else v1alpha1 (kubelets before 1.20).

        Raises RefusedError, SilentError, RejectedError.
        """
        newest, oldest = self._messages
        try:
            return self._list(newest)
        except RejectedError as error:
            if error.status != unix_grpc.UNIMPLEMENTED:
                raise
            return self._list(oldest)

    def close(self) -> None:
        """Give up the connection."""
        self._connection.close()

    def _list(self, messages: Messages) -> frozenset[PodName]:
        request = messages.encode("ListPodResourcesRequest", {})
        method = f"/{messages.package}.PodResourcesLister/List"
        payload = self._connection.call(method, request, self._timeout)
        answer = cast("_Answer", messages.decode("ListPodResourcesResponse", payload))
        pods = frozenset((pod.namespace, pod.name) for pod in answer.pod_resources)
        if any(not namespace or not name for namespace, name in pods):
            raise RejectedError("pod-resources lists a pod without a name or namespace")
        return pods
