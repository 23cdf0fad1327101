"""Decide: words, evidence, table, transition, effects, questions, reasons, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from checkpointd.decide import (
    effects,
    evidence,
    explain,
    follow,
    invariants,
    node,
    questions,
    table,
    transition,
)
from checkpointd.decide import scene as scenes
from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene
from checkpointd.decide.table import Row
from checkpointd.decide.timers import Timers
from checkpointd.model.checkpoint import Checkpoint, NodeRecord, Stored
from checkpointd.model.decision import Action, Decision, Question, Reason, SaveNode
from checkpointd.model.evidence import Api
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Instant, Seen
from checkpointd.model.observation import Observation
from checkpointd.model.pods import ApiPod, Slot
from checkpointd.model.policy import Policy

CALM_LOOK = 10.0
"""Seconds between decisions when nothing happens and no deadline is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """Hold what one slot comes to in this cycle."""

    before: Checkpoint | None
    after: Checkpoint
    row: Row | None
    findings: Findings | None
    actions: tuple[Action, ...]

    @property
    def has_moved(self) -> bool:
        """Tell whether the state changed."""
        return self.before is None or self.before.phase is not self.after.phase


def decide(observation: Observation, stored: Stored, policy: Policy, now: Instant) -> Decision:
    """Say what to do now, what to ask, why, and when to look again.

    No I/O, no clock, no logging. Raises InvariantError when the answer would break a safety
    invariant: a fault of ours, for which nothing is done in this cycle.
    """
    followed, scene = _set_scene(observation, stored, policy, now)
    plans = [_plan_slot(before, followed[slot], scene) for slot, before in _stored(stored)]
    plans += _plan_new(stored, scene, len(plans))
    plans.sort(key=_activation_order)
    invariants.check(plans, scene)
    record = node.follow(stored.node, scene)
    return Decision(
        actions=_actions(plans, stored.node, record),
        questions=questions.merge(_ask(plans, stored, scene)),
        reasons=tuple(_reasons(plans, stored, scene)),
        look_again=_look_again(plans, scene),
        summary=explain.summarise([plan.after for plan in plans], scene),
    )


def set_scene(observation: Observation, stored: Stored, policy: Policy, now: Instant) -> Scene:
    """Return what all slots share, for ``explain`` outside of a decision."""
    return _set_scene(observation, stored, policy, now)[1]


def _stored(stored: Stored) -> list[tuple[Slot, Checkpoint]]:
    return sorted(stored.checkpoints.items())


# ---- what all slots share ----------
def _set_scene(
    observation: Observation, stored: Stored, policy: Policy, now: Instant
) -> tuple[dict[Slot, Checkpoint], Scene]:
    listed = observation.api_pods.value if isinstance(observation.api_pods, Seen) else ()
    policy = replace(policy, node_name=node.find_name(policy, observation, stored.node))
    first = Scene(
        observation=observation,
        record=stored.node,
        policy=policy,
        api=scenes.judge_api(observation, stored.node),
        frozen=scenes.is_frozen(observation),
        timers=Timers(now, observation.started, observation.thawed),
        wall=now.wall,
        all_gone_since=None,
        pods={pod.uid: pod for pod in listed},
    )
    mine = _by_slot(listed)
    followed = {
        slot: follow.follow_words(before, first, tuple(mine.get(slot, ())))
        for slot, before in stored.checkpoints.items()
    }
    all_gone = node.all_gone_since(followed.values(), first)
    return followed, replace(first, all_gone_since=all_gone)


def _by_slot(listed: tuple[ApiPod, ...]) -> dict[Slot, list[ApiPod]]:
    found: dict[Slot, list[ApiPod]] = {}
    for pod in listed:
        found.setdefault(pod.slot, []).append(pod)
    return found


# ---- slots ----------
def _plan_slot(before: Checkpoint, followed: Checkpoint, scene: Scene) -> SlotPlan:
    known = follow.follow_manifest(followed, scene.observation)
    known = follow.follow_generations(known, scene)
    findings = evidence.find(known, scene)
    known = follow.follow_running(known, findings, scene)
    row = table.step(known.phase, findings.evidence)
    after = transition.enter(known, row, findings, scene)
    after = effects.forget_checksum(after, findings, scene)
    actions = effects.diff(before, after, findings, scene)
    return SlotPlan(before=before, after=after, row=row, findings=findings, actions=actions)


def _plan_new(stored: Stored, scene: Scene, count: int) -> list[SlotPlan]:
    plans = [
        _plan_first(follow.adopt(file, slot, scene.now), scene)
        for slot, file in sorted(follow.orphans(stored, scene.observation).items())
    ]
    room = {
        namespace: scene.policy.selection.max_pods - used
        for namespace, used in _used(stored).items()
    }
    for pod in unstored(stored, scene):
        left = room.get(pod.namespace, scene.policy.selection.max_pods)
        candidate = _complete_candidate(pod, scene)
        if candidate is not None and left > 0 and explain.is_seen_here(pod, scene):
            room[pod.namespace] = left - 1
            plans.append(_plan_first(follow.new_checkpoint(pod, candidate, scene.now), scene))
    return plans


def _used(stored: Stored) -> dict[str, int]:
    used: dict[str, int] = {}
    for slot in stored.checkpoints:
        used[slot.namespace] = used.get(slot.namespace, 0) + 1
    return used


def unstored(stored: Stored, scene: Scene) -> tuple[ApiPod, ...]:
    """Return the marked pods whose slot has no checkpoint yet, oldest first, one per slot."""
    found: dict[Slot, ApiPod] = {}
    adopted = follow.orphans(stored, scene.observation)
    if scene.api is Api.TRUSTED:
        for pod in sorted(scene.pods.values(), key=lambda pod: (pod.created, pod.uid)):
            fit = pod.marked and not pod.terminating and not pod.is_finished
            if fit and pod.slot not in stored.checkpoints and pod.slot not in adopted:
                found.setdefault(pod.slot, pod)
    return tuple(found.values())


def _complete_candidate(pod: ApiPod, scene: Scene) -> Candidate | None:
    reading = scene.observation.candidates.get(pod.uid)
    if not isinstance(reading, Seen) or not isinstance(reading.value, Candidate):
        return None
    return None if follow.lacks_bytes(reading.value) else reading.value


def _plan_first(after: Checkpoint, scene: Scene) -> SlotPlan:
    actions = effects.diff(None, after, None, scene)
    return SlotPlan(before=None, after=after, row=None, findings=None, actions=actions)


def _activation_order(plan: SlotPlan) -> tuple[bool, int, Slot]:
    """Write pods that serve the API first, then by ``activation-priority``, highest first."""
    return (not plan.after.serves_api, -plan.after.activation_priority, plan.after.slot)


# ---- the answer ----------
def _actions(
    plans: list[SlotPlan], known: NodeRecord | None, record: NodeRecord
) -> tuple[Action, ...]:
    """Save node.json last: until then a restart still finds that this boot is new."""
    actions = [action for plan in plans for action in plan.actions]
    return (*actions, SaveNode(record)) if record != known else tuple(actions)


def _ask(plans: list[SlotPlan], stored: Stored, scene: Scene) -> Iterator[Question]:
    waiting = unstored(stored, scene)
    yield from questions.ask_always(scene, unstored=bool(waiting))
    yield from questions.ask_candidates(_candidates(plans, waiting, scene), stored, scene)
    for plan in plans:
        if plan.findings is not None:
            yield from questions.ask_slot(plan.after, plan.findings, scene)


def _candidates(
    plans: Iterable[SlotPlan], waiting: tuple[ApiPod, ...], scene: Scene
) -> tuple[ApiPod, ...]:
    uids = {pod.uid for pod in waiting}
    for plan in plans:
        for word in (plan.after.parent, plan.after.successor):
            if word is not None and word.wants_here:
                uids.add(word.uid)
    return tuple(pod for uid, pod in sorted(scene.pods.items()) if uid in uids)


def _reasons(plans: list[SlotPlan], stored: Stored, scene: Scene) -> Iterator[Reason]:
    yield from explain.node_reasons(stored, scene)
    for plan in plans:
        if plan.findings is None or plan.row is None:
            yield explain.first_reason(plan.after)
        else:
            yield explain.slot_reason(plan.after, plan.row, plan.findings, moved=plan.has_moved)
            yield from explain.alarms(plan.after, plan.findings, scene)
    yield from explain.waiting_reasons(unstored(stored, scene), stored, scene)


def _look_again(plans: list[SlotPlan], scene: Scene) -> Instant:
    if any(plan.has_moved for plan in plans):
        return scene.now
    return scene.timers.next(CALM_LOOK)
