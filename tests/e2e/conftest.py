"""Machines that are gone after each test, what a failed test leaves behind, the table of times."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.e2e.node import report
from tests.e2e.node.machine import Cache, Machine, remove_leftovers
from tests.e2e.node.report import Times

ARTIFACTS = Path(__file__).parent / ".artifacts"
UNITS = ("checkpointd", "kubelet", "containerd", "kube-apiserver")
FAILED = pytest.StashKey[bool]()


class MakeMachine(Protocol):
    """Lay the disk of a machine with that name and address and switch it on."""

    def __call__(self, name: str, address: str, shows: tuple[Path, ...] = ()) -> Machine: ...


@pytest.fixture(autouse=True)
def no_process_left_behind() -> None:
    """Replace the guard of all other tests: make_machine ends its machines, or keeps them."""


@pytest.fixture(scope="session")
def cache() -> Cache:
    """What tests/e2e/setup built."""
    if os.geteuid() != 0:
        pytest.skip("the real node needs root")
    found = Cache.find()
    remove_leftovers(found)
    return found


@pytest.fixture
def make_machine(request: pytest.FixtureRequest, cache: Cache) -> Iterator[MakeMachine]:
    """Make machines that are switched off and removed when the test ends, however it ends."""
    with closing_machines(
        request.node.name, cache, lambda: request.node.stash.get(FAILED, True)
    ) as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_machine(request: pytest.FixtureRequest, cache: Cache) -> Iterator[MakeMachine]:
    """Make machines that all tests of a module use in turn: each leaves them as it found them."""
    failed = request.session.testsfailed
    name = request.node.name.removesuffix(".py").rpartition("/")[2]
    with closing_machines(name, cache, lambda: request.session.testsfailed > failed) as make:
        yield make


@contextlib.contextmanager
def closing_machines(
    name: str, cache: Cache, has_failed: Callable[[], bool]
) -> Generator[MakeMachine]:
    """Close all machines that were made, whatever happens; keep what they say of a failure."""
    machines: list[Machine] = []

    def make(name: str, address: str, shows: tuple[Path, ...] = ()) -> Machine:
        machine = Machine(name, address, cache, keep=bool(os.environ.get("KEEP")), shows=shows)
        machines.append(machine)
        machine.boot()
        return machine

    has_raised = True
    try:
        yield make
        has_raised = False
    finally:
        try:
            if has_raised or has_failed():
                save_artifacts(name, machines)
        finally:
            for machine in machines:
                machine.close()


@pytest.fixture
def times(request: pytest.FixtureRequest) -> Times:
    """Collect the measured times of the test."""
    return Times(request.node.user_properties)


def save_artifacts(test: str, machines: list[Machine]) -> None:
    """Keep the journals and the daemon's own view of a failed test; print the journals' ends."""
    directory = ARTIFACTS / test
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for machine in machines:
        if machine.is_running:
            status = machine.sh("checkpointd status --json", check=False)
            (directory / f"{machine.name}.status.json").write_text(status)
            machine.sh("journalctl --sync", check=False)
        machine.save_journal(directory, UNITS)
    for log in sorted(directory.glob("*.checkpointd.log")):
        print(f"--- {log.name}", *log.read_text().splitlines()[-40:], sep="\n")
    print(f"journals: {directory}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test failed, for its fixtures' ends."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measured times of all processes that ran tests."""
    reports = (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed"))
    lines = report.table(each for found in reports for each in found.user_properties)
    if lines:
        terminalreporter.section("times on a real node")
        for line in lines:
            terminalreporter.write_line(line)
