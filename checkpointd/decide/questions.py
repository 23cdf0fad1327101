"""Ask for what the next decision needs, and no more: questions are asked anew in each cycle.

Steady state costs the API server one open watch per kind and nothing else (design, section 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from checkpointd.decide import deadlines, follow, runs
from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import Question, Topic
from checkpointd.model.evidence import Api, Heir, Is, Owner, Want
from checkpointd.model.files import Candidate
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.pods import ApiPod

CALM = 30.0
WATCHFUL = 2.0
URGENT = 0.1
URGENT_FOR = 60.0
"""Seconds for which a hand-back is watched every 0.1 s: its moment is the sandbox's READY."""
EXPECTED_FOR = 180.0
"""Seconds for which an API server that was started here is looked for every second."""
CONFIRM_AGAIN = 15.0
"""Seconds until a consistent LIST that failed, or still had the pod, is asked for once more."""
KUBELET_LIST_CALM = 300.0
"""110 pods cost 40 ms of CPU (design, section 2)."""
OWNER_CALM, OWNER_DENIED = 3600.0, 300.0
"""Seconds between looks at a DaemonSet that nobody needs now; shorter while it cannot be read."""
LOST = 5.0
"""Seconds between tries while kubelet or runtime tell nothing, so that "unknown" does not last."""


def ask_always(scene: Scene, *, unstored: bool) -> Iterator[Question]:
    """Ask for what the node as a whole needs."""
    contact = scene.observation.api_contact
    yield Question(Topic.MACHINE, period=_machine_pace(scene))
    yield Question(Topic.MANAGER, period=1.0 if scene.frozen else CALM)
    if not contact.reached:
        yield Question(Topic.ROUTE, period=WATCHFUL)
    if unstored:
        yield Question(Topic.RUNTIME, period=WATCHFUL)
        yield Question(Topic.KUBELET_LIST, period=WATCHFUL)


def _machine_pace(scene: Scene) -> float:
    """Return the seconds between looks for kubelet and runtime: of their deaths a pidfd tells."""
    if not scene.observation.api_contact.reached:
        return WATCHFUL
    machine = scene.observation.machine
    live = isinstance(machine, Seen) and machine.value.kubelet and machine.value.runtime_present
    return CALM if live else 5.0


def ask_candidate(pod: ApiPod, before: Checkpoint | None, scene: Scene) -> Question:
    """Ask for the files and the rendering of a marked pod; ``before`` is its slot as stored.

    A rendering whose bytes were dropped, and whose generation has been pruned since, is asked anew.
    """
    reading = scene.observation.candidates.get(pod.uid)
    found = reading.value if isinstance(reading, Seen) else None
    candidate = found if isinstance(found, Candidate) else None
    known = (
        before is not None
        and candidate is not None
        and before.generation(candidate.hash) is not None
    )
    missing = candidate is not None and follow.lacks_bytes(candidate) and not known
    after = scene.now if missing else None
    # The kubelet itself takes a minute or more to bring new content into a volume.
    period = CALM if known else 10.0
    return Question(Topic.CANDIDATE, target=pod.uid, slot=pod.slot, period=period, after=after)


def ask_slot(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Iterator[Question]:
    """Ask for what one slot's next decision needs, candidates aside."""
    pace = _pace(checkpoint, findings, scene)
    for uid in sorted(follow.pod_uids(checkpoint)):
        after = _unwatched_since(uid, scene)
        yield Question(Topic.PROCESSES, uid, slot=checkpoint.slot, period=pace, after=after)
    yield from _ask_runtime(checkpoint, findings, scene, pace)
    if _expects_api(checkpoint, findings, scene):
        yield Question(Topic.CONTACT, period=1.0)
    yield from _ask_api(checkpoint, findings, scene)


def _unwatched_since(uid: str, scene: Scene) -> Instant | None:
    """Return since when the runtime has shown a container of the pod whose processes were not seen.

    Nobody watches those: when they die, that would be news only of the next look.
    """
    runtime, processes = scene.observation.runtime, scene.observation.processes
    if isinstance(runtime, Unknown) or isinstance(processes, Unknown):
        return None
    pod = processes.value.get(uid)
    watched = {leaf.id for leaf in pod.leaves if leaf.pids} if pod is not None else set[str]()
    running = runs.running_ids(runtime.value, uid)
    return runtime.since if running - watched else None


def _expects_api(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> bool:
    """Tell whether an API server has just been started here: the sooner it is seen to answer, the
    sooner the real pod gets its turn, before it sits out a long back-off.
    """
    if not checkpoint.serves_api or scene.observation.api_contact.reached:
        return False
    is_up = Is.YES in (findings.evidence.runs, findings.evidence.copy_runs)
    if not checkpoint.phase.is_active or not is_up:
        return False
    return not scene.timers.passed(checkpoint.since, EXPECTED_FOR)


def _pace(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> float:
    """Return the seconds between looks at the runtime."""
    if checkpoint.phase.is_active:
        handing = findings.evidence.heir in (Heir.BOUND, Heir.GO, Heir.READY)
        moving = checkpoint.phase is not Phase.SERVING or (
            handing and findings.evidence.api is Api.TRUSTED
        )
        if not moving:
            return WATCHFUL
        moved = _last_move(checkpoint, findings, scene)
        return 1.0 if scene.timers.passed(moved, URGENT_FOR) else URGENT
    wanted = findings.evidence.want is Want.HERE and findings.evidence.runs is not Is.YES
    tombstone = checkpoint.phase is Phase.TOMBSTONE and findings.evidence.runs is not Is.NO
    return 1.0 if wanted or tombstone else CALM


def _last_move(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Instant:
    """Return when state, contact or the next pod last changed, in this boot if one of them did."""
    instants = [checkpoint.since, scene.observation.api_contact.reached_since]
    if findings.heir is not None:
        instants.append(findings.heir.at)
    of_boot = [instant for instant in instants if instant.boot_id == scene.now.boot_id]
    return max(of_boot or instants, key=lambda instant: instant.seconds)


def _ask_runtime(
    checkpoint: Checkpoint, findings: Findings, scene: Scene, pace: float
) -> Iterator[Question]:
    observation = scene.observation
    # A death, and a runtime that comes or goes, are news of it at once.
    news = [r.since for r in (observation.processes, observation.machine) if isinstance(r, Seen)]
    after = max(news, key=lambda instant: instant.seconds, default=None)
    lost = isinstance(observation.runtime, Unknown)
    yield Question(Topic.RUNTIME, period=min(pace, LOST) if lost else pace, after=after)
    busy = pace < CALM
    known = isinstance(observation.kubelet_list, Seen)
    calm = KUBELET_LIST_CALM if known else LOST
    yield Question(
        Topic.KUBELET_LIST,
        period=max(pace, 0.2) if busy else calm,
        after=observation.api_contact.unknown_since,
    )
    if findings.evidence.runs is Is.UNKNOWN or findings.evidence.copy_runs is Is.UNKNOWN:
        yield Question(Topic.RUNNING_PODS, period=5.0)
    if checkpoint.phase.is_active and findings.heir is not None:
        yield Question(Topic.IMAGES, period=10.0)


def _ask_api(checkpoint: Checkpoint, findings: Findings, scene: Scene) -> Iterator[Question]:
    found = findings.evidence
    if found.api is not Api.TRUSTED:
        return
    if found.want is not Want.HERE:
        after = deadlines.confirm_after(checkpoint, scene)
        if after is not None and not found.confirmed:
            yield Question(Topic.CONFIRM_LIST, period=CONFIRM_AGAIN, after=after)
        if found.owner is not Owner.NOT_DAEMON_SET:
            yield _ask_owner(checkpoint, 60.0, checkpoint.gone_since)
    unlisted = found.want is Want.HERE and found.runs is Is.NO and found.managed is not Is.YES
    active = checkpoint.phase.is_active and found.managed is not Is.YES
    if unlisted or active:
        yield Question(Topic.LEASE, period=10.0)


def ask_ahead(checkpoints: Iterable[Checkpoint], scene: Scene) -> Iterator[Question]:
    """Ask for one DaemonSet now and then, so that a missing permission is known before it matters.

    Of one alone: what may be read of one may be read of all.
    """
    if scene.api is not Api.TRUSTED:
        return
    owned = [one for one in checkpoints if one.slot.name.startswith("ds.")]
    for first in sorted(owned, key=lambda one: (one.slot.namespace, one.slot.name))[:1]:
        reading = scene.observation.owners.get(first.slot)
        yield _ask_owner(first, OWNER_CALM if isinstance(reading, Seen) else OWNER_DENIED, None)


def _ask_owner(checkpoint: Checkpoint, period: float, after: Instant | None) -> Question:
    """Ask for a slot's DaemonSet by its own name: that of the slot may be cut."""
    controller = checkpoint.parent.controller
    known = controller is not None and controller.is_daemon_set
    name = controller.name if known and controller else checkpoint.slot.name.removeprefix("ds.")
    return Question(
        Topic.OWNER,
        target=f"{checkpoint.slot.namespace}/{name}",
        slot=checkpoint.slot,
        period=period,
        after=after,
    )


def merge(questions: Iterable[Question]) -> frozenset[Question]:
    """Ask each thing once, as often and as soon as the most urgent asks."""
    merged: dict[tuple[Topic, str], Question] = {}
    for question in questions:
        key = (question.topic, question.target)
        other = merged.get(key)
        merged[key] = question if other in (None, question) else _urgent(other, question)
    return frozenset(merged.values())


def _urgent(one: Question, two: Question) -> Question:
    periods = [q.period for q in (one, two) if q.period is not None]
    afters = [q.after for q in (one, two) if q.after is not None]
    return Question(
        one.topic,
        target=one.target,
        slot=one.slot or two.slot,
        period=min(periods, default=None),
        after=max(afters, key=lambda instant: instant.seconds, default=None),
    )
