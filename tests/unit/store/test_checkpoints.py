"""The store by its one door: what is written is there, and only what should be."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointd.errors import DamagedError, NoSpaceError, StoreError
from checkpointd.model.pods import Slot
from checkpointd.store import walk
from checkpointd.store.checkpoints import CheckpointStore
from tests.builders import stored
from tests.fakes.faulty_disk import FaultyDisk, FullDisk, ReadOnlyDisk


def test_everything_comes_back_after_a_restart(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    saved = stored.write(store, stored.candidate())
    store.save_node(stored.node_record())
    found = CheckpointStore(tmp_path, FaultyDisk()).load()
    assert found.node == stored.node_record()
    assert found.checkpoints == {stored.SLOT: saved}
    assert found.damaged == ()


def test_orders_have_their_directory_from_the_start_where_it_can_be_made(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path, ReadOnlyDisk()).load().checkpoints == {}
    assert not (tmp_path / "overrides").exists()
    CheckpointStore(tmp_path, FaultyDisk()).load()
    assert (tmp_path / "overrides").is_dir()


def test_d1_saving_the_same_again_writes_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = stored.open_store(tmp_path, disk)
    saved = stored.write(store, stored.candidate())
    store.save_node(stored.node_record())
    calls = disk.calls
    assert not store.save_checkpoint(saved)
    assert not store.save_node(stored.node_record())
    store.write_generation(stored.candidate(), 1, stored.NOW)
    assert disk.calls == calls


def test_the_state_before_the_last_is_kept(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    first = stored.write(store, stored.candidate())
    store.save_checkpoint(replace(first, activations=7))
    state = stored.slot_path(store) / "state.json"
    assert state.exists()
    state.unlink()
    assert CheckpointStore(tmp_path, FaultyDisk()).load().checkpoints == {stored.SLOT: first}


def test_c6_c7_the_files_of_a_generation_have_bytes_and_modes_of_the_volume(tmp_path: Path) -> None:
    files = stored.volume("certs", {"a/b": b"deep"})
    odd = replace(files, entries=(*files.entries, stored.entry("key", b"k", 0o400)))
    store = stored.open_store(tmp_path)
    stored.write(store, stored.candidate(odd))
    content = stored.slot_path(store) / "content" / "certs" / odd.hash
    assert stored.tree(content) == {"a": "755", "a/b": b"deep", "key": b"k"}
    assert stat.S_IMODE((content / "key").stat().st_mode) == 0o400


class OwnerDisk(FaultyDisk):
    """Note who is made the owner of what, which only root may do, without doing it."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, tuple[int, int]] = {}

    def chown(self, fd: int, path: Path, uid: int, gid: int) -> None:
        self.effect("chown", path, lambda: None)
        self.owners[path.name] = (uid, gid)


def test_c6_each_file_has_its_owner_and_group_before_it_has_its_name(tmp_path: Path) -> None:
    # What the kubelet gave to runAsUser and fsGroup: the copy reads what the parent could.
    disk = OwnerDisk()
    store = stored.open_store(tmp_path, disk)
    owned = replace(stored.entry("tls.key", b"k", 0o440), uid=65534, gid=2000)
    top = replace(stored.entry("", None, 0o2750), gid=2000)
    files = replace(stored.volume("certs", {}), entries=(top, owned))
    disk.arm(0, "before")
    store.write_generation(stored.candidate(files), 1, stored.NOW)
    assert disk.owners["tls.key"] == (65534, 2000)
    content = [(verb, path.name) for verb, path in disk.log if "content" in path.parts]
    owner = max(at for at, (verb, _name) in enumerate(content) if verb == "chown")
    assert owner < content.index(("rename", files.hash))


def test_generations_share_a_content(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    other = stored.volume("config", {"config.json": b"{2}"})
    stored.write(store, stored.candidate(), stored.candidate(stored.CERTS, other))
    contents = stored.slot_path(store) / "content"
    assert len(list((contents / "certs").iterdir())) == 1
    assert len(list((contents / "config").iterdir())) == 2


def test_s2_s4_a_generation_whose_files_were_not_all_read_is_not_written(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    whole = stored.candidate()
    with pytest.raises(StoreError, match="not all files"):
        store.write_generation(replace(whole, files=whole.files[:1]), 1, stored.NOW)
    assert not (stored.slot_path(store) / "generations").exists()


@pytest.mark.parametrize("path", ["../escape", "..data", "/abs"])
def test_a_hostile_path_in_a_volume_is_not_written(tmp_path: Path, path: str) -> None:
    store = stored.open_store(tmp_path / "store")
    with pytest.raises(StoreError):
        store.write_generation(stored.candidate(stored.volume("v", {path: b""})), 1, stored.NOW)
    assert [p.name for p in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("slot", [Slot("../..", "x"), Slot("ns", "../../x"), Slot("", "x")])
def test_a_hostile_slot_is_refused(tmp_path: Path, slot: Slot) -> None:
    store = stored.open_store(tmp_path)
    with pytest.raises(StoreError):
        store.remove(slot)
    with pytest.raises(StoreError):
        store.remove_active(slot, "uid")
    with pytest.raises(StoreError):
        store.save_checkpoint(stored.checkpoint(slot=slot))


def test_d5_a_damaged_file_is_found_before_an_activation(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    good, bad = stored.candidate(stored.CONFIG), stored.candidate()
    stored.write(store, good, bad)
    key = stored.slot_path(store) / "content" / "certs" / stored.CERTS.hash / "tls.key"
    key.write_bytes(bytes(len(b"key 1")))
    with pytest.raises(DamagedError, match=r"tls\.key"):
        store.read_manifest(stored.SLOT, bad.hash)
    known = store.saved(stored.SLOT)
    assert known is not None
    assert [generation.hash for generation in known.generations] == [good.hash]
    assert store.read_manifest(stored.SLOT, good.hash) == good.manifest
    assert len(list((tmp_path / "quarantine").iterdir())) == 2


def test_d5_a_damaged_generation_is_written_anew_from_the_parent(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    stored.write(store, stored.candidate())
    content = stored.slot_path(store) / "content" / "certs" / stored.CERTS.hash
    (content / "tls.key").chmod(0o666)
    store.write_generation(stored.candidate(), 2, stored.NOW)
    assert stat.S_IMODE((content / "tls.key").stat().st_mode) == 0o640
    assert store.read_manifest(stored.SLOT, stored.candidate().hash)


def test_s1_b7_prune_leaves_no_content_that_no_generation_names(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    newest = stored.candidate(stored.CONFIG)
    stored.write(store, stored.candidate(), newest)
    store.prune(stored.SLOT, frozenset({newest.hash}))
    at = stored.slot_path(store)
    assert [p.name for p in (at / "generations").iterdir()] == [newest.hash]
    assert [p.name for p in (at / "content").iterdir()] == ["config"]
    assert store.read_manifest(stored.SLOT, newest.hash) == newest.manifest


def test_b7_remove_leaves_nothing_of_a_slot_and_all_of_another(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    other = stored.candidate(slot=Slot("kube-system", "pod.other"))
    stored.write(store, stored.candidate())
    saved = stored.write(store, other)
    store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    store.remove(stored.SLOT)
    store.remove(stored.SLOT)
    assert store.saved(stored.SLOT) is None
    assert [p.name for p in (tmp_path / "checkpoints/kube-system").iterdir()] == ["pod.other"]
    assert CheckpointStore(tmp_path, FaultyDisk()).load().checkpoints == {other.slot: saved}


def test_b7_the_last_slot_takes_its_namespace_with_it(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    stored.write(store, stored.candidate())
    store.remove(stored.SLOT)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def busy() -> None:
    """Fail as a file system does that is mounted or used by another."""
    error = OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    raise walk.explain("remove", Path("volume"), error) from error


def busy_once(tmp_path: Path, at: int) -> tuple[CheckpointStore, FaultyDisk]:
    """Return a store of two generations whose disk fails once, at this effect from now on."""
    disk = FaultyDisk(die=busy)
    store = stored.open_store(tmp_path / str(at), disk)
    stored.write(store, stored.candidate(), stored.candidate(stored.CONFIG))
    store.save_checkpoint(stored.checkpoint(stored.candidate(stored.CONFIG)))
    disk.arm(at, "before")
    return store, disk


def test_b7_what_could_not_be_pruned_is_told_of_and_pruned_later(tmp_path: Path) -> None:
    newest = stored.candidate(stored.CONFIG)
    clean, counter = busy_once(tmp_path, 0)
    clean.prune(stored.SLOT, frozenset({newest.hash}))
    wanted = stored.tree(stored.slot_path(clean))
    for at in range(1, counter.calls + 1):
        store, disk = busy_once(tmp_path, at)
        with pytest.raises(StoreError, match="busy"):
            store.prune(stored.SLOT, frozenset({newest.hash}))
        disk.arm(1, "before")
        (fault,) = store.find_faults()
        assert "old files of kube-system/ds.kube-apiserver" in fault
        assert store.find_faults() == ()
        assert stored.tree(stored.slot_path(store)) == wanted, at


def test_b7_a_removal_that_fails_anywhere_ends_clean_when_it_is_tried_again(tmp_path: Path) -> None:
    clean, counter = busy_once(tmp_path, 0)
    clean.remove(stored.SLOT)
    for at in range(1, counter.calls + 1):
        store, _disk = busy_once(tmp_path, at)
        with pytest.raises(StoreError, match="busy"):
            store.remove(stored.SLOT)
        store.remove(stored.SLOT)
        assert stored.tree(store.root / "checkpoints") == {}, at


# ---- a full disk --------------------------------------------------------------------------------


def test_d11_on_a_full_disk_the_reserve_carries_the_last_words(tmp_path: Path) -> None:
    disk = FullDisk()
    store = stored.open_store(tmp_path, disk)
    saved = stored.write(store, stored.candidate())
    assert (tmp_path / "reserve").stat().st_size == 1 << 20
    disk.free = 100
    changed = replace(saved, activations=9)
    assert store.save_checkpoint(changed)
    assert store.save_node(stored.node_record())
    assert not (tmp_path / "reserve").exists()
    found = CheckpointStore(tmp_path, FaultyDisk()).load()
    assert found.checkpoints == {stored.SLOT: changed}
    assert found.node == stored.node_record()


def test_d11_the_reserve_is_filled_again_when_there_is_room(tmp_path: Path) -> None:
    disk = FullDisk()
    store = stored.open_store(tmp_path, disk)
    saved = stored.write(store, stored.candidate())
    disk.free = 0
    store.save_checkpoint(replace(saved, activations=9))
    disk.free = None
    store.save_checkpoint(replace(saved, activations=10))
    assert (tmp_path / "reserve").stat().st_size == 1 << 20


def test_d11_a_snapshot_does_not_take_the_reserve_and_leaves_no_half(tmp_path: Path) -> None:
    disk = FullDisk()
    store = stored.open_store(tmp_path, disk)
    saved = stored.write(store, stored.candidate(stored.CONFIG))
    before = stored.tree(stored.slot_path(store))
    disk.free = 5
    with pytest.raises(NoSpaceError):
        store.write_generation(stored.candidate(), 2, stored.NOW)
    assert (tmp_path / "reserve").exists()
    disk.free = None
    assert CheckpointStore(tmp_path, disk).load().checkpoints == {stored.SLOT: saved}
    after = stored.tree(stored.slot_path(store))
    assert {path: after[path] for path in before} == before
    assert not [path for path in after if ".checkpointd-" in path]


def test_d11_with_the_reserve_gone_the_state_on_disk_stays_whole(tmp_path: Path) -> None:
    disk = FullDisk()
    store = stored.open_store(tmp_path, disk)
    saved = stored.write(store, stored.candidate())
    assert store.give_up_reserve()
    assert not store.give_up_reserve()
    disk.free = 0
    with pytest.raises(NoSpaceError):
        store.save_checkpoint(replace(saved, activations=9))
    assert store.saved(stored.SLOT) == saved
    assert CheckpointStore(tmp_path, disk).load().checkpoints == {stored.SLOT: saved}


def test_d11_a_read_only_disk_loses_nothing(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path)
    saved = stored.write(store, stored.candidate())
    broken = CheckpointStore(tmp_path, ReadOnlyDisk())
    assert broken.load().checkpoints == {stored.SLOT: saved}
    for call in (
        lambda: broken.save_checkpoint(replace(saved, activations=9)),
        lambda: broken.remove(stored.SLOT),
        lambda: broken.prune(stored.SLOT, frozenset()),
    ):
        with pytest.raises(StoreError, match="read-only"):
            call()
    assert CheckpointStore(tmp_path, FaultyDisk()).load().checkpoints == {stored.SLOT: saved}


def test_d11_what_is_left_of_a_full_disk_is_not_used_for_new_generations(tmp_path: Path) -> None:
    disk = FullDisk()
    store = stored.open_store(tmp_path, disk)
    saved = stored.write(store, stored.candidate(stored.CONFIG))
    disk.free = 0
    store.save_checkpoint(replace(saved, activations=9))
    with pytest.raises(NoSpaceError, match="reserve: No space"):
        store.write_generation(stored.candidate(), 2, stored.NOW)
    assert store.save_checkpoint(replace(saved, activations=10))


def test_d11_a_full_disk_is_told_of_until_there_is_room_for_the_reserve(tmp_path: Path) -> None:
    disk = FullDisk()
    store = stored.open_store(tmp_path, disk)
    saved = stored.write(store, stored.candidate())
    assert store.find_faults() == ()
    disk.free = 0
    store.save_checkpoint(replace(saved, activations=9))
    (fault,) = store.find_faults()
    assert "is full" in fault
    assert "free 4 MiB there" in fault
    disk.free = None
    assert store.find_faults() == ()
    assert (tmp_path / "reserve").stat().st_size == 1 << 20


def test_a_store_that_is_gone_is_told_of(tmp_path: Path) -> None:
    store = stored.open_store(tmp_path / "store")
    (tmp_path / "store").rename(tmp_path / "away")
    (fault,) = store.find_faults()
    assert f"open {tmp_path}/store: No such file" in fault
