"""What checkpointd relies on in an API server; the same suite for the fake and for a real one.

A real one is named by CHECKPOINTD_API_KUBECONFIG (an admin's kubeconfig with embedded data) and
CHECKPOINTD_API_NODE (a Node without a kubelet); then only what a client can bring about is tested.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPSConnection
from pathlib import Path

import pytest

from checkpointd import json_fields
from checkpointd.clients import access_review, kube_connection
from checkpointd.clients.kube import KubeClient, Timeouts
from checkpointd.clients.kube_answers import Missing
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.errors import RejectedError
from checkpointd.json_fields import Json
from checkpointd.model.permissions import ALL
from tests.fakes import pki
from tests.fakes.api_access import NODE, Handed, bound_pod, hand
from tests.fakes.api_objects import Object, ObjectStore
from tests.fakes.api_server import ApiServer

QUIET = 10.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Endpoint:
    """Hold an API server and an admin's way to change it."""

    kubeconfig: Path
    node_name: str
    context: ssl.SSLContext
    server: str
    fake: ApiServer | None
    clients: list[KubeClient] = field(default_factory=list[KubeClient])

    def client(self, page_size: int = 100) -> KubeClient:
        """Return the client that is tested."""
        client = KubeClient(Kubeconfig(self.kubeconfig).read, Timeouts(), page_size)
        self.clients.append(client)
        return client

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.drop_connections()

    def change(self, method: str, path: str, body: Object | None = None) -> Object:
        """Do as a controller or a kubelet does."""
        connection = HTTPSConnection(self.server, context=self.context, timeout=10)
        headers = {"Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status < 300, content[:300]
        found: Object = json.loads(content)
        return found

    def create_pod(self, **metadata: object) -> str:
        """Create a bound pod and return its name."""
        name = f"contract-{uuid.uuid4().hex[:8]}"
        pod = bound_pod(name, node_name=self.node_name, **metadata)
        pod.update({"apiVersion": "v1", "kind": "Pod"})
        self.change("POST", "/api/v1/namespaces/kube-system/pods", pod)
        return name

    def delete_pod(self, name: str, grace: int) -> None:
        """Delete a pod; grace 0 is what a kubelet says once it has ended."""
        body = {"gracePeriodSeconds": grace}
        self.change("DELETE", f"/api/v1/namespaces/kube-system/pods/{name}", body)


def name_of(raw: Json) -> str:
    return json_fields.text(raw, "metadata", "name")


def endpoint_of(path: Path, node_name: str, fake: ApiServer | None) -> Endpoint:
    credentials = Kubeconfig(path).read()
    context = kube_connection.make_context(credentials)
    return Endpoint(path, node_name, context, credentials.server, fake)


@pytest.fixture(params=["fake", "real"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    if request.param == "real":
        named = os.environ.get("CHECKPOINTD_API_KUBECONFIG", "")
        if not named:
            pytest.skip("no real API server is named by CHECKPOINTD_API_KUBECONFIG")
        with endpoint_of(Path(named), os.environ["CHECKPOINTD_API_NODE"], None) as real:
            yield real
        return
    with ApiServer(pki.shared()) as server:
        path = tmp_path / "admin.conf"
        path.write_bytes(server.kubeconfig(server.pki.admin))
        with endpoint_of(path, NODE, server) as fake:
            yield fake


def test_a_node_that_is_there_has_a_uid_and_allocatable(endpoint: Endpoint) -> None:
    node = endpoint.client().get_node(endpoint.node_name)
    assert not isinstance(node, Missing)
    assert name_of(node) == endpoint.node_name


def test_a_node_that_is_not_there_is_missing_by_name(endpoint: Endpoint) -> None:
    assert endpoint.client().get_node("no-such-node") == Missing("nodes", "no-such-node")


def test_the_service_of_the_api_server_anchors_the_world(endpoint: Endpoint) -> None:
    found = endpoint.client().get_service("default", "kubernetes")
    assert not isinstance(found, Missing)


def test_every_object_that_is_asked_for_can_be_missing(endpoint: Endpoint) -> None:
    client = endpoint.client()
    assert isinstance(client.get_namespace("no-such"), Missing)
    assert isinstance(client.get_service("default", "no-such"), Missing)
    assert isinstance(client.get_daemon_set("kube-system", "no-such"), Missing)
    assert isinstance(client.get_lease("kube-node-lease", "no-such"), Missing)


def test_a_path_that_no_server_knows_is_rejected_and_nothing_is_missing(endpoint: Endpoint) -> None:
    with pytest.raises(RejectedError) as caught:
        endpoint.client().get("/apis/no.such.group/v1/things/a")
    assert caught.value.status == 404


def test_b1_a_list_in_pages_is_read_to_its_end(endpoint: Endpoint) -> None:
    names = {endpoint.create_pod() for _ in range(5)}
    listed = endpoint.client(page_size=2).list_pods(endpoint.node_name, name_of)
    assert names <= set(listed.items)
    assert listed.resource_version
    for name in names:
        endpoint.delete_pod(name, 0)


def test_another_nodes_pods_are_not_listed(endpoint: Endpoint) -> None:
    name = endpoint.create_pod()
    assert name not in endpoint.client().list_pods("no-such-node", name_of).items
    endpoint.delete_pod(name, 0)


def test_a_watch_tells_of_a_pods_life_from_the_lists_version_on(endpoint: Endpoint) -> None:
    client = endpoint.client()
    listed = client.list_pods(endpoint.node_name, name_of)
    name = endpoint.create_pod()
    with client.watch_pods(endpoint.node_name, listed.resource_version, lambda: QUIET) as events:
        mine = (event for event in events if name_of(event.object) == name)
        assert next(mine).type == "ADDED"
        endpoint.delete_pod(name, 30)
        terminating = next(event for event in mine if "deletionTimestamp" in str(event.object))
        assert terminating.type == "MODIFIED"
        endpoint.delete_pod(name, 0)
        assert next(event for event in mine if event.type != "MODIFIED").type == "DELETED"


def test_a_watch_from_a_version_that_is_too_old_is_told_so(endpoint: Endpoint) -> None:
    if endpoint.fake is not None:
        endpoint.fake.store.forget_history()
    client = endpoint.client()
    # A real server may also answer 410 at once, as the next test has it.
    with client.watch_pods(endpoint.node_name, "1", lambda: QUIET) as events:
        event = next(events)
    assert event.type == "ERROR"
    assert event.object["code"] == 410


def test_h11_a_410_can_be_the_answer_itself(endpoint: Endpoint) -> None:
    if endpoint.fake is None:
        pytest.skip("a real server chooses by itself")
    endpoint.fake.too_old_is_http = True
    endpoint.fake.store.forget_history()
    with pytest.raises(RejectedError) as caught:
        with endpoint.client().watch_pods(endpoint.node_name, "1", lambda: QUIET):
            pass
    assert caught.value.status == 410


def test_bookmarks_come_without_changes(endpoint: Endpoint) -> None:
    if endpoint.fake is None:
        pytest.skip("a real server takes a minute")
    endpoint.fake.bookmark_every = 0.05
    client = endpoint.client()
    listed = client.list_pods(endpoint.node_name, name_of)
    with client.watch_pods(endpoint.node_name, listed.resource_version, lambda: QUIET) as events:
        assert next(events).type == "BOOKMARK"


def test_a_nodes_own_certificate_may_not_read_daemon_sets_or_other_nodes(tmp_path: Path) -> None:
    with ApiServer(pki.shared()) as server, hand(server, tmp_path) as handed:
        client = handed.client()
        with pytest.raises(RejectedError, match="HTTP 403"):
            client.get_daemon_set("kube-system", "a")
        with pytest.raises(RejectedError, match="HTTP 403"):
            client.get_node("node-2")


def test_the_fake_as_a_process_leaves_its_objects_to_the_next_one(tmp_path: Path) -> None:
    certificates = pki.shared()
    certificates.write(tmp_path)
    uids: list[str] = []
    port = 0
    for _ in range(2):
        command = [sys.executable, "-m", "tests.fakes.api_server", "--port", str(port)]
        command += ["--state", str(tmp_path / "state.json"), "--pki", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["serving"]
            port = int(url.rpartition(":")[2])
            kubeconfig = pki.kubeconfig(url, certificates.ca.certificate, certificates.node)
            (tmp_path / "kubelet.conf").write_bytes(kubeconfig)
            with Handed(tmp_path / "kubelet.conf") as handed:
                node = handed.client().get_node(NODE)
            assert not isinstance(node, Missing)
            uids.append(json_fields.text(node, "metadata", "uid"))
            process.terminate()
        assert process.returncode == 0
    assert uids[0] == uids[1]


def test_the_fake_forgets_its_history_when_it_starts_anew(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    store = ObjectStore(state)
    store.make_world(NODE)
    made = store.create("pods", bound_pod("a"))
    again = ObjectStore(state)
    assert again.get("pods", "kube-system", "a") == made
    assert again.version == store.version
    assert again.changes_after(again.version) == ()
    assert again.changes_after(again.version - 1) is None


def test_an_admin_may_do_all_that_the_daemon_asks_for(endpoint: Endpoint) -> None:
    client = endpoint.client()
    asked = {str(one): access_review.is_allowed(client, one, endpoint.node_name) for one in ALL}
    assert asked == dict.fromkeys(asked, True)


def test_the_server_says_for_whom_it_takes_us_or_does_not_tell(endpoint: Endpoint) -> None:
    user = access_review.read_user(endpoint.client())
    assert user == "admin" or endpoint.fake is None


def test_every_answer_has_the_servers_time(endpoint: Endpoint) -> None:
    client = endpoint.client()
    client.get_node(endpoint.node_name)
    assert parsedate_to_datetime(client.server_date).year >= 2024
