from __future__ import annotations

import io
import logging
import re

import pytest

from checkpointd import log
from checkpointd.model.decision import Severity


def test_every_kind_of_event_has_an_id_of_its_own() -> None:
    ids = [event.value for event in log.Event]
    assert all(re.fullmatch(r"[0-9a-f]{32}", value) for value in ids)
    # An enum makes equal values one member: a name that is an alias would be missing here.
    assert len(log.Event) == len(log.Event.__members__)


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.DEBUG, 7),
        (logging.INFO, 6),
        (log.NOTICE, 5),
        (logging.WARNING, 4),
        (logging.ERROR, 3),
        (logging.CRITICAL, 2),
    ],
)
def test_levels_are_syslogs_priorities(level: int, priority: int) -> None:
    assert log.priority(level) == priority


def test_alarms_are_warnings() -> None:
    levels = [log.level(severity) for severity in (Severity.INFO, Severity.NOTICE, Severity.ALARM)]
    assert levels == [logging.INFO, log.NOTICE, logging.WARNING]


def test_fields_that_are_empty_are_left_out() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "m", None, None)
    assert log.fields_of(record) == {}
    record.__dict__.update(log.fields(log.Event.ALARM, pod="p", reason=""))
    assert log.fields_of(record) == {"MESSAGE_ID": log.Event.ALARM.value, "POD": "p"}


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert log.printable("pod \x1b[2J\r\x9b\u202e ä\nnext") == "pod \\x1b[2J\\r\\x9b\\u202e ä\nnext"


def test_the_program_has_one_handler_and_its_levels() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log.PlainFormatter())
    logger = log.set_up(handler, "notice")
    try:
        assert log.set_up(handler, "notice").handlers == [handler]
        logger.info("not this")
        logger.log(log.NOTICE, "this")
        assert stream.getvalue().endswith(" NOTICE this\n")
        assert stream.getvalue().count("\n") == 1
    finally:
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
