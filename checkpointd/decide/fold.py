"""Sum up facts: the pure fold of each observation, which keeps since-times and counts.

Hysteresis of the contact with the API server lives here (design, section 2, "Contact with the
API"), not in the source, so that it can be replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from checkpointd.decide import scene
from checkpointd.model import observation as facts
from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import (
    NAMESPACE_ANCHOR,
    NOT_YET_READ,
    ApiContact,
    ContainerState,
    Fact,
    KubeletList,
    KubeletProcess,
    MachineProcesses,
    Observation,
    PodName,
    PodProcesses,
    Runtime,
    World,
)
from checkpointd.model.pods import ApiPod
from checkpointd.model.policy import Times

T = TypeVar("T")
FORGET_LISTED = 600.0
"""Seconds for which the last listing of a pod name is remembered."""


def initial(now: Instant, record: NodeRecord | None) -> Observation:
    """Make the observation of a daemon that has not looked yet.

    Contact found "in contact" after a restart: Unknown begins now. Lost in this boot: Unknown has
    lasted since then. Only where the record is of another boot (no record: a first run, which is
    not a new boot) is it certain that no kubelet and no runtime were here before.
    """
    unknown = Unknown(NOT_YET_READ, now)
    since = now
    new_boot = record is not None and record.boot_id != now.boot_id
    if record is not None and not record.in_contact and record.contact_changed is not None:
        since = record.contact_changed if record.contact_changed.boot_id == now.boot_id else now
    return Observation(
        boot_id=now.boot_id,
        started=now,
        api_contact=ApiContact(reached=False, reached_since=since, unknown_since=since),
        world=unknown,
        api_pods=unknown,
        confirmed_uids=unknown,
        owners={},
        lease=unknown,
        machine=unknown,
        kubelet_list=unknown,
        running_pods=unknown,
        runtime=unknown,
        images=unknown,
        processes=unknown,
        manifests=unknown,
        default_route=unknown,
        manager_state=unknown,
        frozen_file=False,
        overrides={},
        candidates={},
        ready_since={},
        had_processes=frozenset(),
        kubelet_in_boot=not new_boot,
        runtime_in_boot=not new_boot,
    )


def fold(before: Observation, new: Iterable[Fact], now: Instant, times: Times) -> Observation:
    """Merge facts into the observation, in order, then let time pass until ``now``."""
    seen = before
    for fact in new:
        seen = _forget_world(seen, _merge_fact(seen, fact, times))
    aged = replace(seen, api_contact=_let_time_pass(seen.api_contact, now, times))
    return _forget_world(seen, aged)


def resume(before: Observation, now: Instant, seconds: float) -> Observation:
    """Forget what may have changed unseen: for ``seconds`` this process did not run at all.

    The machine was suspended, or the process was stopped or starved. The sources look again at
    once. An API server that was not asked meanwhile was not silent; one that was lost must fail
    once more before anything is started.
    """
    unseen = Unknown(f"nothing was seen for {seconds:.0f} s", now)
    contact = replace(
        before.api_contact,
        silent_since=None if before.api_contact.reached else before.api_contact.silent_since,
        failures=0,
        refusals=0,
        refused_since=None,
        refused_at=None,
    )
    return replace(
        before,
        api_contact=contact,
        lease=unseen,
        machine=unseen,
        kubelet_list=unseen,
        running_pods=unseen,
        runtime=unseen,
        processes=unseen,
        available={},
    )


def merge(old: Seen[T] | Unknown, new: Seen[T] | Unknown) -> Seen[T] | Unknown:
    """Return ``new`` with the time since which it has been so."""
    if isinstance(new, Seen):
        if isinstance(old, Seen) and old.value == new.value:
            return Seen(old.value, new.at, old.since)
        return new
    return Unknown(new.why, old.since) if isinstance(old, Unknown) else new


def _merge_world(before: Observation, new: Seen[World] | Unknown) -> Observation:
    after = replace(before, world=merge(before.world, new))
    if isinstance(new, Unknown):
        return after
    return replace(after, service_denied=new.value.anchor in ("", NAMESPACE_ANCHOR))


def _merge_fact(  # noqa: C901, PLR0911, PLR0912 - one arm per fact
    before: Observation, fact: Fact, times: Times
) -> Observation:
    match fact:
        case facts.ApiAnswered() | facts.ApiRefused() | facts.ApiSilent():
            return replace(before, api_contact=_merge_contact(before.api_contact, fact, times))
        case facts.ApiUserRead():
            return replace(before, api_user=fact.user)
        case facts.WorldRead():
            return _merge_world(before, fact.result)
        case facts.ApiPodsRead():
            return _merge_pods(before, fact.result)
        case facts.ListConfirmed():
            return replace(before, confirmed_uids=merge(before.confirmed_uids, fact.result))
        case facts.OwnerRead():
            old = before.owners.get(fact.slot, Unknown(NOT_YET_READ, before.started))
            return replace(before, owners={**before.owners, fact.slot: merge(old, fact.result)})
        case facts.LeaseRead():
            return _merge_lease(before, fact.result, times)
        case facts.MachineRead():
            return _merge_machine(before, fact.result)
        case facts.KubeletListRead():
            return _merge_kubelet_list(before, fact.result)
        case facts.RunningPodsRead():
            return replace(before, running_pods=merge(before.running_pods, fact.result))
        case facts.RuntimeRead():
            merged = replace(
                before,
                runtime=merge(before.runtime, fact.result),
                exits=_note_exits(before.exits, fact.result),
            )
            return _note_available(merged, "runtime", before.runtime, fact.result)
        case facts.ImagesRead():
            return replace(before, images=merge(before.images, fact.result))
        case facts.ProcessesRead():
            return _merge_processes(before, fact.result)
        case facts.ManifestsRead():
            return replace(
                before,
                manifests=merge(before.manifests, fact.result),
                manifest_problem=fact.problem,
                manifest_notes=fact.notes,
            )
        case facts.RouteRead():
            return replace(before, default_route=merge(before.default_route, fact.result))
        case facts.ManagerRead():
            return _merge_manager(before, fact)
        case facts.OverridesRead():
            return _merge_overrides(before, fact)
        case facts.CandidateRead():
            return _merge_candidate(before, fact)


# ---- contact with the API server ----------
def _merge_contact(
    before: ApiContact,
    fact: facts.ApiAnswered | facts.ApiRefused | facts.ApiSilent,
    times: Times,
) -> ApiContact:
    match fact:
        case facts.ApiAnswered():
            return _answered(before, fact, times)
        case facts.ApiRefused():
            return _refused(_failed(before, fact.at, fact.why), fact.at, times)
        case facts.ApiSilent():
            return _failed(before, fact.at, fact.why)


def _answered(before: ApiContact, fact: facts.ApiAnswered, times: Times) -> ApiContact:
    since = before.answers_since or fact.at
    after = replace(
        before,
        answers_since=since,
        answered_at=fact.at,
        refusals=0,
        refused_since=None,
        refused_at=None,
        silent_since=None,
        failures=0,
        unknown_since=None,
        address=fact.address or before.address,
        local=fact.local,
        listening_pods=(
            before.listening_pods if fact.listening_pods is None else fact.listening_pods
        ),
    )
    if not before.reached and fact.at.seconds_since(since) >= times.answers_apart:
        return replace(after, reached=True, reached_since=fact.at)
    return after


def _failed(before: ApiContact, at: Instant, why: str) -> ApiContact:
    unknown_since = before.unknown_since or at
    return replace(
        before,
        answers_since=None,
        silent_since=before.silent_since or at,
        failures=before.failures + 1,
        why=why,
        unknown_since=None if before.reached else unknown_since,
    )


def _refused(before: ApiContact, at: Instant, times: Times) -> ApiContact:
    last = before.refused_at
    after = replace(
        before,
        refusals=before.refusals + 1,
        refused_since=before.refused_since or at,
        refused_at=at,
    )
    twice = last is not None and at.seconds_since(last) <= times.refused_within
    return _lost(after, at) if before.reached and twice else after


def _lost(before: ApiContact, at: Instant) -> ApiContact:
    since = before.silent_since or at
    return replace(before, reached=False, reached_since=at, unknown_since=since)


def _let_time_pass(before: ApiContact, now: Instant, times: Times) -> ApiContact:
    silent = before.silent_since
    if before.reached and silent is not None and now.seconds_since(silent) >= times.silent_for:
        return _lost(before, now)
    return before


def _forget_world(before: Observation, after: Observation) -> Observation:
    """Make world and list Unknown when contact is lost: another world may answer the next time.

    So too when answers that did not yet last end: what they told is not what the next will tell.
    """
    was, now = before.api_contact, after.api_contact
    ended = was.reached or (was.answers_since is not None and now.answers_since is None)
    if now.reached or not ended:
        return after
    lost = Unknown(after.api_contact.why, after.api_contact.reached_since)
    return replace(after, world=lost, api_pods=lost, ready_since={}, lease=lost)


# ---- lists that need more than a merge ----------
def _merge_pods(before: Observation, result: Seen[tuple[ApiPod, ...]] | Unknown) -> Observation:
    if isinstance(result, Unknown):
        return replace(before, api_pods=merge(before.api_pods, result), ready_since={})
    ready = {
        pod.uid: before.ready_since.get(pod.uid, result.at) for pod in result.value if pod.ready
    }
    return replace(before, api_pods=merge(before.api_pods, result), ready_since=ready)


def _merge_lease(before: Observation, result: Seen[str] | Unknown, times: Times) -> Observation:
    """Note since when the lease has been read: a longer pause between two looks ends that."""
    old = before.lease
    if (
        isinstance(old, Seen)
        and isinstance(result, Seen)
        and result.at.seconds_since(old.at) > times.lease_stale
    ):
        old = Unknown("not read for some time", result.at)
    after = replace(before, lease=merge(before.lease, result))
    return _note_available(after, "lease", old, result)


def _merge_machine(before: Observation, result: Seen[MachineProcesses] | Unknown) -> Observation:
    after = replace(before, machine=merge(before.machine, result))
    if isinstance(result, Unknown):
        return after
    old = before.machine.value.kubelet if isinstance(before.machine, Seen) else None
    new = result.value.kubelet
    after = replace(
        after,
        kubelet_in_boot=before.kubelet_in_boot or new is not None,
        runtime_in_boot=before.runtime_in_boot or result.value.runtime_present,
    )
    if new is not None and (old is None or new.started != old.started):
        after = replace(after, kubelet_started_ns=_unix_time(new.started, result.at))
    replaced = old is not None and (new is None or (new.pid, new.started) != (old.pid, old.started))
    if replaced or _is_older(before.kubelet_list, new):
        gone = Unknown("the kubelet was restarted" if new else "no kubelet process", result.at)
        after = replace(after, kubelet_list=gone, running_pods=gone)
    return after


def _unix_time(then: Instant, now: Instant) -> int:
    """Return Unix nanoseconds of ``then``, by the wall clock of ``now``: the runtime's count."""
    if not now.wall:
        return 0
    return int((scene.parse_wall(now.wall).timestamp() - now.seconds_since(then)) * 1e9)


def _is_older(listed: Seen[KubeletList] | Unknown, kubelet: KubeletProcess | None) -> bool:
    """Tell whether a list is of a kubelet before this one, whose end was not seen."""
    if isinstance(listed, Unknown) or kubelet is None:
        return False
    return listed.value.answering_since.is_before(kubelet.started)


def _merge_manager(before: Observation, fact: facts.ManagerRead) -> Observation:
    """Note when a shutdown was cancelled: all deadlines run in full again (design, section 3)."""
    after = replace(
        before,
        manager_state=merge(before.manager_state, fact.result),
        frozen_file=fact.frozen_file,
    )
    if isinstance(fact.result, Unknown) or not scene.is_frozen(before) or scene.is_frozen(after):
        return after
    return replace(after, thawed=fact.result.at)


def _merge_kubelet_list(
    before: Observation, result: Seen[frozenset[PodName]] | Unknown
) -> Observation:
    old = before.kubelet_list
    if isinstance(result, Unknown):
        return replace(before, kubelet_list=merge(old, result))
    previous = old.value if isinstance(old, Seen) else None
    listed: dict[PodName, Instant] = dict.fromkeys(result.value, result.at)
    for name, at in previous.last_listed.items() if previous else ():
        if name not in listed and result.at.seconds_since(at) < FORGET_LISTED:
            listed[name] = at
    value = KubeletList(
        pods=result.value,
        answering_since=previous.answering_since if previous else result.at,
        last_listed=listed,
    )
    since = old.since if isinstance(old, Seen) and old.value.pods == value.pods else result.at
    return replace(before, kubelet_list=Seen(value, result.at, since))


def _merge_processes(
    before: Observation, result: Seen[Mapping[str, PodProcesses]] | Unknown
) -> Observation:
    after = replace(before, processes=merge(before.processes, result))
    if isinstance(result, Unknown):
        return after
    sandboxes = (
        {sandbox.id for sandbox in before.runtime.value.sandboxes}
        if isinstance(before.runtime, Seen)
        else set[str]()
    )
    had = {
        uid
        for uid, pod in result.value.items()
        if any(
            leaf.pids and not leaf.only_pause and leaf.id not in sandboxes for leaf in pod.leaves
        )
    }
    return (
        after
        if had <= before.had_processes
        else replace(after, had_processes=before.had_processes | had)
    )


def _merge_overrides(before: Observation, fact: facts.OverridesRead) -> Observation:
    kept = {
        name: word
        for name, word in before.overrides.items()
        if fact.all_unread or name in fact.unread
    }
    words = {**kept, **fact.overrides}
    return replace(before, overrides=words, override_problems=fact.problems)


def _merge_candidate(before: Observation, fact: facts.CandidateRead) -> Observation:
    old = before.candidates.get(fact.parent_uid, Unknown(NOT_YET_READ, before.started))
    merged = merge(old, fact.result)
    return replace(before, candidates={**before.candidates, fact.parent_uid: merged})


def _note_exits(
    before: Mapping[str, Instant], result: Seen[Runtime] | Unknown
) -> Mapping[str, Instant]:
    """Note when each container was first seen exited: the kubelet's back-off counts from there."""
    if isinstance(result, Unknown):
        return before
    exited = [c.id for c in result.value.containers if c.state is ContainerState.EXITED]
    if len(exited) == len(before) and all(one in before for one in exited):
        return before
    return {one: before.get(one, result.at) for one in exited}


def _note_available(
    after: Observation, name: str, old: Seen[T] | Unknown, new: Seen[T] | Unknown
) -> Observation:
    if isinstance(new, Unknown):
        return replace(after, available={k: v for k, v in after.available.items() if k != name})
    if isinstance(old, Seen) and name in after.available:
        return after
    return replace(after, available={**after.available, name: new.at})
