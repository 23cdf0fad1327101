"""What holds for every kubelet: run on the fake, and on a real one where one is named.

    CHECKPOINTD_TEST_KUBELET=/var/lib/kubelet \\
    CHECKPOINTD_TEST_KUBECONFIG=/etc/kubernetes/kubelet.conf pytest tests/contract/test_kubelet.py

The real one (default ports, read-only port off) is only read. What its API server does not grant is
skipped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpointd.clients import kubelet
from checkpointd.clients.credentials import Credentials
from checkpointd.clients.key_files import Part
from checkpointd.clients.kubeconfig import read_kubeconfig
from checkpointd.clients.kubelet import Endpoints, KubeletClient, Trust
from checkpointd.clients.pod_resources import PodResourcesClient
from checkpointd.errors import RejectedError
from tests.fakes import pki
from tests.fakes.kubelet_http import FakeKubelet, FakePod
from tests.fakes.pod_resources import FakePodResources

REAL = os.environ.get("CHECKPOINTD_TEST_KUBELET", "")
KUBECONFIG = os.environ.get("CHECKPOINTD_TEST_KUBECONFIG", "")
PODS = [
    FakePod(namespace="kube-system", name="etcd", uid="u1", static=True),
    FakePod(namespace="default", name="web", uid="u2"),
]


@dataclass(frozen=True, slots=True)
class Subject:
    """Hold the clients of one kubelet and what to show it."""

    http: KubeletClient
    pod_resources: PodResourcesClient
    anonymous: KubeletClient


@pytest.fixture(params=["fake", *(["real"] if REAL else [])])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    if request.param == "real":
        find = (lambda: read_kubeconfig(Path(KUBECONFIG))) if KUBECONFIG else lambda: None
        yield subject_of(Endpoints(root_dir=REAL), find)
        return
    resources = FakePodResources(tmp_path)
    resources.pods = {("kube-system", "etcd-node1"), ("default", "web")}
    with FakeKubelet(tmp_path) as fake, resources:
        fake.pods = fake.running = PODS
        endpoints = Endpoints(
            port=fake.port, healthz_port=fake.healthz_port, root_dir=str(tmp_path)
        )
        yield subject_of(endpoints, node_credentials)


def subject_of(endpoints: Endpoints, find: Callable[[], Credentials | None]) -> Subject:
    trust = Trust(certificates=kubelet.find_certificates(endpoints.root_dir))
    return Subject(
        KubeletClient(endpoints, trust, find),
        PodResourcesClient(endpoints.root_dir),
        KubeletClient(endpoints, trust, lambda: None),
    )


def node_credentials() -> Credentials:
    cluster = pki.shared()
    return Credentials(
        host="",
        port=0,
        prefix="",
        verify_name="",
        insecure=False,
        ca=Part(key="ca", embedded=cluster.ca.certificate),
        client_certificate=Part(key="certificate", embedded=cluster.node.certificate),
        client_key=Part(key="key", embedded=cluster.node.key),
    )


def granted(ask: Callable[[], frozenset[tuple[str, str]]]) -> frozenset[tuple[str, str]]:
    """Ask; skip the test where this client may not."""
    try:
        return ask()
    except RejectedError as error:
        if error.status in {401, 403}:
            pytest.skip(str(error))
        raise


def test_it_says_that_it_is_healthy(subject: Subject) -> None:
    subject.http.check_healthz()


def test_both_lists_name_the_same_pods(subject: Subject) -> None:
    assert granted(subject.http.list_pods) == subject.pod_resources.list_pods()


def test_pods_have_names(subject: Subject) -> None:
    for namespace, name in subject.pod_resources.list_pods():
        assert namespace
        assert name


def test_running_pods_have_uids(subject: Subject) -> None:
    granted(subject.http.list_pods)

    assert all(subject.http.list_running())


def test_a_client_without_credentials_learns_nothing(subject: Subject) -> None:
    with pytest.raises(RejectedError) as raised:
        subject.anonymous.list_pods()

    assert raised.value.status in {401, 403}


def test_the_read_only_port_is_off_unless_asked_for(subject: Subject) -> None:
    with pytest.raises(RejectedError):
        subject.http.list_pods_read_only()
