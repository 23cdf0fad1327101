"""See the kubelet's and the runtime's processes, and whether there is a way out of the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checkpointd.clients import kubelet_process, network, pidfd, proc
from checkpointd.clock import Clock
from checkpointd.errors import SourceError
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant, Seen, Unknown, seen
from checkpointd.model.observation import (
    Fact,
    KubeletProcess,
    MachineProcesses,
    MachineRead,
    RouteRead,
)
from checkpointd.observe.source import Schedule, SourceThread

IDLE_PAUSE = 60.0
"""Seconds between rounds while nothing is asked."""


class Machine:
    """Find the processes that can start containers, and keep what was found.

    All processes are gone through only while the kubelet or the runtime is not known to live.
    """

    def __init__(self, procfs: proc.Procfs, boot_id: str) -> None:
        self._procfs = procfs
        self._boot_id = boot_id
        self._kubelet: proc.Process | None = None
        self._runtime: proc.Process | None = None
        self._read: tuple[proc.Process, KubeletProcess] | None = None

    def read(self) -> MachineProcesses:
        """Return what exists now. Raises SourceError."""
        self._kubelet = self._still(self._kubelet) or self._procfs.find_kubelet()
        self._runtime = self._still(self._runtime) or self._procfs.find_runtime()
        return MachineProcesses(
            kubelet=None if self._kubelet is None else self._set_up(self._kubelet),
            runtime_present=self._runtime is not None,
        )

    @property
    def pids(self) -> frozenset[int]:
        """Return the PIDs of kubelet and runtime as far as they are known."""
        return frozenset(
            process.pid for process in (self._kubelet, self._runtime) if process is not None
        )

    def _still(self, process: proc.Process | None) -> proc.Process | None:
        if process is None or self._procfs.read_process(process.pid) != process:
            return None
        return process

    def _set_up(self, process: proc.Process) -> KubeletProcess:
        if self._read is None or self._read[0] != process:
            read = kubelet_process.read_kubelet(self._procfs, process, self._boot_id)
            self._read = (process, read)
        return self._read[1]


class MachineSource(SourceThread):
    """Answer MACHINE and ROUTE; look at once when kubelet or runtime dies."""

    topics = frozenset({Topic.MACHINE, Topic.ROUTE})

    def __init__(self, post: Callable[[Fact], None], clock: Clock, procfs: proc.Procfs) -> None:
        super().__init__("machine", post, clock)
        self._machine = Machine(procfs, clock.boot_id)
        self._proc = Path(procfs.root)
        self._deaths = pidfd.Deaths()
        self._died = False
        self._schedule = Schedule()

    def step(self) -> float:
        """Answer what is due."""
        now = self.clock.now()
        self._schedule.ask(self.asked)
        due = set(self._schedule.due(now))
        if self._died:
            due |= {question for question in self.asked if question.topic is Topic.MACHINE}
            self._died = False
        for question in due:
            self._answer(question, now)
        if self._died:
            return 0.0
        return self._schedule.seconds_to_next(self.clock.now(), IDLE_PAUSE)

    def report_failure(self, why: str) -> None:
        """Post Unknown."""
        now = self.clock.now()
        self.post(MachineRead(Unknown(why, now)))
        self.post(RouteRead(Unknown(why, now)))

    def wait(self, seconds: float) -> None:
        """Wait for a death, a wake, or ``seconds``."""
        self._died |= bool(self._deaths.wait(seconds))

    def wake(self) -> None:
        """End the present wait."""
        self._deaths.wake()

    def close(self) -> None:
        """Close the descriptors, after ``stop``."""
        self._deaths.close()

    def _answer(self, question: Question, at: Instant) -> None:
        if question.topic is Topic.ROUTE:
            self.post(RouteRead(self._read_route(at)))
        else:
            self.post(MachineRead(self._read_machine(at)))
            # Who died between look and watch is looked for again at once.
            self._died |= bool(self._deaths.watch(self._machine.pids))
        self._schedule.answered(question, at)

    def _read_machine(self, at: Instant) -> Seen[MachineProcesses] | Unknown:
        try:
            return seen(self._machine.read(), at)
        except SourceError as error:
            return Unknown(str(error), at)

    def _read_route(self, at: Instant) -> Seen[bool] | Unknown:
        try:
            return seen(network.has_default_route(self._proc), at)
        except SourceError as error:
            return Unknown(str(error), at)
