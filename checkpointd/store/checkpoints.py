"""Keep the checkpoints: the one door to the store for the daemon.

Order is what makes it safe: files of a generation before the generation, that before a state that
names it; a state before what it says is done; nothing goes but by a rename to a dot-name first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from checkpointd.errors import DamagedError, NoSpaceError, StoreError
from checkpointd.json_fields import Json
from checkpointd.model.checkpoint import Checkpoint, NodeRecord, Stored, generation_of
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Instant
from checkpointd.model.pods import Slot
from checkpointd.store import (
    codec,
    generations,
    layout,
    lock,
    node,
    quarantine,
    recovery,
    reserve,
)
from checkpointd.store.active import ActiveFiles
from checkpointd.store.durable import Disk, holds
from checkpointd.store.walk import Directory


class CheckpointStore:
    """Read and write the store at ``root``. One thread writes. Every method raises StoreError."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root = root.absolute()
        self._disk = disk
        self._saved: dict[Slot, Checkpoint] = {}
        self._unpruned: set[Slot] = set()

    # ---- the whole store ------------------------------------------------------------------------
    def lock(self) -> lock.Lock:
        """Make the store's root if it is absent, and hold it. Raises LockedError."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"make {self.root}: {error.strerror}") from error
        with self._open() as root:
            return lock.acquire(root)

    def load(self) -> Stored:
        """Read everything; finish what a crash left; put away what is damaged.

        Raises NewerSchemaError, and then has touched nothing.
        """
        with self._open() as root:
            stored = recovery.Recovery(self._disk, root).load()
            reserve.fill(self._disk, root)
            self._make_overrides(root)
        self._saved = dict(stored.checkpoints)
        return stored

    def _make_overrides(self, root: Directory) -> None:
        """Make the directory of orders, so that the first one is noticed at once by its watch."""
        with contextlib.suppress(StoreError):
            self._disk.make_directory(root, layout.OVERRIDES)

    def saved(self, slot: Slot) -> Checkpoint | None:
        """Return the checkpoint as the disk has it, less the generations found damaged."""
        return self._saved.get(slot)

    def give_up_reserve(self) -> bool:
        """Free the reserved 1 MiB for what must be written now; False if it is gone already."""
        with self._open() as root:
            return reserve.give_up(self._disk, root)

    def find_faults(self) -> tuple[str, ...]:
        """Say what is wrong with the disk, with the remedy; do what could not be done before.

        The reserve is taken back, and what could not be pruned is pruned.
        """
        try:
            with self._open() as root:
                fault = reserve.find_fault(self._disk, root)
        except (StoreError, OSError) as error:
            fault = f"the store cannot be looked at: {error}"
        return (*((fault,) if fault else ()), *self._prune_again())

    def _prune_again(self) -> Iterator[str]:
        for slot in sorted(self._unpruned, key=str):
            known = self._saved.get(slot)
            try:
                if known is not None:
                    self.prune(slot, frozenset(g.hash for g in known.generations))
                self._unpruned.discard(slot)
            except StoreError as error:
                yield f"old files of {slot} are not removed yet: {error}"

    # ---- states ---------------------------------------------------------------------------------
    def save_node(self, record: NodeRecord) -> bool:
        """Write node.json durably, from the reserve if need be; False if it says this already."""
        with self._open() as root:
            try:
                written = node.save_node(self._disk, root, record)
            except NoSpaceError:
                if not reserve.give_up(self._disk, root):
                    raise
                return node.save_node(self._disk, root, record)
            if written:
                reserve.fill(self._disk, root)
            return written

    def save_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Write state.json durably, from the reserve if need be; False if it says this already.

        The one before it is kept as state.json.1.
        """
        content = codec.seal(codec.encode(checkpoint))
        with self._open() as root, self._make_slot(root, checkpoint.slot) as slot:
            try:
                written = self._write_state(slot, content)
            except NoSpaceError:
                if not reserve.give_up(self._disk, root):
                    raise
                written = self._write_state(slot, content)
            else:
                if written:
                    reserve.fill(self._disk, root)
        self._saved[checkpoint.slot] = checkpoint
        return written

    def _write_state(self, slot: Directory, content: bytes) -> bool:
        if holds(slot, layout.STATE, content):
            return False
        temporary = self._disk.write_temporary(slot, layout.STATE, content)
        if slot.status(layout.STATE) is not None:
            # Between the two renames the previous state is the state: what was written counts
            # only once it bears the name.
            self._disk.rename(slot, layout.STATE, slot, layout.PREVIOUS_STATE)
        self._disk.rename(slot, temporary, slot, layout.STATE)
        self._disk.fsync_directory(slot)
        return True

    # ---- generations ----------------------------------------------------------------------------
    def write_generation(self, candidate: Candidate, number: int, stored: Instant) -> None:
        """Write the files of a candidate, then its manifest and meta; nothing if all are there.

        What is there and damaged is put away and written anew.
        """
        generation = generation_of(candidate, number, stored)
        known = self._saved.get(candidate.slot)
        meta = generations.meta_of(candidate, generation, known)
        with self._open() as root, self._make_slot(root, candidate.slot) as slot:
            if self._is_whole(root, slot, candidate.hash):
                return
            reserve.require(self._disk, root)
            self._write_contents(root, slot, candidate)
            generations.write_generation(self._disk, slot, meta, candidate.manifest)

    def _is_whole(self, root: Directory, slot: Directory, generation: str) -> bool:
        with slot.descend(layout.GENERATIONS, layout.component(generation)) as found:
            if found is None:
                return False
        try:
            recovery.verify_generation(self._disk, root, slot, generation)
        except DamagedError:
            return False
        return True

    def _write_contents(self, root: Directory, slot: Directory, candidate: Candidate) -> None:
        given = {files.volume: files.hash for files in candidate.files}
        if given != dict(candidate.contents):
            raise StoreError(f"{candidate.slot}: not all files of {candidate.hash} were read")
        self._disk.make_directory(slot, layout.CONTENT)
        with slot.child(layout.CONTENT) as contents:
            for files in candidate.files:
                volume = layout.component(files.volume)
                self._disk.make_directory(contents, volume)
                with contents.child(volume) as directory:
                    if directory.status(layout.component(files.hash)) is not None:
                        try:
                            wanted = generations.entry_checksums(files)
                            generations.verify_content(slot, volume, files.hash, wanted)
                            continue
                        except DamagedError:
                            quarantine.put_away(self._disk, root, directory, files.hash)
                    generations.write_content(self._disk, directory, files)

    def read_manifest(self, slot: Slot, generation: str) -> Json:
        """Return the manifest of a generation after all its files were verified.

        Raises DamagedError if it is not whole; it is in quarantine then, and no longer ``saved``.
        """
        with self._open() as root, self._slot(root, slot) as directory:
            try:
                return self._verified_manifest(root, slot, directory, generation)
            except DamagedError:
                self._forget_generation(slot, generation)
                raise

    def _verified_manifest(
        self, root: Directory, slot: Slot, directory: Directory | None, generation: str
    ) -> Json:
        if directory is None:
            raise DamagedError(f"{slot}: nothing is stored")
        meta = recovery.verify_generation(self._disk, root, directory, generation)
        return generations.read_manifest(directory, meta)

    def _forget_generation(self, slot: Slot, generation: str) -> None:
        known = self._saved.get(slot)
        if known is not None:
            kept = tuple(g for g in known.generations if g.hash != generation)
            self._saved[slot] = replace(known, generations=kept)

    def prune(self, slot: Slot, keep: frozenset[str]) -> None:
        """Remove the generations that are not in ``keep``, and the contents that none names.

        What fails is tried again whenever ``find_faults`` looks.
        """
        self._unpruned.add(slot)
        with self._open() as root, self._slot(root, slot) as directory:
            if directory is not None:
                generations.prune(self._disk, directory, keep)
        self._unpruned.discard(slot)

    # ---- active files ---------------------------------------------------------------------------
    def make_active(self, slot: Slot, uid: str, generation: str) -> Mapping[str, Path]:
        """Lay out, durably, the files of a generation for one activation.

        Returns volume → absolute path. Done again, it puts right what is not as it should be. Does
        not verify the bytes: ``read_manifest`` does.
        """
        with self._open() as root, self._slot(root, slot) as directory:
            if directory is None:
                raise DamagedError(f"{slot}: nothing is stored")
            contents = generations.read_meta(directory, generation).generation.contents
            if contents:
                with ActiveFiles(self._disk, directory, uid) as files:
                    files.make(contents)
                    files.finish()
            top = directory.path / layout.ACTIVE / uid
            return {volume: top / volume for volume in contents}

    def remove_active(self, slot: Slot, uid: str) -> None:
        """Remove the files of one activation; nothing if they are gone."""
        with self._open() as root, self._slot(root, slot) as directory:
            if directory is None:
                return
            with directory.descend(layout.ACTIVE) as active:
                if active is None:
                    return
                if active.status(layout.component(uid)) is not None:
                    self._disk.discard(active, uid)
                self._disk.remove_tree(active, layout.temporary(uid))
                is_empty = not active.names()
            if is_empty:
                self._disk.rmdir(directory, layout.ACTIVE)

    def remove(self, slot: Slot) -> None:
        """Remove everything of a slot; after a crash it is whole, or gone at the next load."""
        name = layout.slot_directory(slot)
        with self._open() as root:
            with root.descend(layout.CHECKPOINTS, layout.component(slot.namespace)) as parent:
                if parent is not None:
                    if parent.status(name) is not None:
                        self._disk.discard(parent, name)
                    self._disk.remove_tree(parent, layout.temporary(name))
                is_empty = parent is not None and not parent.names()
            with root.descend(layout.CHECKPOINTS) as top:
                if top is not None and is_empty:
                    self._disk.rmdir(top, slot.namespace)
        self._saved.pop(slot, None)

    # ---- the way down ---------------------------------------------------------------------------
    def _open(self) -> Directory:
        return Directory.open(self.root)

    @contextmanager
    def _slot(self, root: Directory, slot: Slot) -> Generator[Directory | None]:
        names = (layout.CHECKPOINTS, layout.component(slot.namespace), layout.slot_directory(slot))
        with root.descend(*names) as directory:
            yield directory

    @contextmanager
    def _make_slot(self, root: Directory, slot: Slot) -> Generator[Directory]:
        names = (layout.CHECKPOINTS, layout.component(slot.namespace), layout.slot_directory(slot))
        here = Directory(root.path, os.dup(root.fd))
        try:
            for name in names:
                self._disk.make_directory(here, name)
                below = here.child(name)
                os.close(here.fd)
                here = below
            yield here
        finally:
            os.close(here.fd)
