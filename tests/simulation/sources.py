"""Say what the sources say of the surroundings: what is true at that moment, where it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from checkpointd.model import observation as facts
from checkpointd.model.decision import (
    Question,
    Topic,
)
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Instant, Unknown, seen
from checkpointd.model.observation import (
    Container,
    ContainerState,
    Fact,
    OwnerWord,
    PodProcesses,
)
from checkpointd.model.pods import ApiPod
from tests.builders import observations as build
from tests.simulation.surroundings import IMAGE, Process, Surroundings


@dataclass
class Sources(Surroundings):
    """The surroundings with the sources that look at them."""

    lease: float = 0.0
    questions: frozenset[Question] = frozenset()
    answered: dict[tuple[Topic, str], float] = field(default_factory=dict[tuple[Topic, str], float])
    last: dict[str, object] = field(default_factory=dict[str, object])

    # ---- what sources say ------------------------------------------------------------------------
    def _facts(self) -> list[Fact]:
        return [*self._machine_facts(), *self._runtime_facts(), *self._api_facts()]

    def _due(self, topic: Topic, target: str = "") -> bool:
        """Tell whether the question is asked and due, and note that it is answered now."""
        asked = next((q for q in self.questions if q.topic is topic and q.target == target), None)
        if asked is None:
            return False
        at = self.answered.get((topic, target))
        period = asked.period is not None and (at is None or self.now - at >= asked.period)
        after = asked.after is not None and (
            at is None or build.at(at, self.at().boot_id).is_before(asked.after)
        )
        if period or after:
            self.answered[topic, target] = self.now
        return period or after

    def _changed(self, name: str, value: object) -> bool:
        if name in self.last and self.last[name] == value:
            return False
        self.last[name] = value
        return True

    def _machine_facts(self) -> list[Fact]:
        found: list[Fact] = []
        kubelet = (
            replace(build.kubelet(pid=self.kubelet_pid), started=self._in_boot(self.kubelet_since))
            if self.kubelet_since is not None
            else None
        )
        here = build.machine(kubelet, runtime=self.kubelet_since is not None)
        blind = "machine" in self.blind
        if self._changed("machine", (here, blind)) or self._due(Topic.MACHINE):
            unknown = Unknown("blind", self.at())
            found.append(facts.MachineRead(unknown if blind else seen(here, self.at())))
        if self._changed("manager", self.manager) or self._due(Topic.MANAGER):
            frozen = self.manager == "stopping"
            found.append(facts.ManagerRead(seen(self.manager, self.at()), frozen_file=frozen))
        if self._due(Topic.ROUTE):
            found.append(facts.RouteRead(seen(True, self.at())))
        if self._changed("orders", self.orders):
            found.append(facts.OverridesRead(self.orders))
        files = dict(self.placed)
        blind = "manifests" in self.blind
        if self._changed("manifests", (files, blind)):
            unknown = Unknown("blind", self.at())
            found.append(facts.ManifestsRead(unknown if blind else seen(files, self.at())))
        return [*found, *self._kubelet_facts()]

    def _in_boot(self, seconds: float) -> Instant:
        return build.at(seconds, self.at().boot_id)

    def _kubelet_facts(self) -> list[Fact]:
        if not self._due(Topic.KUBELET_LIST):
            return []
        if self.kubelet_since is None or "kubelet" in self.blind:
            return [facts.KubeletListRead(Unknown("no answer", self.at()))]
        names = {(pod.namespace, pod.name) for pod in self.known.values()}
        names |= {(file.namespace, file.pod_name) for file in self.placed.values()}
        return [facts.KubeletListRead(seen(frozenset(names), self.at()))]

    def _runtime_facts(self) -> list[Fact]:
        found: list[Fact] = []
        unknown = Unknown("blind", self.at())
        picture = tuple(sorted((p.uid, p.running, p.attempts) for p in self.processes.values()))
        up = "runtime" not in self.blind and self.kubelet_since is not None
        if self._changed("runtime", (picture, up)) or self._due(Topic.RUNTIME):
            found.append(facts.RuntimeRead(seen(self._runtime(), self.at()) if up else unknown))
        if self._due(Topic.IMAGES):
            images = seen(frozenset({IMAGE}), self.at())
            found.append(facts.ImagesRead(images if up else unknown))
        if self._due(Topic.RUNNING_PODS):
            found.append(facts.RunningPodsRead(unknown))
        targets = {q.target for q in self.questions if q.topic is Topic.PROCESSES}
        due = [self._due(Topic.PROCESSES, target) for target in sorted(targets)]
        blind = "kernel" in self.blind
        if self._changed("kernel", (picture, blind)) or any(due):
            view = {uid: self._processes_of(uid) for uid in targets}
            found.append(facts.ProcessesRead(unknown if blind else seen(view, self.at())))
        return found

    def _runtime(self) -> facts.Runtime:
        return build.runtime(
            sandboxes=[build.sandbox(p.uid, ready=p.sandbox) for p in self.processes.values()],
            containers=[self._container(p) for p in self.processes.values() if p.attempts],
        )

    def _container(self, process: Process) -> Container:
        state = ContainerState.RUNNING if process.running else ContainerState.EXITED
        return build.container(
            process.uid, state, attempt=process.attempts - 1, id=process.container_id
        )

    def _processes_of(self, uid: str) -> PodProcesses:
        process = self.processes.get(uid)
        if process is None or not process.running:
            return build.alive(uid)
        return build.alive(uid, 1, leaf=process.container_id)

    def _api_facts(self) -> list[Fact]:
        at = self.at()
        if not self.answers():
            self.last.pop("api", None)
            self.last.pop("world", None)
            if self.api == "silent":
                return [facts.ApiSilent(at, "timeout")]
            return [facts.ApiRefused(at, "refused")]
        serving = frozenset(
            p.uid for p in self.processes.values() if p.running and self._work_of(p.slot).serves
        )
        found: list[Fact] = [
            facts.ApiAnswered(at, "192.0.2.1", local=bool(serving), listening_pods=serving)
        ]
        return [*found, *self._list_facts(at), *self._asked_of_api(at)]

    def _list_facts(self, at: Instant) -> list[Fact]:
        found: list[Fact] = []
        if self._changed("world", self.world):
            worlds = {
                "known": build.world(),
                "foreign": build.world(anchor_uid="other", node_uid="other"),
                "deleted": build.world(node_found=False),
            }
            found.append(facts.WorldRead(seen(worlds[self.world], at)))
        listed = tuple(self.api_pods.values()) if self.world == "known" else ()
        if self._changed("api", (listed, self.api)):
            unknown = Unknown("429", at)
            found.append(facts.ApiPodsRead(unknown if self.api == "429" else seen(listed, at)))
        return found

    def _asked_of_api(self, at: Instant) -> list[Fact]:
        found: list[Fact] = []
        if self._due(Topic.CONFIRM_LIST):
            uids = frozenset(self.api_pods) if self.world == "known" else frozenset[str]()
            unknown = Unknown("429", at)
            found.append(facts.ListConfirmed(unknown if self.api == "429" else seen(uids, at)))
        for work in self.workloads:
            if self._due(Topic.OWNER, f"{work.slot.namespace}/{work.name}"):
                word = OwnerWord.WANTS if work.name in self.wants else OwnerWord.NOT_HERE
                found.append(facts.OwnerRead(work.slot, seen(word, at)))
        if self._due(Topic.LEASE):
            self.lease = self.lease if self.cut_off else self.now // 10
            found.append(facts.LeaseRead(seen(f"{self.lease}", at)))
        for uid, pod in self.api_pods.items():
            if self._due(Topic.CANDIDATE, uid):
                found.append(facts.CandidateRead(uid, seen(self._candidate(pod), at)))
        return found

    def _candidate(self, pod: ApiPod) -> Candidate:
        work = self._work_of(pod.slot)
        version = self.versions.get(work.name, 0)
        return build.candidate(pod, hash=f"{work.name}-g{version}", kind=work.kind)
