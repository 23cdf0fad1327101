from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpointd.clients import kubelet_process, proc
from checkpointd.errors import SourceError
from checkpointd.model.observation import KubeletProcess
from tests.fakes.proc_tree import ProcTree
from tests.fakes.processes import running

POD = "0f3a1b2c-1111-2222-3333-444455556666"
IN_POD = f"0::/kubepods/burstable/pod{POD}/{'c' * 64}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ProcTree]:
    with ProcTree(tmp_path / "proc") as made:
        yield made


@contextmanager
def kubelet(
    directory: Path, *flags: str, name: str = "kubelet", called: str = ""
) -> Generator[int]:
    """Run a process that is called like a kubelet, with its flags, in ``directory``."""
    arguments = ("-c", "import time; time.sleep(600)", *flags)
    with running(directory, name, *arguments, program=sys.executable, called=called) as process:
        yield process.pid


def read(tree: ProcTree, pid: int) -> KubeletProcess:
    procfs = proc.Procfs(tree.root)
    process = procfs.read_process(pid)
    assert process is not None
    return kubelet_process.read_kubelet(procfs, process, "boot-1")


def test_the_start_is_in_time_since_boot(tree: ProcTree, tmp_path: Path) -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with kubelet(tmp_path) as pid:
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        tree.add(pid)
        process = proc.Procfs(tree.root).read_process(pid)
        assert process is not None
        started = process.started("boot-1")
    assert started.boot_id == "boot-1"
    assert before - 0.02 <= started.seconds <= after


def test_a_dead_or_unreaped_process_is_no_process(tmp_path: Path) -> None:
    del tmp_path
    procfs = proc.Procfs(Path("/proc"))
    with subprocess.Popen(["/bin/true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.read_process(process.pid) is None
    assert procfs.read_process(process.pid) is None


def test_a_process_whose_name_has_spaces_and_parentheses_is_read(tmp_path: Path) -> None:
    with kubelet(tmp_path, name="a) R 1 (b") as pid:
        process = proc.Procfs(Path("/proc")).read_process(pid)
    assert process is not None
    assert process.start_ticks > 0


def test_a_kubelet_is_found_by_the_name_of_its_program(tree: ProcTree, tmp_path: Path) -> None:
    with kubelet(tmp_path) as pid:
        tree.add(os.getpid())
        tree.add(pid)
        found = proc.Procfs(tree.root).find_kubelet()
    assert found is not None
    assert found.pid == pid


def test_a_kubelet_is_found_by_its_command_line(tree: ProcTree, tmp_path: Path) -> None:
    with kubelet(tmp_path, name="other", called="/usr/bin/kubelet") as pid:
        tree.add(pid)
        found = proc.Procfs(tree.root).find_kubelet()
    assert found is not None


def test_the_oldest_of_several_kubelets_is_taken(tree: ProcTree, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with kubelet(tmp_path / "one") as old, kubelet(tmp_path / "two") as new:
        tree.add(old)
        tree.add(new)
        found = proc.Procfs(tree.root).find_kubelet()
    assert found is not None
    assert found.pid in (old, new)


def test_a_process_in_a_pod_that_calls_itself_kubelet_is_none(
    tree: ProcTree, tmp_path: Path
) -> None:
    with kubelet(tmp_path) as pid:
        tree.add(pid, cgroup=IN_POD)
        assert proc.Procfs(tree.root).find_kubelet() is None


def test_a_kubelet_inside_another_program_is_not_found_and_harms_nothing(
    tree: ProcTree, tmp_path: Path
) -> None:
    with kubelet(tmp_path, name="k3s", called="k3s server") as pid:
        tree.add(pid)
        assert proc.Procfs(tree.root).find_kubelet() is None


def test_no_process_at_all_is_certainly_no_kubelet(tree: ProcTree) -> None:
    assert proc.Procfs(tree.root).find_kubelet() is None
    assert proc.Procfs(tree.root).find_runtime() is None


def test_a_procfs_that_cannot_be_read_is_unknown(tree: ProcTree, tmp_path: Path) -> None:
    del tree  # gives psutil its own place back
    with pytest.raises(SourceError):
        proc.Procfs(tmp_path / "nowhere").find_kubelet()


@pytest.mark.parametrize("name", ["containerd", "crio", "dockerd", "cri-dockerd"])
def test_a_runtime_is_found(tree: ProcTree, tmp_path: Path, name: str) -> None:
    with kubelet(tmp_path, name=name) as pid:
        tree.add(pid)
        found = proc.Procfs(tree.root).find_runtime()
    assert found is not None


def test_a_shim_without_its_runtime_counts(tree: ProcTree, tmp_path: Path) -> None:
    with kubelet(tmp_path, name="containerd-shim-runc-v2") as pid:
        tree.add(pid)
        assert proc.Procfs(tree.root).find_runtime() is not None


def test_the_command_line_of_nobody_is_unknown() -> None:
    procfs = proc.Procfs(Path("/proc"))
    with subprocess.Popen(["/bin/true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(SourceError):
            procfs.read_arguments(process.pid)
    with pytest.raises(SourceError):
        procfs.read_arguments(process.pid)


def test_flags_are_read_in_both_spellings_and_the_last_wins() -> None:
    flags = kubelet_process.parse_flags((
        "/usr/bin/kubelet", "--v=2", "--root-dir", "/one", "--root-dir=/two", "--register-node",
        "--pod_manifest_path=/m", "--read-only-port", "0", "--config",
    ))  # fmt: skip
    assert flags == {
        "root-dir": "/two",
        "pod-manifest-path": "/m",
        "read-only-port": "0",
        "config": "",
    }


def test_a_kubelet_without_configuration_file_has_the_old_defaults(
    tree: ProcTree, tmp_path: Path
) -> None:
    with kubelet(tmp_path, "--kubeconfig=k.conf", "--hostname-override=Node-A") as pid:
        tree.add(pid)
        found = read(tree, pid)
    assert (found.read_only_port, found.port, found.healthz_port) == (10255, 10250, 10248)
    assert (found.root_dir, found.manifest_dir) == ("/var/lib/kubelet", "")
    assert found.kubeconfig == str(tmp_path / "k.conf")
    assert found.node_name == "node-a"
    assert found.cri_socket.endswith(".sock")


CONFIG_YAML = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: manifests
readOnlyPort: 10999
address: 192.0.2.10
cgroupRoot: /one
containerRuntimeEndpoint: unix:///run/crio/crio.sock
clusterDNS: ["10.96.0.10"]
"""


def test_a_pipe_in_the_place_of_the_configuration_file_is_not_waited_for(
    tree: ProcTree, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "config.yaml")
    with kubelet(tmp_path, "--config", "config.yaml") as pid:
        tree.add(pid)
        with pytest.raises(SourceError, match="not a file"):
            read(tree, pid)


def test_a_configuration_file_in_yaml_is_read(tree: ProcTree, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG_YAML, encoding="utf-8")
    with kubelet(tmp_path, "--config", "config.yaml", "--address=0.0.0.0") as pid:
        tree.add(pid)
        found = read(tree, pid)
    assert found.manifest_dir == str(tmp_path / "manifests")
    assert found.read_only_port == 10999
    assert found.address == "0.0.0.0"
    assert found.cgroup_root == "/one"
    assert found.cri_socket == "/run/crio/crio.sock"


def test_a_kubelet_with_configuration_file_has_no_read_only_port(
    tree: ProcTree, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"healthzPort": 0, "port": 10251}', encoding="utf-8")
    with kubelet(tmp_path, f"--config={tmp_path}/config.json") as pid:
        tree.add(pid)
        found = read(tree, pid)
    assert (found.read_only_port, found.port, found.healthz_port) == (0, 10251, 0)


def test_drop_ins_go_over_the_configuration_file(tree: ProcTree, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"port": 1, "readOnlyPort": 2}', encoding="utf-8")
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "20.conf").write_text("port: 4", encoding="utf-8")
    (tmp_path / "conf.d" / "10.conf").write_text("port: 3", encoding="utf-8")
    with kubelet(tmp_path, "--config=config.json", "--config-dir=conf.d") as pid:
        tree.add(pid)
        found = read(tree, pid)
    assert (found.port, found.read_only_port) == (4, 2)


@pytest.mark.parametrize(
    "content",
    [
        b'{"port": "a"}',
        b"[1",
        b"a: [",
        b"- 1",
        b'{"staticPodPath": 1}',
        b"\xff",
        b"port: 70000",
    ],
)
def test_a_configuration_file_that_is_none_is_unknown_and_is_not_quoted(
    tree: ProcTree, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "config").write_bytes(content)
    with kubelet(tmp_path, "--config=config") as pid:
        tree.add(pid)
        with pytest.raises(SourceError):
            read(tree, pid)


def test_a_configuration_file_that_is_missing_is_unknown(tree: ProcTree, tmp_path: Path) -> None:
    with kubelet(tmp_path, "--config=/nowhere/config.yaml") as pid:
        tree.add(pid)
        with pytest.raises(SourceError, match=r"/nowhere/config\.yaml"):
            read(tree, pid)


@contextmanager
def listening(directory: Path, family: socket.AddressFamily) -> Generator[tuple[int, int]]:
    """Run a process that listens on a port; yield its PID and the port."""
    with socket.socket(family) as listener:
        listener.bind(("::1" if family is socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen()
        port: int = listener.getsockname()[1]
        with running(directory, "server", pass_fds=[listener.fileno()]) as process:
            yield process.pid, port


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_pod_that_owns_a_listening_socket_is_found(
    tree: ProcTree, tmp_path: Path, family: socket.AddressFamily
) -> None:
    if family is socket.AF_INET6 and not Path("/proc/net/tcp6").exists():
        family = socket.AF_INET
    with listening(tmp_path, family) as (pid, port):
        tree.add(pid, cgroup=IN_POD)
        tree.add(os.getpid())
        assert proc.Procfs(tree.root).find_listeners(port) == frozenset({POD})


def test_a_listener_that_is_no_pods_is_nobodys(tree: ProcTree, tmp_path: Path) -> None:
    with listening(tmp_path, socket.AF_INET) as (pid, port):
        tree.add(pid)
        assert proc.Procfs(tree.root).find_listeners(port) == frozenset()


def test_without_a_table_of_sockets_the_listener_is_unknown(tree: ProcTree) -> None:
    (tree.root / "net" / "tcp").unlink()
    assert proc.Procfs(tree.root).find_listeners(6443) is None


def test_descriptors_that_may_not_be_read_make_the_listener_unknown(
    tree: ProcTree, tmp_path: Path
) -> None:
    with listening(tmp_path, socket.AF_INET) as (pid, port):
        tree.add(pid, cgroup=IN_POD)
        # A file in the directory's place is an error to root too, as a forbidden one is to others.
        (tree.root / str(pid) / "fd").unlink()
        (tree.root / str(pid) / "fd").write_text("", encoding="ascii")
        assert proc.Procfs(tree.root).find_listeners(port) is None
