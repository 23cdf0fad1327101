"""A damaged store: what is damaged is kept apart and told of, the rest goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointd.errors import NewerSchemaError
from checkpointd.model.checkpoint import Checkpoint, Phase, Stored
from checkpointd.model.pods import Slot
from checkpointd.store import codec
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk
from tests.builders import stored
from tests.fakes.faulty_disk import FaultyDisk, ReadOnlyDisk

OTHER = Slot("kube-system", "pod.other")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(bytes(content))


def fill_with_nul(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


damages = pytest.mark.parametrize("damage", [empty, cut_off, flip, fill_with_nul])


def load(root: Path, disk: Disk | None = None) -> Stored:
    return CheckpointStore(root, disk or Disk()).load()


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Return a store with two states of SLOT, two generations, a node, and another slot."""
    made = stored.open_store(tmp_path)
    first = stored.write(made, stored.candidate(), stored.candidate(stored.CONFIG))
    made.save_checkpoint(replace(first, activations=5))
    stored.write(made, stored.candidate(slot=OTHER))
    made.save_node(stored.node_record())
    return made


def quarantined(store: CheckpointStore) -> list[str]:
    at = store.root / "quarantine"
    return sorted(path.name for path in at.iterdir()) if at.exists() else []


@damages
def test_d5_a_damaged_state_gives_way_to_the_one_before(
    store: CheckpointStore, damage: Callable[[Path], None]
) -> None:
    damage(stored.slot_path(store) / "state.json")
    found = load(store.root)
    assert found.checkpoints[stored.SLOT].activations == 0
    assert OTHER in found.checkpoints
    assert "state.json" in found.damaged[0]
    assert quarantined(store) == ["checkpoints.kube-system.ds.kube-apiserver.state.json.0"]
    assert load(store.root).damaged == ()


@damages
def test_d5_without_a_state_the_newest_generation_counts_as_wanted(
    store: CheckpointStore, damage: Callable[[Path], None]
) -> None:
    damage(stored.slot_path(store) / "state.json")
    damage(stored.slot_path(store) / "state.json.1")
    found = load(store.root)
    checkpoint = found.checkpoints[stored.SLOT]
    assert checkpoint.parent.wants_here
    assert checkpoint.phase is Phase.STORED
    assert [generation.number for generation in checkpoint.generations] == [1, 2]
    assert any("newest generation counts as wanted" in line for line in found.damaged)
    assert len(quarantined(store)) == 2


@pytest.mark.parametrize("file", ["manifest.json", "meta.json"])
@damages
def test_d5_a_damaged_generation_is_left_out(
    store: CheckpointStore, file: str, damage: Callable[[Path], None]
) -> None:
    good, bad = stored.candidate(), stored.candidate(stored.CONFIG)
    damage(stored.slot_path(store) / "generations" / bad.hash / file)
    found = load(store.root)
    kept = found.checkpoints[stored.SLOT].generations
    assert [generation.hash for generation in kept] == [good.hash]
    assert found.damaged
    assert len(quarantined(store)) == 1


@damages
def test_d5_a_damaged_secret_takes_only_its_generation_along(
    store: CheckpointStore, damage: Callable[[Path], None]
) -> None:
    certs = stored.slot_path(store) / "content" / "certs" / stored.CERTS.hash
    damage(certs / "tls.key")
    found = load(store.root)
    kept = found.checkpoints[stored.SLOT].generations
    assert [g.hash for g in kept] == [stored.candidate(stored.CONFIG).hash]
    assert not any("key 1" in line for line in found.damaged)
    assert len(found.checkpoints[OTHER].generations) == 1


def test_i2_a_wiped_content_directory_is_not_activated_empty(store: CheckpointStore) -> None:
    shutil.rmtree(stored.slot_path(store) / "content")
    found = load(store.root)
    assert found.checkpoints[stored.SLOT].generations == ()
    assert found.damaged
    assert len(found.checkpoints[OTHER].generations) == 1


def test_i2_a_file_too_many_is_damage(store: CheckpointStore) -> None:
    certs = stored.slot_path(store) / "content" / "certs" / stored.CERTS.hash
    (certs / "extra").write_bytes(b"")
    assert "extra" in load(store.root).damaged[0]


@damages
def test_d5_a_damaged_node_record_is_learnt_anew(
    store: CheckpointStore, damage: Callable[[Path], None]
) -> None:
    damage(store.root / "node.json")
    found = load(store.root)
    assert found.node is None
    assert len(found.checkpoints) == 2
    assert quarantined(store) == ["node.json.0"]


def test_a_second_damage_of_the_same_file_is_kept_too(store: CheckpointStore) -> None:
    for _again in range(2):
        (store.root / "node.json").write_bytes(b"bad")
        load(store.root)
    assert quarantined(store) == ["node.json.0", "node.json.1"]


def test_the_node_record_before_a_damaged_one_counts_but_for_the_contact(
    store: CheckpointStore,
) -> None:
    first = stored.node_record(in_contact=False)
    store.save_node(first)
    store.save_node(replace(first, discovered={"kubelet_version": "v1.99.0"}))
    (store.root / "node.json").write_bytes(b"bad")
    found = store.load()
    assert found.node == replace(first, in_contact=True, contact_changed=None)
    assert len(found.damaged) == 1


def test_a_crash_between_the_two_renames_of_the_node_record_loses_nothing(
    store: CheckpointStore,
) -> None:
    before = store.load().node
    assert before is not None
    (store.root / "node.json").rename(store.root / "node.json.1")
    found = stored.open_store(store.root).load().node
    assert found == replace(before, in_contact=True, contact_changed=None)


@pytest.mark.parametrize("file", ["node.json", "checkpoints/kube-system/pod.other/state.json"])
def test_f4_a_newer_store_is_refused_and_not_touched(store: CheckpointStore, file: str) -> None:
    rest = b'"schema":99,"body":{}}\n'
    (store.root / file).write_bytes(b'{"checksum":"%b",%b' % (codec.checksum(rest).encode(), rest))
    (stored.slot_path(store) / "state.json").write_bytes(b"damaged as well")
    (stored.slot_path(store) / ".checkpointd-state.json").write_bytes(b"")
    before = stored.tree(store.root)
    disk = FaultyDisk()
    with pytest.raises(NewerSchemaError):
        load(store.root, disk)
    assert stored.tree(store.root) == before
    assert disk.calls == 0


def test_d4_leftovers_of_a_crash_are_removed_and_nothing_else(store: CheckpointStore) -> None:
    at = stored.slot_path(store)
    before = stored.tree(store.root)
    (store.root / ".checkpointd-node.json").write_bytes(b"half")
    (at / ".checkpointd-state.json").write_bytes(b"half")
    (at / "generations" / ".checkpointd-abc").mkdir()
    (at / "content" / "certs" / ".checkpointd-abc").mkdir()
    (at.parent / ".checkpointd-pod.gone").mkdir()
    (at.parent / ".checkpointd-pod.gone" / "state.json").write_bytes(b"x")
    (at.parent.parent / "emptied").mkdir()
    assert load(store.root).damaged == ()
    assert stored.tree(store.root) == before


def test_b7_files_that_no_state_names_are_removed_at_the_start(store: CheckpointStore) -> None:
    # A crash came between the state and the removal of what it names no more, or before it.
    kept = stored.checkpoint(stored.candidate(stored.CONFIG))
    store.save_checkpoint(kept)
    found = load(store.root)
    assert found.checkpoints[stored.SLOT] == kept
    assert found.damaged == ()
    at = stored.slot_path(store)
    assert [p.name for p in (at / "generations").iterdir()] == [
        stored.candidate(stored.CONFIG).hash
    ]
    assert [p.name for p in (at / "content").iterdir()] == ["config"]


def test_files_that_no_state_names_stay_where_the_newest_state_was_lost(
    store: CheckpointStore,
) -> None:
    store.save_checkpoint(stored.checkpoint(stored.candidate(stored.CONFIG)))
    (stored.slot_path(store) / "state.json").write_bytes(b"")
    (stored.slot_path(store) / "state.json.1").write_bytes(b"")
    found = load(store.root)
    assert len(found.checkpoints[stored.SLOT].generations) == 2


def test_a_state_of_another_slot_is_damage(store: CheckpointStore) -> None:
    at = stored.slot_path(store)
    shutil.copy(at.parent / "pod.other" / "state.json", at / "state.json")
    found = load(store.root)
    assert "it is the state of kube-system/pod.other" in found.damaged[0]
    assert found.checkpoints[stored.SLOT].activations == 0


def test_a_link_instead_of_a_slot_is_left_alone(store: CheckpointStore) -> None:
    (store.root / "checkpoints" / "kube-system" / "pod.link").symlink_to("/etc")
    assert len(load(store.root).checkpoints) == 2


def test_d11_on_a_read_only_disk_what_is_whole_is_used(store: CheckpointStore) -> None:
    (stored.slot_path(store) / "state.json").write_bytes(b"")
    certs = stored.slot_path(store) / "content" / "certs" / stored.CERTS.hash
    (certs / "tls.key").write_bytes(b"")
    found = load(store.root, ReadOnlyDisk())
    assert len(found.checkpoints) == 2
    assert len(found.checkpoints[stored.SLOT].generations) == 1


# ---- active files -------------------------------------------------------------------------------


def serving(store: CheckpointStore) -> Checkpoint:
    """Save that a copy of the first generation serves."""
    known = store.saved(stored.SLOT)
    assert known is not None
    active = replace(known, phase=Phase.SERVING, activation=stored.activation(stored.candidate()))
    store.save_checkpoint(active)
    return active


def test_a_wiped_active_directory_is_made_again_before_the_kubelet_looks(
    store: CheckpointStore,
) -> None:
    active = serving(store)
    paths = store.make_active(stored.SLOT, stored.COPY_UID, stored.candidate().hash)
    before = stored.tree(stored.slot_path(store) / "active")
    shutil.rmtree(stored.slot_path(store) / "active")
    assert load(store.root).checkpoints[stored.SLOT] == active
    assert stored.tree(stored.slot_path(store) / "active") == before
    assert (paths["certs"] / "tls.key").read_bytes() == b"key 1"


def test_b7_active_files_of_an_activation_that_ended_are_removed(store: CheckpointStore) -> None:
    serving(store)
    for uid in (stored.COPY_UID, "old"):
        store.make_active(stored.SLOT, uid, stored.candidate().hash)
    load(store.root)
    names = [path.name for path in (stored.slot_path(store) / "active").iterdir()]
    assert names == [stored.COPY_UID]


def test_active_files_stay_where_the_newest_state_was_lost(store: CheckpointStore) -> None:
    store.make_active(stored.SLOT, "unknown", stored.candidate().hash)
    (stored.slot_path(store) / "state.json").write_bytes(b"")
    load(store.root)
    assert (stored.slot_path(store) / "active" / "unknown").is_dir()
