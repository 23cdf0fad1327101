"""Collect what a source posts, in order, and wait for what a test means."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from checkpointd.model.observation import Fact

F = TypeVar("F")


class Posted:
    """Keep every fact. ``wait_for`` looks only at those that came after the last one it found."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._seen = 0
        self._changed = threading.Condition()

    def post(self, fact: Fact) -> None:
        """Take a fact, from the source's thread."""
        with self._changed:
            self.facts.append(fact)
            self._changed.notify_all()

    def wait_for(
        self, kind: type[F], wanted: Callable[[F], bool] = lambda _: True, seconds: float = 15
    ) -> F:
        """Return the next fact of ``kind`` that is ``wanted``; fail after ``seconds``."""
        until = time.monotonic() + seconds
        with self._changed:
            while True:
                while self._seen < len(self.facts):
                    fact = self.facts[self._seen]
                    self._seen += 1
                    if isinstance(fact, kind) and wanted(fact):
                        return fact
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    raise AssertionError(f"no such {kind.__name__}: {self.facts[-5:]}")

    def of(self, kind: type[F]) -> list[F]:
        """Return the facts of a kind so far."""
        with self._changed:
            return [fact for fact in self.facts if isinstance(fact, kind)]
