"""Hold the evidence of one slot: one value per question, all enums, nothing else to decide on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from checkpointd.model.files import CopyKind


class Api(Enum):
    """Say what the API server's state means for decisions."""

    TRUSTED = "trusted"
    ANSWERING = "answers, not yet trusted"
    NODE_DELETED = "says that the node is deleted"
    FOREIGN = "foreign world"
    REFUSED = "refused once"
    NEVER = "has never been in trusted contact"
    DELETED_LAST = "unknown; its last word was that the node is deleted"
    UNKNOWN = "unknown"


class Is(Enum):
    """Answer a question about the world: three answers, and Unknown is never "no"."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Want(Enum):
    """Say what the API's last trusted word wants of the slot here."""

    HERE = "wanted here"
    ENDING = "terminating or gone"
    DONE = "finished or unmarked"


class Heir(Enum):
    """Say how far the slot's next runner (parent or successor) is."""

    NONE = "none bound here"
    BOUND = "bound"
    GO = "may start now"
    READY = "ready"
    FAILED = "failed"


class Owner(Enum):
    """Say what the DaemonSet says."""

    WANTS = "wants this node"
    NO = "does not want this node for 5 min"
    UNREADABLE = "unknown"
    NOT_DAEMON_SET = "no DaemonSet"


class Order(Enum):
    """Say what the operator ordered."""

    NONE = "none"
    HOLD = "hold"
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Hold all that the table may look at.

    ``runs`` speaks of parent and successor together, ``copy_runs`` of the copy (YES while a
    container of it runs), ``copy_gone`` of its containers and sandboxes, ``copy_lost`` of a copy
    of which the runtime shows nothing at all. ``*_over`` are deadlines that have passed.
    ``back_off_over`` holds when the next offer is due. ``can_stop``: the kubelet or we can end a
    copy for sure (rule 9). ``rebooted``: the machine was restarted since the copy's manifest was
    removed. ``heir_settled``: the next runner has been ready for a while without a break.
    """

    frozen: bool
    order: Order
    api: Api
    want: Want
    owner: Owner
    runs: Is
    copy_runs: Is
    copy_gone: bool
    copy_lost: bool
    managed: Is
    heir: Heir
    kind: CopyKind
    serves_api: bool
    hold_over: bool
    tombstone_hold_over: bool
    cut_off: Is
    dwell_over: bool
    deadline_over: bool
    grace_over: bool
    back_off_over: bool
    confirmed: bool
    other_server: bool
    deleted_for_long: bool
    has_generation: bool
    can_stop: bool
    rebooted: bool
    heir_settled: bool
