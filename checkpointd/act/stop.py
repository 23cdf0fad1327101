"""Stop a copy for sure, through the container runtime (design, rule 9).

A kubelet whose API source is not ready only forgets a pod whose manifest went (kubelet facts,
K-13): its containers run on until the runtime is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from checkpointd.errors import SourceError
from checkpointd.model.observation import Container, ContainerState, Sandbox

JOIN_EXTRA = 10.0
"""Seconds after the grace in which StopContainer must have answered."""
STOP_AGAIN = 0.5
"""Seconds between two stops of one copy: what the runtime shows lags behind, or does not change."""
LONGEST_GRACE = 30 * 86400
"""Seconds: the API takes any int64 for a grace, which no timeout of ours can hold."""


class StopClient(Protocol):
    """Be what stopping needs of the CRI client. Every method raises SourceError."""

    def list_sandboxes(self, uid: str = "") -> Sequence[Sandbox]:
        """List the sandboxes of a pod UID."""
        ...

    def list_containers(self, uid: str = "") -> Sequence[Container]:
        """List the containers of a pod UID."""
        ...

    def stop_container(self, container_id: str, grace_seconds: int) -> None:
        """Stop a container: TERM, and KILL after the grace."""
        ...

    def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop a sandbox and all in it by force."""
        ...


class StopCopies:
    """Stop copies in threads named ``runtime-stop``; the cycle never waits for them.

    ``client`` returns None while there is no access to the runtime. ``wake`` is called when a stop
    was done; a failure waits for the next request, lest both chase each other.
    """

    def __init__(self, client: Callable[[], StopClient | None], wake: Callable[[], None]) -> None:
        self._client = client
        self._wake = wake
        self._lock = threading.Lock()
        self._under_way: dict[str, threading.Thread] = {}
        self._failures: dict[str, str] = {}
        self._done: dict[str, float] = {}

    def request(self, uid: str, grace_seconds: int) -> str:
        """Stop all of a pod UID; return why the last try failed, or "".

        Nothing is done while a stop is under way or was done just now.
        """
        if not uid:
            return "a copy without UID cannot be stopped"
        grace_seconds = max(0, min(grace_seconds, LONGEST_GRACE))
        with self._lock:
            failure = self._failures.pop(uid, "")
            if uid not in self._under_way and not self._was_just_done(uid):
                thread = threading.Thread(
                    target=self._run, args=(uid, grace_seconds), name="runtime-stop", daemon=True
                )
                # Entered only once it runs: where no thread can be started, the next request tries.
                thread.start()
                self._under_way[uid] = thread
        return failure

    def _was_just_done(self, uid: str) -> bool:
        now = time.monotonic()
        self._done = {known: at for known, at in self._done.items() if now - at < STOP_AGAIN}
        return uid in self._done

    def wait(self, uid: str, timeout: float) -> bool:
        """Wait until the stop of ``uid`` that is under way ends; False if it does not in time."""
        with self._lock:
            thread = self._under_way.get(uid)
        if thread is not None:
            thread.join(timeout)
        return thread is None or not thread.is_alive()

    def _run(self, uid: str, grace_seconds: int) -> None:
        failure = "the stop ended by a fault of our own"
        try:
            failure = self._stop(uid, grace_seconds)
        finally:
            with self._lock:
                self._under_way.pop(uid, None)
                if failure:
                    self._failures[uid] = failure
                else:
                    self._done[uid] = time.monotonic()
        if not failure:
            self._wake()

    def _stop(self, uid: str, grace_seconds: int) -> str:
        client = self._client()
        if client is None:
            return "no access to the container runtime"
        try:
            self._stop_containers(client, uid, grace_seconds)
            for sandbox in client.list_sandboxes(uid):
                if sandbox.uid == uid and sandbox.ready:
                    client.stop_sandbox(sandbox.id)
        except SourceError as error:
            return str(error)
        return ""

    def _stop_containers(self, client: StopClient, uid: str, grace_seconds: int) -> None:
        """Stop all running containers side by side, as the kubelet does.

        See pkg/kubelet/kuberuntime: killContainersWithSyncResult. What fails here is left to
        StopPodSandbox, which kills what still runs.
        """
        alive = (ContainerState.RUNNING, ContainerState.UNKNOWN)
        threads = [
            threading.Thread(
                target=_stop_container,
                args=(client, container.id, grace_seconds),
                name="runtime-stop",
                daemon=True,
            )
            for container in client.list_containers(uid)
            if container.uid == uid and container.state in alive
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(grace_seconds + JOIN_EXTRA)


def _stop_container(client: StopClient, container_id: str, grace_seconds: int) -> None:
    try:
        client.stop_container(container_id, grace_seconds)
    except SourceError:
        return
