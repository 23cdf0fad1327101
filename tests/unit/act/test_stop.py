"""Stopping a copy through the runtime: by UID alone, once at a time, never waited for."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from checkpointd.act.stop import StopClient, StopCopies
from checkpointd.errors import SilentError, SourceError
from checkpointd.model.observation import Container, ContainerState, Sandbox
from tests.fakes.waiting import wait_for

DEADLINE = 10.0


def sandbox(name: str, uid: str, *, ready: bool = True) -> Sandbox:
    return Sandbox(
        id=name,
        namespace="kube-system",
        name="api",
        uid=uid,
        attempt=0,
        ready=ready,
        created_ns=0,
        config_source="file",
        checkpoint_of="api",
    )


def container(name: str, uid: str, state: ContainerState = ContainerState.RUNNING) -> Container:
    return Container(
        id=name,
        sandbox_id="s",
        uid=uid,
        name=name,
        attempt=0,
        state=state,
        created_ns=0,
        image="",
        image_ref="",
    )


class Runtime:
    """A runtime that notes what it is told; ``gate`` holds StopContainer back."""

    def __init__(self, *things: Sandbox | Container, broken: frozenset[str] = frozenset()) -> None:
        self.things = things
        self.broken = broken
        self.calls: list[tuple[str, str, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)

    def list_sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        self._fail("list")
        return [thing for thing in self.things if isinstance(thing, Sandbox)]

    def list_containers(self, uid: str = "") -> Sequence[Container]:
        self._fail("list")
        return [thing for thing in self.things if isinstance(thing, Container)]

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        self.entered.release()
        self.gate.wait(DEADLINE)
        self.calls.append(("container", container_id, grace_seconds))
        self._fail("container")

    def stop_sandbox(self, sandbox_id: str) -> None:
        self.calls.append(("sandbox", sandbox_id, 0))
        self._fail("sandbox")

    def _fail(self, what: str) -> None:
        if what in self.broken:
            raise SilentError(f"{what}: deadline exceeded")


def stopper(client: StopClient | None, woken: threading.Event | None = None) -> StopCopies:
    return StopCopies(lambda: client, (woken or threading.Event()).set)


def test_rule_9_containers_get_their_grace_then_the_sandbox_goes() -> None:
    runtime = Runtime(sandbox("s1", "copy"), container("c1", "copy"))
    woken = threading.Event()
    stops = stopper(runtime, woken)
    assert stops.request("copy", 30) == ""
    assert stops.wait("copy", DEADLINE)
    assert runtime.calls == [("container", "c1", 30), ("sandbox", "s1", 0)]
    assert woken.is_set()


def test_another_pod_is_never_stopped_whatever_the_runtime_lists() -> None:
    runtime = Runtime(
        sandbox("s1", "parent"),
        container("c1", "parent"),
        sandbox("s2", "copy"),
        sandbox("s3", "copy", ready=False),
        container("c2", "copy", ContainerState.EXITED),
    )
    stops = stopper(runtime)
    stops.request("copy", 1)
    assert stops.wait("copy", DEADLINE)
    assert runtime.calls == [("sandbox", "s2", 0)]


def test_containers_of_a_pod_are_stopped_side_by_side() -> None:
    runtime = Runtime(container("c1", "copy"), container("c2", "copy"), sandbox("s", "copy"))
    runtime.gate.clear()
    stops = stopper(runtime)
    stops.request("copy", 30)
    assert runtime.entered.acquire(timeout=DEADLINE)
    assert runtime.entered.acquire(timeout=DEADLINE)
    runtime.gate.set()
    assert stops.wait("copy", DEADLINE)
    assert sorted(name for _kind, name, _grace in runtime.calls) == ["c1", "c2", "s"]


def test_requests_for_a_copy_that_is_being_stopped_are_one() -> None:
    runtime = Runtime(container("c1", "copy"), sandbox("s", "copy"))
    runtime.gate.clear()
    stops = stopper(runtime)
    for _again in range(5):
        assert stops.request("copy", 30) == ""
    assert not stops.wait("copy", 0.0)
    runtime.gate.set()
    assert stops.wait("copy", DEADLINE)
    assert len(runtime.calls) == 2


def test_two_copies_are_stopped_without_waiting_for_each_other() -> None:
    runtime = Runtime(container("c1", "slow"), sandbox("s", "quick"))
    runtime.gate.clear()
    stops = stopper(runtime)
    stops.request("slow", 30)
    stops.request("quick", 30)
    assert stops.wait("quick", DEADLINE)
    assert runtime.calls == [("sandbox", "s", 0)]
    runtime.gate.set()
    assert stops.wait("slow", DEADLINE)


def test_a_container_that_does_not_stop_goes_with_its_sandbox() -> None:
    runtime = Runtime(
        container("c1", "copy"), sandbox("s", "copy"), broken=frozenset({"container"})
    )
    stops = stopper(runtime)
    stops.request("copy", 0)
    assert stops.wait("copy", DEADLINE)
    assert runtime.calls[-1] == ("sandbox", "s", 0)
    assert stops.request("copy", 0) == ""
    assert stops.wait("copy", DEADLINE)


@pytest.mark.parametrize("what", ["list", "sandbox"])
def test_a_failure_is_told_at_the_next_request_and_tried_again(what: str) -> None:
    runtime = Runtime(sandbox("s", "copy"), broken=frozenset({what}))
    woken = threading.Event()
    stops = stopper(runtime, woken)
    stops.request("copy", 0)
    assert stops.wait("copy", DEADLINE)
    assert not woken.is_set()
    runtime.broken = frozenset()
    assert stops.request("copy", 0) == f"{what}: deadline exceeded"
    assert stops.wait("copy", DEADLINE)
    assert woken.is_set()


def test_without_access_to_the_runtime_that_is_said() -> None:
    stops = stopper(None)
    stops.request("copy", 0)
    assert stops.wait("copy", DEADLINE)
    assert stops.request("copy", 0) == "no access to the container runtime"
    assert stops.wait("copy", DEADLINE)


def test_no_uid_stops_nothing() -> None:
    runtime = Runtime(sandbox("s", ""))
    assert stopper(runtime).request("", 0) != ""
    assert runtime.calls == []
    assert issubclass(SilentError, SourceError)


@pytest.mark.parametrize("grace", [2**63 - 1, 10**10, -(2**63)])
def test_a_grace_that_no_timeout_can_hold_stops_the_copy_all_the_same(grace: int) -> None:
    runtime = Runtime(sandbox("s1", "copy"), container("c1", "copy"))
    stops = stopper(runtime)
    stops.request("copy", grace)
    assert stops.wait("copy", DEADLINE)
    assert stops.request("copy", grace) == ""
    assert ("sandbox", "s1", 0) in runtime.calls
    assert all(0 <= seconds <= 30 * 86400 for _what, _name, seconds in runtime.calls)


def test_a_runtime_that_still_shows_what_it_stopped_is_not_asked_without_pause() -> None:
    runtime = Runtime(sandbox("s1", "copy"), container("c1", "copy"))
    stops = stopper(runtime)
    for _ in range(100):
        # As a cycle does that is woken by each stop.
        assert stops.request("copy", 0) == ""
        assert stops.wait("copy", DEADLINE)
    assert 2 <= len(runtime.calls) < 20
    wait_for("it is stopped again", lambda: stops.request("copy", 0) or len(runtime.calls) > 2)
