"""The guard of the source threads: nothing that a source does ends its thread. When each is due."""

from __future__ import annotations

import threading
from itertools import pairwise

from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant
from checkpointd.observe.source import Schedule, SourceThread
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


def test_h12_each_of_twenty_is_read_once_in_its_time_and_none_is_starved() -> None:
    asked = tuple(Question(Topic.CANDIDATE, f"uid-{n:02}", period=60.0) for n in range(20))
    schedule = Schedule()
    schedule.ask(asked)
    reads: dict[str, list[int]] = {question.target: [] for question in asked}
    for second in range(600):
        now = Instant(boot_id="b", seconds=float(second))
        for question in schedule.due(now)[:3]:  # a slow one: three at a time
            schedule.answered(question, now)
            reads[question.target].append(second)
    for moments in reads.values():
        assert [later - earlier for earlier, later in pairwise(moments)] == [60] * 9
