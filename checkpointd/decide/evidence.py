"""Reduce observation, checkpoint and policy to the evidence of one slot."""

from __future__ import annotations

from dataclasses import dataclass

from checkpointd.decide import deadlines, runs, words
from checkpointd.decide import heir as heirs
from checkpointd.decide.runs import Judgement
from checkpointd.decide.scene import Scene
from checkpointd.model.checkpoint import Checkpoint, Generation, Word
from checkpointd.model.evidence import Api, Evidence, Is, Owner
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import Observation, OwnerWord


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Hold the evidence of one slot with what each witness said, for the plan and for people."""

    evidence: Evidence
    runs: Judgement
    copy_runs: Judgement
    managed: Judgement
    heir: Word | None


# ---- one slot ----------
def find(checkpoint: Checkpoint, scene: Scene) -> Findings:
    """Gather the evidence of one slot."""
    heir = words.find_heir(checkpoint)
    each = _judge_parents(checkpoint, scene)
    running = runs.any_of(each.values())
    copy = _judge_copy(checkpoint, scene)
    managed = _judge_managed(heir or checkpoint.parent, checkpoint, scene)
    heir_runs = each[heir.uid].answer if heir is not None else Is.NO
    heir_state = heirs.judge_heir(checkpoint, heir, heirs.Local(heir_runs, managed.answer), scene)
    evidence = Evidence(
        frozen=scene.frozen,
        order=scene.order,
        api=scene.api,
        want=words.find_want(checkpoint),
        owner=_judge_owner(checkpoint, scene),
        runs=running.answer,
        copy_runs=copy.answer,
        copy_gone=_is_copy_gone(checkpoint, copy.answer, scene),
        copy_lost=_is_copy_lost(checkpoint, scene),
        managed=managed.answer,
        heir=heir_state,
        kind=checkpoint.kind,
        serves_api=checkpoint.serves_api,
        hold_over=deadlines.is_hold_over(checkpoint, scene),
        tombstone_hold_over=deadlines.is_tombstone_hold_over(checkpoint, scene),
        cut_off=scene.cut_off,
        dwell_over=deadlines.is_dwell_over(checkpoint, scene),
        deadline_over=deadlines.is_deadline_over(checkpoint, scene),
        grace_over=deadlines.is_grace_over(checkpoint, scene),
        back_off_over=scene.timers.reached(checkpoint.not_before),
        confirmed=deadlines.is_confirmed(checkpoint, scene),
        other_server=_has_other_server(checkpoint, scene),
        deleted_for_long=scene.timers.passed(
            scene.record.node_deleted_since if scene.record else None,
            scene.policy.times.retire_node_deleted,
        ),
        has_generation=choose(checkpoint) is not None,
        can_stop=isinstance(scene.observation.runtime, Seen) or scene.source_ready,
        rebooted=_is_rebooted(checkpoint, scene),
        heir_settled=heir is not None
        and scene.timers.passed(
            scene.observation.ready_since.get(heir.uid), scene.policy.times.hand_back_ready
        ),
    )
    return Findings(evidence=evidence, runs=running, copy_runs=copy, managed=managed, heir=heir)


def choose(checkpoint: Checkpoint) -> Generation | None:
    """Return the generation to start: the newest proven one, else the newest."""
    sound = [generation for generation in checkpoint.generations if not generation.failed]
    proven = [generation for generation in sound if generation.is_proven]
    candidates = proven or sound or list(checkpoint.generations)
    return max(candidates, key=lambda generation: generation.number, default=None)


def _judge_parents(checkpoint: Checkpoint, scene: Scene) -> dict[str, Judgement]:
    """Judge parent and successor, by UID."""
    ids = [checkpoint.parent.uid]
    if checkpoint.successor is not None:
        ids.append(checkpoint.successor.uid)
    return {
        uid: runs.judge_runs(
            uid,
            scene.observation,
            scene.policy,
            ran_in_boot=checkpoint.ran_in_boot == scene.observation.boot_id,
            sandboxes=frozenset(checkpoint.sandbox_ids),
        )
        for uid in ids
    }


def _judge_copy(checkpoint: Checkpoint, scene: Scene) -> Judgement:
    activation = checkpoint.activation
    if activation is None:
        return Judgement(Is.NO, (runs.Testimony("checkpointd", Is.NO, "no copy is placed"),))
    return runs.judge_runs(
        activation.uid,
        scene.observation,
        scene.policy,
        ran_in_boot=activation.offered.boot_id == scene.observation.boot_id,
        sandboxes=frozenset(checkpoint.sandbox_ids),
    )


def _judge_managed(word: Word, checkpoint: Checkpoint, scene: Scene) -> Judgement:
    return runs.judge_managed(
        (checkpoint.slot.namespace, word.name),
        scene.observation,
        scene.policy.times,
        ran_in_boot=checkpoint.ran_in_boot == scene.observation.boot_id,
    )


def _judge_owner(checkpoint: Checkpoint, scene: Scene) -> Owner:
    controller = checkpoint.parent.controller
    if not checkpoint.slot.name.startswith("ds.") and not (
        controller is not None and controller.is_daemon_set
    ):
        return Owner.NOT_DAEMON_SET
    if checkpoint.owner_word in (OwnerWord.GONE, OwnerWord.NOT_HERE):
        over = scene.timers.passed(
            checkpoint.owner_word_since, scene.policy.times.retire_daemon_set
        )
        return Owner.NO if over else Owner.WANTS
    return Owner.WANTS if checkpoint.owner_word is OwnerWord.WANTS else Owner.UNREADABLE


# ---- the copy ----------
def _is_copy_gone(checkpoint: Checkpoint, copy_runs: Is, scene: Scene) -> bool:
    activation = checkpoint.activation
    if activation is None:
        return True
    if copy_runs is not Is.NO:
        return False
    if _is_rebooted(checkpoint, scene):
        return _has_no_sandbox(scene.observation, activation.uid)
    if scene.source_ready:
        return _has_no_sandbox(scene.observation, activation.uid)
    if isinstance(scene.observation.runtime, Unknown):
        return False  # nobody could have stopped it, nor would anybody see a new sandbox (rule 9)
    quiet = scene.timers.passed(checkpoint.stopped_at, scene.policy.times.stop_quiet)
    return quiet and _has_no_sandbox(scene.observation, activation.uid)


def _has_no_sandbox(observation: Observation, uid: str) -> bool:
    """Tell whether no sandbox of the copy is READY; without a runtime the kubelet is believed."""
    match observation.runtime:
        case Seen(runtime):
            return not runs.has_ready_sandbox(runtime, uid)
        case Unknown():
            return True


def _is_rebooted(checkpoint: Checkpoint, scene: Scene) -> bool:
    stopped = checkpoint.stopped_at
    return stopped is not None and stopped.boot_id != scene.observation.boot_id


def _is_copy_lost(checkpoint: Checkpoint, scene: Scene) -> bool:
    runtime = scene.observation.runtime
    if checkpoint.activation is None or isinstance(runtime, Unknown):
        return False
    return not runs.is_known(runtime.value, checkpoint.activation.uid)


def _has_other_server(checkpoint: Checkpoint, scene: Scene) -> bool:
    """Tell whether another API server answers: the socket at its address is not this slot's."""
    contact = scene.observation.api_contact
    if scene.api is not Api.TRUSTED:
        return False
    if not contact.local:
        return True
    ours = {checkpoint.parent.uid}
    if checkpoint.activation is not None:
        ours.add(checkpoint.activation.uid)
    return bool(contact.listening_pods) and not ours & contact.listening_pods
