from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import pidfd
from tests.fakes.processes import running


@pytest.fixture
def deaths() -> Iterator[pidfd.Deaths]:
    made = pidfd.Deaths()
    yield made
    made.close()


def test_a_death_is_told_once(tmp_path: Path, deaths: pidfd.Deaths) -> None:
    with running(tmp_path, "one") as one, running(tmp_path, "two") as two:
        assert deaths.watch(frozenset({one.pid, two.pid})) == frozenset()
        one.kill()
        assert deaths.wait(10) == frozenset({one.pid})
        assert deaths.wait(0) == frozenset()
        two.kill()
        assert deaths.wait(10) == frozenset({two.pid})


def test_who_is_dead_already_is_told_when_asked_for(tmp_path: Path, deaths: pidfd.Deaths) -> None:
    with running(tmp_path, "one") as one:
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert deaths.watch(frozenset({one.pid})) == frozenset({one.pid})
    assert deaths.watch(frozenset({one.pid})) == frozenset({one.pid})
    assert deaths.is_complete


def test_who_is_watched_no_more_is_not_told(tmp_path: Path, deaths: pidfd.Deaths) -> None:
    with running(tmp_path, "one") as one, running(tmp_path, "two") as two:
        deaths.watch(frozenset({one.pid}))
        deaths.watch(frozenset({two.pid}))
        one.kill()
        one.wait()
        two.kill()
        assert deaths.wait(10) == frozenset({two.pid})


def test_a_wake_ends_the_wait(deaths: pidfd.Deaths) -> None:
    waker = threading.Thread(target=deaths.wake)
    waker.start()
    assert deaths.wait(60) == frozenset()
    waker.join()


def test_a_pid_that_cannot_be_watched_leaves_the_watch_incomplete(deaths: pidfd.Deaths) -> None:
    # EINVAL: stands for a kernel without pidfds, and for want of descriptors.
    assert deaths.watch(frozenset({-1})) == frozenset()
    assert not deaths.is_complete
    assert deaths.watch(frozenset()) == frozenset()
    assert deaths.is_complete


def test_a_wake_after_the_end_is_harmless() -> None:
    made = pidfd.Deaths()
    made.close()
    made.wake()
