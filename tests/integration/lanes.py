"""Run many daemons side by side on one embedded node, each with a disk of its own: lanes.

They share kubelet, runtime, API server and one parent; store, static-pod directory, /run, boot id
(it makes the copies' UIDs) and configuration are each lane's own. So one node serves the proof that
a daemon may be killed at every system call.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import cast

from tests.fakes.machine.control import Fields
from tests.fakes.machine.forking import Spawn
from tests.fakes.machine.processes import Child
from tests.fakes.node import ROOT, Node

SLOT = "pod.web"


class Lane:
    """Hold one daemon's part of the node; ``number`` is its fault point, from 1."""

    def __init__(self, node: Node, number: int, times: str) -> None:
        self.node = node
        self.number = number
        self.root = node.layout.root / "lanes" / str(number)
        self.state = self.root / "state"
        self.manifests = self.root / "manifests"
        self.log = self.root / "log"
        self.daemon: Child | None = None
        for directory in (self.state, self.manifests, self.root / "run"):
            directory.mkdir(parents=True)
        (self.root / "boot_id").write_text(f"{uuid.uuid4()}\n")
        layout = node.layout
        (self.root / "config").write_text(
            f'''
            [paths]
            proc = "{layout.proc}"
            cgroup = "{layout.cgroup}"
            state = "{self.state}"
            run = "{self.root / "run"}"
            boot-id = "{self.root / "boot_id"}"
            manager-socket = "{layout.manager}"
            [node]
            name = "{node.name}"
            [kubelet]
            kubeconfig = "{layout.kubeconfig}"
            manifest-dir = "{self.manifests}"
            [times]
            {times}
            '''
        )

    def start(self, moment: str = "", at: int = 0) -> None:
        """Start the daemon; with ``moment`` it dies before or after its ``at``-th system call."""
        fault = (f"--kill={moment}", f"--at={at}") if moment else ()
        self.close()
        self.daemon = self.node.processes.spawn(
            Spawn(
                group=self.node.group,
                name="checkpointd",
                log=str(self.log),
                module="tests.fakes.faulty_daemon",
                arguments=(str(self.root / "config"), *fault),
                directory=str(ROOT),
            )
        )

    @property
    def is_dead(self) -> bool:
        """Tell whether its daemon has ended."""
        return self.daemon is not None and not self.daemon.is_alive

    def kill(self) -> None:
        """End its daemon with SIGKILL."""
        if self.daemon is not None:
            self.daemon.kill()

    def close(self) -> None:
        """Let go of its daemon."""
        if self.daemon is not None:
            self.daemon.close()
            self.daemon = None

    # ---- what its disk says ---------------------------------------------------------------------
    def checkpoint(self) -> Fields:
        """Return the body of state.json, {} where there is none."""
        path = self.state / "checkpoints" / "kube-system" / SLOT / "state.json"
        try:
            return cast("Fields", json.loads(path.read_text())["body"])
        except FileNotFoundError:
            return {}

    def placed(self) -> list[Path]:
        """Return the manifests that a kubelet sees."""
        return sorted(self.manifests.glob("[!.]*"))

    def active(self) -> list[Path]:
        """Return the directories of activations."""
        return sorted(self.state.glob("checkpoints/*/*/active/*"))

    def leftovers(self) -> list[Path]:
        """Return what an interrupted daemon left under its temporary names."""
        found = [*self.state.rglob(".checkpointd-*"), *self.manifests.glob(".*")]
        return sorted(found)
