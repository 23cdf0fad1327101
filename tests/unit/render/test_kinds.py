"""May a copy run beside its parent, and who would be harmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from checkpointd.model.files import CopyKind
from checkpointd.render import kinds
from tests.builders.pods import Object, container, host_path_volume, mount, owner, raw_pod

DAEMON_SET = owner()
DEPLOYMENT = owner("ReplicaSet")
SAFE = {"checkpointd.io/two-writers": "safe"}


def using(
    volume: Object,
    *,
    read_only: bool = False,
    owners: Sequence[Object] = (),
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """Return a pod that mounts ``volume``."""
    mounts = [mount(str(volume["name"]), readOnly=read_only)]
    return raw_pod(
        volumes=[volume],
        containers=[container(volumeMounts=mounts)],
        owners=owners,
        annotations=annotations,
    )


def with_host_port(*owners: Object, host_network: bool = False) -> Object:
    ports = [{"containerPort": 80, "hostPort": 80}]
    return raw_pod(containers=[container(ports=ports)], owners=owners, hostNetwork=host_network)


def refused_fields(pod: Object) -> list[str]:
    return [refusal.field for refusal in kinds.refusals(pod)]


def test_a_plain_pod_is_shareable() -> None:
    assert kinds.judge(raw_pod()) is CopyKind.SHAREABLE
    pod = raw_pod(containers=[container(ports=[{"containerPort": 80}])])
    assert kinds.judge(pod) is CopyKind.SHAREABLE


def test_a_pod_in_a_namespace_of_the_host_is_exclusive() -> None:
    for pod in (raw_pod(hostNetwork=True), raw_pod(hostPID=True), raw_pod(hostIPC=True)):
        assert kinds.judge(pod) is CopyKind.EXCLUSIVE


def test_a_pod_marked_for_port_sharing_is_shareable() -> None:
    marked = raw_pod(hostNetwork=True, annotations={"checkpointd.io/port-sharing": "true"})
    assert kinds.judge(marked) is CopyKind.SHAREABLE
    other = raw_pod(hostNetwork=True, annotations={"checkpointd.io/port-sharing": "yes"})
    assert kinds.judge(other) is CopyKind.EXCLUSIVE


def test_a_host_port_without_host_network_blocks() -> None:
    assert kinds.judge(with_host_port(DEPLOYMENT)) is CopyKind.BLOCKING
    assert kinds.judge(with_host_port(host_network=True)) is CopyKind.EXCLUSIVE


def test_a_device_blocks_even_with_host_network() -> None:
    resources = {"limits": {"example.com/gpu": "1", "cpu": "1"}}
    pod = raw_pod(
        hostNetwork=True, owners=[DAEMON_SET], containers=[container(resources=resources)]
    )
    assert kinds.judge(pod) is CopyKind.BLOCKING
    plain = {"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}
    assert kinds.judge(raw_pod(containers=[container(resources=plain)])) is CopyKind.SHAREABLE


def test_a_blocking_pod_without_controller_is_refused() -> None:
    assert refused_fields(with_host_port()) == ["spec.containers[0].ports[0].hostPort"]
    assert refused_fields(with_host_port(DEPLOYMENT)) == []


def test_a_writable_host_path_makes_exclusive_and_a_read_only_one_does_not() -> None:
    volume = host_path_volume("v", "/run/x")
    assert kinds.judge(using(volume)) is CopyKind.EXCLUSIVE
    assert kinds.judge(using(volume, read_only=True)) is CopyKind.SHAREABLE


@pytest.mark.parametrize(
    ("path", "is_refused"),
    [
        ("/var/lib/etcd", True),
        ("/", True),
        ("/runner", True),
        ("/run/../etc", True),
        ("/run", False),
        ("/run//x/", False),
        ("/var/run/x.sock", False),
        ("/dev/shm", False),
        ("/sys/fs/cgroup", False),
        ("/var/log/x", False),
    ],
)
def test_a_writable_host_path_that_lasts_is_refused_without_daemon_set(
    path: str, is_refused: bool
) -> None:
    volume = host_path_volume("v", path)
    expected = ["spec.volumes[0].hostPath"] if is_refused else []
    assert refused_fields(using(volume, owners=[DEPLOYMENT])) == expected
    assert refused_fields(using(volume, read_only=True)) == []
    assert refused_fields(using(volume, annotations=SAFE)) == []


def test_a_daemon_sets_pod_may_write_to_the_host_and_is_warned() -> None:
    pod = using(host_path_volume("v", "/var/lib/x"), owners=[DAEMON_SET])
    assert refused_fields(pod) == []
    assert kinds.judge(pod) is CopyKind.EXCLUSIVE
    assert len(list(kinds.warnings(pod))) == 1
    assert list(kinds.warnings(using(host_path_volume("v", "/run/x"), owners=[DAEMON_SET]))) == []


@pytest.mark.parametrize("kind", ["nfs", "iscsi", "rbd", "fc", "cephfs"])
def test_a_writable_network_volume_is_refused_for_everybody(kind: str) -> None:
    volume: Object = {"name": "v", kind: {}}
    assert refused_fields(using(volume, owners=[DAEMON_SET])) == [f"spec.volumes[0].{kind}"]
    assert refused_fields(using(volume, annotations=SAFE)) == []
    assert refused_fields(using(volume, read_only=True)) == []
    assert refused_fields(using({"name": "v", kind: {"readOnly": True}})) == []
    assert kinds.judge(using(volume, annotations=SAFE)) is CopyKind.EXCLUSIVE


def test_a_stateful_sets_pod_is_refused_unless_marked() -> None:
    stateful = owner("StatefulSet")
    assert refused_fields(raw_pod(owners=[stateful])) == ["metadata.ownerReferences"]
    marked = raw_pod(owners=[stateful], annotations=SAFE)
    assert refused_fields(marked) == []
    assert kinds.judge(marked) is CopyKind.EXCLUSIVE
