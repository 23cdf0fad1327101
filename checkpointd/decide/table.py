"""Hold the transition table: everything that moves a slot from state to state stands here.

The theory. A slot is STORED (a checkpoint, no copy), TOMBSTONE (the same, of a parent that is
terminating, gone, finished or unmarked), OFFERED (its manifest is placed, the copy not yet seen),
SERVING (the copy runs), YIELDING (the copy steps aside for parent or successor), STOPPING (the copy
is stopped for another reason), REMOVED (the store of the slot goes). In each cycle the evidence is
gathered anew and the first row of the state whose guard holds says the next state; the last row of
each state has no guard. Rows look at evidence only, never at clocks or sources.

What holds by construction: no row starts a copy unless parent and successor certainly do not run
(``_is_down``); no row starts a tombstone but 3b and the operator's ``activate``; while the API is
Unknown no row removes a store; a row that looks at the API demands ``Api.TRUSTED``, and only
``UNKNOWN`` or ``REFUSED`` start anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from checkpointd.model.checkpoint import Phase
from checkpointd.model.evidence import Api, Evidence, Heir, Is, Order, Owner, Want
from checkpointd.model.files import CopyKind

E = Evidence
Guard = Callable[[Evidence], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Hold one row: in ``phase``, where ``guard`` holds, go to ``to`` by ``rule``; ``says`` why."""

    phase: Phase
    rule: str
    to: Phase
    says: str
    guard: Guard


def _always(_evidence: Evidence) -> bool:
    return True


def _row(phase: Phase, rule: str, to: Phase, says: str, guard: Guard = _always) -> Row:
    return Row(phase=phase, rule=rule, to=to, says=says, guard=guard)


# ---- guards with a name ----------
def _is_down(e: Evidence) -> bool:
    """Parent, successor and copy certainly do not run, and there is something to start."""
    return e.runs is Is.NO and e.copy_runs is Is.NO and e.has_generation and e.back_off_over


def _is_silent(e: Evidence) -> bool:
    return e.api is Api.UNKNOWN and e.hold_over and e.managed is Is.NO


def _is_deleted_under_us(e: Evidence) -> bool:
    """Rule 3b, for a pod that serves the API and for a DaemonSet's pod."""
    if e.want is not Want.ENDING or e.heir is not Heir.NONE or e.owner is Owner.NO:
        return False
    if e.serves_api and e.api is Api.REFUSED:
        return True
    may = e.serves_api or e.owner in (Owner.WANTS, Owner.UNREADABLE)
    return may and e.api is Api.UNKNOWN and e.tombstone_hold_over


def _may_lose(e: Evidence) -> bool:
    """A copy that serves the API, and its store, go only when another can take over (rule 5)."""
    return not e.serves_api or e.heir is Heir.READY or e.other_server or (e.owner is Owner.NO)


def _is_unwanted(e: Evidence) -> bool:
    """Rule 5 for the copy: trusted and confirmed, nobody here to hand back to."""
    return (
        e.api is Api.TRUSTED
        and e.order is not Order.ACTIVATE
        and e.confirmed
        and e.want is not Want.HERE
        and e.heir is Heir.NONE
        and (e.owner in (Owner.NO, Owner.NOT_DAEMON_SET) or e.want is Want.DONE)
        and _may_lose(e)
        and e.can_stop
    )


def _is_node_deleted(e: Evidence) -> bool:
    deleted = e.api is Api.NODE_DELETED and e.deleted_for_long
    return deleted and e.order is not Order.ACTIVATE and not e.serves_api and e.can_stop


def _yields(e: Evidence) -> bool:
    """Rule 4: shareable, exclusive and blocking copies step aside at different moments."""
    if e.api is not Api.TRUSTED or not e.can_stop:
        return False
    if e.cut_off is not Is.NO and e.managed is not Is.YES:
        return False  # rule 3c would start it again: nobody else will
    if e.kind is CopyKind.BLOCKING:
        return True
    if e.kind is CopyKind.SHAREABLE:
        return e.heir is Heir.READY and e.heir_settled
    return e.heir in (Heir.GO, Heir.READY)


def _returns(e: Evidence) -> bool:
    """Rule 4: the other failed, or does not run when its time is over; and does not run now.

    Never by the word of an API server that is not trusted, nor for a pod that is not wanted here.
    """
    failed = e.heir is Heir.FAILED or (e.heir is not Heir.NONE and e.deadline_over)
    may = e.api in (Api.TRUSTED, Api.UNKNOWN, Api.REFUSED) and e.want is Want.HERE
    return (
        failed
        and may
        and e.order is not Order.DEACTIVATE
        and e.copy_gone
        and e.dwell_over
        and e.kind is not CopyKind.BLOCKING
        and _is_down(e)
    )


_STORED = Phase.STORED
_TOMBSTONE = Phase.TOMBSTONE
_OFFERED = Phase.OFFERED
_SERVING = Phase.SERVING
_YIELDING = Phase.YIELDING
_STOPPING = Phase.STOPPING
_REMOVED = Phase.REMOVED

TABLE: tuple[Row, ...] = (
    _row(_STORED, "11", _STORED, "the machine goes down", lambda e: e.frozen),
    _row(_STORED, "12 hold", _STORED, "an operator holds it", lambda e: e.order is Order.HOLD),
    _row(_STORED, "12 activate", _OFFERED, "an operator activated it",
         lambda e: e.order is Order.ACTIVATE and e.dwell_over and _is_down(e)),
    _row(_STORED, "5", _TOMBSTONE, "the API server no longer wants the pod here",
         lambda e: e.api is Api.TRUSTED and e.want is not Want.HERE),
    _row(_STORED, "12 deactivate", _STORED, "an operator deactivated it",
         lambda e: e.order is Order.DEACTIVATE),
    _row(_STORED, "3a", _OFFERED, "it does not run, nobody will start it, no API server answers",
         lambda e: e.want is Want.HERE and _is_silent(e) and e.dwell_over and _is_down(e)),
    _row(_STORED, "3c", _OFFERED, "it does not run and the kubelet is cut off from the API server",
         lambda e: e.want is Want.HERE and e.api is Api.TRUSTED and e.cut_off is Is.YES
         and e.managed is Is.NO
         and e.dwell_over and _is_down(e)),
    _row(_STORED, "1", _STORED, "nothing to do"),

    _row(_TOMBSTONE, "11", _TOMBSTONE, "the machine goes down", lambda e: e.frozen),
    _row(_TOMBSTONE, "12 hold", _TOMBSTONE, "an operator holds it",
         lambda e: e.order is Order.HOLD),
    _row(_TOMBSTONE, "12 activate", _OFFERED, "an operator activated it",
         lambda e: e.order is Order.ACTIVATE and e.dwell_over and _is_down(e)),
    _row(_TOMBSTONE, "2", _STORED, "the API server wants the pod here again",
         lambda e: e.api is Api.TRUSTED and e.want is Want.HERE),
    _row(_TOMBSTONE, "5", _REMOVED, "the API server has long not wanted the pod here",
         lambda e: e.api is Api.TRUSTED and e.confirmed and e.grace_over and _may_lose(e)),
    _row(_TOMBSTONE, "12 deactivate", _TOMBSTONE, "an operator deactivated it",
         lambda e: e.order is Order.DEACTIVATE),
    _row(_TOMBSTONE, "3b", _OFFERED, "deleted, no successor here, and no API server answers",
         lambda e: _is_deleted_under_us(e) and _is_down(e)),
    _row(_TOMBSTONE, "1", _TOMBSTONE, "kept until its grace is over"),

    _row(_OFFERED, "11", _OFFERED, "the machine goes down", lambda e: e.frozen),
    _row(_OFFERED, "12 hold", _OFFERED, "an operator holds it", lambda e: e.order is Order.HOLD),
    _row(_OFFERED, "12 deactivate", _STOPPING, "an operator deactivated it",
         lambda e: e.order is Order.DEACTIVATE and e.can_stop),
    _row(_OFFERED, "8 seen", _SERVING, "the copy runs", lambda e: e.copy_runs is Is.YES),
    _row(_OFFERED, "5", _STOPPING, "the node was deleted", _is_node_deleted),
    _row(_OFFERED, "5", _STOPPING, "the API server no longer wants the pod here", _is_unwanted),
    _row(_OFFERED, "4", _YIELDING, "the real pod is back",
         lambda e: e.order is not Order.ACTIVATE and _yields(e)),
    _row(_OFFERED, "8 again", _STOPPING, "the kubelet did not start the copy in time",
         lambda e: e.deadline_over and e.copy_runs is Is.NO and e.can_stop),
    _row(_OFFERED, "1", _OFFERED, "the kubelet has to start the copy"),

    _row(_SERVING, "11", _SERVING, "the machine goes down", lambda e: e.frozen),
    _row(_SERVING, "12 hold", _SERVING, "an operator holds it", lambda e: e.order is Order.HOLD),
    _row(_SERVING, "12 deactivate", _STOPPING, "an operator deactivated it",
         lambda e: e.order is Order.DEACTIVATE and e.can_stop),
    _row(_SERVING, "5", _STOPPING, "the node was deleted", _is_node_deleted),
    _row(_SERVING, "5", _STOPPING, "the API server no longer wants the pod here", _is_unwanted),
    _row(_SERVING, "4", _YIELDING, "the real pod is back",
         lambda e: e.order is not Order.ACTIVATE and _yields(e)),
    _row(_SERVING, "8 lost", _OFFERED, "the runtime no longer has the copy",
         lambda e: e.copy_lost and e.copy_runs is Is.NO),
    _row(_SERVING, "1", _SERVING, "the copy serves"),

    _row(_YIELDING, "11", _YIELDING, "the machine goes down", lambda e: e.frozen),
    _row(_YIELDING, "12 hold", _YIELDING, "an operator holds it", lambda e: e.order is Order.HOLD),
    _row(_YIELDING, "4 done", _STORED, "the real pod is ready",
         lambda e: e.copy_gone and e.heir is Heir.READY and e.heir_settled),
    _row(_YIELDING, "4 done", _STORED, "the real pod runs",
         lambda e: e.copy_gone and e.deadline_over and e.runs is Is.YES),
    _row(_YIELDING, "4 done", _STORED, "the copy made room",
         lambda e: e.copy_gone and e.kind is CopyKind.BLOCKING),
    _row(_YIELDING, "9", _STORED, "the machine was restarted meanwhile",
         lambda e: e.copy_gone and e.rebooted and e.want is Want.HERE),
    _row(_YIELDING, "5", _TOMBSTONE, "the real pod is not wanted here any more",
         lambda e: e.copy_gone and e.want is not Want.HERE
         and (e.heir is Heir.NONE or e.want is Want.DONE)),
    _row(_YIELDING, "4 back", _OFFERED, "the real pod does not come up", _returns),
    _row(_YIELDING, "1", _YIELDING, "waits for the copy to end and the real pod to be ready"),

    _row(_STOPPING, "11", _STOPPING, "the machine goes down", lambda e: e.frozen),
    _row(_STOPPING, "12 hold", _STOPPING, "an operator holds it",
         lambda e: e.order is Order.HOLD),
    _row(_STOPPING, "9", _TOMBSTONE, "the copy has ended",
         lambda e: e.copy_gone and e.want is not Want.HERE),
    _row(_STOPPING, "9", _STORED, "the copy has ended", lambda e: e.copy_gone),
    _row(_STOPPING, "9", _STOPPING, "waits for the copy to end"),

    _row(_REMOVED, "5", _REMOVED, "everything of it is being removed"),
)  # fmt: skip


def step(phase: Phase, evidence: Evidence) -> Row:
    """Return the row that holds: the first of ``phase`` whose guard does."""
    return next(row for row in TABLE if row.phase is phase and row.guard(evidence))
