"""Be what surrounds the daemon: API server, controllers, kubelet and the processes of pods.

It behaves as the kubelet facts say where decisions rest on them: API pods are forgotten by a
restarted kubelet until the API answers it (K-13); it then neither restarts nor stops anything of
theirs (K-17, K-18); a removed manifest's pod runs on while that is so; a pod whose port is taken
crashes and backs off.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from checkpointd.model.files import CopyKind
from checkpointd.model.moments import Instant
from checkpointd.model.observation import (
    ManifestFile,
    Override,
    Verb,
)
from checkpointd.model.pods import ApiPod, Controller, Slot
from tests.builders import observations as build

TICK = 2.0
IMAGE = "registry.example/api:1"
GRACE = 4.0
BACK_OFF = (0, 10, 20, 40, 80, 160, 300)


@dataclass
class Process:
    """One pod's containers and sandbox as they truly are."""

    uid: str
    slot: Slot
    is_copy: bool
    running: bool = False
    since: float = 0.0
    attempts: int = 0
    next_try: float = 0.0
    sandbox: bool = True

    @property
    def container_id(self) -> str:
        """Name the container of the last attempt."""
        return f"container-{self.uid}-{self.attempts}"


@dataclass(frozen=True)
class Workload:
    """What a user deployed: a DaemonSet's pod, or a pod that somebody else makes."""

    name: str
    controller: Controller | None
    kind: CopyKind
    serves: bool = False

    @property
    def slot(self) -> Slot:
        """Return the slot of the first pod."""
        return build.pod(f"{self.name}-1", controller=self.controller).slot


def daemon_set(name: str) -> Controller:
    """Return a DaemonSet's reference."""
    return Controller(api_version="apps/v1", kind="DaemonSet", name=name)


API = Workload("api", daemon_set("api"), CopyKind.EXCLUSIVE, serves=True)
INGRESS = Workload("ingress", daemon_set("ingress"), CopyKind.BLOCKING)
PROXY = Workload("proxy", daemon_set("proxy"), CopyKind.EXCLUSIVE)
DNS = Workload("dns", daemon_set("dns"), CopyKind.SHAREABLE)
WEB = Workload("web", None, CopyKind.EXCLUSIVE)


@dataclass
class Surroundings:
    """The node but for our daemon. Every public method is one thing that may happen."""

    workloads: tuple[Workload, ...]
    now: float = 50.0
    boot: int = 1
    api: str = "ok"
    world: str = "known"
    api_pods: dict[str, ApiPod] = field(default_factory=dict[str, ApiPod])
    wants: set[str] = field(default_factory=set[str])
    kubelet_since: float | None = 10.0
    kubelet_pid: int = 1
    kubelet_due: float = 0.0
    synced: bool = False
    known: dict[str, ApiPod] = field(default_factory=dict[str, ApiPod])
    placed: dict[str, ManifestFile] = field(default_factory=dict[str, ManifestFile])
    processes: dict[str, Process] = field(default_factory=dict[str, Process])
    blind: set[str] = field(default_factory=set[str])
    manager: str = "running"
    cut_off: bool = False
    orders: dict[str, Override] = field(default_factory=dict[str, Override])
    broken_disk: bool = False
    broken_pods: set[str] = field(default_factory=set[str])
    made: int = 0
    replace_after: float = 6.0
    ending: dict[str, float] = field(default_factory=dict[str, float])
    missing_since: dict[str, float] = field(default_factory=dict[str, float])
    versions: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.wants = {work.name for work in self.workloads}
        for work in self.workloads:
            self._create(work)
        self.known, self.synced = dict(self.api_pods), True

    # ---- what may happen -------------------------------------------------------------------------
    def api_goes(self, how: str) -> None:
        """Make the API server answer "ok", or be "refused", "silent", or answer "429" to lists."""
        self.api = how

    def world_becomes(self, what: str) -> None:
        """Let another world answer ("foreign"), the node be "deleted", or all be as "known"."""
        self.world = what

    def delete(self, name: str) -> None:
        """Delete the workload's pods, as a user or a rollout does."""
        for uid, pod in list(self.api_pods.items()):
            if self._work_of(pod.slot).name == name:
                self.api_pods[uid] = replace(pod, terminating=True, ready=False)

    def unwant(self, name: str) -> None:
        """Let the DaemonSet want this node no more, and delete its pod."""
        self.wants.discard(name)
        self.delete(name)

    def want(self, name: str) -> None:
        """Let the workload be wanted here again."""
        self.wants.add(name)

    def mark(self, name: str, marked: bool) -> None:
        """Mark or unmark the workload's pods."""
        for uid, pod in list(self.api_pods.items()):
            if self._work_of(pod.slot).name == name:
                self.api_pods[uid] = replace(pod, marked=marked)

    def crash_container(self, name: str) -> None:
        """End the containers of the workload and of its copy."""
        for process in self.processes.values():
            if self._work_of(process.slot).name == name and process.running:
                self.end(process)

    def rotate(self, name: str) -> None:
        """Give the workload new content: another generation."""
        self.versions[name] = self.versions.get(name, 0) + 1

    def restart_kubelet(self, pause: float = 0.0) -> None:
        """Restart the kubelet: its API pods are forgotten until the API answers it."""
        self.kubelet_since, self.synced, self.known = None, False, {}
        self.kubelet_due = self.now + pause

    def blindfold(self, source: str) -> None:
        """Make a source Unknown: runtime, kernel, manifests, kubelet, machine."""
        self.blind.add(source)

    def see(self, source: str) -> None:
        """Make a source answer again."""
        self.blind.discard(source)

    def manager_becomes(self, state: str) -> None:
        """Let PID 1 be "stopping" (a shutdown, maybe cancelled) or "running"."""
        self.manager = state

    def cut_kubelet_off(self, cut_off: bool) -> None:
        """Let the kubelet not reach the API server, though we do; or let it again."""
        self.cut_off = cut_off

    def order(self, name: str, verb: Verb | None) -> None:
        """Write or lift an operator's order."""
        self.orders = {}
        if verb is not None:
            override = Override(verb=verb, until="", reason="")
            slots = [work.slot for work in self.workloads if work.name == name]
            self.orders = {f"{slot.namespace}.{slot.name}": override for slot in slots}

    def break_disk(self, broken: bool) -> None:
        """Let every write to the static-pod directory fail."""
        self.broken_disk = broken

    def break_pod(self, uid: str) -> None:
        """Let every container of this pod end as soon as it starts."""
        self.broken_pods.add(uid)

    def surge(self, name: str) -> None:
        """Create a second pod beside the one that is there (maxSurge)."""
        work = next((work for work in self.workloads if work.name == name), None)
        if work is not None and work.controller is not None:
            self._create(work)

    def remove_by_hand(self) -> None:
        """Remove all manifests by hand."""
        self.placed = {}

    # ---- time ------------------------------------------------------------------------------------
    def at(self) -> Instant:
        """Return this moment."""
        return build.at(self.now, f"boot-{self.boot}")

    # ---- the API server and its controllers ------------------------------------------------------
    def _work_of(self, slot: Slot) -> Workload:
        return next(work for work in self.workloads if work.slot == slot)

    def _create(self, work: Workload) -> None:
        self.made += 1
        name = f"{work.name}-1" if work.controller is None else f"{work.name}-{self.made}"
        self.api_pods[f"uid-{work.name}-{self.made}"] = build.pod(
            name,
            uid=f"uid-{work.name}-{self.made}",
            controller=work.controller,
            created=f"2026-01-01T00:{self.made // 60:02}:{self.made % 60:02}Z",
            ready=False,
            phase="Pending",
        )

    def answers(self) -> bool:
        """Tell whether the API server answers: it may itself be a pod of this node."""
        if self.api not in ("ok", "429"):
            return False
        serving = [work.slot for work in self.workloads if work.serves]
        return not serving or any(p.running and p.slot in serving for p in self.processes.values())

    def _controllers(self) -> None:
        if not self.answers():
            return
        for work in self.workloads:
            have = [p for p in self.api_pods.values() if p.slot == work.slot]
            fit = [pod for pod in have if not pod.terminating]
            bare = work.controller is None
            missing = work.name in self.wants and not (have if bare else fit)
            since = self.missing_since.setdefault(work.name, self.now)
            if not missing:
                self.missing_since.pop(work.name)
            elif self.now - since >= self.replace_after:
                self._create(work)

    # ---- the kubelet -----------------------------------------------------------------------------
    def _kubelet(self) -> None:
        if self.kubelet_since is None:
            if self.now < self.kubelet_due:
                return
            self.kubelet_since, self.kubelet_pid = self.now, self.kubelet_pid + 1
        if self.answers() and self.world == "known" and not self.cut_off:
            self.synced = True
            self.known = dict(self.api_pods)
        if "runtime" in self.blind:
            return
        self._stop_what_went()
        for uid, pod in list(self.known.items()):
            if pod.terminating:
                self._finish(uid)
            else:
                self._sync(uid, pod.slot, is_copy=False)
        for file in list(self.placed.values()):
            assert file.slot is not None
            self._sync(file.uid, file.slot, is_copy=True)
        self._report()

    def _stop_what_went(self) -> None:
        if not self.synced:
            return
        statics = {file.uid for file in self.placed.values()}
        for uid in [u for u in self.processes if u not in statics and u not in self.known]:
            del self.processes[uid]

    def _finish(self, uid: str) -> None:
        since = self.ending.setdefault(uid, self.now)
        if self.now - since < GRACE:
            return
        self.processes.pop(uid, None)
        if self.answers() and not self.cut_off:
            self.api_pods.pop(uid, None)
            self.known.pop(uid, None)

    def _sync(self, uid: str, slot: Slot, *, is_copy: bool) -> None:
        process = self.processes.setdefault(uid, Process(uid, slot, is_copy))
        process.sandbox = True
        if process.running or self.now < process.next_try:
            return
        exclusive = self._work_of(slot).kind is not CopyKind.SHAREABLE
        rival = any(p.running and p.slot == slot and p.uid != uid for p in self.processes.values())
        process.attempts += 1
        process.running, process.since = True, self.now
        if (rival and exclusive) or uid in self.broken_pods:
            self.end(process)

    def end(self, process: Process) -> None:
        """End a container; the next try comes after its back-off."""
        process.running = False
        step = min(process.attempts, len(BACK_OFF) - 1)
        process.next_try = self.now + BACK_OFF[step]

    def _report(self) -> None:
        if not self.answers() or self.cut_off:
            return
        for uid, pod in self.api_pods.items():
            process = self.processes.get(uid)
            ready = process is not None and process.running and self.now - process.since >= 4
            self.api_pods[uid] = replace(
                pod,
                ready=ready and not pod.terminating,
                phase="Running" if ready else pod.phase,
                ready_containers=frozenset({process.container_id})
                if process and ready
                else frozenset(),
            )
