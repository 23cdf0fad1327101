"""Pods go and come as operators and controllers want it, the API server answers: no copy starts.

One node for all, and workloads that are made together: a kubelet takes up to 10 s to let a deleted
pod go. The daemon's times are as short as they may be, so that nothing but the rules keeps a copy
from being started; each test ends with the proof that none ever was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import api, daemon, objects, selfhosted, workloads
from tests.e2e.node.cluster import Cluster
from tests.e2e.node.copies import NoCopies
from tests.e2e.node.machine import Machine
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CONTROLLERS = "kube-controller-manager kube-scheduler"
KUBELET_UNIT = "/etc/systemd/system/kubelet.service"
KUBELET_DISK = "/var/lib/kubelet"
"""Where emptyDirs lie. It is a small file system of its own, so that a pod can fill it."""
KUBELET_FLAGS = (
    "--eviction-hard=nodefs.available<32Mi --eviction-pressure-transition-period=1s "
    "--volume-stats-agg-period=1s"
)
TIMES = {
    "answers-apart": '"100ms"',
    "refused-within": '"100ms"',
    "silent-for": '"1s"',
    "boot-hold": '"0s"',
    "boot-hold-at-most": '"1s"',
    "tombstone-hold": '"0s"',
    "cut-off": '"1s"',
    "unlisted-for": '"1s"',
    "hand-back-ready": '"0s"',
    "retire-daemon-set": '"0s"',
    "retire-store": '"30s"',
    "min-dwell": '"0s"',
    "proven-after": '"1s"',
}
SELECTION = "/etc/checkpointd/checkpointd.toml.d/selection.toml"
EDGE = "/api/v1/namespaces/edge"


@dataclass(frozen=True)
class Stage:
    """The node, the proof that no copy starts, and which slots have to be gone in the end."""

    machine: Machine
    cluster: Cluster
    daemon: daemon.Daemon
    copies: NoCopies
    unwanted: list[str] = field(default_factory=list[str])

    @property
    def api(self) -> api.Api:
        """The API server, as administrator."""
        return self.cluster.api

    @property
    def node_url(self) -> str:
        """The path of the Node."""
        return f"/api/v1/nodes/{self.machine.name}"

    def pod_of(self, name: str, *others: object) -> object:
        """Return a workload's Ready pod once it has one that is none of `others`."""
        known = {uid_of(pod) for pod in others}

        def fresh() -> object | None:
            found = workloads.ready_pods(self.cluster, name)
            return next((pod for pod in found if uid_of(pod) not in known), None)

        return wait_for(f"{name} has a new pod that is Ready", fresh, 60, 0.2)

    def wait_until_gone(self, *pods: object) -> None:
        """Return when the API server has these pods no more."""
        for url in map(url_of, pods):
            wait_for(f"{url} is gone", lambda url=url: not self.api.exists(url), 60)

    def wait_until_failed(self, pod: object, reason: str) -> None:
        """Return when the kubelet ended a pod for that reason."""
        wait_for(
            f"{name_of(pod)} is {reason}",
            lambda: objects.find(self.api.get(url_of(pod)), "status", "reason") == reason,
            90,
            0.2,
        )

    def wait_until_proven(self, pod: object, *, new: bool = False) -> object:
        """Return its slot's status once a pod is the parent and its generation has run well.

        `new`: the generation is the second one that the slot has, at least.
        """
        return self.daemon.wait_for_checkpoint(
            slot_of(pod),
            f"{name_of(pod)} is stored and proven",
            lambda seen: is_proven(seen, pod, generations=2 if new else 1),
            60,
        )

    def create(self, path: str, *names: str) -> None:
        """Create marked workloads of small web servers, each on a network of its own."""
        make = workloads.daemon_set if path == workloads.DAEMON_SETS else workloads.deployment
        for name in names:
            self.api.create(path, make(name, web_spec()))

    @contextlib.contextmanager
    def controllers_stopped(self) -> Generator[None]:
        """Have nobody make, bind or remove pods but the tests and the kubelet."""
        self.machine.sh(f"systemctl stop {CONTROLLERS}")
        yield
        self.machine.sh(f"systemctl start {CONTROLLERS}")


@pytest.fixture(scope="module")
def the_stage(
    make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    machine = make_shared_machine("rollouts", "10.99.0.1/24")
    directory: Path = tmp_path_factory.mktemp("rollouts") / "pki"
    kube = selfhosted.make_control_plane(machine, directory)
    machine.sh(f"mkdir -p {KUBELET_DISK}; mount -t tmpfs -o size=128m tmpfs {KUBELET_DISK}")
    kube.install_kubelet(machine)
    machine.sh(f"sed -i 's/--eviction-hard=/{KUBELET_FLAGS}/' {KUBELET_UNIT}")
    machine.sh("systemctl daemon-reload; systemctl restart kubelet")
    kube.wait_for_node(machine)
    stage = Stage(machine, kube, daemon.Daemon(machine), NoCopies(machine))
    stage.daemon.install({"times": TIMES, "selection": {"max-pods": "50"}})
    agent = workloads.start_agent(kube, 8081)
    stage.create(workloads.DAEMON_SETS, "waits", "surges", "fills", "bows")
    stage.create(workloads.DEPLOYMENTS, "deleted", "rolls", "shrinks", "exceeds", "yields")
    assert stage.copies.has_seen(agent)
    yield stage
    stage.copies.close()


@pytest.fixture
def stage(the_stage: Stage) -> Iterator[Stage]:
    yield the_stage
    the_stage.copies.check()
    assert "offered" not in the_stage.machine.sh("journalctl -u checkpointd -o cat")


def test_a_daemon_set_that_rolls_leaves_its_slot_to_the_new_pod(stage: Stage) -> None:
    """Rolling update, and OnDelete."""
    rolls, waits = stage.pod_of("agent"), stage.pod_of("waits")
    for pod in (rolls, waits):
        stage.wait_until_proven(pod)
    url = f"{workloads.DAEMON_SETS}/waits"
    stage.api.merge(url, {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    stage.api.merge(url, with_revision())
    stage.api.merge(f"{workloads.DAEMON_SETS}/agent", with_revision())
    stage.api.delete(url_of(waits))
    for pod in (stage.pod_of("agent", rolls), stage.pod_of("waits", waits)):
        seen = stage.wait_until_proven(pod, new=True)
        assert moves(seen) == ["stored tombstone", "tombstone stored"]


def test_a_daemon_set_that_surges_has_a_successor_before_its_pod_goes(stage: Stage) -> None:
    """Kubernetes 1.20 cannot surge: its controllers rest while we do what those of 1.22 do."""
    before = stage.pod_of("surges")
    stage.wait_until_proven(before)
    with stage.controllers_stopped():
        stage.api.create(api.PODS, twin_of(before))
        after = stage.pod_of("surges", before)
        seen = stage.daemon.wait_for_checkpoint(
            "ds.surges",
            f"{name_of(after)} is the successor",
            lambda seen: objects.find(seen, "successor", "uid") == uid_of(after),
            60,
        )
        assert objects.find(seen, "parent", "uid") == uid_of(before)
        stage.api.delete(url_of(before))
        stage.wait_until_gone(before)
        seen = stage.wait_until_proven(after)
        assert moves(seen) == []


def slot_of(pod: object) -> str:
    """Return the slot of a pod."""
    owner = objects.text(pod, "metadata", "ownerReferences", 0, "name")
    return f"ds.{owner}" if workloads.is_of_daemon_set(pod) else f"pod.{name_of(pod)}"


def name_of(pod: object) -> str:
    """Return a pod's name."""
    return objects.text(pod, "metadata", "name")


def uid_of(pod: object) -> str:
    """Return a pod's UID."""
    return objects.text(pod, "metadata", "uid")


def url_of(pod: object) -> str:
    """Return the path of a pod in the API."""
    return f"{api.PODS}/{name_of(pod)}"


def web_spec() -> dict[str, object]:
    """Return the spec of a web server on a network of its own that can fill a disk."""
    spec = workloads.agent_pod_spec(8080)
    return {**spec, "hostNetwork": False, "tolerations": []}


def twin_of(pod: object) -> dict[str, object]:
    """Return another pod of a pod's controller, from the same template, on the same node."""
    metadata = {
        "generateName": objects.text(pod, "metadata", "generateName"),
        "labels": objects.find(pod, "metadata", "labels"),
        "annotations": workloads.MARK,
        "ownerReferences": objects.items(pod, "metadata", "ownerReferences"),
    }
    spec = objects.find(pod, "spec")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def with_revision() -> dict[str, object]:
    """Return a patch of a workload that makes it roll."""
    return {"spec": {"template": {"metadata": {"annotations": {"revision": "2"}}}}}


def is_proven(checkpoint: object, pod: object, *, generations: int) -> bool:
    """Say whether that pod is the slot's parent, and that many generations are stored, proven."""
    stored = objects.find(checkpoint, "generations")
    return (
        objects.find(checkpoint, "phase") == "stored"
        and objects.find(checkpoint, "parent", "uid") == uid_of(pod)
        and objects.find(checkpoint, "generation", "proven") is True
        and isinstance(stored, int)
        and stored >= generations
    )


def moves(checkpoint: object) -> list[str]:
    """Return the slot's transitions, oldest first, as "before after"."""
    history = objects.items(checkpoint, "history")
    return [f"{objects.text(move, 'before')} {objects.text(move, 'after')}" for move in history]
