"""Read each topic of a source at its own pace; try what fails again with a growing pause.

One log line when something goes and one when it is back, however often it is tried between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from checkpointd import log
from checkpointd.clock import Clock
from checkpointd.errors import SourceError
from checkpointd.model.decision import Topic
from checkpointd.model.moments import Instant, Unknown
from checkpointd.model.observation import Fact
from checkpointd.observe.source import Schedule, SourceThread

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
"""Seconds after a failure before the next try: doubling from the first to the longest."""
LONGEST_WAIT = 30.0


class Attempts:
    """Remember how the tries of one thing went. ``what`` names it in the log; "" says nothing."""

    def __init__(self, what: str = "", *, longest: float = LONGEST_PAUSE) -> None:
        self._what = what
        self._longest = longest
        self._pause = 0.0
        self._failed_at: Instant | None = None
        self._detail: str | None = None

    def seconds_to_next(self, now: Instant) -> float:
        """Return the seconds until it may be tried: 0.0 unless it failed just now."""
        if self._failed_at is None:
            return 0.0
        return max(0.0, self._pause - now.seconds_since(self._failed_at))

    def succeeded(self, detail: str) -> None:
        """Note an answer; ``detail`` says whose. A new one is logged like a return."""
        if self._what and detail != self._detail:
            extra = log.fields(log.Event.SOURCE_BACK, reason=detail)
            logging.getLogger(log.LOGGER).info("%s: %s", self._what, detail, extra=extra)
        self._detail = detail
        self._failed_at = None

    def failed(self, now: Instant, why: str) -> None:
        """Note a failure; the first of a row is logged."""
        if self._failed_at is None:
            self._pause = FIRST_PAUSE
            self._report(why)
        else:
            self._pause = min(self._longest, 2 * self._pause)
        self._failed_at = now
        self._detail = None

    def _report(self, why: str) -> None:
        if self._what:
            extra = log.fields(log.Event.SOURCE_GONE, reason=why)
            logging.getLogger(log.LOGGER).warning("%s: unknown: %s", self._what, why, extra=extra)


class PacedSource(SourceThread):
    """Be the base of sources that answer by asking: subclasses write ``read``, ``post_unknown``.

    ``labels`` are the topics that it answers, with their names for the log.
    """

    def __init__(
        self,
        name: str,
        post: Callable[[Fact], None],
        clock: Clock,
        labels: Mapping[Topic, str],
    ) -> None:
        super().__init__(name, post, clock)
        self.topics = frozenset(labels)
        self._schedules = {topic: Schedule() for topic in labels}
        self._attempts = {topic: Attempts(label) for topic, label in labels.items()}

    def read(self, topic: Topic, at: Instant) -> str:
        """Read and post one topic; return who answered. Raises SourceError."""
        raise NotImplementedError

    def post_unknown(self, topic: Topic, unknown: Unknown) -> None:
        """Post that a topic could not be read."""
        raise NotImplementedError

    def step(self) -> float:
        """Read what is due and return the seconds until something is again."""
        waits = [LONGEST_WAIT]
        for topic in self._schedules:
            questions = tuple(question for question in self.asked if question.topic is topic)
            self._schedules[topic].ask(questions)
            if not questions:
                continue
            if self.seconds_to(topic, self.clock.now()) <= 0:
                self._answer(topic)
            waits.append(self.seconds_to(topic, self.clock.now()))
        return min(waits)

    def report_failure(self, why: str) -> None:
        """Post Unknown for every topic, after a fault of our own."""
        for topic in self._schedules:
            self.post_unknown(topic, Unknown(why, self.clock.now()))

    def seconds_to(self, topic: Topic, now: Instant) -> float:
        """Return the seconds until a topic that is asked for is to be read."""
        due = self._schedules[topic].seconds_to_next(now, LONGEST_WAIT)
        return max(due, self._attempts[topic].seconds_to_next(now))

    def _answer(self, topic: Topic) -> None:
        at = self.clock.now()
        for question in self.asked:
            if question.topic is topic:
                self._schedules[topic].answered(question, at)
        try:
            detail = self.read(topic, at)
        except SourceError as error:
            self.post_unknown(topic, Unknown(str(error), at))
            self._attempts[topic].failed(self.clock.now(), str(error))
        else:
            self._attempts[topic].succeeded(detail)
