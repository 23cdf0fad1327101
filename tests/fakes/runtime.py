"""Be a container runtime: a CRI server on a unix socket over a picture that tests change at will.

It speaks ``runtime.v1`` and ``runtime.v1alpha2``, or what it is told to. Hooks are called when
something is to be stopped, so that an embedded node can end real processes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from checkpointd.clients.cri import api
from checkpointd.clients.messages import Messages
from tests.fakes.grpc_server import Answer, Answers, Faults, GrpcServer

BOTH = (api.V1, api.V1ALPHA2)


@dataclass(slots=True, kw_only=True)
class FakeSandbox:
    """Hold one sandbox as the kubelet had it made (kubelet facts K-21)."""

    id: str
    namespace: str
    name: str
    uid: str
    attempt: int = 0
    ready: bool = True
    created_ns: int = 1
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels that the kubelet gives to every sandbox and container."""
        return {
            "io.kubernetes.pod.name": self.name,
            "io.kubernetes.pod.namespace": self.namespace,
            api.POD_UID_LABEL: self.uid,
        }


@dataclass(slots=True, kw_only=True)
class FakeContainer:
    """Hold one container; ``state`` is the CRI's number."""

    id: str
    sandbox_id: str
    name: str
    attempt: int = 0
    state: int = api.CONTAINER_RUNNING
    created_ns: int = 1
    image: str = "registry.example/app:1"
    image_ref: str = "sha256:app"
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True, kw_only=True)
class FakeImage:
    """Hold one image."""

    id: str
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()


class _Filter(Protocol):
    label_selector: Mapping[str, str]


class _ListRequest(Protocol):
    filter: _Filter


class _StopContainerRequest(Protocol):
    container_id: str
    timeout: int


class _StopSandboxRequest(Protocol):
    pod_sandbox_id: str


class FakeRuntime:
    """Serve ``sandboxes``, ``containers`` and ``images`` on ``socket``.

    ``on_stop_container(container, grace_seconds)`` and ``on_stop_sandbox(sandbox)`` run before the
    picture changes and may take their time. ``versions`` may be changed while it is stopped.
    """

    def __init__(
        self, socket: Path, versions: tuple[str, ...] = BOTH, *, events: bool = False
    ) -> None:
        self.socket = socket
        self.versions = versions
        self.events = events
        self.name, self.version = "containerd", "1.6.20"
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.containers: dict[str, FakeContainer] = {}
        self.images: dict[str, FakeImage] = {}
        self.on_stop_container: Callable[[FakeContainer, int], None] = _nothing
        self.on_stop_sandbox: Callable[[FakeSandbox], None] = _nothing
        self.faults = Faults()
        self.lock = threading.RLock()
        self._server = GrpcServer(socket, self.faults)
        self._listeners: list[queue.SimpleQueue[str]] = []

    @property
    def calls(self) -> list[str]:
        """Return the calls so far, as ``<package>/<Method>``."""
        return self._server.calls

    def start(self) -> None:
        """Serve."""
        services: dict[str, Mapping[str, Answer]] = {}
        streams: dict[str, Mapping[str, Answers]] = {}
        for package in self.versions:
            methods = _Methods(self, package)
            services[f"{package}.RuntimeService"] = methods.of_runtime()
            services[f"{package}.ImageService"] = {"ListImages": methods.list_images}
            if self.events and package == api.V1:
                streams[f"{package}.RuntimeService"] = {"GetContainerEvents": methods.events}
        self._server.start(services, streams)

    def stop(self) -> None:
        """Refuse connections, with the picture kept: a runtime that is down, not its containers."""
        self._server.stop()

    def __enter__(self) -> FakeRuntime:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def add_sandbox(self, sandbox: FakeSandbox) -> FakeSandbox:
        """Put a sandbox into the picture."""
        with self.lock:
            self.sandboxes[sandbox.id] = sandbox
        self.tell(sandbox.id)
        return sandbox

    def add_container(self, container: FakeContainer) -> FakeContainer:
        """Put a container into the picture, with its sandbox's labels where it has none."""
        with self.lock:
            sandbox = self.sandboxes.get(container.sandbox_id)
            if sandbox is not None and not container.labels:
                container.labels = {
                    **sandbox.labels,
                    "io.kubernetes.container.name": container.name,
                }
            self.containers[container.id] = container
        self.tell(container.id)
        return container

    def set_state(self, container_id: str, state: int) -> None:
        """Change a container's state: one that exited by itself, for example."""
        with self.lock:
            self.containers[container_id].state = state
        self.tell(container_id)

    def remove_pod(self, uid: str) -> None:
        """Take all sandboxes and containers of a pod out of the picture."""
        with self.lock:
            gone = [s.id for s in self.sandboxes.values() if s.uid == uid]
            for sandbox_id in gone:
                del self.sandboxes[sandbox_id]
            for container in [c for c in self.containers.values() if c.sandbox_id in gone]:
                del self.containers[container.id]
        self.tell(uid)

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Do what StopContainer does: idempotent, the hook first."""
        with self.lock:
            container = self.containers.get(container_id)
        if container is None or container.state == api.CONTAINER_EXITED:
            return
        self.on_stop_container(container, grace_seconds)
        self.set_state(container_id, api.CONTAINER_EXITED)

    def stop_sandbox(self, sandbox_id: str) -> None:
        """Do what StopPodSandbox does: containers are killed, the sandbox is not ready."""
        with self.lock:
            sandbox = self.sandboxes.get(sandbox_id)
            inside = [c.id for c in self.containers.values() if c.sandbox_id == sandbox_id]
        if sandbox is None or not sandbox.ready:
            return
        for container_id in inside:
            self.stop_container(container_id, 0)
        self.on_stop_sandbox(sandbox)
        sandbox.ready = False
        self.tell(sandbox_id)

    def tell(self, container_id: str) -> None:
        """Send an event to whoever listens."""
        for listener in list(self._listeners):
            listener.put(container_id)

    def listen(self) -> queue.SimpleQueue[str]:
        """Return a queue that gets every event from now on."""
        listener: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._listeners.append(listener)
        return listener

    @property
    def listeners(self) -> int:
        """Return how many streams were ever opened."""
        return len(self._listeners)


class _Methods:
    """Answer the calls of one version of the CRI."""

    def __init__(self, runtime: FakeRuntime, package: str) -> None:
        self.runtime = runtime
        self.messages = Messages(package, api.TABLE)

    def of_runtime(self) -> dict[str, Answer]:
        return {
            "Version": self.version,
            "ListPodSandbox": self.list_sandboxes,
            "ListContainers": self.list_containers,
            "StopContainer": self.stop_container,
            "StopPodSandbox": self.stop_sandbox,
        }

    def version(self, _request: bytes) -> bytes:
        version = self.messages.package.rpartition(".")[2]
        fields = {
            "version": "0.1.0",
            "runtime_name": self.runtime.name,
            "runtime_version": self.runtime.version,
            "runtime_api_version": version,
        }
        return self.messages.encode("VersionResponse", fields)

    def list_sandboxes(self, request: bytes) -> bytes:
        wanted = self._selector("ListPodSandboxRequest", request)
        with self.runtime.lock:
            found = [s for s in self.runtime.sandboxes.values() if wanted <= s.labels.items()]
            items = [_sandbox_fields(sandbox) for sandbox in found]
        return self.messages.encode("ListPodSandboxResponse", {"items": items})

    def list_containers(self, request: bytes) -> bytes:
        wanted = self._selector("ListContainersRequest", request)
        with self.runtime.lock:
            found = [c for c in self.runtime.containers.values() if wanted <= c.labels.items()]
            items = [_container_fields(container) for container in found]
        return self.messages.encode("ListContainersResponse", {"containers": items})

    def list_images(self, _request: bytes) -> bytes:
        with self.runtime.lock:
            images = [
                {"id": i.id, "repo_tags": i.tags, "repo_digests": i.digests}
                for i in self.runtime.images.values()
            ]
        return self.messages.encode("ListImagesResponse", {"images": images})

    def stop_container(self, request: bytes) -> bytes:
        asked = cast("_StopContainerRequest", self.messages.decode("StopContainerRequest", request))
        self.runtime.stop_container(asked.container_id, asked.timeout)
        return b""

    def stop_sandbox(self, request: bytes) -> bytes:
        asked = cast("_StopSandboxRequest", self.messages.decode("StopPodSandboxRequest", request))
        self.runtime.stop_sandbox(asked.pod_sandbox_id)
        return b""

    def events(self, _request: bytes, is_active: Callable[[], bool]) -> Iterator[bytes]:
        listener = self.runtime.listen()
        while is_active():
            try:
                container_id = listener.get(timeout=0.02)
            except queue.Empty:
                continue
            yield self.messages.encode("ContainerEventResponse", {"container_id": container_id})

    def _selector(self, name: str, request: bytes) -> set[tuple[str, str]]:
        asked = cast("_ListRequest", self.messages.decode(name, request))
        return set(asked.filter.label_selector.items())


def _sandbox_fields(sandbox: FakeSandbox) -> Mapping[str, object]:
    return {
        "id": sandbox.id,
        "metadata": {
            "name": sandbox.name,
            "uid": sandbox.uid,
            "namespace": sandbox.namespace,
            "attempt": sandbox.attempt,
        },
        "state": 0 if sandbox.ready else 1,
        "created_at": sandbox.created_ns,
        "labels": sandbox.labels,
        "annotations": dict(sandbox.annotations),
    }


def _container_fields(container: FakeContainer) -> Mapping[str, object]:
    return {
        "id": container.id,
        "pod_sandbox_id": container.sandbox_id,
        "metadata": {"name": container.name, "attempt": container.attempt},
        "image": {"image": container.image},
        "image_ref": container.image_ref,
        "state": container.state,
        "created_at": container.created_ns,
        "labels": dict(container.labels),
    }


def _nothing(*_what: object) -> None:
    """Be the hook that nobody set."""
