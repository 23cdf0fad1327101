"""The store's disk is full or read-only, or two daemons want it: it is said, and heals by itself.

The store is a small file system of its own (tmpfs), so that it can be filled to the last byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import daemon, measure, objects, standalone, webs
from tests.e2e.node.standalone import Standalone
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

KEPT, OTHER, LATE = "kept", "other", "late"
SMALL = "size=16m,mode=0700"
FILLER = f"{daemon.STORE}/filler"


@pytest.fixture(scope="module")
def node(make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory) -> Standalone:
    """The node, with two pods stored on a small disk."""
    machine = make_shared_machine("small", "10.99.0.1/24")
    machine.sh(f"mkdir -p {daemon.STORE} && mount -t tmpfs -o {SMALL} store {daemon.STORE}")
    made = standalone.make_standalone(
        machine, tmp_path_factory.mktemp("small") / "pki", {"retire-store": '"10m"'}
    )
    webs.create(made, KEPT, 8080)
    webs.create(made, OTHER, 8081, host_network=True)
    for name in (KEPT, OTHER):
        wait_for(f"{name} is stored", partial(webs.is_stored, made, name), 60)
    return made


@pytest.fixture(autouse=True)
def mended_disk(node: Standalone) -> Iterator[None]:
    """Leave the disk to the next test as it was."""
    yield
    remount(node, "rw")
    node.machine.path(FILLER).unlink(missing_ok=True)


def test_d11_on_a_full_disk_a_new_pod_is_not_stored_and_nothing_else_suffers(
    node: Standalone,
) -> None:
    before = (node.main_pid, parents(node), {n: webs.generations(node, n) for n in (KEPT, OTHER)})
    fill(node)
    webs.create(node, LATE, 8082)
    node.wait_for_alarm("the disk of the store", "is full", "df")
    node.wait_for_alarm("ds.late", "the disk is full", "free 4 MiB")
    after = (node.main_pid, parents(node), {n: webs.generations(node, n) for n in (KEPT, OTHER)})
    assert after == before

    node.machine.path(FILLER).unlink()
    wait_for("the new pod is stored", lambda: webs.is_stored(node, LATE), 60)
    node.wait_until_well()
    assert node.main_pid == before[0]
    assert node.machine.path(f"{daemon.STORE}/reserve").stat().st_size == 1 << 20


def test_d11_on_a_full_disk_a_copy_is_activated_and_handed_back_all_the_same(
    node: Standalone,
) -> None:
    pid = node.main_pid
    fill(node)
    webs.delete_pods(node, (KEPT, OTHER))
    node.stop_api()
    for name in (KEPT, OTHER):
        wait_for(f"{name}'s copy serves", partial(webs.is_serving, node, name), 60)
    node.wait_for_alarm("the disk of the store", "is full", "df")
    node.start_api()
    node.start_controllers()
    for name in (KEPT, OTHER):
        wait_for(f"{name} is handed back", partial(webs.is_stored, node, name), 90)
    assert node.main_pid == pid

    node.machine.path(FILLER).unlink()
    node.wait_until_well()
    assert node.main_pid == pid


def test_a_read_only_store_is_named_and_what_was_due_is_done_once_it_can_be(
    node: Standalone,
) -> None:
    pid, stored = node.main_pid, {n: webs.generations(node, n) for n in (KEPT, OTHER)}
    remount(node, "ro")
    node.wait_for_alarm("read-only file system", "mount -o remount,rw")
    node.stop_controllers()
    webs.remove_pods(node, (KEPT,))
    node.stop_api()
    node.wait_for_alarm("ds.kept", "Read-only file system", "dmesg")
    assert node.daemon.copies() == []
    assert {n: webs.generations(node, n) for n in (KEPT, OTHER)} == stored

    remount(node, "rw")
    wait_for("the copy serves", lambda: webs.is_serving(node, KEPT), 60)
    node.start_api()
    node.start_controllers()
    wait_for("it is handed back", lambda: webs.is_stored(node, KEPT), 90)
    node.wait_until_well()
    assert node.main_pid == pid


def test_a_daemon_that_starts_on_a_read_only_store_says_why_not_until_it_can(
    node: Standalone,
) -> None:
    copies = parents(node)
    remount(node, "ro")
    node.machine.sh("systemctl restart checkpointd", check=False)
    wait_for("the journal says why", lambda: "then remount it" in node.journal(), 10)
    assert "THE DAEMON IS NOT RUNNING" in node.machine.sh("checkpointd status", check=False)
    remount(node, "rw")
    wait_for("it runs again", lambda: is_active(node), 15)
    node.wait_until_well()
    assert webs.is_stored(node, KEPT)
    assert parents(node) == copies


@pytest.mark.parametrize("config", ["", "--config /root/other.toml"])
def test_a_second_daemon_says_who_holds_the_store_and_touches_nothing(
    node: Standalone, config: str
) -> None:
    node.machine.write("/root/other.toml", '[log]\nlevel = "debug"\n[selection]\nnamespaces = []\n')
    before = (node.main_pid, parents(node), content(node))
    said = node.machine.sh(f"checkpointd {config} run; echo exit $?")
    assert said.endswith("exit 75\n")
    assert f"held by process {before[0]}: stop that one first" in said
    assert "Traceback" not in said
    assert (node.main_pid, parents(node), content(node)) == before
    assert node.alarms() == []


# ---- the disk ------------------------------------------------------------------------------------
def fill(node: Standalone) -> None:
    """Write zeros to the store's disk until not one byte more fits."""
    with node.machine.path(FILLER).open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    room = os.statvfs(node.machine.path(daemon.STORE))
    assert room.f_bavail == 0


def is_active(node: Standalone) -> bool:
    """Say whether the daemon is up."""
    return node.machine.unit_property("checkpointd", "ActiveState") == "active"


def remount(node: Standalone, mode: str) -> None:
    """Make the store's disk read-only or writable."""
    node.machine.sh(f"mount -o remount,{mode} {daemon.STORE}")


def content(node: Standalone) -> dict[str, bytes]:
    """Return all files of the checkpoints."""
    top = node.machine.path(daemon.CHECKPOINTS)
    return {str(path.relative_to(top)): path.read_bytes() for path in files(top)}


def files(top: Path) -> list[Path]:
    """Return all regular files below a directory."""
    return [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]


def parents(node: Standalone) -> list[list[int]]:
    """Return the processes of the two pods that were there from the start."""
    uids = [objects.text(webs.state(node, name), "parent", "uid") for name in (KEPT, OTHER)]
    return [measure.processes_of(node.machine, uid, "httpd") for uid in uids]
