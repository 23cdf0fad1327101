"""Turn wanted and actual state into actions: a diff, made anew in each cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from checkpointd.decide import heir, runs
from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene
from checkpointd.model.checkpoint import Activation, Checkpoint, Generation, Phase
from checkpointd.model.decision import (
    Action,
    PlaceManifest,
    PruneGenerations,
    RemoveActive,
    RemoveManifest,
    RemoveStore,
    SaveCheckpoint,
    StopCopy,
    WriteGeneration,
)
from checkpointd.model.evidence import Order
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import ManifestFile, Observation

BOUNDED_GRACE = 1
"""Seconds for a copy that is slow to end: the parent's second try comes 1 s after the first."""


def diff(
    before: Checkpoint | None, after: Checkpoint, findings: Findings | None, scene: Scene
) -> tuple[Action, ...]:
    """Return what brings disk, static-pod directory and runtime from ``before`` to ``after``."""
    blocked = _is_blocked(findings, scene)
    actions: list[Action] = []
    if before is None and after.generations:
        # So that whose files these are is known before there is one of them.
        actions.append(SaveCheckpoint(after.slot, replace(after, generations=())))
    actions.extend(_generations(before, after, scene.observation))
    left = before.activation if before is not None else None
    if left is not None and (after.activation is None or after.activation.uid != left.uid):
        actions.append(RemoveActive(after.slot, left.uid))
    if after != before:
        actions.append(SaveCheckpoint(after.slot, after))
    if not blocked:
        actions.extend(_manifests(before, after, scene.observation))
        actions.extend(_stops(after, scene))
    if before is not None and len(after.generations) < len(before.generations):
        keep = frozenset(generation.hash for generation in after.generations)
        actions.append(PruneGenerations(after.slot, keep))
    if after.phase is Phase.REMOVED and not blocked:
        actions.append(RemoveStore(after.slot))
    return tuple(actions)


def _is_blocked(findings: Findings | None, scene: Scene) -> bool:
    return scene.frozen or (findings is not None and findings.evidence.order is Order.HOLD)


def forget_checksum(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Checkpoint:
    """Forget the checksum of an active manifest that is to be put back.

    A newer program writes other bytes, which must not pass for an edit by hand.
    """
    activation, manifests = checkpoint.activation, scene.observation.manifests
    if activation is None or not checkpoint.phase.has_manifest or isinstance(manifests, Unknown):
        return checkpoint
    if activation.file in manifests.value or _is_blocked(findings, scene):
        return checkpoint
    return replace(checkpoint, activation=replace(activation, sha256=""))


def _generations(
    before: Checkpoint | None, after: Checkpoint, observation: Observation
) -> Iterator[Action]:
    known = {g.hash for g in before.generations} if before is not None else set[str]()
    for generation in after.generations:
        candidate = find_candidate(generation, observation)
        if generation.hash not in known and candidate is not None:
            yield WriteGeneration(after.slot, candidate.parent_uid, generation.hash)


def find_candidate(generation: Generation, observation: Observation) -> Candidate | None:
    """Return the candidate of which this generation is made."""
    for reading in observation.candidates.values():
        found = reading.value if isinstance(reading, Seen) else None
        if isinstance(found, Candidate) and found.hash == generation.hash:
            return found
    return None


# ---- the static-pod directory ----------
def _manifests(
    before: Checkpoint | None, after: Checkpoint, observation: Observation
) -> Iterator[Action]:
    activation = after.activation
    ours = our_manifests(after, observation)
    wanted = activation if after.phase.has_manifest else None
    if wanted is not None and _is_to_be_placed(wanted, before, observation):
        yield PlaceManifest(after.slot, wanted)
    names = {file.name for file in ours if wanted is None or file.name != wanted.file}
    if after.phase.is_stopping and activation is not None and _is_to_go(before, after, observation):
        names.add(activation.file)
    for name in sorted(names):
        is_copy = activation is not None and activation.file == name
        yield RemoveManifest(after.slot, name, activation.name if activation and is_copy else "")


def _is_to_go(before: Checkpoint | None, after: Checkpoint, observation: Observation) -> bool:
    """Tell whether the manifest of a copy that stops is there, in whatever words; or may be."""
    match observation.manifests:
        case Unknown():
            return _had_manifest(before)
        case Seen(files):
            file = files.get(after.activation.file) if after.activation else None
            # Where it is not seen it may be newer than the last look.
            return _had_manifest(before) if file is None else holds_copy(file, after)


def holds_copy(file: ManifestFile, checkpoint: Checkpoint) -> bool:
    """Tell whether the file that was placed for a copy is still its own, even if edited by hand.

    Another pod's manifest in its place is not ours to touch; what is no pod at all is.
    """
    activation = checkpoint.activation
    if activation is None or not file.sha256:
        return False
    named = (file.namespace, file.pod_name) == (checkpoint.slot.namespace, activation.name)
    return file.ours or named or bool(file.problem)


def our_manifests(checkpoint: Checkpoint, observation: Observation) -> tuple[ManifestFile, ...]:
    """Return the manifests of this slot that lie in the static-pod directory."""
    if isinstance(observation.manifests, Unknown):
        return ()
    files = observation.manifests.value.values()
    return tuple(file for file in files if file.ours and file.slot == checkpoint.slot)


def _is_to_be_placed(
    wanted: Activation, before: Checkpoint | None, observation: Observation
) -> bool:
    """Tell whether the manifest is not there; one that was removed by hand is put back."""
    is_new = before is None or before.activation is None or before.activation.uid != wanted.uid
    match observation.manifests:
        case Unknown():
            return is_new or not wanted.sha256
        case Seen(files):
            return wanted.file not in files


def _had_manifest(before: Checkpoint | None) -> bool:
    return before is not None and before.phase.has_manifest


# ---- the runtime ----------
def _stops(checkpoint: Checkpoint, scene: Scene) -> Iterator[Action]:
    """Rule 9: stop for sure, at once where the kubelet will not, else when it is late."""
    activation = checkpoint.activation
    runtime = scene.observation.runtime
    if activation is None or not checkpoint.phase.is_stopping or isinstance(runtime, Unknown):
        return
    alive = runs.running_containers(runtime.value, activation.uid) or runs.has_ready_sandbox(
        runtime.value, activation.uid
    )
    if not alive:
        return
    grace = activation.grace_seconds
    if heir.is_bounded(checkpoint):
        yield StopCopy(checkpoint.slot, activation.uid, min(grace, BOUNDED_GRACE))
        return
    late = scene.timers.passed(checkpoint.stopped_at, grace + scene.policy.times.stop_extra)
    seen = isinstance(scene.observation.machine, Seen)
    if late or (seen and not scene.source_ready):
        yield StopCopy(checkpoint.slot, activation.uid, grace)
