"""Say which of design section 3's deadlines have passed for a slot."""

from __future__ import annotations

from checkpointd.decide import timers, words
from checkpointd.decide.scene import Scene
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.evidence import Is, Want
from checkpointd.model.files import CopyKind
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import Observation


def is_hold_over(checkpoint: Checkpoint, scene: Scene) -> bool:
    """Rule 3a's hold: 0 for a pod that serves the API or ran in this boot, else the boot-hold.

    In the boot in which it ran, a daemon that was only restarted must first have tried the API.
    """
    observation, times = scene.observation, scene.policy.times
    if checkpoint.ran_in_boot == observation.boot_id:
        return observation.api_contact.failures > 0
    if checkpoint.serves_api:
        return True
    blocking = checkpoint.kind is CopyKind.BLOCKING
    hold = times.boot_hold_blocking if blocking else times.boot_hold
    hold += timers.jitter(scene.policy.node_name, checkpoint.slot, hold, times.jitter)
    if observation.api_contact.failures < 2:
        return False
    start = _hold_start(observation)
    if start is not None and scene.timers.passed(start, hold):
        return True
    at_most = max(times.boot_hold_at_most, hold)
    return scene.timers.passed(observation.started, at_most) and scene.timers.passed(
        observation.api_contact.unknown_since, hold
    )


def is_tombstone_hold_over(checkpoint: Checkpoint, scene: Scene) -> bool:
    """Rule 3b's hold: 30 s of Unknown, and a failed try of our own.

    Of a pod that serves the API: none at the first refusal, or at a new boot.
    """
    contact, boot = scene.observation.api_contact, scene.observation.boot_id
    if checkpoint.serves_api and (contact.refusals or checkpoint.ran_in_boot != boot):
        return True
    over = scene.timers.passed(contact.unknown_since, scene.policy.times.tombstone_hold)
    return over and contact.failures > 0


def _hold_start(observation: Observation) -> Instant | None:
    """Return since when kubelet, default route and silence have all been there."""
    machine, route = observation.machine, observation.default_route
    unknown_since = observation.api_contact.unknown_since
    if isinstance(machine, Unknown) or machine.value.kubelet is None:
        return None
    if isinstance(route, Unknown) or not route.value or unknown_since is None:
        return None
    moments = (machine.value.kubelet.started, route.since, unknown_since)
    return max(moments, key=lambda moment: moment.seconds)


def is_lease_fresh(scene: Scene) -> bool:
    """Tell whether the lease was read a short while ago: an older look says nothing of now."""
    lease, stale = scene.observation.lease, scene.policy.times.lease_stale
    return isinstance(lease, Seen) and scene.now.seconds_since(lease.at) <= stale


def judge_cut_off(scene: Scene) -> Is:
    """Rule 3c: the lease has not moved for 40 s, and that has been so for 60 s.

    What counts is how long it was read unmoved, not how long ago it was read. A lease that cannot
    be read at all is no reason to keep a copy for ever: after 60 s it counts as moving.
    """
    lease, times = scene.observation.lease, scene.policy.times
    if isinstance(lease, Unknown):
        return Is.NO if scene.timers.passed(lease.since, times.cut_off) else Is.UNKNOWN
    if not is_lease_fresh(scene):
        return Is.NO
    still = lease.at.seconds_since(lease.since) >= times.lease_stale + times.cut_off
    return Is.YES if still else Is.NO


def is_dwell_over(checkpoint: Checkpoint, scene: Scene) -> bool:
    """Rule 7: tell whether the next start may follow the last stop."""
    stopped = checkpoint.stopped_at
    if stopped is None or stopped.boot_id != scene.observation.boot_id:
        return True
    return scene.timers.passed(stopped, scene.policy.times.min_dwell)


def is_deadline_over(checkpoint: Checkpoint, scene: Scene) -> bool:
    """Tell whether the start-deadline (OFFERED) or the hand-back's (YIELDING) has passed."""
    times = scene.policy.times
    if checkpoint.phase is Phase.YIELDING:
        return scene.timers.passed(checkpoint.stopped_at, times.hand_back)
    if checkpoint.phase is not Phase.OFFERED:
        return False
    start = _offer_start(checkpoint, scene.observation)
    return start is not None and scene.timers.passed(start, times.start_deadline)


def _offer_start(checkpoint: Checkpoint, observation: Observation) -> Instant | None:
    """Return when the start-deadline began: it runs only while kubelet and runtime are Seen.

    A manifest that could not be placed yet says nothing against the kubelet.
    """
    machine = observation.machine
    runtime_since = observation.available.get("runtime")
    if isinstance(machine, Unknown) or machine.value.kubelet is None or runtime_since is None:
        return None
    if isinstance(observation.kubelet_list, Unknown):
        return None
    manifests, activation = observation.manifests, checkpoint.activation
    moments: list[Instant] = []
    if isinstance(manifests, Seen):
        if activation is not None and activation.file not in manifests.value:
            return None
        moments.append(manifests.since)
    moments += [
        machine.value.kubelet.started,
        runtime_since,
        observation.kubelet_list.value.answering_since,
    ]
    if checkpoint.since.boot_id == observation.boot_id:
        moments.append(checkpoint.since)
    return max(moments, key=lambda moment: moment.seconds)


def is_grace_over(checkpoint: Checkpoint, scene: Scene) -> bool:
    """Rule 5: tell whether the store has been unwanted for its whole grace."""
    return scene.timers.passed(checkpoint.gone_since, scene.policy.times.retire_store)


def is_confirmed(checkpoint: Checkpoint, scene: Scene) -> bool:
    """Tell whether a consistent LIST, sent after the pod was first seen gone, agrees."""
    confirmed = scene.observation.confirmed_uids
    since = confirm_after(checkpoint, scene)
    if isinstance(confirmed, Unknown) or since is None or confirmed.at.is_before(since):
        return False
    if words.find_want(checkpoint) is Want.DONE or checkpoint.parent.terminating:
        return True  # a deletionTimestamp is never taken back, though finalizers may keep the pod
    return checkpoint.parent.uid not in confirmed.value


def confirm_after(checkpoint: Checkpoint, scene: Scene) -> Instant | None:
    """Return the instant after which a consistent LIST is wanted; None while it is not due."""
    since = checkpoint.gone_since
    if since is None:
        return None
    if scene.all_gone_since is not None:
        again = scene.all_gone_since.plus(scene.policy.times.retire_store)
        return again if scene.timers.reached(again) else None
    return since
