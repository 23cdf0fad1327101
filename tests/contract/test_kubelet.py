"""What a kubelet answers: its ports, its lists, who may ask; and what it writes for a pod."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpointd.clients import kube_connection, kubelet
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.clients.kubelet import KubeletClient
from checkpointd.clients.pod_resources import PodResourcesClient
from checkpointd.errors import RejectedError
from checkpointd.model.files import VolumeFiles
from checkpointd.observe import volumes
from checkpointd.render.volumes import stored_volumes
from checkpointd.settings import KubeletSettings
from tests.contract.subject import NAMESPACE, Subject, uid_of
from tests.fakes.api_objects import Object
from tests.fakes.waiting import wait_for


@dataclass(frozen=True, slots=True)
class Clients:
    """Hold the clients of one kubelet: an administrator, its own node, somebody, the socket."""

    admin: KubeletClient
    node: KubeletClient
    stranger: KubeletClient
    pod_resources: PodResourcesClient


@pytest.fixture
def clients(subject: Subject) -> Clients:
    settings = KubeletSettings()
    endpoints = kubelet.endpoints_of(subject.kubelet, settings)
    trust = kubelet.choose_trust(settings, endpoints.root_dir, subject.node_name)
    return Clients(
        KubeletClient(endpoints, trust, Kubeconfig(subject.admin).read),
        KubeletClient(endpoints, trust, Kubeconfig(subject.kubeconfig).read),
        KubeletClient(endpoints, trust, lambda: None),
        PodResourcesClient(endpoints.root_dir),
    )


def ask(subject: Subject, path: str, who: Path | None, port: int = 0) -> tuple[int, bytes]:
    """Ask with the credentials of a kubeconfig, or none; return status and body."""
    wanted = port or subject.kubelet.port
    if wanted == subject.kubelet.read_only_port:
        connection = http.client.HTTPConnection("127.0.0.1", wanted, timeout=10)
    else:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", wanted, timeout=10, context=_context(who)
        )
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _context(who: Path | None) -> ssl.SSLContext:
    """Show a certificate, and believe any: whom to believe is KubeletClient's affair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if who is not None:
        context = kube_connection.make_context(Kubeconfig(who).read())
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def pods_of(subject: Subject, path: str) -> dict[str, Object]:
    """Return the items of a list by UID, as an administrator sees them."""
    status, body = ask(subject, path, subject.admin)
    assert status == 200
    items: list[Object] = json.loads(body)["items"] or []
    return {item["metadata"]["uid"]: item for item in items}


def test_it_says_that_it_is_healthy(clients: Clients) -> None:
    clients.admin.check_healthz()


def test_all_lists_name_the_same_pods_static_ones_with_the_nodes_name(
    subject: Subject, clients: Clients, app: Object, static: Object
) -> None:
    listed = clients.admin.list_pods()
    named = (NAMESPACE, f"{static['metadata']['name']}-{subject.node_name}")
    assert {named, (NAMESPACE, app["metadata"]["name"])} <= listed
    wait_for("all name the same", lambda: _lists_agree(clients))


def test_what_its_cache_sees_running_is_what_the_runtime_runs(
    subject: Subject, clients: Clients, app: Object, static: Object
) -> None:
    wait_for("both run", lambda: {uid_of(app), uid_of(static)} <= clients.admin.list_running())
    assert subject.containers(uid_of(static))[0].state.value == "running"


def test_a_sandbox_alone_is_no_running_pod(subject: Subject, clients: Clients) -> None:
    pod = subject.pod(subject.container("fails"))
    pod["spec"]["nodeName"] = subject.node_name
    made = subject.make(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    uid = uid_of(made)

    def is_bare() -> bool:
        found = pods_of(subject, "/runningpods/").get(uid)
        return found is not None and not found["spec"]["containers"]

    wait_for("it is listed without containers", is_bare)
    assert (NAMESPACE, made["metadata"]["name"]) in clients.admin.list_pods()


def test_pods_tells_where_a_pod_comes_from_and_what_the_api_has_of_it(
    subject: Subject, app: Object, static: Object
) -> None:
    found = pods_of(subject, "/pods")
    of_api, of_file = found[uid_of(app)], found[uid_of(static)]
    for item, source in ((of_api, "api"), (of_file, "file")):
        notes = item["metadata"]["annotations"]
        assert notes["kubernetes.io/config.source"] == source
        assert notes["example.org/note"] == "a note"
        assert item["metadata"]["labels"] == {"contract": "test"}
        assert "kind" not in item
        assert item["status"]["phase"] == "Running"
    hash_note = of_file["metadata"]["annotations"]["kubernetes.io/config.hash"]
    assert hash_note == static["metadata"]["uid"]
    assert of_api["spec"]["nodeName"] == of_file["spec"]["nodeName"] == subject.node_name


def test_runningpods_tells_names_and_nothing_else(subject: Subject, app: Object) -> None:
    item = pods_of(subject, "/runningpods/")[uid_of(app)]
    assert item["metadata"].keys() - {"name", "namespace", "uid", "creationTimestamp"} == set()
    assert {one["name"] for one in item["spec"]["containers"]} == {"app", "other"}
    assert item["status"] == {}


@pytest.mark.parametrize("path", ["/pods", "/runningpods/"])
def test_a11_who_may_not_ask_is_told_so(subject: Subject, clients: Clients, path: str) -> None:
    assert ask(subject, path, None) == (401, b"Unauthorized")
    status, body = ask(subject, path, subject.kubeconfig)
    assert status == 403
    user = f"system:node:{subject.node_name}"
    start = f"Forbidden (user={user}, verb=get, resource=nodes, subresource="
    assert body.decode().startswith(start)
    with pytest.raises(RejectedError, match="nodes/pods"):
        clients.node.list_pods()


def test_a_path_that_it_does_not_know_and_one_that_lacks_its_slash(subject: Subject) -> None:
    assert ask(subject, "/no-such", None) == (404, b"404 page not found\n")
    status, body = ask(subject, "/runningpods", None)
    assert (status, body.strip()) == (301, b'<a href="/runningpods/">Moved Permanently</a>.')


def test_the_read_only_port_lists_pods_to_anybody_and_never_what_runs(
    subject: Subject, clients: Clients
) -> None:
    wait_for(
        "it lists the same",
        lambda: clients.stranger.list_pods_read_only() == clients.admin.list_pods(),
    )
    assert ask(subject, "/runningpods/", None, subject.kubelet.read_only_port)[0] == 405


def test_a_pod_that_has_ended_is_listed_no_more(subject: Subject, clients: Clients) -> None:
    made = subject.run(subject.pod())
    name = made["metadata"]["name"]
    subject.delete_pod(name)
    wait_for("it has gone from the API", lambda: subject.find_pod(name) is None, 60)
    wait_for("no list has it", lambda: _lists_agree(clients))
    assert (NAMESPACE, name) not in clients.pod_resources.list_pods()
    assert uid_of(made) not in clients.admin.list_running()


def test_the_volumes_of_a_pod_are_read_from_its_own_directories(
    subject: Subject, app: Object
) -> None:
    root = Path(subject.kubelet.root_dir)
    wanted = [volume for volume in stored_volumes(app) if volume.name != "unused"]
    targets = volumes.read_targets(root, uid_of(app), wanted)
    found = volumes.read_volumes(root, uid_of(app), wanted, 1 << 20)
    assert isinstance(found, Mapping)
    files = {name: _files(volume) for name, volume in found.items()}
    assert files["files"] == {"a": (b"b\n", 0o644)}
    assert files["keys"] == {"key": (b"\0\1\2", 0o400)}
    assert files["none"] == {}
    assert volumes.read_targets(root, uid_of(app), wanted) == targets


def test_a_volume_that_no_container_mounts_is_never_set_up(subject: Subject, app: Object) -> None:
    # pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go, processPodVolumes.
    plugin = Path(subject.kubelet.root_dir, "pods", uid_of(app), "volumes/kubernetes.io~configmap")
    assert {path.name for path in plugin.iterdir()} == {"files", "none"}


def _files(volume: VolumeFiles) -> dict[str, tuple[bytes, int]]:
    return {e.path: (e.data, e.mode) for e in volume.entries if e.data is not None}


def _lists_agree(clients: Clients) -> bool:
    return clients.admin.list_pods() == clients.pod_resources.list_pods()
