"""Carry out a row of the table on a checkpoint: the state after it, with names and deadlines."""

from __future__ import annotations

from dataclasses import replace

from checkpointd.decide import evidence, heir, words
from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene
from checkpointd.decide.table import Row
from checkpointd.model import naming
from checkpointd.model.checkpoint import Activation, Checkpoint, Phase, Transition
from checkpointd.model.moments import Unknown

MAX_HISTORY = 20
HANDED_BACK = "4 done"
"""The rule of the rows that end a hand-back."""


def enter(checkpoint: Checkpoint, row: Row, findings: Findings, scene: Scene) -> Checkpoint:
    """Return the checkpoint after ``row``; the same where the state does not change."""
    if row.to is checkpoint.phase:
        return checkpoint
    left = _leave(checkpoint, row)
    noted = _note(left, row, findings, scene)
    if row.to is Phase.OFFERED and checkpoint.phase is not Phase.SERVING:
        return _activate(noted, row, findings, scene)
    if row.to.is_stopping:
        return _stop(noted, row, findings, scene)
    if row.to is Phase.SERVING:
        return replace(noted, retry_step=0, not_before=None)
    return noted


def _leave(checkpoint: Checkpoint, row: Row) -> Checkpoint:
    """Forget the copy once it is gone: its activation's name and UID are never used again."""
    if not checkpoint.phase.is_stopping or row.to.is_stopping:
        return checkpoint
    return replace(checkpoint, activation=None)


def _note(checkpoint: Checkpoint, row: Row, findings: Findings, scene: Scene) -> Checkpoint:
    why = f": {words.describe_want(checkpoint)}" if row.to is Phase.TOMBSTONE else ""
    if row.rule == HANDED_BACK:
        why = _tell_gap(checkpoint, findings, scene)
    transition = Transition(
        at=scene.now,
        before=checkpoint.phase,
        after=row.to,
        rule=row.rule,
        sentence=f"{row.says}{why}",
    )
    history = (*checkpoint.history, transition)[-MAX_HISTORY:]
    return replace(checkpoint, phase=row.to, since=scene.now, history=history)


def _tell_gap(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> str:
    """Say how long nobody was ready at the hand-back; "" where that is not known."""
    ended, other = checkpoint.ended_at, findings.heir
    ready = scene.observation.ready_since.get(other.uid) if other is not None else None
    if ended is None or ready is None or ready.boot_id != ended.boot_id:
        return ""
    gap = ready.seconds_since(ended)
    return f", {gap:.1f} s after the copy ended" if gap > 0 else ", without a gap"


def _activate(checkpoint: Checkpoint, row: Row, findings: Findings, scene: Scene) -> Checkpoint:
    generation = evidence.choose(checkpoint)
    assert generation is not None, "every row that starts a copy asks for a generation"
    number = checkpoint.activations + 1
    digest = naming.activation_digest(generation.hash, scene.now.boot_id, number)
    name = naming.copy_name(generation.parent_name, digest, scene.policy.node_name)
    activation = Activation(
        number=number,
        name=name,
        uid=naming.copy_uid(digest),
        generation=generation.hash,
        file=naming.manifest_file(checkpoint.slot.namespace, name),
        offered=scene.now,
        grace_seconds=generation.grace_seconds,
        rule=row.rule,
    )
    returned = row.rule == "4 back" and findings.heir is not None
    return replace(
        checkpoint,
        activation=activation,
        activations=number,
        kind=generation.kind,
        failed_heir=findings.heir.uid if returned and findings.heir else checkpoint.failed_heir,
    )


def _stop(checkpoint: Checkpoint, row: Row, findings: Findings, scene: Scene) -> Checkpoint:
    after = replace(
        checkpoint,
        stopped_at=scene.now,
        ended_at=None,
        attempts_at_stop=_attempts(findings, scene),
    )
    if row.rule != "8 again":
        return after
    times = scene.policy.times
    # Bounded before it is a float: after three weeks of refusals there is none so large.
    wait = min(times.offer_again * 2 ** min(checkpoint.retry_step, 30), times.offer_again_most)
    return replace(after, retry_step=checkpoint.retry_step + 1, not_before=scene.now.plus(wait))


def _attempts(findings: Findings, scene: Scene) -> int:
    runtime = scene.observation.runtime
    if findings.heir is None or isinstance(runtime, Unknown):
        return 0
    return heir.count_attempts(runtime.value, findings.heir.uid, ended_only=True)
