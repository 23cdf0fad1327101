"""The node of the contract tests: one embedded node per test process, or the real one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.contract import subject as subjects
from tests.contract.endpoint import Endpoint
from tests.contract.subject import NAMESPACE, Subject
from tests.fakes.api_objects import Object
from tests.fakes.machine.processes import Forking
from tests.fakes.node import Node
from tests.fakes.waiting import wait_for

CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@pytest.fixture(scope="session")
def node() -> Iterator[Subject]:
    """Boot an embedded node, or take the real one; all tests of a process use it in turn."""
    if subjects.ADMIN:
        yield subjects.real_subject()
        return
    with Forking() as processes, Node(processes) as embedded:
        # Without the shipped roles, as the real one.
        embedded.api_server.granted.discard("daemonsets")
        embedded.api_server.start()
        embedded.read_only_port = embedded.free_port()
        embedded.boot(daemon=False)
        yield subjects.embedded_subject(embedded)


@pytest.fixture
def subject(node: Subject) -> Iterator[Subject]:
    """Give a test the node, and remove what it made there."""
    fresh = node.fresh()
    before = {sandbox.id for sandbox in fresh.sandboxes()}
    try:
        yield fresh
    finally:
        fresh.clean()
        if not fresh.is_real:
            # Its pods are processes of ours. A real node ends them while the next test runs.
            wait_for("its pods have ended", lambda: before >= {s.id for s in fresh.sandboxes()})


@pytest.fixture(scope="session")
def shared(node: Subject) -> Iterator[Subject]:
    """Give the fixtures that make something for many tests the node."""
    fresh = node.fresh()
    try:
        yield fresh
    finally:
        fresh.clean()


@pytest.fixture(scope="session")
def app(shared: Subject) -> Object:
    """Run a pod with an init container, two containers, configMaps, a secret; as the API has it.

    Who only looks uses it.
    """
    mounts = [{"name": n, "mountPath": f"/{n}"} for n in ("files", "keys", "none")]
    pod = shared.pod(
        shared.container(name="app", volumeMounts=mounts),
        shared.container(name="other"),
        initContainers=[shared.container("finishes", "init")],
        volumes=[
            {"name": "files", "configMap": {"name": "contract-files"}},
            {"name": "keys", "secret": {"secretName": "contract-keys", "defaultMode": 0o400}},
            {"name": "none", "configMap": {"name": "no-such", "optional": True}},
            {"name": "unused", "configMap": {"name": "contract-files"}},
        ],
    )
    shared.make(CONFIG_MAPS, {"metadata": {"name": "contract-files"}, "data": {"a": "b\n"}})
    shared.make(SECRETS, {"metadata": {"name": "contract-keys"}, "data": {"key": "AAEC"}})
    return shared.run(pod)


@pytest.fixture(scope="session")
def static(shared: Subject) -> Object:
    """Run a static pod; as it was placed."""
    pod = shared.pod()
    pod["metadata"]["uid"] = str(uuid.uuid4())
    shared.place("contract-static.json", pod)
    shared.wait_until_ready(f"{pod['metadata']['name']}-{shared.node_name}")
    return pod


@pytest.fixture
def endpoint(subject: Subject) -> Iterator[Endpoint]:
    name = f"contract-{uuid.uuid4().hex[:8]}"
    # Tainted at once when its kubelet does not report; nobody else is to be put there meanwhile.
    spec = {"unschedulable": True}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
    subject.make("/api/v1/nodes", node)
    made = Endpoint(subject, name)
    yield made
    for client in made.clients:
        client.close()
        client.drop_connections()
