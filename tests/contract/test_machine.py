"""What holds for every machine: run on the fakes, and on a real node where one is told.

    CHECKPOINTD_TEST_MACHINE=1 pytest tests/contract/test_machine.py

A real one has systemd as PID 1, a kubelet, a runtime and a pod or two, and is only read (as root).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpointd.clients import cgroups, kubelet_process, network, pid1, proc
from checkpointd.clock import Clock
from checkpointd.settings import Paths
from tests.fakes.cgroup_tree import CgroupTree
from tests.fakes.manager import FakeManager
from tests.fakes.proc_tree import ProcTree
from tests.fakes.processes import running

REAL = os.environ.get("CHECKPOINTD_TEST_MACHINE", "")
UID = "0f3a1b2c-1111-2222-3333-444455556666"
SUBJECTS = ["fake with cgroup v1", "fake with cgroup v2", *(["real"] if REAL else [])]


@dataclass(frozen=True, slots=True)
class Machine:
    """Say where things are on one machine."""

    paths: Paths
    cgroup_root: str

    @property
    def procfs(self) -> proc.Procfs:
        return proc.Procfs(self.paths.proc)

    @property
    def tree(self) -> cgroups.Cgroups:
        return cgroups.Cgroups(self.paths.cgroup, self.procfs, lambda: self.cgroup_root)


def fake_machine(directory: Path, tree: CgroupTree, stack: ExitStack) -> Machine:
    """Make a machine with PID 1, a kubelet, a runtime, and a pod of sandbox and container."""
    procfs = stack.enter_context(ProcTree(directory / "proc"))
    stack.enter_context(FakeManager(directory / "private"))
    kubelet = ("-c", "import time; time.sleep(600)", "--pod-manifest-path=/m", "--cgroup-root=/n")
    started = {
        "systemd": running(directory, "systemd"),
        "containerd": running(directory, "containerd"),
        "kubelet": running(directory, "kubelet", *kubelet, program=sys.executable),
        "pause": running(directory, "pause"),
        "app": running(directory, "app"),
    }
    pids = {name: stack.enter_context(process).pid for name, process in started.items()}
    for name in ("containerd", "kubelet"):
        procfs.add(pids[name])
    procfs.add(pids["systemd"], seen_as=1)
    for name, container in (("pause", "a" * 64), ("app", "b" * 64)):
        path = tree.container(UID, container)
        tree.place(path, [pids[name]])
        procfs.add(pids[name], cgroup=tree.membership(path))
    paths = Paths(
        proc=procfs.root, cgroup=tree.root, manager_socket=directory / "private", run=directory
    )
    return Machine(paths, tree.cgroup_root)


def real_machine() -> Machine:
    """Take this one; the kubelet says where its cgroups are."""
    procfs = proc.Procfs(Path("/proc"))
    process = procfs.find_kubelet()
    assert process is not None
    kubelet = kubelet_process.read_kubelet(procfs, process, Clock().boot_id)
    return Machine(Paths(), kubelet.cgroup_root)


@pytest.fixture(params=SUBJECTS)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    if request.param == "real":
        yield real_machine()
        return
    v1 = ("systemd", "pids", "memory") if "v1" in str(request.param) else ()
    tree = CgroupTree(
        root=tmp_path / "cgroup", controllers=v1, driver="systemd", cgroup_root="/n"
    ).make()
    with ExitStack() as stack:
        yield fake_machine(tmp_path, tree, stack)


def test_whoever_is_in_a_pods_cgroup_is_found_under_its_uid(machine: Machine) -> None:
    procfs, tree = machine.procfs, machine.tree
    pods = {pid: uid for pid in procfs.list_pids() if (uid := procfs.read_pod(pid)) is not None}
    assert pods
    for pid, uid in pods.items():
        found = {left for leaf in tree.read_pod(uid).leaves for left in leaf.pids}
        # Real pods come and go between the two looks.
        assert pid in found or procfs.read_process(pid) is None


def test_each_pod_has_a_sandbox_with_one_pause_and_containers_with_ids(machine: Machine) -> None:
    procfs, tree = machine.procfs, machine.tree
    uids = {uid for pid in procfs.list_pids() if (uid := procfs.read_pod(pid)) is not None}
    for uid in uids:
        leaves = tree.read_pod(uid).leaves
        assert [leaf.only_pause for leaf in leaves].count(True) == 1
        assert all(len(leaf.id) == 64 for leaf in leaves)


def test_a_uid_that_nobody_has_has_no_leaves(machine: Machine) -> None:
    assert machine.tree.read_pod("ffffffff-0000-0000-0000-000000000000").leaves == ()


def test_the_kubelet_says_how_it_is_set_up(machine: Machine) -> None:
    clock = Clock()
    process = machine.procfs.find_kubelet()
    assert process is not None
    kubelet = kubelet_process.read_kubelet(machine.procfs, process, clock.boot_id)
    assert kubelet.manifest_dir.startswith("/")
    assert kubelet.root_dir.startswith("/")
    assert kubelet.cri_socket.startswith("/")
    assert kubelet.node_name
    assert 0 < kubelet.started.seconds <= clock.now().seconds


def test_a_runtime_runs(machine: Machine) -> None:
    assert machine.procfs.find_runtime() is not None


def test_pid_1_is_systemd_and_says_its_state_again_and_again(machine: Machine) -> None:
    assert machine.procfs.is_systemd()
    for _ in range(20):
        state = pid1.read_system_state(machine.paths.manager_socket, 5)
        assert state in {"starting", "running", "degraded"}


def test_there_is_an_answer_on_the_default_route(machine: Machine) -> None:
    assert network.has_default_route(machine.paths.proc) in {True, False}


def test_nobody_listens_on_port_zero(machine: Machine) -> None:
    assert machine.procfs.find_listeners(0) == frozenset()
