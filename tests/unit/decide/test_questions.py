"""What is asked, how often, and what makes an answer too old."""

from __future__ import annotations

from typing import Any

from checkpointd.model.decision import Question, Topic
from tests.builders import observations as build
from tests.builders.observations import at, run, seen, unknown

UID = build.pod().uid
RUNNING = seen(build.runtime(UID), since=950)


def processes_question(**fields: Any) -> Question:
    """Return what is asked of the kernel about the pod."""
    given: dict[str, Any] = {"runtime": RUNNING, **fields}
    decision = run(build.observation(build.pod(), **given), build.checkpoint())
    return next(q for q in decision.questions if q.topic is Topic.PROCESSES and q.target == UID)


def test_a_container_that_started_between_two_looks_is_looked_for_at_once() -> None:
    empty = build.processes(build.alive(UID))
    assert processes_question(processes=seen(empty, 949)).after == at(950)


def test_the_same_of_a_container_that_was_started_again() -> None:
    old = build.processes(build.alive(UID, 7, leaf="container-before"))
    assert processes_question(processes=seen(old, 949)).after == at(950)


def test_containers_whose_processes_are_watched_are_looked_at_at_the_usual_pace() -> None:
    question = processes_question(processes=build.processes(build.alive(UID, 7)))
    assert (question.period, question.after) == (30.0, None)


def test_a_pod_that_does_not_run_and_a_runtime_that_is_silent_say_nothing_of_processes() -> None:
    empty = build.processes(build.alive(UID))
    assert processes_question(processes=empty, runtime=build.runtime()).after is None
    assert processes_question(processes=empty, runtime=unknown()).after is None
    assert processes_question(processes=unknown()).after is None
