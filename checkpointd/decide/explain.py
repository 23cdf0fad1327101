"""Tell people what holds, by which rule, and what is wrong: the reasons of a decision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from checkpointd.decide import effects, runs, transition, words
from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene
from checkpointd.decide.table import Row
from checkpointd.model import permissions
from checkpointd.model.checkpoint import Activation, Checkpoint, Phase, Stored
from checkpointd.model.decision import Reason, Severity
from checkpointd.model.evidence import Api, Heir, Owner, Want
from checkpointd.model.files import Refused
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import NOT_YET_READ, ManifestFile
from checkpointd.model.pods import ApiPod

NODE_USER = "system:node:"
"""k8s.io/kubernetes/pkg/auth/nodeidentifier/default.go: how a node's user is named."""

WAITING_FOR = 120.0
"""Seconds after which a pod without a checkpoint is an alarm: volumes are set up in moments."""

NOTE = "note"
"""The rule of a reason on the node that only tells what is odd."""


def summarise(checkpoints: Iterable[Checkpoint], scene: Scene) -> str:
    """Return the cycle's sentence: systemd shows it, and ``status`` on top."""
    counts: dict[Phase, int] = {}
    for checkpoint in checkpoints:
        counts[checkpoint.phase] = counts.get(checkpoint.phase, 0) + 1
    parts = [f"{count} {phase.value}" for phase, count in counts.items()] or ["no checkpoints"]
    frozen = "; frozen: the machine goes down" if scene.frozen else ""
    return f"API {scene.api.value}; {', '.join(parts)}{frozen}"


# ---- one slot ----------
def slot_reason(checkpoint: Checkpoint, row: Row, findings: Findings, *, moved: bool) -> Reason:
    """Return the rule that holds for the slot."""
    severity = Severity.NOTICE if moved else Severity.INFO
    who = f"parent {checkpoint.parent.name}"
    if checkpoint.activation is not None:
        who = f"copy {checkpoint.activation.name} of {checkpoint.parent.name}"
    before = f"{row.phase.value} → {row.to.value}: " if moved else ""
    # With how long nobody was ready. Why a pod is not wanted stands among the evidence.
    is_done = moved and row.rule == transition.HANDED_BACK
    says = checkpoint.history[-1].sentence if is_done else row.says
    because = f" [{_because(checkpoint, findings)}]" if moved else ""
    return Reason(
        slot=checkpoint.slot,
        rule=row.rule,
        sentence=f"{before}{says} ({who}){because}",
        severity=severity,
        changed=moved,
    )


def _because(checkpoint: Checkpoint, findings: Findings) -> str:
    """Return the evidence in a line, for the one log line of a transition."""
    found = findings.evidence
    parts = [
        f"API {found.api.value}",
        f"pod {words.describe_want(checkpoint)}",
        f"runs {found.runs.value}{_witnesses(findings.runs)}",
        f"copy runs {found.copy_runs.value}",
        f"managed {found.managed.value}{_witnesses(findings.managed)}",
    ]
    if found.heir is not Heir.NONE:
        parts.append(f"next pod {found.heir.value}")
    return "; ".join(parts)


def _witnesses(judgement: runs.Judgement) -> str:
    said = {
        f"{t.witness}: {t.because}" for t in judgement.testimonies if t.answer is judgement.answer
    }
    return f" ({', '.join(sorted(said))})" if said else ""


def first_reason(checkpoint: Checkpoint) -> Reason:
    """Return the reason of a slot's first cycle."""
    if checkpoint.activation is not None:
        sentence = (
            f"took over the active manifest {checkpoint.activation.file}, unknown to the store"
        )
        return Reason(checkpoint.slot, "5", sentence, Severity.ALARM, changed=True)
    sentence = f"stored the first checkpoint of {checkpoint.parent.name}, {checkpoint.kind.value}"
    return Reason(checkpoint.slot, "2", sentence, Severity.NOTICE, changed=True)


def alarms(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Iterator[Reason]:
    """Return what an operator has to know about the slot."""
    for sentence in _alarm_sentences(checkpoint, findings, scene):
        yield Reason(checkpoint.slot, "alarm", sentence, Severity.ALARM)


def _alarm_sentences(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Iterator[str]:
    if checkpoint.refusal:
        yield f"the pod as it is now cannot be stored, the last one is kept: {checkpoint.refusal}"
    if checkpoint.phase.is_active:
        yield from _copy_alarms(checkpoint, findings, scene)
    elif findings.evidence.want is Want.HERE and not findings.evidence.has_generation:
        yield "no generation is stored: it could not be started"


def _copy_alarms(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Iterator[str]:
    found = findings.evidence
    runtime = scene.observation.runtime
    if isinstance(runtime, Unknown) and runtime.why != NOT_YET_READ:
        what = "no copy is stopped or replaced" if not found.can_stop else "the copy stays"
        yield f"the container runtime does not answer ({runtime.why}): {what}"
    if checkpoint.retry_step and checkpoint.phase is not Phase.SERVING:
        yield f"the kubelet has not started the copy, offered {checkpoint.retry_step + 1} times"
    if checkpoint.failed_heir and findings.heir and findings.heir.uid == checkpoint.failed_heir:
        yield f"the hand-back to {findings.heir.name} failed: the copy waits for another pod"
    unwanted = found.api is Api.TRUSTED and found.want is not Want.HERE
    stays = checkpoint.phase.has_manifest and found.heir is Heir.NONE
    if unwanted and stays and found.owner is Owner.UNREADABLE:
        why = _owner_problem(checkpoint, scene)
        yield f"the DaemonSet cannot be read ({why}): the copy stays until a new pod is bound here"
    yield from _manifest_alarms(checkpoint, scene)


def _owner_problem(checkpoint: Checkpoint, scene: Scene) -> str:
    reading = scene.observation.owners.get(checkpoint.slot)
    if isinstance(reading, Unknown) and reading.why != NOT_YET_READ:
        return reading.why
    return f"is the role {permissions.OWNERS.name} bound?"


def _manifest_alarms(checkpoint: Checkpoint, scene: Scene) -> Iterator[str]:
    activation, manifests = checkpoint.activation, scene.observation.manifests
    if activation is None or not checkpoint.phase.has_manifest or isinstance(manifests, Unknown):
        return
    file = manifests.value.get(activation.file)
    if file is not None and activation.sha256 and file.sha256 != activation.sha256:
        yield _tell_edit(file, checkpoint, activation)
    for other in manifests.value.values():
        same = (other.namespace, other.pod_name) == (checkpoint.slot.namespace, activation.name)
        if same and other.name != activation.file:
            yield (
                f"the manifest {other.name} has the same pod name: the kubelet takes the last one; "
                "move it away"
            )


def _tell_edit(file: ManifestFile, checkpoint: Checkpoint, activation: Activation) -> str:
    undo = "To undo that remove the file: it is put back as it was"
    if not effects.holds_copy(file, checkpoint):
        return (
            f"{file.name} is no longer the copy's manifest but {_name_content(file)}: it is not "
            "touched, and the copy ends. Move it away: the copy's manifest is put back"
        )
    if file.problem:
        return (
            f"the active manifest {file.name} was edited by hand and is no pod any more "
            f"({file.problem}): the kubelet ends the copy. {undo}"
        )
    other = "" if file.uid == activation.uid else ", which gave the pod another UID"
    return (
        f"the active manifest {file.name} was edited by hand{other}: left as it is, and removed "
        f"when the copy steps aside. {undo}"
    )


def _name_content(file: ManifestFile) -> str:
    if file.pod_name:
        return f"that of another pod, {file.namespace}/{file.pod_name}"
    return file.problem or "something else"


# ---- pods without a checkpoint ----------
def waiting_reasons(
    pods: tuple[ApiPod, ...], used: Mapping[str, int], scene: Scene
) -> Iterator[Reason]:
    """Say why marked pods have no checkpoint yet; ``used`` counts those of each namespace."""
    for pod in pods:
        sentence = _waiting_sentence(pod, used.get(pod.namespace, 0), scene)
        if sentence:
            yield Reason(pod.slot, "2", sentence, Severity.ALARM)


def _waiting_sentence(pod: ApiPod, used: int, scene: Scene) -> str:
    reading = scene.observation.candidates.get(pod.uid)
    if isinstance(reading, Seen) and isinstance(reading.value, Refused):
        refusals = "; ".join(map(str, reading.value.refusals))
        return f"{pod.name} is not checkpointed: {refusals}"
    if used >= scene.policy.selection.max_pods:
        return (
            f"{pod.name} is not checkpointed: the namespace has its {used} checkpoints already "
            "([selection] max-pods)"
        )
    if isinstance(reading, Unknown) and scene.now.seconds_since(reading.since) >= WAITING_FOR:
        return f"{pod.name} is not checkpointed yet: {reading.why}"
    return ""


def why_waiting(pod: ApiPod, scene: Scene) -> str:
    """Say what the first checkpoint of a pod waits for; "" where it is refused."""
    reading = scene.observation.candidates.get(pod.uid)
    if reading is None:
        return NOT_YET_READ
    if isinstance(reading, Unknown):
        return reading.why
    if isinstance(reading.value, Refused):
        return ""
    if not is_seen_here(pod, scene):
        return "neither the kubelet nor the runtime has it yet"
    return "it is about to be written"


def is_seen_here(pod: ApiPod, scene: Scene) -> bool:
    """Tell whether kubelet or runtime have the pod (rule 2)."""
    observation = scene.observation
    if isinstance(observation.runtime, Seen) and runs.is_known(observation.runtime.value, pod.uid):
        return True
    kubelet = observation.kubelet_list
    return isinstance(kubelet, Seen) and (pod.namespace, pod.name) in kubelet.value.pods


# ---- the node ----------
def node_reasons(stored: Stored, scene: Scene) -> Iterator[Reason]:
    """Say what holds for the node as a whole."""
    for damage in stored.damaged:
        yield Reason(None, "store", damage, Severity.ALARM)
    for problem in scene.observation.override_problems:
        yield Reason(None, "12", f"operators' orders: {problem}", Severity.ALARM)
    for sentence in _node_sentences(scene):
        yield Reason(None, "alarm", sentence, Severity.ALARM)
    for sentence in scene.observation.manifest_notes:
        yield Reason(None, NOTE, sentence, Severity.NOTICE)
    if scene.frozen:
        yield Reason(None, "11", "frozen: the machine goes down", Severity.NOTICE)


def _node_sentences(scene: Scene) -> Iterator[str]:
    if scene.observation.manifest_problem:
        yield scene.observation.manifest_problem
    if scene.api is Api.FOREIGN:
        yield (
            "another world answers at the API server's address (its UIDs are not those recorded): "
            "nothing is started, stopped or removed. Bring the right API server back; if the new "
            "one is meant: stop checkpointd, remove node.json from its state directory, start it"
        )
    if scene.api is Api.NODE_DELETED:
        yield "the API server says that this node is deleted: nothing is activated"
    yield from _identity_sentences(scene)
    machine = scene.observation.machine
    kubelet = machine.value.kubelet if isinstance(machine, Seen) else None
    if kubelet is not None and not kubelet.manifest_dir:
        yield "the kubelet has no static-pod directory: no copy would start; set its staticPodPath"
    if scene.all_gone_since is not None and scene.api is Api.TRUSTED:
        later = _tell_span(scene.policy.times.retire_store)
        yield (
            "the API server wants none of the checkpointed pods any more, all at once: nothing is "
            f"removed until a second list {later} later agrees"
        )


def _identity_sentences(scene: Scene) -> Iterator[str]:
    """Say where the node's name, its credentials and what is recorded do not agree."""
    name, user = scene.policy.node_name, scene.observation.api_user
    if name and user.startswith(NODE_USER) and user != NODE_USER + name:
        yield (
            f"the kubeconfig speaks for {user.removeprefix(NODE_USER)}, but this node is {name}: "
            "API servers from 1.32 on do not let it read this node. Give the node its own "
            "kubeconfig, or set [node] name"
        )
    recorded = scene.record.node_name if scene.record is not None else ""
    if name and recorded and name != recorded:
        yield (
            f"this node was {recorded} and is now {name}: its checkpoints stay as they are until "
            f"the API server answers for {name}. If that is not meant, give the kubelet its name "
            "back (--hostname-override, or the host's name)"
        )


def _tell_span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
