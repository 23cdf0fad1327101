"""See which pods have live processes, and see at once when one dies.

One process of each container is held by a pidfd: a container cannot become empty before that one
dies, and each death causes a look that picks another. So the last death is never missed, without a
descriptor per process and without ``cgroup.events``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from checkpointd.clients import cgroups, pidfd
from checkpointd.clock import Clock
from checkpointd.errors import SourceError
from checkpointd.model.decision import Topic
from checkpointd.model.moments import Instant, Unknown, seen
from checkpointd.model.observation import Fact, Leaf, PodProcesses, ProcessesRead
from checkpointd.observe.source import Schedule, SourceThread

IDLE_PAUSE = 60.0
"""Seconds between rounds while nothing is asked; questions and deaths wake it."""
POLL_PAUSE = 1.0
"""Seconds between looks where not every container could be watched."""
LOOK_BURST = 20
LOOKS_PER_SECOND = 5.0
"""Looks caused by deaths: a container that dies in a loop must not cost the machine's CPU."""


class Allowance:
    """Allow a burst of looks, and so many a second in the long run."""

    def __init__(self) -> None:
        self._left = float(LOOK_BURST)
        self._at: Instant | None = None

    def take(self, now: Instant) -> float:
        """Take one; return 0.0, or the seconds until there is one."""
        passed = 0.0 if self._at is None else now.seconds_since(self._at)
        self._at = now
        self._left = min(float(LOOK_BURST), self._left + passed * LOOKS_PER_SECOND)
        if self._left < 1.0:
            return (1.0 - self._left) / LOOKS_PER_SECOND
        self._left -= 1.0
        return 0.0


class KernelSource(SourceThread):
    """Answer PROCESSES for the pod UIDs that are asked for, all in one fact."""

    topics = frozenset({Topic.PROCESSES})

    def __init__(self, post: Callable[[Fact], None], clock: Clock, tree: cgroups.Cgroups) -> None:
        super().__init__("kernel", post, clock)
        self._tree = tree
        self._deaths = pidfd.Deaths()
        self._schedule = Schedule()
        self._allowance = Allowance()
        self._died: frozenset[int] = frozenset()
        self._last: Mapping[str, PodProcesses] | None = None
        self._looked_at: Instant | None = None

    def step(self) -> float:
        """Look if something is due or somebody died."""
        now = self.clock.now()
        self._schedule.ask(self.asked)
        due = bool(self._schedule.due(now))
        if self._died and not due:
            pause = self._allowance.take(now)
            if pause > 0:
                return pause
        if due or self._died or self._is_blind(now):
            self._look(now, due=due)
        at_most = IDLE_PAUSE if self._deaths.is_complete else POLL_PAUSE
        return self._schedule.seconds_to_next(self.clock.now(), at_most)

    def report_failure(self, why: str) -> None:
        """Post Unknown."""
        self._last = None
        self.post(ProcessesRead(Unknown(why, self.clock.now())))

    def wait(self, seconds: float) -> None:
        """Wait for a death, a wake, or ``seconds``."""
        self._died |= self._deaths.wait(seconds)

    def wake(self) -> None:
        """End the present wait."""
        self._deaths.wake()

    def close(self) -> None:
        """Close the descriptors, after ``stop``."""
        self._deaths.close()

    def _is_blind(self, now: Instant) -> bool:
        """Tell whether a death since the last look may have gone unnoticed."""
        if self._deaths.is_complete or self._looked_at is None:
            return False
        return now.seconds_since(self._looked_at) >= POLL_PAUSE

    def _look(self, at: Instant, *, due: bool) -> None:
        questions = self.asked
        self._looked_at = at
        died, self._died = self._died, frozenset()
        try:
            pods = self._tree.read_pods(dict.fromkeys(question.target for question in questions))
        except SourceError as error:
            self.report_failure(str(error))
        else:
            pods = self._without_dead(pods, died)
            if due or pods != self._last:
                self._last = pods
                self.post(ProcessesRead(seen(pods, at)))
        for question in questions:
            self._schedule.answered(question, at)

    def _without_dead(
        self, pods: Mapping[str, PodProcesses], dead: frozenset[int]
    ) -> Mapping[str, PodProcesses]:
        """Leave out whose pidfd says that it is dead, and watch one process of each leaf.

        What a pidfd says is certain and early: the list of a cgroup may lag behind it.
        """
        while True:
            pods = {uid: _without(pod, dead) for uid, pod in pods.items()} if dead else pods
            leaves = (leaf for pod in pods.values() for leaf in pod.leaves)
            dead = self._deaths.watch(frozenset(min(leaf.pids) for leaf in leaves if leaf.pids))
            if not dead:
                return pods


def _without(pod: PodProcesses, dead: frozenset[int]) -> PodProcesses:
    return replace(pod, leaves=tuple(_leaf_without(leaf, dead) for leaf in pod.leaves))


def _leaf_without(leaf: Leaf, dead: frozenset[int]) -> Leaf:
    left = tuple(pid for pid in leaf.pids if pid not in dead)
    return replace(leaf, pids=left, only_pause=leaf.only_pause and bool(left))
