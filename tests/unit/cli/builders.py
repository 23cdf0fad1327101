"""Build pictures of a node, so that a test states only what matters to it."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from checkpointd.clock import Clock
from checkpointd.model.checkpoint import Phase, Transition
from checkpointd.model.evidence import Api, Is
from checkpointd.model.files import CopyKind, Refusal
from checkpointd.model.moments import Instant
from checkpointd.model.observation import Override, Verb
from checkpointd.model.status import (
    ActivationStatus,
    AnswerStatus,
    ApiStatus,
    CheckpointStatus,
    GenerationStatus,
    IgnoredStatus,
    KubeletStatus,
    NextStatus,
    NodeStatus,
    OrderStatus,
    PodStatus,
    RefusedStatus,
    RuntimeStatus,
    SourceState,
    SourceStatus,
    WaitingStatus,
    WitnessStatus,
)
from checkpointd.store import status as status_file

BOOT = "5f0c2b9a-0000-4000-8000-000000000001"
NOW = Instant(boot_id=BOOT, seconds=100000.0, wall="2026-03-01T12:00:00.000Z")


def before(seconds: float, now: Instant = NOW) -> Instant:
    """Return an instant so many seconds before now, of the same boot."""
    return dataclasses.replace(now, seconds=now.seconds - seconds)


def checkpoint(slot: str = "ds.kube-apiserver", now: Instant = NOW) -> CheckpointStatus:
    """Return a stored checkpoint with everything filled in."""
    name = slot.partition(".")[2]
    return CheckpointStatus(
        namespace="kube-system",
        slot=slot,
        phase=Phase.STORED,
        since=before(3600, now),
        kind=CopyKind.EXCLUSIVE,
        rule="1",
        sentence="the parent runs; nothing to do",
        parent=PodStatus(name=f"{name}-x7k2p", uid="uid-1"),
        serves_api=True,
        generation=GenerationStatus(hash="0a1b2c3d4e5f", stored=before(7200, now), proven=True),
        generations=2,
        evidence=(
            AnswerStatus(
                question="does the parent run?",
                answer="yes",
                witnesses=(
                    WitnessStatus(source="runtime", says="2 containers run", at=before(2, now)),
                    WitnessStatus(source="kernel", says="3 processes", at=before(65, now)),
                ),
            ),
        ),
        history=(
            Transition(
                at=before(3600, now),
                before=Phase.YIELDING,
                after=Phase.STORED,
                rule="4 done",
                sentence="the parent is Ready and the copy is gone",
            ),
        ),
    )


def serving(slot: str = "ds.kube-apiserver", now: Instant = NOW) -> CheckpointStatus:
    """Return a checkpoint whose copy serves."""
    return dataclasses.replace(
        checkpoint(slot, now),
        phase=Phase.SERVING,
        since=before(90, now),
        rule="3b",
        sentence="the API server's last pod was deleted and no API server answers",
        next=NextStatus(what="hand back when a successor may start"),
        activation=ActivationStatus(
            name="kube-apiserver-x7k2p-c1f2",
            uid="uid-copy",
            file="checkpointd.kube-system.kube-apiserver-x7k2p-c1f2.json",
            since=before(92, now),
            rule="3b",
        ),
    )


def refused() -> RefusedStatus:
    """Return a marked pod that cannot be checkpointed."""
    return RefusedStatus(
        namespace="kube-system",
        name="web-0",
        refusals=(
            Refusal(
                field="spec.volumes[1].persistentVolumeClaim",
                reason="a static pod may not reference a claim",
                remedy="use a hostPath or an emptyDir",
            ),
        ),
    )


def waiting() -> WaitingStatus:
    """Return a marked pod that has no checkpoint yet."""
    return WaitingStatus(namespace="kube-system", name="dns-1", why="volume certs: not filled yet")


def node(*checkpoints: CheckpointStatus, now: Instant = NOW) -> NodeStatus:
    """Return a healthy node."""
    return NodeStatus(
        node="worker-1",
        boot_id=now.boot_id,
        version="0.1.0",
        pid=os.getpid(),
        started=before(5000, now),
        written=before(12, now),
        summary="all is well",
        api=ApiStatus(state=Api.TRUSTED, since=before(4000, now), address="10.0.0.1:6443"),
        kubelet=KubeletStatus(
            present=Is.YES, answers=Is.YES, pid=77, since=before(4500, now), version="v1.20.2"
        ),
        runtime=RuntimeStatus(version="containerd 1.6.20", api="runtime.v1", socket="/run/c.sock"),
        sources=(SourceStatus(name="runtime", state=SourceState.SEEN, at=before(3, now)),),
        checkpoints=checkpoints,
    )


def everything(now: Instant = NOW) -> NodeStatus:
    """Return a node with something in each field."""
    return dataclasses.replace(
        node(serving(now=now), checkpoint("pod.dns", now), now=now),
        refused=(refused(),),
        waiting=(waiting(),),
        ignored=(IgnoredStatus(namespace="edge", name="web", note="not a listed namespace"),),
        orders=(OrderStatus(target="node", order=Override(verb=Verb.HOLD, until="", reason="x")),),
        alarms=("the configuration is faulty: the last good one holds",),
        frozen="PID 1 says stopping",
    )


@dataclass(frozen=True)
class Machine:
    """Stand for a node's files: a configuration, a boot id, a /proc and a run directory."""

    root: Path

    @property
    def config(self) -> Path:
        """Return the configuration's file."""
        return self.root / "checkpointd.toml"

    @property
    def status_file(self) -> Path:
        """Return where status.json lies."""
        return self.root / "run/status.json"

    def now(self) -> Instant:
        """Return the present moment of this machine's boot."""
        return Clock(self.root / "boot_id").now()

    def write(self, status: NodeStatus) -> None:
        """Write status.json as the daemon does."""
        self.status_file.write_bytes(status_file.write_status(status))

    def process(self, pid: int, started: float, state: str = "S") -> None:
        """Let /proc show a process that started so many seconds after the boot."""
        folder = self.root / f"proc/{pid}"
        folder.mkdir(parents=True, exist_ok=True)
        ticks = int(started * os.sysconf("SC_CLK_TCK"))
        fields = [state, *["0"] * 18, str(ticks), "0"]
        (folder / "stat").write_text(f"{pid} (python3 (x) y) {' '.join(fields)}\n")


def machine(root: Path) -> Machine:
    """Lay out a machine without status.json."""
    for name in ("run", "proc", "state"):
        (root / name).mkdir()
    (root / "boot_id").write_text(BOOT + "\n")
    places = {"proc": "proc", "run": "run", "state": "state", "boot-id": "boot_id"}
    lines = [f'{option} = "{root / name}"\n' for option, name in places.items()]
    (root / "checkpointd.toml").write_text("[paths]\n" + "".join(lines))
    return Machine(root)
