"""The hash of a volume's files, and that no byte of them is shown."""

from __future__ import annotations

from dataclasses import replace

from checkpointd.model.files import FileEntry
from checkpointd.render.content import content_hash, volume_files

TOP = FileEntry(path="", data=None, mode=0o755, uid=0, gid=0)
KEY = FileEntry(path="key", data=b"hunter2", mode=0o400, uid=1, gid=2, label="a:b:c:s0")


def test_everything_that_a_pod_can_see_is_in_the_hash() -> None:
    changed = (
        replace(KEY, path="kez"),
        replace(KEY, data=b""),
        replace(KEY, data=None),
        replace(KEY, mode=0o440),
        replace(KEY, uid=2),
        replace(KEY, gid=1),
        replace(KEY, label=""),
    )
    assert len({content_hash((TOP, entry)) for entry in (KEY, *changed)}) == 8


def test_fields_do_not_run_into_each_other() -> None:
    one = replace(KEY, path="a", uid=1, gid=11)
    two = replace(KEY, path="a", uid=11, gid=1)
    assert content_hash((one,)) != content_hash((two,))
    assert content_hash((TOP, KEY)) != content_hash((KEY,))


def test_the_order_of_reading_does_not_matter() -> None:
    assert volume_files("v", "", (KEY, TOP)) == volume_files("v", "", (TOP, KEY))


def test_a_name_that_is_no_unicode_has_a_hash_too() -> None:
    assert content_hash((replace(KEY, path="\udcff"),))


def test_no_byte_of_a_file_is_in_a_repr() -> None:
    assert "hunter2" not in repr(volume_files("v", "", (TOP, KEY)))
