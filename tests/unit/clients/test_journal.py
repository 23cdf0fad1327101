from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd import log
from checkpointd.clients import journal
from tests.fakes.journal_socket import JournalSocket


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[JournalSocket]:
    with JournalSocket(tmp_path / "journal") as made:
        yield made


@pytest.fixture
def handler(receiver: JournalSocket) -> Iterator[journal.JournalHandler]:
    made = journal.JournalHandler(receiver.path, io.StringIO())
    yield made
    made.close()


def record(message: str, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("checkpointd", level, "/x/cycle.py", 7, message, None, None, "turn")
    made.__dict__.update(extra)
    return made


def test_a_record_carries_its_fields(
    receiver: JournalSocket, handler: journal.JournalHandler
) -> None:
    extra = log.fields(
        log.Event.TRANSITION, namespace="kube-system", pod="api-x", slot="ds.api", rule="3b"
    )
    handler.emit(record("api-x: the copy is placed", log.NOTICE, **extra))
    fields = receiver.receive()
    assert fields == {
        "MESSAGE": "api-x: the copy is placed",
        "PRIORITY": "5",
        "SYSLOG_IDENTIFIER": "checkpointd",
        "CODE_FILE": "/x/cycle.py",
        "CODE_LINE": "7",
        "CODE_FUNC": "turn",
        "THREAD_NAME": "MainThread",
        "MESSAGE_ID": log.Event.TRANSITION.value,
        "NAMESPACE": "kube-system",
        "POD": "api-x",
        "SLOT": "ds.api",
        "RULE": "3b",
    }


@pytest.mark.parametrize("message", ["one\ntwo", "\n", "a\nMESSAGE_ID=0\n", "\udcff\nx", "ä"])
def test_a_message_of_several_lines_stays_one(
    receiver: JournalSocket, handler: journal.JournalHandler, message: str
) -> None:
    handler.emit(record(message))
    fields = receiver.receive()
    assert fields["MESSAGE"] == message.encode("utf-8", "replace").decode()
    assert "MESSAGE_ID" not in fields


def test_a_message_too_long_for_a_datagram_comes_sealed(
    receiver: JournalSocket, handler: journal.JournalHandler
) -> None:
    message = "x" * (4 << 20)
    handler.emit(record(message))
    assert receiver.receive()["MESSAGE"] == message


def test_without_a_journal_lines_go_to_the_stream(tmp_path: Path) -> None:
    stream = io.StringIO()
    handler = journal.JournalHandler(tmp_path / "nowhere", stream)
    handler.emit(record("one\ntwo", logging.WARNING))
    handler.close()
    assert stream.getvalue() == "<4>one\n<4>two\n"


def test_a_journal_that_takes_nothing_does_not_stop_us(
    receiver: JournalSocket, handler: journal.JournalHandler
) -> None:
    while handler.lost == 0:
        handler.emit(record("x" * 1000))
    receiver.receive()
    handler.emit(record("again"))
    assert handler.lost == 0
    fields = receiver.receive()
    while fields["MESSAGE"] != "again":
        fields = receiver.receive()
    assert fields["RECORDS_LOST"] == "1"


def test_a_terminal_gets_plain_lines(receiver: JournalSocket) -> None:
    handler = journal.choose_handler({}, io.StringIO(), receiver.path)
    assert not isinstance(handler, journal.JournalHandler)
    assert isinstance(handler.formatter, log.PlainFormatter)


def test_the_journals_own_stream_gets_fields(receiver: JournalSocket, tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w", encoding="utf-8") as stream:
        status = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        handler = journal.choose_handler(environ, stream, receiver.path)
        assert isinstance(handler, journal.JournalHandler)
        handler.close()
        other = journal.choose_handler({"JOURNAL_STREAM": "1:2"}, stream, receiver.path)
        assert not isinstance(other, journal.JournalHandler)
