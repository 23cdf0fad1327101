"""Run the daemon's cycle on the simulated node, and check what is safe at each action.

Time goes in ticks. The daemon may die between any two actions: what it knows then is what it
stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from checkpointd.decide import decide, fold, plan, portrait, slots, tidying
from checkpointd.decide.plan import Plan
from checkpointd.decide.portrait import Picture
from checkpointd.decide.slots import SlotPlan
from checkpointd.model.checkpoint import Activation, Checkpoint, Phase, Stored
from checkpointd.model.decision import (
    Action,
    Decision,
    PlaceManifest,
    Question,
    RemoveManifest,
    RemoveStore,
    SaveCheckpoint,
    SaveNode,
    StopCopy,
    Topic,
    WriteGeneration,
)
from checkpointd.model.moments import Unknown
from checkpointd.model.observation import (
    Observation,
)
from checkpointd.model.pods import Slot
from checkpointd.model.policy import Policy
from tests.builders import observations as build
from tests.simulation.sources import Sources
from tests.simulation.surroundings import TICK


class BrokenError(AssertionError):
    """A safety rule was broken in the simulation."""


@dataclass
class Node(Sources):
    """The node with our daemon."""

    done: int = 0
    check_unknown: bool = False
    stored: Stored = field(default_factory=lambda: Stored(node=None, checkpoints={}))
    seen: Observation | None = None
    plan: Plan | None = None
    picture: Picture | None = None
    crash_after: int | None = None
    log: list[str] = field(default_factory=list[str])
    starts: list[tuple[float, Slot, str]] = field(default_factory=list[tuple[float, Slot, str]])
    saves: list[tuple[float, Slot | None]] = field(default_factory=list[tuple[float, Slot | None]])

    def power_cut(self, pause: float = 10.0) -> None:
        """Cut the power and boot: no process survives, the kubelet starts after ``pause``."""
        self.boot += 1
        self.now = 5.0
        self.missing_since, self.ending = {}, {}
        self.processes = {}
        self.answered, self.last = {}, {}
        self.manager = "running"
        self.restart_kubelet(pause)
        self.restart_daemon()

    def restart_daemon(self) -> None:
        """Kill the daemon; what it knew is what it stored."""
        self.seen, self.plan, self.picture = None, None, None
        self.questions = frozenset()
        self.answered, self.last = {}, {}

    def crash_daemon(self, after: int) -> None:
        """Kill the daemon once it has done ``after`` more actions."""
        self.crash_after = after

    def tick(self, seconds: float = TICK) -> Decision | None:
        """Let time pass: controllers, kubelet, then the daemon."""
        self.now += seconds
        self._controllers()
        self._kubelet()
        return self._daemon()

    def run(self, seconds: float, tick: float = TICK) -> None:
        """Let this much time pass."""
        for _ in range(int(seconds / tick)):
            self.tick(tick)

    # ---- the daemon ------------------------------------------------------------------------------
    def _daemon(self) -> Decision | None:
        now = self.at()
        observation = self.seen or fold.initial(now, self.stored.node)
        if self.seen is None:
            self.questions = frozenset({Question(Topic.MACHINE), Question(Topic.MANAGER)})
        decision: Decision | None = None
        for _ in range(4):
            observation = fold.fold(observation, self._facts(), now, build.POLICY.times)
            self.plan = plan.make(observation, self.stored, self.policy, now, self.plan)
            decision = self.plan.decision
            self._check_made(self.plan)
            self.done += len(decision.actions)
            if self.check_unknown and int(self.now / TICK) % 19 == 0:
                self._check_unknown(observation, decision)
            if not self._perform(decision.actions):
                self.restart_daemon()
                return None
            observation = tidying.tidy(observation, self.stored, decision.questions)
            self.questions = decision.questions
            if decision.look_again.seconds > self.now:
                break
        else:
            raise BrokenError("does not come to rest")
        self.seen = observation
        return decision

    def _check_unknown(self, observation: Observation, decision: Decision) -> None:
        """Check rule 1: no source that is Unknown instead adds an effect."""
        if decide(observation, self.stored, self.policy, self.at()) != decision:
            raise BrokenError("the same facts are decided otherwise")
        allowed, known = effects_of(decision), self.stored.checkpoints.values()
        for source in SOURCES:
            unknown: dict[str, Any] = {source: Unknown("blind", self.at())}
            blind = replace(observation, **unknown)
            again = {("place", c.activation.uid) for c in known if c.activation is not None}
            added = effects_of(decide(blind, self.stored, self.policy, self.at())) - allowed - again
            if added:
                raise BrokenError(f"{source} Unknown adds {added}")

    def _check_made(self, made: Plan) -> None:
        """Check that what was taken over from the plan before would be decided again.

        And that a slot's own part of the scene says as much of it as the whole.
        """
        seen, now = made.scene.observation, made.scene.now
        anew = plan.make(seen, self.stored, self.policy, now)
        if made.decision != anew.decision:
            raise BrokenError(f"taken over: {made.decision}\ndecided anew: {anew.decision}")
        if int(self.now / TICK) % 7 == 0:
            self.picture = portrait.portray(made, self.stored, self.picture)
            if self.picture.status != portrait.portray(anew, self.stored).status:
                raise BrokenError("the picture of what was taken over is another")
            for slot, planned in anew.slots.items():
                self._check_share(slot, planned, made)

    def _check_share(self, slot: Slot, planned: SlotPlan, made: Plan) -> None:
        if planned.share is None:
            return
        timers = made.scene.timers.fresh()
        whole = replace(made.scene, order=planned.share.order, timers=timers)
        followed = slots.follow_words(planned.share, whole, None)
        assert isinstance(followed, Checkpoint)
        if slots.plan_slot(planned.share, followed, whole) != planned:
            raise BrokenError(f"{slot}: its part of the scene says other than the whole")

    @property
    def policy(self) -> Policy:
        """Return the configuration."""
        return build.POLICY

    def _perform(self, actions: tuple[Action, ...]) -> bool:
        """Perform the actions; False where the daemon died between two."""
        failed: set[Slot | None] = set()
        for action in actions:
            if self.crash_after is not None:
                self.crash_after -= 1
                if self.crash_after < 0:
                    self.crash_after = None
                    self.log.append(f"{self.boot}/{self.now} crash")
                    return False
            if action.slot not in failed and not self._do(action):
                failed.add(action.slot)
        return True

    def _do(self, action: Action) -> bool:
        self.log.append(f"{self.boot}/{self.now} {_tell(action)}")
        match action:
            case SaveCheckpoint():
                if self.stored.checkpoints.get(action.slot) == action.checkpoint:
                    raise BrokenError(f"written again, and the same: {_tell(action)}")
                self.saves.append((self.now, action.slot))
                self.stored = _with(self.stored, action.checkpoint)
            case SaveNode():
                self.saves.append((self.now, None))
                self.stored = replace(self.stored, node=action.record)
            case PlaceManifest():
                return not self.broken_disk and self._place(action.slot, action.activation)
            case RemoveManifest():
                self._forbid_frozen(action)
                if self.broken_disk:
                    return False
                self.placed.pop(action.file, None)
            case StopCopy():
                self._forbid_frozen(action)
                return self._stop(action.uid)
            case RemoveStore():
                self._remove_store(action.slot)
            case _:
                pass
        return True

    def _forbid_frozen(self, action: Action) -> None:
        if self.manager == "stopping":
            raise BrokenError(f"done while the machine goes down: {_tell(action)}")

    def _place(self, slot: Slot, copy: Activation) -> bool:
        self._forbid_frozen(PlaceManifest(slot, copy))
        checkpoint = self.stored.checkpoints[slot]
        if copy.uid not in {uid for _at, _slot, uid in self.starts}:
            self._check_start(slot, copy)
            self.starts.append((self.now, slot, copy.uid))
        self.placed[copy.file] = build.manifest(replace(checkpoint, activation=copy))
        return True

    def _check_start(self, slot: Slot, copy: Activation) -> None:
        """Check the safety of a start against what is true."""
        busy = [p.uid for p in self.processes.values() if p.slot == slot and p.running]
        if busy:
            raise BrokenError(f"{slot}: {copy.uid} is started by {copy.rule} while {busy} run")
        if copy.rule == "12 activate":
            return
        if self.world != "known" and self.answers() and self.seen_world():
            raise BrokenError(f"{slot}: started by {copy.rule} in a world that is {self.world}")

    def seen_world(self) -> bool:
        """Tell whether the daemon has had the time to see which world answers."""
        observation = self.seen
        return observation is not None and observation.api_contact.reached

    def _stop(self, uid: str) -> bool:
        if "runtime" in self.blind:
            return False
        process = self.processes.pop(uid, None)
        if process is not None and any(file.uid == uid for file in self.placed.values()):
            raise BrokenError(f"{uid} is stopped while its manifest is placed")
        return True

    def _remove_store(self, slot: Slot) -> None:
        self._forbid_frozen(RemoveStore(slot))
        checkpoint = self.stored.checkpoints[slot]
        if checkpoint.phase is not Phase.REMOVED:
            raise BrokenError(f"{slot}: the store goes, but not by its state")
        left = {k: v for k, v in self.stored.checkpoints.items() if k != slot}
        self.stored = replace(self.stored, checkpoints=left)


SOURCES = (
    *("world", "api_pods", "confirmed_uids", "lease", "machine", "running_pods"),
    *("runtime", "images", "processes", "default_route", "manager_state"),
)
"""Every source that a decision reads, but three. The loss of the API server starts copies. What was
placed and is not seen is placed again. A kubelet that answers is given 10 s to list a pod; one that
does not is judged by its start (design, section 2)."""


def effects_of(decision: Decision) -> set[tuple[str, str]]:
    """Return what the decision does to manifests, runtime and store."""
    found: set[tuple[str, str]] = set()
    for action in decision.actions:
        match action:
            case PlaceManifest():
                found.add(("place", action.activation.uid))
            case RemoveManifest():
                found.add(("remove", action.file))
            case StopCopy():
                found.add(("stop", action.uid))
            case RemoveStore():
                found.add(("remove store", str(action.slot)))
            case _:
                pass
    return found


def _with(stored: Stored, checkpoint: Checkpoint) -> Stored:
    return replace(stored, checkpoints={**stored.checkpoints, checkpoint.slot: checkpoint})


def _tell(action: Action) -> str:
    match action:
        case SaveCheckpoint():
            after = action.checkpoint
            last = after.history[-1] if after.history else None
            why = f" by {last.rule} ({last.sentence})" if last else ""
            return f"{action.slot.name} {after.phase.value}{why}"
        case PlaceManifest():
            return f"{action.slot.name} place {action.activation.uid[:4]}"
        case WriteGeneration():
            return f"{action.slot.name} write {action.hash}"
        case SaveNode():
            return f"node contact={action.record.in_contact}"
        case _:
            return f"{action.slot.name} {type(action).__name__}"


Event = Callable[[Node], None]
