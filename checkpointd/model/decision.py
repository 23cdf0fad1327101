"""Hold what decide answers: actions, questions, reasons and the time of the next look."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from checkpointd.model.checkpoint import Activation, Checkpoint, NodeRecord
from checkpointd.model.moments import Instant
from checkpointd.model.pods import Slot


# ---- actions: done in order; after a failed one the rest of its slot waits for the next cycle ---
@dataclass(frozen=True, slots=True)
class WriteGeneration:
    """Write the files of a candidate, then its manifest and meta, into the store."""

    slot: Slot
    parent_uid: str
    hash: str


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Write state.json."""

    slot: Slot
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class SaveNode:
    """Write node.json."""

    record: NodeRecord
    slot: None = None


@dataclass(frozen=True, slots=True)
class PlaceManifest:
    """Make the active files and put the manifest into the static-pod directory."""

    slot: Slot
    activation: Activation


@dataclass(frozen=True, slots=True)
class RemoveManifest:
    """Remove our manifest from the static-pod directory; nothing if it is not ours.

    ``pod_name`` is the copy's that was placed there: what an edit left of it goes too.
    """

    slot: Slot
    file: str
    pod_name: str = ""


@dataclass(frozen=True, slots=True)
class StopCopy:
    """Stop containers and sandboxes of a copy's UID through the runtime (rule 9)."""

    slot: Slot
    uid: str
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class RemoveActive:
    """Remove the files of an activation whose copy is gone."""

    slot: Slot
    uid: str


@dataclass(frozen=True, slots=True)
class PruneGenerations:
    """Remove the generations and contents that are not in ``keep`` (hashes)."""

    slot: Slot
    keep: frozenset[str]


@dataclass(frozen=True, slots=True)
class RemoveStore:
    """Remove everything that the store has of the slot."""

    slot: Slot


Action = (
    WriteGeneration
    | SaveCheckpoint
    | SaveNode
    | PlaceManifest
    | RemoveManifest
    | StopCopy
    | RemoveActive
    | PruneGenerations
    | RemoveStore
)


# ---- questions: level-triggered interest; observe answers each in a later observation -----------
class Topic(Enum):
    """Name what decide may ask of observe."""

    CONTACT = "whether the API server answers again, soon"
    CONFIRM_LIST = "one consistent LIST of this node's pods"
    OWNER = "the DaemonSet of a slot"
    LEASE = "the kubelet's lease"
    KUBELET_LIST = "the kubelet's list of pods"
    RUNNING_PODS = "/runningpods/"
    RUNTIME = "sandboxes and containers"
    PROCESSES = "a pod's processes"
    IMAGES = "images in the runtime"
    CANDIDATE = "a parent's files and rendering"
    MACHINE = "kubelet and runtime processes"
    ROUTE = "the default route"
    MANAGER = "PID 1's state"


@dataclass(frozen=True, slots=True)
class Question:
    """Ask a source: every ``period`` seconds, and at once if its last answer is before ``after``.

    Questions are asked anew in each cycle; what is asked no more is read no more.

    ``target`` is a pod UID (CANDIDATE, PROCESSES), ``<namespace>/<daemon set>`` (OWNER), else "".
    """

    topic: Topic
    target: str = ""
    slot: Slot | None = None
    period: float | None = None
    after: Instant | None = None


# ---- reasons ------------------------------------------------------------------------------------
class Severity(Enum):
    """Say how a reason is logged: alarms also make status degraded."""

    INFO = "info"
    NOTICE = "notice"
    ALARM = "alarm"


@dataclass(frozen=True, slots=True)
class Reason:
    """Say in a sentence what holds for a slot (or the node) and by which rule of the design.

    ``changed`` is True in the cycle in which a transition happens. ``next_at`` is when something
    will happen by itself.
    """

    slot: Slot | None
    rule: str
    sentence: str
    severity: Severity = Severity.INFO
    changed: bool = False
    next_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Say for which slot nothing could be decided, by a fault of ours, and what was raised."""

    slot: Slot
    sentence: str
    error: Exception = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Hold the answer of one cycle. Each of ``faults`` is among the reasons too."""

    actions: tuple[Action, ...]
    questions: frozenset[Question]
    reasons: tuple[Reason, ...]
    look_again: Instant
    summary: str
    faults: tuple[Fault, ...] = ()

    @property
    def starts(self) -> bool:
        """Tell whether a manifest would be placed: PID 1 is asked first (rule 11)."""
        return any(isinstance(action, PlaceManifest) for action in self.actions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Say what became of an action; ``error`` is "" when it was done.

    ``checkpoint`` is what the store now has of the slot, where a generation was found damaged.
    """

    action: Action
    error: str = ""
    seconds: float = 0.0
    sha256: str = ""
    checkpoint: Checkpoint | None = None
