"""Lay out the files that an active manifest names, as the kubelet lays out a volume.

``<volume>/..data`` points to the present content, ``<volume>/<key>`` to ``..data/<key>``: content
is swapped by one rename of ``..data``, and no reader sees half of it (pkg/kubelet/volume/util/
atomic_writer.go). Files are hard links into ``content/``: same bytes, mode, owner and label,
nothing to copy and nothing to fsync but the names. All of it can be done again after a crash at
any step.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack

from checkpointd.errors import DamagedError, NoSpaceError, StoreError
from checkpointd.store import layout, walk
from checkpointd.store.durable import Attributes, Disk, holds
from checkpointd.store.walk import Directory

_NEW_DATA = "..data_tmp"
_NEW_FILE = "..file_tmp"
"""No key of a volume can begin with two dots."""


class ActiveFiles:
    """Make the active files of one activation; ``with`` it, then ``finish`` to make them durable.

    The names are fsynced together at the end: the first fsync commits the file system's journal,
    and those that follow find it committed.
    """

    def __init__(self, disk: Disk, slot: Directory, uid: str) -> None:
        self._disk = disk
        self._slot = slot
        self._uid = layout.component(uid)
        self._changed: dict[int, Directory] = {}
        self._open = ExitStack()

    def __enter__(self) -> ActiveFiles:
        self._open.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def make(self, contents: Mapping[str, str]) -> None:
        """Make a directory for each volume with the content of that hash. Raises StoreError."""
        active = self._ensure(self._slot, layout.ACTIVE)
        top = self._ensure(active, self._uid)
        for volume, content_hash in sorted(contents.items()):
            self._make_volume(top, layout.component(volume), layout.component(content_hash))

    def finish(self) -> None:
        """Wait until all that was made is on the disk."""
        for directory in self._changed.values():
            self._disk.fsync_directory(directory)
        self._changed.clear()

    def _make_volume(self, top: Directory, volume: str, content_hash: str) -> None:
        place = (layout.CONTENT, volume, content_hash)
        source = self._open.enter_context(self._slot.descend(*place))
        if source is None:
            raise DamagedError(f"{self._slot.path.joinpath(*place)}: missing")
        directory = self._ensure(top, volume)
        # Before the links are made: they take the type of the directory that they are made in.
        self._label(source, directory)
        data = layout.data_directory(content_hash)
        target = self._ensure(directory, data)
        self._link_tree(source, target, directory)
        self._point(directory, data)
        self._show(directory, source.names())
        self._like(source, directory)

    def _link_tree(self, source: Directory, target: Directory, volume: Directory) -> None:
        for name in source.names():
            found = source.status(name)
            if found is not None and stat.S_ISDIR(found.st_mode):
                inner = self._open.enter_context(source.child(name))
                self._link_tree(inner, self._ensure(target, name), volume)
            else:
                self._link(source, target, volume, name)
        self._like(source, target)

    def _link(self, source: Directory, target: Directory, volume: Directory, name: str) -> None:
        wanted, found = source.status(name), target.status(name)
        if wanted is not None and found is not None and os.path.samestat(wanted, found):
            return
        self._change(target)
        try:
            if found is None:
                self._disk.link(source, name, target, name)
                return
            self._change(volume)
            self._disk.remove_tree(volume, _NEW_FILE)
            self._disk.link(source, name, volume, _NEW_FILE)
        except NoSpaceError:
            raise
        except StoreError:
            # No hard links here, or no more to this file.
            if not self._copy(source, target, volume, name):
                return
        self._disk.rename(volume, _NEW_FILE, target, name)

    def _copy(self, source: Directory, target: Directory, volume: Directory, name: str) -> bool:
        read = source.find_with_status(name)
        if read is None:
            raise DamagedError(f"{source.path / name}: missing")
        content, status = read
        attributes = _attributes_of(status)
        if holds(target, name, content, attributes):
            return False
        self._change(volume)
        self._disk.remove_tree(volume, _NEW_FILE)
        self._disk.write_new(volume, _NEW_FILE, content, attributes)
        return True

    def _point(self, volume: Directory, data: str) -> None:
        if volume.link_target(layout.VISIBLE_DATA) == data:
            return
        self._change(volume)
        self._disk.remove_tree(volume, _NEW_DATA)
        self._disk.symlink(data, volume, _NEW_DATA)
        self._disk.rename(volume, _NEW_DATA, volume, layout.VISIBLE_DATA)

    def _show(self, volume: Directory, names: list[str]) -> None:
        for name in names:
            target = f"{layout.VISIBLE_DATA}/{name}"
            if volume.link_target(name) != target:
                self._change(volume)
                self._disk.remove_tree(volume, name)
                self._disk.symlink(target, volume, name)
        stale = [n for n in volume.names() if n not in names and not n.startswith("..")]
        for name in stale:
            self._change(volume)
            self._disk.remove_tree(volume, name)

    def _ensure(self, parent: Directory, name: str) -> Directory:
        if parent.status(name) is None:
            self._change(parent)
            self._disk.mkdir(parent, name)
        return self._open.enter_context(parent.child(name))

    def _change(self, directory: Directory) -> None:
        if directory.fd not in self._changed:
            self._disk.take_back(directory)
            self._changed[directory.fd] = directory

    def _label(self, source: Directory, target: Directory) -> None:
        label = walk.label_of(source.fd)
        if label and label != walk.label_of(target.fd):
            self._disk.label(target.fd, target.path, label)

    def _like(self, source: Directory, target: Directory) -> None:
        self._label(source, target)
        attributes = _attributes_of(os.fstat(source.fd))
        if not attributes.fit(os.fstat(target.fd)):
            self._disk.set_attributes(target.fd, target.path, attributes)
            self._changed[target.fd] = target


def _attributes_of(status: os.stat_result) -> Attributes:
    return Attributes(mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid)
