"""Each slot is decided from what concerns it alone; what holds is taken over; a fault costs one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpointd.decide import plan, slots
from checkpointd.errors import InvariantError
from checkpointd.model.checkpoint import Phase
from checkpointd.model.decision import Fault, Severity
from checkpointd.model.observation import Observation, Override, Verb
from checkpointd.model.pods import ApiPod
from tests.builders import observations as build
from tests.builders.observations import at, seen

MARKED = build.pod()
OTHER = build.pod("other", controller=None, marked=False, raw=None)
STORED = build.checkpoint(MARKED, sandbox_ids=(f"sandbox-{MARKED.uid}",))
STORE = build.stored(STORED)
HOSTILE = build.checkpoint(
    build.word("web", controller=None),
    phase=Phase.STOPPING,
    activation=build.activation(grace_seconds=10**400),
)
"""As state.json may say it: a whole number that is no time."""


def node(*pods: ApiPod, **fields: Any) -> Observation:
    """Return a node on which the marked pod runs."""
    plain: dict[str, Any] = {
        "runtime": build.runtime(MARKED.uid),
        "kubelet_list": build.listing(MARKED.name),
        **fields,
    }
    return build.observation(*(pods or (MARKED, OTHER)), **plain)


def made(observation: Observation, seconds: float, last: plan.Plan | None = None) -> plan.Plan:
    """Return the plan at this time."""
    return plan.make(observation, STORE, build.POLICY, at(seconds), last)


# ---- what holds --------------------------------------------------------------------------------
BEFORE = node()
AFTER = {
    "another pod changed": node(MARKED, replace(OTHER, ready=False)),
    "another pod came": node(MARKED, OTHER, replace(OTHER, name="new", uid="uid-new")),
    "another pod went": node(MARKED),
    "the same was seen once more": node(manifests=seen({}, read=1001)),
    "the API server answered": node(api=build.contact(answered_at=at(1001))),
}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
def test_what_does_not_concern_a_slot_leaves_it_as_it_was_decided(after: Observation) -> None:
    first = made(BEFORE, 1000)
    assert made(after, 1001, first).slots[STORED.slot] is first.slots[STORED.slot]


CONCERNED = {
    "its pod": node(replace(MARKED, ready=False), OTHER),
    "its successor": node(MARKED, OTHER, build.pod("api-2")),
    "the runtime": node(runtime=seen(build.runtime(), read=1001)),
    "the kernel": node(processes=seen(build.processes(build.alive(MARKED.uid, 7)))),
    "an order": node(overrides={"node": Override(verb=Verb.HOLD, until="", reason="Kim")}),
    "contact": node(api=build.unknown(since=1000.5)),
}


@pytest.mark.parametrize("after", CONCERNED.values(), ids=CONCERNED)
def test_what_concerns_a_slot_is_decided_anew(after: Observation) -> None:
    first = made(BEFORE, 1000)
    second = made(after, 1001, first)
    assert second.slots[STORED.slot] is not first.slots[STORED.slot]
    assert second.decision == made(after, 1001).decision


def test_a_deadline_that_has_passed_is_decided_anew() -> None:
    unproven = build.checkpoint(
        MARKED,
        sandbox_ids=STORED.sandbox_ids,
        generations=(build.generation(spec_proven=False, content_proven=False),),
    )
    young = node(
        ready_since={MARKED.uid: at(990)},
        candidates={MARKED.uid: seen(build.candidate(MARKED))},
    )
    store = build.stored(unproven)
    first = plan.make(young, store, build.POLICY, at(1000))
    assert first.decision.look_again.seconds == 1010
    held = plan.make(young, store, build.POLICY, at(1049), first)
    assert held.decision.look_again.seconds == 1050
    assert held.slots[STORED.slot] is first.slots[STORED.slot]
    proven = plan.make(young, store, build.POLICY, at(1050), held)
    saved = build.saved(proven.decision)
    assert saved is not None
    assert saved.generations[0].is_proven


def test_questions_that_are_the_same_are_the_same_object() -> None:
    first = made(BEFORE, 1000)
    assert made(BEFORE, 1001, first).decision.questions is first.decision.questions


# ---- faults ------------------------------------------------------------------------------------
def test_a_slot_that_cannot_be_decided_costs_no_other() -> None:
    silent = build.silent(runtime=build.runtime(build.COPY_UID))
    starts = build.checkpoint(serves_api=True)
    decision = build.run(silent, HOSTILE, starts)
    assert build.started(decision) == {starts.slot}
    (fault,) = decision.faults
    assert (fault.slot, type(fault.error)) == (HOSTILE.slot, OverflowError)
    alarms = [r.sentence for r in decision.reasons if r.severity is Severity.ALARM]
    assert alarms == [fault.sentence]
    assert "OverflowError" in fault.sentence
    assert not [action for action in decision.actions if action.slot == HOSTILE.slot]


def test_a_slot_that_cannot_be_decided_is_not_taken_for_gone() -> None:
    """Neither are the others forgotten while one of them cannot say that it is still wanted."""
    unwanted = build.checkpoint(
        build.word("gone", controller=None), phase=Phase.TOMBSTONE, gone_since=at(500)
    )
    quiet = build.observation(
        runtime=build.runtime(build.COPY_UID),
        confirmed_uids=seen(frozenset[str]()),
        machine=seen(build.machine(build.kubelet())),
    )
    decision = build.run(quiet, HOSTILE, unwanted)
    assert [fault.slot for fault in decision.faults] == [HOSTILE.slot]
    phase = build.phase_of(decision, unwanted)
    assert phase is Phase.TOMBSTONE


def test_a_plan_that_would_break_a_safety_rule_is_a_fault_of_its_slot() -> None:
    def break_it() -> None:
        raise InvariantError("a copy would be started while its parent may run")

    fault = slots.guard(STORED.slot, break_it)
    assert isinstance(fault, Fault)
    assert "a safety rule would break: a copy would be started" in fault.sentence
