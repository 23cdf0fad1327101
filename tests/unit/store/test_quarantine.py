"""What is damaged is kept for people, but not without bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointd.store import quarantine
from checkpointd.store.durable import Disk
from checkpointd.store.walk import Directory


def put_away(top: Path, name: str, content: bytes) -> str:
    (top / name).mkdir()
    (top / name / "file").write_bytes(content)
    with Directory.open(top) as root:
        return quarantine.put_away(Disk(), root, root, name)


def test_names_tell_where_it_was_and_are_never_taken_twice(tmp_path: Path) -> None:
    assert put_away(tmp_path, "a", b"1") == "a.0"
    assert put_away(tmp_path, "a", b"2") == "a.1"
    assert (tmp_path / "quarantine" / "a.0" / "file").read_bytes() == b"1"


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(quarantine.MOST_ENTRIES + 5):
        put_away(tmp_path, f"n{number:02}", b"x")
    kept = sorted(path.name for path in (tmp_path / "quarantine").iterdir())
    assert len(kept) == quarantine.MOST_ENTRIES
    assert kept[-1] == f"n{quarantine.MOST_ENTRIES + 4:02}.0"


@pytest.mark.parametrize(("share", "left"), [(0.4, ["b.0", "c.0"]), (1.5, ["c.0"])])
def test_their_bytes_are_bounded_but_the_newest_stays(
    tmp_path: Path, share: float, left: list[str]
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        with (tmp_path / name / "file").open("wb") as file:
            file.truncate(int(quarantine.MOST_BYTES * share))
        with Directory.open(tmp_path) as root:
            quarantine.put_away(Disk(), root, root, name)
    assert sorted(path.name for path in (tmp_path / "quarantine").iterdir()) == left
