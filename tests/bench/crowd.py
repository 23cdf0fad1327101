"""Be an embedded node with as many pods as a real one has, and run the installed program on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.fakes import workloads
from tests.fakes.api_objects import Object
from tests.fakes.machine.processes import Processes
from tests.fakes.node import ROOT, Node
from tests.fakes.waiting import NotYetError, wait_for
from tests.integration import scenes

LIGHT = "/api/v1/namespaces/default/pods"
QUIET_KUBELET = ("--refresh=60", "--lease=10")
"""As seldom as a real one: its every second would be this machine's noise."""


@dataclass(frozen=True, slots=True)
class Program:
    """Hold where the program lies that ``make install`` made, and who runs it."""

    python: str
    library: Path

    def command(self, config: Path, times: Path | None) -> tuple[str, ...]:
        """Return the command line of the daemon; with ``times`` it notes manifests there."""
        if times is not None:
            script = str(Path(__file__).with_name("timed_daemon.py"))
            return (self.python, script, str(self.library), str(config), str(times))
        start = (
            f"import sys; sys.path.insert(0, {str(self.library)!r}); "
            "from checkpointd.__main__ import main; sys.exit(main())"
        )
        return (self.python, "-c", start, "run", "--config", str(config))


def install(python: str, directory: Path) -> Program:
    """Install the program below ``directory``, compiled for ``python``: not the work tree's.

    A work tree is often without bytecode, which costs a start half a second.
    """
    subprocess.run(
        ["make", "-s", "install", f"DESTDIR={directory}", f"NODE_PYTHON={python}"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return Program(python, directory / "usr/lib/checkpointd")


class Crowd(Node):
    """Hold a node of many pods. ``timed`` daemons note when a manifest is durable."""

    def __init__(
        self,
        processes: Processes,
        program: Program,
        *,
        times: Mapping[str, str | float],
        self_hosted: bool = False,
    ) -> None:
        super().__init__(
            processes,
            self_hosted=self_hosted,
            times=times,
            kubelet=QUIET_KUBELET,
            fork_daemon=False,
            discovery=True,
            below=None,  # on a disk: memory does not show what fsync costs
        )
        self.program = program
        self.timed = False
        self.uids: dict[str, str] = {}
        """The UID of each marked pod by its name."""

    def __enter__(self) -> Crowd:
        return self

    @property
    def times_file(self) -> Path:
        """Return where a timed daemon notes its manifests."""
        return self.layout.root / "times"

    def command(self, *words: str) -> tuple[str, ...]:
        """Return the command line of the installed program."""
        assert words == ("run",)
        return self.program.command(self.layout.config, self.times_file if self.timed else None)

    def start_elsewhere(self) -> None:
        """Start the node, with an API server that is no pod of it, but no daemon."""
        self.api_server.start()
        # Whose socket it is can be seen, as of a service: the daemon looks, as it is on loopback.
        self.proc.add(os.getpid())
        self.boot(daemon=False)

    def fill(self, pods: int, marked: int) -> None:
        """Create pods until there are so many, with that many marked ones; return when all run."""
        self.api.create(
            workloads.CONFIG_MAPS, workloads.config_map("site", {"index.html": scenes.SITE})
        )
        self.api.create(workloads.SECRETS, workloads.secret("keys", {"key": scenes.KEY}))
        for number in range(marked):
            made = scenes.create_pod(self, f"web-{number}", scenes.shareable(self.free_port()))
            self.uids[f"web-{number}"] = made["metadata"]["uid"]
        for number in range(pods - len(self.api.list("/api/v1/pods"))):
            self.api.create(LIGHT, _light(f"light-{number}", self.name))
        wait_for("all pods run", lambda: self._all_run(pods), 120, every=0.2)

    def wait_until_stored(self, count: int) -> None:
        """Wait until that many checkpoints are stored and nothing is left to do for them."""

        def are_stored() -> bool:
            found = [c for c in self.status()["checkpoints"] if c["generation"]]
            if len(found) < count or any(c["phase"] != "stored" for c in found):
                raise NotYetError(f"{len(found)} of {count}")
            return True

        wait_for("the checkpoints are stored", are_stored, 90, every=0.1)

    def durable(self) -> list[float]:
        """Return when each manifest was durable (time.monotonic), as far as there were any."""
        if not self.times_file.exists():
            return []
        return [float(line.split()[0]) for line in self.times_file.read_text().splitlines()]

    def _all_run(self, pods: int) -> bool:
        running = [
            pod
            for pod in self.api.list("/api/v1/pods")
            if pod.get("status", {}).get("phase") == "Running"
        ]
        if len(running) < pods:
            raise NotYetError(f"{len(running)} of {pods}")
        return True


def _light(name: str, node: str) -> Object:
    container = {"name": "main", "image": "registry.example/light:1", "command": ["pause"]}
    return {
        "metadata": {"name": name, "labels": {"app": "light"}},
        "spec": {"nodeName": node, "containers": [container]},
    }
