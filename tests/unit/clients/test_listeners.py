"""Whose sockets listen is remembered as long as they are where they were found."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpointd.clients.listeners import Listeners
from checkpointd.clients.proc import Procfs
from tests.fakes.proc_tree import ProcTree
from tests.unit.clients.test_proc import IN_POD, POD

OTHER_POD = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def tree(tmp_path: Path) -> Generator[ProcTree]:
    with ProcTree(tmp_path / "proc") as tree:
        yield tree


@contextmanager
def listener() -> Generator[tuple[socket.socket, int]]:
    """Listen on a port."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        opened.listen()
        yield opened, opened.getsockname()[1]


class Counting(Procfs):
    """Count the searches through all processes."""

    searches = 0

    def list_pids(self) -> tuple[int, ...]:
        self.searches += 1
        return super().list_pids()


def test_a_socket_that_is_where_it_was_is_not_looked_for_again(tree: ProcTree) -> None:
    tree.add(os.getpid(), cgroup=IN_POD)
    with listener() as (_opened, port):
        procfs = Counting(tree.root)
        listeners = Listeners(procfs)
        assert [listeners.find(port) for _ in range(3)] == [frozenset({POD})] * 3
        assert procfs.searches == 1


def test_a_host_s_socket_is_looked_for_once_too(tree: ProcTree) -> None:
    tree.add(os.getpid())
    with listener() as (_opened, port):
        procfs = Counting(tree.root)
        listeners = Listeners(procfs)
        assert [listeners.find(port) for _ in range(3)] == [frozenset()] * 3
        assert procfs.searches == 2


def test_another_socket_on_the_port_is_looked_for(tree: ProcTree) -> None:
    tree.add(os.getpid(), cgroup=IN_POD)
    listeners = Listeners(Procfs(tree.root))
    with listener() as (opened, port):
        assert listeners.find(port) == frozenset({POD})
        opened.close()
        assert listeners.find(port) == frozenset()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
            again.listen()
            assert listeners.find(port) == frozenset({POD})


def test_a_holder_that_went_is_looked_for(tree: ProcTree) -> None:
    tree.add(os.getpid(), cgroup=IN_POD)
    listeners = Listeners(Procfs(tree.root))
    with listener() as (opened, port):
        assert listeners.find(port) == frozenset({POD})
        # The same socket as another descriptor.
        other = os.dup(opened.fileno())
        opened.close()
        assert listeners.find(port) == frozenset({POD})
        os.close(other)


def test_a_holder_that_is_another_pod_s_now_is_looked_for(tree: ProcTree) -> None:
    tree.add(os.getpid(), cgroup=IN_POD)
    listeners = Listeners(Procfs(tree.root))
    with listener() as (_opened, port):
        assert listeners.find(port) == frozenset({POD})
        tree.remove(os.getpid())
        tree.add(os.getpid(), cgroup=IN_POD.replace(POD, OTHER_POD))
        assert listeners.find(port) == frozenset({OTHER_POD})


def test_what_cannot_be_read_is_not_remembered(tree: ProcTree) -> None:
    tree.add(os.getpid(), cgroup=IN_POD)
    descriptors = tree.root / str(os.getpid()) / "fd"
    real = descriptors.readlink()
    listeners = Listeners(Procfs(tree.root))
    with listener() as (_opened, port):
        descriptors.unlink()
        descriptors.write_text("", encoding="ascii")
        assert listeners.find(port) is None
        descriptors.unlink()
        descriptors.symlink_to(real)
        assert listeners.find(port) == frozenset({POD})
