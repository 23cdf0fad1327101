"""Measure the first rows of the budget on the real node: `make bench BENCH=--real-node` (root).

The node is that of `tests/e2e`: systemd, containerd, a kubelet and a control plane in a container,
with the daemon as its unit, but for the command line: when a manifest is durable is written down.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.bench.figures import Rounds, Row
from tests.bench.latency import LIMITS
from tests.e2e.conftest import closing_machines
from tests.e2e.node import cluster, daemon, measure, objects, workloads
from tests.e2e.node.api import PODS
from tests.e2e.node.cluster import Cluster
from tests.e2e.node.daemon import Daemon
from tests.e2e.node.machine import Cache, Machine, remove_leftovers
from tests.e2e.node.waiting import NotYetError, wait_for

LIGHT = "/api/v1/namespaces/default/pods"
TIMES = "/run/checkpointd/times"
SCRIPT = "/usr/local/lib/timed_daemon.py"
SLOT = f"ds.{workloads.API_SERVER}"
SETTINGS = {"times": {"answers-apart": '"1s"'}}
FILLED = 900.0
"""Seconds for a hundred pods: the kubelet writes five words a second to its API server."""
SETTLED = 300.0


class RealNode:
    """Hold the machine, its cluster and its daemon."""

    def __init__(self, machine: Machine, directory: Path) -> None:
        self.machine = machine
        self.cluster = Cluster(machine, directory)
        self.daemon = Daemon(machine)

    def start(self) -> None:
        """Start all, the API server as a service."""
        cluster.install_base(self.machine)
        self.cluster.install_control_plane()
        self.cluster.install_kubelet(self.machine)
        self.cluster.wait_for_node(self.machine)
        script = Path(__file__).with_name("timed_daemon.py").read_text(encoding="utf-8")
        self.machine.write(SCRIPT, script)
        start = f"/usr/bin/python3 {SCRIPT} /usr/lib/checkpointd"
        self.machine.write(
            "/etc/systemd/system/checkpointd.service.d/timed.conf",
            f"[Service]\nExecStart=\nExecStart={start} /etc/checkpointd/checkpointd.toml {TIMES}\n",
        )
        self.daemon.install(SETTINGS)

    def fill(self, pods: int, marked: int) -> dict[str, str]:
        """Create pods, some of them marked; return the UIDs of these by name when all run."""
        names = [f"web-{number}" for number in range(marked)]
        for name in names:
            self.cluster.api.create(PODS, _sleeper(name, self.machine.name, workloads.MARK))
        for number in range(pods - marked):
            light = _sleeper(f"light-{number}", self.machine.name, {})
            self.cluster.api.create(LIGHT, light)
        wait_for("all pods run", lambda: self._all_run(pods), FILLED, 1.0)
        self.wait_until_stored(names)
        listed = objects.items(self.cluster.api.get(PODS), "items")
        uids = {objects.text(pod, "metadata", "name"): pod for pod in listed}
        return {name: objects.text(uids[name], "metadata", "uid") for name in names}

    def wait_until_stored(self, names: list[str]) -> None:
        """Wait until the checkpoints of these pods are stored and no copy of them is active."""
        for name in names:
            self.wait_for(f"pod.{name}", "stored", daemon.is_stored)

    def wait_for(self, slot: str, what: str, holds: Callable[[object], bool]) -> None:
        """Wait until something holds of a slot's checkpoint."""
        self.daemon.wait_for_checkpoint(slot, what, holds, SETTLED)

    def wait_for_api_server(self) -> object:
        """Return the API server's pod once it is Ready, stored, and known to serve the API."""
        pod = wait_for(
            "the API server's pod is Ready",
            lambda: workloads.ready_pod(self.cluster, workloads.API_SERVER),
            SETTLED,
        )
        self.daemon.wait_until_stored(SLOT, pod, SETTLED)
        self.wait_for(SLOT, "known to serve the API", daemon.serves_api)
        return pod

    def durable(self) -> list[float]:
        """Return when each manifest was durable (time.monotonic) since the boot."""
        try:
            lines = self.machine.path(TIMES).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [float(line.split()[0]) for line in lines]

    def next_durable(self, before: int) -> float:
        """Return when the first manifest after ``before`` of them was durable."""

        def first() -> float | None:
            return next(iter(self.durable()[before:]), None)

        return wait_for("a manifest is durable", first, 60, 0.05)

    def _all_run(self, pods: int) -> bool:
        listed = [
            pod
            for path in (PODS, LIGHT)
            for pod in objects.items(self.cluster.api.get(path), "items")
        ]
        running = [pod for pod in listed if objects.find(pod, "status", "phase") == "Running"]
        if len(running) < pods:
            raise NotYetError(f"{len(running)} of {pods} run")
        return True


def _sleeper(name: str, node: str, annotations: dict[str, str]) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "registry.local/busybox:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sleep", "1000000"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }


# ---- the rows ------------------------------------------------------------------------------------
def measure_node(pods: int, marked: int, rounds: Rounds) -> Iterator[Row]:
    """Yield the rows of a real node of so many pods, the API server's among them at last."""
    if os.geteuid() != 0:
        sys.exit("the real node needs root")
    cache = Cache.find()
    remove_leftovers(cache)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        make = stack.enter_context(closing_machines("bench", cache, lambda: False))
        node = RealNode(make("master", "10.99.0.1/24"), Path(directory) / "pki")
        node.start()
        uids = node.fill(pods - 1, marked - 1)
        yield _measure_silent(node, pods, uids)
        node.machine.sh(f"systemctl start {workloads.API_SERVER}")
        node.wait_until_stored(list(uids))
        workloads.become_self_hosted(node.cluster)
        yield _measure_deleted(node, pods, rounds.real_deletions)
        yield from _measure_boot(node, pods, rounds.real_boots)


def _measure_silent(node: RealNode, pods: int, uids: dict[str, str]) -> Row:
    """Kill the marked pods one by one while API server and kubelet have forgotten them."""
    node.machine.sh(f"systemctl stop {workloads.API_SERVER} && systemctl restart kubelet")
    samples: list[float] = []
    for name, uid in uids.items():
        node.wait_for(f"pod.{name}", "not known to the kubelet", _is_unmanaged)
        before = len(node.durable())
        pid = measure.only_process(node.machine, uid, "sleep")
        deaths = measure.DeathWatch([pid])
        os.kill(pid, signal.SIGKILL)
        samples.append(node.next_durable(before) - deaths.wait(30))
        node.wait_for(f"pod.{name}", "its copy runs", _is_serving)
    return _row(pods, "3a, hold 0: last process gone to manifest durable", samples, LIMITS)


def _is_unmanaged(checkpoint: object) -> bool:
    runs = daemon.answer(checkpoint, "does parent or successor run?")
    managed = daemon.answer(checkpoint, "will the kubelet restart it?")
    return runs.startswith("yes;") and managed.startswith("no;")


def _is_serving(checkpoint: object) -> bool:
    return objects.text(checkpoint, "phase") == "serving"


def _measure_deleted(node: RealNode, pods: int, rounds: int) -> Row:
    """Delete the API server's pod again and again."""
    samples: list[float] = []
    for _ in range(rounds):
        pod = node.wait_for_api_server()
        uid, name = (objects.text(pod, "metadata", key) for key in ("uid", "name"))
        before = len(node.durable())
        pids = measure.processes_of(node.machine, uid, workloads.API_SERVER)
        deaths = measure.DeathWatch(pids)
        node.cluster.api.delete(f"{PODS}/{name}")
        samples.append(node.next_durable(before) - deaths.wait(60))
    return _row(pods, "3b: last process gone to manifest durable", samples, LIMITS)


def _measure_boot(node: RealNode, pods: int, rounds: int) -> Iterator[Row]:
    """Cut the power and boot: is the API server's manifest there before the kubelet starts."""
    late: list[float] = []
    taken: list[float] = []
    for _ in range(rounds):
        node.wait_for_api_server()
        node.machine.power_cut()
        node.machine.boot()
        placed = node.next_durable(0)
        late.append(placed - node.machine.started_at("kubelet"))
        taken.append(placed - node.machine.started_at("checkpointd"))
    yield _row(pods, "boot without API: kubelet's start to manifest durable", late, (0, 0))
    yield _row(pods, "boot without API: our start to manifest durable", taken)


def _row(pods: int, what: str, seconds: list[float], limits: tuple[float, ...] = ()) -> Row:
    samples = tuple(value * 1000 for value in seconds)
    return Row(pods=pods, what=f"real node: {what}", unit="ms", samples=samples, limits=limits)
