"""What the journal says of operators' orders, and by which pod its lines are found."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise

import pytest

from checkpointd import log
from checkpointd.act.telling import Teller
from checkpointd.model.decision import Reason, Severity
from checkpointd.model.observation import Override, Verb
from tests.builders import observations as build
from tests.builders.observations import at, unknown

PATIENCE = 15.0


def test_an_order_is_told_when_it_comes_and_when_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    plain = build.observation()
    hold = Override(verb=Verb.HOLD, until="2026-01-31T06:00:00Z", reason="Kim")
    held = replace(plain, overrides={"node": hold})
    teller = Teller()
    for before, after in ((plain, held), (held, held), (held, plain)):
        teller.observation(before, after, PATIENCE)
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


def test_an_api_server_that_has_not_answered_since_the_start_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    silent = build.observation(api=build.contact(reached=False, failures=0, why=""))
    failing = [
        build.observation(api=build.contact(reached=False, failures=number, why=why))
        for number, why in ((1, "HTTP 403"), (2, "HTTP 403"), (3, "refused"))
    ]
    well = build.observation(api=build.contact(address="10.0.0.1:6443"))
    looks = [silent, silent, *failing, well, failing[2]]
    teller = Teller()
    for before, after in pairwise(looks):
        teller.observation(before, after, PATIENCE)
    assert [record.getMessage() for record in caplog.records] == [
        "API server: no answer: HTTP 403",
        "API server: answers (10.0.0.1:6443)",
        "API server: no answer: refused",
    ]


def test_an_api_server_that_answers_to_no_purpose_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    teller = Teller()
    well = build.observation()
    for second in (1000, 1014, 1015, 1016, 1030):
        contact = replace(well.api_contact, answered_at=at(second))
        looks = replace(well, api_contact=contact, api_pods=unknown("HTTP 429", 1000))
        teller.observation(looks, looks, PATIENCE)
    for _ in range(2):
        teller.observation(well, well, PATIENCE)
    assert [record.getMessage() for record in caplog.records] == [
        "API server: answers, but does not tell of our pods: HTTP 429",
        "API server: tells of our pods again",
    ]


def test_a_node_that_was_made_anew_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    teller = Teller()
    decision = replace(build.run(build.observation()), reasons=())
    for uid in ("", "uid-1", "uid-1", "uid-2", "uid-2"):
        teller.decision(decision, (), build.stored(node=build.node_record(node_uid=uid)))
    assert [record.getMessage() for record in caplog.records] == [
        "API server: the Node was made anew: its UID is uid-2, it was uid-1; the same cluster"
    ]


def test_c15_a_mark_that_does_not_count_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, log.LOGGER)
    note = 'annotation checkpointd.io/checkpoint is "True", only "true" counts'
    odd = build.pod("web-1", marked=False, mark_note=note)
    plain = build.observation(build.pod())
    listed = build.observation(build.pod(), odd)
    lost = build.observation(api_pods=unknown(since=990))
    teller = Teller()
    for before, after in ((plain, listed), (listed, lost), (lost, listed), (listed, plain)):
        teller.observation(before, after, PATIENCE)
    assert [record.getMessage() for record in caplog.records] == [
        f"kube-system/web-1: its mark does not count: {note}"
    ]
    assert log.fields_of(caplog.records[0])["POD"] == "web-1"
