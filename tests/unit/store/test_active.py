"""Active files: laid out as the kubelet does, by links, and put right when done again."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointd.errors import DamagedError
from checkpointd.store.active import ActiveFiles
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory
from tests.builders import stored
from tests.fakes.faulty_disk import FaultyDisk, NoLinkDisk

ROTATED = stored.volume("certs", {"tls.crt": b"certificate 2", "tls.key": b"key 2", "new": b"n"})


def test_a_volume_is_laid_out_as_the_kubelet_does(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    stored.write(store, stored.candidate())
    paths = store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    top = stored.slot_path(store) / "active" / stored.COPY_UID
    assert paths == {"certs": top / "certs", "config": top / "config"}
    data = f"..{stored.CERTS.hash[:32]}"
    assert stored.tree(paths["certs"]) == {
        "..data": f"-> {data}",
        data: "755",
        f"{data}/sub": "755",
        f"{data}/sub/ca.crt": b"ca",
        f"{data}/tls.crt": b"certificate 1",
        f"{data}/tls.key": b"key 1",
        "sub": "-> ..data/sub",
        "tls.crt": "-> ..data/tls.crt",
        "tls.key": "-> ..data/tls.key",
    }


def test_files_are_links_into_the_content(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    stored.write(store, stored.candidate())
    paths = store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    content = stored.slot_path(store) / "content" / "certs" / stored.CERTS.hash
    assert (paths["certs"] / "tls.key").samefile(content / "tls.key")


def test_done_again_it_writes_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = stored.open_store(tmp_path, disk)
    stored.write(store, stored.candidate())
    store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    calls = disk.calls
    store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    assert disk.calls == calls


def test_each_new_name_is_fsynced_once(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = stored.open_store(tmp_path, disk)
    stored.write(store, stored.candidate())
    disk.arm(0, "before")
    store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    synced = [path for verb, path in disk.log if verb == "fsync"]
    made = {path.parent for verb, path in disk.log if verb in ("mkdir", "link", "rename")}
    assert len(synced) == len(set(synced))
    assert made <= set(synced)
    assert [verb for verb, _path in disk.log][-len(synced) :] == ["fsync"] * len(synced)


def test_without_hard_links_files_are_copied_with_their_modes(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path, NoLinkDisk())
    stored.write(store, stored.candidate())
    paths = store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    before = stored.tree(paths["certs"])
    key = paths["certs"] / "tls.key"
    assert key.read_bytes() == b"key 1"
    assert stat.S_IMODE(key.stat().st_mode) == 0o640
    key.resolve().write_bytes(b"broken")
    store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    assert stored.tree(paths["certs"]) == before


def test_d6_content_is_swapped_by_one_rename_and_removed_keys_go(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = stored.open_store(tmp_path, disk)
    first, second = stored.candidate(stored.CERTS), stored.candidate(ROTATED)
    stored.write(store, first, second)
    path = store.make_active(stored.SLOT, stored.COPY_UID, first.hash)["certs"]
    disk.arm(0, "before")
    assert store.make_active(stored.SLOT, stored.COPY_UID, second.hash)["certs"] == path
    assert [p.name for verb, p in disk.log if verb == "rename"] == ["..data"]
    shown = {p.name: p.read_bytes() for p in path.iterdir() if not p.name.startswith("..")}
    assert shown == {"tls.crt": b"certificate 2", "tls.key": b"key 2", "new": b"n"}
    old = path / f"..{stored.CERTS.hash[:32]}"
    assert (old / "tls.key").read_bytes() == b"key 1"


def test_what_was_tampered_with_is_put_right(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    stored.write(store, stored.candidate())
    path = store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)["certs"]
    before = stored.tree(path)
    (path / "tls.crt").unlink()
    (path / "stray").write_bytes(b"")
    (path / "..data" / "tls.key").unlink()
    (path / "..data" / "tls.key").write_bytes(b"forged")
    store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    assert stored.tree(path) == before


def test_i2_no_empty_directory_is_made_where_content_is_missing(tmp_path: Path) -> None:
    (tmp_path / "slot").mkdir()
    with Directory.open(tmp_path / "slot") as slot, ActiveFiles(Disk(), slot, "uid") as files:
        with pytest.raises(DamagedError, match="missing"):
            files.make({"certs": "abc"})
    assert not (tmp_path / "slot" / "active" / "uid" / "certs").exists()


def test_remove_active_leaves_nothing_and_can_be_done_again(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    stored.write(store, stored.candidate())
    before = stored.tree(tmp_path)
    store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    store.remove_active(stored.SLOT, stored.COPY_UID)
    store.remove_active(stored.SLOT, stored.COPY_UID)
    assert stored.tree(tmp_path) == before


def test_a_pod_without_files_has_no_active_directory(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    bare = replace(stored.candidate(), contents={}, files=())
    stored.write(store, bare)
    assert store.make_active(stored.SLOT, stored.COPY_UID, bare.hash) == {}
    assert not (stored.slot_path(store) / "active").exists()
