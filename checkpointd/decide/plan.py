"""Decide for all slots: what they share, each stored one, those not stored yet, the answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from checkpointd.decide import (
    concern,
    deadlines,
    denials,
    explain,
    newcomers,
    node,
    questions,
    runs,
    slots,
)
from checkpointd.decide import scene as scenes
from checkpointd.decide.concern import Basis, Share
from checkpointd.decide.scene import Scene
from checkpointd.decide.slots import SlotPlan
from checkpointd.decide.timers import Timers
from checkpointd.model.checkpoint import Checkpoint, NodeRecord, Stored
from checkpointd.model.decision import Action, Decision, Fault, Question, Reason, SaveNode
from checkpointd.model.moments import Instant, Seen
from checkpointd.model.observation import Observation
from checkpointd.model.pods import ApiPod, Slot
from checkpointd.model.policy import Policy

CALM_LOOK = 10.0
"""Seconds between decisions when nothing happens and no deadline is due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Hold a decision with what it rests on, for the next one and for people.

    ``asked`` are the questions before they were merged: the node's, then each slot's.
    """

    decision: Decision
    basis: Basis
    slots: Mapping[Slot, SlotPlan]
    asked: tuple[tuple[Question, ...], ...]

    @property
    def scene(self) -> Scene:
        """Return what all slots share."""
        return self.basis.scene

    def look_again(self, without: Collection[Slot | None]) -> Instant:
        """Return when to decide again, whatever the slots in ``without`` wait for."""
        plans = [plan for slot, plan in self.slots.items() if slot not in without]
        return _look_again(plans, self.scene)


def decide(observation: Observation, stored: Stored, policy: Policy, now: Instant) -> Decision:
    """Say what to do now, what to ask, why, and when to look again.

    No I/O, no clock, no logging. A slot for which a fault of ours allows no decision, or one that
    would break a safety invariant, stays as it is; the others are decided all the same.
    """
    return make(observation, stored, policy, now).decision


def make(
    observation: Observation,
    stored: Stored,
    policy: Policy,
    now: Instant,
    last: Plan | None = None,
) -> Plan:
    """Decide. ``last``, a plan made earlier in this boot, saves time and changes nothing."""
    first = set_scene(observation, stored, policy, now)
    listed = concern.group_by_slot(first.pods.values())
    shares = {
        slot: concern.share(slot, checkpoint, first, listed.get(slot, ()))
        for slot, checkpoint in sorted(stored.checkpoints.items(), key=_by_name)
    }
    followed = _follow_words(shares, first, last)
    all_gone = _all_gone_since(followed, first)
    scene = replace(first, all_gone_since=all_gone)
    basis = concern.make_basis(scene, listed, last.basis.index if last is not None else None)
    known: Mapping[Slot, SlotPlan] = {}
    if last is not None and last.basis.common == basis.common:
        known = last.slots
    plans = [
        _plan_slot(slot, shares[slot], words, basis, known.get(slot))
        for slot, words in followed.items()
    ]
    waiting = newcomers.find(stored, scene)
    new = tuple(newcomers.plan(stored, waiting, basis))
    plans += [each for each in new if isinstance(each, SlotPlan)]
    plans.sort(key=_activation_order)
    faults = [each for each in new if isinstance(each, Fault)]
    ahead = questions.ask_ahead([each.after for each in plans], scene)
    asked = (
        (*_ask_node(waiting, scene), *ahead),
        *(each.questions for each in plans),
    )
    return Plan(
        decision=Decision(
            actions=_actions(plans, stored.node, scene),
            questions=_merge(asked, last),
            reasons=tuple(_reasons(plans, faults, stored, waiting, scene)),
            look_again=_look_again(plans, scene),
            summary=explain.summarise([each.after for each in plans], scene),
            faults=(*(each.fault for each in plans if each.fault is not None), *faults),
        ),
        basis=basis,
        slots={each.after.slot: each for each in plans},
        asked=asked,
    )


# ---- what all slots share ----------
def set_scene(observation: Observation, stored: Stored, policy: Policy, now: Instant) -> Scene:
    """Return what all slots share, but for what follows from the API's words on them."""
    listed = observation.api_pods.value if isinstance(observation.api_pods, Seen) else ()
    scene = Scene(
        observation=observation,
        record=stored.node,
        policy=replace(policy, node_name=node.find_name(policy, observation, stored.node)),
        api=scenes.judge_api(observation, stored.node),
        frozen=scenes.is_frozen(observation),
        timers=Timers(now, observation.started, observation.thawed),
        wall=now.wall,
        all_gone_since=None,
        pods={pod.uid: pod for pod in listed},
        source_ready=runs.is_source_ready(observation),
    )
    return replace(
        scene,
        cut_off=deadlines.judge_cut_off(scene),
        lease_is_fresh=deadlines.is_lease_fresh(scene),
    )


def _follow_words(
    shares: Mapping[Slot, Share], scene: Scene, last: Plan | None
) -> dict[Slot, Checkpoint | Fault]:
    known: Mapping[Slot, SlotPlan] = {}
    if last is not None and last.scene.api is scene.api:
        known = last.slots
    return {slot: slots.follow_words(mine, scene, known.get(slot)) for slot, mine in shares.items()}


def _all_gone_since(followed: Mapping[Slot, Checkpoint | Fault], scene: Scene) -> Instant | None:
    sound = [words for words in followed.values() if not isinstance(words, Fault)]
    return node.all_gone_since(sound, len(followed), scene)


# ---- slots ----------
def _plan_slot(
    slot: Slot, mine: Share, words: Checkpoint | Fault, basis: Basis, last: SlotPlan | None
) -> SlotPlan:
    """Plan a stored slot, or take over what still holds; ``last`` is of the same common part."""
    if last is not None and last.holds(mine, basis.scene.now):
        return last
    planned = (
        words
        if isinstance(words, Fault)
        else slots.guard(
            slot, lambda: slots.plan_slot(mine, words, concern.narrow(basis, slot, mine))
        )
    )
    return slots.plan_fault(mine, planned) if isinstance(planned, Fault) else planned


def _by_name(entry: tuple[Slot, Checkpoint]) -> tuple[str, str]:
    return entry[0].namespace, entry[0].name


def _activation_order(plan: SlotPlan) -> tuple[bool, int, str, str]:
    """Write pods that serve the API first, then by ``activation-priority``, highest first."""
    after = plan.after
    return not after.serves_api, -after.activation_priority, after.slot.namespace, after.slot.name


# ---- the answer ----------
def _actions(
    plans: Iterable[SlotPlan], known: NodeRecord | None, scene: Scene
) -> tuple[Action, ...]:
    """Save node.json last: until then a restart still finds that this boot is new."""
    record = node.follow(known, scene)
    actions = tuple(action for plan in plans for action in plan.actions)
    return (*actions, SaveNode(record)) if record != known else actions


def _ask_node(waiting: tuple[ApiPod, ...], scene: Scene) -> Iterator[Question]:
    yield from questions.ask_always(scene, unstored=bool(waiting))
    for pod in waiting:
        yield questions.ask_candidate(pod, None, scene)


def _merge(asked: tuple[tuple[Question, ...], ...], last: Plan | None) -> frozenset[Question]:
    if last is not None and last.asked == asked:
        return last.decision.questions
    return questions.merge(question for some in asked for question in some)


def _reasons(
    plans: Iterable[SlotPlan],
    faults: Iterable[Fault],
    stored: Stored,
    waiting: tuple[ApiPod, ...],
    scene: Scene,
) -> Iterator[Reason]:
    yield from explain.node_reasons(stored, scene)
    yield from denials.reasons(scene)
    for plan in plans:
        yield from plan.reasons
    yield from map(slots.reason_of, faults)
    yield from explain.waiting_reasons(waiting, newcomers.count_used(stored), scene)


def _look_again(plans: Collection[SlotPlan], scene: Scene) -> Instant:
    if any(plan.has_moved for plan in plans):
        return scene.now
    pending = (moment for plan in plans for moment in plan.pending)
    return min([scene.timers.next(CALM_LOOK), *pending], key=lambda moment: moment.seconds)
