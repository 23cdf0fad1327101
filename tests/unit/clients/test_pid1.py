from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import pid1
from checkpointd.errors import RefusedError, RejectedError, SilentError
from tests.fakes import manager as manager_fake
from tests.fakes.manager import FakeManager, Mood


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[FakeManager]:
    with FakeManager(tmp_path / "private") as made:
        yield made


@pytest.mark.parametrize("state", sorted(pid1.STATES))
def test_every_state_is_read(manager: FakeManager, state: str) -> None:
    manager.state = state
    assert pid1.read_system_state(manager.path, 10) == state


@pytest.mark.parametrize("mood", [Mood.BIG_ENDIAN, Mood.SIGNALS_FIRST, Mood.IN_PIECES])
def test_an_answer_is_read_however_it_comes(manager: FakeManager, mood: Mood) -> None:
    manager.mood = mood
    manager.state = "stopping"
    assert pid1.read_system_state(manager.path, 10) == "stopping"


@pytest.mark.parametrize(
    "mood", [Mood.REFUSES, Mood.ERROR, Mood.NUMBER, Mood.GARBAGE, Mood.ENDLESS]
)
def test_an_answer_that_is_none_is_an_error(manager: FakeManager, mood: Mood) -> None:
    manager.mood = mood
    with pytest.raises(RejectedError):
        pid1.read_system_state(manager.path, 10)


def test_a_state_that_nobody_knows_is_an_error(manager: FakeManager) -> None:
    manager.state = "hibernating"
    with pytest.raises(RejectedError, match="hibernating"):
        pid1.read_system_state(manager.path, 10)


def test_no_answer_ends_at_the_deadline(manager: FakeManager) -> None:
    manager.mood = Mood.SILENT
    with pytest.raises(SilentError):
        pid1.read_system_state(manager.path, 0.05)


def test_a_closed_connection_is_an_error(manager: FakeManager) -> None:
    manager.mood = Mood.CLOSES
    with pytest.raises(RefusedError):
        pid1.read_system_state(manager.path, 10)


def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        pid1.read_system_state(tmp_path / "nowhere", 10)


def test_a_socket_on_which_nobody_listens_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "private"))
        with pytest.raises(RefusedError):
            pid1.read_system_state(tmp_path / "private", 10)


@pytest.mark.parametrize("mood", [Mood.WELL, Mood.BIG_ENDIAN])
@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("enabled", "enabled"),
        ("", ""),
        (True, 1),
        (2**63, 2**63),
        ((), ()),
        (("kubelet.service", "a", "multi-user.target"),) * 2,
    ],
)
def test_a_units_properties_are_read(
    manager: FakeManager, mood: Mood, value: manager_fake.Value, read: pid1.Value
) -> None:
    manager.mood = mood
    manager.properties["/unit/a_2db_2eservice", "Before"] = value
    wanted = pid1.of_unit("a-b.service", "Unit", "Before")
    assert pid1.read_property(manager.path, 10, wanted) == read


def test_a_property_that_a_unit_has_not_is_an_error(manager: FakeManager) -> None:
    with pytest.raises(RejectedError, match="does not tell its Nonsense"):
        pid1.read_property(manager.path, 10, pid1.of_unit("a.service", "Unit", "Nonsense"))
