"""Perform one action after the other: an error is an Outcome, not an exception."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from checkpointd import __version__
from checkpointd.act.manifests import ManifestDirectory
from checkpointd.act.stop import StopClient, StopCopies
from checkpointd.clock import Clock
from checkpointd.errors import ActionError, DamagedError, NoSpaceError, SourceError, StoreError
from checkpointd.model import naming
from checkpointd.model.checkpoint import Activation, Checkpoint
from checkpointd.model.decision import (
    Action,
    Outcome,
    PlaceManifest,
    PruneGenerations,
    RemoveActive,
    RemoveManifest,
    RemoveStore,
    SaveCheckpoint,
    SaveNode,
    StopCopy,
    WriteGeneration,
)
from checkpointd.model.files import Candidate
from checkpointd.model.pods import Slot
from checkpointd.render import placing
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Hold what actions need of the host as it is known now.

    ``candidates`` returns the rendering of a parent's UID with its files. ``runtime`` is None while
    there is no access to it. ``wake`` wakes the cycle.
    """

    manifest_dir: Callable[[], Path]
    node_name: Callable[[], str]
    candidates: Callable[[str], Candidate | None]
    runtime: Callable[[], StopClient | None]
    wake: Callable[[], None]


class Actor:
    """Perform the actions of a decision, in the cycle's thread."""

    def __init__(self, store: CheckpointStore, disk: Disk, clock: Clock, host: Host) -> None:
        self.manifests = ManifestDirectory(disk, host.manifest_dir)
        self.stops = StopCopies(host.runtime, host.wake)
        self._store = store
        self._clock = clock
        self._host = host

    def find_faults(self) -> tuple[str, ...]:
        """Say what is wrong with the store's disk, with the remedy."""
        return self._store.find_faults()

    def perform(self, action: Action) -> Outcome:
        """Perform one action. Never raises StoreError, ActionError or SourceError."""
        began = self._clock.now()
        error, sha256, checkpoint = "", "", None
        try:
            sha256 = self._perform(action)
        except DamagedError as damage:
            error = str(damage)
            checkpoint = self._store.saved(action.slot) if action.slot is not None else None
        except (StoreError, ActionError, SourceError) as failure:
            error = str(failure)
        return Outcome(
            action=action,
            error=error,
            seconds=self._clock.now().seconds_since(began),
            sha256=sha256,
            checkpoint=checkpoint,
        )

    def _perform(self, action: Action) -> str:  # noqa: C901 - one line per action
        match action:
            case WriteGeneration():
                self._write_generation(action)
            case SaveCheckpoint():
                self._store.save_checkpoint(action.checkpoint)
            case SaveNode():
                self._store.save_node(action.record)
            case PlaceManifest():
                return self._place(action)
            case RemoveManifest():
                pod = (action.slot.namespace, action.pod_name) if action.pod_name else None
                self.manifests.remove(action.file, pod)
            case StopCopy():
                failure = self.stops.request(action.uid, action.grace_seconds)
                if failure:
                    raise ActionError(f"copy {action.uid} not stopped: {failure}")
            case RemoveActive():
                self._store.remove_active(action.slot, action.uid)
            case PruneGenerations():
                self._store.prune(action.slot, action.keep)
            case RemoveStore():
                self._store.remove(action.slot)
        return ""

    def _write_generation(self, action: WriteGeneration) -> None:
        candidate = self._host.candidates(action.parent_uid)
        if candidate is None or candidate.hash != action.hash:
            raise ActionError(f"{action.slot}: the files of {action.hash} are no longer at hand")
        known = self._store.saved(action.slot)
        numbers = [generation.number for generation in known.generations] if known else []
        self._store.write_generation(candidate, max(numbers, default=0) + 1, self._clock.now())

    def _place(self, action: PlaceManifest) -> str:
        try:
            return self._place_once(action.slot, action.activation)
        except NoSpaceError:
            if not self._store.give_up_reserve():
                raise
            return self._place_once(action.slot, action.activation)

    def _place_once(self, slot: Slot, activation: Activation) -> str:
        checkpoint = self._store.saved(slot)
        if checkpoint is None:
            raise ActionError(f"{slot}: nothing is stored")
        manifest = self._store.read_manifest(slot, activation.generation)
        paths = self._store.make_active(slot, activation.uid, activation.generation)
        placement = self._placement(checkpoint, activation, paths)
        content = placing.place(manifest, placement)
        if not isinstance(content, bytes):
            reasons = "; ".join(str(refusal) for refusal in content)
            raise ActionError(f"{slot}: the copy is refused: {reasons}")
        return self.manifests.place(activation.file, content)

    def _placement(
        self, checkpoint: Checkpoint, activation: Activation, paths: Mapping[str, Path]
    ) -> placing.Placement:
        generation = checkpoint.generation(activation.generation)
        hostname = "" if generation is None else generation.hostname
        parent = checkpoint.parent.name if generation is None else generation.parent_name
        return placing.Placement(
            name=activation.name,
            uid=activation.uid,
            hostname=naming.copy_hostname(hostname, parent),
            node_name=self._host.node_name(),
            slot=checkpoint.slot,
            generation=activation.generation,
            activation=activation.number,
            parent_name=checkpoint.parent.name,
            parent_uid=checkpoint.parent.uid,
            version=__version__,
            paths={volume: str(path) for volume, path in paths.items()},
        )
