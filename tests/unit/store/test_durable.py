"""What is saved is durable, whole, and not written twice."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from checkpointd.errors import DamagedError, NoSpaceError, StoreError
from checkpointd.store import walk
from checkpointd.store.durable import Attributes, Disk
from checkpointd.store.walk import Directory
from tests.builders import stored
from tests.fakes.faulty_disk import FaultyDisk, FullDisk


def test_d5_s11_the_file_is_fsynced_with_its_mode_before_it_has_its_name(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Directory.open(tmp_path) as directory:
        assert disk.save_file(directory, "a", b"1", Attributes(mode=0o640))
    verbs = [verb for verb, _path in disk.log]
    assert verbs == ["create", "write", "chmod", "fsync", "rename", "fsync"]
    assert disk.log[-1] == ("fsync", tmp_path)
    assert stored.tree(tmp_path) == {"a": b"1"}


def test_d1_the_same_content_is_not_written(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with Directory.open(tmp_path) as directory:
        disk.save_file(directory, "a", b"1")
        calls = disk.calls
        assert not disk.save_file(directory, "a", b"1")
        assert disk.calls == calls


@pytest.mark.parametrize("change", [b"2", b"12"])
def test_other_content_replaces(tmp_path: Path, change: bytes) -> None:
    with Directory.open(tmp_path) as directory:
        Disk().save_file(directory, "a", b"1")
        assert Disk().save_file(directory, "a", change)
    assert stored.tree(tmp_path) == {"a": change}


def test_d4_what_a_crash_left_unfinished_is_replaced(tmp_path: Path) -> None:
    (tmp_path / ".checkpointd-a").write_bytes(b"half")
    with Directory.open(tmp_path) as directory:
        Disk().save_file(directory, "a", b"whole")
    assert stored.tree(tmp_path) == {"a": b"whole"}


def test_s11_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    disk = FullDisk()
    disk.free = 0
    with Directory.open(tmp_path) as directory, pytest.raises(NoSpaceError, match="free space"):
        disk.save_file(directory, "a", b"1")
    assert stored.tree(tmp_path) == {}


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "file").symlink_to("/etc/passwd")
    with Directory.open(tmp_path) as directory:
        with pytest.raises(DamagedError):
            directory.child("link")
        with pytest.raises(DamagedError):
            directory.find("file")


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with Directory.open(tmp_path) as directory:
        with pytest.raises(DamagedError, match="not a regular file"):
            directory.find("fifo")
        assert directory.find_following("fifo", 100) is None


def test_b7_a_tree_that_forbids_writing_is_removed(tmp_path: Path) -> None:
    locked = tmp_path / "a" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").write_bytes(b"1")
    locked.chmod(0o555)
    with Directory.open(tmp_path) as directory:
        Disk().discard(directory, "a")
    assert stored.tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.ENOSPC, NoSpaceError, "free space"),
        (errno.EDQUOT, NoSpaceError, "free space"),
        (errno.EROFS, StoreError, "remount"),
        (errno.EACCES, StoreError, "run as root"),
        (errno.ELOOP, DamagedError, "not what we put there"),
    ],
)
def test_an_error_names_the_path_and_the_remedy(
    number: int, kind: type[StoreError], remedy: str
) -> None:
    error = walk.explain("write", Path("/store/file"), OSError(number, os.strerror(number)))
    assert type(error) is kind
    assert "write /store/file" in str(error)
    assert remedy in str(error)


class NoChown(FaultyDisk):
    """Note a change of owner, which only root may make, without making it."""

    def chown(self, fd: int, path: Path, uid: int, gid: int) -> None:
        self.effect("chown", path, lambda: None)


@pytest.mark.parametrize(
    ("name", "verbs"), [("directory", ["chmod", "chown"]), ("file", ["chown", "chmod"])]
)
def test_a_directory_keeps_its_set_group_id_bit_without_cap_fsetid(
    tmp_path: Path, name: str, verbs: list[str]
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"")
    disk = NoChown()
    fd = os.open(tmp_path / name, os.O_RDONLY)
    try:
        disk.set_attributes(fd, tmp_path / name, Attributes(mode=0o2750, gid=os.getegid() + 1))
    finally:
        os.close(fd)
    assert [verb for verb, _path in disk.log] == verbs
