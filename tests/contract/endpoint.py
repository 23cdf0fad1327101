"""The API server of a node, and a Node there whose pods nobody but the test changes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from checkpointd import json_fields
from checkpointd.clients.kube import KubeClient, Timeouts
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.json_fields import Json
from tests.contract.subject import PODS, Subject
from tests.fakes.api_access import bound_pod
from tests.fakes.api_objects import Object


@dataclass
class Endpoint:
    """Hold the API server of a node, a Node without a kubelet there, and clients."""

    subject: Subject
    node_name: str
    clients: list[KubeClient] = field(default_factory=list[KubeClient])

    def client(self, page_size: int = 100, *, of_node: bool = False) -> KubeClient:
        """Return the client that is tested: an administrator's, or the node's own."""
        path = self.subject.kubeconfig if of_node else self.subject.admin
        client = KubeClient(Kubeconfig(path).read, Timeouts(), page_size)
        self.clients.append(client)
        return client

    def create_pod(self, **metadata: object) -> str:
        """Create a bound pod and return its name."""
        pod = bound_pod(f"contract-{uuid.uuid4().hex[:8]}", node_name=self.node_name, **metadata)
        self.subject.make(PODS, {"apiVersion": "v1", "kind": "Pod", **pod})
        return str(pod["metadata"]["name"])


def name_of(raw: Json) -> str:
    return json_fields.text(raw, "metadata", "name")


def status_of(subject: Subject, path: str, code: int) -> Object:
    """Ask as an administrator for what is refused; return the Status."""
    answer = subject.api.ask("GET", path)
    assert (answer.status, answer.content_type) == (code, "application/json")
    status = answer.json
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
    return status
