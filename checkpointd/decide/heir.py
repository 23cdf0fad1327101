"""Say how far the slot's next runner is: may the copy step aside for it now (rule 4)."""

from __future__ import annotations

from dataclasses import dataclass

from checkpointd.decide import runs
from checkpointd.decide.scene import Scene
from checkpointd.model.checkpoint import Checkpoint, Phase, Word
from checkpointd.model.evidence import Api, Heir, Is
from checkpointd.model.files import CopyKind
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import Container, ContainerState, Runtime

LEASE_RENEWED = 20.0
"""Seconds: a kubelet renews its lease every 10 s (pkg/kubelet/kubelet.go: a quarter of 40 s)."""
BEFORE_TRY = 2.0
"""Seconds before the kubelet's next try at which the copy goes (rule 4)."""
SLOW_STOP = 0.5
"""Seconds: a copy whose last stop took longer goes when the other is bound (rule 4)."""


@dataclass(frozen=True, slots=True)
class Local:
    """Hold what this host says of the heir: does it run, does the kubelet manage it."""

    runs: Is
    managed: Is


def judge_heir(checkpoint: Checkpoint, heir: Word | None, local: Local, scene: Scene) -> Heir:
    """Return the heir's state.

    READY is the API's word, and must be about what runs here now. An exclusive copy stays while the
    runtime is not seen (rule 4), whoever else is Ready.
    """
    if heir is None:
        return Heir.NONE
    runtime = scene.observation.runtime
    serves = checkpoint.phase.has_manifest
    is_blind = isinstance(runtime, Unknown) and serves and checkpoint.kind is CopyKind.EXCLUSIVE
    pod = scene.pods.get(heir.uid) if scene.api is Api.TRUSTED and not is_blind else None
    if pod is not None and local.runs is Is.YES and runs.is_ready_now(pod, scene.observation):
        return Heir.READY
    if isinstance(runtime, Unknown):
        return Heir.BOUND
    if _has_failed(checkpoint, heir, runtime.value, scene):
        return Heir.FAILED
    if _may_start(checkpoint, heir, local.managed, runtime.value, scene):
        return Heir.GO
    return Heir.BOUND


def _has_failed(checkpoint: Checkpoint, heir: Word, runtime: Runtime, scene: Scene) -> bool:
    if checkpoint.phase is not Phase.YIELDING:
        return heir.uid == checkpoint.failed_heir
    exits = count_attempts(runtime, heir.uid, ended_only=True) - checkpoint.attempts_at_stop
    return exits >= scene.policy.times.hand_back_exits


def count_attempts(runtime: Runtime, uid: str, *, ended_only: bool = False) -> int:
    """Count how often the pod's most restarted container has been started (or has ended)."""
    newest: dict[str, tuple[int, bool]] = {}
    for container in runtime.containers:
        if container.uid == uid:
            ended = container.state is ContainerState.EXITED
            count = container.attempt + (1 if ended or not ended_only else 0)
            previous = newest.get(container.name, (-1, False))
            newest[container.name] = max(previous, (count, ended))
    return max((count for count, _ended in newest.values()), default=0)


def _may_start(
    checkpoint: Checkpoint, heir: Word, managed: Is, runtime: Runtime, scene: Scene
) -> bool:
    """Tell whether the heir would run at once if the copy went (rule 4, exclusive)."""
    if not _kubelet_acts(managed, scene) or not _has_images(heir, scene):
        return False
    slow = checkpoint.stop_seconds is not None and checkpoint.stop_seconds > SLOW_STOP
    # Without its API server the kubelet could not read what the other's volumes are made of.
    early = slow and not checkpoint.serves_api
    ready = (
        runs.has_ready_sandbox(runtime, heir.uid)
        and _is_initialised(heir, runtime, scene)
        and (_is_set_up(heir, runtime, scene) or _is_long_in_contact(scene))
    )
    return (early or ready) and _tries_soon(checkpoint, heir, runtime, scene)


def _is_set_up(heir: Word, runtime: Runtime, scene: Scene) -> bool:
    """Tell whether this kubelet process has set up the heir's volumes: it made a sandbox since.

    Or a container: it makes either only afterwards (pkg/kubelet/kubelet.go, syncPod). One that was
    restarted finds the old sandbox still READY, and has to read secrets from the API server first.
    """
    since = scene.observation.kubelet_started_ns
    sandboxes = (each.created_ns for each in runtime.sandboxes if each.uid == heir.uid)
    containers = (each.created_ns for each in runtime.containers if each.uid == heir.uid)
    return max((*sandboxes, *containers), default=0) >= since


def _is_long_in_contact(scene: Scene) -> bool:
    """Tell whether the API server has been there for the kubelet's longest back-off."""
    contact = scene.observation.api_contact
    return scene.timers.passed(contact.reached_since, scene.policy.times.crash_back_off_most)


def _tries_soon(checkpoint: Checkpoint, heir: Word, runtime: Runtime, scene: Scene) -> bool:
    """Tell whether no container of the heir sits out a back-off: each runs or starts soon.

    A copy that goes in the middle of one leaves the slot empty until it ends. The kubelet restarts
    about 1 s after the first exit, which no copy is sure to be quick enough for, then 10 s after
    the exit at the earliest, doubling to 300 s (pkg/kubelet: backOffPeriod, MaxContainerBackOff).
    A kubelet may be set to shorter ones; after the longest the copy goes whatever was expected.
    """
    pod = scene.pods.get(heir.uid)
    done = pod.init_containers if pod is not None else frozenset[str]()
    newest: dict[str, Container] = {}
    for container in runtime.containers:
        known = newest.get(container.name)
        mine = container.uid == heir.uid and container.name not in done
        if mine and (known is None or known.attempt < container.attempt):
            newest[container.name] = container
    slow = 0.0 if may_bound(checkpoint) else checkpoint.stop_seconds or 0.0
    return all(_starts_soon(container, slow, scene) for container in newest.values()) or (
        _is_long_in_contact(scene)
    )


def is_bounded(checkpoint: Checkpoint) -> bool:
    """Tell whether the copy that steps aside gets a grace of 1 s (rule 4), not its own.

    Its last stop took long; or it is not known how long, and the other, which has been tried
    before, sits out a back-off: a copy that ends too late costs another one, twice as long.
    """
    if checkpoint.phase is not Phase.YIELDING or not may_bound(checkpoint):
        return False
    if checkpoint.stop_seconds is None:
        return checkpoint.attempts_at_stop > 0
    return checkpoint.stop_seconds > SLOW_STOP


def may_bound(checkpoint: Checkpoint) -> bool:
    """Tell whether the copy holds what its parent needs, and writes nothing that outlives it."""
    active = checkpoint.activation
    generation = checkpoint.generation(active.generation) if active is not None else None
    exclusive = checkpoint.kind is CopyKind.EXCLUSIVE
    return exclusive and generation is not None and not generation.writable_host_path


def _starts_soon(container: Container, slow: float, scene: Scene) -> bool:
    """Tell whether the container starts when the copy, which takes ``slow`` seconds, has ended."""
    exited = scene.observation.exits.get(container.id)
    if container.state is not ContainerState.EXITED or exited is None:
        return True
    # Bounded before it is a float: a pod that crashes for days has been restarted 1000 times.
    doubled = min(max(container.attempt - 1, 0), 10)
    times = scene.policy.times
    back_off = min(times.crash_back_off * 2**doubled, times.crash_back_off_most)
    lead = max(min(BEFORE_TRY, back_off / 5), min(slow + SLOW_STOP, back_off * 4 / 5))
    return scene.timers.passed(exited, back_off - lead)


def _kubelet_acts(managed: Is, scene: Scene) -> bool:
    """Tell whether the kubelet acts for the heir: it lists it, or its lease is renewed for 40 s."""
    if isinstance(scene.observation.kubelet_list, Seen):
        return managed is Is.YES
    lease, stale = scene.observation.lease, scene.policy.times.lease_stale
    if isinstance(lease, Unknown) or not scene.lease_is_fresh:
        return False
    watched = scene.timers.passed(scene.observation.available.get("lease"), stale)
    return watched and lease.at.seconds_since(lease.since) < LEASE_RENEWED


def _has_images(heir: Word, scene: Scene) -> bool:
    pod = scene.pods.get(heir.uid)
    images = scene.observation.images
    if pod is None or isinstance(images, Unknown):
        return False
    return all(_is_present(image, images.value) for image in pod.images)


def _is_present(image: str, present: frozenset[str]) -> bool:
    return any(name in present for name in image_names(image))


def image_names(image: str) -> tuple[str, ...]:
    """Return the names that a runtime may list an image under (distribution reference rules)."""
    tagged = image if "@" in image or ":" in image.rsplit("/", 1)[-1] else f"{image}:latest"
    first = tagged.split("/", 1)[0]
    if "/" not in tagged:
        return (tagged, f"docker.io/library/{tagged}")
    if "." not in first and ":" not in first and first != "localhost":
        return (tagged, f"docker.io/{tagged}")
    return (tagged,)


def _is_initialised(heir: Word, runtime: Runtime, scene: Scene) -> bool:
    pod = scene.pods.get(heir.uid)
    if pod is None:
        return False
    if not pod.init_containers:
        return True
    started = {container.name for container in runtime.containers if container.uid == heir.uid}
    return bool(started - pod.init_containers)
