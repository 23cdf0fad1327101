"""The guard of the source threads: nothing that a source does ends its thread."""

from __future__ import annotations

import threading

from checkpointd.clock import Clock
from checkpointd.observe.source import SourceThread
from tests.fakes.waiting import wait_for


class Faulty(SourceThread):
    """Fail in one place at the first round, then go on."""

    guard_pause = 0.01

    def __init__(self, place: str) -> None:
        super().__init__("faulty", lambda _fact: None, Clock())
        self.place = place
        self.rounds = 0
        self.reported = threading.Event()

    def _fail(self, place: str) -> None:
        if place in self.place and self.rounds <= 1:
            raise LookupError(place)

    def step(self) -> float:
        self.rounds += 1
        self._fail("step")
        return 60.0

    def wait(self, seconds: float) -> None:
        self._fail("wait")
        super().wait(seconds)

    def report_failure(self, why: str) -> None:
        self.reported.set()
        self._fail("report")


def _outlives(place: str) -> None:
    thread = Faulty(place)
    thread.start()
    assert thread.reported.wait(10)
    wait_for("it goes on", lambda: thread.rounds > 1)
    thread.stop(10)


def test_a_source_outlives_a_fault_in_its_round() -> None:
    _outlives("step")


def test_a_source_outlives_a_fault_in_its_wait() -> None:
    _outlives("wait")


def test_a_source_outlives_a_fault_while_it_reports_one() -> None:
    _outlives("step, report")
