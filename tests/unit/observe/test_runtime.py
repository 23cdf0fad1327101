from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpointd.clients.cri import api
from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import (
    ContainerState,
    Fact,
    ImagesRead,
    Runtime,
    RuntimeRead,
)
from checkpointd.observe.runtime import RuntimeSource
from checkpointd.observe.source import Mailbox
from tests.fakes.runtime import FakeContainer, FakeImage, FakeRuntime, FakeSandbox

DEADLINE = 20.0


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    fake = FakeRuntime(tmp_path / "cri.sock", events=True)
    with fake:
        yield fake


def source_of(runtime: FakeRuntime, post: Callable[[Fact], None], timeout: float) -> RuntimeSource:
    return RuntimeSource(post, Clock(), lambda: str(runtime.socket), timeout=timeout)


def look(
    runtime: FakeRuntime, *topics: Topic, timeout: float = 10.0
) -> list[RuntimeRead | ImagesRead]:
    """Do one round of a fresh source and return the facts."""
    facts: list[Fact] = []
    source = source_of(runtime, facts.append, timeout)
    source.ask(frozenset(Question(topic, period=30.0) for topic in topics or (Topic.RUNTIME,)))
    source.step()
    return [fact for fact in facts if isinstance(fact, RuntimeRead | ImagesRead)]


def seen_in(fact: Fact) -> Runtime:
    assert isinstance(fact, RuntimeRead)
    assert isinstance(fact.result, Seen), fact.result
    return fact.result.value


def test_the_whole_picture_is_posted(runtime: FakeRuntime) -> None:
    runtime.add_sandbox(FakeSandbox(id="s", namespace="n", name="p", uid="u"))
    runtime.add_container(FakeContainer(id="c", sandbox_id="s", name="app"))

    (fact,) = look(runtime)

    picture = seen_in(fact)
    assert [sandbox.uid for sandbox in picture.sandboxes] == ["u"]
    assert [container.state for container in picture.containers] == [ContainerState.RUNNING]


def test_images_are_posted_when_asked_for(runtime: FakeRuntime) -> None:
    runtime.images["i"] = FakeImage(id="i", tags=("app:1",))

    (fact,) = look(runtime, Topic.IMAGES)

    assert isinstance(fact, ImagesRead)
    assert isinstance(fact.result, Seen)
    assert fact.result.value == {"i", "app:1"}


def test_a13_sandbox_and_containers_are_told_apart_after_a_reboot(runtime: FakeRuntime) -> None:
    runtime.add_sandbox(FakeSandbox(id="s1", namespace="n", name="p", uid="u", ready=False))
    runtime.add_sandbox(FakeSandbox(id="s2", namespace="n", name="p", uid="u2", attempt=1))
    runtime.add_container(
        FakeContainer(id="c1", sandbox_id="s1", name="app", state=api.CONTAINER_EXITED)
    )
    runtime.add_container(FakeContainer(id="c2", sandbox_id="s1", name="app", attempt=1))

    picture = seen_in(look(runtime)[0])

    assert [(s.uid, s.ready, s.attempt) for s in picture.sandboxes] == [
        ("u", False, 0),
        ("u2", True, 1),
    ]
    assert [(c.sandbox_id, c.state.value, c.attempt) for c in picture.containers] == [
        ("s1", "exited", 0),
        ("s1", "running", 1),
    ]


@pytest.mark.parametrize("fault", ["down", "hang", "garbage", "no socket", "no CRI"])
def test_a3_a_runtime_that_gives_no_answer_is_unknown_and_not_empty(
    tmp_path: Path, fault: str
) -> None:
    runtime = FakeRuntime(tmp_path / "cri.sock", () if fault == "no CRI" else (api.V1,))
    if fault == "hang":
        runtime.faults.hang()
    if fault == "garbage":
        runtime.faults.garble("ListContainers")
    if fault not in {"down", "no socket"}:
        runtime.start()
    facts: list[Fact] = []
    socket = "" if fault == "no socket" else str(runtime.socket)
    source = RuntimeSource(facts.append, Clock(), lambda: socket, timeout=0.1)
    source.ask(frozenset({Question(Topic.RUNTIME, period=1.0)}))

    wait = source.step()
    runtime.stop()

    (fact,) = facts
    assert isinstance(fact, RuntimeRead)
    assert isinstance(fact.result, Unknown)
    assert wait > 0


def test_a3_images_that_hang_leave_the_runtime_seen(runtime: FakeRuntime) -> None:
    runtime.faults.hang("ListImages")

    picture, images = look(runtime, Topic.RUNTIME, Topic.IMAGES, timeout=0.1)

    assert isinstance(picture.result, Seen)
    assert isinstance(images.result, Unknown)


def test_a13_a_socket_that_appears_long_after_the_start_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "checkpointd")
    runtime = FakeRuntime(tmp_path / "cri.sock")
    mailbox = Mailbox()
    source = source_of(runtime, mailbox.post, timeout=5.0)
    source.ask(frozenset({Question(Topic.RUNTIME, period=0.01)}))
    source.start()
    try:
        (first, *_more) = mailbox.drain(DEADLINE)
        assert isinstance(first, RuntimeRead)
        assert isinstance(first.result, Unknown)
        with runtime:
            wait_for(mailbox, lambda fact: isinstance(fact.result, Seen))
        wait_for(mailbox, lambda fact: isinstance(fact.result, Unknown))
    finally:
        source.stop()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[1].strip() for line in lines] == [
        "unknown",
        "containerd 1.6.20 answers, CRI runtime.v1",
        "unknown",
    ]


def test_the_socket_may_change(tmp_path: Path) -> None:
    one, two = (FakeRuntime(tmp_path / name) for name in ("1.sock", "2.sock"))
    two.version = "2.0.0"
    sockets = [str(one.socket), str(two.socket)]
    facts: list[Fact] = []
    source = RuntimeSource(facts.append, Clock(), lambda: sockets.pop(0))
    with one, two:
        source.ask(frozenset({Question(Topic.RUNTIME, period=0.0)}))
        source.step()
        source.step()

    assert [seen_in(fact).version for fact in facts] == ["containerd 1.6.20", "containerd 2.0.0"]


def test_an_event_causes_a_look_long_before_the_next_is_due(runtime: FakeRuntime) -> None:
    runtime.add_sandbox(FakeSandbox(id="s", namespace="n", name="p", uid="u"))
    runtime.add_container(FakeContainer(id="c", sandbox_id="s", name="app"))
    mailbox = Mailbox()
    source = source_of(runtime, mailbox.post, timeout=5.0)
    source.ask(frozenset({Question(Topic.RUNTIME, period=3600.0)}))
    source.start()
    try:
        assert mailbox.drain(DEADLINE)
        for _try in range(2000):
            if runtime.listeners:
                break
            mailbox.drain(0.01)
        runtime.set_state("c", api.CONTAINER_EXITED)

        wait_for(mailbox, has_exited)
    finally:
        source.stop()
    assert not {"runtime", "runtime-events"} & {thread.name for thread in threading.enumerate()}


def has_exited(fact: RuntimeRead) -> bool:
    return isinstance(fact.result, Seen) and any(
        container.state is ContainerState.EXITED for container in fact.result.value.containers
    )


def wait_for(mailbox: Mailbox, is_wanted: Callable[[RuntimeRead], bool]) -> None:
    """Take facts until one is as wanted; the next may take DEADLINE seconds each."""
    for _round in range(1000):
        facts = mailbox.drain(DEADLINE)
        assert facts, "nothing came in time"
        if any(isinstance(fact, RuntimeRead) and is_wanted(fact) for fact in facts):
            return
    pytest.fail("what was wanted did not come")
