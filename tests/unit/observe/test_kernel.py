from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import cgroups, proc
from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import PodProcesses, ProcessesRead
from checkpointd.observe.kernel import LOOK_BURST, LOOKS_PER_SECOND, Allowance, KernelSource
from tests.fakes.cgroup_tree import CgroupTree
from tests.fakes.posted import Posted
from tests.fakes.processes import running

ONE, TWO = "11111111-aaaa", "22222222-bbbb"
APP, BOX, SIDE = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def tree(tmp_path: Path) -> CgroupTree:
    return CgroupTree(root=tmp_path / "cgroup").make()


@pytest.fixture
def posted() -> Posted:
    return Posted()


@pytest.fixture
def source(tree: CgroupTree, posted: Posted) -> Iterator[KernelSource]:
    reader = cgroups.Cgroups(tree.root, proc.Procfs(Path("/proc")), lambda: "")
    made = KernelSource(posted.post, Clock(), reader)
    made.start()
    yield made
    made.stop(10)
    made.close()


def ask(source: KernelSource, *uids: str, period: float | None = 600) -> None:
    source.ask(frozenset(Question(Topic.PROCESSES, uid, period=period) for uid in uids))


def pods(fact: ProcessesRead) -> dict[str, PodProcesses]:
    assert isinstance(fact.result, Seen)
    return dict(fact.result.value)


def pids(fact: ProcessesRead, uid: str) -> list[int]:
    return sorted(pid for leaf in pods(fact)[uid].leaves for pid in leaf.pids)


def test_what_is_asked_for_is_told_in_one_fact(
    tree: CgroupTree, posted: Posted, source: KernelSource, tmp_path: Path
) -> None:
    with running(tmp_path, "app") as app, running(tmp_path, "pause") as pause:
        tree.place(tree.container(ONE, APP), [app.pid])
        tree.place(tree.container(ONE, BOX), [pause.pid])
        ask(source, ONE, TWO)
        fact = posted.wait_for(ProcessesRead)
    found = pods(fact)
    assert set(found) == {ONE, TWO}
    assert found[TWO] == PodProcesses(uid=TWO, leaves=())
    leaves = {leaf.id: (leaf.pids, leaf.only_pause) for leaf in found[ONE].leaves}
    assert leaves == {APP: ((app.pid,), False), BOX: ((pause.pid,), True)}


def test_a_death_is_told_before_its_time(
    tree: CgroupTree, posted: Posted, source: KernelSource, tmp_path: Path
) -> None:
    with running(tmp_path, "app") as app, running(tmp_path, "other") as other:
        tree.place(tree.container(ONE, APP), [app.pid])
        tree.place(tree.container(TWO, APP), [other.pid])
        ask(source, ONE, TWO)
        posted.wait_for(ProcessesRead)
        app.kill()
        # The list of the cgroup still has it: what the pidfd said is enough.
        fact = posted.wait_for(ProcessesRead, lambda fact: pids(fact, ONE) == [])
        assert pids(fact, TWO) == [other.pid]


def test_the_last_of_many_deaths_is_told(
    tree: CgroupTree, posted: Posted, source: KernelSource, tmp_path: Path
) -> None:
    with running(tmp_path, "one") as one, running(tmp_path, "two") as two:
        with running(tmp_path, "three") as three:
            everybody = (one, two, three)
            tree.place(tree.container(ONE, APP), [process.pid for process in everybody])
            ask(source, ONE)
            posted.wait_for(ProcessesRead, lambda fact: len(pids(fact, ONE)) == 3)
            for process in sorted(everybody, key=lambda process: -process.pid):
                process.kill()
            posted.wait_for(ProcessesRead, lambda fact: pids(fact, ONE) == [])


def test_a_new_process_is_found_at_the_next_look(
    tree: CgroupTree, posted: Posted, source: KernelSource, tmp_path: Path
) -> None:
    ask(source, ONE, period=0.01)
    posted.wait_for(ProcessesRead, lambda fact: pods(fact)[ONE].leaves == ())
    with running(tmp_path, "app") as app:
        tree.place(tree.container(ONE, APP), [app.pid])
        posted.wait_for(ProcessesRead, lambda fact: pids(fact, ONE) == [app.pid])


def test_a_look_that_is_wanted_after_a_moment_is_made(
    tree: CgroupTree, posted: Posted, source: KernelSource
) -> None:
    del tree
    ask(source, ONE)
    first = posted.wait_for(ProcessesRead)
    assert isinstance(first.result, Seen)
    after = Clock().now()
    source.ask(frozenset({Question(Topic.PROCESSES, ONE, period=600, after=after)}))
    posted.wait_for(
        ProcessesRead,
        lambda fact: isinstance(fact.result, Seen) and not fact.result.at.is_before(after),
    )


def test_where_a_process_cannot_be_watched_its_end_is_found_all_the_same(
    tree: CgroupTree, posted: Posted, source: KernelSource
) -> None:
    # 0 is how a process of another PID namespace is listed: there is no pidfd for it.
    tree.place(tree.container(ONE, APP), [0])
    ask(source, ONE)
    posted.wait_for(ProcessesRead, lambda fact: pids(fact, ONE) == [0])
    tree.place(tree.container(ONE, APP), [])
    posted.wait_for(ProcessesRead, lambda fact: pids(fact, ONE) == [])


def test_what_is_asked_no_more_is_told_no_more(
    tree: CgroupTree, posted: Posted, source: KernelSource, tmp_path: Path
) -> None:
    with running(tmp_path, "app") as app, running(tmp_path, "other") as other:
        tree.place(tree.container(ONE, APP), [app.pid])
        tree.place(tree.container(TWO, APP), [other.pid])
        ask(source, ONE, TWO)
        posted.wait_for(ProcessesRead)
        ask(source, TWO, period=0.01)
        posted.wait_for(ProcessesRead, lambda fact: set(pods(fact)) == {TWO})


def test_a_tree_that_cannot_be_read_is_unknown_and_comes_back(
    tree: CgroupTree, posted: Posted, source: KernelSource
) -> None:
    away = tree.root.rename(tree.root.with_name("away"))
    ask(source, ONE, period=0.01)
    fact = posted.wait_for(ProcessesRead)
    assert isinstance(fact.result, Unknown)
    assert "No such file" in fact.result.why
    away.rename(tree.root)
    posted.wait_for(ProcessesRead, lambda fact: isinstance(fact.result, Seen))


def test_deaths_without_end_cost_a_few_looks_a_second() -> None:
    allowance = Allowance()
    now = Instant(boot_id="b", seconds=100.0)
    assert [allowance.take(now) for _ in range(LOOK_BURST)] == [0.0] * LOOK_BURST
    pause = allowance.take(now)
    assert pause == pytest.approx(1 / LOOKS_PER_SECOND)
    assert allowance.take(now.plus(pause)) == 0.0
    assert allowance.take(now.plus(pause)) > 0.0
    later = now.plus(3600)
    assert [allowance.take(later) for _ in range(LOOK_BURST)] == [0.0] * LOOK_BURST
    assert allowance.take(later) > 0.0
