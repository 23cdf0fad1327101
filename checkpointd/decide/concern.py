"""Cut what was observed down to what concerns one slot: nothing else may decide about it.

What another pod does then cannot change what was decided here; as long as nothing of this part
changes, it holds (``slots``). And each slot looks at the few containers that are its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from checkpointd.decide import follow
from checkpointd.decide import scene as scenes
from checkpointd.decide.scene import Scene
from checkpointd.model import naming
from checkpointd.model.checkpoint import Checkpoint
from checkpointd.model.evidence import Order
from checkpointd.model.files import Candidate, Refused
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import (
    Container,
    Observation,
    OwnerWord,
    PodProcesses,
    Runtime,
    Sandbox,
)
from checkpointd.model.pods import ApiPod, Slot

T = TypeVar("T")
K = TypeVar("K")


# ---- found once per decision ----------
@dataclass(frozen=True, slots=True)
class Index:
    """Hold what one look at the runtime showed, by pod UID; sandboxes also by their id."""

    reading: Seen[Runtime] | Unknown
    sandboxes: Mapping[str, tuple[Sandbox, ...]]
    containers: Mapping[str, tuple[Container, ...]]
    by_id: Mapping[str, Sandbox]


@dataclass(frozen=True, slots=True)
class Basis:
    """Hold what a decision rests on; ``common`` is what of ``scene`` concerns each slot."""

    scene: Scene
    common: Scene
    index: Index
    listed: Mapping[Slot, tuple[ApiPod, ...]]

    def of_slot(self, slot: Slot, stored: Checkpoint | None) -> Scene:
        """Return a slot's own scene."""
        return narrow(self, slot, share(slot, stored, self.scene, self.listed.get(slot, ())))


def make_basis(
    scene: Scene, listed: Mapping[Slot, tuple[ApiPod, ...]], last: Index | None
) -> Basis:
    """Find what concerns every slot; ``last`` is taken over where it is of the same look."""
    reading = scene.observation.runtime
    index = last if last is not None and last.reading is reading else _index(reading)
    return Basis(scene, _common(scene), index, listed)


def group_by_slot(pods: Iterable[ApiPod]) -> Mapping[Slot, tuple[ApiPod, ...]]:
    """Return the pods of each slot."""
    return _group((pod.slot, pod) for pod in pods)


def _index(reading: Seen[Runtime] | Unknown) -> Index:
    runtime = reading.value if isinstance(reading, Seen) else None
    sandboxes = runtime.sandboxes if runtime is not None else ()
    containers = runtime.containers if runtime is not None else ()
    return Index(
        reading=reading,
        sandboxes=_group((sandbox.uid, sandbox) for sandbox in sandboxes),
        containers=_group((container.uid, container) for container in containers),
        by_id={sandbox.id: sandbox for sandbox in sandboxes},
    )


def _group(pairs: Iterable[tuple[K, T]]) -> Mapping[K, tuple[T, ...]]:
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


def _common(scene: Scene) -> Scene:
    """Return the scene without pods, and without moments of reading from which nothing follows.

    So that a further look at what has not changed changes nothing here.
    """
    seen = scene.observation
    observation = replace(
        seen,
        api_contact=replace(seen.api_contact, answered_at=None),
        api_pods=_emptied(seen.api_pods),
        owners={},
        candidates={},
        ready_since={},
        world=_timeless(seen.world),
        machine=_timeless(seen.machine),
        running_pods=_timeless(seen.running_pods),
        images=_timeless(seen.images),
        manifests=_timeless(seen.manifests),
        default_route=_timeless(seen.default_route),
        manager_state=_timeless(seen.manager_state),
    )
    return replace(scene, observation=observation, pods={}, wall="")


def _emptied(pods: Seen[tuple[ApiPod, ...]] | Unknown) -> Seen[tuple[ApiPod, ...]] | Unknown:
    """Return that pods were listed, without any; when the list changed last is nobody's concern."""
    if isinstance(pods, Unknown):
        return pods
    never = Instant(boot_id=pods.at.boot_id, seconds=0.0)
    return Seen((), never, never)


def _timeless(reading: Seen[T] | Unknown) -> Seen[T] | Unknown:
    if isinstance(reading, Unknown) or reading.at is reading.since:
        return reading
    return Seen(reading.value, reading.since, reading.since)


# ---- of one slot ----------
@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Hold what concerns one slot alone; ``uids`` are those of parent, successor, copy and listed.

    ``pods``, ``ready_since`` and ``candidates`` are in the order of ``uids``.
    """

    stored: Checkpoint | None
    uids: tuple[str, ...]
    listed: tuple[ApiPod, ...]
    pods: tuple[ApiPod | None, ...]
    ready_since: tuple[Instant | None, ...]
    candidates: tuple[Seen[Candidate | Refused] | Unknown | None, ...]
    owner: Seen[OwnerWord] | Unknown | None
    order: Order


def share(slot: Slot, stored: Checkpoint | None, scene: Scene, listed: tuple[ApiPod, ...]) -> Share:
    """Return the slot's share; ``listed`` are the API's pods of the slot."""
    known = follow.pod_uids(stored) if stored is not None else frozenset[str]()
    uids = tuple(sorted(known.union(pod.uid for pod in listed)))
    seen = scene.observation
    return Share(
        stored=stored,
        uids=uids,
        listed=listed,
        pods=tuple(map(scene.pods.get, uids)),
        ready_since=tuple(map(seen.ready_since.get, uids)),
        candidates=tuple(map(seen.candidates.get, uids)),
        owner=seen.owners.get(slot),
        order=scenes.find_order(seen, naming.override_name(slot.namespace, slot.name), scene.wall),
    )


def narrow(basis: Basis, slot: Slot, mine: Share) -> Scene:
    """Return the scene of one slot: its own pods, containers, processes, and deadlines."""
    seen = basis.common.observation
    pods = {pod.uid: pod for pod in mine.pods if pod is not None}
    processes = _processes(seen, mine.uids)
    observation = replace(
        seen,
        owners={slot: mine.owner} if mine.owner is not None else {},
        candidates=_known(mine.uids, mine.candidates),
        ready_since=_known(mine.uids, mine.ready_since),
        processes=processes,
        runtime=_runtime(seen.runtime, mine.uids, processes, basis.index),
    )
    return replace(
        basis.common,
        observation=observation,
        pods=pods,
        order=mine.order,
        timers=basis.common.timers.fresh(),
    )


def _known(uids: Iterable[str], values: Iterable[T | None]) -> Mapping[str, T]:
    return {uid: value for uid, value in zip(uids, values, strict=True) if value is not None}


def _processes(
    seen: Observation, uids: Iterable[str]
) -> Seen[Mapping[str, PodProcesses]] | Unknown:
    reading = seen.processes
    if isinstance(reading, Unknown):
        return reading
    mine = {uid: reading.value[uid] for uid in uids if uid in reading.value}
    return Seen(mine, reading.at, reading.since)


def _runtime(
    reading: Seen[Runtime] | Unknown,
    uids: Iterable[str],
    processes: Seen[Mapping[str, PodProcesses]] | Unknown,
    found: Index,
) -> Seen[Runtime] | Unknown:
    """Keep what is the slot's own, and any sandbox whose cgroup lies in one of its pods'."""
    if isinstance(reading, Unknown):
        return reading
    sandboxes = [sandbox for uid in uids for sandbox in found.sandboxes.get(uid, ())]
    leaves = processes.value.values() if isinstance(processes, Seen) else ()
    ids = {leaf.id for pod in leaves for leaf in pod.leaves} - {one.id for one in sandboxes}
    sandboxes += [found.by_id[one] for one in sorted(ids) if one in found.by_id]
    mine = replace(
        reading.value,
        sandboxes=tuple(sandboxes),
        containers=tuple(c for uid in uids for c in found.containers.get(uid, ())),
    )
    return Seen(mine, reading.at, reading.since)
