from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpointd.clients import proc
from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import KubeletProcess, MachineRead, RouteRead
from checkpointd.observe.machine import Machine, MachineSource
from tests.fakes.posted import Posted
from tests.fakes.proc_tree import ProcTree
from tests.fakes.processes import running


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ProcTree]:
    with ProcTree(tmp_path / "proc") as made:
        yield made


@pytest.fixture
def posted() -> Posted:
    return Posted()


@pytest.fixture
def source(tree: ProcTree, posted: Posted) -> Iterator[MachineSource]:
    made = MachineSource(posted.post, Clock(), proc.Procfs(tree.root))
    made.start()
    yield made
    made.stop(10)
    made.close()


@contextmanager
def kubelet(directory: Path, *flags: str) -> Generator[int]:
    arguments = ("-c", "import time; time.sleep(600)", *flags)
    with running(directory, "kubelet", *arguments, program=sys.executable) as process:
        yield process.pid


def ask(source: MachineSource, period: float = 600) -> None:
    topics = (Topic.MACHINE, Topic.ROUTE)
    source.ask(frozenset(Question(topic, period=period) for topic in topics))


def found(fact: MachineRead) -> KubeletProcess | None:
    assert isinstance(fact.result, Seen)
    return fact.result.value.kubelet


def test_no_kubelet_and_no_runtime_is_an_answer(posted: Posted, source: MachineSource) -> None:
    ask(source)
    fact = posted.wait_for(MachineRead)
    assert isinstance(fact.result, Seen)
    assert fact.result.value.kubelet is None
    assert not fact.result.value.runtime_present


def test_the_kubelet_and_a_runtime_are_told(
    tree: ProcTree, posted: Posted, source: MachineSource, tmp_path: Path
) -> None:
    flags = ("--pod-manifest-path=/m", "--read-only-port=0")
    with kubelet(tmp_path, *flags) as pid, running(tmp_path, "containerd") as runtime:
        tree.add(pid)
        tree.add(runtime.pid)
        ask(source)
        fact = posted.wait_for(MachineRead)
    told = found(fact)
    assert told is not None
    assert (told.pid, told.manifest_dir, told.read_only_port) == (pid, "/m", 0)
    assert told.started.boot_id == Clock().boot_id
    assert isinstance(fact.result, Seen)
    assert fact.result.value.runtime_present


def test_the_kubelets_death_is_told_before_its_time(
    tree: ProcTree, posted: Posted, source: MachineSource, tmp_path: Path
) -> None:
    with kubelet(tmp_path) as pid:
        tree.add(pid)
        ask(source)
        posted.wait_for(MachineRead, lambda fact: found(fact) is not None)
    # Whether it is read once more as a zombie or not at all, it is gone.
    posted.wait_for(MachineRead, lambda fact: found(fact) is None)


def test_a_configuration_that_cannot_be_read_is_unknown(
    tree: ProcTree, posted: Posted, source: MachineSource, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    with kubelet(tmp_path, f"--config={config}") as pid:
        tree.add(pid)
        ask(source, period=0.01)
        fact = posted.wait_for(MachineRead)
        assert isinstance(fact.result, Unknown)
        config.write_text("{}", encoding="ascii")
        posted.wait_for(MachineRead, lambda fact: isinstance(fact.result, Seen))


def test_a_known_kubelet_is_not_searched_for_and_its_configuration_read_once(
    tree: ProcTree, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"port": 7}', encoding="ascii")
    machine = Machine(proc.Procfs(tree.root), "boot-1")
    with kubelet(tmp_path, f"--config={config}") as pid, running(tmp_path, "crio") as runtime:
        tree.add(pid)
        tree.add(runtime.pid)
        first = machine.read()
        config.unlink()
        # A procfs that lists nothing: whoever searches finds nobody.
        for left in (pid, runtime.pid):
            (tree.root / str(left) / "comm").unlink()
            (tree.root / str(left) / "cmdline").unlink()
        assert machine.read() == first
    assert machine.read().kubelet is None


def test_the_way_out_is_told(tree: ProcTree, posted: Posted, source: MachineSource) -> None:
    ask(source, period=0.01)
    posted.wait_for(RouteRead, lambda fact: isinstance(fact.result, Seen) and fact.result.value)
    tree.set_default_route(exists=False)
    posted.wait_for(RouteRead, lambda fact: isinstance(fact.result, Seen) and not fact.result.value)
    (tree.root / "net" / "route").unlink()
    posted.wait_for(RouteRead, lambda fact: isinstance(fact.result, Unknown))
