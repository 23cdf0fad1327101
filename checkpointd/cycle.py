"""Observe, decide, act: the one place where they meet.

The cycle is the only thread that decides and writes. It takes what the sources posted, decides,
performs the actions in order, asks the next questions, tells people, and pings the watchdog. An
unforeseen exception costs one fact, one slot (``decide.slots``), one action or one cycle, never the
daemon: this is one of the places where every exception is caught.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from checkpointd import log
from checkpointd.act import telling
from checkpointd.clock import Clock
from checkpointd.decide import fold, plan, portrait, tidying
from checkpointd.decide.plan import Plan
from checkpointd.decide.portrait import Picture
from checkpointd.errors import StoreError
from checkpointd.model.checkpoint import Checkpoint, Stored
from checkpointd.model.decision import (
    Action,
    Decision,
    Outcome,
    Question,
    Reason,
    RemoveStore,
    SaveCheckpoint,
    SaveNode,
    Severity,
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

T = TypeVar("T")
FIRST_LOOK = 2.0
"""Seconds at most for each of the two waits before the first starts: systemd gives us 10 s."""
FIRST_FACTS = (MachineRead, ManifestsRead, ManagerRead)
FIRST_WITNESSES = (RuntimeRead, ProcessesRead)
MANAGER_PATIENCE = 5.0
"""Seconds for which a start waits for PID 1's answer while PID 1 is systemd (rule 11)."""
MOST_AT_ONCE = 10
"""Cycles in a row that may change a slot's state; more would be a fault, and is slowed down."""
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
    sentence of each cycle that has ended. ``find_faults`` looks after the store's disk and says
    what is wrong with it.
    """

    clock: Clock
    inbox: Inbox
    hands: Hands
    manager: Manager
    ask: Callable[[frozenset[Question]], None]
    show: Callable[[Callable[[], NodeStatus]], None]
    finished: Callable[[str], None]
    find_faults: Callable[[], tuple[str, ...]] = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """Stand for what a call would have returned, had it not raised by a fault of ours."""

    sentence: str


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
        self._plan: Plan | None = None
        self._picture: Picture | None = None
        self._look_again = now
        self._failures: dict[Slot | None, int] = {}
        self._failed: tuple[str, ...] = ()
        self._restless: dict[Slot | None, int] = {}
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
        failed = self._catch("a cycle failed", call)
        if isinstance(failed, Failed):
            self._look_again = self.world.clock.now().plus(FAULT_PAUSE)
            self.world.finished(failed.sentence)
        self._ended = self.world.clock.now()

    def _catch(self, what: str, call: Callable[[], T]) -> T | Failed:
        """Return what ``call`` returns, or that it failed, which is told once."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - told with its traceback
            sentence = f"{what}: {type(error).__name__}: {error}"
            self._note_fault(sentence, error)
            return Failed(sentence)

    def _note_fault(self, sentence: str, error: Exception) -> None:
        self.faults += 1
        self._told.fault(sentence, error)

    # ---- one cycle -------------------------------------------------------------------------------
    def _turn(self, facts: tuple[Fact, ...]) -> None:
        now = self.world.clock.now()
        still = now.seconds_since(self._ended)
        if still > STOOD_STILL:
            self._resume(facts, now, still)
        else:
            self._fold(facts, now)
        made = self._decide(now)
        if made.decision.starts:
            made = self._ask_manager(made, now)
        else:
            self._manager_asked = None
        outcomes = self._act(made.decision)
        made = _with_faults(made, self.world.find_faults())
        decision = made.decision
        self._pace(made, outcomes)
        self.observation = tidying.tidy(self.observation, self.stored, decision.questions)
        self.world.ask(decision.questions)
        self._tell(decision, outcomes)
        self._show(made)
        self.world.finished(decision.summary)

    def _decide(self, now: Instant) -> Plan:
        self._plan = plan.make(self.observation, self.stored, self.policy, now, self._plan)
        return self._plan

    def _tell(self, decision: Decision, outcomes: tuple[Outcome, ...]) -> None:
        for fault in decision.faults:
            self._note_fault(telling.line(fault.slot, fault.sentence), fault.error)
        self._told.decision(decision, outcomes, self.stored)

    def _resume(self, facts: tuple[Fact, ...], now: Instant, still: float) -> None:
        """Go on after this process stood still; of ``facts`` none is known to be newer."""
        logger = logging.getLogger(log.LOGGER)
        logger.warning("nothing was seen for %.0f s: suspended, stopped or starved", still)
        self.observation = fold.resume(self.observation, now, still)
        self._fold(facts, now)
        self.observation = fold.resume(self.observation, now, still)

    def _fold(self, facts: tuple[Fact, ...], now: Instant) -> None:
        """Take facts in, each by itself: one that cannot be costs no other."""
        before = self.observation
        each: list[tuple[Fact, ...]] = [(fact,) for fact in facts]
        for some in each or [()]:  # without facts too: time has passed
            fold_in = partial(fold.fold, self.observation, some, now, self.policy.times)
            folded = self._catch("a fact cannot be taken in", fold_in)
            if not isinstance(folded, Failed):
                self.observation = folded
        self._told.observation(before, self.observation, self.policy.times.silent_for)

    def _ask_manager(self, made: Plan, now: Instant) -> Plan:
        """Ask PID 1 before a start: an orderly shutdown must not start everything (rule 11)."""
        manager = self.world.manager
        state = manager.ask()
        if isinstance(state, Unknown) and manager.is_systemd() and self._is_patient(now):
            return replace(made, decision=_without_effects(made.decision, now.plus(0.2)))
        self._manager_asked = None
        self._fold((ManagerRead(state, manager.is_frozen()),), now)
        return self._decide(now)

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
            outcome = self._perform(action)
            outcomes.append(outcome)
            if outcome.error:
                failed.add(action.slot)
                self._take_over_damage(outcome)
            else:
                self.stored = apply(self.stored, action)
        return tuple(outcomes)

    def _perform(self, action: Action) -> Outcome:
        what = telling.line(action.slot, f"{type(action).__name__} failed")
        outcome = self._catch(what, partial(self.world.hands.perform, action))
        if isinstance(outcome, Failed):
            return Outcome(action=action, error=outcome.sentence)
        return outcome

    def _take_over_damage(self, outcome: Outcome) -> None:
        if outcome.checkpoint is not None:
            self.stored = _with(self.stored, outcome.checkpoint)

    def _pace(self, made: Plan, outcomes: tuple[Outcome, ...]) -> None:
        """Say when to look again. What failed, or moves without rest, delays itself alone."""
        failed = tuple(outcome for outcome in outcomes if outcome.error)
        lines = (f"failed: {telling.line(o.action.slot, o.error)}" for o in failed)
        self._failed = tuple(dict.fromkeys(lines))
        slots = {outcome.action.slot for outcome in failed}
        self._failures = {slot: self._failures.get(slot, 0) + 1 for slot in slots}
        # What could not be saved moves again in the next cycle: no restlessness of ours.
        moved = {r.slot for r in made.decision.reasons if r.changed} - slots
        self._restless = {slot: self._restless.get(slot, 0) + 1 for slot in moved}
        restless = {slot for slot, count in self._restless.items() if count > MOST_AT_ONCE}
        for slot in sorted(restless, key=str):
            sentence = "its state changes without rest: a fault of ours, slowed down"
            self._told.fault(telling.line(slot, sentence))
        if not slots and not restless:
            self._look_again = made.decision.look_again
            return
        counts = [*self._failures.values(), *(1 for _slot in restless)]
        pause = min(FAULT_PAUSE * 2 ** min(min(counts) - 1, 10), LONGEST_PAUSE)
        others = made.look_again(without=slots | restless)
        retry = self.world.clock.now().plus(pause)
        self._look_again = min(others, retry, key=lambda moment: moment.seconds)

    def _show(self, made: Plan) -> None:
        def draw() -> NodeStatus:
            self._picture = portrait.portray(made, self.stored, self._picture)
            status = self._picture.status
            return replace(status, alarms=(*self.alarms, *self._failed, *status.alarms))

        def show() -> None:
            try:
                self.world.show(draw)
            except StoreError as error:
                self._told.fault(f"the status is not written: {error}")

        self._catch("the status cannot be drawn", show)


def _with_faults(made: Plan, faults: tuple[str, ...]) -> Plan:
    if not faults:
        return made
    reasons = (Reason(None, "store", fault, Severity.ALARM) for fault in faults)
    decision = replace(made.decision, reasons=(*made.decision.reasons, *reasons))
    return replace(made, decision=decision)


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
