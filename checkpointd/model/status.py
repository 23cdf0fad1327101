"""Hold what the daemon sees and thinks, for people and their tools: the nouns of status.json.

The daemon fills them, ``store.status`` writes and reads them, the command line shows them. Field
names are the names in the file and in ``--json``: a public promise, changed only with ``SCHEMA``.
No field may carry the content of a secret; texts come from answers of other programs, so whoever
prints one removes control characters first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from checkpointd.model.checkpoint import Phase, Transition
from checkpointd.model.evidence import Api, Is
from checkpointd.model.files import CopyKind, Refusal
from checkpointd.model.moments import Instant
from checkpointd.model.observation import Override

SCHEMA = 1
"""Raised when an older reader would misread the file; added fields with a default do not count."""


class Health(Enum):
    """Sum up the node in one word."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    SERVING = "a copy is active"

    @property
    def exit_code(self) -> int:
        """Return what ``checkpointd status`` exits with."""
        return {"HEALTHY": 0, "DEGRADED": 1, "SERVING": 2}[self.name]


class SourceState(Enum):
    """Say what a source says at present."""

    SEEN = "seen"
    UNKNOWN = "unknown"
    IDLE = "not asked at present"
    OFF = "switched off"


# ---- the node -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStatus:
    """Say how the API server stands to us; ``why`` is the latest failure, "" if there is none.

    ``node_renewed`` is when it last had another object for our node than before.
    """

    state: Api
    since: Instant
    why: str = ""
    address: str = ""
    node_renewed: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletStatus:
    """Say what is known of the kubelet; ``since`` is when its process started.

    ``present`` is whether its process exists, ``answers`` whether any of its sockets does.
    """

    present: Is
    answers: Is = Is.UNKNOWN
    pid: int = 0
    since: Instant | None = None
    version: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """Name the container runtime as it names itself ("containerd 1.6.20"), API and socket."""

    version: str = ""
    api: str = ""
    socket: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """Say what one source says: ``since`` when the same, ``at`` its last reading.

    Times do not count in a comparison: what was seen does.
    ``needed`` sources make the node degraded while they are unknown; the others are optional.
    """

    name: str
    state: SourceState
    since: Instant | None = field(default=None, compare=False)
    at: Instant | None = field(default=None, compare=False)
    why: str = ""
    needed: bool = True


# ---- one checkpoint -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class PodStatus:
    """Name a parent or successor."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStatus:
    """Describe the generation that would be, or is, activated."""

    hash: str
    stored: Instant
    proven: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationStatus:
    """Describe the copy: its own name and UID, the manifest's file name, offered ``since``."""

    name: str
    uid: str
    file: str
    since: Instant
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessStatus:
    """Say what one witness says to a question, read ``at`` (which does not count, as above)."""

    source: str
    says: str
    at: Instant | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStatus:
    """Give the answer to one question of the table ("does the parent run?") and its witnesses."""

    question: str
    answer: str
    witnesses: tuple[WitnessStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStatus:
    """Say what would happen next by itself; ``at`` None means: when the world changes."""

    what: str
    at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatus:
    """Describe one slot: where it stands, the rule that holds now, why, and what comes next.

    ``refusal`` is why the parent as it is now cannot be stored; older generations stay. ``order``
    is what an operator ordered for this slot or for the node ("hold until ..."), "" for nothing;
    ``order_file`` is the name in ``overrides/`` by which the slot is ordered.
    """

    namespace: str
    slot: str
    phase: Phase
    since: Instant
    kind: CopyKind
    rule: str
    sentence: str
    parent: PodStatus | None = None
    successor: PodStatus | None = None
    serves_api: bool = False
    generation: GenerationStatus | None = None
    generations: int = 0
    activation: ActivationStatus | None = None
    order: str = ""
    order_file: str = ""
    evidence: tuple[AnswerStatus, ...] = ()
    next: NextStatus | None = None
    alarms: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    history: tuple[Transition, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names under which an operator may ask for it, without the namespace."""
        pods = [pod.name for pod in (self.parent, self.successor) if pod is not None]
        copy = [self.activation.name] if self.activation is not None else []
        return (*dict.fromkeys([*pods, *copy, self.slot, self.slot.partition(".")[2]]),)

    @property
    def health(self) -> Health:
        """Sum up this checkpoint."""
        if self.phase.is_active:
            return Health.SERVING
        return Health.DEGRADED if self.alarms or self.refusal else Health.HEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedStatus:
    """Name a marked pod that is not checkpointed, with every reason."""

    namespace: str
    name: str
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStatus:
    """Name a marked pod that has no checkpoint yet, and what it waits for."""

    namespace: str
    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredStatus:
    """Name a pod whose mark does not count, and why."""

    namespace: str
    name: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderStatus:
    """Give an operator's word in force; ``target`` is "node" or "<namespace>.<slot>"."""

    target: str
    order: Override


# ---- everything ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """Hold all of status.json. ``written`` is when this picture was made, ``started`` the daemon.

    Two pictures are equal where nothing but times of reading and of writing differ.
    ``frozen`` is why starts and removals wait while the machine goes down, "" if they do not.
    ``notes`` are sentences on what is odd and does no harm.
    """

    node: str
    boot_id: str
    version: str
    pid: int
    started: Instant
    written: Instant = field(compare=False)
    summary: str
    api: ApiStatus
    kubelet: KubeletStatus
    runtime: RuntimeStatus = RuntimeStatus()
    sources: tuple[SourceStatus, ...] = ()
    checkpoints: tuple[CheckpointStatus, ...] = ()
    refused: tuple[RefusedStatus, ...] = ()
    waiting: tuple[WaitingStatus, ...] = ()
    ignored: tuple[IgnoredStatus, ...] = ()
    orders: tuple[OrderStatus, ...] = ()
    alarms: tuple[str, ...] = ()
    frozen: str = ""
    notes: tuple[str, ...] = ()

    @property
    def health(self) -> Health:
        """Sum up the node: a serving copy outranks what is degraded."""
        each = {checkpoint.health for checkpoint in self.checkpoints}
        if Health.SERVING in each:
            return Health.SERVING
        unknown = any(s.needed and s.state is SourceState.UNKNOWN for s in self.sources)
        unguarded = self.alarms or self.refused or self.waiting
        if unguarded or unknown or self.api.state is not Api.TRUSTED:
            return Health.DEGRADED
        return Health.DEGRADED if Health.DEGRADED in each else Health.HEALTHY
