"""Keep the embedded kubelet's threads: the runtime's picture, volumes' contents, readiness."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.fakes.api_client import FAILURES
from tests.fakes.machine import control, pod_status, volumes
from tests.fakes.machine.control import Fields
from tests.fakes.machine.pod_worker import Picture, Worker
from tests.fakes.machine.static_pods import Pod
from tests.fakes.machine.uplink import Server


class RuntimeView:
    """Hold the runtime's newest picture; a thread waits for the next one."""

    def __init__(self, runtime: str, wake: Callable[[], None]) -> None:
        self._runtime = runtime
        self._wake = wake
        self._lock = threading.Lock()
        self._newest: Fields = {"version": 0}
        self._pods: dict[str, Picture] = {}

    def start(self) -> None:
        threading.Thread(target=self._follow, name="runtime", daemon=True).start()

    @property
    def is_known(self) -> bool:
        return bool(self._newest["version"] > 0)

    def refresh(self) -> None:
        self._take(control.ask(self._runtime, "picture", since=0, seconds=0))

    def uids(self) -> set[str]:
        return set(self._pods)

    def of(self, uid: str) -> Picture:
        return self._pods.get(uid) or Picture([], [])

    def _follow(self) -> None:
        while True:
            try:
                since = self._newest["version"]
                self._take(control.ask(self._runtime, "picture", since=since, seconds=1))
            except (OSError, ValueError):
                threading.Event().wait(0.1)

    def _take(self, picture: Fields) -> None:
        with self._lock:
            if picture["version"] <= self._newest["version"]:
                return
            self._newest = picture
            self._pods = _by_pod(picture)
        self._wake()


class VolumeKeeper:
    """Fetch and refresh what comes from the API server, in a thread."""

    def __init__(
        self, server: Server, root: Path, seconds: float, wake: Callable[[], None]
    ) -> None:
        self._server = server
        self._root = root
        self._seconds = seconds
        self._wake = wake
        self._wanted: tuple[Worker, ...] = ()

    def start(self) -> None:
        threading.Thread(target=self._follow, name="volumes", daemon=True).start()

    def want(self, workers: list[Worker]) -> None:
        for worker in workers:
            if not volumes.needs_api(worker.pod):
                worker.volumes_ready = True
        self._wanted = tuple(w for w in workers if volumes.needs_api(w.pod))

    def _follow(self) -> None:
        client = self._server.client()
        refreshed: dict[str, float] = {}
        while True:
            now = time.monotonic()
            for worker in self._wanted:
                if worker.volumes_ready and now - refreshed.get(worker.uid, 0) < self._seconds:
                    continue
                try:
                    volumes.set_up(self._root, worker.pod, client.get)
                except (*FAILURES, volumes.MissingError):
                    continue
                refreshed[worker.uid] = now
                if not worker.volumes_ready:
                    worker.volumes_ready = True
                    self._wake()
            threading.Event().wait(0.05)


class Prober:
    """Probe the containers that have a readiness probe, in a thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._watched: tuple[tuple[Fields, Pod], ...] = ()
        self._ready: dict[str, bool] = {}

    def start(self) -> None:
        threading.Thread(target=self._follow, name="probes", daemon=True).start()

    def watch(self, containers: list[tuple[Fields, Pod]]) -> None:
        self._watched = tuple(containers)

    def is_ready(self, container: Fields, spec: Pod) -> bool:
        if not container["running"] or "readinessProbe" not in spec:
            return bool(container["running"])
        return self._ready.get(container["id"], False)

    def _follow(self) -> None:
        while True:
            for container, spec in self._watched:
                ready = pod_status.is_ready(container, spec)
                if self._ready.get(container["id"]) != ready:
                    self._ready[container["id"]] = ready
                    self._wake()
            threading.Event().wait(0.1)


def _by_pod(picture: Fields) -> dict[str, Picture]:
    """Sort the runtime's picture by pod UID, the newest first."""
    pods: dict[str, Picture] = {}
    owner: dict[str, str] = {}
    for sandbox in sorted(picture["sandboxes"], key=lambda s: s["created"], reverse=True):
        pods.setdefault(sandbox["uid"], Picture([], [])).sandboxes.append(sandbox)
        owner[sandbox["id"]] = sandbox["uid"]
    for container in sorted(picture["containers"], key=lambda c: c["started"], reverse=True):
        if container["sandbox"] in owner:
            pods[owner[container["sandbox"]]].containers.append(container)
    return pods
