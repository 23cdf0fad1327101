"""Reading the kubelet's volumes: exact, one generation at a time, and never outside."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from checkpointd.errors import SourceError
from checkpointd.model.files import Refusal, VolumeFiles
from checkpointd.observe.volumes import read_targets, read_volumes
from checkpointd.render.volumes import StoredVolume
from tests.builders.kubelet_volumes import point, volume_directory, write_volume

UID = "0b7e2f0c-6d3a-4f0f-9f2e-3c1d5a7b9e11"
LIMIT = 1024 * 1024
SECRET = StoredVolume(name="certs", plugin="secret", optional=False)
CONFIG = StoredVolume(name="config", plugin="configmap", optional=False)
OPTIONAL = StoredVolume(name="certs", plugin="secret", optional=True)


def place_of(root: Path, wanted: StoredVolume = SECRET) -> Path:
    return volume_directory(root, UID, wanted.plugin, wanted.name)


def read(root: Path, *wanted: StoredVolume, limit: int = LIMIT) -> Mapping[str, VolumeFiles]:
    found = read_volumes(root, UID, wanted or (SECRET,), limit)
    assert not isinstance(found, Refusal)
    return found


def contents(files: VolumeFiles) -> dict[str, bytes | None]:
    return {entry.path: entry.data for entry in files.entries}


def test_c7_bytes_and_modes_are_exact(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    modes = {"key": 0o400, "a.b/c": 0o640}
    write_volume(directory, {"key": b"\0\xff\n", "a.b/c": b"", "tls.crt": b"x"}, modes=modes)
    # With fsGroup the kubelet sets the set-group-ID bit, which the unit may not write.
    directory.chmod(0o2775)
    files = read(tmp_path)["certs"]
    assert contents(files) == {
        "": None,
        "a.b": None,
        "a.b/c": b"",
        "key": b"\0\xff\n",
        "tls.crt": b"x",
    }
    found = {entry.path: entry.mode for entry in files.entries}
    assert found == {"": 0o775, "a.b": 0o755, "a.b/c": 0o640, "key": 0o400, "tls.crt": 0o644}
    assert {(entry.uid, entry.gid) for entry in files.entries} == {(os.getuid(), os.getgid())}


def test_c7_an_empty_config_map_is_complete(tmp_path: Path) -> None:
    write_volume(place_of(tmp_path, CONFIG), {})
    assert contents(read(tmp_path, CONFIG)["config"]) == {"": None}


def test_c4_several_volumes_are_read_each_from_its_own_place(tmp_path: Path) -> None:
    write_volume(place_of(tmp_path, SECRET), {"a": b"1"})
    write_volume(place_of(tmp_path, CONFIG), {"a": b"2"})
    found = read(tmp_path, SECRET, CONFIG)
    assert contents(found["certs"])["a"] == b"1"
    assert contents(found["config"])["a"] == b"2"


def test_s1_a_key_that_was_removed_is_gone(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    write_volume(directory, {"old": b"1", "kept": b"2"})
    write_volume(directory, {"kept": b"2"})
    assert set(contents(read(tmp_path)["certs"])) == {"", "kept"}


def test_the_same_content_has_the_same_hash_and_any_change_another(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    write_volume(directory, {"a": b"1"})
    first = read(tmp_path)["certs"]
    write_volume(directory, {"a": b"1"})
    assert read(tmp_path)["certs"].hash == first.hash
    hashes = {first.hash}
    for files, modes in (
        ({"a": b"2"}, {}),
        ({"b": b"1"}, {}),
        ({"a": b"1", "b": b""}, {}),
        ({"a": b"1"}, {"a": 0o600}),
    ):
        write_volume(directory, files, modes=modes)
        hashes.add(read(tmp_path)["certs"].hash)
    assert len(hashes) == 5


def test_the_time_is_the_data_directorys(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    target = write_volume(directory, {"a": b"1"})
    os.utime(directory / target, (0, 1_767_323_045.9))
    assert read(tmp_path)["certs"].placed == "2026-01-02T03:04:05Z"


def test_targets_change_with_the_content(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    first = write_volume(directory, {"a": b"1"})
    assert read_targets(tmp_path, UID, (SECRET,)) == (first,)
    second = write_volume(directory, {"a": b"2"})
    assert read_targets(tmp_path, UID, (SECRET,)) == (second,)
    assert first != second


def test_a_volume_that_is_not_there_is_no_answer(tmp_path: Path) -> None:
    write_volume(place_of(tmp_path, SECRET), {"a": b"1"})
    for look in (read_volumes(tmp_path, UID, (SECRET,), LIMIT),):
        assert not isinstance(look, Refusal)
    with pytest.raises(SourceError, match="config"):
        read_volumes(tmp_path, UID, (SECRET, CONFIG), LIMIT)
    with pytest.raises(SourceError, match="config"):
        read_targets(tmp_path, UID, (CONFIG,))
    with pytest.raises(SourceError):
        read_volumes(tmp_path / "nowhere", UID, (SECRET,), LIMIT)


def test_a_volume_that_is_being_set_up_is_no_answer(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    directory.mkdir(parents=True)
    with pytest.raises(SourceError, match="not filled"):
        read_volumes(tmp_path, UID, (SECRET,), LIMIT)
    (directory / "..2026_01_01_00_00_00.1").mkdir()
    with pytest.raises(SourceError, match="not filled"):
        read_volumes(tmp_path, UID, (OPTIONAL,), LIMIT)


def test_d9_an_optional_source_that_is_absent_is_empty_and_complete(tmp_path: Path) -> None:
    place_of(tmp_path).mkdir(parents=True)
    assert contents(read(tmp_path, OPTIONAL)["certs"]) == {"": None}
    write_volume(place_of(tmp_path), {})
    assert contents(read(tmp_path, OPTIONAL)["certs"]) == {"": None}


@pytest.mark.parametrize(
    "target", ["..", "../../../../elsewhere", "/etc", "plain", "..a/b", "..data", ""]
)
def test_a_data_link_that_is_not_the_kubelets_is_no_answer(tmp_path: Path, target: str) -> None:
    directory = place_of(tmp_path)
    directory.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (directory / "..data").symlink_to(target or "..missing")
    with pytest.raises(SourceError):
        read_volumes(tmp_path, UID, (SECRET,), LIMIT)


def test_a_link_in_the_way_is_never_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    write_volume(elsewhere, {"a": b"1"})
    directory = place_of(tmp_path)
    directory.parent.mkdir(parents=True)
    directory.symlink_to(elsewhere)
    with pytest.raises(SourceError):
        read_volumes(tmp_path, UID, (SECRET,), LIMIT)


@pytest.mark.parametrize("name", ["file", "folder", "data"])
def test_a_link_among_the_files_is_never_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "shadow").write_bytes(b"secret")
    directory = place_of(tmp_path)
    target = write_volume(directory, {"a": b"1"})
    if name == "file":
        (directory / target / "b").symlink_to(tmp_path / "shadow")
    elif name == "folder":
        (directory / target / "b").symlink_to(tmp_path)
    else:
        (directory / "..link").symlink_to(tmp_path)
        point(directory, "..link")
    with pytest.raises(SourceError):
        read_volumes(tmp_path, UID, (SECRET,), LIMIT)


def test_a_pipe_among_the_files_does_not_hang(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    target = write_volume(directory, {"a": b"1"})
    os.mkfifo(directory / target / "pipe")
    with pytest.raises(SourceError, match="regular"):
        read_volumes(tmp_path, UID, (SECRET,), LIMIT)


@pytest.mark.parametrize("uid", ["", "..", "a/b", "../../etc", "a\0b", "x" * 200])
def test_a_uid_that_is_no_path_component_is_refused(tmp_path: Path, uid: str) -> None:
    with pytest.raises(SourceError, match="path component"):
        read_volumes(tmp_path, uid, (SECRET,), LIMIT)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "x" * 64])
def test_a_volume_name_that_is_no_path_component_is_refused(tmp_path: Path, name: str) -> None:
    bad = StoredVolume(name=name, plugin="secret", optional=False)
    with pytest.raises(SourceError, match="path component"):
        read_volumes(tmp_path, UID, (bad,), LIMIT)


def test_more_bytes_than_root_allows_are_a_refusal(tmp_path: Path) -> None:
    write_volume(place_of(tmp_path, SECRET), {"a": b"x" * 4000})
    write_volume(place_of(tmp_path, CONFIG), {"a": b"x" * 4000})
    assert isinstance(read_volumes(tmp_path, UID, (SECRET,), 5000), Mapping)
    refusal = read_volumes(tmp_path, UID, (SECRET, CONFIG), 5000)
    assert isinstance(refusal, Refusal)
    assert "max_bytes" in refusal.remedy


def test_many_empty_files_count_too(tmp_path: Path) -> None:
    write_volume(place_of(tmp_path), {f"k{n}": b"" for n in range(50)})
    assert isinstance(read_volumes(tmp_path, UID, (SECRET,), 5000), Refusal)


def test_folders_without_end_are_no_answer(tmp_path: Path) -> None:
    write_volume(place_of(tmp_path), {"/".join("a" * 30): b"1"})
    with pytest.raises(SourceError, match="deep"):
        read_volumes(tmp_path, UID, (SECRET,), LIMIT)


def test_no_content_is_in_an_error(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    target = write_volume(directory, {"a": b"hunter2"})
    os.mkfifo(directory / target / "b")
    with pytest.raises(SourceError) as caught:
        read_volumes(tmp_path, UID, (SECRET,), LIMIT)
    assert "hunter2" not in str(caught.value)


def test_nothing_is_written(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    write_volume(directory, {"a/b": b"1"})
    paths = [tmp_path, *sorted(tmp_path.rglob("*"))]
    before = [(path, path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in paths]
    read(tmp_path)
    after = [(path, path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in paths]
    assert before == after


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    target = write_volume(directory, {"a/b": b"1"})
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts descriptors, no paths
    read(tmp_path)
    os.mkfifo(directory / target / "b")
    with pytest.raises(SourceError):
        read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


def test_d6_certificate_and_key_are_always_of_one_generation(tmp_path: Path) -> None:
    directory = place_of(tmp_path)
    write_volume(directory, {"tls.crt": b"0", "tls.key": b"0"})
    done = threading.Event()

    def rotate() -> None:
        for number in range(200):
            pair = str(number).encode()
            write_volume(directory, {"tls.crt": pair, "tls.key": pair})
        done.set()

    writer = threading.Thread(target=rotate)
    writer.start()
    looks = 0
    while not done.is_set() or looks == 0:
        try:
            found = contents(read(tmp_path)["certs"])
        except SourceError:
            continue
        assert found["tls.crt"] == found["tls.key"]
        looks += 1
    writer.join()
    assert contents(read(tmp_path)["certs"])["tls.key"] == b"199"
