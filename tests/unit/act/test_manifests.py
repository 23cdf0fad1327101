"""The static-pod directory: a manifest is there whole or not, and nothing else is touched."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from checkpointd.act import manifests
from checkpointd.act.manifests import HASTE_SECONDS, ManifestDirectory
from checkpointd.clock import Clock
from checkpointd.errors import ActionError, StoreError
from checkpointd.store.durable import Disk
from tests.builders import stored
from tests.fakes.faulty_disk import FaultyDisk, ReadOnlyDisk

FILE = "checkpointd.kube-system.api-1a2b3c.json"


def manifest(
    name: str = "api-1a2b3c", namespace: str = "kube-system", *, ours: bool = True
) -> bytes:
    annotations = {
        "checkpointer.alpha.coreos.com/checkpoint-of": "api",
        "checkpointd.io/slot": "ds.api",
    }
    metadata = {"name": name, "namespace": namespace, "annotations": annotations if ours else {}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).encode()


def directory(path: Path, disk: Disk | None = None) -> ManifestDirectory:
    return ManifestDirectory(disk or Disk(), lambda: path)


def test_d1_a_manifest_appears_by_one_rename_of_a_durable_dot_file(tmp_path: Path) -> None:
    disk = FaultyDisk()
    digest = directory(tmp_path, disk).place(FILE, manifest())
    assert digest == hashlib.sha256(manifest()).hexdigest()
    assert [(verb, path.name) for verb, path in disk.log] == [
        ("create", f".checkpointd-{FILE}"),
        ("write", f".checkpointd-{FILE}"),
        ("fsync", f".checkpointd-{FILE}"),
        ("rename", FILE),
        ("fsync", tmp_path.name),
    ]
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_d1_the_same_bytes_are_not_written_again(tmp_path: Path) -> None:
    disk = FaultyDisk()
    placed = directory(tmp_path, disk)
    placed.place(FILE, manifest())
    calls = disk.calls
    assert placed.place(FILE, manifest()) == hashlib.sha256(manifest()).hexdigest()
    assert disk.calls == calls


@pytest.mark.parametrize(
    "content",
    [
        manifest(ours=False),
        b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"api-1a2b3c","namespace":"kube-system"}}',
        b"apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: kube-system\n  name: api-1a2b3c\n",
        b'kind: Pod\nmetadata: {"name": "api-1a2b3c"}\n',
        b"kind: Pod\nmetadata:\n  name: 'api-1a2b3c' # mine\n",
    ],
)
@pytest.mark.parametrize("name", ["other.yaml", "api.yaml.bak", "x~", "no-suffix"])
def test_d2_a_foreign_manifest_of_the_same_pod_is_named(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ActionError, match=f"foreign manifest .*{name} defines the same pod"):
        directory(tmp_path).place(FILE, manifest())
    assert stored.tree(tmp_path) == {name: content}


@pytest.mark.parametrize(
    "content",
    [
        manifest(name="api-1a2b3c", namespace="other"),
        manifest(name="api"),
        b"metadata:\n  name: api-1a2b3c-longer\n",
        b"metadata:\n  hostname: api-1a2b3c\n",
        b"\x00\xff garbage",
        b"",
    ],
)
def test_d2_what_defines_another_pod_or_none_is_no_collision(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "other.yaml").write_bytes(content)
    directory(tmp_path).place(FILE, manifest())
    assert (tmp_path / "other.yaml").read_bytes() == content


def test_d2_what_the_kubelet_cannot_read_is_no_collision(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / ".dot").write_bytes(manifest())
    os.mkfifo(tmp_path / "fifo")
    directory(tmp_path).place(FILE, manifest())
    assert (tmp_path / FILE).exists()


def test_a_foreign_manifest_behind_a_link_is_a_collision(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(manifest(ours=False))
    at = tmp_path / "manifests"
    at.mkdir()
    (at / "link.yaml").symlink_to("../elsewhere")
    with pytest.raises(ActionError, match=r"link\.yaml"):
        directory(at).place(FILE, manifest())


@pytest.mark.parametrize("content", [manifest(ours=False), b"", b"[]", b"name: api-1a2b3c"])
def test_d15_a_file_of_our_name_that_is_not_ours_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ActionError, match="not ours"):
        directory(tmp_path).place(FILE, manifest())
    with pytest.raises(ActionError, match="not ours"):
        directory(tmp_path).remove(FILE)
    assert stored.tree(tmp_path) == {FILE: content}


def test_a_link_of_our_name_is_neither_followed_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(manifest())
    (tmp_path / FILE).symlink_to("target")
    with pytest.raises(ActionError, match="not ours"):
        directory(tmp_path).place(FILE, manifest())
    with pytest.raises(ActionError, match="not ours"):
        directory(tmp_path).remove(FILE)
    assert (tmp_path / FILE).is_symlink()


def test_d14_s7_an_absent_directory_is_made_for_root_alone(tmp_path: Path) -> None:
    at = tmp_path / "kubernetes" / "manifests"
    directory(at).place(FILE, manifest())
    assert stat.S_IMODE(at.stat().st_mode) == 0o700
    assert (at / FILE).read_bytes() == manifest()


def test_d14_a_directory_that_went_just_now_is_left_to_whoever_replaces_it(tmp_path: Path) -> None:
    at = tmp_path / "manifests"
    at.mkdir()
    at.rmdir()
    with pytest.raises(ActionError, match="went just now"):
        directory(at).place(FILE, manifest())
    assert not at.exists()
    then = Clock.wall().timestamp() - HASTE_SECONDS
    os.utime(tmp_path, (then, then))
    directory(at).place(FILE, manifest())
    assert at.is_dir()


def test_d14_a_replaced_directory_is_found_each_time(tmp_path: Path) -> None:
    at = tmp_path / "manifests"
    at.mkdir()
    placed = directory(at)
    placed.place(FILE, manifest())
    at.rename(tmp_path / "old")
    (tmp_path / "new").mkdir()
    at.symlink_to("new")
    placed.place(FILE, manifest())
    assert (tmp_path / "new" / FILE).read_bytes() == manifest()


def test_d14_removing_where_nothing_is_does_nothing(tmp_path: Path) -> None:
    assert not directory(tmp_path / "absent").remove(FILE)
    assert not directory(tmp_path).remove(FILE)
    assert not (tmp_path / "absent").exists()


def test_a_static_pod_path_that_is_a_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_bytes(b"kind: Pod")
    with pytest.raises(ActionError, match="set staticPodPath"):
        directory(tmp_path / "pod.yaml").place(FILE, manifest())


def test_removal_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk()
    placed = directory(tmp_path, disk)
    placed.place(FILE, manifest())
    disk.arm(0, "before")
    assert placed.remove(FILE)
    assert [verb for verb, _path in disk.log] == ["remove", "fsync"]
    assert stored.tree(tmp_path) == {}


def test_s6_only_our_own_leftovers_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpointd-x.json").write_bytes(b"half")
    (tmp_path / ".kube-apiserver.yaml.swp").write_bytes(b"an editor's")
    (tmp_path / ".checkpointd-folder").mkdir()
    (tmp_path / "etcd.yaml").write_bytes(b"kind: Pod")
    assert directory(tmp_path).remove_leftovers() == (".checkpointd-x.json",)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".checkpointd-folder", ".kube-apiserver.yaml.swp", "etcd.yaml"]


@pytest.mark.parametrize("file", ["etcd.yaml", "checkpointd.x", "../checkpointd.a.json", ".x.json"])
def test_a_name_that_is_not_ours_is_refused(tmp_path: Path, file: str) -> None:
    with pytest.raises(ActionError, match="cannot be the name"):
        directory(tmp_path).place(file, manifest())
    with pytest.raises(ActionError, match="cannot be the name"):
        directory(tmp_path).remove(file)


def test_d15_what_is_no_pod_is_never_placed(tmp_path: Path) -> None:
    with pytest.raises(ActionError, match="not a Pod"):
        directory(tmp_path).place(FILE, b'{"kind": "Pod"}')


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises((ActionError, StoreError)):
        directory(tmp_path / "file" / "manifests").place(FILE, manifest())


def test_no_namespace_is_the_namespace_default() -> None:
    assert manifests.pod_name(b'{"metadata": {"name": "a"}}') == ("default", "a")


EDITED = (
    manifest(ours=False),
    b"kind: Pod\nmetadata:\n  name: api-1a2b3c\n  namespace: kube-system\n",
    b"",
    b'{"kind": "Pod", "metadata": {}}',
    b"kind: Pod\nmetadata:\n",
    b"{ half",
)


@pytest.mark.parametrize("content", EDITED)
def test_what_an_edit_left_of_a_copys_manifest_is_removed_with_it(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert directory(tmp_path).remove(FILE, ("kube-system", "api-1a2b3c"))
    assert stored.tree(tmp_path) == {}


@pytest.mark.parametrize(
    "content",
    [
        manifest("other", ours=False),
        manifest(namespace="apps", ours=False),
        b"apiVersion: v1\nkind: Pod\nmetadata:\n  name: other\n",
        b'kind: "Pod"\nmetadata: {name: api-1a2b3c-too}\n',
    ],
)
def test_another_pods_manifest_under_a_copys_name_is_never_removed(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ActionError, match="is not ours: it stays"):
        directory(tmp_path).remove(FILE, ("kube-system", "api-1a2b3c"))
    assert stored.tree(tmp_path) == {FILE: content}


def test_d14_a_dangling_link_is_named_with_where_it_points(tmp_path: Path) -> None:
    (tmp_path / "manifests").symlink_to("away")
    with pytest.raises(ActionError, match=f"a link to {tmp_path}/away, which is not there"):
        directory(tmp_path / "manifests").place(FILE, manifest())


def test_a_directory_outside_of_the_units_sandbox_is_named_with_the_drop_in(tmp_path: Path) -> None:
    with pytest.raises(ActionError, match=f"ReadWritePaths={tmp_path}"):
        directory(tmp_path, ReadOnlyDisk()).place(FILE, manifest())
    (tmp_path / FILE).write_bytes(manifest())
    with pytest.raises(ActionError, match=f"ReadWritePaths={tmp_path}"):
        directory(tmp_path, ReadOnlyDisk()).remove(FILE)
