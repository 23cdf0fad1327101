"""See whether the machine goes down: PID 1's state, logind's, and the freeze unit's file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checkpointd.clients import logind, pid1, proc
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
LOGIND_SECONDS = 0.25
"""It takes 2 ms; where it does not answer, PID 1's word stands."""
STOPPING = "stopping"
UP = frozenset({"running", "degraded"})
"""SystemStates in which logind may know of a shutdown that PID 1 does not know of."""
IDLE_PAUSE = 60.0


class ManagerQuery:
    """Ask PID 1, by any thread."""

    def __init__(self, clock: Clock, procfs: proc.Procfs, socket: Path, run: Path) -> None:
        self._clock = clock
        self._procfs = procfs
        self._socket = socket
        # Both lie below /run: /run/systemd/private, /run/dbus/system_bus_socket.
        self._bus = socket.parents[1] / "dbus" / "system_bus_socket"
        self._frozen = run / FROZEN

    def ask(self, seconds: float = ANSWER_SECONDS) -> Seen[str] | Unknown:
        """Return PID 1's SystemState as of now, within ``seconds``.

        It is "stopping" as soon as logind has begun a shutdown, whoever holds that up.
        """
        now = self._clock.now()
        try:
            state = pid1.read_system_state(self._socket, seconds)
        except SourceError as error:
            return Unknown(str(error), now)
        return seen(STOPPING if state in UP and self._is_going_down() else state, now)

    def _is_going_down(self) -> bool:
        try:
            return logind.is_going_down(self._bus, LOGIND_SECONDS)
        except SourceError:
            return False

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
