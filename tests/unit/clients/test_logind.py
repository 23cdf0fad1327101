from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import logind, pid1
from checkpointd.errors import RefusedError, RejectedError, SilentError
from tests.fakes.manager import FakeManager, Mood

PREPARING = ("/org/freedesktop/login1", "PreparingForShutdown")


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[FakeManager]:
    with FakeManager(tmp_path / "system_bus_socket", is_bus=True) as made:
        yield made


@pytest.mark.parametrize("preparing", [True, False])
def test_logind_says_whether_it_prepares_a_shutdown(bus: FakeManager, preparing: bool) -> None:
    bus.properties[PREPARING] = preparing
    assert logind.is_going_down(bus.path, 10) is preparing


def test_a_bus_without_logind_is_an_error(bus: FakeManager) -> None:
    with pytest.raises(RejectedError):
        logind.is_going_down(bus.path, 10)


def test_no_bus_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        logind.is_going_down(tmp_path / "none", 10)


def test_a_bus_that_says_nothing_is_given_up_at_the_deadline(bus: FakeManager) -> None:
    bus.properties[PREPARING] = True
    bus.mood = Mood.SILENT
    with pytest.raises(SilentError):
        logind.is_going_down(bus.path, 0.05)


def test_pid_1_is_not_greeted(tmp_path: Path) -> None:
    with FakeManager(tmp_path / "private") as manager:
        assert pid1.read_system_state(manager.path, 10) == "running"
        assert not manager.greeted
