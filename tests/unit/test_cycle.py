"""The cycle alone: what it does about faults, failures and a PID 1 that does not answer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from checkpointd.clock import Clock
from checkpointd.cycle import Cycle, World
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import Action, Outcome, PlaceManifest, Question, SaveCheckpoint
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import (
    ApiRefused,
    Fact,
    Observation,
    Override,
    OverridesRead,
    RuntimeRead,
    Verb,
)
from checkpointd.model.pods import Slot
from checkpointd.model.status import NodeStatus
from tests.builders import observations as build

STORED = build.checkpoint(serves_api=True)


class Stopped(Clock):
    """Be a clock that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.at = build.NOW

    def now(self) -> Instant:
        return self.at


@dataclass
class Fakes:
    """Be all that the cycle meets, and note what it does."""

    clock: Stopped = field(default_factory=Stopped)
    error: str = ""
    fails_at: type[Action] | None = None
    fails_for: Slot | None = None
    bug: Exception | None = None
    manager: Seen[str] | Unknown = field(default_factory=lambda: build.seen("running"))
    facts: tuple[Fact, ...] = ()
    performed: list[Action] = field(default_factory=list[Action])
    asked: list[frozenset[Question]] = field(default_factory=list[frozenset[Question]])
    shown: NodeStatus | None = None
    finished: list[str] = field(default_factory=list[str])
    faults: tuple[str, ...] = ()

    # ---- hands, inbox, manager ----
    def perform(self, action: Action) -> Outcome:
        self.performed.append(action)
        fails = self.fails_at is not None and isinstance(action, self.fails_at)
        fails = fails and self.fails_for in (None, action.slot)
        if fails and self.bug is not None:
            raise self.bug
        return Outcome(action=action, error=self.error if fails else "", seconds=0.0)

    def drain(self, timeout: float) -> tuple[Fact, ...]:
        taken, self.facts = self.facts, ()
        self.clock.at = self.clock.at.plus(timeout)
        return taken

    def ask(self, seconds: float = 1.0) -> Seen[str] | Unknown:
        return self.manager

    def is_systemd(self) -> bool:
        return True

    def is_frozen(self) -> bool:
        return False

    def show(self, draw: Callable[[], NodeStatus]) -> None:
        self.shown = draw()

    def cycle(self, *checkpoints: Checkpoint) -> Cycle:
        world = World(
            clock=self.clock,
            inbox=self,
            hands=self,
            manager=self,
            ask=self.asked.append,
            show=self.show,
            finished=self.finished.append,
            find_faults=lambda: self.faults,
        )
        return Cycle(world, build.stored(*checkpoints), build.POLICY)

    def placed(self) -> int:
        return sum(isinstance(action, PlaceManifest) for action in self.performed)


WEB = build.checkpoint(build.word("web", controller=None), serves_api=True)
"""A second slot, to be started as well."""


def to_start() -> Observation:
    """Return a node on which a copy is to be started now."""
    return build.silent(runtime=build.runtime())


def test_a_start_waits_for_pid_1_five_seconds_each_time_not_once() -> None:
    fakes = Fakes(manager=Unknown("busy", build.NOW))
    cycle = fakes.cycle(STORED)
    cycle.observation = to_start()
    cycle.run_once(0)
    assert fakes.placed() == 0
    # The start is no longer wanted; a quarter of a minute later it is again.
    cycle.observation = build.observation(build.pod(), runtime=build.runtime("uid-api-1"))
    cycle.run_once(0)
    fakes.clock.at = build.at(1015)
    cycle.observation = to_start()
    cycle.run_once(0)
    assert fakes.placed() == 0
    fakes.clock.at = build.at(1021)
    cycle.observation = to_start()
    cycle.run_once(0)
    assert fakes.placed() == 1


def test_an_action_that_fails_for_days_is_tried_on_at_the_longest_pause() -> None:
    fakes = Fakes(error="no space", fails_at=SaveCheckpoint)
    cycle = fakes.cycle(STORED)
    for _ in range(1100):
        cycle.observation = to_start()
        cycle.run_once(0)
    assert cycle.faults == 0
    assert fakes.shown is not None
    assert any("no space" in alarm for alarm in fakes.shown.alarms)
    assert len(fakes.asked) == len(fakes.finished) == 1100


def test_a_transition_that_could_not_be_saved_is_not_told_in_each_cycle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("checkpointd").propagate = True
    caplog.set_level(logging.DEBUG, "checkpointd")
    fakes = Fakes(error="no space", fails_at=SaveCheckpoint)
    cycle = fakes.cycle(STORED)
    cycle.observation = to_start()
    for _ in range(20):
        cycle.run_once(0)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("rule 3a" in line for line in lines) == 0
    assert sum("no space" in line for line in lines) == 1
    assert not any("without rest" in line for line in lines)
    fakes.error = ""
    cycle.run_once(0)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("rule 3a" in line for line in lines) == 1


def test_a_fault_is_told_with_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("checkpointd").propagate = True
    fakes = Fakes()
    cycle = fakes.cycle(STORED)
    broken = replace(to_start(), runtime=build.seen(None))
    for _ in range(5):
        cycle.observation = broken
        cycle.run_once(0)
    assert cycle.faults == 5
    assert len(fakes.finished) == 5
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_a_daemon_that_stood_still_believes_nothing_that_it_saw_before() -> None:
    fakes = Fakes()
    cycle = fakes.cycle(STORED)
    # One try failed; then the process is stopped for a minute, and with it all its sources.
    doubtful = build.contact(silent_since=build.at(999), failures=1)
    cycle.observation = replace(to_start(), api_contact=doubtful)
    cycle.run_once(0)
    assert fakes.placed() == 0
    fakes.clock.at = build.at(1060)
    fakes.facts = (RuntimeRead(build.seen(build.runtime())),)
    cycle.run_once(0)
    assert fakes.placed() == 0
    assert cycle.observation.api_contact.reached
    assert isinstance(cycle.observation.runtime, Unknown)


def test_a_daemon_that_stood_still_in_an_outage_tries_the_api_before_it_starts() -> None:
    fakes = Fakes()
    cycle = fakes.cycle(STORED)
    cycle.observation = to_start()
    fakes.clock.at = build.at(1060)
    cycle.run_once(0)
    looked = replace(to_start(), api_contact=cycle.observation.api_contact)
    cycle.observation = looked
    cycle.run_once(0)
    assert fakes.placed() == 0
    fakes.facts = (ApiRefused(build.at(1061), "down"),)
    cycle.run_once(0)
    assert fakes.placed() == 1


def test_a_fact_that_cannot_be_folded_does_not_end_the_daemon_at_its_start() -> None:
    fakes = Fakes(facts=(OverridesRead({}), Broken()))
    cycle = fakes.cycle()
    cycle.first()
    assert cycle.faults == 1


# ---- one slot's fault costs that slot alone ------------------------------------------------------
def test_a_slot_that_cannot_be_decided_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("checkpointd").propagate = True
    fakes = Fakes()
    copy = build.activation(grace_seconds=10**400)
    hostile = build.checkpoint(WEB.parent, phase=Phase.STOPPING, activation=copy)
    cycle = fakes.cycle(STORED, hostile)
    for _ in range(3):
        cycle.observation = build.silent(runtime=build.runtime(copy.uid))
        cycle.run_once(0)
    assert {a.slot for a in fakes.performed if isinstance(a, PlaceManifest)} == {STORED.slot}
    assert cycle.stored.checkpoints[hostile.slot] is hostile
    assert cycle.faults == 3
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert fakes.shown is not None
    (shown,) = [each for each in fakes.shown.checkpoints if each.slot == hostile.slot.name]
    assert "OverflowError" in shown.alarms[0]
    assert len(fakes.asked) == len(fakes.finished) == 3


def test_a_fault_in_one_action_costs_no_other_slot(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("checkpointd").propagate = True
    fakes = Fakes(bug=KeyError("volumes"), fails_at=PlaceManifest, fails_for=STORED.slot)
    cycle = fakes.cycle(STORED, WEB)
    cycle.observation = to_start()
    cycle.run_once(0)
    assert fakes.placed() == 2
    assert cycle.faults == 1
    assert cycle.stored.checkpoints[WEB.slot].phase is Phase.OFFERED
    assert fakes.shown is not None
    assert any("KeyError" in alarm and "ds.api" in alarm for alarm in fakes.shown.alarms)
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_a_slot_whose_actions_fail_delays_no_other_s_deadline() -> None:
    fakes = Fakes(error="no space", fails_at=SaveCheckpoint, fails_for=STORED.slot)
    cycle = fakes.cycle(STORED, replace(WEB, not_before=build.at(1003)))
    for _ in range(10):
        cycle.observation = to_start()
        cycle.run_once(0)
    assert fakes.placed() == 0
    cycle.run_once(10)
    assert fakes.clock.at.seconds == 1003
    assert {a.slot for a in fakes.performed if isinstance(a, PlaceManifest)} == {WEB.slot}


def test_a_slot_whose_actions_fail_is_tried_again_after_its_own_pause() -> None:
    fakes = Fakes(error="no space", fails_at=SaveCheckpoint, fails_for=STORED.slot)
    cycle = fakes.cycle(STORED)
    waited: list[float] = []
    for _ in range(6):
        cycle.observation = to_start()
        began = fakes.clock.at.seconds
        cycle.run_once(100)
        waited.append(fakes.clock.at.seconds - began)
    assert waited == [0, 1, 2, 4, 8, 10]


def test_a_fact_that_cannot_be_folded_costs_no_other() -> None:
    order = Override(verb=Verb.HOLD, until="", reason="Kim")
    fakes = Fakes(facts=(Broken(), OverridesRead({"node": order})))
    cycle = fakes.cycle()
    cycle.run_once(0)
    assert cycle.faults == 1
    assert cycle.observation.overrides == {"node": order}


class Broken(OverridesRead):
    """Be a fact that says nothing when it is looked at."""

    __slots__ = ()

    def __init__(self) -> None: ...


def test_d11_what_is_wrong_with_the_stores_disk_is_an_alarm_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("checkpointd").propagate = True
    caplog.set_level(logging.DEBUG, "checkpointd")
    fakes = Fakes(faults=("the disk is full",))
    cycle = fakes.cycle(STORED)
    cycle.run_once(0)
    cycle.run_once(0)
    assert fakes.shown is not None
    assert "the disk is full" in fakes.shown.alarms
    fakes.faults = ()
    cycle.run_once(0)
    assert fakes.shown.alarms == ()
    lines = [r.getMessage() for r in caplog.records if "disk" in r.getMessage()]
    assert lines == ["the disk is full", "over: the disk is full"]
