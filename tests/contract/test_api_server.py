"""What checkpointd relies on in an API server.

Objects that nobody else changes are bound to a Node of the test's own, which has no kubelet.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from checkpointd import json_fields
from checkpointd.clients import access_review
from checkpointd.clients.kube import KubeClient
from checkpointd.clients.kube_answers import Missing
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.errors import RejectedError
from checkpointd.model.permissions import ALL, Permission
from tests.contract.endpoint import Endpoint, name_of, status_of
from tests.contract.subject import Subject
from tests.fakes import pki
from tests.fakes.api_access import NODE, Handed, bound_pod, hand
from tests.fakes.api_objects import ObjectStore
from tests.fakes.api_server import ApiServer
from tests.fakes.waiting import wait_for

QUIET = 10.0
ROOT = Path(__file__).resolve().parents[2]
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


# ---- single objects -----------------------------------------------------------------------------
def test_a_node_that_is_there_has_a_uid_and_allocatable(endpoint: Endpoint) -> None:
    node = endpoint.client(of_node=True).get_node(endpoint.subject.node_name)
    assert not isinstance(node, Missing)
    assert name_of(node) == endpoint.subject.node_name
    assert json_fields.text(node, "metadata", "uid")
    assert json_fields.text(node, "status", "allocatable", "memory")


def test_a_node_that_is_not_there_is_missing_by_name(endpoint: Endpoint) -> None:
    assert endpoint.client().get_node("no-such-node") == Missing("nodes", "no-such-node")


def test_the_service_of_the_api_server_anchors_the_world(endpoint: Endpoint) -> None:
    found = endpoint.client(of_node=True).get_service("default", "kubernetes")
    assert not isinstance(found, Missing)
    assert json_fields.text(found, "metadata", "uid")


def test_every_object_that_is_asked_for_can_be_there(endpoint: Endpoint) -> None:
    client, subject = endpoint.client(), endpoint.subject
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": subject.pod()["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    template["spec"]["nodeSelector"] = {"no-such": "node"}
    name = f"contract-{uuid.uuid4().hex[:8]}"
    made = subject.make(
        DAEMON_SETS,
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}, "spec": spec},
    )
    found = client.get_daemon_set("kube-system", name)
    assert not isinstance(found, Missing)
    assert json_fields.text(found, "metadata", "uid") == made["metadata"]["uid"]
    assert not isinstance(client.get_namespace("kube-system"), Missing)


def test_every_object_that_is_asked_for_can_be_missing(endpoint: Endpoint) -> None:
    client = endpoint.client()
    assert isinstance(client.get_namespace("no-such"), Missing)
    assert isinstance(client.get_service("default", "no-such"), Missing)
    assert isinstance(client.get_daemon_set("kube-system", "no-such"), Missing)
    assert isinstance(client.get_lease("kube-node-lease", "no-such"), Missing)


def test_a_kubelet_that_reaches_the_api_server_renews_its_lease(endpoint: Endpoint) -> None:
    client, name = endpoint.client(of_node=True), endpoint.subject.node_name

    def renewed() -> str:
        lease = client.get_lease("kube-node-lease", name)
        assert not isinstance(lease, Missing)
        return json_fields.text(lease, "spec", "renewTime")

    first = renewed()
    later = wait_for("it is renewed", lambda: first if first != renewed() else None, 30)
    # Microseconds, as metav1.MicroTime writes them.
    assert len(later) == len("2026-01-01T00:00:00.000000Z")


def test_what_is_missing_is_named_in_a_status(subject: Subject) -> None:
    status = status_of(subject, f"{LEASES}/no-such", 404)
    assert status["message"] == 'leases.coordination.k8s.io "no-such" not found'
    assert status["reason"] == "NotFound"
    assert status["details"] == {
        "name": "no-such", "group": "coordination.k8s.io", "kind": "leases",
    }  # fmt: skip
    core = status_of(subject, "/api/v1/nodes/no-such", 404)
    assert core["details"] == {"name": "no-such", "kind": "nodes"}


def test_a_resource_that_a_group_has_not_is_a_status_that_names_nothing(
    endpoint: Endpoint,
) -> None:
    status = status_of(endpoint.subject, "/apis/apps/v1/no-such", 404)
    assert status["message"] == "the server could not find the requested resource"
    assert (status["reason"], status["details"]) == ("NotFound", {})
    with pytest.raises(RejectedError) as caught:
        endpoint.client().get("/apis/apps/v1/no-such")
    assert caught.value.status == 404


def test_a_path_that_no_server_knows_is_rejected_and_nothing_is_missing(endpoint: Endpoint) -> None:
    answer = endpoint.subject.api.ask("GET", "/apis/no.such.group/v1/things/a")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    assert answer.content_type.startswith("text/plain")
    with pytest.raises(RejectedError) as caught:
        endpoint.client().get("/apis/no.such.group/v1/things/a")
    assert caught.value.status == 404


# ---- who may what -------------------------------------------------------------------------------
def test_b1_what_the_node_may_not_is_named_in_a_status(endpoint: Endpoint) -> None:
    client = endpoint.client(of_node=True)
    user = f"system:node:{endpoint.subject.node_name}"
    with pytest.raises(RejectedError) as caught:
        client.get_daemon_set("kube-system", "no-such")
    assert caught.value.status == 403
    assert str(caught.value).startswith(
        f'HTTP 403: daemonsets.apps "no-such" is forbidden: User "{user}" cannot get resource'
        ' "daemonsets" in API group "apps" in the namespace "kube-system"'
    )
    with pytest.raises(RejectedError, match='"namespaces" in API group "" in the namespace "a"'):
        client.get_namespace("a")
    with pytest.raises(RejectedError, match=r"podtemplates is forbidden: .* at the cluster scope"):
        client.get("/api/v1/podtemplates")


def test_who_may_not_ask_is_told_before_whether_there_is_anything(endpoint: Endpoint) -> None:
    with pytest.raises(RejectedError) as caught:
        endpoint.client(of_node=True).get("/apis/no.such.group/v1/things/a")
    assert caught.value.status == 403
    assert 'things.no.such.group "a" is forbidden' in str(caught.value)


def test_who_shows_nothing_is_anonymous_and_may_nothing(endpoint: Endpoint, tmp_path: Path) -> None:
    config = json.loads(endpoint.subject.admin.read_bytes())
    config["users"][0]["user"] = {}
    path = tmp_path / "nobody.conf"
    path.write_text(json.dumps(config))
    client = KubeClient(Kubeconfig(path).read)
    endpoint.clients.append(client)
    with pytest.raises(
        RejectedError, match=r'User "system:anonymous" .*has no credentials'
    ) as caught:
        client.list_pods("a", name_of)
    assert caught.value.status == 403
    config["users"][0]["user"] = {"token": "no-such-token"}
    path.write_text(json.dumps(config))
    with pytest.raises(RejectedError, match="Unauthorized") as caught:
        client.list_pods("a", name_of)
    assert caught.value.status == 401


def test_the_server_says_what_we_may(endpoint: Endpoint) -> None:
    client, name = endpoint.client(of_node=True), endpoint.subject.node_name
    own = Permission(verb="get", resource="nodes", name=name, costs="")
    other = Permission(verb="get", resource="daemonsets", group="apps", costs="")
    assert access_review.is_allowed(client, own, name)
    assert not access_review.is_allowed(client, other, name)
    assert access_review.is_allowed(endpoint.client(), other, name)


# ---- lists --------------------------------------------------------------------------------------
def test_b1_a_list_in_pages_is_read_to_its_end(endpoint: Endpoint) -> None:
    names = {endpoint.create_pod() for _ in range(5)}
    listed = endpoint.client(page_size=2).list_pods(endpoint.node_name, name_of)
    assert names == set(listed.items)
    assert listed.resource_version


def test_a_list_of_nothing_has_items_and_a_version(endpoint: Endpoint) -> None:
    path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{endpoint.node_name}&limit=25"
    found = endpoint.subject.api.do("GET", path)
    assert (found["kind"], found["apiVersion"], found["items"]) == ("PodList", "v1", [])
    assert found["metadata"].keys() == {"resourceVersion"}


def test_the_pages_of_a_list_are_of_one_moment(endpoint: Endpoint) -> None:
    names = {endpoint.create_pod() for _ in range(3)}
    api = endpoint.subject.api
    path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{endpoint.node_name}&limit=1"
    page = api.do("GET", path)
    found = {name_of(one) for one in page["items"]}
    for name in names - found:
        endpoint.subject.delete_pod(name, 0)
    while following := page["metadata"].get("continue"):
        page = api.do("GET", f"{path}&continue={following}")
        found |= {name_of(one) for one in page["items"]}
    assert found == names


def test_h11_a_list_whose_moment_is_forgotten_expires_and_starts_anew(endpoint: Endpoint) -> None:
    names = {endpoint.create_pod() for _ in range(3)}
    subject = endpoint.subject
    path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{endpoint.node_name}&limit=1"
    token = subject.api.do("GET", path)["metadata"]["continue"]
    endpoint.create_pod()
    subject.control.compact()
    status = status_of(subject, f"{path}&continue={token}", 410)
    assert status["reason"] == "Expired"
    assert status["message"].startswith("The provided continue parameter is too old")
    assert names < set(endpoint.client(page_size=1).list_pods(endpoint.node_name, name_of).items)
    assert status_of(subject, f"{path}&continue=abc", 400)["reason"] == "BadRequest"


def test_another_nodes_pods_are_not_listed(endpoint: Endpoint) -> None:
    name = endpoint.create_pod()
    assert name not in endpoint.client().list_pods("no-such-node", name_of).items


def test_items_of_a_list_have_no_type_and_those_of_a_watch_have(endpoint: Endpoint) -> None:
    endpoint.create_pod()
    path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{endpoint.node_name}"
    (item,) = endpoint.subject.api.do("GET", path)["items"]
    assert "kind" not in item
    (event,) = endpoint.subject.api.stream(f"{path}&watch=true&timeoutSeconds=1")
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "Pod")


# ---- the embedded one ---------------------------------------------------------------------------
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
    # Servers before 1.28 do not tell.
    assert user in ("admin", "")


def test_every_answer_has_the_servers_time(endpoint: Endpoint) -> None:
    client = endpoint.client()
    client.get_node(endpoint.node_name)
    assert parsedate_to_datetime(client.server_date).year >= 2024
