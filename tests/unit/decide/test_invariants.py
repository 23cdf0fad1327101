"""The second lock: a plan that would break a safety rule is refused, and the rule is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpointd.decide import evidence, invariants, plan, slots, table
from checkpointd.errors import InvariantError
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import PlaceManifest, RemoveStore
from checkpointd.model.evidence import Api, Is
from checkpointd.model.files import CopyKind
from tests.builders import observations as build

STORED = build.checkpoint()
OFFERED = build.checkpoint(phase=Phase.OFFERED)
SCENE = plan.set_scene(build.silent(), build.stored(STORED), build.POLICY, build.NOW)


def row(rule: str) -> table.Row:
    return next(row for row in table.TABLE if row.rule == rule)


def planned(
    rule: str, before: Checkpoint = STORED, after: Checkpoint = OFFERED, **found: Any
) -> slots.SlotPlan:
    """Return the plan of a start, with evidence that the table would never have let pass."""
    findings = evidence.find(before, SCENE)
    assert after.activation is not None
    return slots.SlotPlan(
        before=before,
        after=after,
        row=row(rule),
        findings=replace(findings, evidence=replace(findings.evidence, **found)),
        actions=(PlaceManifest(after.slot, after.activation),),
    )


def test_a_sound_start_passes() -> None:
    invariants.check([planned("3a")], SCENE)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (planned("3a", runs=Is.YES), "while its parent may run"),
        (planned("3a", runs=Is.UNKNOWN), "while its parent may run"),
        (planned("3a", api=Api.TRUSTED, managed=Is.YES), "while the kubelet manages the pod"),
        (
            planned("3a", before=build.checkpoint(phase=Phase.TOMBSTONE)),
            "a tombstone would be started by rule 3a",
        ),
    ],
    ids=["runs", "unknown", "managed", "tombstone"],
)
def test_a_start_that_breaks_safety_is_refused(broken: slots.SlotPlan, words: str) -> None:
    with pytest.raises(InvariantError, match=words):
        invariants.check([broken], SCENE)


def test_a_shareable_copy_may_run_beside_its_parent() -> None:
    copy = replace(OFFERED, kind=CopyKind.SHAREABLE)
    invariants.check([planned("3a", after=copy, runs=Is.YES)], SCENE)


def test_nothing_starts_while_the_machine_goes_down() -> None:
    with pytest.raises(InvariantError, match="goes down"):
        invariants.check([planned("3a")], replace(SCENE, frozen=True))


def test_no_store_is_lost_while_the_api_is_not_trusted() -> None:
    losing = replace(planned("5"), actions=(RemoveStore(STORED.slot),))
    with pytest.raises(InvariantError, match="would be lost"):
        invariants.check([losing], SCENE)
    decided = replace(losing, before=build.checkpoint(phase=Phase.REMOVED))
    invariants.check([decided], SCENE)
