"""One instance holds the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpointd.errors import LockedError, StoreError
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk


def test_a_second_instance_is_told_who_holds_the_store(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "new" / "store", Disk())
    with store.lock():
        with pytest.raises(LockedError, match=f"held by process {os.getpid()}"):
            store.lock()
    store.lock().release()


def test_the_store_is_for_root_alone(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store", Disk())
    with store.lock():
        assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


def test_the_lock_is_open_for_reading_only_and_needs_no_room(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, Disk())
    with store.lock():
        held = [path for path in Path("/proc/self/fd").iterdir() if path.exists()]
        (lock,) = [path for path in held if path.resolve() == tmp_path / "lock"]
        flags = Path(f"/proc/self/fdinfo/{lock.name}").read_text().splitlines()[1].split()[1]
        assert int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
    (tmp_path / "lock").write_text("4711")
    with store.lock():
        assert (tmp_path / "lock").read_text().strip() == str(os.getpid())


def test_a_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("elsewhere")
    with pytest.raises(StoreError):
        CheckpointStore(tmp_path, Disk()).lock()
