"""Keep the API's last trusted word on a slot: who is its parent, who the successor.

Of two bound pods in one slot the parent is the older one not terminating, the other the successor
(design, section 5). The parent stays until it is seen gone; then the successor takes its place.
What says nothing new is not replaced: a node at rest would make a hundred nouns in each cycle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from checkpointd import json_fields
from checkpointd.model.checkpoint import Checkpoint, Word
from checkpointd.model.evidence import Want
from checkpointd.model.moments import Instant
from checkpointd.model.pods import RESTART_MARK, ApiPod

SHUTDOWN_REASONS = frozenset({"Terminated", "NodeShutdown", "Shutdown"})
"""status.reason of a pod that a graceful node shutdown ended (kubelet nodeshutdown)."""
REJECTED_REASONS = frozenset(
    {
        "NodePorts",
        "HostPort",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "OutOfephemeral-storage",
        "UnexpectedAdmissionError",
    }
)
"""status.reason of a pod that the kubelet rejected at admission (pkg/kubelet/lifecycle)."""

_MOST_REASON = 60
"""Characters of status.reason that are shown: a word in camel case."""


def word_of(pod: ApiPod, now: Instant) -> Word:
    """Make the word on one listed pod."""
    return Word(
        uid=pod.uid,
        name=pod.name,
        bound=True,
        terminating=pod.terminating,
        phase=pod.phase,
        reason=pod.reason,
        marked=pod.marked,
        at=now,
        created=pod.created,
        controller=pod.controller,
    )


def is_here(word: Word, *, active: bool, restart_marked: bool) -> bool:
    """Tell whether this pod is bound here and will run: it may be handed back to.

    Phase Failed is excused after a node shutdown, and for a rejection beside our own copy (rule 3).
    """
    if not word.bound or word.terminating:
        return False
    if not word.is_finished or restart_marked:
        return True
    rejected = active and word.reason in REJECTED_REASONS
    return word.phase == "Failed" and (word.reason in SHUTDOWN_REASONS or rejected)


def find_heir(checkpoint: Checkpoint) -> Word | None:
    """Return who runs next in this slot: the parent, else the successor, else nobody."""
    active = checkpoint.phase.is_active
    for word in (checkpoint.parent, checkpoint.successor):
        if word and is_here(word, active=active, restart_marked=checkpoint.restart_marked):
            return word
    return None


def find_want(checkpoint: Checkpoint) -> Want:
    """Say what the last trusted word wants."""
    heir = find_heir(checkpoint)
    if heir is not None:
        return Want.HERE if heir.marked else Want.DONE
    parent = checkpoint.parent
    finished = parent.is_finished and not checkpoint.restart_marked
    return Want.DONE if finished or not parent.marked else Want.ENDING


def describe_want(checkpoint: Checkpoint) -> str:
    """Say for people what the last trusted word wants: why the pod is not wanted, if it is not."""
    want, parent = find_want(checkpoint), checkpoint.parent
    if want is Want.HERE:
        return str(want.value)
    if find_heir(checkpoint) is not None:
        return "unmarked"
    if not parent.bound:
        return "gone"
    if parent.is_finished:
        return f"{parent.phase}: {parent.reason[:_MOST_REASON]}" if parent.reason else parent.phase
    return "terminating" if parent.terminating else "unmarked"


def follow_list(checkpoint: Checkpoint, mine: Iterable[ApiPod], now: Instant) -> Checkpoint:
    """Bring the words in step with a trusted list; ``mine`` are all listed pods of the slot."""
    listed = sorted(mine, key=lambda pod: (pod.created, pod.uid))
    by_uid = {pod.uid: pod for pod in listed}
    parent = _renew(checkpoint.parent, by_uid.get(checkpoint.parent.uid), now)
    following = [
        _renew(checkpoint.successor, pod, now)
        if checkpoint.successor and checkpoint.successor.uid == pod.uid
        else word_of(pod, now)
        for pod in listed
        if pod.uid != parent.uid and not pod.terminating and not pod.is_finished
    ]
    if following and _has_left(parent):
        parent, following = following[0], following[1:]
    known = checkpoint.successor
    successor = next((word for word in following if known and word.uid == known.uid), None)
    successor = successor or (following[0] if following else None)
    if (parent, successor) != (checkpoint.parent, checkpoint.successor):
        checkpoint = replace(checkpoint, parent=parent, successor=successor)
    return _renew_marks(checkpoint, by_uid.get(parent.uid))


def _has_left(parent: Word) -> bool:
    return not parent.bound or parent.is_finished


def _renew(old: Word | None, pod: ApiPod | None, now: Instant) -> Word:
    """Return the new word; the old one where it says the same, so that nothing is written."""
    if pod is None:
        assert old is not None
        return replace(old, bound=False, at=now) if old.bound else old
    if old is None:
        return word_of(pod, now)
    same = word_of(pod, old.at)
    return old if same == old else replace(same, at=now)


def _renew_marks(checkpoint: Checkpoint, parent: ApiPod | None) -> Checkpoint:
    if parent is None or parent.raw is None:
        return checkpoint
    annotations = json_fields.texts(parent.raw, "metadata", "annotations")
    restart, priority = annotations.get(RESTART_MARK) == "true", parent.activation_priority
    if (restart, priority) == (checkpoint.restart_marked, checkpoint.activation_priority):
        return checkpoint
    return replace(checkpoint, restart_marked=restart, activation_priority=priority)
