"""Be a whole small node on loopback, without root, for the demo and the integration tests.

Its kernel's books (proc, cgroups), containerd, kubelet, pods, an API server and the cluster's
controllers are real processes on real sockets and files; ``machine/`` has each of them. All lies
below one directory, which goes with the node:

    with Forking() as processes, Node(processes) as node:
        node.boot()
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import cast

from tests.fakes import pki
from tests.fakes.api_client import ApiClient
from tests.fakes.api_server import ApiServer
from tests.fakes.machine import control
from tests.fakes.machine.daemon import Daemon
from tests.fakes.machine.forking import Spawn
from tests.fakes.machine.layout import Layout
from tests.fakes.machine.processes import Child, Processes
from tests.fakes.manager import FakeManager
from tests.fakes.ports import Ports
from tests.fakes.proc_tree import ProcTree
from tests.fakes.waiting import NotYetError, wait_for

NAME = "node-1"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where nodes lie: what a SIGKILL loses is the same on every file system, and this one is fast."""
ROOT = Path(__file__).resolve().parents[2]
SHORT_TIMES: Mapping[str, str | float] = {
    "refused-within": "2s",
    "silent-for": "1500ms",
    "answers-apart": "1s",
    "boot-hold": "1s",
    "boot-hold-blocking": "2s",
    "boot-hold-at-most": "3s",
    "jitter": 0,
    "tombstone-hold": "1s",
    "cut-off": "1s",
    "lease-stale": "2s",
    "unlisted-for": "1s",
    "hand-back": "8s",
    "hand-back-exits": 3,
    "hand-back-ready": "1s",
    "crash-back-off": "2s",
    "crash-back-off-most": "5s",
    "retire-daemon-set": "1s",
    "retire-node-deleted": "2s",
    "retire-store": "1s",
    "min-dwell": "1s",
    "start-deadline": "4s",
    "offer-again": "1s",
    "offer-again-most": "2s",
    "proven-after": "1s",
    "stop-quiet": "1s",
    "stop-extra": "1s",
}
"""[times] of the tests: the same rules, in seconds where a node has minutes."""


DEFAULT_TIMES: Mapping[str, str | float] = {}
"""[times] of a real node: nothing is set."""


class Node:
    """Hold one node. With ``self_hosted`` its API server is a pod, else it stands elsewhere.

    ``times`` are SHORT_TIMES if not given, ``settings`` are lines of TOML for other sections.
    ``kubelet`` are further arguments of the embedded kubelet (``machine.kubelet``). Without
    ``fork_daemon`` the daemon is started as in production. Without ``discovery`` node name and
    kubeconfig are set: the first contact is then a second earlier. ``environ`` is the daemon's. The
    node lies ``below`` a directory, None: that of temporary files.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        self_hosted: bool = False,
        times: Mapping[str, str | float] | None = None,
        settings: str = "",
        kubelet: tuple[str, ...] = (),
        fork_daemon: bool = True,
        discovery: bool = False,
        environ: Mapping[str, str] | None = None,
        below: str | None = MEMORY,
    ) -> None:
        self.processes = processes
        self.name = NAME
        self.self_hosted = self_hosted
        self._directory = tempfile.TemporaryDirectory(prefix="cpd-", dir=below)
        self.layout = Layout(Path(self._directory.name))
        self.layout.make()
        self.group = self.layout.root.name
        self._clean_up = contextlib.ExitStack()
        self._ports = self._clean_up.enter_context(Ports())
        self.api_port = self.free_port()
        self.ports = {flag: self.free_port() for flag in ("port", "healthz-port")}
        self.read_only_port = 0
        self.manager: FakeManager | None = None
        self.containerd: Child | None = None
        self.kubelet: Child | None = None
        self.daemon: Daemon | None = None
        self._kubelet_arguments = kubelet
        self._fork_daemon = fork_daemon
        self._discovery = discovery
        self._environ = dict(environ or {})
        self._certificates = pki.shared(self.name)
        self._certificates.write(self.layout.pki)
        url = f"https://127.0.0.1:{self.api_port}"
        config = pki.kubeconfig(url, self._certificates.ca.certificate, self._certificates.node)
        self.layout.kubeconfig.write_bytes(config)
        self.layout.kubeconfig.chmod(0o600)
        self.api_server = ApiServer(self._certificates, port=self.api_port, node_name=self.name)
        self.api_server.granted.add("daemonsets")
        self.proc = self._clean_up.enter_context(ProcTree(self.layout.proc))
        self.api = ApiClient(self.api_port, self.layout.pki)
        """A client with every right."""
        self._clean_up.callback(self.api.close)
        self.write_config(SHORT_TIMES if times is None else times, settings)

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.processes.kill_group(self.group)
            self.processes.kill_group(f"{self.group}-cluster")
            self._close_children()
            self.api_server.stop()
            if error is not None:
                print(self.tell())
        finally:
            if self.manager is not None:
                self.manager.close()
            self._clean_up.close()
            self._directory.cleanup()

    def free_port(self) -> int:
        """Return a port that is this node's until its end."""
        return self._ports.take()

    # ---- the machine ----------------------------------------------------------------------------
    def boot(self, *, daemon: bool = True, before_kubelet: Callable[[], object] = int) -> None:
        """Start the machine: containerd, the daemon, then the kubelet, as systemd orders them.

        The first time the daemon comes last, as on a node on which it is installed: it does not
        know yet where this node's kubelet has its things.
        """
        is_installed = (self.layout.state / "node.json").exists()
        self.layout.boot_id.write_text(f"{uuid.uuid4()}\n")
        self._start_pid1()
        self.start_containerd()
        if daemon and is_installed:
            self.start_daemon()
        before_kubelet()
        self.start_kubelet()
        if daemon and not is_installed:
            self.start_daemon()

    def power_cut(self) -> None:
        """Let everything of this machine die at once; what was in memory is gone."""
        self.processes.kill_group(self.group)
        self._close_children()
        if self.manager is not None:
            self.manager.close()
            self.manager = None
        shutil.rmtree(self.layout.volatile)
        self.layout.volatile.mkdir()
        shutil.rmtree(self.layout.cgroup, ignore_errors=True)
        for entry in self.layout.proc.iterdir():
            if entry.name.isdecimal():
                shutil.rmtree(entry)
        # tmpfs: facts K-19. The kubelet's configMap volumes lie on disk.
        for volume in self.layout.kubelet.glob("pods/*/volumes/kubernetes.io~secret"):
            shutil.rmtree(volume)

    def _start_pid1(self) -> None:
        if self.manager is None:
            self.manager = FakeManager(self.layout.manager)
        pid1 = self.layout.proc / "1"
        pid1.mkdir()
        (pid1 / "comm").write_text("systemd\n")
        (pid1 / "cgroup").write_text("0::/init.scope\n")

    # ---- its services ---------------------------------------------------------------------------
    def start_containerd(self) -> None:
        """Start the container runtime."""
        arguments = (
            f"--node={self.layout.root}",
            f"--processes={self.processes.path}",
            f"--group={self.group}",
        )
        self.containerd = self._spawn("containerd", "/usr/bin/containerd", arguments)
        self._wait_for_word("containerd")

    def start_kubelet(self, *, api_port: int = 0) -> None:
        """Start the kubelet; another ``api_port`` cuts it off from the API server."""
        layout = self.layout
        flags = (
            f"--kubeconfig={layout.kubeconfig}",
            f"--pod-manifest-path={layout.manifests}",
            f"--hostname-override={self.name}",
            f"--container-runtime-endpoint=unix://{layout.cri_socket}",
            f"--root-dir={layout.kubelet}",
            f"--read-only-port={self.read_only_port}",
            "--address=127.0.0.1",
            *(f"--{flag}={port}" for flag, port in self.ports.items()),
        )
        known = tuple(f for f in flags if "port=" in f or "hostname" in f)
        more = (
            *known,
            f"--node-directory={layout.root}",
            f"--api-port={api_port or self.api_port}",
            *self._kubelet_arguments,
        )
        self.kubelet = self._spawn("kubelet", "/usr/bin/kubelet", more, shown=flags)
        self._wait_for_word("kubelet")

    def kill_kubelet(self) -> None:
        """End the kubelet; its pods run on."""
        assert self.kubelet is not None
        self.kubelet.kill()
        (self.layout.logs / "kubelet.log").rename(self.layout.logs / f"kubelet.{uuid.uuid4()}.log")

    def start_controllers(self) -> None:
        """Start scheduler and DaemonSet controller; a power cut does not reach them."""
        arguments = (
            f"--api-port={self.api_port}",
            f"--pki={self.layout.pki}",
            f"--node={self.name}",
        )
        child = self.processes.spawn(
            Spawn(
                group=f"{self.group}-cluster",
                name="controllers",
                log=str(self.layout.logs / "controllers.log"),
                module="tests.fakes.machine.controllers",
                arguments=arguments,
            )
        )
        self._clean_up.callback(child.close)

    def runtime_fault(self, kind: str, *methods: str) -> None:
        """Let the CRI hang, fail, garble, refuse, or ("") work again."""
        path = str(self.layout.containerd_control)
        control.ask(path, "fault", kind=kind, methods=list(methods))

    def ask_containerd(self, operation: str, **fields: object) -> control.Fields:
        """Ask the runtime's other socket."""
        return control.ask(str(self.layout.containerd_control), operation, **fields)

    def kubelet_fault(self, kind: str, *, value: bool = True) -> None:
        """Let 10250 ``allow`` us, healthz be ``healthy``, or pod-resources hang ("pods")."""
        control.ask(str(self.layout.kubelet_control), "fault", kind=kind, value=value)

    # ---- the daemon -----------------------------------------------------------------------------
    def write_config(self, times: Mapping[str, str | float], settings: str = "") -> None:
        """Write the daemon's configuration."""
        layout = self.layout
        paths = {
            "proc": layout.proc,
            "cgroup": layout.cgroup,
            "state": layout.state,
            "run": layout.volatile,
            "boot-id": layout.boot_id,
            "manager-socket": layout.manager,
        }
        lines = ["[paths]", *(f'{name} = "{path}"' for name, path in paths.items()), "[times]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in times.items()]
        if not self._discovery:
            lines += ["[node]", f'name = "{self.name}"']
            lines += ["[kubelet]", f'kubeconfig = "{layout.kubeconfig}"']
        layout.config.write_text("\n".join([*lines, settings, ""]))

    def start_daemon(self, *arguments: str, ready: bool = True) -> Daemon:
        """Start the daemon, and wait until it is ready.

        ``arguments`` are those of ``faulty_daemon``.
        """
        fork = self._fork_daemon or bool(arguments)
        spawn = Spawn(
            group=self.group,
            name="checkpointd",
            log=str(self.layout.logs / "checkpointd.log"),
            module="tests.fakes.faulty_daemon" if fork else "",
            arguments=(str(self.layout.config), *arguments) if fork else (),
            execute=() if fork else self.command("run"),
            command=("/usr/bin/checkpointd", "run"),
            environ=self._environ,
            proc=str(self.layout.proc),
            membership="0::/system.slice/checkpointd.service\n",
            directory=str(ROOT),
        )
        if self.daemon is not None:
            self.daemon.close()
        self.daemon = Daemon(self.processes, spawn, self.layout.notify)
        if ready:
            self.daemon.wait_until_ready()
        return self.daemon

    def command(self, *words: str) -> tuple[str, ...]:
        """Return a command line of the program, on this node."""
        return (sys.executable, "-m", "checkpointd", *words, "--config", str(self.layout.config))

    def override(self, target: str, verb: str) -> None:
        """Write an operator's word: ``node`` or ``<namespace>.<slot>``; "" takes it back."""
        path = self.layout.state / "overrides" / f"{target}.json"
        if not verb:
            path.unlink()
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(json.dumps({"verb": verb, "until": "", "reason": "a test"}))
        fresh.rename(path)

    def status(self) -> control.Fields:
        """Read what the daemon says. Raises NotYetError where there is nothing yet."""
        path = self.layout.volatile / "status.json"
        if not path.exists():
            raise NotYetError("no status.json")
        return cast("control.Fields", json.loads(path.read_text()))

    def checkpoint(self, slot: str) -> control.Fields:
        """Return what the status says of one slot. Raises NotYetError where it does not know it."""
        checkpoints = self.status()["checkpoints"]
        for checkpoint in checkpoints:
            if checkpoint["slot"] == slot:
                return cast("control.Fields", checkpoint)
        raise NotYetError(f"no checkpoint {slot}")

    # ---- what can be seen -----------------------------------------------------------------------
    def find_process(self, uid: str, name: str) -> int:
        """Return the PID of a program in a pod. Raises NotYetError where there is none."""
        slices = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort"
        directory = self.layout.cgroup / f"{slices}-pod{uid.replace('-', '_')}.slice"
        for procs in directory.glob("*/cgroup.procs"):
            for pid in procs.read_text().split():
                comm = self.layout.proc / pid / "comm"
                if comm.exists() and comm.read_text().rstrip() == name[:15]:
                    return int(pid)
        raise NotYetError(f"no process {name} in pod {uid}")

    def manifests(self) -> list[Path]:
        """Return the daemon's manifests, in lexical order."""
        return sorted(self.layout.manifests.glob("checkpointd.*.json"))

    def log(self, name: str = "checkpointd") -> str:
        """Return the log of a process."""
        path = self.layout.logs / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def tell(self) -> str:
        """Return all logs, for a test that failed."""
        logs = sorted(self.layout.logs.glob("*.log"))
        return "\n".join(f"---- {path.name}\n{path.read_text()[-6000:]}" for path in logs)

    def _spawn(
        self, name: str, program: str, arguments: tuple[str, ...], shown: tuple[str, ...] = ()
    ) -> Child:
        return self.processes.spawn(
            Spawn(
                group=self.group,
                name=name,
                log=str(self.layout.logs / f"{name}.log"),
                module=f"tests.fakes.machine.{name}",
                arguments=arguments,
                command=(program, *(shown or arguments)),
                proc=str(self.layout.proc),
                membership=f"0::/system.slice/{name}.service\n",
            )
        )

    def _wait_for_word(self, name: str) -> None:
        log = self.layout.logs / f"{name}.log"
        wait_for(f"{name} serves", lambda: "serving" in log.read_text() or None)

    def _close_children(self) -> None:
        for child in (self.containerd, self.kubelet):
            if child is not None:
                child.close()
        if self.daemon is not None:
            self.daemon.close()
        self.containerd = self.kubelet = self.daemon = None
