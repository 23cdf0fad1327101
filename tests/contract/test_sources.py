"""Each source of the daemon, on a whole node: what it posts is what is there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from checkpointd.clients import network
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import (
    ApiAnswered,
    ApiPodsRead,
    CandidateRead,
    ImagesRead,
    KubeletListRead,
    LeaseRead,
    ListConfirmed,
    MachineRead,
    ManagerRead,
    ManifestsRead,
    OverridesRead,
    OwnerRead,
    ProcessesRead,
    RouteRead,
    RunningPodsRead,
    RuntimeRead,
    WorldRead,
)
from checkpointd.model.pods import Slot
from checkpointd.model.selection import Selection
from checkpointd.observe.api import pods
from checkpointd.observe.api.access import ApiAccess
from checkpointd.observe.api.look import ApiLook
from checkpointd.observe.api.watch import ApiWatch
from checkpointd.observe.candidates import CandidateThread, Surroundings
from checkpointd.observe.kernel import KernelSource
from checkpointd.observe.kubelet import ClientFinder, KubeletSource
from checkpointd.observe.machine import MachineSource
from checkpointd.observe.manager import ManagerQuery, ManagerSource
from checkpointd.observe.manifests import ManifestSource
from checkpointd.observe.runtime import RuntimeSource
from checkpointd.observe.source import SourceThread
from checkpointd.render.copy import NodeFacts
from checkpointd.settings import KubeletSettings
from tests.contract.subject import NAMESPACE, Subject, uid_of
from tests.fakes.api_objects import Object
from tests.fakes.posted import Posted

CLOCK = Clock()


@contextmanager
def following(source: SourceThread, *questions: Question) -> Generator[None]:
    """Run a source that is asked these questions."""
    source.start()
    source.ask(frozenset(questions))
    try:
        yield
    finally:
        source.stop(5)
        close: Callable[[], None] | None = getattr(source, "close", None)
        if close is not None:
            close()


def ask(topic: Topic, target: str = "", slot: Slot | None = None) -> Question:
    """Ask now, and again soon."""
    return Question(topic, target, slot, period=0.2, after=CLOCK.now())


def access_of(subject: Subject) -> ApiAccess:
    """Give the way to the API server as the daemon has it: with the node's own credentials."""
    procfs = subject.procfs
    return ApiAccess(
        credentials=Kubeconfig(subject.kubeconfig).read,
        find_node_name=lambda: subject.node_name,
        selection=Selection,
        find_listeners=procfs.find_listeners,
        own_addresses=lambda: network.read_own_addresses(subject.paths.proc),
    )


def test_the_watch_tells_of_the_world_the_list_and_what_changes(
    subject: Subject, app: Object
) -> None:
    posted = Posted()
    with following(ApiWatch(posted.post, CLOCK, access_of(subject))):
        assert posted.wait_for(ApiAnswered).local
        world = posted.wait_for(WorldRead, lambda one: isinstance(one.result, Seen)).result
        assert isinstance(world, Seen)
        node = subject.api.do("GET", f"/api/v1/nodes/{subject.node_name}")
        assert world.value.node_uid == node["metadata"]["uid"]
        service = subject.api.do("GET", "/api/v1/namespaces/default/services/kubernetes")
        assert world.value.anchor_uid == service["metadata"]["uid"]
        assert world.value.service_host == service["spec"]["clusterIP"]
        posted.wait_for(ApiPodsRead, lambda one: uid_of(app) in _uids(one))
        made = subject.run(subject.pod())
        uid = uid_of(made)
        ready = posted.wait_for(ApiPodsRead, lambda one: _is_ready(one, uid))
        assert uid_of(app) in _uids(ready)
        subject.delete_pod(made["metadata"]["name"])
        posted.wait_for(ApiPodsRead, lambda one: _is_terminating(one, uid))
        posted.wait_for(ApiPodsRead, lambda one: uid not in _uids(one), 60)


def test_the_look_confirms_the_list_and_reads_the_lease_and_no_owner_without_a_role(
    subject: Subject, app: Object
) -> None:
    posted, slot = Posted(), Slot(NAMESPACE, "ds.no-such")
    questions = (
        ask(Topic.CONFIRM_LIST), ask(Topic.LEASE), ask(Topic.OWNER, f"{NAMESPACE}/no-such", slot),
    )  # fmt: skip
    with following(ApiLook(posted.post, CLOCK, access_of(subject)), *questions):
        found = _facts(posted, ListConfirmed, LeaseRead, OwnerRead)
    confirmed, lease, owner = (found[kind] for kind in (ListConfirmed, LeaseRead, OwnerRead))
    assert isinstance(confirmed, ListConfirmed)
    assert isinstance(confirmed.result, Seen)
    assert uid_of(app) in confirmed.result.value
    assert isinstance(lease, LeaseRead)
    assert isinstance(lease.result, Seen)
    assert isinstance(owner, OwnerRead)
    assert isinstance(owner.result, Unknown)
    assert "403" in owner.result.why


def test_the_kernel_tells_of_processes_and_of_their_end(subject: Subject) -> None:
    posted = Posted()
    made = subject.run(subject.pod())
    uid = uid_of(made)
    source = KernelSource(posted.post, CLOCK, subject.tree)
    with following(source, ask(Topic.PROCESSES, uid)):
        posted.wait_for(ProcessesRead, lambda one: _busy(one, uid) == 1)
        subject.delete_pod(made["metadata"]["name"])
        posted.wait_for(ProcessesRead, lambda one: _busy(one, uid) == 0, 30)


def test_the_machine_tells_of_kubelet_runtime_and_route(subject: Subject) -> None:
    posted = Posted()
    source = MachineSource(posted.post, CLOCK, subject.procfs)
    with following(source, ask(Topic.MACHINE), ask(Topic.ROUTE)):
        found = _facts(posted, MachineRead, RouteRead)
    machine, route = found[MachineRead], found[RouteRead]
    assert isinstance(machine, MachineRead)
    assert isinstance(machine.result, Seen)
    assert machine.result.value.kubelet == subject.kubelet
    assert machine.result.value.runtime_present
    assert isinstance(route, RouteRead)
    assert isinstance(route.result, Seen)
    assert route.result.value


def test_pid_1_is_up(subject: Subject) -> None:
    posted = Posted()
    paths = subject.paths
    query = ManagerQuery(CLOCK, subject.procfs, paths.manager_socket, paths.run)
    with following(ManagerSource(posted.post, CLOCK, query), ask(Topic.MANAGER)):
        told = posted.wait_for(ManagerRead)
    assert isinstance(told.result, Seen)
    assert told.result.value in {"running", "degraded"}
    assert not told.frozen_file


def test_the_runtime_tells_of_pods_and_images(subject: Subject, app: Object) -> None:
    posted = Posted()
    source = RuntimeSource(posted.post, CLOCK, lambda: subject.kubelet.cri_socket)
    with following(source, ask(Topic.RUNTIME), ask(Topic.IMAGES)):
        found = _facts(posted, RuntimeRead, ImagesRead)
    runtime, images = found[RuntimeRead], found[ImagesRead]
    assert isinstance(runtime, RuntimeRead)
    assert isinstance(runtime.result, Seen)
    assert uid_of(app) in {sandbox.uid for sandbox in runtime.result.value.sandboxes}
    assert isinstance(images, ImagesRead)
    assert isinstance(images.result, Seen)
    assert app["spec"]["containers"][0]["image"] in images.result.value


def test_the_kubelet_lists_pods_by_its_socket_and_says_not_to_a_node_what_runs(
    subject: Subject, app: Object
) -> None:
    posted = Posted()
    node = Kubeconfig(subject.kubeconfig)
    finder = ClientFinder(KubeletSettings(), lambda: subject.kubelet, node.read)
    source = KubeletSource(posted.post, CLOCK, finder)
    with following(source, ask(Topic.KUBELET_LIST), ask(Topic.RUNNING_PODS)):
        found = _facts(posted, KubeletListRead, RunningPodsRead)
    listed, running = found[KubeletListRead], found[RunningPodsRead]
    assert isinstance(listed, KubeletListRead)
    assert isinstance(listed.result, Seen)
    assert (NAMESPACE, app["metadata"]["name"]) in listed.result.value
    assert isinstance(running, RunningPodsRead)
    assert isinstance(running.result, Unknown)
    assert "403" in running.result.why


def test_the_static_pod_directory_is_seen_to_change_at_once(
    subject: Subject, tmp_path: Path
) -> None:
    posted = Posted()
    source = ManifestSource(
        posted.post,
        CLOCK,
        directory=lambda: subject.kubelet.manifest_dir,
        overrides=(tmp_path, lambda: OverridesRead({})),
        run=subject.paths.run if subject.paths.run.exists() else tmp_path,
        frozen_changed=lambda: None,
    )
    with following(source):
        posted.wait_for(ManifestsRead)
        path = subject.place("contract-seen.json", {"kind": "Pod", "metadata": {"name": "x"}})
        told = posted.wait_for(ManifestsRead, lambda one: path.name in _files(one), 5)
        assert isinstance(told.result, Seen)
        assert told.result.value[path.name].pod_name == "x"
        path.unlink()
        posted.wait_for(ManifestsRead, lambda one: path.name not in _files(one), 5)


def test_a_parents_copy_is_made_of_the_kubelets_files(subject: Subject, app: Object) -> None:
    posted = Posted()
    marked = {
        **app,
        "metadata": {**app["metadata"], "annotations": {"checkpointd.io/checkpoint": "true"}},
    }
    pod = pods.parse_pod(marked, Selection(), subject.node_name)
    around = Surroundings(
        find_pod=lambda _uid: pod,
        root=lambda: Path(subject.kubelet.root_dir),
        node=lambda: NodeFacts(node_name=subject.node_name),
        max_bytes=lambda: 1 << 20,
    )
    source = CandidateThread(posted.post, CLOCK, around)
    with following(source, ask(Topic.CANDIDATE, uid_of(app))):
        told = posted.wait_for(CandidateRead)
    assert isinstance(told.result, Seen), told
    assert isinstance(told.result.value, Candidate), told
    assert told.result.value.contents.keys() == {"files", "keys", "none"}
    (image_id,) = told.result.value.images.values()
    assert image_id == app["status"]["containerStatuses"][0]["imageID"]


def _facts(posted: Posted, *kinds: type[object]) -> dict[type[object], object]:
    """Wait for one fact of each kind, in any order."""
    found: dict[type[object], object] = {}
    while len(found) < len(kinds):
        one = posted.wait_for(object, lambda fact: type(fact) in kinds)
        found.setdefault(type(one), one)
    return found


def _uids(told: ApiPodsRead) -> frozenset[str]:
    return (
        frozenset(p.uid for p in told.result.value)
        if isinstance(told.result, Seen)
        else frozenset()
    )


def _is_ready(told: ApiPodsRead, uid: str) -> bool:
    found = told.result.value if isinstance(told.result, Seen) else ()
    return any(pod.ready and bool(pod.ready_containers) for pod in found if pod.uid == uid)


def _is_terminating(told: ApiPodsRead, uid: str) -> bool:
    found = told.result.value if isinstance(told.result, Seen) else ()
    return any(pod.terminating for pod in found if pod.uid == uid)


def _busy(told: ProcessesRead, uid: str) -> int:
    """Count the leaves with processes other than a pause."""
    if not isinstance(told.result, Seen):
        return -1
    return sum(bool(leaf.pids) and not leaf.only_pause for leaf in told.result.value[uid].leaves)


def _files(told: ManifestsRead) -> frozenset[str]:
    return frozenset(told.result.value) if isinstance(told.result, Seen) else frozenset()
