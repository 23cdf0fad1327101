"""Sockets and cables between the network namespaces of machines; the host's own is left alone."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.e2e.node.waiting import wait_for

T = TypeVar("T")
CLONE_NEWNET = 0x40000000  # linux/sched.h
_libc = ctypes.CDLL(None, use_errno=True)


def enter_network(pid: int) -> None:
    """Move the calling thread into the network namespace of process `pid`, for good."""
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to the network of process {pid}")
    finally:
        os.close(descriptor)


def connect(pid: int, address: tuple[str, int], timeout: float) -> socket.socket:
    """Return a TCP connection made from the network namespace of process `pid`.

    Raises OSError as socket.create_connection does.
    """
    return make_inside(pid, lambda: socket.create_connection(address, timeout))


def listen(pid: int, address: tuple[str, int]) -> socket.socket:
    """Return a TCP socket that listens in the network namespace of process `pid`."""
    return make_inside(pid, lambda: socket.create_server(address))


def make_inside(pid: int, make: Callable[[], T]) -> T:
    """Make something, as a socket, in the network namespace of process `pid`; it stays there.

    Namespaces belong to threads, so a thread of its own makes it.
    """
    result: list[T | OSError] = []

    def in_namespace() -> None:
        try:
            enter_network(pid)
            result.append(make())
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=in_namespace, name="socket", daemon=True)
    thread.start()
    thread.join()
    outcome = result[0]
    if isinstance(outcome, OSError):
        raise outcome
    return outcome


class Cable:
    """A network cable between the bridges `lan0` of two machines; pulled until it is plugged.

    A power cut at either end pulls it too.
    """

    def __init__(self, left: Path, right: Path) -> None:
        """Remember the two machines by the files that hold their leaders' process ids."""
        self._ends = (left, right)

    def plug(self) -> None:
        """Connect the two bridges; both machines must be running.

        The kernel takes a cable away some time after the machine at its other end went down.
        """
        left, right = (end.read_text().strip() for end in self._ends)
        for pid in (left, right):
            wait_for("the old cable is away", partial(remove_link, pid, "cable"), 10)
        ip("link", "add", "cable", "netns", left, "type", "veth",
           "peer", "name", "cable", "netns", right)  # fmt: skip
        for pid in (left, right):
            for setting in (("master", "lan0"), ("up",)):
                in_network(pid, "ip", "link", "set", "cable", *setting)

    def pull(self) -> None:
        """Take the cable away; no packet passes from now on. The left machine must be running."""
        in_network(self._ends[0].read_text().strip(), "ip", "link", "del", "cable")


def ip(*arguments: str) -> None:
    """Run ip(8) on the host; used only for links whose two ends lie in machines."""
    subprocess.run(["ip", *arguments], check=True)


def has_link(pid: str, name: str) -> bool:
    """Say whether the network namespace of process `pid` has such a link."""
    return any(found == name for _, found in make_inside(int(pid), socket.if_nameindex))


def remove_link(pid: str, name: str) -> bool:
    """Remove a link from the network namespace of process `pid`; say whether it is gone."""
    if has_link(pid, name):
        command = ["nsenter", "-t", pid, "-n", "ip", "link", "del", name]
        subprocess.run(command, check=False)  # it may go by itself right now
    return not has_link(pid, name)


def in_network(pid: str, *command: str) -> None:
    """Run a command of the host in the network namespace of process `pid`."""
    subprocess.run(["nsenter", "-t", pid, "-n", *command], check=True)
