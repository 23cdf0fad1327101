"""What the journal says of operators' orders, and by which pod its lines are found."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from checkpointd import log
from checkpointd.act.telling import Teller
from checkpointd.model.decision import Reason, Severity
from checkpointd.model.observation import Override, Verb
from tests.builders import observations as build


def test_an_order_is_told_when_it_comes_and_when_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    plain = build.observation()
    hold = Override(verb=Verb.HOLD, until="2026-01-31T06:00:00Z", reason="Kim")
    held = replace(plain, overrides={"node": hold})
    teller = Teller()
    for before, after in ((plain, held), (held, held), (held, plain)):
        teller.observation(before, after)
    assert [record.getMessage() for record in caplog.records] == [
        "operator: node: hold until 2026-01-31T06:00:00Z (Kim)",
        "operator: node: no order any more",
    ]


def test_an_alarm_is_found_by_its_pod(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    checkpoint = build.checkpoint("api-1")
    alarm = Reason(checkpoint.slot, "alarm", "the copy stays", Severity.ALARM)
    decision = replace(build.run(build.observation()), reasons=(alarm,))
    Teller().decision(decision, (), build.stored(checkpoint))
    assert [log.fields_of(record)["POD"] for record in caplog.records] == ["api-1"]


def test_a_shutdown_is_told_when_it_begins_and_when_it_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    calm = build.run(build.observation())
    going = build.run(build.observation(manager_state="stopping"))
    teller = Teller()
    for decision in (calm, going, going, calm):
        teller.decision(decision, (), build.stored())
    assert [record.getMessage() for record in caplog.records] == [
        "frozen: the machine goes down",
        "over: frozen: the machine goes down",
    ]
