"""Build observations, checkpoints and pods: a quiet node where all is well, but for what is stated.

The node: booted at 0 s, kubelet since 10 s, everything seen since 20 s, now is 1000 s. The API
server answers and is trusted; it lists the pods that a test names, and nothing runs but what the
test says runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from checkpointd.decide import decide
from checkpointd.model import naming
from checkpointd.model.checkpoint import (
    Activation,
    Checkpoint,
    Generation,
    NodeRecord,
    Phase,
    Stored,
    Word,
    generation_of,
)
from checkpointd.model.decision import Action, Decision, PlaceManifest, SaveCheckpoint
from checkpointd.model.files import Candidate, CopyKind, Refused
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import (
    ApiContact,
    Container,
    ContainerState,
    KubeletList,
    KubeletProcess,
    Leaf,
    MachineProcesses,
    ManifestFile,
    Observation,
    PodName,
    PodProcesses,
    Runtime,
    Sandbox,
    World,
)
from checkpointd.model.pods import ApiPod, Controller, Slot, slot_for
from checkpointd.model.policy import Policy

BOOT = "boot-1"
NODE = "node-1"
NAMESPACE = "kube-system"
POLICY = Policy(node_name=NODE)
DAEMON_SET = Controller(api_version="apps/v1", kind="DaemonSet", name="api", uid="ds-uid")
REPLICA_SET = Controller(api_version="apps/v1", kind="ReplicaSet", name="web", uid="rs-uid")
COPY_UID = "c0c0c0c0-0000-4000-8000-000000000001"
WALL = "2026-01-01T00:00:00Z"


def at(seconds: float, boot: str = BOOT) -> Instant:
    """Return a moment of this boot."""
    return Instant(boot_id=boot, seconds=seconds, wall=WALL)


NOW = at(1000)
WALL_NS = int(datetime.fromisoformat(WALL.replace("Z", "+00:00")).timestamp()) * 10**9


def seen(value: Any, since: float = 20, read: float = 999) -> Seen[Any]:
    """Return an answer that has been the same since ``since``."""
    return Seen(value, at(read), at(since))


def unknown(why: str = "down", since: float = 900) -> Unknown:
    """Return the lack of an answer."""
    return Unknown(why, at(since))


# ---- pods ----------------------------------------------------------------------------------------
def pod(name: str = "api-1", **fields: Any) -> ApiPod:
    """Return a marked, running, ready pod of the DaemonSet; ``controller=None`` for a bare one."""
    controller = fields.get("controller", DAEMON_SET)
    namespace = fields.get("namespace", NAMESPACE)
    plain = ApiPod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        slot=slot_for(namespace, name, controller),
        controller=controller,
        created="2026-01-01T00:00:01Z",
        marked=True,
        mark_note="",
        terminating=False,
        phase="Running",
        reason="",
        ready=True,
        started="2026-01-01T00:00:05Z",
        images=("registry.example/api:1",),
        restart_policy="Always",
        grace_seconds=30,
        activation_priority=0,
        raw={},
    )
    known = replace(plain, **fields)
    if "ready_containers" in fields or not known.ready:
        return known
    return replace(known, ready_containers=frozenset({f"container-{known.uid}"}))


def word(of: ApiPod | str = "api-1", **fields: Any) -> Word:
    """Return the API's word on a pod: bound here, running, marked."""
    known = pod(of) if isinstance(of, str) else of
    plain = Word(
        uid=known.uid,
        name=known.name,
        bound=True,
        terminating=known.terminating,
        phase=known.phase,
        reason=known.reason,
        marked=known.marked,
        at=at(30),
        created=known.created,
        controller=known.controller,
    )
    return replace(plain, **fields)


# ---- checkpoints ---------------------------------------------------------------------------------
def candidate(of: ApiPod | None = None, **fields: Any) -> Candidate:
    """Return the rendering of a pod without files."""
    known = of or pod()
    plain = Candidate(
        slot=known.slot,
        parent_uid=known.uid,
        parent_name=known.name,
        hash="g1",
        spec_hash="s1",
        manifest={},
        contents={},
        files=(),
        placed="",
        kind=CopyKind.EXCLUSIVE,
        images={},
        grace_seconds=30,
        hostname="",
        warnings=(),
    )
    return replace(plain, **fields)


def generation(hash_: str = "g1", number: int = 1, **fields: Any) -> Generation:
    """Return a proven generation."""
    made = generation_of(candidate(hash=hash_), number, at(100))
    return replace(made, **{"spec_proven": True, "content_proven": True, **fields})


def activation(**fields: Any) -> Activation:
    """Return the activation of a copy, offered at 500 s."""
    plain = Activation(
        number=1,
        name="api-1-c0c0c0",
        uid=COPY_UID,
        generation="g1",
        file=naming.manifest_file(NAMESPACE, "api-1-c0c0c0"),
        offered=at(500),
        grace_seconds=30,
        sha256="sha",
        rule="3a",
    )
    return replace(plain, **fields)


def checkpoint(parent: Word | ApiPod | str = "api-1", **fields: Any) -> Checkpoint:
    """Return a checkpoint: stored, exclusive, ran in this boot; an active phase has a copy."""
    who = parent if isinstance(parent, Word) else word(parent)
    phase: Phase = fields.get("phase", Phase.STORED)
    copy = activation() if phase.is_active else None
    plain = Checkpoint(
        slot=slot_for(NAMESPACE, who.name, who.controller),
        phase=phase,
        since=at(500),
        parent=who,
        successor=None,
        kind=CopyKind.EXCLUSIVE,
        serves_api=False,
        activation_priority=0,
        ran_in_boot=BOOT,
        sandbox_ids=(),
        generations=(generation(kind=fields.get("kind", CopyKind.EXCLUSIVE)),),
        activation=copy,
        activations=1 if copy else 0,
        owner_word=None,
        owner_word_since=None,
        gone_since=None,
        stopped_at=at(500) if phase.is_stopping else None,
        stop_seconds=None,
        attempts_at_stop=0,
        not_before=None,
        retry_step=0,
        failed_heir="",
        restart_marked=False,
        refusal="",
        history=(),
    )
    return replace(plain, **fields)


def node_record(**fields: Any) -> NodeRecord:
    """Return node.json of the world that ``world()`` is."""
    plain = NodeRecord(
        node_name=NODE,
        boot_id=BOOT,
        anchor="service",
        anchor_uid="service-uid",
        node_uid="node-uid",
        in_contact=True,
        contact_changed=at(30),
        node_deleted_since=None,
        all_gone_since=None,
        discovered={},
    )
    return replace(plain, **fields)


def stored(*checkpoints: Checkpoint, node: NodeRecord | None = None) -> Stored:
    """Return a store of these checkpoints in the known world."""
    return Stored(node=node or node_record(), checkpoints={c.slot: c for c in checkpoints})


# ---- what sources say ----------------------------------------------------------------------------
def world(**fields: Any) -> World:
    """Return the known world."""
    plain = World(anchor="service", anchor_uid="service-uid", node_uid="node-uid", node_found=True)
    return replace(plain, **fields)


def contact(*, reached: bool = True, since: float = 40, **fields: Any) -> ApiContact:
    """Return contact with the API server, or its loss at ``since``."""
    if reached:
        plain = ApiContact(
            reached=True, reached_since=at(since), answers_since=at(since), answered_at=at(999)
        )
    else:
        plain = ApiContact(
            reached=False, reached_since=at(since), unknown_since=at(since), failures=9, why="down"
        )
    return replace(plain, **fields)


def kubelet(started: float = 10, pid: int = 100, **fields: Any) -> KubeletProcess:
    """Return the running kubelet."""
    plain = KubeletProcess(
        pid=pid,
        started=at(started),
        version="v1.30.0",
        node_name=NODE,
        manifest_dir="/etc/kubernetes/manifests",
        root_dir="/var/lib/kubelet",
        cri_socket="/run/containerd/containerd.sock",
        kubeconfig="/etc/kubernetes/kubelet.conf",
        read_only_port=0,
        port=10250,
        healthz_port=10248,
        address="",
        cgroup_root="/",
    )
    return replace(plain, **fields)


def machine(process: KubeletProcess | None = None, *, runtime: bool = True) -> MachineProcesses:
    """Return the processes that can start containers."""
    return MachineProcesses(kubelet=process, runtime_present=runtime)


def listing(*names: str, since: float = 20) -> KubeletList:
    """Return the kubelet's list, with these pods of kube-system."""
    pods: frozenset[PodName] = frozenset((NAMESPACE, name) for name in names)
    return KubeletList(
        pods=pods, answering_since=at(since), last_listed=dict.fromkeys(pods, at(999))
    )


def sandbox(uid: str, *, ready: bool = True, **fields: Any) -> Sandbox:
    """Return a pod sandbox."""
    plain = Sandbox(
        id=f"sandbox-{uid}",
        namespace=NAMESPACE,
        name=uid,
        uid=uid,
        attempt=0,
        ready=ready,
        created_ns=WALL_NS,
        config_source="api",
        checkpoint_of="",
    )
    return replace(plain, **fields)


def container(uid: str, state: ContainerState = ContainerState.RUNNING, **fields: Any) -> Container:
    """Return a container."""
    plain = Container(
        id=f"container-{uid}",
        sandbox_id=f"sandbox-{uid}",
        uid=uid,
        name="main",
        attempt=0,
        state=state,
        created_ns=WALL_NS,
        image="registry.example/api:1",
        image_ref="",
    )
    return replace(plain, **fields)


def runtime(
    *running: str, sandboxes: Iterable[Sandbox] = (), containers: Iterable[Container] = ()
) -> Runtime:
    """Return the runtime's picture: these UIDs run, and what is stated besides."""
    return Runtime(
        version="containerd 1.7",
        api="runtime.v1",
        sandboxes=(*(sandbox(uid) for uid in running), *sandboxes),
        containers=(*(container(uid) for uid in running), *containers),
    )


def processes(*pods: PodProcesses) -> Mapping[str, PodProcesses]:
    """Return the kernel's view."""
    return {each.uid: each for each in pods}


def alive(uid: str, *pids: int, only_pause: bool = False, leaf: str = "") -> PodProcesses:
    """Return a pod's cgroup with live processes; without pids it is empty."""
    leaves = (Leaf(id=leaf or f"container-{uid}", pids=pids, only_pause=only_pause),)
    return PodProcesses(uid=uid, leaves=leaves if pids else ())


def manifest(of: Checkpoint, **fields: Any) -> ManifestFile:
    """Return the active manifest of a checkpoint as it lies in the directory."""
    copy = of.activation or activation()
    plain = ManifestFile(
        name=copy.file,
        sha256=copy.sha256 or "sha",
        namespace=of.slot.namespace,
        pod_name=copy.name,
        uid=copy.uid,
        ours=True,
        slot=of.slot,
        generation=copy.generation,
        activation=copy.number,
        parent_uid=of.parent.uid,
        parent_name=of.parent.name,
    )
    return replace(plain, **fields)


def manifests(*of: Checkpoint) -> Mapping[str, ManifestFile]:
    """Return the directory with the manifests of these checkpoints."""
    return {file.name: file for file in (manifest(each) for each in of)}


def observation(
    *pods: ApiPod, api: ApiContact | Unknown | None = None, **fields: Any
) -> Observation:
    """Return a quiet node; the API lists ``pods``; ``api=unknown()`` is its loss at that time.

    ``runtime``, ``kubelet_list`` and the like may be given plain or as Seen or Unknown.
    """
    reach = contact(reached=False, since=api.since.seconds) if isinstance(api, Unknown) else api
    reach = reach or contact()
    lost = Unknown("down", reach.reached_since)
    plain: dict[str, Any] = {
        "world": seen(world()) if reach.reached else lost,
        "api_pods": seen(pods) if reach.reached else lost,
        "confirmed_uids": unknown("not yet read", 20),
        "lease": unknown("not yet read", 20),
        "machine": seen(machine(kubelet())),
        "kubelet_list": seen(listing(*(each.name for each in pods))),
        "running_pods": unknown("not yet read", 20),
        "runtime": seen(runtime()),
        "images": unknown("not yet read", 20),
        "processes": unknown("not yet read", 20),
        "manifests": seen({}),
        "default_route": seen(True),
        "manager_state": seen("running"),
    }
    for name, value in fields.items():
        plain[name] = seen(value) if name in plain and not _is_reading(value) else value
    quiet: dict[str, Any] = {
        "owners": {},
        "frozen_file": False,
        "overrides": {},
        "candidates": {},
        "ready_since": {each.uid: at(20) for each in pods if each.ready},
        "had_processes": frozenset(),
        "kubelet_in_boot": True,
        "available": {"runtime": at(20)},
    }
    return Observation(boot_id=BOOT, started=at(15), api_contact=reach, **{**quiet, **plain})


OFFLINE_KUBELET = machine(kubelet(started=920))
"""A kubelet that was started after the API server was lost (at 900 s): it manages nothing."""


def silent(**fields: Any) -> Observation:
    """Return a node whose API is Unknown since 900 s; the kubelet, started since, lists nothing."""
    plain: dict[str, Any] = {"machine": OFFLINE_KUBELET, "kubelet_list": listing(since=921)}
    return observation(api=unknown(since=900), **{**plain, **fields})


def _is_reading(value: object) -> bool:
    return isinstance(value, (Seen, Unknown))


# ---- what is decided -----------------------------------------------------------------------------
def run(
    seen_: Observation, *checkpoints: Checkpoint, now: Instant = NOW, policy: Policy = POLICY
) -> Decision:
    """Decide on these checkpoints in the known world."""
    return decide(seen_, stored(*checkpoints), policy, now)


def effects(decision: Decision) -> tuple[type[Action], ...]:
    """Return the kinds of action, node.json aside, in order."""
    return tuple(type(action) for action in decision.actions if action.slot is not None)


def started(decision: Decision) -> frozenset[Slot]:
    """Return the slots of which a copy is started."""
    return frozenset(a.slot for a in decision.actions if isinstance(a, PlaceManifest))


def saved(decision: Decision, slot: Slot | None = None) -> Checkpoint | None:
    """Return the checkpoint that is saved, None where nothing is."""
    found = [a.checkpoint for a in decision.actions if isinstance(a, SaveCheckpoint)]
    return next((each for each in found if slot is None or each.slot == slot), None)


def phase_of(decision: Decision, before: Checkpoint) -> Phase:
    """Return the phase that the slot has after the decision."""
    after = saved(decision, before.slot)
    return before.phase if after is None else after.phase


def refused(of: ApiPod) -> Refused:
    """Return a rendering that was refused."""
    return Refused(parent_uid=of.uid, refusals=())
