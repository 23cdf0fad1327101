"""Read the whole store after a start: what is damaged is put away, the rest goes on.

First everything is looked at, so that a store of a newer program is refused before anything in it
is touched; then what a crash left unfinished is finished, and what is damaged goes to quarantine.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from dataclasses import replace

from checkpointd.errors import DamagedError, NewerSchemaError, StoreError
from checkpointd.model.checkpoint import Checkpoint, NodeRecord, Phase, Stored, Word
from checkpointd.model.pods import Slot
from checkpointd.store import codec, generations, layout, node, quarantine
from checkpointd.store.active import ActiveFiles
from checkpointd.store.durable import Disk
from checkpointd.store.generations import Meta
from checkpointd.store.walk import Directory


class Recovery:
    """Load the store whose root is open. Used once per start."""

    def __init__(self, disk: Disk, root: Directory) -> None:
        self._disk = disk
        self._root = root
        self._damaged: list[str] = []

    def load(self) -> Stored:
        """Return all that is whole. Raises NewerSchemaError before anything is touched."""
        self._refuse_newer()
        self._sweep(self._root)
        checkpoints: dict[Slot, Checkpoint] = {}
        for namespace in self._children(self._root, layout.CHECKPOINTS):
            self._load_namespace(namespace, checkpoints)
        with self._root.descend(layout.CHECKPOINTS) as top:
            for name in [] if top is None else top.directories():
                self._remove_if_empty(top or self._root, name)
        record = self._load_node()
        return Stored(node=record, checkpoints=checkpoints, damaged=tuple(self._damaged))

    def _children(self, parent: Directory, *names: str) -> Generator[Directory]:
        """Open the directories at the end of ``names`` in turn; one that cannot be is told of."""
        try:
            with parent.descend(*names) as above:
                for name in [] if above is None else above.directories():
                    yield from self._child(above or parent, name)
        except StoreError as error:
            self._damaged.append(f"not loaded: {error}")

    def _child(self, parent: Directory, name: str) -> Generator[Directory]:
        try:
            with parent.child(name) as directory:
                yield directory
        except StoreError as error:
            self._damaged.append(f"not loaded: {error}")

    # ---- a newer program's store ----------------------------------------------------------------
    def _refuse_newer(self) -> None:
        _refuse(self._root, layout.NODE)
        _refuse(self._root, layout.PREVIOUS_NODE)
        for namespace in self._children(self._root, layout.CHECKPOINTS):
            for slot in self._children(namespace):
                _refuse(slot, layout.STATE)
                _refuse(slot, layout.PREVIOUS_STATE)
                for generation in self._children(slot, layout.GENERATIONS):
                    _refuse(generation, layout.META)
        self._damaged.clear()  # Told of again when it is loaded.

    # ---- node.json ------------------------------------------------------------------------------
    def _load_node(self) -> NodeRecord | None:
        for file in (layout.NODE, layout.PREVIOUS_NODE):
            try:
                found = node.read_node(self._root, file)
            except NewerSchemaError:
                raise
            except StoreError as error:
                self._put_away(self._root, file, f"{error}; the record before it counts")
            else:
                if found is not None:
                    return found if file == layout.NODE else _as_in_contact(found)
        return None

    # ---- slots ----------------------------------------------------------------------------------
    def _load_namespace(self, namespace: Directory, checkpoints: dict[Slot, Checkpoint]) -> None:
        self._sweep(namespace)
        for slot in self._children(namespace):
            try:
                found = self._load_slot(namespace.path.name, slot.path.name, slot)
            except StoreError as error:
                self._damaged.append(f"checkpoint not loaded: {error}")
                continue
            if found is not None:
                checkpoints[found.slot] = found
            else:
                self._remove_if_empty(namespace, slot.path.name)

    def _load_slot(self, namespace: str, name: str, slot: Directory) -> Checkpoint | None:
        self._sweep(slot)
        metas = self._whole_generations(namespace, name, slot)
        checkpoint, is_newest = self._read_state(namespace, name, slot)
        if checkpoint is None:
            checkpoint = self._rebuild(namespace, name, metas)
        if checkpoint is None:
            return None
        known = {meta.generation.hash for meta in metas}
        lost = [g.hash for g in checkpoint.generations if g.hash not in known]
        if lost:
            self._damaged.append(f"checkpoint {checkpoint.slot}: lost generations {lost}")
        kept = tuple(g for g in checkpoint.generations if g.hash in known)
        if is_newest:
            self._prune(slot, checkpoint)
        try:
            self._restore_active(slot, checkpoint, metas, sweep=is_newest)
        except StoreError as error:
            self._damaged.append(f"active files of {checkpoint.slot} not put right: {error}")
        return replace(checkpoint, generations=kept)

    def _read_state(
        self, namespace: str, name: str, slot: Directory
    ) -> tuple[Checkpoint | None, bool]:
        """Return the newest whole state, and whether nothing newer can have been lost."""
        is_newest = True
        for file in (layout.STATE, layout.PREVIOUS_STATE):
            try:
                content = slot.find(file)
                if content is not None:
                    found = _parse_state(content, slot.path / file, (namespace, name))
                    return found, is_newest
            except NewerSchemaError:
                raise
            except StoreError as error:
                is_newest = False
                self._put_away(slot, file, f"{error}; the state before it counts")
        return None, False

    def _rebuild(self, namespace: str, name: str, metas: tuple[Meta, ...]) -> Checkpoint | None:
        """Make a checkpoint of the newest generation: it counts as wanted (design, section 5)."""
        here = [meta for meta in metas if _place(meta.slot) == (namespace, name)]
        if not here:
            return None
        newest = max(here, key=lambda meta: meta.generation.number)
        self._damaged.append(
            f"checkpoint {newest.slot} has no state: its newest generation counts as wanted"
        )
        return rebuilt(newest, tuple(here))

    # ---- generations ----------------------------------------------------------------------------
    def _whole_generations(self, namespace: str, name: str, slot: Directory) -> tuple[Meta, ...]:
        for volume in self._children(slot, layout.CONTENT):
            self._sweep(volume)
        metas: list[Meta] = []
        with slot.descend(layout.GENERATIONS) as parent:
            if parent is None:
                return ()
            self._sweep(parent)
            for generation in parent.directories():
                try:
                    metas.append(verify_generation(self._disk, self._root, slot, generation))
                except StoreError as error:
                    self._damaged.append(f"generation of {namespace}/{name} left out: {error}")
        return tuple(metas)

    def _prune(self, slot: Directory, checkpoint: Checkpoint) -> None:
        """Remove what the state names no more: its removal failed, or a crash came before it."""
        named = {generation.hash for generation in checkpoint.generations}
        if checkpoint.activation is not None:
            named.add(checkpoint.activation.generation)
        try:
            generations.prune(self._disk, slot, frozenset(named))
        except StoreError as error:
            self._damaged.append(f"old files of {checkpoint.slot} are not removed: {error}")

    # ---- active files ---------------------------------------------------------------------------
    def _restore_active(
        self, slot: Directory, checkpoint: Checkpoint, metas: tuple[Meta, ...], *, sweep: bool
    ) -> None:
        """Put back what an active manifest names; remove what none names any more."""
        activation = checkpoint.activation
        with slot.descend(layout.ACTIVE) as active:
            names = [] if active is None else active.directories()
            if active is not None:
                self._sweep(active)
                for name in names if sweep else ():
                    if activation is None or name != activation.uid:
                        self._disk.discard(active, name)
        self._remove_if_empty(slot, layout.ACTIVE)
        meta = next(
            (m for m in metas if activation and m.generation.hash == activation.generation), None
        )
        if activation is None or meta is None or not checkpoint.phase.is_active:
            return
        with ActiveFiles(self._disk, slot, activation.uid) as files:
            files.make(meta.generation.contents)
            files.finish()

    # ---- what a crash left ----------------------------------------------------------------------
    def _sweep(self, directory: Directory) -> None:
        try:
            for name in directory.names():
                if name.startswith(layout.TEMPORARY):
                    self._disk.remove_tree(directory, name)
        except StoreError as error:
            self._damaged.append(f"leftover not removed: {error}")

    def _remove_if_empty(self, parent: Directory, name: str) -> None:
        try:
            with parent.descend(name) as directory:
                is_empty = directory is not None and not directory.names()
            if is_empty:
                self._disk.rmdir(parent, name)
        except StoreError as error:
            self._damaged.append(f"leftover not removed: {error}")

    def _put_away(self, parent: Directory, name: str, sentence: str) -> None:
        self._damaged.append(sentence)
        try:
            quarantine.put_away(self._disk, self._root, parent, name)
        except StoreError as error:
            self._damaged.append(f"not put into quarantine: {error}")


def _refuse(directory: Directory, name: str) -> None:
    try:
        content = directory.find(name)
        if content is not None:
            codec.unseal(content, str(directory.path / name))
    except NewerSchemaError:
        raise
    except StoreError:
        return  # Told of when it is loaded.


def verify_generation(disk: Disk, root: Directory, slot: Directory, generation: str) -> Meta:
    """Return the meta of a generation that is whole; put it into quarantine if it is not.

    Raises DamagedError once that is done, StoreError where it cannot be read.
    """
    try:
        meta = generations.read_meta(slot, generation)
        generations.read_manifest(slot, meta)
        for volume, content in meta.generation.contents.items():
            _verify_content(disk, root, slot, (volume, content), meta)
    except DamagedError:
        _put_away_below(disk, root, slot, (layout.GENERATIONS, generation))
        raise
    return meta


def _verify_content(
    disk: Disk, root: Directory, slot: Directory, which: tuple[str, str], meta: Meta
) -> None:
    volume, content = which
    try:
        generations.verify_content(slot, volume, content, meta.files[volume])
    except DamagedError:
        _put_away_below(disk, root, slot, (layout.CONTENT, volume, content))
        raise


def _put_away_below(disk: Disk, root: Directory, slot: Directory, place: tuple[str, ...]) -> None:
    """Put what is damaged away, if that can be done: on a read-only disk it stays, unused."""
    *above, name = place
    try:
        with slot.descend(*above) as parent:
            if parent is not None and parent.status(name) is not None:
                quarantine.put_away(disk, root, parent, name)
    except StoreError:
        return


def _as_in_contact(record: NodeRecord) -> NodeRecord:
    """Return an older record: since when contact was lost is not known any more."""
    return replace(record, in_contact=True, contact_changed=None)


def _parse_state(content: bytes, path: object, place: tuple[str, str]) -> Checkpoint:
    found = codec.unseal_as(Checkpoint, content, str(path))
    if _place(found.slot) != place:
        raise DamagedError(f"{path}: it is the state of {found.slot}")
    return found


def _place(slot: Slot) -> tuple[str, str]:
    return slot.namespace, layout.slot_directory(slot)


def rebuilt(newest: Meta, metas: tuple[Meta, ...]) -> Checkpoint:
    """Return the checkpoint that counts where all states of a slot are lost."""
    stored = newest.generation.stored
    return Checkpoint(
        slot=newest.slot,
        phase=Phase.STORED,
        since=stored,
        parent=Word(
            uid=newest.parent_uid,
            name=newest.generation.parent_name,
            bound=True,
            terminating=False,
            phase="Running",
            reason="",
            marked=True,
            at=stored,
            controller=newest.controller,
        ),
        kind=newest.generation.kind,
        serves_api=newest.serves_api,
        generations=tuple(
            sorted((m.generation for m in metas), key=lambda generation: generation.number)
        ),
        # How many there were is lost, and no name may come twice in a boot (rule 9).
        activations=secrets.randbits(31),
    )
