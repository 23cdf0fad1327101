"""Names become path components only if they are plain ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpointd.errors import StoreError
from checkpointd.model.pods import Slot
from checkpointd.store import layout


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", ".hidden", "x" * 256])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(StoreError):
        layout.component(name)


@pytest.mark.parametrize("path", ["../x", "..data", "a//b", "/etc/passwd", "a/../b", "a/.", "a\0"])
def test_a_path_in_a_volume_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(StoreError):
        layout.volume_path(path)


@pytest.mark.parametrize(
    ("path", "parts"),
    [("", ()), ("tls.crt", ("tls.crt",)), ("a/b", ("a", "b")), (".dockercfg", (".dockercfg",))],
)
def test_a_plain_path_in_a_volume_is_taken_apart(path: str, parts: tuple[str, ...]) -> None:
    assert layout.volume_path(path) == parts


def test_a_slot_over_200_bytes_is_cut_and_hashed() -> None:
    long, longer = (layout.slot_directory(Slot("ns", "ds." + "x" * n)) for n in (240, 241))
    assert len(long) <= 200
    assert long != longer


def test_s5_two_slots_never_share_a_path() -> None:
    assert layout.override_file(Slot("a-b", "pod.c")) != layout.override_file(Slot("a", "pod.b-c"))


def test_the_file_of_an_order_fits_whatever_the_slots_name(tmp_path: Path) -> None:
    slot = Slot("n" * 63, "pod." + "p" * 196)
    file = layout.override_file(slot)
    (tmp_path / layout.temporary(file)).touch()
    assert file != layout.override_file(Slot("n" * 63, "pod." + "p" * 195))
    assert layout.override_file(Slot("apps", "ds.web")) == "apps.ds.web.json"
