"""Bring a checkpoint in step with what was observed, before the table looks at it.

These changes are words and records: they are made while frozen or held as well, and have no effect
on manifests or on the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from checkpointd.decide import runs, words
from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene, parse_wall
from checkpointd.model.checkpoint import (
    Activation,
    Checkpoint,
    Phase,
    Stored,
    Word,
    generation_of,
)
from checkpointd.model.evidence import Api, Is, Want
from checkpointd.model.files import Candidate, CopyKind, Refused
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import ManifestFile, Observation
from checkpointd.model.pods import ApiPod, Slot

MAX_SANDBOX_IDS = 20
ADOPTED_GRACE = 30
"""Seconds: terminationGracePeriodSeconds defaults to 30 (pkg/apis/core/v1/defaults.go)."""


def follow_words(checkpoint: Checkpoint, scene: Scene, mine: tuple[ApiPod, ...]) -> Checkpoint:
    """Take over the API's word, when it is trusted, and what follows from it."""
    if scene.api is not Api.TRUSTED:
        unknown = scene.api in (Api.UNKNOWN, Api.DELETED_LAST, Api.FOREIGN, Api.NEVER)
        forget = unknown and checkpoint.gone_since is not None
        return replace(checkpoint, gone_since=None) if forget else checkpoint
    after = words.follow_list(checkpoint, mine, scene.now)
    wanted = words.find_want(after) is Want.HERE
    gone_since = None if wanted else _of_this_boot(after.gone_since, scene.now) or scene.now
    if gone_since != after.gone_since:
        after = replace(after, gone_since=gone_since)
    return _follow_owner(after, scene)


def _of_this_boot(instant: Instant | None, now: Instant) -> Instant | None:
    return instant if instant is not None and instant.boot_id == now.boot_id else None


def _follow_owner(checkpoint: Checkpoint, scene: Scene) -> Checkpoint:
    reading = scene.observation.owners.get(checkpoint.slot)
    if checkpoint.gone_since is None:
        if (checkpoint.owner_word, checkpoint.owner_word_since) == (None, None):
            return checkpoint
        return replace(checkpoint, owner_word=None, owner_word_since=None)
    if not isinstance(reading, Seen) or reading.at.is_before(checkpoint.gone_since):
        return checkpoint
    if reading.value is checkpoint.owner_word:
        return checkpoint
    return replace(checkpoint, owner_word=reading.value, owner_word_since=reading.at)


# ---- generations ----------
def follow_generations(checkpoint: Checkpoint, scene: Scene) -> Checkpoint:
    """Add the newest rendering; note which generations have run well.

    The successor's rendering is the newest where there is one: else two pods of one slot would
    renumber each other's in turn.
    """
    after = checkpoint
    for word in (checkpoint.successor, checkpoint.parent):
        reading = scene.observation.candidates.get(word.uid) if word is not None else None
        if isinstance(reading, Seen):
            after = _add(after, reading.value, scene.now)
            break
    for word in (checkpoint.parent, checkpoint.successor):
        if word is not None:
            after = _prove(after, word, scene)
    return _prune(after)


def _add(checkpoint: Checkpoint, candidate: Candidate | Refused, now: Instant) -> Checkpoint:
    if isinstance(candidate, Refused):
        return replace(checkpoint, refusal="; ".join(map(str, candidate.refusals)))
    known = checkpoint.generation(candidate.hash)
    newest = max((g.number for g in checkpoint.generations), default=0)
    if known is not None and known.number == newest:
        return replace(checkpoint, refusal="") if checkpoint.refusal else checkpoint
    others = tuple(g for g in checkpoint.generations if g.hash != candidate.hash)
    if known is not None:
        return replace(checkpoint, generations=(*others, replace(known, number=newest + 1)))
    if lacks_bytes(candidate):
        return checkpoint
    new = generation_of(candidate, newest + 1, now)
    proven = any(g.spec_proven for g in others if g.spec_hash == new.spec_hash)
    kind = checkpoint.kind if checkpoint.phase.is_active else candidate.kind
    return replace(
        checkpoint,
        generations=(*others, replace(new, spec_proven=proven)),
        kind=kind,
        refusal="",
    )


def lacks_bytes(candidate: Candidate) -> bool:
    """Tell whether the candidate's files were dropped because they were stored once."""
    return bool(candidate.contents) and not candidate.files


def _prove(checkpoint: Checkpoint, word: Word, scene: Scene) -> Checkpoint:
    """Rule 2: proven once a container that started after its files were in place was Ready 60 s."""
    reading = scene.observation.candidates.get(word.uid)
    if not isinstance(reading, Seen) or isinstance(reading.value, Refused):
        return checkpoint
    generation = checkpoint.generation(reading.value.hash)
    pod = scene.pods.get(word.uid)
    ready_since = scene.observation.ready_since.get(word.uid)
    if generation is None or generation.is_proven or pod is None or scene.api is not Api.TRUSTED:
        return checkpoint
    if not runs.is_ready_now(pod, scene.observation):
        return checkpoint
    if not scene.timers.passed(ready_since, scene.policy.times.proven_after):
        return checkpoint
    content = not generation.placed or _started_after(pod.started, generation.placed)
    proven = replace(
        generation, spec_proven=True, content_proven=content or generation.content_proven
    )
    if proven == generation:
        return checkpoint
    others = tuple(g for g in checkpoint.generations if g.hash != generation.hash)
    return replace(checkpoint, generations=(*others, replace(proven, failed=False)))


def _started_after(started: str, placed: str) -> bool:
    """Compare in whole seconds: the kubelet writes startedAt without fractions."""
    try:
        return parse_wall(started) >= parse_wall(placed).replace(microsecond=0)
    except ValueError:
        return False


def _prune(checkpoint: Checkpoint) -> Checkpoint:
    """Keep the newest, the last proven of two specs, and what is active (design, section 5)."""
    by_age = sorted(checkpoint.generations, key=lambda g: g.number, reverse=True)
    keep = {g.hash for g in by_age[:1]}
    specs: list[str] = []
    for generation in by_age:
        if generation.is_proven and generation.spec_hash not in specs and len(specs) < 2:
            specs.append(generation.spec_hash)
            keep.add(generation.hash)
    if checkpoint.activation is not None:
        keep.add(checkpoint.activation.generation)
    kept = tuple(g for g in checkpoint.generations if g.hash in keep)
    return checkpoint if len(kept) == len(by_age) else replace(checkpoint, generations=kept)


# ---- what was seen running ----------
def follow_running(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Checkpoint:
    """Record that it ran in this boot, its sandboxes, and whether it serves the API."""
    after = checkpoint
    boot = scene.observation.boot_id
    if findings.runs.answer is Is.YES and checkpoint.ran_in_boot != boot:
        after = replace(after, ran_in_boot=boot)
    after = _follow_end(_follow_sandboxes(after, scene.observation), findings, scene.now)
    return _follow_listener(after, scene)


def _follow_end(checkpoint: Checkpoint, findings: Findings, now: Instant) -> Checkpoint:
    """Record how long the copy took to end once its manifest was removed (rule 4)."""
    stopped = checkpoint.stopped_at
    if not checkpoint.phase.is_stopping or stopped is None or checkpoint.ended_at is not None:
        return checkpoint
    if findings.copy_runs.answer is not Is.NO:
        return checkpoint
    took = now.seconds_since(stopped) if stopped.boot_id == now.boot_id else None
    return replace(checkpoint, ended_at=now, stop_seconds=took)


def _follow_sandboxes(checkpoint: Checkpoint, observation: Observation) -> Checkpoint:
    if isinstance(observation.runtime, Unknown):
        return checkpoint
    uids = pod_uids(checkpoint)
    new = [
        sandbox.id
        for sandbox in observation.runtime.value.sandboxes
        if sandbox.uid in uids and sandbox.id not in checkpoint.sandbox_ids
    ]
    if not new:
        return checkpoint
    ids = (*checkpoint.sandbox_ids, *sorted(new))[-MAX_SANDBOX_IDS:]
    return replace(checkpoint, sandbox_ids=ids)


def pod_uids(checkpoint: Checkpoint) -> frozenset[str]:
    """Return the UIDs of parent, successor and copy."""
    uids = {checkpoint.parent.uid}
    if checkpoint.successor is not None:
        uids.add(checkpoint.successor.uid)
    if checkpoint.activation is not None:
        uids.add(checkpoint.activation.uid)
    return frozenset(uids)


def _follow_listener(checkpoint: Checkpoint, scene: Scene) -> Checkpoint:
    contact = scene.observation.api_contact
    if contact.answers_since is None or not contact.local or not contact.listening_pods:
        return checkpoint
    if pod_uids(checkpoint) & contact.listening_pods:
        return checkpoint if checkpoint.serves_api else replace(checkpoint, serves_api=True)
    lasting = scene.timers.passed(
        scene.observation.ready_since.get(checkpoint.parent.uid), scene.policy.times.proven_after
    )
    if checkpoint.serves_api and lasting and scene.api is Api.TRUSTED:
        return replace(checkpoint, serves_api=False)
    return checkpoint


def follow_manifest(checkpoint: Checkpoint, observation: Observation) -> Checkpoint:
    """Record the checksum of the active manifest once it is seen in the directory."""
    activation = checkpoint.activation
    if activation is None or activation.sha256 or isinstance(observation.manifests, Unknown):
        return checkpoint
    found = observation.manifests.value.get(activation.file)
    if found is None or found.uid != activation.uid:
        return checkpoint
    return replace(checkpoint, activation=replace(activation, sha256=found.sha256))


# ---- slots that are not stored yet ----------
def new_checkpoint(pod: ApiPod, candidate: Candidate, now: Instant) -> Checkpoint:
    """Make the first checkpoint of a slot."""
    return Checkpoint(
        slot=pod.slot,
        phase=Phase.STORED,
        since=now,
        parent=words.word_of(pod, now),
        kind=candidate.kind,
        activation_priority=pod.activation_priority,
        generations=(generation_of(candidate, 1, now),),
    )


def adopt(file: ManifestFile, slot: Slot, now: Instant) -> Checkpoint:
    """Make the checkpoint of an active manifest of ours that the store does not know."""
    parent = Word(
        uid=file.parent_uid,
        name=file.parent_name,
        bound=True,
        terminating=False,
        phase="",
        reason="adopted",
        marked=True,
        at=now,
    )
    activation = Activation(
        number=file.activation,
        name=file.pod_name,
        uid=file.uid,
        generation=file.generation,
        file=file.name,
        offered=now,
        grace_seconds=ADOPTED_GRACE,
        sha256=file.sha256,
        rule="adopted",
    )
    return Checkpoint(
        slot=slot,
        phase=Phase.OFFERED,
        since=now,
        parent=parent,
        kind=CopyKind.EXCLUSIVE,
        activation=activation,
        activations=file.activation,
    )


def orphans(stored: Stored, observation: Observation) -> Mapping[Slot, ManifestFile]:
    """Return the active manifests of ours whose slot the store does not know."""
    if isinstance(observation.manifests, Unknown):
        return {}
    return {
        file.slot: file
        for file in observation.manifests.value.values()
        if file.ours and file.slot is not None and file.slot not in stored.checkpoints
    }
