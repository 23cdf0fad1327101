"""Ask a container runtime what it has and make it stop what is ours: a thin, typed CRI client.

It decides nothing: what cannot be read is an error, never an empty list (field report A3).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from checkpointd.clients import unix_grpc
from checkpointd.clients.cri import api
from checkpointd.errors import RejectedError, SilentError, SourceError
from checkpointd.model.observation import Container, ContainerState, Runtime, Sandbox
from checkpointd.model.pods import LEGACY_CHECKPOINT_OF

TIMEOUT = 5.0
"""Seconds for one question: a list takes 0.6 ms from a healthy runtime."""
STOP_EXTRA = 10.0
"""Seconds beyond the grace that a runtime may take to stop a container."""
STOP_SANDBOX = 30.0
"""Seconds to stop a sandbox: its network is torn down."""

_STATES = {
    api.CONTAINER_CREATED: ContainerState.CREATED,
    api.CONTAINER_RUNNING: ContainerState.RUNNING,
    api.CONTAINER_EXITED: ContainerState.EXITED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeVersion:
    """Say which runtime answers, and in which version of the CRI."""

    api: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class CriClient:
    """Talk to the runtime on ``endpoint``; each call has its deadline. Safe in several threads.

    All methods raise RefusedError (nobody there), SilentError (no answer in time) or RejectedError
    (an answer that is not the one asked for). Constructing raises RejectedError for an endpoint
    that is no unix socket.
    """

    def __init__(
        self, endpoint: str, *, timeout: float = TIMEOUT, stop_extra: float = STOP_EXTRA
    ) -> None:
        self._connection = unix_grpc.UnixGrpc(endpoint)
        self._timeout = timeout
        self._stop_extra = stop_extra
        self._messages = {name: api.messages(name) for name in (api.V1, api.V1ALPHA2)}
        self._api = ""

    def version(self) -> RuntimeVersion:
        """Ask which version of the CRI is spoken: v1, else v1alpha2; and who speaks it.

        Each is asked with a deadline of its own: a hang in the first does not starve the second
        (field report S13). What was found is kept until a call fails.
        """
        if not self._api:
            return self._find_version()
        try:
            return self._ask_version(self._api)
        except SourceError:
            self._api = ""
            raise

    def read(self, version: RuntimeVersion | None = None) -> Runtime:
        """Look at everything that the runtime has; asks for the version where none is given."""
        version = version or self.version()
        # Sandboxes first: a container that appears in between only adds a "runs".
        sandboxes = self.list_sandboxes()
        return Runtime(
            version=str(version),
            api=version.api,
            sandboxes=sandboxes,
            containers=self.list_containers(),
        )

    def list_sandboxes(self, uid: str = "") -> tuple[Sandbox, ...]:
        """List pod sandboxes, of all pods or of one pod UID."""
        answer = self._ask("RuntimeService/ListPodSandbox", "ListPodSandbox", _of_pod(uid))
        items = cast("api.SandboxesAnswer", answer).items
        # Sorted: containerd lists a map, and what has not changed must look the same.
        return tuple(sorted((_sandbox(item) for item in items), key=lambda found: found.id))

    def list_containers(self, uid: str = "") -> tuple[Container, ...]:
        """List containers in every state, of all pods or of one pod UID."""
        answer = self._ask("RuntimeService/ListContainers", "ListContainers", _of_pod(uid))
        items = cast("api.ContainersAnswer", answer).containers
        return tuple(sorted((_container(item) for item in items), key=lambda found: found.id))

    def list_images(self) -> frozenset[str]:
        """List the images: every id, tag and digest under which one is known."""
        answer = self._ask("ImageService/ListImages", "ListImages", {})
        images = cast("api.ImagesAnswer", answer).images
        names = (name for i in images for name in (i.id, *i.repo_tags, *i.repo_digests))
        return frozenset(name for name in names if name)

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Stop a container: TERM, and KILL after the grace. One that is gone counts as stopped."""
        fields = {"container_id": container_id, "timeout": max(0, grace_seconds)}
        deadline = max(0, grace_seconds) + self._stop_extra
        self._stop("RuntimeService/StopContainer", "StopContainer", fields, deadline)

    def stop_sandbox(self, sandbox_id: str, timeout: float = STOP_SANDBOX) -> None:
        """Stop a sandbox and all in it by force. One that is gone counts as stopped."""
        fields = {"pod_sandbox_id": sandbox_id}
        self._stop("RuntimeService/StopPodSandbox", "StopPodSandbox", fields, timeout)

    @contextmanager
    def container_events(self, timeout: float) -> Generator[unix_grpc.Stream]:
        """Open the stream of container events; each answer only says that something happened.

        It ends after ``timeout`` seconds with SilentError. containerd before 1.7 has none:
        RejectedError with status UNIMPLEMENTED (unix_grpc).
        """
        package = self._api or self.version().api
        request = self._messages[package].encode("GetEventsRequest", {})
        method = f"/{package}.RuntimeService/GetContainerEvents"
        stream = self._connection.stream(method, request, timeout)
        try:
            yield stream
        finally:
            stream.cancel()

    def close(self) -> None:
        """Give up the connection."""
        self._api = ""
        self._connection.close()

    def _find_version(self) -> RuntimeVersion:
        silence: SilentError | None = None
        for package in (api.V1, api.V1ALPHA2):
            try:
                found = self._ask_version(package)
            except SilentError as error:
                silence = silence or error
            except RejectedError as error:
                if not _is_unimplemented(error):
                    raise
            else:
                self._api = package
                return found
        if silence is not None:
            raise silence
        raise RejectedError(f"the runtime speaks neither {api.V1} nor {api.V1ALPHA2} of the CRI")

    def _ask_version(self, package: str) -> RuntimeVersion:
        answer = cast("api.VersionAnswer", self._call(package, "RuntimeService/Version", "Version"))
        return RuntimeVersion(api=package, name=answer.runtime_name, version=answer.runtime_version)

    def _ask(self, path: str, name: str, fields: Mapping[str, object]) -> object:
        return self._known(lambda package: self._call(package, path, name, fields))

    def _stop(self, path: str, name: str, fields: Mapping[str, object], deadline: float) -> None:
        try:
            self._known(lambda package: self._call(package, path, name, fields, deadline))
        except RejectedError as error:
            # "must not return an error if the container has already been stopped" (api.proto), but
            # runtimes differ on one that was removed.
            if error.status != unix_grpc.NOT_FOUND:
                raise

    def _known(self, call: Callable[[str], object]) -> object:
        """Call in the version that is known; forget it on any failure but the call's own."""
        package = self._api or self.version().api
        try:
            return call(package)
        except SourceError as error:
            if not isinstance(error, RejectedError) or _is_unimplemented(error):
                self._api = ""
            raise

    def _call(
        self,
        package: str,
        path: str,
        name: str,
        fields: Mapping[str, object] | None = None,
        deadline: float = 0.0,
    ) -> object:
        messages = self._messages[package]
        request = messages.encode(f"{name}Request", fields or {})
        answer = self._connection.call(f"/{package}.{path}", request, deadline or self._timeout)
        return messages.decode(f"{name}Response", answer)


def _is_unimplemented(error: RejectedError) -> bool:
    return error.status == unix_grpc.UNIMPLEMENTED


def _of_pod(uid: str) -> Mapping[str, object]:
    return {"filter": {"label_selector": {api.POD_UID_LABEL: uid}}} if uid else {}


def _sandbox(item: api.SandboxMessage) -> Sandbox:
    return Sandbox(
        id=_identified(item.id, "sandbox"),
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        uid=item.metadata.uid,
        attempt=item.metadata.attempt,
        ready=item.state == api.SANDBOX_READY,
        created_ns=item.created_at,
        config_source=item.annotations.get(api.CONFIG_SOURCE, ""),
        checkpoint_of=item.annotations.get(LEGACY_CHECKPOINT_OF, ""),
    )


def _container(item: api.ContainerMessage) -> Container:
    return Container(
        id=_identified(item.id, "container"),
        sandbox_id=item.pod_sandbox_id,
        uid=item.labels.get(api.POD_UID_LABEL, ""),
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        state=_STATES.get(item.state, ContainerState.UNKNOWN),
        created_ns=item.created_at,
        image=item.image.image,
        image_ref=item.image_ref or item.image_id,
    )


def _identified(value: str, kind: str) -> str:
    if not value:
        raise RejectedError(f"the runtime lists a {kind} without an id")
    return value
