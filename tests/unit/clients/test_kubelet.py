from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import kubelet
from checkpointd.clients.credentials import Credentials
from checkpointd.clients.key_files import Part
from checkpointd.clients.kubelet import Endpoints, KubeletClient, Trust
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError
from checkpointd.settings import KubeletSettings
from tests.builders import observations as build
from tests.fakes import pki
from tests.fakes.kubelet_http import Authorization, FakeKubelet, FakePod

ETCD = FakePod(namespace="kube-system", name="etcd", uid="u1", static=True, phase="Pending")
WEB = FakePod(namespace="default", name="web", uid="u2")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeKubelet]:
    served = FakeKubelet(tmp_path, "Node1")
    served.pods = [ETCD, WEB]
    with served:
        yield served


def credentials(*, token: bytes = b"") -> Credentials:
    """Return the node's own credentials, signed by the cluster that the fake knows."""
    cluster = pki.shared()
    return Credentials(
        host="127.0.0.1",
        port=6443,
        prefix="",
        verify_name="",
        insecure=False,
        ca=Part(key="ca", embedded=cluster.ca.certificate),
        client_certificate=Part(key="certificate", embedded=cluster.node.certificate),
        client_key=Part(key="key", embedded=cluster.node.key),
        token=Part(key="token", embedded=token) if token else None,
    )


def connect(
    fake: FakeKubelet,
    known: Credentials | None = None,
    *,
    trust: Trust | None = None,
    timeout: float = 10.0,
    largest: int = kubelet.LARGEST_ANSWER,
) -> KubeletClient:
    endpoints = Endpoints(
        address=fake.address,
        port=fake.port,
        read_only_port=fake.read_only_port,
        healthz_port=fake.healthz_port,
        root_dir=str(fake.root_dir),
    )
    default = Trust(certificates=kubelet.find_certificates(str(fake.root_dir)))
    return KubeletClient(
        endpoints, trust or default, lambda: known, timeout=timeout, largest_answer=largest
    )


# ---- the lists ----------------------------------------------------------------------------------
def test_pods_are_listed_by_the_names_that_the_kubelet_has_for_them(fake: FakeKubelet) -> None:
    assert connect(fake, credentials()).list_pods() == {
        ("kube-system", "etcd-node1"),
        ("default", "web"),
    }


def test_a_kubelet_without_pods_says_null(fake: FakeKubelet) -> None:
    fake.pods = []

    assert connect(fake, credentials()).list_pods() == frozenset()


def test_running_pods_are_those_with_a_container(fake: FakeKubelet) -> None:
    fake.running = [WEB, dataclasses.replace(WEB, uid="only-a-sandbox", containers=())]

    assert connect(fake, credentials()).list_running() == {"u2"}


def test_a5_the_read_only_port_lists_pods_without_credentials(tmp_path: Path) -> None:
    fake = FakeKubelet(tmp_path)
    fake.pods = [WEB]
    fake.start(secure=False, read_only=True)
    try:
        assert connect(fake).list_pods_read_only() == {("default", "web")}
    finally:
        fake.stop()


def test_a5_ports_that_are_closed_are_errors(tmp_path: Path) -> None:
    client = KubeletClient(Endpoints(port=0, read_only_port=0), Trust(), lambda: None, timeout=10.0)

    for ask in (client.list_pods, client.list_pods_read_only, client.list_running):
        with pytest.raises(RejectedError, match="has no port"):
            ask()


def test_a10_unknown_fields_and_missing_type_meta_do_no_harm(fake: FakeKubelet) -> None:
    item = {"metadata": {"namespace": "n", "name": "p", "new": 1}, "novel": [{"x": None}]}
    fake.override["/pods"] = (200, "application/json", json.dumps({"items": [item]}).encode())

    assert connect(fake, credentials()).list_pods() == {("n", "p")}


OF_1_8: dict[str, object] = {
    "metadata": {
        "name": "etcd-node1",
        "namespace": "kube-system",
        "selfLink": "/api/v1/namespaces/kube-system/pods/etcd-node1",
        "uid": "0a8863810b43d4d891fab0af80e28e4c",
        "creationTimestamp": None,
        "annotations": {"kubernetes.io/config.source": "file"},
    },
    "spec": {"containers": [{"name": "etcd", "image": "etcd", "resources": {}}]},
    "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "lastProbeTime": None}]},
}
OF_1_20: dict[str, object] = {
    "metadata": {
        "name": "etcd-node1",
        "namespace": "kube-system",
        "uid": "5f3759df0a8863810b43d4d891fab0af",
        "creationTimestamp": None,
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
    },
    "spec": {"enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority"},
    "status": {"phase": "Running", "podIPs": [{"ip": "192.0.2.1"}], "containerStatuses": []},
}
OF_1_36: dict[str, object] = {
    "metadata": {"name": "etcd-node1", "namespace": "kube-system", "generation": 1},
    "spec": {"resources": {}, "os": {"name": "linux"}},
    "status": {
        "phase": "Running",
        "observedGeneration": 1,
        "hostIPs": [{"ip": "192.0.2.1"}],
        "containerStatuses": [
            {"name": "etcd", "allocatedResources": {}, "user": {"linux": {"uid": 0}}}
        ],
    },
}


@pytest.mark.parametrize(
    "answer",
    [
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [OF_1_8]},
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [OF_1_20]},
        {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [OF_1_36]},
        {"items": [OF_1_36], "metadata": {"resourceVersion": ""}},
    ],
)
def test_a9_a10_of_every_version_names_are_read_and_no_phase(
    fake: FakeKubelet, answer: dict[str, object]
) -> None:
    body = json.dumps(answer).encode()
    fake.override["/pods"] = (200, "application/json", body)

    assert connect(fake, credentials()).list_pods() == {("kube-system", "etcd-node1")}


def test_a6_the_address_is_what_the_kubelet_binds() -> None:
    assert Endpoints(address="192.0.2.10").host == "192.0.2.10"
    assert Endpoints(address="").host == "127.0.0.1"
    assert Endpoints(address="0.0.0.0").host == "127.0.0.1"
    assert Endpoints(address="::").host == "::1"


def test_a6_a_kubelet_on_another_address_is_found_there(tmp_path: Path) -> None:
    with FakeKubelet(tmp_path, address="127.0.0.2") as fake:
        fake.pods = [WEB]

        assert connect(fake, credentials()).list_pods() == {("default", "web")}


# ---- errors: never "nothing there" (A4, A11) ----------------------------------------------------
@pytest.mark.parametrize("path", ["/pods", "/runningpods/"])
@pytest.mark.parametrize(
    ("authorization", "hint"),
    [
        (Authorization.UNAUTHENTICATED, '"get" on "nodes/pods"'),
        (Authorization.FORBIDDEN, '"get" on "nodes/pods"'),
        (Authorization.BROKEN, "cannot ask the API server"),
    ],
)
def test_a4_a11_a_refusal_is_an_error_that_names_what_is_missing(
    fake: FakeKubelet, path: str, authorization: Authorization, hint: str
) -> None:
    fake.authorization = authorization
    client = connect(fake, credentials())

    with pytest.raises(RejectedError, match=hint) as raised:
        client.list_pods() if path == "/pods" else client.list_running()

    assert raised.value.status == authorization.value


def test_a4_a_client_without_a_certificate_is_unauthenticated(fake: FakeKubelet) -> None:
    with pytest.raises(RejectedError) as raised:
        connect(fake).list_pods()

    assert raised.value.status == 401


def test_a4_a_hang_ends_at_the_deadline(fake: FakeKubelet) -> None:
    fake.hanging = {"/pods", "/runningpods/", "/healthz"}
    client = connect(fake, credentials(), timeout=0.2)

    for ask in (client.list_pods, client.list_running, client.check_healthz):
        with pytest.raises(SilentError):
            ask()


def test_a4_a_kubelet_that_is_down_refuses(fake: FakeKubelet) -> None:
    client = connect(fake, credentials())
    fake.stop()

    for ask in (client.list_pods, client.list_running, client.check_healthz):
        with pytest.raises(RefusedError):
            ask()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>proxy</html>",
        b'{"items":[{"metadata":{"namespace":"n","name":"p"}}',
        b'{"items":[{"metadata":{"namespace":"n"}}]}',
        b'{"items":[{"metadata":{"namespace":"n","name":5}}]}',
        b'{"items":[5]}',
    ],
)
def test_a4_a_truncated_or_foreign_answer_is_an_error(fake: FakeKubelet, body: bytes) -> None:
    fake.override = {
        "/pods": (200, "application/json", body),
        "/runningpods/": (200, "application/json", body),
    }
    client = connect(fake, credentials())

    for ask in (client.list_pods, client.list_running):
        with pytest.raises(RejectedError):
            ask()


@pytest.mark.parametrize("status", [204, 301, 404, 405, 429, 503])
def test_a4_every_status_but_200_is_an_error(fake: FakeKubelet, status: int) -> None:
    fake.override["/pods"] = (status, "application/json", b'{"items":[]}')

    with pytest.raises(RejectedError, match=f"HTTP {status}"):
        connect(fake, credentials()).list_pods()


def test_an_answer_without_end_is_an_error(fake: FakeKubelet) -> None:
    fake.pods = [WEB] * 100

    with pytest.raises(RejectedError, match="larger than"):
        connect(fake, credentials(), largest=1000).list_pods()


# ---- healthz ------------------------------------------------------------------------------------
def test_a_healthy_kubelet_says_ok(fake: FakeKubelet) -> None:
    connect(fake).check_healthz()


def test_a_sick_kubelet_is_an_error(fake: FakeKubelet) -> None:
    fake.healthy = False

    with pytest.raises(RejectedError):
        connect(fake).check_healthz()


def test_another_server_on_the_health_port_is_an_error(fake: FakeKubelet) -> None:
    fake.override["/healthz"] = (200, "text/html", b"<html>It works!</html>")

    with pytest.raises(RejectedError, match='not "ok"'):
        connect(fake).check_healthz()


# ---- whom to trust ------------------------------------------------------------------------------
def test_the_kubelets_own_certificate_is_enough_whatever_its_name(fake: FakeKubelet) -> None:
    client = connect(
        fake,
        credentials(),
        trust=Trust(
            certificates=kubelet.find_certificates(str(fake.root_dir)), server_name="another"
        ),
    )

    assert client.list_pods()


def test_a_certificate_signed_by_the_same_issuer_is_not_the_pinned_one(
    fake: FakeKubelet, tmp_path: Path
) -> None:
    pinned = tmp_path / "pinned.crt"
    issuer = pki.Authority("issuer")
    pinned.write_bytes(issuer.server("node1").certificate + issuer.certificate)
    other = FakeKubelet(tmp_path / "other", cluster=issuer)
    other.pki.serve_signed_by_cluster("node1")
    with other:
        with pytest.raises(RejectedError, match="not trusted"):
            connect(other, credentials(), trust=Trust(certificates=(pinned,))).list_pods()


def test_a4_a_foreign_certificate_is_not_trusted(fake: FakeKubelet) -> None:
    with pytest.raises(RejectedError, match="not trusted") as caught:
        connect(fake, credentials(), trust=Trust(server_name="Node1")).list_pods()
    assert f"https://127.0.0.1:{fake.port}/pods: its certificate" in str(caught.value)
    assert f"issuer CN={fake.pki.node_name}-ca@1700000000, valid 2020-01-01" in str(caught.value)
    assert str(caught.value).endswith(": ca must hold its issuer's certificate")


def test_a_certificate_of_the_cluster_is_trusted_under_the_nodes_name(tmp_path: Path) -> None:
    fake = FakeKubelet(tmp_path, "node1")
    fake.pods = [WEB]
    fake.pki.serve_signed_by_cluster("node1")
    with fake:
        assert connect(fake, credentials(), trust=Trust(server_name="node1")).list_pods()
        by_file = Trust(ca_file=str(fake.pki.ca_file), server_name="node1")
        assert connect(fake, credentials(), trust=by_file).list_pods()


def test_a_certificate_of_another_node_is_not_trusted(tmp_path: Path) -> None:
    fake = FakeKubelet(tmp_path, "node1")
    fake.pki.serve_signed_by_cluster("node2")
    with fake, pytest.raises(RejectedError, match="not trusted") as caught:
        connect(fake, credentials(), trust=Trust(server_name="node1")).list_pods()
    assert "it must be for node1, or [node] name must name another" in str(caught.value)
    assert str(caught.value).endswith("; it is for node2")


def test_not_verifying_the_api_server_says_nothing_of_the_kubelet(fake: FakeKubelet) -> None:
    lax = dataclasses.replace(credentials(), insecure=True)

    with pytest.raises(RejectedError, match="not trusted"):
        connect(fake, lax, trust=Trust(server_name="Node1")).list_pods()


def test_without_anything_to_verify_by_nothing_is_asked(fake: FakeKubelet) -> None:
    with pytest.raises(RejectedError, match="nothing to verify"):
        connect(fake, trust=Trust()).list_pods()

    assert fake.requests == []


def test_a_file_without_a_certificate_is_an_error_that_names_it(
    fake: FakeKubelet, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.crt"
    empty.write_text("none")

    with pytest.raises(SourceError, match=r"empty\.crt"):
        connect(fake, credentials(), trust=Trust(certificates=(empty,))).list_pods()


# ---- what settings say --------------------------------------------------------------------------
def test_a6_the_settings_certificate_is_shown_in_place_of_the_nodes(fake: FakeKubelet) -> None:
    pair = pki.shared().admin.write(fake.root_dir, "admin")
    settings = KubeletSettings(client_certificate=str(pair), client_key=str(pair))
    client = KubeletClient(
        connect(fake).endpoints,
        kubelet.choose_trust(settings, str(fake.root_dir), "node1"),
        kubelet.choose_credentials(settings, lambda: None),
    )

    assert client.list_pods()


def test_a6_the_settings_say_whom_to_trust(tmp_path: Path) -> None:
    FakeKubelet(tmp_path)
    own = tmp_path / "pki" / "kubelet.crt"

    assert kubelet.choose_trust(KubeletSettings(), str(tmp_path), "n") == Trust(
        certificates=(own,), server_name="n"
    )
    assert kubelet.choose_trust(
        KubeletSettings(server_certificate="/x", node_name="m"), str(tmp_path), "n"
    ) == Trust(certificates=(Path("/x"),), server_name="m")
    assert kubelet.choose_trust(KubeletSettings(ca_file="/ca"), str(tmp_path), "n") == Trust(
        ca_file="/ca", server_name="n"
    )


def test_a6_where_the_settings_say_that_it_listens_wins() -> None:
    process = build.kubelet(port=10250, address="192.0.2.10", read_only_port=0, healthz_port=10248)
    found = kubelet.endpoints_of(process, KubeletSettings())
    assert (found.host, found.port, found.healthz_port) == ("192.0.2.10", 10250, 10248)
    told = KubeletSettings(address="192.0.2.11", port=1, read_only_port=2, healthz_port=3)
    wins = kubelet.endpoints_of(process, told)
    assert (wins.host, wins.port, wins.read_only_port, wins.healthz_port) == ("192.0.2.11", 1, 2, 3)


def test_no_token_is_ever_in_an_error(fake: FakeKubelet) -> None:
    fake.authorization = Authorization.FORBIDDEN
    known = credentials(token=b"very-secret")

    with pytest.raises(RejectedError) as raised:
        connect(fake, known).list_pods()

    assert "very-secret" not in f"{raised.value!r} {raised.value}{known!r}"
