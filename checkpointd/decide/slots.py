"""Decide one slot: from what concerns it alone, and so that a fault of ours costs it alone.

What was decided of a slot at rest is taken over as long as it would be decided again: its part of
the scene is the same and no deadline that was looked at has passed (``holds``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from checkpointd.decide import (
    effects,
    evidence,
    explain,
    follow,
    invariants,
    questions,
    table,
    transition,
)
from checkpointd.decide.concern import Share
from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene
from checkpointd.decide.table import Row
from checkpointd.errors import InvariantError
from checkpointd.model.checkpoint import Checkpoint
from checkpointd.model.decision import Action, Fault, Question, Reason, Severity
from checkpointd.model.moments import Instant
from checkpointd.model.pods import Slot

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """Hold what one slot comes to in this cycle, and from what (``share``).

    ``pending`` are the deadlines that were looked at and have not passed. ``asks_now`` is whether a
    question is due at this very moment.
    """

    before: Checkpoint | None
    after: Checkpoint
    row: Row | None = None
    findings: Findings | None = None
    actions: tuple[Action, ...] = ()
    questions: tuple[Question, ...] = ()
    reasons: tuple[Reason, ...] = ()
    pending: tuple[Instant, ...] = ()
    share: Share | None = None
    asks_now: bool = False
    fault: Fault | None = None

    @property
    def has_moved(self) -> bool:
        """Tell whether the state changed."""
        return self.before is None or self.before.phase is not self.after.phase

    @property
    def is_at_rest(self) -> bool:
        """Tell whether nothing is done or changed."""
        return self.after is self.before and not self.actions and self.fault is None

    def is_about(self, stored: Checkpoint) -> bool:
        """Tell whether what was found is true of ``stored``: the slot is at rest and as it was."""
        return self.is_at_rest and self.before is stored

    def holds(self, mine: Share, now: Instant) -> bool:
        """Tell whether it would be decided again, what concerns all slots being the same.

        ``now`` is later than the moment of the decision: what had passed then has passed for good.
        """
        if not self.is_at_rest or self.asks_now or self.share != mine:
            return False
        return all(moment.seconds > now.seconds for moment in self.pending)


# ---- faults of ours ----------
def guard(slot: Slot, call: Callable[[], T]) -> T | Fault:
    """Return what ``call`` returns, or the fault that it raised: it costs this slot alone.

    One of the places where every exception is caught.
    """
    try:
        return call()
    except InvariantError as error:
        return Fault(slot, f"nothing is done for it, a safety rule would break: {error}", error)
    except Exception as error:  # noqa: BLE001 - it is told, with its traceback, by the cycle
        what = f"{type(error).__name__}: {error}"
        return Fault(slot, f"nothing is done for it, its decision failed: {what}", error)


def plan_fault(mine: Share, fault: Fault) -> SlotPlan:
    """Return the plan of a slot that could not be decided: it stays as it is."""
    stored = _stored(mine)
    return SlotPlan(before=stored, after=stored, reasons=(reason_of(fault),), fault=fault)


def reason_of(fault: Fault) -> Reason:
    """Return the alarm that tells of a fault."""
    return Reason(fault.slot, "alarm", fault.sentence, Severity.ALARM)


# ---- a slot that is stored ----------
def follow_words(mine: Share, scene: Scene, last: SlotPlan | None) -> Checkpoint | Fault:
    """Take over the API's words. ``last`` was decided with the same ``scene.api``, or is None.

    A slot that is at rest had no news from the same share.
    """
    stored = _stored(mine)
    if last is not None and last.is_at_rest and last.share == mine:
        return stored
    return guard(stored.slot, lambda: follow.follow_words(stored, scene, mine.listed))


def plan_slot(mine: Share, followed: Checkpoint, scene: Scene) -> SlotPlan:
    """Plan a slot; ``scene`` is its own (``concern.narrow``). Raises InvariantError."""
    before = _stored(mine)
    known = follow.follow_manifest(followed, scene.observation)
    known = follow.follow_generations(known, scene)
    findings = evidence.find(known, scene)
    known = follow.follow_running(known, findings, scene)
    row = table.step(known.phase, findings.evidence)
    after = transition.enter(known, row, findings, scene)
    after = effects.forget_checksum(after, findings, scene)
    moved = before.phase is not after.phase
    asked = tuple(_ask(before, after, findings, scene))
    plan = SlotPlan(
        before=before,
        after=after,
        row=row,
        findings=findings,
        actions=effects.diff(before, after, findings, scene),
        questions=asked,
        reasons=(
            explain.slot_reason(after, row, findings, moved=moved),
            *explain.alarms(after, findings, scene),
        ),
        pending=tuple(scene.timers.pending),
        share=mine,
        asks_now=any(question.after is scene.now for question in asked),
    )
    invariants.check([plan], scene)
    return plan


def _stored(mine: Share) -> Checkpoint:
    assert mine.stored is not None, "only a stored slot is followed"
    return mine.stored


def _ask(
    before: Checkpoint, after: Checkpoint, findings: Findings, scene: Scene
) -> Iterator[Question]:
    for word in (after.parent, after.successor):
        pod = scene.pods.get(word.uid) if word is not None and word.wants_here else None
        if pod is not None:
            yield questions.ask_candidate(pod, before, scene)
    yield from questions.ask_slot(after, findings, scene)


# ---- a slot that is not stored yet ----------
def plan_first(after: Checkpoint, scene: Scene) -> SlotPlan:
    """Plan the first cycle of a slot; ``scene`` is its own."""
    actions = effects.diff(None, after, None, scene)
    reasons = (explain.first_reason(after),)
    plan = SlotPlan(before=None, after=after, actions=actions, reasons=reasons)
    invariants.check([plan], scene)
    return plan
