"""Pods go and come as operators and controllers want it, the API server answers: no copy starts.

One node for all, and workloads that are made together: a kubelet takes up to 10 s to let a deleted
pod go. The daemon's times are as short as they may be, so that nothing but the rules keeps a copy
from being started; each test ends with the proof that none ever was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import api, daemon, objects, selfhosted, workloads
from tests.e2e.node.cluster import Cluster
from tests.e2e.node.copies import NoCopies
from tests.e2e.node.machine import Machine
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

DAEMON_SETS = ("agent", "waits", "surges", "fills", "bows")
DEPLOYMENTS = ("deleted", "rolls", "shrinks", "exceeds", "yields")
CONTROLLERS = "kube-controller-manager kube-scheduler"
KUBELET_UNIT = "/etc/systemd/system/kubelet.service"
KUBELET_DISK = "/var/lib/kubelet"
"""Where emptyDirs lie. It is a small file system of its own, so that a pod can fill it."""
KUBELET_FLAGS = (
    "--eviction-hard=nodefs.available<32Mi --eviction-pressure-transition-period=1s "
    "--volume-stats-agg-period=1s"
)
GONE = 150
"""Seconds until a deleted pod is gone and has a successor. A kubelet removes ended containers when
it sees their end, else once a minute, and looks every 10 s for pods that have none any more."""
EDGE = "/api/v1/namespaces/edge"
GATEWAY = {"app": "gateway"}
BY_LABEL = '[[selection.rule]]\nnamespace = "edge"\nlabels = { app = "gateway" }'
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
    "min-dwell": '"0s"',
    "proven-after": '"1s"',
}


@dataclass(frozen=True)
class Stage:
    """The node, and the proof that no copy starts."""

    machine: Machine
    cluster: Cluster
    daemon: daemon.Daemon
    copies: NoCopies
    share: str
    """More than half of the node's CPUs: two pods that ask for it do not fit."""

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

        return wait_for(f"{name} has a new pod that is Ready", fresh, GONE, 0.2)

    def wait_until_gone(self, *pods: object) -> None:
        """Return when the API server has these pods no more."""
        urls = [url_of(pod) for pod in pods]
        wait_for(f"{urls} are gone", lambda: not any(map(self.api.exists, urls)), GONE)

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

    def fill(self, pod: object, mebibytes: int) -> None:
        """Have a pod's emptyDir hold so much that the kubelet evicts the pod."""
        scratch = f"{KUBELET_DISK}/pods/{uid_of(pod)}/volumes/kubernetes.io~empty-dir/scratch"
        self.machine.sh(f"head -c {mebibytes}M /dev/zero > {scratch}/file")

    def create_pod(self, name: str, priority: str, **placed: str) -> object:
        """Create a marked pod of that priority that leaves no other of its size room."""
        spec = {**web_spec(cpu=self.share), "priorityClassName": priority, **placed}
        metadata = {"name": name, "annotations": workloads.MARK}
        return self.api.create(api.PODS, {"metadata": metadata, "spec": spec})

    def configure(self, file: str, content: str) -> None:
        """Reload the daemon with another part of its configuration."""
        self.machine.write(f"{daemon.SETTINGS}/{file}.toml", content)
        self.machine.sh("systemctl reload checkpointd")

    def ignored(self, name: str) -> str:
        """Return why the mark of a pod does not count."""
        ignored = objects.items(self.daemon.status(), "ignored")
        return str([pod for pod in ignored if objects.find(pod, "name") == name])

    def wait_until_in(self, phase: str, slot: str) -> None:
        """Return when a slot is in that phase."""
        self.daemon.wait_for_checkpoint(
            slot, phase, lambda seen: objects.find(seen, "phase") == phase, 60
        )

    def slots(self) -> list[str]:
        """Return the slots that the daemon's status speaks of."""
        found = objects.items(self.daemon.status(), "checkpoints")
        return [objects.text(checkpoint, "slot") for checkpoint in found]

    def alarms(self) -> str:
        """Return the daemon's alarms about the node."""
        return str(objects.items(self.daemon.status(), "alarms"))

    def said(self, slot: str) -> str:
        """Return what the journal says of a slot."""
        return self.machine.sh(f"journalctl -u checkpointd -o cat SLOT={slot}")

    @contextlib.contextmanager
    def controllers_stopped(self) -> Generator[None]:
        """Have nobody make, bind or remove pods but the tests and the kubelet."""
        self.machine.sh(f"systemctl stop {CONTROLLERS}")
        try:
            yield
        finally:
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
    cpus = objects.text(kube.api.get(f"/api/v1/nodes/{machine.name}"), "status", "capacity", "cpu")
    share = f"{int(cpus) * 600}m"
    stage = Stage(machine, kube, daemon.Daemon(machine), NoCopies(machine), share)
    stage.daemon.install({"times": TIMES, "selection": {"max-pods": "50"}})
    agent = workloads.start_agent(kube, 8081)
    for name in DAEMON_SETS[1:]:
        kube.api.create(workloads.DAEMON_SETS, workloads.daemon_set(name, web_spec()))
    asks = {"exceeds": web_spec(size_limit="1Mi"), "yields": web_spec(cpu=share)}
    for name in DEPLOYMENTS:
        spec = asks.get(name, web_spec())
        kube.api.create(workloads.DEPLOYMENTS, workloads.deployment(name, spec))
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


def test_without_controllers_nobody_makes_another_pod_and_no_copy_either(stage: Stage) -> None:
    """The API server answers: what it does not want is not started (but for rule 3e)."""
    pods = [stage.pod_of(name) for name in ("waits", "deleted")]
    for pod in pods:
        stage.wait_until_proven(pod)
    with stage.controllers_stopped():
        for pod in pods:
            stage.api.delete(url_of(pod))
        for pod in pods:
            stage.daemon.wait_for_checkpoint(
                slot_of(pod), f"{name_of(pod)} runs no more", has_ended, 60
            )
        stage.wait_until_gone(*pods)
    for name, pod in zip(("waits", "deleted"), pods, strict=True):
        stage.wait_until_proven(stage.pod_of(name, pod))


def test_a_deployments_pod_is_deleted_another_rolls_a_third_shrinks_to_none(stage: Stage) -> None:
    before = {name: stage.pod_of(name) for name in ("deleted", "rolls", "shrinks")}
    for pod in before.values():
        stage.wait_until_proven(pod)
    stage.api.delete(url_of(before["deleted"]))
    stage.api.merge(f"{workloads.DEPLOYMENTS}/rolls", with_revision())
    stage.api.merge(f"{workloads.DEPLOYMENTS}/shrinks", {"spec": {"replicas": 0}})
    for name in ("deleted", "rolls"):
        stage.wait_until_proven(stage.pod_of(name, before[name]))
    stage.wait_until_gone(*before.values())
    for pod in before.values():
        assert "pod terminating" in stage.said(slot_of(pod))


def test_the_kubelet_evicts_pods_that_fill_its_disk(stage: Stage) -> None:
    """One goes over its own limit, then the disk is full: the node is under pressure."""
    exceeds, fills = stage.pod_of("exceeds"), stage.pod_of("fills")
    for pod in (exceeds, fills):
        stage.wait_until_proven(pod)
    stage.fill(exceeds, 2)
    stage.wait_until_failed(exceeds, "Evicted")
    stage.fill(fills, 100)
    # The DaemonSet's controller deletes the failed pod and makes others, of which the kubelet
    # takes none while it is under pressure.
    stage.wait_until_gone(fills)
    for name, pod in (("exceeds", exceeds), ("fills", fills)):
        stage.wait_until_proven(stage.pod_of(name, pod))
    for pod in (exceeds, fills):
        assert "pod Failed: Evicted" in stage.said(slot_of(pod))


def test_pods_make_room_for_others_of_higher_priority(stage: Stage) -> None:
    yields = stage.pod_of("yields")
    stage.wait_until_proven(yields)
    # The scheduler deletes a pod for one of higher priority,
    urgent = stage.create_pod("urgent", "system-cluster-critical")
    stage.wait_until_gone(yields)
    wait_for("the urgent pod runs", lambda: objects.is_ready(stage.api.get(url_of(urgent))), 60)
    stage.wait_until_proven(urgent)
    # and a kubelet ends that one for a pod that was bound to it beside the scheduler.
    critical = stage.create_pod("critical", "system-node-critical", nodeName=stage.machine.name)
    stage.wait_until_failed(urgent, "Preempting")
    stage.wait_until_proven(critical)
    for pod in (critical, urgent):
        stage.api.delete(url_of(pod))
    assert "pod terminating" in stage.said(slot_of(yields))
    assert "pod Failed: Preempting" in stage.said(slot_of(urgent))


def test_labels_and_root_s_configuration_mark_pods_and_unmark_them(stage: Stage) -> None:
    page = workloads.config_map("agent", {"page": "edge\n"})
    stage.api.create("/api/v1/namespaces", {"metadata": {"name": "edge"}})
    stage.api.create(f"{EDGE}/configmaps", page)
    for name, said in (
        ("labelled", {"labels": GATEWAY}),
        ("noted", {"annotations": workloads.MARK}),
    ):
        stage.api.create(f"{EDGE}/pods", {"metadata": {"name": name, **said}, "spec": web_spec()})
    wait_for("a mark does not count", lambda: "counts only in" in stage.ignored("noted"), 60, 0.2)

    stage.configure("selection", BY_LABEL)
    stage.wait_until_in("stored", "pod.labelled")
    stage.api.merge(f"{EDGE}/pods/labelled", {"metadata": {"labels": {"app": "other"}}})
    stage.wait_until_in("tombstone", "pod.labelled")
    stage.api.merge(f"{EDGE}/pods/labelled", {"metadata": {"labels": GATEWAY}})
    stage.wait_until_in("stored", "pod.labelled")

    stage.configure("selection", f'[selection]\nnamespaces = ["kube-system", "edge"]\n{BY_LABEL}')
    stage.wait_until_in("stored", "pod.noted")
    stage.configure("selection", "")
    for slot in ("pod.labelled", "pod.noted"):
        stage.wait_until_in("tombstone", slot)
    stage.api.delete("/api/v1/namespaces/edge")


def test_a_pod_is_unmarked_and_marked_again(stage: Stage) -> None:
    pod = stage.pod_of("bows")
    stage.wait_until_proven(pod)
    stage.api.merge(url_of(pod), {"metadata": {"annotations": dict.fromkeys(workloads.MARK)}})
    stage.daemon.wait_for_checkpoint(slot_of(pod), "it is unmarked", is_tombstone, 30)
    assert "pod unmarked" in stage.said(slot_of(pod))
    stage.api.merge(url_of(pod), {"metadata": {"annotations": workloads.MARK}})
    stage.wait_until_proven(pod)


def test_a_node_is_drained(stage: Stage) -> None:
    agent = stage.pod_of("agent")
    drained = {name: stage.pod_of(name) for name in ("deleted", "rolls", "exceeds")}
    # kubectl drain --ignore-daemonsets: cordon, then evict all others
    stage.api.merge(stage.node_url, {"spec": {"unschedulable": True}})
    for pod in workloads.ready_pods(stage.cluster):
        if not workloads.is_of_daemon_set(pod):
            workloads.evict(stage.cluster, pod)
    stage.wait_until_gone(*drained.values())
    stage.wait_until_proven(agent)
    # And one that does not ignore them: the DaemonSet's pod comes back, cordon or no cordon.
    workloads.evict(stage.cluster, agent)
    stage.wait_until_proven(stage.pod_of("agent", agent))
    stage.api.merge(stage.node_url, {"spec": {"unschedulable": None}})
    for name, pod in drained.items():
        stage.wait_until_proven(stage.pod_of(name, pod))


def test_a_taint_drives_pods_away(stage: Stage) -> None:
    agent, bows = stage.pod_of("agent"), stage.pod_of("bows")
    stage.wait_until_proven(bows)
    taint = {"key": "example.com/out", "value": "yes", "effect": "NoExecute"}
    stage.api.merge(stage.node_url, {"spec": {"taints": [taint]}})
    stage.wait_until_gone(bows)
    stage.daemon.wait_for_checkpoint(slot_of(bows), "it is not wanted here", has_ended, 30)
    stage.wait_until_proven(agent)
    stage.api.merge(stage.node_url, {"spec": {"taints": None}})
    stage.wait_until_proven(stage.pod_of("bows", bows))


def test_all_that_is_marked_goes_at_once_and_only_a_second_look_is_believed(stage: Stage) -> None:
    pods = [stage.pod_of(name) for name in (*DAEMON_SETS, *DEPLOYMENTS) if name != "shrinks"]
    for pod in pods:
        stage.wait_until_proven(pod)
    wanted = {slot_of(pod) for pod in pods}
    assert wanted < {*stage.slots()}
    # What was deleted so far goes as soon as its time is over,
    stage.configure("last", '[times]\nretire-store = "10s"')
    wait_for("what is wanted alone is stored", lambda: {*stage.slots()} == wanted, 60, 0.5)
    # but if everything is gone, that may be an API server that lost its memory.
    for kind, names in ((workloads.DAEMON_SETS, DAEMON_SETS), (workloads.DEPLOYMENTS, DEPLOYMENTS)):
        for name in names:
            stage.api.delete(f"{kind}/{name}")
    wait_for("an alarm that all is gone", lambda: "all at once" in stage.alarms(), 30)
    assert all(stage.daemon.stored(slot) for slot in wanted)
    wait_for("nothing is stored any more", lambda: not stage.slots(), 60, 0.5)
    assert not any(stage.daemon.stored(slot) for slot in wanted)
    assert "all at once" not in stage.alarms()
    assert "tombstone → removed" in stage.said("ds.agent")


def slot_of(pod: object) -> str:
    """Return the slot of a pod."""
    if workloads.is_of_daemon_set(pod):
        return f"ds.{objects.text(pod, 'metadata', 'ownerReferences', 0, 'name')}"
    return f"pod.{name_of(pod)}"


def name_of(pod: object) -> str:
    """Return a pod's name."""
    return objects.text(pod, "metadata", "name")


def uid_of(pod: object) -> str:
    """Return a pod's UID."""
    return objects.text(pod, "metadata", "uid")


def url_of(pod: object) -> str:
    """Return the path of a pod in the API."""
    return f"{api.PODS}/{name_of(pod)}"


def web_spec(*, cpu: str = "0", size_limit: str = "1Gi") -> dict[str, object]:
    """Return the spec of a web server on a network of its own, with an emptyDir."""
    spec = workloads.agent_pod_spec(8080)
    scratch = {"name": "scratch", "emptyDir": {"sizeLimit": size_limit}}
    return {
        **spec,
        "hostNetwork": False,
        "tolerations": [],
        "containers": [
            {
                **cast("dict[str, object]", container),
                "resources": {"requests": {"cpu": cpu}},
                "volumeMounts": [
                    *objects.items(container, "volumeMounts"),
                    {"name": "scratch", "mountPath": "/scratch"},
                ],
            }
            for container in objects.items(spec, "containers")
        ],
        "volumes": [*objects.items(spec, "volumes"), scratch],
    }


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


def is_tombstone(checkpoint: object) -> bool:
    """Say whether a slot's parent is not wanted here, and no copy is active."""
    return objects.find(checkpoint, "phase") == "tombstone"


def has_ended(checkpoint: object) -> bool:
    """Say whether nobody wants a slot's pod, and nothing of it runs."""
    runs = daemon.answer(checkpoint, "does parent or successor run?")
    return is_tombstone(checkpoint) and runs.startswith("no")


def moves(checkpoint: object) -> list[str]:
    """Return the slot's transitions, oldest first, as "before after"."""
    history = objects.items(checkpoint, "history")
    return [f"{objects.text(move, 'before')} {objects.text(move, 'after')}" for move in history]
