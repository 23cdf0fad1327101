"""Bring one pod to what is wanted of it, as a kubelet's pod worker does: start, restart, end.

A worker looks at the runtime's picture and does the next thing; it never waits. Kubelet facts K-12
(one static pod of a full name at a time), K-14 (host ports), K-21 (sandboxes and containers).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.machine import control, volumes
from tests.fakes.machine.control import Fields
from tests.fakes.machine.static_pods import Pod, full_name

END_SECONDS = 0.1
"""From the word that a pod is to end to its first signal: a kubelet is not faster."""
QUICK_SECONDS = 5.0
"""A container that ran for less has crashed again: its back-off grows."""


@dataclass(slots=True, kw_only=True)
class Tools:
    """Hold what all workers of a kubelet share."""

    runtime: str
    root: Path
    back_off: tuple[float, ...]
    is_ready: Callable[[Fields, Pod], bool]

    def ask(self, operation: str, **fields: object) -> Fields:
        """Ask the runtime."""
        return control.ask(self.runtime, operation, **fields)


@dataclass(slots=True)
class Picture:
    """Hold what the runtime has of one pod, the newest first."""

    sandboxes: list[Fields]
    containers: list[Fields]

    @property
    def sandbox(self) -> Fields | None:
        """Return the newest sandbox."""
        return self.sandboxes[0] if self.sandboxes else None

    @property
    def running(self) -> list[Fields]:
        """Return the containers that run."""
        return [c for c in self.containers if c["running"]]

    def of(self, name: str) -> list[Fields]:
        """Return the containers of a name, the newest first."""
        return [container for container in self.containers if container["name"] == name]

    def newest(self, name: str) -> Fields | None:
        """Return the newest container of a name."""
        return next(iter(self.of(name)), None)


@dataclass(slots=True)
class Worker:
    """Hold one pod that the kubelet runs or ends; ``says`` is why it does not run, for the log."""

    pod: Pod
    tools: Tools
    static: bool
    admitted: bool = False
    rejected: str = ""
    volumes_ready: bool = False
    terminating: bool = False
    finished: bool = False
    grace: int = 30
    end_at: float = 0.0
    says: str = ""
    began: float = field(default_factory=lambda: time.time_ns() / 1e9)
    _stop_asked: set[str] = field(default_factory=set[str])
    _failures: dict[str, int] = field(default_factory=dict[str, int])
    _not_before: dict[str, float] = field(default_factory=dict[str, float])
    _counted: set[str] = field(default_factory=set[str])

    @property
    def uid(self) -> str:
        """Return the pod's UID."""
        return str(self.pod["metadata"]["uid"])

    @property
    def full_name(self) -> str:
        """Return namespace and name."""
        return full_name(self.pod)

    @property
    def may_start(self) -> bool:
        """Tell whether it is admitted and not on its way out."""
        return self.admitted and not self.rejected and not self.terminating

    def is_backing_off(self, name: str) -> bool:
        """Tell whether a container is kept from starting again for a while."""
        return time.monotonic() < self._not_before.get(name, 0)

    def terminate(self, grace: int) -> None:
        """Begin the end, or shorten its grace."""
        self.grace = min(grace, self.grace) if self.terminating else grace
        if not self.terminating:
            self.end_at = time.monotonic() + END_SECONDS
        self.terminating = True

    def step(self, picture: Picture) -> bool:
        """Do what is to be done now; return whether anything was."""
        if self.terminating:
            return self._step_to_end(picture)
        if not self.may_start or "deletionTimestamp" in self.pod["metadata"]:
            return False
        try:
            volumes.set_up_local(self.tools.root, self.pod)
        except volumes.MissingError as error:
            return self._say(str(error))
        if not self.volumes_ready:
            return self._say("waits for its volumes")
        sandbox = picture.sandbox
        if sandbox is None or not sandbox["ready"]:
            return self._run_sandbox(picture)
        return self._step_containers(sandbox, picture)

    def _say(self, words: str) -> bool:
        if words != self.says:
            print(f"{self.full_name} ({self.uid}): {words}", flush=True)
            self.says = words
        return False

    def _step_to_end(self, picture: Picture) -> bool:
        if self.finished or time.monotonic() < self.end_at:
            return False
        for container in picture.running:
            if container["id"] not in self._stop_asked:
                self._say(f"ends with a grace of {self.grace} s")
                self._stop_asked.add(container["id"])
                self.tools.ask("stop_container", container=container["id"], grace=self.grace)
        if picture.running:
            return False
        ready = [s for s in picture.sandboxes if s["ready"]]
        for sandbox in ready:
            if sandbox["id"] not in self._stop_asked:
                self._stop_asked.add(sandbox["id"])
                self.tools.ask("stop_sandbox", sandbox=sandbox["id"])
        if not ready:
            self.tools.ask("remove_pod", uid=self.uid)
            self.finished = True
            self._say("has ended")
        return self.finished

    def _run_sandbox(self, picture: Picture) -> bool:
        """Make another sandbox, once nothing runs of the one before."""
        for container in picture.running:
            if container["id"] not in self._stop_asked:
                self._stop_asked.add(container["id"])
                grace = grace_of(self.pod)
                self.tools.ask("stop_container", container=container["id"], grace=grace)
        if picture.running:
            return False
        before = picture.sandbox
        metadata = self.pod["metadata"]
        self._say("gets a sandbox")
        self.tools.ask(
            "run_sandbox",
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=self.uid,
            attempt=before["attempt"] + 1 if before else 0,
            annotations=metadata.get("annotations", {}),
        )
        return True

    def _step_containers(self, sandbox: Fields, picture: Picture) -> bool:
        spec = self.pod["spec"]
        for init in spec.get("initContainers", []):
            found = picture.newest(init["name"])
            of_sandbox = found is not None and found["sandbox"] == sandbox["id"]
            if found is None or not of_sandbox:
                return self._start(sandbox, init, found)
            if found["running"] or found["created"]:
                return False
            if found["exit_code"] != 0:
                return self._restart(sandbox, init, found)
        started = False
        for container in spec["containers"]:
            found = picture.newest(container["name"])
            if found is None:
                started = self._start(sandbox, container, found) or started
            elif found["running"] or found["created"]:
                continue
            elif spec.get("restartPolicy", "Always") != "Never":
                started = self._restart(sandbox, container, found) or started
        return started

    def _restart(self, sandbox: Fields, container: Pod, exited: Fields) -> bool:
        name, now = container["name"], time.monotonic()
        if exited["id"] not in self._counted:
            self._counted.add(exited["id"])
            quick = exited["finished"] - exited["started"] < QUICK_SECONDS
            step = self._failures.get(name, -1) + 1 if quick else 0
            self._failures[name] = step
            delay = self.tools.back_off[min(step, len(self.tools.back_off) - 1)]
            self._not_before[name] = now + delay
            self._say(f"{name} exited {exited['exit_code']}, again in {delay:g} s")
        if now < self._not_before.get(name, 0):
            return False
        return self._start(sandbox, container, exited)

    def _start(self, sandbox: Fields, container: Pod, before: Fields | None) -> bool:
        try:
            self.tools.ask("pull", image=container["image"])
        except RuntimeError as error:
            return self._say(f"ErrImagePull {container['image']}: {error}")
        self.tools.ask(
            "start_container",
            sandbox=sandbox["id"],
            name=container["name"],
            attempt=before["attempt"] + 1 if before else 0,
            image=container["image"],
            command=container.get("command", ["pause"]) + container.get("args", []),
            mounts=volumes.mounts(self.tools.root, self.pod, container),
            environ={v["name"]: v.get("value", "") for v in container.get("env", [])},
        )
        self.says = ""
        return True


def host_ports(pod: Pod) -> set[int]:
    """Return the ports of the host that a pod claims; on the host's network, all that it names."""
    on_host = pod["spec"].get("hostNetwork", False)
    ports = [port for c in pod["spec"]["containers"] for port in c.get("ports", [])]
    claimed = (p.get("hostPort") or (p["containerPort"] if on_host else 0) for p in ports)
    return {port for port in claimed if port}


def grace_of(pod: Pod) -> int:
    """Return the seconds between TERM and KILL; the kubelet gives at least one."""
    metadata = pod["metadata"]
    own = pod["spec"].get("terminationGracePeriodSeconds", 30)
    return max(1, int(metadata.get("deletionGracePeriodSeconds", own)))
