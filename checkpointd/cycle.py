"""Observe, decide, act: the one place where they meet.

The cycle is the only thread that decides and writes. It takes what the sources posted, decides,
performs the actions in order, asks the next questions, tells people, and pings the watchdog. An
unforeseen exception costs one cycle, never the daemon: this is one of the two places where every
exception is caught.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from checkpointd import log
from checkpointd.act import telling
from checkpointd.clock import Clock
from checkpointd.decide import decide, fold, portrait
from checkpointd.errors import InvariantError, StoreError
from checkpointd.model.checkpoint import Checkpoint, Stored
from checkpointd.model.decision import (
    Action,
    Decision,
    Outcome,
    Question,
    RemoveStore,
    SaveCheckpoint,
    SaveNode,
    Topic,
)
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import (
    Fact,
    MachineRead,
    ManagerRead,
    ManifestsRead,
    Observation,
    ProcessesRead,
    RuntimeRead,
)
from checkpointd.model.pods import Slot
from checkpointd.model.policy import Policy
from checkpointd.model.status import NodeStatus

FIRST_LOOK = 2.0
"""Seconds at most for each of the two waits before the first starts: systemd gives us 10 s."""
FIRST_FACTS = (MachineRead, ManifestsRead, ManagerRead)
FIRST_WITNESSES = (RuntimeRead, ProcessesRead)
MANAGER_PATIENCE = 5.0
"""Seconds for which a start waits for PID 1's answer while PID 1 is systemd (rule 11)."""
MOST_AT_ONCE = 10
"""Cycles in a row that may change a state; more would be a fault, and is slowed down."""
FAULT_PAUSE = 1.0
STOOD_STILL = 20.0
"""Seconds between two cycles that no wait of ours explains: it lasts 10 s at most."""
LONGEST_PAUSE = 10.0
"""Seconds after a failed action until the next cycle: doubling from FAULT_PAUSE."""


class Hands(Protocol):
    """Be what performs actions (``act.perform.Actor``)."""

    def perform(self, action: Action) -> Outcome:
        """Perform one action."""
        ...


class Inbox(Protocol):
    """Be where facts arrive (``observe.source.Mailbox``)."""

    def drain(self, timeout: float) -> tuple[Fact, ...]:
        """Wait for facts."""
        ...


class Manager(Protocol):
    """Be PID 1 as it is asked before each start (``observe.manager.ManagerQuery``)."""

    def ask(self, seconds: float = ...) -> Seen[str] | Unknown:
        """Return its SystemState."""
        ...

    def is_systemd(self) -> bool:
        """Tell whether PID 1 is systemd."""
        ...

    def is_frozen(self) -> bool:
        """Tell whether the freeze file is there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Hold what the cycle meets: facts in, actions and questions out.

    ``show`` is handed a way to draw the picture, and draws when it is due. ``finished`` is told the
    sentence of each cycle that has ended.
    """

    clock: Clock
    inbox: Inbox
    hands: Hands
    manager: Manager
    ask: Callable[[frozenset[Question]], None]
    show: Callable[[Callable[[], NodeStatus]], None]
    finished: Callable[[str], None]


class Cycle:
    """Run cycles over one observation and one store."""

    def __init__(self, world: World, stored: Stored, policy: Policy) -> None:
        self.world = world
        self.stored = stored
        self.policy = policy
        self.alarms: tuple[str, ...] = ()
        self.faults = 0
        now = world.clock.now()
        self.observation: Observation = fold.initial(now, stored.node)
        self._told = telling.Teller()
        self._look_again = now
        self._failures = 0
        self._failed: tuple[str, ...] = ()
        self._restless = 0
        self._manager_asked: Instant | None = None
        self._ended = now

    def first(self) -> None:
        """Look at the machine and at what runs, then write the first starts.

        Whoever is started after us, the kubelet first of all, then finds them in place.
        """
        self.world.ask(frozenset({Question(Topic.MACHINE), Question(Topic.MANAGER)}))
        self._wait_for(*FIRST_FACTS)
        self._run((), 0.0)
        if self.stored.checkpoints:
            self._wait_for(*FIRST_WITNESSES, until=self._is_runtime_settled)
        for _ in range(3):
            self._run((), 0.0)

    def _is_runtime_settled(self) -> bool:
        """Tell whether the runtime answers, or has no process: one that starts is waited for."""
        machine = self.observation.machine
        absent = isinstance(machine, Seen) and not machine.value.runtime_present
        return absent or isinstance(self.observation.runtime, Seen)

    def _wait_for(self, *kinds: type[Fact], until: Callable[[], bool] = lambda: True) -> None:
        """Fold facts until one of each kind has come and ``until`` holds, FIRST_LOOK s at most."""
        began = self.world.clock.now()
        missing = set(kinds)
        while missing or not until():
            left = FIRST_LOOK - self.world.clock.now().seconds_since(began)
            if left <= 0:
                return
            facts = self.world.inbox.drain(left)
            missing -= {type(fact) for fact in facts}
            self._guard(partial(self._fold, facts, self.world.clock.now()))

    def run_once(self, at_most: float) -> None:
        """Wait for facts, for a deadline, or ``at_most`` seconds; then run one cycle."""
        wait = self._look_again.seconds - self.world.clock.now().seconds
        self._run(None, max(0.0, min(wait, at_most)))

    def _run(self, facts: tuple[Fact, ...] | None, wait: float) -> None:
        taken = self.world.inbox.drain(wait) if facts is None else facts
        self._guard(partial(self._turn, taken))

    def _guard(self, call: Callable[[], None]) -> None:
        try:
            call()
        except InvariantError as error:
            self._note_fault(f"nothing is done in this cycle, a safety rule would break: {error}")
        except Exception as error:
            sentence = f"a cycle failed: {type(error).__name__}: {error}"
            if self._told.is_new(sentence):
                logging.getLogger(log.LOGGER).exception("a cycle failed")
            self._note_fault(sentence)
        self._ended = self.world.clock.now()

    def _note_fault(self, sentence: str) -> None:
        self.faults += 1
        self._told.fault(sentence)
        self._look_again = self.world.clock.now().plus(FAULT_PAUSE)
        self.world.finished(sentence)

    # ---- one cycle -------------------------------------------------------------------------------
    def _turn(self, facts: tuple[Fact, ...]) -> None:
        now = self.world.clock.now()
        still = now.seconds_since(self._ended)
        if still > STOOD_STILL:
            self._resume(facts, now, still)
        else:
            self._fold(facts, now)
        decision = decide(self.observation, self.stored, self.policy, now)
        if decision.starts:
            decision = self._ask_manager(decision, now)
        else:
            self._manager_asked = None
        outcomes = self._act(decision)
        self._pace(decision, outcomes)
        self.observation = fold.tidy(self.observation, self.stored, decision.questions)
        self.world.ask(decision.questions)
        self._told.decision(decision, outcomes, self.stored)
        self._show(decision, now)
        self.world.finished(decision.summary)

    def _resume(self, facts: tuple[Fact, ...], now: Instant, still: float) -> None:
        """Go on after this process stood still; of ``facts`` none is known to be newer."""
        logger = logging.getLogger(log.LOGGER)
        logger.warning("nothing was seen for %.0f s: suspended, stopped or starved", still)
        self.observation = fold.resume(self.observation, now, still)
        self._fold(facts, now)
        self.observation = fold.resume(self.observation, now, still)

    def _fold(self, facts: tuple[Fact, ...], now: Instant) -> None:
        before = self.observation
        self.observation = fold.fold(before, facts, now, self.policy.times)
        self._told.observation(before, self.observation)

    def _ask_manager(self, decision: Decision, now: Instant) -> Decision:
        """Ask PID 1 before a start: an orderly shutdown must not start everything (rule 11)."""
        manager = self.world.manager
        state = manager.ask()
        if isinstance(state, Unknown) and manager.is_systemd() and self._is_patient(now):
            return _without_effects(decision, now.plus(0.2))
        self._manager_asked = None
        self._fold((ManagerRead(state, manager.is_frozen()),), now)
        return decide(self.observation, self.stored, self.policy, now)

    def _is_patient(self, now: Instant) -> bool:
        if self._manager_asked is None:
            self._manager_asked = now
        return now.seconds_since(self._manager_asked) < MANAGER_PATIENCE

    def _act(self, decision: Decision) -> tuple[Outcome, ...]:
        """Perform the actions in order; after a failed one the rest of its slot waits."""
        outcomes: list[Outcome] = []
        failed: set[Slot | None] = set()
        for action in decision.actions:
            if action.slot in failed:
                continue
            outcome = self.world.hands.perform(action)
            outcomes.append(outcome)
            if outcome.error:
                failed.add(action.slot)
                self._take_over_damage(outcome)
            else:
                self.stored = apply(self.stored, action)
        return tuple(outcomes)

    def _take_over_damage(self, outcome: Outcome) -> None:
        if outcome.checkpoint is not None:
            self.stored = _with(self.stored, outcome.checkpoint)

    def _pace(self, decision: Decision, outcomes: tuple[Outcome, ...]) -> None:
        self._look_again = decision.look_again
        failed = (f"failed: {telling.line(o.action.slot, o.error)}" for o in outcomes if o.error)
        self._failed = tuple(dict.fromkeys(failed))
        if self._failed:
            # What could not be saved changes again in the next cycle: no restlessness of ours.
            self._failures += 1
            pause = min(FAULT_PAUSE * 2 ** min(self._failures - 1, 10), LONGEST_PAUSE)
            self._look_again = self.world.clock.now().plus(pause)
            return
        self._failures = 0
        self._restless = self._restless + 1 if any(r.changed for r in decision.reasons) else 0
        if self._restless > MOST_AT_ONCE:
            self._told.fault("states change without rest: a fault of ours, slowed down")
            self._look_again = self.world.clock.now().plus(FAULT_PAUSE)

    def _show(self, decision: Decision, now: Instant) -> None:
        def draw() -> NodeStatus:
            status = portrait.portray(self.observation, self.stored, self.policy, decision, now)
            return replace(status, alarms=(*self.alarms, *self._failed, *status.alarms))

        try:
            self.world.show(draw)
        except StoreError as error:
            self._told.fault(f"the status is not written: {error}")


def apply(stored: Stored, action: Action) -> Stored:
    """Return the store as it is after ``action`` was done."""
    match action:
        case SaveCheckpoint():
            return _with(stored, action.checkpoint)
        case SaveNode():
            return replace(stored, node=action.record)
        case RemoveStore():
            left = {k: v for k, v in stored.checkpoints.items() if k != action.slot}
            return replace(stored, checkpoints=left)
        case _:
            return stored


def _with(stored: Stored, checkpoint: Checkpoint) -> Stored:
    return replace(stored, checkpoints={**stored.checkpoints, checkpoint.slot: checkpoint})


def _without_effects(decision: Decision, again: Instant) -> Decision:
    return replace(
        decision,
        actions=(),
        look_again=again,
        summary="waits for PID 1's answer before a start",
        reasons=tuple(replace(reason, changed=False) for reason in decision.reasons),
    )
