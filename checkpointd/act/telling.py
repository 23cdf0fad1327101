"""Tell people what happened, in the journal: each thing once.

One line per transition with its reason, one per source that goes or returns, one per alarm that
comes or ends, one per action that fails. Nothing is repeated each cycle; no secret is known here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from checkpointd import log
from checkpointd.model.checkpoint import NodeRecord, Stored
from checkpointd.model.decision import (
    Action,
    Decision,
    Outcome,
    PlaceManifest,
    Reason,
    RemoveManifest,
    RemoveStore,
    SaveCheckpoint,
    Severity,
    StopCopy,
)
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import (
    NOT_YET_READ,
    ApiContact,
    MachineProcesses,
    Observation,
    Override,
)
from checkpointd.model.pods import ApiPod, Slot

_EFFECTS = (PlaceManifest, RemoveManifest, StopCopy, RemoveStore)
"""Actions that change what runs or what is kept: each is told when done."""


MOST_FAULTS = 100
"""Sentences remembered: one with a number in it could be new each time."""


class Teller:
    """Write lines to the program's log, and remember what was said."""

    def __init__(self) -> None:
        self._logger = logging.getLogger(log.LOGGER)
        self._alarms: dict[tuple[Slot | None, str], Reason] = {}
        self._failures: set[tuple[Slot | None, str]] = set()
        self._faults: set[str] = set()
        self._told_of_contact = False
        self._useless = False
        self._node_uid = ""
        self._marks: Mapping[str, str] = {}
        self._done: tuple[Action, ...] = ()

    # ---- decisions -------------------------------------------------------------------------------
    def decision(self, decision: Decision, outcomes: Iterable[Outcome], stored: Stored) -> None:
        """Tell transitions, alarms, failures and effects of one cycle.

        A transition counts once it is on disk: one that could not be saved comes again.
        """
        made = tuple(outcomes)
        unsaved = {o.action.slot for o in made if o.error} - {
            o.action.slot for o in made if isinstance(o.action, SaveCheckpoint) and not o.error
        }
        for reason in decision.reasons:
            if reason.changed and reason.slot not in unsaved:
                self._transition(reason, stored)
        self._compare_alarms(decision.reasons, stored)
        self._node(stored.node)
        self._tell_outcomes(made, stored)

    def _transition(self, reason: Reason, stored: Stored) -> None:
        checkpoint = stored.checkpoints.get(reason.slot) if reason.slot is not None else None
        extra = log.fields(
            log.Event.TRANSITION,
            namespace=reason.slot.namespace if reason.slot else "",
            pod=_pod(reason.slot, stored),
            slot=reason.slot.name if reason.slot else "",
            state=checkpoint.phase.value if checkpoint else "",
            rule=reason.rule,
            reason=reason.sentence,
        )
        told = f"{reason.slot}: {reason.sentence}, rule {reason.rule}"
        self._logger.log(log.level(reason.severity), "%s", told, extra=extra)

    def _compare_alarms(self, reasons: tuple[Reason, ...], stored: Stored) -> None:
        now = {(r.slot, r.sentence): r for r in reasons if _lasts(r)}
        for key, reason in now.items():
            if key not in self._alarms and not reason.changed:
                level = log.level(reason.severity)
                self._logger.log(level, "%s", line(*key), extra=_alarm_fields(reason, stored))
        for key, reason in self._alarms.items():
            if key not in now:
                self._logger.info("over: %s", line(*key), extra=_alarm_fields(reason, stored))
        self._alarms = now

    def _tell_outcomes(self, outcomes: tuple[Outcome, ...], stored: Stored) -> None:
        failures = {(o.action.slot, o.error) for o in outcomes if o.error}
        for key in sorted(failures - self._failures, key=str):
            extra = log.fields(
                log.Event.ACTION_FAILED,
                namespace=key[0].namespace if key[0] else "",
                pod=_pod(key[0], stored),
                slot=key[0].name if key[0] else "",
                reason=key[1],
            )
            self._logger.error("failed: %s", line(*key), extra=extra)
        self._failures = failures
        done = [o for o in outcomes if isinstance(o.action, _EFFECTS) and not o.error]
        for outcome in done:
            if outcome.action not in self._done:
                self._effect(outcome, stored)
        self._done = tuple(outcome.action for outcome in done)

    def _effect(self, outcome: Outcome, stored: Stored) -> None:
        slot = outcome.action.slot
        line = f"{slot}: {_describe(outcome.action)} in {outcome.seconds * 1000:.1f} ms"
        extra = log.fields(
            log.Event.TRANSITION,
            namespace=slot.namespace if slot else "",
            pod=_pod(slot, stored),
            slot=slot.name if slot else "",
        )
        self._logger.info("%s", line, extra=extra)

    def is_new(self, fault: str) -> bool:
        """Tell whether this fault of our own was not told of yet."""
        return fault not in self._faults

    def fault(self, sentence: str, error: Exception | None = None) -> None:
        """Tell of a fault of our own, with its traceback, once per sentence."""
        if self.is_new(sentence):
            if len(self._faults) >= MOST_FAULTS:
                self._faults.clear()
            self._faults.add(sentence)
            extra = log.fields(log.Event.FAULT, reason=sentence)
            self._logger.error("%s", sentence, exc_info=error, extra=extra)

    # ---- sources ---------------------------------------------------------------------------------
    def observation(self, before: Observation, after: Observation, patience: float) -> None:
        """Tell which sources went or returned.

        ``patience`` is for how many seconds an API server may answer and yet tell nothing.
        """
        self._contact(before.api_contact, after.api_contact)
        self._use(after, patience)
        self._machine(before.machine, after.machine)
        self._orders(before.overrides, after.overrides)
        if after.api_pods is not before.api_pods and isinstance(after.api_pods, Seen):
            self._odd_marks(after.api_pods.value)
        for name, old, new in (
            ("static-pod directory", before.manifests, after.manifests),
            ("kernel's view of processes", before.processes, after.processes),
        ):
            self._source(name, old, new)

    def _contact(self, before: ApiContact, after: ApiContact) -> None:
        """Tell when contact comes or goes, and once if there has been none since the start."""
        fails = not after.reached and after.failures > 0 and after.why != ""
        if before.reached == after.reached and (self._told_of_contact or not fails):
            return
        self._told_of_contact = True
        self._useless = False
        if after.reached:
            extra = log.fields(log.Event.SOURCE_BACK)
            self._logger.log(log.NOTICE, "API server: answers (%s)", after.address, extra=extra)
        else:
            extra = log.fields(log.Event.SOURCE_GONE, reason=after.why)
            self._logger.warning("API server: no answer: %s", after.why, extra=extra)

    def _use(self, after: Observation, patience: float) -> None:
        """Tell of an API server that answers, but for some time not with our pods.

        A watch that ends, or one list that fails, is nothing to tell of.
        """
        contact, pods = after.api_contact, after.api_pods
        if isinstance(pods, Seen):
            if self._useless:
                back = log.fields(log.Event.SOURCE_BACK)
                self._logger.info("API server: tells of our pods again", extra=back)
            self._useless = False
        elif not self._useless and contact.reached and contact.answered_at is not None:
            since = max(pods.since, contact.reached_since, key=lambda instant: instant.seconds)
            if contact.answered_at.seconds_since(since) >= patience:
                self._useless = True
                extra = log.fields(log.Event.SOURCE_GONE, reason=pods.why)
                told = "API server: answers, but does not tell of our pods: %s"
                self._logger.warning(told, pods.why, extra=extra)

    def _node(self, record: NodeRecord | None) -> None:
        """Tell when the API server has another object for our node than before."""
        uid = record.node_uid if record is not None else ""
        if uid != self._node_uid and self._node_uid:
            told = "API server: the Node was made anew: its UID is %s, it was %s; the same cluster"
            extra = log.fields(log.Event.SOURCE_BACK)
            self._logger.log(log.NOTICE, told, uid, self._node_uid, extra=extra)
        self._node_uid = uid

    def _orders(self, before: Mapping[str, Override], after: Mapping[str, Override]) -> None:
        """Tell which of the operators' orders came, changed or went: who, until when, why."""
        if before is after:
            return
        for target in sorted({*before, *after}):
            old, new = before.get(target), after.get(target)
            if old != new:
                said = _order(new) if new is not None else "no order any more"
                extra = log.fields(log.Event.OPERATOR, reason=said)
                self._logger.log(log.NOTICE, "operator: %s: %s", target, said, extra=extra)

    def _odd_marks(self, pods: Iterable[ApiPod]) -> None:
        """Tell which pods carry a mark that does not count, each once and not after an outage."""
        odd = {pod.uid: pod for pod in pods if pod.mark_note}
        for uid, pod in odd.items():
            if self._marks.get(uid) != pod.mark_note:
                who = f"{pod.namespace}/{pod.name}"
                extra = log.fields(
                    log.Event.REFUSED, namespace=pod.namespace, pod=pod.name, reason=pod.mark_note
                )
                told = "%s: its mark does not count: %s"
                self._logger.log(log.NOTICE, told, who, pod.mark_note, extra=extra)
        self._marks = {uid: pod.mark_note for uid, pod in odd.items()}

    def _machine(
        self, before: Seen[MachineProcesses] | Unknown, after: Seen[MachineProcesses] | Unknown
    ) -> None:
        if isinstance(after, Unknown) or after is before:
            return
        old = before.value.kubelet if isinstance(before, Seen) else None
        new = after.value.kubelet
        if new is not None and (old is None or (old.pid, old.started) != (new.pid, new.started)):
            line = (
                f"kubelet: pid {new.pid}, node {new.node_name}, "
                f"static pods in {new.manifest_dir or '(nowhere)'}"
            )
            self._logger.info("%s", line, extra=log.fields(log.Event.SOURCE_BACK))
        elif new is None and old is not None:
            gone = log.fields(log.Event.SOURCE_GONE)
            self._logger.warning("kubelet: its process is gone", extra=gone)

    def _source(self, name: str, old: Seen[object] | Unknown, new: Seen[object] | Unknown) -> None:
        if isinstance(new, Unknown) and isinstance(old, Seen):
            extra = log.fields(log.Event.SOURCE_GONE, reason=new.why)
            self._logger.warning("%s: unknown: %s", name, new.why, extra=extra)
        elif isinstance(new, Seen) and isinstance(old, Unknown) and old.why != NOT_YET_READ:
            self._logger.info("%s: seen again", name, extra=log.fields(log.Event.SOURCE_BACK))


def line(slot: Slot | None, sentence: str) -> str:
    """Return a sentence with the slot that it is about, if any."""
    return sentence if slot is None else f"{slot}: {sentence}"


def _lasts(reason: Reason) -> bool:
    """Tell whether a reason is told when it comes and when it ends: an alarm, the node's state."""
    return reason.severity is Severity.ALARM or (
        reason.severity is Severity.NOTICE and reason.slot is None
    )


def _order(order: Override) -> str:
    until = f" until {order.until}" if order.until else " without an end"
    return f"{order.verb.value}{until}" + (f" ({order.reason})" if order.reason else "")


def _pod(slot: Slot | None, stored: Stored) -> str:
    """Return the name of a slot's parent, by which `journalctl POD=` finds the line."""
    checkpoint = stored.checkpoints.get(slot) if slot is not None else None
    return checkpoint.parent.name if checkpoint is not None else ""


def _alarm_fields(reason: Reason, stored: Stored) -> dict[str, object]:
    return dict(
        log.fields(
            log.Event.ALARM,
            namespace=reason.slot.namespace if reason.slot else "",
            pod=_pod(reason.slot, stored),
            slot=reason.slot.name if reason.slot else "",
            rule=reason.rule,
            reason=reason.sentence,
        )
    )


def _describe(action: Action) -> str:
    match action:
        case PlaceManifest():
            return f"placed {action.activation.file}"
        case RemoveManifest():
            return f"removed {action.file}"
        case StopCopy():
            return f"asked the runtime to stop copy {action.uid}, grace {action.grace_seconds} s"
        case RemoveStore():
            return "removed everything stored"
        case _:
            return type(action).__name__
