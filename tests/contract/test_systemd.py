"""What journald takes of our records, and what systemd makes of our notifications."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from checkpointd import log
from checkpointd.clients.journal import JournalHandler
from tests.contract import subject as subjects
from tests.fakes.journal_socket import JournalSocket
from tests.fakes.notify_socket import NotifySocket
from tests.fakes.waiting import NotYetError, wait_for

ROOT = Path(__file__).resolve().parents[2]
SERVICE = """
import os, signal
from checkpointd.clients import notify
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
notifier = notify.take_notifier()
assert "NOTIFY_SOCKET" not in os.environ and "WATCHDOG_USEC" not in os.environ
assert notifier.ping_seconds == 15, notifier.ping_seconds
for step in (
    lambda: notifier.ready("one: \\u00e4\\nWATCHDOG_USEC=1"),
    lambda: (notifier.status("two"), notifier.ping()),
    notifier.reloading,
    lambda: notifier.ready("three"),
    lambda: notifier.stopping("four"),
):
    step()
    signal.sigwait({signal.SIGUSR1})
"""
"""A service that tells one thing more at each SIGUSR1; it is said in the order of STEPS."""
STEPS = (
    ("active", "one: \u00e4 WATCHDOG_USEC=1"),
    ("active", "two"),
    ("reloading", "two"),
    ("active", "three"),
    ("deactivating", "four"),
)


# ---- the journal --------------------------------------------------------------------------------
class Journal(Protocol):
    """Take records through a handler, and read them back by a mark in their text."""

    handler: JournalHandler

    def read(self, mark: str) -> dict[str, str]:
        """Return the fields of a record."""
        ...


class FakeJournal:
    """The receiving end of the embedded node."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._socket = stack.enter_context(JournalSocket(directory / "journal"))
        self.handler = JournalHandler(directory / "journal")

    def read(self, mark: str) -> dict[str, str]:
        """Return the next record."""
        fields = self._socket.receive()
        assert mark in fields["MESSAGE"]
        return fields


class RealJournal:
    """The machine's journald, asked with journalctl."""

    def __init__(self) -> None:
        self.handler = JournalHandler()

    def read(self, mark: str) -> dict[str, str]:
        """Return the record, once it is there."""

        def find() -> dict[str, str]:
            asked = ("journalctl", "-o", "json", "-a", "--no-pager", f"_PID={os.getpid()}")
            said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
            for line in said.splitlines():
                fields: dict[str, str] = json.loads(line)
                if mark in fields["MESSAGE"]:
                    return fields
            raise NotYetError(f"{len(said)} bytes without it")

        return wait_for("journald has it", find)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with ExitStack() as stack:
        found = RealJournal() if subjects.ADMIN else FakeJournal(tmp_path, stack)
        yield found
        found.handler.close()


def emit(journal: Journal, text: str, **extra: object) -> None:
    """Log one record as the daemon does."""
    record = logging.LogRecord("checkpointd", logging.WARNING, __file__, 7, text, (), None, "emit")
    vars(record).update(extra)
    journal.handler.emit(record)
    assert journal.handler.lost == 0


def test_a_record_arrives_with_its_fields(journal: Journal) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    extra = log.fields(log.Event.SOURCE_GONE, reason="first line\nsecond \u00e4")
    emit(journal, mark, **extra)
    fields = journal.read(mark)
    assert fields["PRIORITY"] == "4"
    assert fields["SYSLOG_IDENTIFIER"] == "checkpointd"
    assert fields["REASON"] == "first line\nsecond \u00e4"
    assert len(fields["MESSAGE_ID"]) == 32
    assert (fields["CODE_FILE"], fields["CODE_LINE"]) == (__file__, "7")


def test_a_record_that_no_datagram_can_carry_arrives_whole(journal: Journal) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    text = mark + "x" * 500_000
    emit(journal, text)
    assert journal.read(mark)["MESSAGE"] == text


# ---- systemd ------------------------------------------------------------------------------------
class Service(Protocol):
    """Run SERVICE under a supervisor."""

    def step(self) -> None:
        """Let it tell the next thing."""
        ...

    def show(self) -> tuple[str, str]:
        """Return the state that the supervisor has it in, and its status text."""
        ...


class FakeService:
    """A process of ours, with the embedded node's end of the notification socket."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        path = str(directory / "notify")
        self._socket = stack.enter_context(NotifySocket(path))
        environ = {**os.environ, "NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"}
        self._process = subprocess.Popen([sys.executable, "-c", SERVICE], env=environ, cwd=ROOT)
        stack.callback(self._end)
        self._state, self._status = "activating", ""

    def step(self) -> None:
        """Send the signal."""
        self._process.send_signal(10)

    def show(self) -> tuple[str, str]:
        """Take what was told as src/core/service.c does, service_notify_message."""
        variables = self._socket.receive().variables
        self._status = variables.get("STATUS", self._status)
        if variables.get("READY") == "1":
            self._state = "active"
        elif variables.get("RELOADING") == "1":
            assert variables["MONOTONIC_USEC"].isdecimal()
            self._state = "reloading"
        elif variables.get("STOPPING") == "1":
            self._state = "deactivating"
        return self._state, self._status

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()


class RealService:
    """A transient unit of the machine's systemd."""

    def __init__(self, stack: ExitStack) -> None:
        self._unit = f"contract-{uuid.uuid4().hex[:8]}.service"
        command = ("systemd-run", "--quiet", f"--unit={self._unit}", "--property=Type=notify")
        properties = ("--property=WatchdogSec=30", f"--working-directory={ROOT}", "--no-block")
        subprocess.run([*command, *properties, sys.executable, "-c", SERVICE], check=True)
        kill = ("systemctl", "kill", "--signal=KILL", self._unit)
        stack.callback(subprocess.run, kill, check=False)

    def step(self) -> None:
        """Send the signal."""
        subprocess.run(("systemctl", "kill", "--signal=USR1", self._unit), check=True)

    def show(self) -> tuple[str, str]:
        """Ask systemd."""
        asked = ("systemctl", "show", "--property=ActiveState,StatusText", self._unit)
        said = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        found = dict(line.split("=", 1) for line in said.splitlines())
        return found["ActiveState"], found["StatusText"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ExitStack() as stack:
        yield RealService(stack) if subjects.ADMIN else FakeService(tmp_path, stack)


def test_systemd_takes_each_notification_for_what_it_is_meant(service: Service) -> None:
    for number, wanted in enumerate(STEPS):
        if number:
            service.step()
        wait_for(f"it is {wanted}", _shows(service, wanted))


def _shows(service: Service, wanted: tuple[str, str]) -> Callable[[], bool]:
    def look() -> bool:
        found = service.show()
        if found != wanted:
            raise NotYetError(str(found))
        return True

    return look
