from __future__ import annotations

import logging

import pytest

from checkpointd.clock import Clock
from checkpointd.errors import RefusedError
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant, Unknown
from checkpointd.observe.paced import Attempts, PacedSource


def at(seconds: float) -> Instant:
    return Instant(boot_id="b", seconds=seconds)


def test_what_works_is_tried_whenever_it_is_due() -> None:
    attempts = Attempts()
    attempts.succeeded("x")

    assert attempts.seconds_to_next(at(0.0)) == 0.0


def test_pauses_double_up_to_the_longest() -> None:
    attempts = Attempts(longest=5.0)
    pauses: list[float] = []
    for _try in range(6):
        attempts.failed(at(10.0), "down")
        pauses.append(attempts.seconds_to_next(at(10.0)))

    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert attempts.seconds_to_next(at(14.0)) == 1.0
    assert attempts.seconds_to_next(at(99.0)) == 0.0


def test_an_answer_ends_the_pauses() -> None:
    attempts = Attempts()
    attempts.failed(at(0.0), "down")
    attempts.failed(at(1.0), "down")
    attempts.succeeded("x")
    attempts.failed(at(2.0), "down")

    assert attempts.seconds_to_next(at(2.0)) == 0.5


def test_a5_one_line_when_it_goes_and_one_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "checkpointd")
    attempts = Attempts("thing")
    for second in range(5):
        attempts.failed(at(second), "refused")
    for _answer in range(5):
        attempts.succeeded("answers")

    assert [record.getMessage() for record in caplog.records] == [
        "thing: unknown: refused",
        "thing: answers",
    ]


class Source(PacedSource):
    """Answer RUNTIME, as often as told before it fails."""

    def __init__(self, answers: int) -> None:
        self.log: list[str] = []
        self.answers = answers
        labels = {Topic.RUNTIME: "", Topic.IMAGES: ""}
        super().__init__("test", lambda _fact: None, Clock(), labels)

    def read(self, topic: Topic, at: Instant) -> str:
        if self.answers == 0:
            raise RefusedError("down")
        self.answers -= 1
        self.log.append(topic.name)
        return ""

    def post_unknown(self, topic: Topic, unknown: Unknown) -> None:
        self.log.append(f"{topic.name} unknown: {unknown.why}")


def test_only_what_is_asked_is_read() -> None:
    source = Source(answers=5)
    source.ask(frozenset({Question(Topic.IMAGES, period=10.0), Question(Topic.ROUTE, period=1.0)}))

    assert 9.0 < source.step() <= 10.0
    assert source.log == ["IMAGES"]


def test_a_topic_that_two_slots_ask_for_is_read_once_at_the_shorter_pace() -> None:
    source = Source(answers=5)
    source.ask(
        frozenset({Question(Topic.RUNTIME, period=30.0), Question(Topic.RUNTIME, period=2.0)})
    )

    assert 1.0 < source.step() <= 2.0
    source.step()
    assert source.log == ["RUNTIME"]


def test_a_failure_is_posted_and_not_tried_again_at_once() -> None:
    source = Source(answers=0)
    source.ask(frozenset({Question(Topic.RUNTIME, period=0.0)}))

    assert 0.0 < source.step() <= 0.5
    source.step()
    assert source.log == ["RUNTIME unknown: down"]


def test_a_fault_of_our_own_makes_every_topic_unknown() -> None:
    source = Source(answers=0)
    source.report_failure("bug")

    assert source.log == ["RUNTIME unknown: bug", "IMAGES unknown: bug"]
