from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import proc
from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import ManagerRead
from checkpointd.observe.manager import ManagerQuery, ManagerSource
from tests.fakes.manager import FakeManager, Mood
from tests.fakes.posted import Posted
from tests.fakes.proc_tree import ProcTree
from tests.fakes.processes import running


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[FakeManager]:
    (tmp_path / "systemd").mkdir()
    with FakeManager(tmp_path / "systemd" / "private") as made:
        yield made


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[FakeManager]:
    (tmp_path / "dbus").mkdir()
    with FakeManager(tmp_path / "dbus" / "system_bus_socket", is_bus=True) as made:
        yield made


@pytest.fixture
def query(manager: FakeManager, tmp_path: Path) -> ManagerQuery:
    return ManagerQuery(Clock(), proc.Procfs(Path("/proc")), manager.path, tmp_path)


@pytest.fixture
def posted() -> Posted:
    return Posted()


@pytest.fixture
def source(query: ManagerQuery, posted: Posted) -> Iterator[ManagerSource]:
    made = ManagerSource(posted.post, Clock(), query)
    made.start()
    yield made
    made.stop(10)


def test_the_answer_is_as_of_the_question(manager: FakeManager, query: ManagerQuery) -> None:
    manager.state = "stopping"
    before = Clock().now()
    answer = query.ask()
    assert isinstance(answer, Seen)
    assert answer.value == "stopping"
    assert before.seconds <= answer.at.seconds <= Clock().now().seconds


@pytest.mark.parametrize("state", ["running", "degraded"])
def test_a_shutdown_that_logind_has_begun_counts_though_somebody_holds_it_up(
    manager: FakeManager, bus: FakeManager, query: ManagerQuery, state: str
) -> None:
    manager.state = state
    bus.properties["/org/freedesktop/login1", "PreparingForShutdown"] = True
    answer = query.ask()
    assert isinstance(answer, Seen)
    assert answer.value == "stopping"


@pytest.mark.parametrize("mood", [Mood.WELL, Mood.ERROR, Mood.GARBAGE, Mood.CLOSES])
def test_where_logind_prepares_nothing_or_says_nothing_pid_1_is_believed(
    manager: FakeManager, bus: FakeManager, query: ManagerQuery, mood: Mood
) -> None:
    bus.properties["/org/freedesktop/login1", "PreparingForShutdown"] = mood is not Mood.WELL
    bus.mood = mood
    answer = query.ask()
    assert isinstance(answer, Seen)
    assert answer.value == manager.state == "running"


def test_during_the_boot_nobody_waits_for_logind(
    manager: FakeManager, bus: FakeManager, query: ManagerQuery
) -> None:
    manager.state = "starting"
    bus.properties["/org/freedesktop/login1", "PreparingForShutdown"] = True
    answer = query.ask()
    assert isinstance(answer, Seen)
    assert answer.value == "starting"


def test_no_answer_is_unknown(manager: FakeManager, query: ManagerQuery) -> None:
    manager.mood = Mood.SILENT
    answer = query.ask(0.01)
    assert isinstance(answer, Unknown)
    assert "no answer" in answer.why


def test_systemd_is_told_by_the_name_of_pid_1(tmp_path: Path) -> None:
    with ProcTree(tmp_path / "proc") as tree, running(tmp_path, "systemd") as systemd:
        query = ManagerQuery(Clock(), proc.Procfs(tree.root), tmp_path / "private", tmp_path)
        assert not query.is_systemd()
        tree.add(systemd.pid, seen_as=1)
        assert query.is_systemd()


def test_state_and_freeze_file_are_told_together(
    manager: FakeManager, posted: Posted, source: ManagerSource, tmp_path: Path
) -> None:
    source.ask(frozenset({Question(Topic.MANAGER, period=600)}))
    fact = posted.wait_for(ManagerRead)
    assert isinstance(fact.result, Seen)
    assert (fact.result.value, fact.frozen_file) == ("running", False)
    manager.state = "stopping"
    (tmp_path / "frozen").touch()
    source.look_now()
    fact = posted.wait_for(ManagerRead)
    assert isinstance(fact.result, Seen)
    assert (fact.result.value, fact.frozen_file) == ("stopping", True)


def test_the_freeze_file_is_told_even_if_pid_1_says_nothing(
    manager: FakeManager, posted: Posted, source: ManagerSource, tmp_path: Path
) -> None:
    manager.mood = Mood.REFUSES
    (tmp_path / "frozen").touch()
    source.ask(frozenset({Question(Topic.MANAGER, period=0.01)}))
    fact = posted.wait_for(ManagerRead)
    assert isinstance(fact.result, Unknown)
    assert fact.frozen_file
