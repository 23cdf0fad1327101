"""Hold what is kept per slot and per node across restarts: the nouns of ``store``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from checkpointd.model.files import Candidate, CopyKind
from checkpointd.model.moments import Instant
from checkpointd.model.observation import OwnerWord
from checkpointd.model.pods import Controller, Slot


class Phase(Enum):
    """Name the states of a slot (the rows of ``decide.table``)."""

    STORED = "stored"
    TOMBSTONE = "tombstone"
    OFFERED = "offered"
    SERVING = "serving"
    YIELDING = "yielding"
    STOPPING = "stopping"
    REMOVED = "removed"

    @property
    def has_manifest(self) -> bool:
        """Tell whether an active manifest belongs into the static-pod directory."""
        return self in (Phase.OFFERED, Phase.SERVING)

    @property
    def is_stopping(self) -> bool:
        """Tell whether a copy is being stopped for sure (rule 9)."""
        return self in (Phase.YIELDING, Phase.STOPPING)

    @property
    def is_active(self) -> bool:
        """Tell whether a copy may exist: operators call this an active checkpoint."""
        return self.has_manifest or self.is_stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """Hold the API's last trusted word on one pod UID."""

    uid: str
    name: str
    bound: bool
    terminating: bool
    phase: str
    reason: str
    marked: bool
    at: Instant
    created: str = ""
    controller: Controller | None = None

    @property
    def wants_here(self) -> bool:
        """Tell whether the API wanted this pod to run here."""
        return self.bound and self.marked and not self.terminating and not self.is_finished

    @property
    def is_finished(self) -> bool:
        """Tell whether its phase is Succeeded or Failed."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Hold one stored version; ``spec_proven``, ``content_proven`` and ``failed`` alone change.

    ``number`` rises with each new one in the slot: the newest has the highest.
    """

    hash: str
    spec_hash: str
    number: int
    stored: Instant
    placed: str
    contents: Mapping[str, str]
    kind: CopyKind
    images: Mapping[str, str]
    grace_seconds: int
    hostname: str
    parent_name: str
    spec_proven: bool = False
    content_proven: bool = False
    failed: bool = False
    writable_host_path: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Tell whether spec and content have run well."""
        return self.spec_proven and self.content_proven


def generation_of(candidate: Candidate, number: int, stored: Instant) -> Generation:
    """Return the generation that a candidate makes, neither proven nor failed."""
    return Generation(
        hash=candidate.hash,
        spec_hash=candidate.spec_hash,
        number=number,
        stored=stored,
        placed=candidate.placed,
        contents=dict(candidate.contents),
        kind=candidate.kind,
        images=dict(candidate.images),
        grace_seconds=candidate.grace_seconds,
        hostname=candidate.hostname,
        parent_name=candidate.parent_name,
        warnings=candidate.warnings,
        writable_host_path=candidate.writable_host_path,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """Hold one activation: name and UID are its own and never used again.

    ``file`` is the manifest's file name; ``sha256`` of its bytes ("" until placed).
    """

    number: int
    name: str
    uid: str
    generation: str
    file: str
    offered: Instant
    grace_seconds: int
    sha256: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Hold one past transition for people."""

    at: Instant
    before: Phase
    after: Phase
    rule: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Hold everything that is known of one slot; written before it is acted on.

    ``gone_since`` is since when the pod has been no longer wanted on trusted lists (rule 5).
    ``stopped_at`` is when the last copy's manifest was removed, ``ended_at`` when its last
    container had ended since, ``stop_seconds`` how long that took. ``attempts_at_stop`` is how
    often the heir's containers had been started by then, so that exits after it can be counted
    (rule 4). ``retry_step`` counts failed offers; ``not_before`` is when the next is due.
    ``failed_heir`` is the UID of the parent or successor for which the hand-back failed (the next
    try is for another UID).
    """

    slot: Slot
    phase: Phase
    since: Instant
    parent: Word
    kind: CopyKind
    successor: Word | None = None
    serves_api: bool = False
    activation_priority: int = 0
    ran_in_boot: str = ""
    sandbox_ids: tuple[str, ...] = ()
    generations: tuple[Generation, ...] = ()
    activation: Activation | None = None
    activations: int = 0
    owner_word: OwnerWord | None = None
    owner_word_since: Instant | None = None
    gone_since: Instant | None = None
    stopped_at: Instant | None = None
    ended_at: Instant | None = None
    stop_seconds: float | None = None
    attempts_at_stop: int = 0
    not_before: Instant | None = None
    retry_step: int = 0
    failed_heir: str = ""
    restart_marked: bool = False
    refusal: str = ""
    history: tuple[Transition, ...] = ()

    def generation(self, wanted: str) -> Generation | None:
        """Return the stored generation of this hash."""
        return next((g for g in self.generations if g.hash == wanted), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """Hold node.json: the world we know, contact with it, and all that was discovered.

    ``contact_since`` and ``contact_lost`` are written at the change. ``all_gone_since`` is the
    first consistent LIST that showed two or more checkpoints gone at once (rule 5).
    ``node_renewed`` is when our Node last came back with another UID in the world we know.
    """

    node_name: str
    boot_id: str
    anchor: str
    anchor_uid: str
    node_uid: str
    in_contact: bool
    contact_changed: Instant | None
    node_deleted_since: Instant | None
    all_gone_since: Instant | None
    discovered: Mapping[str, str]
    """Keys: manifest_dir, root_dir, cri_socket, kubeconfig, kubelet_version, runtime_version."""
    node_renewed: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Hold the whole store as it was last written: ``decide`` calls it the checkpoints."""

    node: NodeRecord | None
    checkpoints: Mapping[Slot, Checkpoint]
    damaged: tuple[str, ...] = ()
