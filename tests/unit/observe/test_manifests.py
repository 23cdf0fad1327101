from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkpointd.clock import Clock
from checkpointd.errors import StoreError
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import ManifestsRead, Override, OverridesRead, Verb
from checkpointd.observe.manifests import ManifestSource
from tests.fakes.posted import Posted

HOLD = Override(verb=Verb.HOLD, until="", reason="maintenance")


@dataclass
class Place:
    """The directories of one node, and the source that looks at them."""

    root: Path
    posted: Posted = field(default_factory=Posted)
    frozen: threading.Event = field(default_factory=threading.Event)
    problem: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        for name in ("manifests", "overrides", "run"):
            (self.root / name).mkdir()
        self.path = str(self.manifests)

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    def source(self, clock: Clock | None = None) -> ManifestSource:
        return ManifestSource(
            self.posted.post,
            clock or Clock(),
            directory=lambda: self.path,
            overrides=(self.root / "overrides", self.read_overrides),
            run=self.root / "run",
            frozen_changed=self.frozen.set,
        )

    def read_overrides(self) -> OverridesRead:
        if self.problem:
            raise StoreError(self.problem)
        return OverridesRead({path.stem: HOLD for path in (self.root / "overrides").glob("[!.]*")})

    def wait_for_names(self, *names: str) -> None:
        self.posted.wait_for(
            ManifestsRead,
            lambda fact: isinstance(fact.result, Seen) and sorted(fact.result.value) == [*names],
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def source(place: Place) -> Iterator[ManifestSource]:
    made = place.source()
    # Other programs of this user can have all instances: then nothing here comes in time.
    assert made.why_polling == ""
    made.start()
    yield made
    made.stop(10)
    made.close()


def write(path: Path, name: str = "web") -> None:
    pod = {"kind": "Pod", "metadata": {"name": name, "namespace": "apps"}}
    path.write_text(json.dumps(pod), encoding="utf-8")


@pytest.mark.usefixtures("source")
def test_files_are_told_as_they_come_and_go(place: Place) -> None:
    place.wait_for_names()
    write(place.manifests / "a.json")
    place.wait_for_names("a.json")
    write(place.manifests / "b.json")
    place.wait_for_names("a.json", "b.json")
    (place.manifests / "a.json").unlink()
    place.wait_for_names("b.json")


@pytest.mark.usefixtures("source")
def test_h3_d14_a_directory_that_is_moved_away_and_made_again_is_followed(place: Place) -> None:
    place.wait_for_names()
    moved = place.manifests.rename(place.root / "old")
    gone = place.posted.wait_for(
        ManifestsRead, lambda fact: isinstance(fact.result, Unknown)
    ).result
    assert isinstance(gone, Unknown)
    assert "No such file" in gone.why
    place.manifests.mkdir()
    write(place.manifests / "new.json")
    place.wait_for_names("new.json")
    write(moved / "stale.json")
    write(place.manifests / "more.json")
    place.wait_for_names("more.json", "new.json")


@pytest.mark.usefixtures("source")
def test_h3_a_directory_that_is_removed_and_made_again_is_followed(place: Place) -> None:
    write(place.manifests / "a.json")
    place.wait_for_names("a.json")
    (place.manifests / "a.json").unlink()
    place.manifests.rmdir()
    place.manifests.mkdir()
    write(place.manifests / "b.json")
    place.wait_for_names("b.json")


def test_d14_a_directory_that_is_not_there_at_the_start_is_waited_for(place: Place) -> None:
    place.manifests.rmdir()
    source = place.source()
    source.start()
    try:
        fact = place.posted.wait_for(ManifestsRead)
        assert isinstance(fact.result, Unknown)
        place.manifests.mkdir()
        place.wait_for_names()
    finally:
        source.stop(10)
        source.close()


def test_another_directory_is_taken_up_when_it_is_told(
    place: Place, source: ManifestSource
) -> None:
    place.wait_for_names()
    other = place.root / "other"
    other.mkdir()
    write(other / "x.json")
    place.path = f"{other}/"
    source.look_now()
    place.wait_for_names("x.json")
    place.path = ""
    source.look_now()
    place.posted.wait_for(
        ManifestsRead,
        lambda fact: isinstance(fact.result, Unknown) and "not known yet" in fact.result.why,
    )


@pytest.mark.usefixtures("source")
def test_h2_a_burst_of_files_ends_with_all_of_them(place: Place) -> None:
    place.wait_for_names()
    names = [f"{number:03}.json" for number in range(300)]
    for name in names:
        write(place.manifests / name)
    place.wait_for_names(*names)


@pytest.mark.usefixtures("source")
def test_operators_words_are_told_at_once(place: Place) -> None:
    place.posted.wait_for(OverridesRead, lambda fact: dict(fact.overrides) == {})
    (place.root / "overrides" / "node.json").touch()
    place.posted.wait_for(OverridesRead, lambda fact: dict(fact.overrides) == {"node": HOLD})
    (place.root / "overrides" / "node.json").unlink()
    place.posted.wait_for(OverridesRead, lambda fact: dict(fact.overrides) == {})


def test_words_that_cannot_be_read_change_nothing(place: Place, source: ManifestSource) -> None:
    place.posted.wait_for(OverridesRead)
    place.problem = "input/output error"
    (place.root / "overrides" / "node.json").touch()
    write(place.manifests / "a.json")
    place.wait_for_names("a.json")
    place.problem = ""
    source.look_now()
    place.posted.wait_for(OverridesRead, lambda fact: "node" in fact.overrides)


@pytest.mark.usefixtures("source")
def test_only_the_freeze_file_of_the_run_directory_counts(place: Place) -> None:
    place.wait_for_names()
    (place.root / "run" / "status.json").touch()
    write(place.manifests / "a.json")
    place.wait_for_names("a.json")
    assert not place.frozen.is_set()
    (place.root / "run" / "frozen").touch()
    assert place.frozen.wait(10)


# ---- the directory itself ------------------------------------------------------------------------
class Later(Clock):
    """Be a clock that a test sets forward."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0

    def now(self) -> Instant:
        return super().now().plus(self.ahead)


def look(place: Place, source: ManifestSource) -> ManifestsRead:
    source.look_now()
    source.step()
    return [fact for fact in place.posted.facts if isinstance(fact, ManifestsRead)][-1]


def test_h1_h2_a_full_look_every_20_s_finds_what_no_event_told_of(place: Place) -> None:
    # Nobody waits for events here: all of them are lost.
    clock = Later()
    source = place.source(clock)
    source.step()
    write(place.manifests / "a.json")
    clock.ahead = 19.0
    assert 0 < source.step() <= 1.0
    told = [fact for fact in place.posted.facts if isinstance(fact, ManifestsRead)]
    assert [fact.result.value for fact in told if isinstance(fact.result, Seen)] == [{}]
    clock.ahead = 20.0
    source.step()
    place.wait_for_names("a.json")
    source.close()


def test_an_absent_directory_is_unknown_at_first_and_empty_when_that_lasts(place: Place) -> None:
    clock = Later()
    source = place.source(clock)
    place.manifests.rmdir()
    told = look(place, source)
    assert isinstance(told.result, Unknown)
    assert "mkdir" in told.problem
    clock.ahead = 19.0
    assert isinstance(look(place, source).result, Unknown)
    clock.ahead = 21.0
    told = look(place, source)
    assert isinstance(told.result, Seen)
    assert told.result.value == {}
    assert "mkdir" in told.problem
    place.manifests.mkdir()
    assert look(place, source).problem == ""
    place.manifests.rmdir()
    assert isinstance(look(place, source).result, Unknown)
    source.close()


def test_a_dangling_link_stays_unknown_however_long(place: Place) -> None:
    clock = Later()
    source = place.source(clock)
    place.manifests.rmdir()
    place.manifests.symlink_to("away")
    look(place, source)
    clock.ahead = 60.0
    assert isinstance(look(place, source).result, Unknown)
    source.close()


def test_a_link_to_a_directory_is_noted_and_followed(place: Place) -> None:
    source = place.source()
    place.manifests.rename(place.root / "real")
    place.manifests.symlink_to("real")
    write(place.root / "real" / "a.json")
    told = look(place, source)
    assert isinstance(told.result, Seen)
    assert [*told.result.value] == ["a.json"]
    assert "copies are placed there" in told.notes[0]
    source.close()
