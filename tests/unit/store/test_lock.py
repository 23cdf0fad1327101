"""One instance holds the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkpointd.errors import LockedError
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
