from __future__ import annotations

from pathlib import Path

import pytest

from checkpointd.clients.pod_resources import PodResourcesClient
from checkpointd.errors import RefusedError, RejectedError, SilentError
from tests.fakes.grpc_server import StatusCode
from tests.fakes.pod_resources import FakePodResources

PODS = {("kube-system", "etcd-node1"), ("default", "web")}


@pytest.mark.parametrize("packages", [("v1", "v1alpha1"), ("v1",), ("v1alpha1",)])
def test_pods_are_listed_in_whichever_version_is_there(
    tmp_path: Path, packages: tuple[str, ...]
) -> None:
    with FakePodResources(tmp_path, packages) as fake:
        fake.pods = set(PODS)

        assert PodResourcesClient(str(tmp_path)).list_pods() == PODS


def test_no_version_is_an_error(tmp_path: Path) -> None:
    with FakePodResources(tmp_path, ()), pytest.raises(RejectedError):
        PodResourcesClient(str(tmp_path)).list_pods()


def test_a_kubelet_that_limits_the_rate_is_an_error(tmp_path: Path) -> None:
    with FakePodResources(tmp_path) as fake:
        fake.faults.fail(StatusCode.RESOURCE_EXHAUSTED)

        with pytest.raises(RejectedError):
            PodResourcesClient(str(tmp_path)).list_pods()


def test_a_hang_ends_at_the_deadline(tmp_path: Path) -> None:
    with FakePodResources(tmp_path) as fake:
        fake.faults.hang()

        with pytest.raises(SilentError):
            PodResourcesClient(str(tmp_path), timeout=0.1).list_pods()


def test_a_socket_that_is_not_there_refuses(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        PodResourcesClient(str(tmp_path)).list_pods()


def test_a_kubelet_that_was_restarted_is_asked_anew(tmp_path: Path) -> None:
    client = PodResourcesClient(str(tmp_path))
    fake = FakePodResources(tmp_path)
    with fake:
        client.list_pods()
    with pytest.raises(RefusedError):
        client.list_pods()
    with fake:
        fake.pods = set(PODS)

        assert client.list_pods() == PODS


def test_a_pod_without_a_name_is_an_error(tmp_path: Path) -> None:
    with FakePodResources(tmp_path) as fake:
        fake.pods = {("kube-system", "")}

        with pytest.raises(RejectedError, match="without a name"):
            PodResourcesClient(str(tmp_path)).list_pods()
