"""Weigh the witnesses: does a pod UID run, does the kubelet manage a pod.

*Runs* is settled for a UID, never for a name (design, section 2). "Does not run" needs CRI or
kernel to say so and neither to say the opposite; "runs" needs one of them; but an empty pod cgroup
in which processes were seen outranks the runtime's RUNNING, which lags 50-80 ms behind the kernel.
A sandbox alone is not a running pod.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checkpointd.model.evidence import Is
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import (
    ContainerState,
    KubeletList,
    KubeletProcess,
    Observation,
    PodName,
    PodProcesses,
    Runtime,
)
from checkpointd.model.pods import ApiPod
from checkpointd.model.policy import Policy, Times, Witness

RUNTIME_LAG = 1.0
"""Seconds for which a runtime may call an ended container running: measured 50-80 ms."""


@dataclass(frozen=True, slots=True)
class Testimony:
    """Hold one witness's answer and why, in words."""

    witness: str
    answer: Is
    because: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """Hold the answer to one question and what each witness said."""

    answer: Is
    testimonies: tuple[Testimony, ...]


def judge_runs(
    uid: str,
    observation: Observation,
    policy: Policy,
    *,
    ran_in_boot: bool,
    sandboxes: frozenset[str],
) -> Judgement:
    """Settle whether a container of the pod ``uid`` runs.

    ``ran_in_boot`` is whether it was ever seen running in this boot; ``sandboxes`` are ids known
    from before.
    """
    runtime = _runtime_says(uid, observation, policy)
    kernel = _kernel_says(uid, observation, policy, sandboxes)
    machine = _boot_says(observation, ran_in_boot=ran_in_boot)
    outranks = uid in observation.had_processes and _is_kernel_as_new(observation)
    answer = _combine(runtime.answer, kernel.answer, kernel_outranks=outranks)
    testimonies = (runtime, kernel, machine)
    if answer is Is.UNKNOWN and machine.answer is Is.NO:
        return Judgement(Is.NO, testimonies)
    if answer is Is.UNKNOWN and Witness.RUNNING_PODS in policy.witnesses:
        kubelet = _running_pods_say(uid, observation)
        return Judgement(kubelet.answer, (*testimonies, kubelet))
    return Judgement(answer, testimonies)


def _combine(runtime: Is, kernel: Is, *, kernel_outranks: bool) -> Is:
    if kernel is Is.YES or (runtime is Is.YES and not (kernel is Is.NO and kernel_outranks)):
        return Is.YES
    return Is.NO if Is.NO in (runtime, kernel) else Is.UNKNOWN


def _is_kernel_as_new(observation: Observation) -> bool:
    """Tell whether the kernel was asked no earlier than the runtime, but for the runtime's lag.

    An older look at an empty cgroup says nothing of a container that was started since.
    """
    kernel, runtime = observation.processes, observation.runtime
    if isinstance(kernel, Unknown) or isinstance(runtime, Unknown):
        return True
    return runtime.at.seconds_since(kernel.at) <= RUNTIME_LAG


def _runtime_says(uid: str, observation: Observation, policy: Policy) -> Testimony:
    name = "runtime"
    if Witness.RUNTIME not in policy.witnesses:
        return Testimony(name, Is.UNKNOWN, "switched off")
    match observation.runtime:
        case Unknown(why):
            return Testimony(name, Is.UNKNOWN, why)
        case Seen(value):
            running = running_containers(value, uid)
            if running:
                return Testimony(name, Is.YES, f"running: {', '.join(sorted(running))}")
            if any(c.uid == uid and c.state is ContainerState.UNKNOWN for c in value.containers):
                return Testimony(name, Is.UNKNOWN, "the runtime does not know a container's state")
            return Testimony(name, Is.NO, _idle_words(value, uid))


def running_containers(runtime: Runtime, uid: str) -> tuple[str, ...]:
    """Return the names of the pod's running containers; a NotReady sandbox may have some (A13)."""
    return tuple(
        c.name for c in runtime.containers if c.uid == uid and c.state is ContainerState.RUNNING
    )


def running_ids(runtime: Runtime, uid: str) -> frozenset[str]:
    """Return the ids of the pod's running containers."""
    return frozenset(
        c.id for c in runtime.containers if c.uid == uid and c.state is ContainerState.RUNNING
    )


def has_ready_sandbox(runtime: Runtime, uid: str) -> bool:
    """Tell whether a sandbox of the pod is READY."""
    return any(sandbox.uid == uid and sandbox.ready for sandbox in runtime.sandboxes)


def is_ready_now(pod: ApiPod, observation: Observation) -> bool:
    """Tell whether the API calls ``pod`` Ready, and means the containers that run here now.

    The word is as old as the kubelet's last report: of one that is cut off, or has just found its
    API server again, it tells of containers that have ended since. Each has an id of its own.
    """
    if not pod.ready or not pod.ready_containers:
        return False
    live = set[str]()
    if isinstance(observation.runtime, Seen):
        live |= {
            c.id for c in observation.runtime.value.containers if c.state is ContainerState.RUNNING
        }
    if isinstance(observation.processes, Seen) and pod.uid in observation.processes.value:
        live |= {leaf.id for leaf in observation.processes.value[pod.uid].leaves if leaf.pids}
    return pod.ready_containers <= live


def is_known(runtime: Runtime, uid: str) -> bool:
    """Tell whether the runtime shows any sandbox or container of the pod."""
    return any(s.uid == uid for s in runtime.sandboxes) or any(
        c.uid == uid for c in runtime.containers
    )


def _idle_words(runtime: Runtime, uid: str) -> str:
    if has_ready_sandbox(runtime, uid):
        return "a sandbox is there, no container runs"
    return "all its containers have ended" if is_known(runtime, uid) else "it has none of it"


def _kernel_says(
    uid: str, observation: Observation, policy: Policy, sandboxes: frozenset[str]
) -> Testimony:
    name = "kernel"
    if Witness.KERNEL not in policy.witnesses:
        return Testimony(name, Is.UNKNOWN, "switched off")
    match observation.processes:
        case Unknown(why):
            return Testimony(name, Is.UNKNOWN, why)
        case Seen(value):
            pod = value.get(uid)
            if pod is None:
                return Testimony(name, Is.UNKNOWN, "not yet looked at")
            known = sandboxes | _sandbox_ids(observation)
            return _processes_say(pod, known, had=uid in observation.had_processes)


def _processes_say(pod: PodProcesses, sandboxes: frozenset[str], *, had: bool) -> Testimony:
    name = "kernel"
    live = [leaf for leaf in pod.leaves if leaf.pids and leaf.id not in sandboxes]
    busy = [leaf for leaf in live if not leaf.only_pause]
    if busy:
        count = sum(len(leaf.pids) for leaf in busy)
        return Testimony(name, Is.YES, f"{count} live process{'es' if count > 1 else ''}")
    if live:
        return Testimony(name, Is.UNKNOWN, "only a pause process in a container it does not know")
    if had:
        return Testimony(name, Is.NO, "its last process is gone")
    return Testimony(name, Is.UNKNOWN, "no process of it was ever seen")


def _sandbox_ids(observation: Observation) -> frozenset[str]:
    if isinstance(observation.runtime, Unknown):
        return frozenset()
    return frozenset(sandbox.id for sandbox in observation.runtime.value.sandboxes)


def _boot_says(observation: Observation, *, ran_in_boot: bool) -> Testimony:
    name = "boot"
    if ran_in_boot:
        return Testimony(name, Is.UNKNOWN, "it ran in this boot")
    match observation.machine:
        case Unknown(why):
            return Testimony(name, Is.UNKNOWN, why)
        case Seen(value):
            existed = observation.kubelet_in_boot or observation.runtime_in_boot
            if value.kubelet is None and not value.runtime_present and not existed:
                return Testimony(name, Is.NO, "no kubelet and no runtime since the boot")
            return Testimony(name, Is.UNKNOWN, "kubelet or runtime exist in this boot")


def _running_pods_say(uid: str, observation: Observation) -> Testimony:
    name = "runningpods"
    match observation.running_pods:
        case Unknown(why):
            return Testimony(name, Is.UNKNOWN, why)
        case Seen(value):
            return Testimony(name, Is.YES if uid in value else Is.NO, "the kubelet's cache says so")


def any_of(judgements: Iterable[Judgement]) -> Judgement:
    """Settle for several UIDs together: YES if one runs, NO if all certainly do not."""
    each = tuple(judgements)
    answers = {judgement.answer for judgement in each}
    testimonies = tuple(t for judgement in each for t in judgement.testimonies)
    if Is.YES in answers:
        return Judgement(Is.YES, testimonies)
    return Judgement(Is.UNKNOWN if Is.UNKNOWN in answers else Is.NO, testimonies)


# ---- will the kubelet restart it ----------
def judge_managed(
    name: PodName, observation: Observation, times: Times, *, ran_in_boot: bool
) -> Judgement:
    """Settle whether the kubelet will restart the pod of this name.

    No if there was no kubelet process since the boot, if it answers and has not listed the pod for
    10 s, or, where it answers nothing, if the API has been Unknown without a break since before the
    kubelet's start (kubelet facts K-18).
    """
    match observation.machine:
        case Unknown(why):
            return _managed(Is.UNKNOWN, why)
        case Seen(value):
            if value.kubelet is None:
                return _without_kubelet(observation, ran_in_boot=ran_in_boot)
            return _with_kubelet(value.kubelet, name, observation, times)


def _without_kubelet(observation: Observation, *, ran_in_boot: bool) -> Judgement:
    if observation.kubelet_in_boot or ran_in_boot:
        return _managed(Is.UNKNOWN, "the kubelet is stopped; what it will do is not known")
    return _managed(Is.NO, "no kubelet since the boot")


def _with_kubelet(
    kubelet: KubeletProcess, name: PodName, observation: Observation, times: Times
) -> Judgement:
    lost = observation.api_contact.unknown_since
    match observation.kubelet_list:
        case Seen(value, at):
            if name not in value.pods and lost is not None and at.is_before(lost):
                return _managed(Is.UNKNOWN, "its list is older than the loss of the API server")
            return _listed(value, name, at.seconds_since(_last_listed(value, name)), times)
        case Unknown(why):
            if lost is not None and lost.is_before(kubelet.started):
                return _managed(Is.NO, "the kubelet has had no API server since its start")
            return _managed(Is.UNKNOWN, why)


def _listed(value: KubeletList, name: PodName, absent: float, times: Times) -> Judgement:
    if name in value.pods:
        return _managed(Is.YES, "the kubelet lists it")
    if absent >= times.unlisted_for:
        return _managed(Is.NO, f"the kubelet has not listed it for {absent:.0f} s")
    return _managed(Is.UNKNOWN, f"the kubelet has not listed it for {absent:.0f} s only")


def _last_listed(value: KubeletList, name: PodName) -> Instant:
    return value.last_listed.get(name, value.answering_since)


def _managed(answer: Is, because: str) -> Judgement:
    return Judgement(answer, (Testimony("kubelet", answer, because),))


def is_source_ready(observation: Observation) -> bool:
    """Tell whether the kubelet's API source is certainly ready, so that it stops removed pods.

    It is not while the API has been Unknown since before the kubelet's start (K-13, K-17), nor
    while the kubelet lists none of the pods that the API has for it: a kubelet that was restarted
    offline acts up to 33 s after the API is back (kubelet facts, "API back at T").
    """
    if isinstance(observation.machine, Unknown) or observation.machine.value.kubelet is None:
        return False
    if _lists_no_api_pod(observation):
        return False
    if observation.api_contact.reached:
        return True
    unknown_since = observation.api_contact.unknown_since
    started = observation.machine.value.kubelet.started
    return unknown_since is not None and not unknown_since.is_before(started)


def _lists_no_api_pod(observation: Observation) -> bool:
    """Tell whether the kubelet certainly lacks all that the API bound here, mirror pods aside."""
    if isinstance(observation.kubelet_list, Unknown) or isinstance(observation.api_pods, Unknown):
        return False
    bound = {
        (pod.namespace, pod.name)
        for pod in observation.api_pods.value
        if not pod.is_finished and not (pod.controller and pod.controller.kind == "Node")
    }
    return bool(bound) and not bound & observation.kubelet_list.value.pods
