"""Find what has no checkpoint yet: marked pods, and active manifests that the store lacks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from checkpointd.decide import explain, follow, slots
from checkpointd.decide.concern import Basis
from checkpointd.decide.scene import Scene
from checkpointd.decide.slots import SlotPlan
from checkpointd.model.checkpoint import Stored
from checkpointd.model.decision import Fault
from checkpointd.model.evidence import Api
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Seen
from checkpointd.model.observation import ManifestFile
from checkpointd.model.pods import ApiPod, Slot


def find(stored: Stored, scene: Scene) -> tuple[ApiPod, ...]:
    """Return the marked pods whose slot has no checkpoint yet, oldest first, one per slot."""
    if scene.api is not Api.TRUSTED:
        return ()
    adopted = follow.orphans(stored, scene.observation)
    waiting = [
        pod
        for pod in scene.pods.values()
        if pod.marked and not pod.terminating and not pod.is_finished
        if pod.slot not in stored.checkpoints and pod.slot not in adopted
    ]
    found: dict[Slot, ApiPod] = {}
    for pod in sorted(waiting, key=lambda pod: (pod.created, pod.uid)):
        found.setdefault(pod.slot, pod)
    return tuple(found.values())


def plan(stored: Stored, waiting: tuple[ApiPod, ...], basis: Basis) -> Iterator[SlotPlan | Fault]:
    """Plan what is stored first in this cycle: as many in each namespace as it may have."""
    for slot, file in sorted(follow.orphans(stored, basis.scene.observation).items()):
        yield slots.guard(slot, partial(_adopt, slot, file, basis))
    used = count_used(stored)
    for pod in waiting:
        count = used.get(pod.namespace, 0)
        if count >= basis.scene.policy.selection.max_pods:
            continue
        planned = slots.guard(pod.slot, partial(_store, pod, basis))
        if planned is not None:
            used[pod.namespace] = count + 1
            yield planned


def count_used(stored: Stored) -> dict[str, int]:
    """Count the checkpoints of each namespace."""
    used: dict[str, int] = {}
    for slot in stored.checkpoints:
        used[slot.namespace] = used.get(slot.namespace, 0) + 1
    return used


def _adopt(slot: Slot, file: ManifestFile, basis: Basis) -> SlotPlan:
    scene = basis.of_slot(slot, None)
    return slots.plan_first(follow.adopt(file, slot, scene.now), scene)


def _store(pod: ApiPod, basis: Basis) -> SlotPlan | None:
    """Plan a pod's first checkpoint; None where there is nothing to store yet (rule 2)."""
    scene = basis.of_slot(pod.slot, None)
    reading = scene.observation.candidates.get(pod.uid)
    if not isinstance(reading, Seen) or not isinstance(reading.value, Candidate):
        return None
    if follow.lacks_bytes(reading.value) or not explain.is_seen_here(pod, scene):
        return None
    return slots.plan_first(follow.new_checkpoint(pod, reading.value, scene.now), scene)
