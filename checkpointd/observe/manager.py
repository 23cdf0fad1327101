"""See whether the machine goes down: PID 1's state, and the file that the freeze unit writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checkpointd.clients import pid1, proc
from checkpointd.clock import Clock
from checkpointd.errors import SourceError
from checkpointd.model.decision import Topic
from checkpointd.model.moments import Seen, Unknown, seen
from checkpointd.model.observation import Fact, ManagerRead
from checkpointd.observe.source import Schedule, SourceThread

FROZEN = "frozen"
"""The file in the run directory."""
ANSWER_SECONDS = 1.0
"""It takes 2.6 ms; a machine that goes down under load may take longer."""
IDLE_PAUSE = 60.0


class ManagerQuery:
    """Ask PID 1, by any thread."""

    def __init__(self, clock: Clock, procfs: proc.Procfs, socket: Path, run: Path) -> None:
        self._clock = clock
        self._procfs = procfs
        self._socket = socket
        self._frozen = run / FROZEN

    def ask(self, seconds: float = ANSWER_SECONDS) -> Seen[str] | Unknown:
        """Return PID 1's SystemState as of now, within ``seconds``."""
        now = self._clock.now()
        try:
            return seen(pid1.read_system_state(self._socket, seconds), now)
        except SourceError as error:
            return Unknown(str(error), now)

    def is_systemd(self) -> bool:
        """Tell whether PID 1 is systemd: then a start waits for its answer (rule 11)."""
        return self._procfs.is_systemd()

    def is_frozen(self) -> bool:
        """Tell whether the freeze unit's file is there."""
        return self._frozen.exists()


class ManagerSource(SourceThread):
    """Answer MANAGER. ``look_now`` answers it before its time."""

    topics = frozenset({Topic.MANAGER})

    def __init__(self, post: Callable[[Fact], None], clock: Clock, query: ManagerQuery) -> None:
        super().__init__("manager", post, clock)
        self._query = query
        self._schedule = Schedule()
        self._now = False

    def look_now(self) -> None:
        """Look at once, whether asked or not: the file came or went."""
        self._now = True
        self.wake()

    def step(self) -> float:
        """Ask PID 1 if that is due."""
        now = self.clock.now()
        self._schedule.ask(self.asked)
        if self._now or self._schedule.due(now):
            self._now = False
            self.post(ManagerRead(self._query.ask(), self._query.is_frozen()))
            for question in self.asked:
                self._schedule.answered(question, now)
        return self._schedule.seconds_to_next(self.clock.now(), IDLE_PAUSE)

    def report_failure(self, why: str) -> None:
        """Post Unknown; the file is looked at all the same."""
        self.post(ManagerRead(Unknown(why, self.clock.now()), self._query.is_frozen()))
