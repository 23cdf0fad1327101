"""Draw the picture for people: what is seen, what holds for each slot and why, what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from checkpointd.decide import coming, evidence, explain, follow, newcomers, table
from checkpointd.decide.evidence import Findings
from checkpointd.decide.plan import Plan
from checkpointd.decide.runs import Judgement
from checkpointd.decide.scene import Scene
from checkpointd.decide.table import Row
from checkpointd.model import naming
from checkpointd.model.checkpoint import Checkpoint, Stored
from checkpointd.model.decision import Reason, Severity
from checkpointd.model.evidence import Api, Is, Order
from checkpointd.model.files import Refused
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import NOT_YET_READ, Observation
from checkpointd.model.pods import ApiPod, Slot
from checkpointd.model.policy import Policy, Witness
from checkpointd.model.status import (
    ActivationStatus,
    AnswerStatus,
    ApiStatus,
    CheckpointStatus,
    GenerationStatus,
    IgnoredStatus,
    KubeletStatus,
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


@dataclass(frozen=True, slots=True)
class Picture:
    """Hold what was drawn of a plan: ``slots`` are ``status.checkpoints`` by slot."""

    plan: Plan
    status: NodeStatus
    slots: Mapping[Slot, CheckpointStatus]


def portray(plan: Plan, stored: Stored, last: Picture | None = None) -> Picture:
    """Draw the picture of a plan and of what is stored since it was carried out.

    Who draws it (version, process, socket) is for the daemon to add. Of slots at rest ``last`` is
    taken over, with the times of reading that it had.
    """
    alarms = [r for r in plan.decision.reasons if r.severity is Severity.ALARM]
    slots = {
        checkpoint.slot: _checkpoint(
            checkpoint,
            plan,
            tuple(r.sentence for r in alarms if r.slot == checkpoint.slot),
            last,
        )
        for checkpoint in sorted(stored.checkpoints.values(), key=_by_name)
    }
    return Picture(plan, _node(plan, stored, tuple(slots.values()), alarms), slots)


def _node(
    plan: Plan,
    stored: Stored,
    checkpoints: tuple[CheckpointStatus, ...],
    alarms: Iterable[Reason],
) -> NodeStatus:
    scene, decision = plan.scene, plan.decision
    observation = scene.observation
    refused = tuple(_refused(stored, scene))
    told = {*stored.checkpoints, *(pod.slot for pod, _ in refused)}
    return NodeStatus(
        node=scene.policy.node_name,
        boot_id=observation.boot_id,
        version="",
        pid=0,
        started=observation.started,
        written=scene.now,
        summary=decision.summary,
        api=_api(scene),
        kubelet=_kubelet(observation),
        runtime=_runtime(observation),
        sources=tuple(_sources(observation, scene.policy)),
        checkpoints=checkpoints,
        refused=tuple(status for _, status in refused),
        waiting=tuple(_waiting(stored, scene)),
        ignored=tuple(_ignored(scene)),
        orders=tuple(
            OrderStatus(target=target, order=order)
            for target, order in sorted(observation.overrides.items())
        ),
        alarms=tuple(
            reason.sentence if reason.slot is None else f"{reason.slot}: {reason.sentence}"
            for reason in alarms
            if reason.slot not in told
        ),
        frozen="the machine goes down" if scene.frozen else "",
        notes=tuple(r.sentence for r in decision.reasons if r.rule == explain.NOTE),
    )


# ---- the node ------------------------------------------------------------------------------------
def _api(scene: Scene) -> ApiStatus:
    contact = scene.observation.api_contact
    return ApiStatus(
        state=scene.api,
        since=_api_since(scene),
        why=_api_why(scene),
        address=contact.address,
        node_renewed=scene.record.node_renewed if scene.record is not None else None,
    )


def _api_since(scene: Scene) -> Instant:
    """Return since when the API server's state has held."""
    contact = scene.observation.api_contact
    if not contact.reached:
        return contact.unknown_since or contact.answers_since or contact.reached_since
    if scene.api is Api.REFUSED:
        return contact.refused_since or contact.reached_since
    return max([contact.reached_since, *_read_since(scene)], key=lambda instant: instant.seconds)


def _read_since(scene: Scene) -> Iterator[Instant]:
    """Yield since when what makes the state has been so: what is not read, or whose world it is."""
    for _name, reading in _api_readings(scene):
        if isinstance(reading, Unknown):
            yield reading.since
    if isinstance(scene.observation.world, Seen):
        yield scene.observation.world.since


def _api_says(scene: Scene) -> str:
    why = _api_why(scene)
    return f"{scene.api.value}: {why}" if why else scene.api.value


def _api_why(scene: Scene) -> str:
    """Return what is wrong with the API server, "" while it is trusted."""
    if scene.api is Api.TRUSTED:
        return ""
    contact = scene.observation.api_contact
    if contact.failures or contact.answered_at is None:
        return contact.why
    for name, reading in _api_readings(scene):
        if isinstance(reading, Unknown):
            return f"{name} not read since it answers: {reading.why}"
    apart = scene.policy.times.answers_apart
    return f"it has to answer for {apart:g} s to be trusted" if not contact.reached else ""


def _api_readings(scene: Scene) -> tuple[tuple[str, Seen[object] | Unknown], ...]:
    observation = scene.observation
    return ("its identity", observation.world), ("its pods", observation.api_pods)


def _kubelet(observation: Observation) -> KubeletStatus:
    machine, listed = observation.machine, observation.kubelet_list
    if isinstance(machine, Unknown):
        return KubeletStatus(present=Is.UNKNOWN, why=machine.why)
    kubelet = machine.value.kubelet
    if kubelet is None:
        return KubeletStatus(present=Is.NO, since=machine.since)
    return KubeletStatus(
        present=Is.YES,
        answers=_answers_kubelet(listed),
        pid=kubelet.pid,
        since=kubelet.started,
        version=kubelet.version,
        why=listed.why if isinstance(listed, Unknown) and listed.why != NOT_YET_READ else "",
    )


def _answers_kubelet(listed: Seen[object] | Unknown) -> Is:
    """Say whether the kubelet answers: UNKNOWN only where nobody has asked it yet."""
    if isinstance(listed, Seen):
        return Is.YES
    return Is.UNKNOWN if listed.why == NOT_YET_READ else Is.NO


def _runtime(observation: Observation) -> RuntimeStatus:
    if isinstance(observation.runtime, Unknown):
        return RuntimeStatus()
    return RuntimeStatus(
        version=observation.runtime.value.version, api=observation.runtime.value.api
    )


def _sources(observation: Observation, policy: Policy) -> Iterator[SourceStatus]:
    off = {witness.value for witness in Witness if witness not in policy.witnesses}
    readings: tuple[tuple[str, Seen[object] | Unknown, bool], ...] = (
        ("api world", observation.world, True),
        ("api pods", observation.api_pods, True),
        ("kubelet list", observation.kubelet_list, True),
        ("runtime", observation.runtime, True),
        ("kernel", observation.processes, True),
        ("manifests", observation.manifests, True),
        ("machine", observation.machine, True),
        ("default route", observation.default_route, False),
        ("pid 1", observation.manager_state, False),
        ("runningpods", observation.running_pods, False),
        ("kubelet lease", observation.lease, False),
        ("images", observation.images, False),
    )
    for name, reading, needed in readings:
        yield _source(name, reading, needed=needed and name not in off, off=name in off)


def _source(name: str, reading: Seen[object] | Unknown, *, needed: bool, off: bool) -> SourceStatus:
    if off:
        return SourceStatus(name=name, state=SourceState.OFF, needed=False)
    if isinstance(reading, Unknown):
        idle = reading.why == NOT_YET_READ
        return SourceStatus(
            name=name,
            state=SourceState.IDLE if idle else SourceState.UNKNOWN,
            since=reading.since,
            why=reading.why,
            needed=needed and not idle,
        )
    return SourceStatus(
        name=name, state=SourceState.SEEN, since=reading.since, at=reading.at, needed=needed
    )


def _refused(stored: Stored, scene: Scene) -> Iterator[tuple[ApiPod, RefusedStatus]]:
    for pod in newcomers.find(stored, scene):
        reading = scene.observation.candidates.get(pod.uid)
        if isinstance(reading, Seen) and isinstance(reading.value, Refused):
            status = RefusedStatus(
                namespace=pod.namespace, name=pod.name, refusals=reading.value.refusals
            )
            yield pod, status


def _waiting(stored: Stored, scene: Scene) -> Iterator[WaitingStatus]:
    for pod in newcomers.find(stored, scene):
        why = explain.why_waiting(pod, scene)
        if why:
            yield WaitingStatus(namespace=pod.namespace, name=pod.name, why=why)


def _ignored(scene: Scene) -> Iterator[IgnoredStatus]:
    noted = (pod for pod in scene.pods.values() if pod.mark_note)
    for pod in sorted(noted, key=lambda pod: (pod.namespace, pod.name)):
        yield IgnoredStatus(namespace=pod.namespace, name=pod.name, note=pod.mark_note)


# ---- one slot ------------------------------------------------------------------------------------
def _by_name(checkpoint: Checkpoint) -> tuple[str, str]:
    return checkpoint.slot.namespace, checkpoint.slot.name


def _checkpoint(
    checkpoint: Checkpoint, plan: Plan, alarms: tuple[str, ...], last: Picture | None
) -> CheckpointStatus:
    known = plan.slots.get(checkpoint.slot)
    drawn = last.slots.get(checkpoint.slot) if last is not None else None
    if last is not None and drawn is not None and drawn.alarms == alarms:
        same = last.plan.slots.get(checkpoint.slot) is known
        if same and known is not None and known.is_about(checkpoint):
            return drawn
    told = _plain(checkpoint, alarms)
    if known is not None and known.fault is not None:
        return replace(told, rule="alarm", sentence=known.fault.sentence)
    row, findings = _weigh(checkpoint, plan)
    order = findings.evidence.order
    return replace(
        told,
        rule=row.rule,
        sentence=row.says,
        order="" if order is Order.NONE else order.value,
        evidence=tuple(_answers(checkpoint, findings, plan.scene)),
        next=coming.come(checkpoint, findings.evidence, plan.scene),
    )


def _weigh(checkpoint: Checkpoint, plan: Plan) -> tuple[Row, Findings]:
    """Return what was found for the slot; anew, where that has moved it."""
    known = plan.slots.get(checkpoint.slot)
    findings = known.findings if known is not None and known.is_about(checkpoint) else None
    if findings is None:
        findings = evidence.find(checkpoint, plan.basis.of_slot(checkpoint.slot, checkpoint))
    return table.step(checkpoint.phase, findings.evidence), findings


def _plain(checkpoint: Checkpoint, alarms: tuple[str, ...]) -> CheckpointStatus:
    """Return what is stored of a slot."""
    successor = checkpoint.successor
    return CheckpointStatus(
        namespace=checkpoint.slot.namespace,
        slot=checkpoint.slot.name,
        phase=checkpoint.phase,
        since=checkpoint.since,
        kind=checkpoint.kind,
        rule="",
        sentence="",
        parent=PodStatus(name=checkpoint.parent.name, uid=checkpoint.parent.uid),
        successor=PodStatus(name=successor.name, uid=successor.uid) if successor else None,
        serves_api=checkpoint.serves_api,
        generation=_generation(checkpoint),
        generations=len(checkpoint.generations),
        activation=_activation(checkpoint),
        order_file=f"{naming.override_name(checkpoint.slot.namespace, checkpoint.slot.name)}.json",
        alarms=alarms,
        warnings=_warnings(checkpoint),
        refusal=checkpoint.refusal,
        history=checkpoint.history,
    )


def _generation(checkpoint: Checkpoint) -> GenerationStatus | None:
    active = checkpoint.activation
    chosen = checkpoint.generation(active.generation) if active else evidence.choose(checkpoint)
    if chosen is None:
        return None
    return GenerationStatus(
        hash=chosen.hash, stored=chosen.stored, proven=chosen.is_proven, failed=chosen.failed
    )


def _warnings(checkpoint: Checkpoint) -> tuple[str, ...]:
    newest = max(checkpoint.generations, key=lambda g: g.number, default=None)
    return newest.warnings if newest is not None else ()


def _activation(checkpoint: Checkpoint) -> ActivationStatus | None:
    activation = checkpoint.activation
    if activation is None:
        return None
    return ActivationStatus(
        name=activation.name,
        uid=activation.uid,
        file=activation.file,
        since=activation.offered,
        rule=activation.rule,
    )


def _answers(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Iterator[AnswerStatus]:
    found, observation = findings.evidence, scene.observation
    yield AnswerStatus(
        question="what does the API server want?", answer=found.want.value,
        witnesses=(WitnessStatus(
            source="API server", says=_api_says(scene), at=observation.api_contact.answered_at),),
    )  # fmt: skip
    yield _judged("does parent or successor run?", findings.runs, observation)
    yield _judged("does the copy run?", findings.copy_runs, observation)
    yield _judged("will the kubelet restart it?", findings.managed, observation)
    yield AnswerStatus(question="who runs next here?", answer=found.heir.value)
    yield AnswerStatus(question="what does its DaemonSet say?", answer=found.owner.value)
    yield AnswerStatus(
        question="does it serve the API?", answer="yes" if found.serves_api else "no"
    )
    for question, answer in (
        ("is its hold over?", found.hold_over),
        ("is the dwell over?", found.dwell_over),
        ("may it be offered again?", found.back_off_over),
        ("did a consistent list confirm?", found.confirmed),
    ):
        yield AnswerStatus(question=question, answer="yes" if answer else "no")
    ids = len(follow.pod_uids(checkpoint))
    yield AnswerStatus(question="how many pods are looked at?", answer=str(ids))


def _judged(question: str, judgement: Judgement, observation: Observation) -> AnswerStatus:
    readings = {
        "runtime": observation.runtime,
        "kernel": observation.processes,
        "boot": observation.machine,
        "runningpods": observation.running_pods,
        "kubelet": observation.kubelet_list,
    }
    witnesses: list[WitnessStatus] = []
    for testimony in judgement.testimonies:
        reading = readings.get(testimony.witness)
        witnesses.append(
            WitnessStatus(
                source=testimony.witness,
                says=f"{testimony.answer.value}: {testimony.because}",
                at=reading.at if isinstance(reading, Seen) else None,
            )
        )
    return AnswerStatus(
        question=question, answer=judgement.answer.value, witnesses=tuple(witnesses)
    )
