"""Be containerd: the CRI, and real processes in the containers that the kubelet asks for.

The calls that start things are the kubelet's alone and go over a socket of their own; who only
looks or stops uses the CRI. The picture lags a little behind the kernel, as containerd's does.

    main(["--node", DIRECTORY, "--processes", SOCKET, "--group", NAME])
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc

from checkpointd.clients.cri import api
from tests.fakes.cgroup_tree import CgroupTree
from tests.fakes.machine.control import ControlServer, Fields
from tests.fakes.machine.forking import Spawn
from tests.fakes.machine.layout import Layout
from tests.fakes.machine.processes import Child, Processes
from tests.fakes.runtime import FakeContainer, FakeImage, FakeRuntime, FakeSandbox

LAG_SECONDS = 0.05
"""Between a death and the runtime's word of it (design, section 2)."""
PAUSE = ("pause",)
SLEEPERS = frozenset({"pause", "app"})
"""Programs that do nothing until SIGTERM: the pause of a sandbox, and an application like it."""
SLEEP = ("/bin/sleep", "1000000")


@dataclass(slots=True, kw_only=True)
class _Running:
    """Hold the process of one container or sandbox; ``ended`` is set once the picture knows."""

    child: Child
    cgroup: Path
    ended: threading.Event
    started: float
    finished: float = 0.0
    exit_code: int | None = None


class Containerd:
    """Start and stop containers, and tell of them."""

    def __init__(self, layout: Layout, processes: Processes, group: str) -> None:
        self.layout = layout
        self.runtime = FakeRuntime(layout.cri_socket)
        self.runtime.on_stop_container = self._end_container
        self.runtime.on_stop_sandbox = self._end_sandbox
        self.registry_answers = True
        self._processes = processes
        self._group = group
        self._tree = CgroupTree(root=layout.cgroup, driver="systemd").make()
        self._running: dict[str, _Running] = {}
        self._changed = threading.Condition(threading.RLock())
        self._version = 1

    # ---- what the kubelet asks for --------------------------------------------------------------
    def run_sandbox(
        self, namespace: str, name: str, uid: str, attempt: int, annotations: Mapping[str, str]
    ) -> Fields:
        """Make a sandbox with its pause process."""
        identity = _new_id()
        path = self._tree.container(uid, identity, "besteffort")
        running = self._start(identity, "pause", PAUSE, path, self.layout.logs / "pause.log", {})
        sandbox = FakeSandbox(
            id=identity, namespace=namespace, name=name, uid=uid, attempt=attempt,
            created_ns=time.time_ns(), annotations=annotations,
        )  # fmt: skip
        self.runtime.add_sandbox(sandbox)
        self._watch(identity, running)
        return {"id": identity}

    def start_container(
        self, sandbox: str, name: str, attempt: int, image: str, command: list[str],
        mounts: Mapping[str, str], environ: Mapping[str, str],
    ) -> Fields:  # fmt: skip
        """Create and start a container."""
        identity = _new_id()
        of = self.runtime.sandboxes[sandbox]
        path = self._tree.container(of.uid, identity, "besteffort")
        log = self.layout.logs / f"{of.namespace}_{of.name}_{name}.log"
        variables = {**environ, "MOUNTS": json.dumps(mounts)}
        container = FakeContainer(
            # The kubelet asks for the image by its id: K:kuberuntime/kuberuntime_container.go.
            id=identity, sandbox_id=sandbox, name=name, attempt=attempt, image=_image_id(image),
            image_ref=_image_id(image), created_ns=time.time_ns(), state=api.CONTAINER_CREATED,
        )  # fmt: skip
        self.runtime.add_container(container)
        running = self._start(identity, command[0], tuple(command), path, log, variables)
        self.runtime.set_state(identity, api.CONTAINER_RUNNING)
        self._watch(identity, running)
        return {"id": identity}

    def stop_container(self, container: str, grace: int) -> None:
        """Begin to stop a container; the picture tells when it has ended."""
        self._in_background(self.runtime.stop_container, container, grace)

    def stop_sandbox(self, sandbox: str) -> None:
        """Begin to stop a sandbox."""
        self._in_background(self.runtime.stop_sandbox, sandbox)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod that has ended, with its cgroup."""
        with self._changed:
            for sandbox in [s for s in self.runtime.sandboxes.values() if s.uid == uid]:
                self._running.pop(sandbox.id, None)
        self.runtime.remove_pod(uid)
        self._tree.remove(self._tree.pod(uid, "besteffort"))
        self._note_change()

    def pull(self, image: str) -> None:
        """Pull an image unless it is there. Raises RuntimeError where no registry answers."""
        if _image_id(image) in self.runtime.images:
            return
        if not self.registry_answers:
            raise RuntimeError("no route to the registry")
        identity = _image_id(image)
        digest = f"{image.rpartition(':')[0]}@{identity}"
        self.runtime.images[identity] = FakeImage(id=identity, tags=(image,), digests=(digest,))

    def picture(self, since: int, seconds: float) -> Fields:
        """Tell everything, once it is newer than ``since`` or ``seconds`` have passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != since, seconds)
            return {
                "version": self._version,
                "sandboxes": [self._sandbox(s) for s in list(self.runtime.sandboxes.values())],
                "containers": [self._container(c) for c in list(self.runtime.containers.values())],
            }

    # ---- what tests ask for ---------------------------------------------------------------------
    def fault(self, kind: str, methods: list[str]) -> None:
        """Let the CRI hang, fail, answer garbage, refuse connections, or work again."""
        faults = self.runtime.faults
        if kind == "hang":
            faults.hang(*methods)
        elif kind == "fail":
            faults.fail(grpc.StatusCode.UNAVAILABLE, *methods)
        elif kind == "garble":
            faults.garble(*methods)
        elif kind == "refuse":
            self.runtime.stop()
        else:
            faults.clear()
            self.runtime.stop()
            self.runtime.start()

    def set_registry(self, answers: bool) -> None:
        """Let the registry answer or not."""
        self.registry_answers = answers

    def forget_image(self, image: str) -> None:
        """Remove an image, as the kubelet's garbage collection does."""
        self.runtime.images.pop(_image_id(image), None)

    def serve(self) -> ControlServer:
        """Serve the CRI and the calls above."""
        operations = {
            name: getattr(self, name)
            for name in (
                "run_sandbox", "start_container", "stop_container", "stop_sandbox", "remove_pod",
                "pull", "picture", "fault", "set_registry", "forget_image",
            )
        }  # fmt: skip
        server = ControlServer(str(self.layout.containerd_control), operations)
        server.start()
        self.runtime.start()
        return server

    # ---- processes ------------------------------------------------------------------------------
    def _start(
        self, identity: str, name: str, command: tuple[str, ...], cgroup: str, log: Path,
        environ: Mapping[str, str],
    ) -> _Running:  # fmt: skip
        directory = self.layout.cgroup / cgroup
        is_sleeper = command[0] in SLEEPERS
        spawn = Spawn(
            group=self._group, name=name, log=str(log),
            module="" if is_sleeper else "tests.fakes.machine.programs",
            arguments=() if is_sleeper else command, execute=SLEEP if is_sleeper else (),
            command=command, environ=environ, proc=str(self.layout.proc),
            cgroup=str(directory), membership=self._tree.membership(cgroup),
        )  # fmt: skip
        child = self._processes.spawn(spawn)
        running = _Running(child=child, cgroup=directory, ended=threading.Event(), started=_wall())
        with self._changed:
            self._running[identity] = running
        return running

    def _watch(self, identity: str, running: _Running) -> None:
        self._note_change()
        self._in_background(self._wait_for_end, identity, running)

    def _wait_for_end(self, identity: str, running: _Running) -> None:
        code = running.child.wait(86400)
        # A shell's way, and runc's: 128 and the signal.
        running.exit_code = code if code >= 0 else 128 - code
        running.finished = _wall()
        shutil.rmtree(running.cgroup, ignore_errors=True)
        threading.Event().wait(LAG_SECONDS)
        with self.runtime.lock:
            container = self.runtime.containers.get(identity)
            sandbox = self.runtime.sandboxes.get(identity)
            if container is not None:
                container.state = api.CONTAINER_EXITED
            if sandbox is not None:
                sandbox.ready = False
        self.runtime.tell(identity)
        running.ended.set()
        self._note_change()

    def _end_container(self, container: FakeContainer, grace: int) -> None:
        running = self._running.get(container.id)
        if running is None:
            return
        if grace > 0:
            running.child.send(signal.SIGTERM)
            if running.ended.wait(grace):
                return
        running.child.send(signal.SIGKILL)
        running.ended.wait(30)

    def _end_sandbox(self, sandbox: FakeSandbox) -> None:
        running = self._running.get(sandbox.id)
        if running is not None:
            running.child.send(signal.SIGKILL)
            running.ended.wait(30)

    # ---- the picture ----------------------------------------------------------------------------
    def _note_change(self) -> None:
        with self._changed:
            self._version += 1
            self._changed.notify_all()

    def _sandbox(self, sandbox: FakeSandbox) -> Fields:
        return {
            "id": sandbox.id, "namespace": sandbox.namespace, "name": sandbox.name,
            "uid": sandbox.uid, "attempt": sandbox.attempt, "ready": sandbox.ready,
            "annotations": dict(sandbox.annotations), "created": sandbox.created_ns,
        }  # fmt: skip

    def _container(self, container: FakeContainer) -> Fields:
        running = self._running.get(container.id)
        return {
            "id": container.id, "sandbox": container.sandbox_id, "name": container.name,
            "attempt": container.attempt, "image": container.image,
            "running": container.state == api.CONTAINER_RUNNING,
            "created": container.state == api.CONTAINER_CREATED,
            "started": running.started if running else 0.0,
            "finished": running.finished if running else 0.0,
            "exit_code": running.exit_code if running else None,
        }  # fmt: skip

    @staticmethod
    def _in_background(target: object, *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - any bound method of this class


def _wall() -> float:
    return time.time_ns() / 1e9


def _new_id() -> str:
    return uuid.uuid4().hex + uuid.uuid4().hex


def _image_id(image: str) -> str:
    return "sha256:" + hashlib.sha256(image.encode()).hexdigest()


def main(arguments: list[str]) -> int:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", type=Path, required=True)
    parser.add_argument("--processes", required=True)
    parser.add_argument("--group", required=True)
    options = parser.parse_args(arguments)
    containerd = Containerd(Layout(options.node), Processes(options.processes), options.group)
    containerd.serve()
    print("serving", flush=True)
    threading.Event().wait()
    return 0
