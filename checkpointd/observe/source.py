"""Run one source in a thread of its own: the guard, the waking, and what is due.

A source thread reads what the questions ask, posts facts, and waits with a deadline. Its guard is
one of the places where every exception is caught.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant
from checkpointd.model.observation import Fact

GUARD_PAUSE = 5.0
"""Seconds before a source that failed by our own fault is tried again."""


class Mailbox:
    """Carry facts from the source threads to the cycle."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Fact | None] = SimpleQueue()

    def post(self, fact: Fact) -> None:
        """Hand a fact to the cycle. Never blocks."""
        self._queue.put(fact)

    def wake(self) -> None:
        """Wake the cycle without a fact."""
        self._queue.put(None)

    def drain(self, timeout: float) -> tuple[Fact, ...]:
        """Wait up to ``timeout`` seconds for a fact, then take all that are there."""
        facts: list[Fact] = []
        try:
            first = self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
            if first is not None:
                facts.append(first)
            while True:
                item = self._queue.get_nowait()
                if item is not None:
                    facts.append(item)
        except Empty:
            return tuple(facts)


class Schedule:
    """Remember when each question was last answered, and say which are due."""

    def __init__(self) -> None:
        self._read: dict[tuple[Topic, str], Instant] = {}
        self._questions: tuple[Question, ...] = ()

    def ask(self, questions: tuple[Question, ...]) -> None:
        """Replace the questions; what is asked no more is forgotten."""
        self._questions = questions
        asked = {(question.topic, question.target) for question in questions}
        self._read = {key: at for key, at in self._read.items() if key in asked}

    def answered(self, question: Question, at: Instant) -> None:
        """Note that ``question`` was read ``at`` (the time when the reading began)."""
        self._read[(question.topic, question.target)] = at

    def due(self, now: Instant) -> tuple[Question, ...]:
        """Return the questions that want an answer now."""
        return tuple(question for question in self._questions if self._wait(question, now) <= 0)

    def seconds_to_next(self, now: Instant, at_most: float) -> float:
        """Return the seconds until the next question is due."""
        waits = [self._wait(question, now) for question in self._questions]
        return max(0.0, min([at_most, *waits]))

    def _wait(self, question: Question, now: Instant) -> float:
        last = self._read.get((question.topic, question.target))
        if last is None or (question.after is not None and last.is_before(question.after)):
            return 0.0
        return (
            float("inf") if question.period is None else question.period - now.seconds_since(last)
        )


class SourceThread:
    """Be the base of the source threads: subclasses write ``step`` and ``report_failure``.

    ``topics`` are the questions that this source answers. ``step`` does one round and returns the
    seconds to wait for the next; ``wake`` ends that wait early.
    """

    topics: frozenset[Topic] = frozenset()
    guard_pause = GUARD_PAUSE

    def __init__(self, name: str, post: Callable[[Fact], None], clock: Clock) -> None:
        self.name = name
        self.post = post
        self.clock = clock
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self._all_asked: frozenset[Question] = frozenset()
        self._asked: tuple[Question, ...] = ()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Ask the thread to end and wait ``timeout`` seconds at most."""
        self.stopping.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def ask(self, questions: frozenset[Question]) -> None:
        """Take over the questions of this source's topics; wake if they differ from the last."""
        if questions is self._all_asked:
            return
        self._all_asked = questions
        mine = tuple(question for question in questions if question.topic in self.topics)
        with self.lock:
            changed = set(mine) != set(self._asked)
            self._asked = mine
        if changed:
            self.wake()

    @property
    def asked(self) -> tuple[Question, ...]:
        """Return the questions as last asked."""
        with self.lock:
            return self._asked

    def wake(self) -> None:
        """End the present wait. Sources that wait on something else override this."""
        self._woken.set()

    def wait(self, seconds: float) -> None:
        """Wait until woken or ``seconds`` have passed."""
        self._woken.wait(seconds)
        self._woken.clear()

    def step(self) -> float:
        """Do one round and return the seconds to wait for the next."""
        raise NotImplementedError

    def report_failure(self, why: str) -> None:
        """Post Unknown for all that this source says, after a fault of our own."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                pause = self.step()
                if not self.stopping.is_set():
                    self.wait(pause)
            except Exception as error:
                logging.getLogger("checkpointd").exception("source %s failed", self.name)
                self._report(f"{self.name}: {type(error).__name__}: {error}")
                self.stopping.wait(self.guard_pause)

    def _report(self, why: str) -> None:
        """Tell of a fault of our own; the thread must outlive a second one on the way."""
        try:
            self.report_failure(why)
        except Exception:
            logging.getLogger("checkpointd").exception("source %s cannot say so", self.name)
