"""What holds for every container runtime: what it lists, and what stopping does.

What is only looked at is tried on small fakes of each version of the CRI too.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import unix_grpc
from checkpointd.clients.cri import api
from checkpointd.clients.cri.client import CriClient
from checkpointd.errors import RejectedError, SilentError
from checkpointd.model.observation import Container, ContainerState
from tests.contract import subject as subjects
from tests.contract.subject import Subject, uid_of
from tests.fakes.api_objects import Object
from tests.fakes.runtime import FakeContainer, FakeImage, FakeRuntime, FakeSandbox
from tests.fakes.waiting import NotYetError, wait_for

VERSIONS = {
    "fake with v1": (api.V1,),
    "fake with v1alpha2": (api.V1ALPHA2,),
    "fake with both": (api.V1, api.V1ALPHA2),
}
SUBJECTS = ("node",) if subjects.ADMIN else ("node", *VERSIONS)
RUNNING, EXITED = ContainerState.RUNNING, ContainerState.EXITED


@pytest.fixture(params=SUBJECTS)
def client(
    request: pytest.FixtureRequest, tmp_path: Path, node: Subject, app: Object
) -> Iterator[CriClient]:
    which = str(request.param)
    if which == "node":
        assert app
        with node.runtime() as found:
            yield found
        return
    fake = FakeRuntime(tmp_path / "cri.sock", VERSIONS[which], events=True)
    fake.images["i"] = FakeImage(id="sha256:1", tags=("registry.example/app:1",))
    for uid in ("u1", "u2"):
        fake.add_sandbox(FakeSandbox(id=f"s-{uid}", namespace="n", name=f"p-{uid}", uid=uid))
        fake.add_container(FakeContainer(id=f"c-{uid}", sandbox_id=f"s-{uid}", name="app"))
    with fake:
        yield CriClient(str(fake.socket))


# ---- what it lists ------------------------------------------------------------------------------
def test_it_says_who_it_is_and_what_it_speaks(client: CriClient) -> None:
    version = client.version()

    assert version.api in {api.V1, api.V1ALPHA2}
    assert version.name
    assert version.version


def test_every_container_names_its_pod_and_its_sandbox(client: CriClient) -> None:
    picture = client.read()
    sandboxes = {sandbox.id: sandbox for sandbox in picture.sandboxes}

    for container in picture.containers:
        assert container.name
        assert container.created_ns > 0
        assert container.uid == sandboxes[container.sandbox_id].uid


def test_every_sandbox_names_its_pod(client: CriClient) -> None:
    for sandbox in client.list_sandboxes():
        assert all((sandbox.id, sandbox.namespace, sandbox.name, sandbox.uid))
        assert sandbox.created_ns > 0


def test_two_looks_at_the_same_are_the_same(client: CriClient) -> None:
    assert client.list_sandboxes() == client.list_sandboxes()


def test_the_lists_of_one_pod_are_the_parts_of_the_whole_that_are_its(client: CriClient) -> None:
    picture = client.read()
    for uid in {sandbox.uid for sandbox in picture.sandboxes}:
        assert client.list_sandboxes(uid) == tuple(s for s in picture.sandboxes if s.uid == uid)
        assert client.list_containers(uid) == tuple(c for c in picture.containers if c.uid == uid)


def test_a_pod_that_never_was_has_nothing(client: CriClient) -> None:
    assert client.list_sandboxes("no-such-uid") == ()
    assert client.list_containers("no-such-uid") == ()


def test_images_have_names(client: CriClient) -> None:
    assert all(client.list_images())


def test_stopping_what_never_was_is_no_error(client: CriClient) -> None:
    client.stop_container("0" * 64, 0)
    client.stop_sandbox("0" * 64)


def test_events_are_streamed_or_unimplemented(client: CriClient) -> None:
    with client.container_events(timeout=0.2) as stream:
        with pytest.raises((SilentError, RejectedError)) as raised:
            for _event in stream:
                pass

    if isinstance(raised.value, RejectedError):
        assert raised.value.status == unix_grpc.UNIMPLEMENTED


def test_a_pods_sandbox_and_containers_are_named_by_the_kubelet(
    subject: Subject, app: Object
) -> None:
    (sandbox,) = subject.sandboxes(uid_of(app))
    assert (sandbox.namespace, sandbox.name) == ("kube-system", app["metadata"]["name"])
    assert (sandbox.attempt, sandbox.ready, sandbox.config_source) == (0, True, "api")
    assert sandbox.checkpoint_of == ""
    found = {one.name: one for one in subject.containers(uid_of(app))}
    assert {name: one.state for name, one in found.items()} == {
        "init": EXITED, "app": RUNNING, "other": RUNNING,
    }  # fmt: skip
    assert all((one.sandbox_id, one.attempt) == (sandbox.id, 0) for one in found.values())
    assert found["init"].created_ns < found["app"].created_ns < time.time_ns()


def test_the_image_of_a_container_is_the_one_that_the_api_tells_and_the_runtime_lists(
    subject: Subject, app: Object
) -> None:
    (status, _) = app["status"]["containerStatuses"]
    found = {one.id: one for one in subject.containers(uid_of(app))}
    container = found[status["containerID"].removeprefix("containerd://")]
    with subject.runtime() as client:
        images = client.list_images()
    assert container.image == container.image_ref == status["imageID"]
    assert {status["image"], container.image_ref} <= images


def test_the_sandbox_of_a_static_pod_says_what_it_is(subject: Subject, static: Object) -> None:
    (sandbox,) = subject.sandboxes(static["metadata"]["uid"])
    assert sandbox.name == f"{static['metadata']['name']}-{subject.node_name}"
    assert sandbox.config_source == "file"


# ---- what happens to it -------------------------------------------------------------------------
def test_a_container_that_dies_is_exited_and_another_runs_in_the_same_sandbox(
    subject: Subject,
) -> None:
    made = subject.run(subject.pod())
    uid = uid_of(made)
    (before,) = subject.containers(uid)
    os.kill(min(subject.leaves(uid)[before.id]), signal.SIGKILL)
    after = wait_for("another runs", lambda: running(subject, uid, attempt=1))
    assert after.sandbox_id == before.sandbox_id
    assert state_of(subject, uid, before) in (EXITED, None)
    status = wait_for("the API knows", lambda: status_of(subject, made, restarts=1))
    ended = status["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "Error")
    assert ended["containerID"] == f"containerd://{before.id}"


def test_a_sandbox_that_dies_takes_its_containers_along_and_another_comes(
    subject: Subject,
) -> None:
    uid = uid_of(subject.run(subject.pod()))
    (sandbox,), (before,) = subject.sandboxes(uid), subject.containers(uid)
    (pause,) = subject.leaves(uid)[sandbox.id]
    os.kill(pause, signal.SIGKILL)
    wait_for("it is not ready", lambda: not ready(subject, uid, sandbox.id))
    after = wait_for("a container runs", lambda: running(subject, uid, attempt=1))
    assert after.sandbox_id != sandbox.id
    assert subject.sandboxes(uid)[0].attempt == 1
    assert state_of(subject, uid, before) in (EXITED, None)


def test_stopping_ends_an_obedient_container_before_its_grace_is_over(subject: Subject) -> None:
    made = subject.run(subject.pod())
    began = time.monotonic()
    ended = stop(subject, made, grace=30)
    assert time.monotonic() - began < 30
    assert ended["exitCode"] == 0
    assert ended["reason"] == "Completed"


@pytest.mark.parametrize("grace", [0, 1])
def test_stopping_kills_a_stubborn_container_after_its_grace(subject: Subject, grace: int) -> None:
    made = subject.run(subject.pod(subject.container("stubborn")))
    began = time.monotonic()
    assert stop(subject, made, grace=grace)["exitCode"] == 137
    assert time.monotonic() - began >= grace


def test_stopping_a_sandbox_kills_all_in_it_and_may_be_repeated(subject: Subject) -> None:
    uid = uid_of(subject.run(subject.pod(subject.container("stubborn"))))
    (sandbox,), (container,) = subject.sandboxes(uid), subject.containers(uid)
    with subject.runtime() as client:
        client.stop_sandbox(sandbox.id)
        assert not ready(subject, uid, sandbox.id)
        assert state_of(subject, uid, container) in (EXITED, None)
        assert container.id not in subject.leaves(uid)
        client.stop_sandbox(sandbox.id)
        client.stop_container(container.id, 0)


def test_a_container_is_seen_created_before_it_runs_and_never_twice(subject: Subject) -> None:
    pod = subject.pod()
    seen: list[tuple[str, str]] = []
    done = threading.Event()

    def look() -> None:
        with subject.runtime() as client:
            while not done.is_set():
                found = client.list_containers(str(made[0]["metadata"]["uid"]))
                seen.extend((one.id, one.state.value) for one in found)
                done.wait(0.001)

    pod["spec"]["nodeName"] = subject.node_name
    made = [subject.make(subjects.PODS, pod)]
    looking = threading.Thread(target=look)
    looking.start()
    try:
        subject.wait_until_ready(pod["metadata"]["name"])
    finally:
        done.set()
        looking.join()
    assert list(dict.fromkeys(state for _, state in seen)) in (
        ["created", "running"], ["running"],
    )  # fmt: skip
    assert len({identity for identity, _ in seen}) == 1


def stop(subject: Subject, made: Object, grace: int) -> Object:
    """Stop a pod's container through the CRI; return how the API says that it ended."""
    uid = uid_of(made)
    (container,) = subject.containers(uid)
    with subject.runtime() as client:
        client.stop_container(container.id, grace)
    assert state_of(subject, uid, container) in (EXITED, None)
    assert not subject.leaves(uid).get(container.id)

    def how() -> Object:
        found = subject.find_pod(made["metadata"]["name"])
        (status,) = (found or made)["status"]["containerStatuses"]
        for ended in (status["state"], status["lastState"]):
            if ended.get("terminated", {}).get("containerID", "").endswith(container.id):
                return dict(ended["terminated"])
        raise NotYetError(str(status))

    return wait_for("the API says how it ended", how)


def running(subject: Subject, uid: str, attempt: int) -> Container | None:
    """Return the container of an attempt, if it runs."""
    found = subject.containers(uid)
    return next((one for one in found if (one.attempt, one.state) == (attempt, RUNNING)), None)


def state_of(subject: Subject, uid: str, container: Container) -> ContainerState | None:
    """Return the state of a container, None where the kubelet has removed it since."""
    return next((one.state for one in subject.containers(uid) if one.id == container.id), None)


def ready(subject: Subject, uid: str, sandbox: str) -> bool:
    """Tell whether a sandbox is ready."""
    return any(one.ready for one in subject.sandboxes(uid) if one.id == sandbox)


def status_of(subject: Subject, made: Object, restarts: int) -> Object | None:
    """Return the status of a pod's container once it was restarted so often and runs."""
    found = subject.find_pod(made["metadata"]["name"])
    (status,) = (found or made)["status"]["containerStatuses"]
    return status if status["restartCount"] == restarts and "running" in status["state"] else None
