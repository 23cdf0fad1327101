"""What holds for every container runtime: run on the fake, and on a real one where one is named.

    CHECKPOINTD_TEST_CRI=/run/containerd/containerd.sock pytest tests/contract/test_runtime.py

The real one is only read; a pod or two on it make the tests worth more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import unix_grpc
from checkpointd.clients.cri import api
from checkpointd.clients.cri.client import CriClient
from checkpointd.errors import RejectedError, SilentError
from tests.fakes.runtime import FakeContainer, FakeImage, FakeRuntime, FakeSandbox

REAL = os.environ.get("CHECKPOINTD_TEST_CRI", "")
SUBJECTS = ["fake with v1", "fake with v1alpha2", "fake with both", *(["real"] if REAL else [])]
VERSIONS = {
    "fake with v1": (api.V1,),
    "fake with v1alpha2": (api.V1ALPHA2,),
    "fake with both": (api.V1, api.V1ALPHA2),
}


@pytest.fixture(params=SUBJECTS)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CriClient]:
    subject = str(request.param)
    if subject == "real":
        yield CriClient(REAL)
        return
    fake = FakeRuntime(tmp_path / "cri.sock", VERSIONS[subject], events=True)
    fake.images["i"] = FakeImage(id="sha256:1", tags=("registry.example/app:1",))
    for uid in ("u1", "u2"):
        fake.add_sandbox(FakeSandbox(id=f"s-{uid}", namespace="n", name=f"p-{uid}", uid=uid))
        fake.add_container(FakeContainer(id=f"c-{uid}", sandbox_id=f"s-{uid}", name="app"))
    with fake:
        yield CriClient(str(fake.socket))


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
