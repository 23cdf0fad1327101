"""Lose the last API server and get it back, on an embedded node with the real daemon.

Nothing here is played: the daemon is the real one, started as systemd would start it; kubelet,
containerd, API server, scheduler and DaemonSet controller are the small stand-ins of tests/fakes,
each a process of its own that behaves as the real one was seen to behave.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

from tests.demo import stopwatch
from tests.demo.narrator import LogFollower, Narrator
from tests.demo.stopwatch import Prober
from tests.fakes import workloads
from tests.fakes.machine.processes import Forking
from tests.fakes.node import DEFAULT_TIMES, ROOT, Node
from tests.fakes.waiting import NotYetError, wait_for

TIMES = {
    **DEFAULT_TIMES,
    "answers-apart": "3s",
    "proven-after": "5s",
    "crash-back-off": "2s",
    "crash-back-off-most": "5s",
    "hand-back-ready": "1s",
}
"""All others are the defaults of a real node; these two would only make the story longer."""
NOTE = """
The stand-ins start in a moment: a real API server takes seconds more, and a real kubelet waits
longer before it starts a pod again that found its port taken (here 0.3, 2, then 5 s).
"""
SLOT = "ds.kube-apiserver"
MANIFESTS = "checkpointd.*.json"


@dataclass
class Figures:
    """Hold what was measured."""

    lines: list[tuple[str, str]] = field(default_factory=list["tuple[str, str]"])

    def add(self, what: str, seconds: float) -> None:
        """Note one time."""
        text = f"{seconds * 1000:.0f} ms" if seconds < 10 else f"{seconds:.1f} s"
        self.lines.append((what, text))


def main() -> int:
    """Tell the story and return the exit code."""
    narrator = Narrator()
    print(
        "checkpointd keeps a copy of the pods that were marked for it, and brings them back when\n"
        "nobody else can. Here the API server itself is such a pod, the only one of its cluster.\n"
        "Lines with | are the daemon's own log."
    )
    with Forking() as processes:
        with Node(
            processes, self_hosted=True, times=TIMES, fork_daemon=False, discovery=True
        ) as node:
            try:
                _tell(narrator, node)
            except (TimeoutError, RuntimeError, AssertionError) as error:
                narrator.say(f"The story does not come out: {error}", mark="!")
                print(node.tell())
                return 1
    narrator.say("Everything that was started has ended, and its directory is gone.")
    return 0


def _tell(narrator: Narrator, node: Node) -> None:
    figures = Figures()
    with LogFollower(narrator, node.layout.logs / "checkpointd.log"):
        _come_up(narrator, node)
        with Prober(node.api_port, node.layout.pki / "ca.crt") as prober:
            _lose_the_last(narrator, node, prober, figures)
            _return(narrator, node, prober, figures)
            _cut_power(narrator, node, prober, figures)
            _return_after_boot(narrator, node, prober, figures)
    narrator.chapter("Measured")
    for what, text in figures.lines:
        print(f"{what:<60}{text:>9}")
    print(NOTE)


def _come_up(narrator: Narrator, node: Node) -> None:
    narrator.chapter("1. A node with a self-hosted control plane")
    node.boot(daemon=False)
    workloads.self_host(node)
    pod = workloads.ready_pods(node, workloads.API_SERVER)[0]["metadata"]["name"]
    narrator.say(
        f"containerd, kubelet and the cluster's controllers run. DaemonSet kube-apiserver has one "
        f"pod, {pod}. It is Ready and serves the API on port {node.api_port}. Its annotation "
        f'checkpointd.io/checkpoint: "true" marks it.'
    )
    daemon = node.start_daemon()
    narrator.say(f"checkpointd runs (PID {daemon.pid}) and is ready.")
    wait_for("the checkpoint is stored and proven", lambda: _is_stored(node), 60)
    narrator.say("The checkpoint is stored: manifest and certificates. checkpointd status:")
    narrator.show(_run(node, "status"))


def _lose_the_last(narrator: Narrator, node: Node, prober: Prober, figures: Figures) -> None:
    narrator.chapter("2. The last API server is deleted")
    parent = workloads.ready_pods(node, workloads.API_SERVER)[0]
    name = parent["metadata"]["name"]
    pid = node.find_process(parent["metadata"]["uid"], workloads.API_SERVER)
    with (
        stopwatch.watch_death(pid) as death,
        stopwatch.watch_manifest(node.layout.manifests, MANIFESTS) as manifest,
    ):
        node.api.delete(f"{workloads.PODS}/{name}")
        narrator.say(f"Deleted: pod {name}. Nobody is left to schedule another one.")
        gone = death.wait("the API server's process ends", 20)
        placed = manifest.wait("the checkpoint is activated", 20)
    wait_for("the API answers again", lambda: prober.is_answering and prober.outages, 30)
    outage = prober.take()[0]
    narrator.say(
        f"The API answers again, from the copy: {node.manifests()[0].name}. Manifest in place "
        f"{(placed - gone) * 1000:.0f} ms after the last process had gone."
    )
    figures.add("deleted: last process gone -> manifest in place", placed - gone)
    figures.add("deleted: last process gone -> API answers", outage.ended - gone)


def _return(narrator: Narrator, node: Node, prober: Prober, figures: Figures) -> None:
    narrator.chapter("3. The real one returns, the copy steps aside")
    narrator.say(
        "With an API server there, the DaemonSet controller makes a new pod, the kubelet starts "
        "it. Both want the same port: the copy goes in the moment in which the new pod starts."
    )
    wait_for("the copy has stepped aside", lambda: _is_back(node), 90)
    new = workloads.ready_pods(node, workloads.API_SERVER)[0]["metadata"]["name"]
    outages = prober.take()
    gap = sum(outage.seconds for outage in outages)
    narrator.say(
        f"{new} serves the API. No manifest of a copy is left. The API was away {gap:.2f} s."
    )
    figures.add("hand-back: API away", gap)


def _return_after_boot(narrator: Narrator, node: Node, prober: Prober, figures: Figures) -> None:
    narrator.say("The kubelet learns from it of the real pod and starts it; the copy steps aside.")
    wait_for("the copy has stepped aside", lambda: _is_back(node), 90)
    gap = sum(outage.seconds for outage in prober.take())
    narrator.say(f"The real pod serves the API, which was away {gap:.2f} s. checkpointd status:")
    narrator.show(_run(node, "status"))
    figures.add("hand-back after the boot: API away", gap)


def _cut_power(narrator: Narrator, node: Node, prober: Prober, figures: Figures) -> None:
    narrator.chapter("4. Power cut, and a boot without any API server")
    node.power_cut()
    narrator.say("Everything on the node was killed at once; memory, /run and secrets are lost.")

    def before_kubelet() -> None:
        wait_for("the manifest is in place before the kubelet starts", node.manifests, 10)
        narrator.say("Booting. The manifest is in place; the kubelet has not been started yet.")

    with stopwatch.watch_manifest(node.layout.manifests, MANIFESTS) as manifest:
        node.boot(before_kubelet=before_kubelet)
        assert node.daemon is not None
        placed = manifest.wait("the checkpoint is activated", 10) - node.daemon.started
    narrator.say("The kubelet has started.")
    wait_for("the API answers again", lambda: prober.is_answering and prober.outages, 60)
    figures.add("boot: checkpointd started -> manifest in place", placed)
    figures.add("boot: power cut -> API answers", prober.take()[0].seconds)
    narrator.say("The API answers: the control plane has returned by itself.")


def _is_stored(node: Node) -> bool:
    checkpoint = node.checkpoint(SLOT)
    generation = checkpoint["generation"]
    return bool(checkpoint["serves_api"] and generation and generation["proven"])


def _is_back(node: Node) -> bool:
    if node.manifests():
        raise NotYetError(f"{node.manifests()[0].name} is there")
    phase = node.checkpoint(SLOT)["phase"]
    if phase != "stored":
        raise NotYetError(f"the checkpoint is {phase}")
    return bool(workloads.ready_pods(node, workloads.API_SERVER))


def _run(node: Node, *words: str) -> str:
    done = subprocess.run(
        node.command(*words), cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
