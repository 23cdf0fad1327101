from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from checkpointd.clients import notify
from tests.fakes.notify_socket import NotifySocket

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@pytest.fixture(autouse=True)
def environment_restored() -> Iterator[None]:
    before = dict(os.environ)
    yield
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update({name: before[name] for name in VARIABLES if name in before})


@contextmanager
def notifier(socket: NotifySocket, **variables: str) -> Generator[notify.Notifier]:
    os.environ.update({"NOTIFY_SOCKET": socket.address, **variables})
    made = notify.take_notifier()
    yield made
    made.close()


@pytest.mark.parametrize("abstract", [False, True])
def test_h5_ready_comes_from_this_process_itself(tmp_path: Path, *, abstract: bool) -> None:
    address = f"@checkpointd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with NotifySocket(address) as socket, notifier(socket) as sender:
        sender.ready("2 checkpoints stored")
        notice = socket.receive()
    assert notice.variables == {"READY": "1", "STATUS": "2 checkpoints stored"}
    assert notice.pid == os.getpid()


def test_h4_no_child_inherits_the_variables(tmp_path: Path) -> None:
    with NotifySocket(str(tmp_path / "notify")) as socket:
        with notifier(socket, WATCHDOG_USEC="2000000", WATCHDOG_PID=str(os.getpid())):
            shown = subprocess.run(
                [sys.executable, "-c", "import os; print(*os.environ)"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
    assert not set(VARIABLES) & set(shown.split())


def test_h4_a_watchdog_for_another_process_is_not_ours(tmp_path: Path) -> None:
    with NotifySocket(str(tmp_path / "notify")) as socket:
        with notifier(socket, WATCHDOG_USEC="2000000", WATCHDOG_PID="1") as sender:
            sender.ping()
            assert sender.ping_seconds is None
            assert socket.is_empty()
    assert "WATCHDOG_PID" not in os.environ


@pytest.mark.parametrize(
    ("microseconds", "seconds"),
    [("500000", 0.25), ("30000000", 15.0), ("0", None), ("", None), ("soon", None), ("-1", None)],
)
def test_h6_the_ping_is_due_twice_in_the_time_that_systemd_waits(
    tmp_path: Path, microseconds: str, seconds: float | None
) -> None:
    with NotifySocket(str(tmp_path / "notify")) as socket:
        with notifier(socket, WATCHDOG_USEC=microseconds) as sender:
            assert sender.ping_seconds == seconds
            sender.ping()
            if seconds is None:
                assert socket.is_empty()
            else:
                assert socket.receive().variables == {"WATCHDOG": "1"}


def test_a_reload_tells_when_it_began(tmp_path: Path) -> None:
    with NotifySocket(str(tmp_path / "notify")) as socket, notifier(socket) as sender:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        sender.reloading()
        variables = socket.receive().variables
    assert variables["RELOADING"] == "1"
    assert before <= int(variables["MONOTONIC_USEC"])
    assert int(variables["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def test_a_status_cannot_say_more_than_a_status(tmp_path: Path) -> None:
    with NotifySocket(str(tmp_path / "notify")) as socket, notifier(socket) as sender:
        sender.status("pod ä\nMAINPID=1")
        assert socket.receive().variables == {"STATUS": "pod ä MAINPID=1"}
        sender.stopping("the end")
        assert socket.receive().variables == {"STOPPING": "1", "STATUS": "the end"}


def test_without_a_socket_nothing_happens() -> None:
    os.environ.pop("NOTIFY_SOCKET", None)
    os.environ["WATCHDOG_USEC"] = "2000000"
    sender = notify.take_notifier()
    sender.ready("x")
    sender.ping()
    sender.close()
