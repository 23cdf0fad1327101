"""The table answers every combination of evidence, has no dead row, and breaks no safety rule.

Hypothesis samples the whole product of the evidence (over 10^11 combinations); what a phase's rows
look at is walked in full where it is small enough.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from enum import Enum
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.decide.table import TABLE, Row, step
from checkpointd.model.checkpoint import Phase
from checkpointd.model.evidence import Api, Evidence, Heir, Is, Order, Owner, Want
from checkpointd.model.files import CopyKind

KINDS: dict[str, type] = get_type_hints(Evidence)


def values(name: str) -> tuple[object, ...]:
    kind = KINDS[name]
    return tuple(kind) if issubclass(kind, Enum) else (False, True)


EVIDENCE = st.builds(
    Evidence, **{field.name: st.sampled_from(values(field.name)) for field in fields(Evidence)}
)
CALM = Evidence(
    frozen=False,
    order=Order.NONE,
    api=Api.UNKNOWN,
    want=Want.HERE,
    owner=Owner.WANTS,
    runs=Is.NO,
    copy_runs=Is.NO,
    copy_gone=True,
    copy_lost=False,
    managed=Is.NO,
    heir=Heir.BOUND,
    kind=CopyKind.EXCLUSIVE,
    serves_api=False,
    hold_over=True,
    tombstone_hold_over=True,
    cut_off=Is.NO,
    dwell_over=True,
    deadline_over=False,
    grace_over=False,
    back_off_over=True,
    confirmed=False,
    other_server=False,
    deleted_for_long=False,
    has_generation=True,
    can_stop=True,
    rebooted=False,
    heir_settled=True,
)


def walk(*names: str, base: Evidence = CALM) -> Iterator[Evidence]:
    for chosen in itertools.product(*(values(name) for name in names)):
        changed: dict[str, Any] = dict(zip(names, chosen, strict=True))
        yield replace(base, **changed)


def is_start(row: Row, evidence: Evidence) -> bool:
    """Tell whether a new copy is made (a lost one is offered again as it is)."""
    del evidence
    return row.to is Phase.OFFERED and row.phase not in (Phase.OFFERED, Phase.SERVING)


@pytest.mark.parametrize("phase", Phase)
def test_the_last_row_of_each_phase_has_no_guard(phase: Phase) -> None:
    rows = [row for row in TABLE if row.phase is phase]
    assert rows[-1].guard.__name__ == "_always"
    assert all(row.guard.__name__ != "_always" for row in rows[:-1])


def test_rows_of_a_phase_stand_together_and_say_why() -> None:
    phases = [phase for phase, _rows in itertools.groupby(TABLE, key=lambda row: row.phase)]
    assert phases == list(Phase)
    assert all(row.says and row.rule for row in TABLE)


def test_only_the_operators_word_and_the_freeze_stand_before_safety() -> None:
    for phase in (Phase.STORED, Phase.TOMBSTONE, Phase.OFFERED, Phase.SERVING, Phase.STOPPING):
        assert next(row for row in TABLE if row.phase is phase).rule == "11"


@given(evidence=EVIDENCE)
@settings(max_examples=500)
def test_every_evidence_has_a_row_and_no_safety_rule_breaks(evidence: Evidence) -> None:
    for phase in Phase:
        check(step(phase, evidence), evidence)


def test_every_combination_of_the_weighty_evidence_is_safe() -> None:
    names = ("api", "want", "owner", "runs", "copy_runs", "managed", "heir", "serves_api")
    count = 0
    for evidence in walk(*names):
        for phase in Phase:
            check(step(phase, evidence), evidence)
            count += 1
    assert count > 100_000


def check(row: Row, e: Evidence) -> None:
    """Check the safety rules of design section 3 on one answer of the table."""
    if e.frozen and row.phase is not Phase.REMOVED:
        assert row.to is row.phase, row
    if row.to is Phase.REMOVED and row.phase is not Phase.REMOVED:
        assert e.api is Api.TRUSTED, row
        assert e.confirmed, row
        assert e.grace_over, row
        assert row.phase is Phase.TOMBSTONE
    if e.order is Order.HOLD and row.phase is not Phase.REMOVED:
        assert row.to is row.phase, row
    if is_start(row, e):
        check_start(row, e)
    if row.to.is_stopping and not row.phase.is_stopping:
        check_stop(row, e)


def check_start(row: Row, e: Evidence) -> None:
    assert e.runs is Is.NO, row
    assert e.copy_runs is Is.NO, row
    assert e.has_generation, row
    assert e.back_off_over, row
    assert e.order is not Order.DEACTIVATE, row
    if row.rule != "12 activate":
        assert e.api in (Api.TRUSTED, Api.UNKNOWN, Api.REFUSED), row
        assert e.dwell_over or row.rule == "3b", row
    if row.phase is Phase.TOMBSTONE:
        assert row.rule in ("3b", "12 activate"), row
        assert row.rule == "12 activate" or e.want is Want.ENDING
    elif row.rule != "12 activate":
        assert e.want is Want.HERE, row
    if e.api is Api.TRUSTED and e.managed is Is.YES:
        assert row.rule in ("4 back", "12 activate"), row


def check_stop(row: Row, e: Evidence) -> None:
    assert e.can_stop, row
    if row.rule in ("12 deactivate", "8 again"):
        return
    assert e.api in (Api.TRUSTED, Api.NODE_DELETED), row
    assert e.order is not Order.ACTIVATE, row
    if e.api is Api.NODE_DELETED:
        assert e.deleted_for_long, row
        assert not e.serves_api, row
    elif row.to is Phase.STOPPING:
        assert e.confirmed, row
        assert e.want is not Want.HERE, row
        assert e.heir is Heir.NONE, row
    else:
        assert e.kind is CopyKind.BLOCKING or e.heir in (Heir.GO, Heir.READY), row


# ---- every row can hold ----------
def test_no_row_is_dead() -> None:
    alive = {id(step(phase, e)) for phase in Phase for e in _telling_evidence()}
    dead = [f"{row.phase.value}: {row.rule} {row.says}" for row in TABLE if id(row) not in alive]
    assert not dead


def _telling_evidence() -> Iterator[Evidence]:
    """Yield evidence that lets each row speak: few values that matter, in all combinations."""
    names = (
        *("frozen", "order", "api", "want", "owner", "copy_runs", "copy_gone", "heir"),
        *("grace_over", "deadline_over", "confirmed"),
    )
    few: dict[str, tuple[object, ...]] = {
        "order": tuple(Order),
        "api": (Api.TRUSTED, Api.UNKNOWN, Api.NODE_DELETED),
        "owner": (Owner.WANTS, Owner.NO),
        "copy_runs": (Is.YES, Is.NO),
        "heir": (Heir.NONE, Heir.BOUND, Heir.READY, Heir.FAILED),
    }
    base = replace(CALM, cut_off=Is.YES, deleted_for_long=True)
    for chosen in itertools.product(*(few.get(name, values(name)) for name in names)):
        changed: dict[str, Any] = dict(zip(names, chosen, strict=True))
        yield replace(base, **changed)
    yield replace(base, copy_lost=True)
    yield replace(CALM, api=Api.TRUSTED, heir=Heir.READY)
    yield replace(base, copy_gone=True, runs=Is.YES, deadline_over=True)
    yield replace(base, copy_gone=True, kind=CopyKind.BLOCKING)
    yield replace(base, copy_gone=True, rebooted=True, runs=Is.UNKNOWN)


# ---- Unknown ----------
UNKNOWNS = ("runs", "copy_runs", "managed")


@given(evidence=EVIDENCE, name=st.sampled_from(UNKNOWNS))
@settings(max_examples=300)
def test_an_unknown_witness_never_starts_a_copy_nor_removes_a_store(
    evidence: Evidence, name: str
) -> None:
    changed: dict[str, Any] = {name: Is.UNKNOWN}
    blind = replace(evidence, **changed)
    for phase in Phase:
        row, seen_row = step(phase, blind), step(phase, evidence)
        if is_start(row, blind):
            assert name == "managed"
            assert is_start(seen_row, evidence) or row.rule in ("3b", "4 back", "12 activate")
        if row.to is Phase.REMOVED:
            assert seen_row.to is Phase.REMOVED
