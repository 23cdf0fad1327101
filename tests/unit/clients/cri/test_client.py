from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import unix_grpc
from checkpointd.clients.cri import api
from checkpointd.clients.cri.client import CriClient
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError
from checkpointd.model.observation import Container, ContainerState, Sandbox
from tests.fakes.grpc_server import StatusCode
from tests.fakes.runtime import FakeContainer, FakeImage, FakeRuntime, FakeSandbox


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[FakeRuntime]:
    fake = FakeRuntime(tmp_path / "cri.sock", events=True)
    with fake:
        yield fake


def add_pod(runtime: FakeRuntime, uid: str, **annotations: str) -> None:
    """Add a pod of one sandbox ``s-<uid>`` and one running container ``c-<uid>``."""
    runtime.add_sandbox(
        FakeSandbox(
            id=f"s-{uid}",
            namespace="kube-system",
            name=f"pod-{uid}",
            uid=uid,
            annotations={key.replace("__", "."): value for key, value in annotations.items()},
        )
    )
    runtime.add_container(FakeContainer(id=f"c-{uid}", sandbox_id=f"s-{uid}", name="app"))


def connect(runtime: FakeRuntime, timeout: float = 10.0) -> CriClient:
    return CriClient(f"unix://{runtime.socket}", timeout=timeout, stop_extra=timeout)


# ---- what is read -------------------------------------------------------------------------------
def test_sandboxes_and_containers_are_read_with_what_the_kubelet_wrote_on_them(
    runtime: FakeRuntime,
) -> None:
    runtime.add_sandbox(
        FakeSandbox(
            id="s1",
            namespace="kube-system",
            name="api-node1",
            uid="u1",
            attempt=2,
            ready=False,
            created_ns=1_700_000_000_000_000_000,
            annotations={
                "kubernetes.io/config.source": "file",
                "checkpointer.alpha.coreos.com/checkpoint-of": "api",
            },
        )
    )
    runtime.add_container(
        FakeContainer(
            id="c1",
            sandbox_id="s1",
            name="app",
            attempt=7,
            state=api.CONTAINER_EXITED,
            created_ns=5,
        )
    )

    seen = connect(runtime).read()

    assert (seen.version, seen.api) == ("containerd 1.6.20", "runtime.v1")
    assert seen.sandboxes == (
        Sandbox(
            id="s1",
            namespace="kube-system",
            name="api-node1",
            uid="u1",
            attempt=2,
            ready=False,
            created_ns=1_700_000_000_000_000_000,
            config_source="file",
            checkpoint_of="api",
        ),
    )
    assert seen.containers == (
        Container(
            id="c1",
            sandbox_id="s1",
            uid="u1",
            name="app",
            attempt=7,
            state=ContainerState.EXITED,
            created_ns=5,
            image="registry.example/app:1",
            image_ref="sha256:app",
        ),
    )


def test_an_unchanged_runtime_looks_the_same_in_whatever_order_it_lists(
    runtime: FakeRuntime,
) -> None:
    for uid in ("b", "a", "c"):
        add_pod(runtime, uid)
    client = connect(runtime)
    before = client.read()

    runtime.sandboxes = dict(reversed(runtime.sandboxes.items()))
    runtime.containers = dict(reversed(runtime.containers.items()))

    assert client.read() == before


def test_lists_can_be_of_one_pod(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    add_pod(runtime, "b")
    client = connect(runtime)

    assert [sandbox.uid for sandbox in client.list_sandboxes("b")] == ["b"]
    assert [container.id for container in client.list_containers("b")] == ["c-b"]


def test_a_state_of_the_future_is_unknown_and_not_running(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    runtime.set_state("c-a", 17)

    (container,) = connect(runtime).list_containers()

    assert container.state is ContainerState.UNKNOWN


def test_images_are_listed_under_every_name(runtime: FakeRuntime) -> None:
    runtime.images["i"] = FakeImage(
        id="sha256:1", tags=("app:1", "app:2"), digests=("app@sha256:2",)
    )

    assert connect(runtime).list_images() == {"sha256:1", "app:1", "app:2", "app@sha256:2"}


# ---- versions (A14, S13) ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ((api.V1, api.V1ALPHA2), api.V1),
        ((api.V1,), api.V1),
        ((api.V1ALPHA2,), api.V1ALPHA2),
    ],
)
def test_a14_v1_is_chosen_first_and_v1alpha2_else(
    tmp_path: Path, offered: tuple[str, ...], chosen: str
) -> None:
    with FakeRuntime(tmp_path / "cri.sock", offered) as runtime:
        assert connect(runtime).version().api == chosen


def test_a14_the_choice_is_kept(tmp_path: Path) -> None:
    with FakeRuntime(tmp_path / "cri.sock", (api.V1ALPHA2,)) as runtime:
        client = connect(runtime)
        client.list_sandboxes()
        client.list_sandboxes()

        assert runtime.calls == [
            "runtime.v1alpha2/Version",
            "runtime.v1alpha2/ListPodSandbox",
            "runtime.v1alpha2/ListPodSandbox",
        ]


def test_a14_a_runtime_without_any_cri_is_an_error_that_says_so(tmp_path: Path) -> None:
    with FakeRuntime(tmp_path / "cri.sock", ()) as runtime:
        with pytest.raises(RejectedError, match=r"neither runtime\.v1 nor runtime\.v1alpha2"):
            connect(runtime).read()


def test_a14_a_runtime_that_was_replaced_is_probed_anew(tmp_path: Path) -> None:
    runtime = FakeRuntime(tmp_path / "cri.sock", (api.V1ALPHA2,))
    with runtime:
        client = connect(runtime)
        client.version()
    runtime.versions = (api.V1,)
    with runtime:
        with pytest.raises(SourceError):  # the version that was known is there no more
            client.list_sandboxes()

        assert client.version().api == api.V1


def test_s13_a_hang_in_v1_does_not_starve_v1alpha2(runtime: FakeRuntime) -> None:
    runtime.faults.hang(f"{api.V1}/Version")

    assert connect(runtime, timeout=0.1).version().api == api.V1ALPHA2


def test_s13_a_hang_in_both_is_silence(runtime: FakeRuntime) -> None:
    runtime.faults.hang("Version")

    with pytest.raises(SilentError):
        connect(runtime, timeout=0.05).read()


# ---- faults (A3, A13): an error is never an empty list ------------------------------------------
def test_a3_every_code_is_an_error(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    client = connect(runtime)
    client.version()
    for code in StatusCode:
        if code is StatusCode.OK:
            continue
        runtime.faults.fail(code, "ListPodSandbox", "ListContainers", "ListImages")

        for ask in (client.list_sandboxes, client.list_containers, client.list_images):
            with pytest.raises(SourceError):
                ask()


def test_a3_an_answer_that_is_no_message_is_rejected(runtime: FakeRuntime) -> None:
    runtime.faults.garble("ListContainers")

    with pytest.raises(RejectedError, match="cannot be read"):
        connect(runtime).list_containers()


def test_a3_a_container_without_an_id_is_rejected(runtime: FakeRuntime) -> None:
    runtime.add_container(FakeContainer(id="", sandbox_id="s", name="app"))

    with pytest.raises(RejectedError, match="without an id"):
        connect(runtime).list_containers()


def test_a3_a_hang_ends_at_the_deadline_and_the_next_call_works(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    client = connect(runtime, timeout=0.1)
    client.version()
    runtime.faults.hang("ListContainers")
    with pytest.raises(SilentError):
        client.list_containers()
    runtime.faults.clear()

    assert len(client.list_containers()) == 1


def test_a13_a_runtime_that_is_down_refuses_and_is_found_again_at_once(
    runtime: FakeRuntime,
) -> None:
    client = connect(runtime)
    client.read()
    runtime.stop()
    with pytest.raises(RefusedError):
        client.read()
    runtime.start()

    assert client.read().version == "containerd 1.6.20"


def test_a_restart_between_two_calls_is_not_noticed(runtime: FakeRuntime) -> None:
    client = connect(runtime)
    client.read()
    runtime.stop()
    runtime.start()

    assert client.list_sandboxes() == ()


# ---- stopping -----------------------------------------------------------------------------------
def test_a_container_is_stopped_with_its_grace(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    stopped: list[tuple[str, int]] = []
    runtime.on_stop_container = lambda container, grace: stopped.append((container.id, grace))
    client = connect(runtime)

    client.stop_container("c-a", 7)

    assert stopped == [("c-a", 7)]
    assert client.list_containers("a")[0].state is ContainerState.EXITED


def test_a_sandbox_is_stopped_with_all_in_it(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    client = connect(runtime)

    client.stop_sandbox("s-a")

    assert not client.list_sandboxes("a")[0].ready
    assert client.list_containers("a")[0].state is ContainerState.EXITED


def test_what_is_gone_counts_as_stopped(runtime: FakeRuntime) -> None:
    runtime.faults.fail(StatusCode.NOT_FOUND, "StopContainer", "StopPodSandbox")
    client = connect(runtime)

    client.stop_container("gone", 1)
    client.stop_sandbox("gone")


def test_a_stop_may_take_the_grace_longer_than_a_question(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    slow = threading.Event()
    runtime.on_stop_container = lambda _container, _grace: (slow.wait(0.3), None)[1]

    connect(runtime, timeout=0.1).stop_container("c-a", 10)

    assert runtime.containers["c-a"].state == api.CONTAINER_EXITED


def test_a_stop_that_hangs_ends_at_its_deadline(runtime: FakeRuntime) -> None:
    client = connect(runtime, timeout=0.1)
    client.version()
    runtime.faults.hang("StopContainer", "StopPodSandbox")

    with pytest.raises(SilentError):
        client.stop_container("c", 0)
    with pytest.raises(SilentError):
        client.stop_sandbox("s", timeout=0.1)


# ---- events -------------------------------------------------------------------------------------
def test_an_event_arrives_when_a_container_changes(runtime: FakeRuntime) -> None:
    add_pod(runtime, "a")
    client = connect(runtime)
    with client.container_events(timeout=10.0) as stream:
        answers = iter(stream)
        # Until the stream is open there is nobody to tell.
        while not runtime.listeners:
            client.version()
        runtime.set_state("c-a", api.CONTAINER_EXITED)

        assert b"c-a" in next(answers)


def test_a_stream_ends_at_its_deadline(runtime: FakeRuntime) -> None:
    with connect(runtime).container_events(timeout=0.1) as stream, pytest.raises(SilentError):
        list(stream)


def test_a_stream_ends_when_it_is_cancelled_from_another_thread(runtime: FakeRuntime) -> None:
    with connect(runtime).container_events(timeout=60.0) as stream:
        threading.Timer(0.05, stream.cancel).start()
        with pytest.raises(SilentError):
            list(stream)


def test_a_runtime_without_events_says_unimplemented(tmp_path: Path) -> None:
    with FakeRuntime(tmp_path / "cri.sock", events=False) as runtime:
        with connect(runtime).container_events(timeout=10.0) as stream:
            with pytest.raises(RejectedError) as raised:
                list(stream)

    assert raised.value.status == unix_grpc.UNIMPLEMENTED
