"""What holds for every machine: its processes, cgroups and ports, PID 1 and logind.

What is only looked at is tried on small fakes with both layouts of cgroups too.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from checkpointd.clients import cgroups, kubelet_process, logind, network, pid1, proc
from checkpointd.clock import Clock
from checkpointd.settings import Paths
from tests.contract import subject as subjects
from tests.contract.subject import Subject, uid_of
from tests.fakes.api_objects import Object
from tests.fakes.cgroup_tree import CgroupTree
from tests.fakes.manager import FakeManager
from tests.fakes.proc_tree import ProcTree
from tests.fakes.processes import running
from tests.fakes.waiting import wait_for

PREPARING = ("/org/freedesktop/login1", "PreparingForShutdown")
UID = "0f3a1b2c-1111-2222-3333-444455556666"
FAKES = ("fake with cgroup v1", "fake with cgroup v2")
SUBJECTS = ("node",) if subjects.ADMIN else ("node", *FAKES)


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
    for name in ("systemd", "dbus"):
        (directory / "run" / name).mkdir(parents=True)
    manager = stack.enter_context(FakeManager(directory / "run" / "systemd" / "private"))
    manager.properties["/unit/kubelet_2eservice", "ActiveState"] = "active"
    manager.properties["/unit/kubelet_2eservice", "After"] = ("basic.target", "system.slice")
    manager.properties["/unit/no_2dsuch_2eservice", "LoadState"] = "not-found"
    bus = FakeManager(directory / "run" / "dbus" / "system_bus_socket", is_bus=True)
    stack.enter_context(bus).properties[PREPARING] = False
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
    socket = directory / "run" / "systemd" / "private"
    paths = Paths(proc=procfs.root, cgroup=tree.root, manager_socket=socket, run=directory)
    return Machine(paths, tree.cgroup_root)


@pytest.fixture(params=SUBJECTS)
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, subject: Subject, app: Object
) -> Iterator[Machine]:
    if request.param == "node":
        assert app
        yield Machine(subject.paths, subject.kubelet.cgroup_root)
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


def test_pid_1_tells_of_its_units(machine: Machine) -> None:
    if not (machine.paths.manager_socket.parents[1] / "dbus").exists():
        pytest.skip("the embedded node's PID 1 has no units")

    def ask(unit: str, name: str) -> pid1.Value:
        wanted = pid1.of_unit(unit, "Unit", name)
        return pid1.read_property(machine.paths.manager_socket, 5, wanted)

    assert ask("kubelet.service", "ActiveState") == "active"
    after = ask("kubelet.service", "After")
    assert isinstance(after, tuple)
    assert {"basic.target", "system.slice"} <= set(after)
    assert ask("no-such.service", "LoadState") == "not-found"


def test_logind_prepares_no_shutdown(machine: Machine) -> None:
    bus = machine.paths.manager_socket.parents[1] / "dbus" / "system_bus_socket"
    if not bus.exists():
        pytest.skip("the embedded node has no bus")
    assert not logind.is_going_down(bus, 5)


def test_a_process_is_the_same_for_as_long_as_it_lives(machine: Machine) -> None:
    procfs = machine.procfs
    process = procfs.find_kubelet()
    assert process is not None
    assert procfs.read_process(process.pid) == process
    assert procfs.read_process(2**22 + 1) is None
    assert procfs.read_pod(process.pid) is None


# ---- a whole node -------------------------------------------------------------------------------
def test_what_the_kubelet_says_of_its_places_is_there(subject: Subject) -> None:
    kubelet = subject.kubelet
    assert Path(kubelet.manifest_dir).is_dir()
    assert Path(kubelet.root_dir, "pods").is_dir()
    assert Path(kubelet.cri_socket).is_socket()
    assert Path(kubelet.kubeconfig).is_file()
    assert subject.api.find(f"/api/v1/nodes/{kubelet.node_name}") is not None


def test_the_pod_that_listens_on_a_port_of_the_host_is_found(subject: Subject) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        assert subject.procfs.find_listeners(port) == frozenset()
    container = {"name": "web", **subject.control.web(port)}
    made = subject.run(subject.pod(container, hostNetwork=True))
    mine = frozenset({uid_of(made)})
    wait_for("it listens", lambda: subject.procfs.find_listeners(port) == mine)


def test_the_addresses_of_the_host_are_its_own(subject: Subject) -> None:
    addresses = network.read_own_addresses(subject.paths.proc)
    node = subject.api.do("GET", f"/api/v1/nodes/{subject.node_name}")
    told = {
        one["address"] for one in node["status"].get("addresses", []) if one["type"] == "InternalIP"
    }
    assert told <= addresses
    assert network.has_default_route(subject.paths.proc)
