"""Rules 1, 5 and 10: what is kept, and what alone removes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpointd.decide import decide
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import (
    Question,
    RemoveManifest,
    RemoveStore,
    SaveNode,
    Topic,
)
from checkpointd.model.files import CopyKind
from checkpointd.model.observation import Observation, OwnerWord
from checkpointd.model.pods import Slot
from checkpointd.observe.source import Schedule
from tests.builders import observations as build
from tests.builders.observations import (
    COPY_UID,
    at,
    effects,
    phase_of,
    run,
    saved,
    seen,
    started,
    unknown,
)

UID = "uid-api-1"
OTHER = build.pod("other", marked=False, controller=None)
BARE = build.word(build.pod(controller=None), bound=False)
CONFIRMED = seen(frozenset({"uid-other"}), read=999)
"""A consistent LIST, sent at 999 s, that does not have the parent."""


def gone(**fields: Any) -> Observation:
    """Return a node in contact whose API no longer lists the pod; a consistent LIST agrees."""
    plain: dict[str, Any] = {"confirmed_uids": CONFIRMED}
    return build.observation(OTHER, **{**plain, **fields})


KNOWN = build.checkpoint(sandbox_ids=(f"sandbox-{UID}",))


# ---- rule 5: the copy ----------
def serving(**fields: Any) -> Checkpoint:
    plain: dict[str, Any] = {"phase": Phase.SERVING, "sandbox_ids": (f"sandbox-{COPY_UID}",)}
    return build.checkpoint(fields.pop("parent", BARE), **{**plain, **fields})


def beside(of: Checkpoint, **fields: Any) -> Observation:
    plain: dict[str, Any] = {
        "runtime": build.runtime(COPY_UID),
        "manifests": build.manifests(of),
    }
    return gone(**{**plain, **fields})


def test_the_copy_of_a_pod_without_daemon_set_stops_at_once_when_the_list_is_confirmed() -> None:
    copy = serving(gone_since=at(998))
    assert phase_of(run(beside(copy), copy), copy) is Phase.STOPPING
    unconfirmed = beside(copy, confirmed_uids=seen(frozenset(), read=997))
    assert phase_of(run(unconfirmed, copy), copy) is Phase.SERVING


def test_b1e_a_consistent_list_is_asked_for_before_anything_is_retired() -> None:
    copy = serving(gone_since=at(998))
    decision = run(beside(copy, confirmed_uids=unknown()), copy)
    asked = [q for q in decision.questions if q.topic is Topic.CONFIRM_LIST]
    assert asked == [Question(Topic.CONFIRM_LIST, period=15, after=at(998))]


def test_a_consistent_list_that_failed_is_asked_for_again_and_one_that_agreed_is_not() -> None:
    copy = serving(gone_since=at(998))
    schedule = Schedule()
    failed = run(beside(copy, confirmed_uids=unknown(since=999)), copy)
    (question,) = (q for q in failed.questions if q.topic is Topic.CONFIRM_LIST)
    schedule.ask((question,))
    schedule.answered(question, at(999))
    assert schedule.due(at(1020)) == (question,)
    tombstone = build.checkpoint(BARE, phase=Phase.TOMBSTONE, gone_since=at(998))
    agreed = run(gone(), tombstone)
    assert all(q.topic is not Topic.CONFIRM_LIST for q in agreed.questions)


def test_b1_a_consistent_list_that_still_has_the_pod_stops_nothing() -> None:
    copy = serving(gone_since=at(998))
    contrary = beside(copy, confirmed_uids=seen(frozenset({UID})))
    assert phase_of(run(contrary, copy), copy) is Phase.SERVING


def test_a_parent_that_finalizers_keep_terminating_is_as_good_as_gone() -> None:
    pod = build.pod(controller=None, terminating=True, ready=False)
    copy = serving(parent=build.word(pod), gone_since=at(998))
    world = beside(copy, api_pods=seen((pod,)), confirmed_uids=seen(frozenset({UID})))
    assert phase_of(run(world, copy), copy) is Phase.STOPPING


DAEMON_PARENT = build.word(bound=False)


@pytest.mark.parametrize(("since", "stops"), [(700.1, False), (699.9, True)])
def test_b2_a_daemon_sets_copy_stays_until_it_was_not_wanted_for_5_min(
    since: float,
    stops: bool,
) -> None:
    copy = serving(
        parent=DAEMON_PARENT,
        gone_since=at(600),
        owner_word=OwnerWord.NOT_HERE,
        owner_word_since=at(since),
    )
    assert (phase_of(run(beside(copy), copy), copy) is Phase.STOPPING) is stops


@pytest.mark.parametrize("word", [OwnerWord.WANTS, None])
def test_b2_a_daemon_sets_copy_stays_while_the_daemon_set_wants_it_or_cannot_be_read(
    word: OwnerWord | None,
) -> None:
    copy = serving(
        parent=DAEMON_PARENT, gone_since=at(100), owner_word=word, owner_word_since=at(100)
    )
    decision = run(beside(copy), copy)
    assert phase_of(decision, copy) is Phase.SERVING
    unreadable = any("cannot be read" in reason.sentence for reason in decision.reasons)
    assert unreadable is (word is None)


def test_b2_the_last_api_server_is_never_stopped_by_a_timer() -> None:
    copy = serving(serves_api=True, gone_since=at(100))
    mine = build.contact(local=True, listening_pods=frozenset({COPY_UID}))
    assert phase_of(run(beside(copy, api=mine), copy), copy) is Phase.SERVING
    other = build.contact(local=False)
    assert phase_of(run(beside(copy, api=other), copy), copy) is Phase.STOPPING


def test_b2_replay_824_the_copy_outlives_the_loss_of_the_api_64_s_later() -> None:
    copy = serving(parent=DAEMON_PARENT, serves_api=True, gone_since=at(936))
    lost = build.observation(
        api=unknown(since=1000), runtime=build.runtime(COPY_UID), manifests=build.manifests(copy)
    )
    decision = run(lost, copy)
    assert phase_of(decision, copy) is Phase.SERVING
    assert RemoveManifest not in effects(decision)


def test_an_unmarked_pod_retires_like_a_deleted_one() -> None:
    pod = build.pod(marked=False)
    world = build.observation(pod, runtime=build.runtime(UID))
    after = saved(run(world, KNOWN))
    assert after is not None
    assert after.phase is Phase.TOMBSTONE
    assert after.gone_since == build.NOW


def test_a_copy_of_an_unmarked_pod_steps_aside_for_it() -> None:
    pod = build.pod(marked=False)
    copy = build.checkpoint(phase=Phase.SERVING, kind=CopyKind.SHAREABLE)
    world = build.observation(
        pod, runtime=build.runtime(UID, COPY_UID), manifests=build.manifests(copy)
    )
    assert phase_of(run(world, copy), copy) is Phase.YIELDING


def test_copies_of_a_deleted_node_stop_after_1_h() -> None:
    copy = build.checkpoint(phase=Phase.SERVING)
    world = beside(copy, world=build.world(node_found=False))
    for since, stops in ((-2601.0, True), (-2599.0, False)):
        record = build.node_record(node_deleted_since=at(since))
        store = build.stored(copy, node=record)
        decision = decide(world, store, build.POLICY, build.NOW)
        assert (phase_of(decision, copy) is Phase.STOPPING) is stops
    serves = replace(copy, serves_api=True)
    store = build.stored(serves, node=build.node_record(node_deleted_since=at(-9999)))
    decision = decide(world, store, build.POLICY, build.NOW)
    assert phase_of(decision, serves) is Phase.SERVING


# ---- rule 5: the store ----------
def tombstone(**fields: Any) -> Checkpoint:
    plain: dict[str, Any] = {"phase": Phase.TOMBSTONE, "gone_since": at(600), "sandbox_ids": ()}
    return build.checkpoint(fields.pop("parent", BARE), **{**plain, **fields})


@pytest.mark.parametrize(("since", "goes"), [(700.1, False), (699.9, True)])
def test_b1c_the_store_goes_5_min_after_the_pod_is_no_longer_wanted(
    since: float,
    goes: bool,
) -> None:
    before = tombstone(gone_since=at(since))
    decision = run(gone(), before)
    assert (RemoveStore in effects(decision)) is goes


@pytest.mark.parametrize(
    "world",
    [
        build.observation(api=unknown(since=100)),
        build.observation(api=unknown(since=100), confirmed_uids=CONFIRMED),
        gone(world=build.world(anchor_uid="other", node_uid="other")),
        gone(world=build.world(node_found=False)),
        gone(world=build.world(anchor="", anchor_uid="", node_uid="other")),
        gone(world=unknown("403")),
        gone(api_pods=unknown("429")),
        gone(api=build.contact(refusals=1, refused_at=at(999))),
        gone(confirmed_uids=unknown()),
        gone(confirmed_uids=seen(frozenset(), read=500)),
        gone(manager_state="stopping"),
    ],
    ids=range(11),
)
def test_b1_no_store_goes_unless_a_trusted_world_says_so_twice(world: Observation) -> None:
    decision = run(world, tombstone())
    assert RemoveStore not in effects(decision)
    assert phase_of(decision, tombstone()) is Phase.TOMBSTONE


def test_s10_the_grace_runs_anew_after_unknown_and_after_a_reboot() -> None:
    after = saved(run(build.observation(api=unknown(since=990)), tombstone()))
    assert after is not None
    assert after.gone_since is None
    rebooted = saved(run(gone(), tombstone(gone_since=at(1, "boot-0"))))
    assert rebooted is not None
    assert rebooted.gone_since == build.NOW


def test_s10_the_grace_goes_on_over_a_restart_of_the_daemon() -> None:
    world = replace(gone(), started=at(990))
    assert RemoveStore in effects(run(world, tombstone()))


def test_b6_a_pod_deleted_while_the_node_was_off_is_started_until_the_api_tells() -> None:
    before = build.checkpoint(build.word(build.pod(controller=None)), ran_in_boot="boot-0")
    dead = build.observation(
        api=unknown(since=900),
        machine=build.machine(build.kubelet(started=905)),
        kubelet_list=build.listing(since=906),
    )
    assert started(run(replace(dead, started=at(900)), before))


def test_b1_all_of_two_checkpoints_gone_at_once_removes_nothing_at_first() -> None:
    two = (
        tombstone(parent=build.word(build.pod("a-1", controller=None), bound=False)),
        tombstone(parent=build.word(build.pod("b-1", controller=None), bound=False)),
    )
    decision = run(gone(), *two)
    assert RemoveStore not in effects(decision)
    assert any("all at once" in reason.sentence for reason in decision.reasons)
    record = build.node_record(all_gone_since=at(690))
    early = decide(gone(), build.stored(*two, node=record), build.POLICY, at(989))
    assert RemoveStore not in effects(early)
    stale = gone(confirmed_uids=seen(frozenset(), read=989))
    assert RemoveStore not in effects(
        decide(stale, build.stored(*two, node=record), build.POLICY, build.NOW)
    )
    late = decide(gone(), build.stored(*two, node=record), build.POLICY, build.NOW)
    assert effects(late).count(RemoveStore) == 2


def test_b2_an_api_servers_tombstone_stays_until_another_serves() -> None:
    before = tombstone(serves_api=True, parent=DAEMON_PARENT)
    mine = build.contact(local=True, listening_pods=frozenset({UID}))
    assert RemoveStore not in effects(run(gone(api=mine), before))
    assert RemoveStore in effects(run(gone(), before))


def test_a_pod_that_is_wanted_again_is_no_tombstone() -> None:
    pod = build.pod("api-2")
    after = saved(run(build.observation(pod), tombstone(parent=DAEMON_PARENT)))
    assert after is not None
    assert (after.phase, after.parent.name, after.gone_since) == (Phase.STORED, "api-2", None)


def test_a_bare_pod_created_again_under_its_name_is_the_new_parent() -> None:
    again = build.pod(controller=None, uid="uid-new", created="2026-01-01T01:00:00Z")
    after = saved(
        run(build.observation(again), build.checkpoint(build.word(build.pod(controller=None))))
    )
    assert after is not None
    assert (after.phase, after.parent.uid) == (Phase.STORED, "uid-new")


def test_s8_what_the_list_of_this_node_does_not_cover_is_no_reason() -> None:
    # The list is of all namespaces: a pod of another one is found in it, and its slot is its own.
    pod = build.pod(namespace="other")
    slot = Slot("other", "ds.api")
    before = build.checkpoint(build.word(pod), slot=slot)
    assert phase_of(run(build.observation(pod), before), before) is Phase.STORED


def test_b7_what_could_not_be_removed_is_removed_later() -> None:
    before = build.checkpoint(BARE, phase=Phase.REMOVED)
    assert RemoveStore in effects(run(gone(), before))
    # The word was trusted when it was decided: the API's loss since does not bring the pod back.
    assert RemoveStore in effects(run(build.observation(api=unknown()), before))
    assert RemoveStore not in effects(run(gone(manager_state="stopping"), before))


# ---- rule 1, and quiet ----------
def test_i5_a_link_that_flaps_starts_and_stops_nothing() -> None:
    parent = build.pod()
    for api in (build.contact(), unknown(since=999), build.contact(refusals=1)):
        world = build.observation(parent, api=api, runtime=build.runtime(UID))
        assert effects(run(world, KNOWN)) == ()


def test_b4_d1_nothing_is_written_while_nothing_changes() -> None:
    world = build.observation(build.pod(), runtime=build.runtime(UID))
    (first_time,) = run(world, KNOWN).actions
    assert isinstance(first_time, SaveNode)  # it has found out where the kubelet keeps its files
    decision = decide(world, build.stored(KNOWN, node=first_time.record), build.POLICY, build.NOW)
    assert decision.actions == ()
    assert decision.look_again.seconds > build.NOW.seconds


def test_h12_a_steady_node_asks_the_api_server_for_one_daemon_set_an_hour() -> None:
    """One of all, and each 5 min at most while it cannot be read (design, section 10)."""
    owners = [replace(build.DAEMON_SET, name=name) for name in ("z", "a" * 253, "m")]
    pods = [build.pod(f"{owner.name[:1]}-1", controller=owner) for owner in owners]
    pods.append(build.pod("b", controller=None))
    known = build.stored(*map(build.checkpoint, pods))

    def asked(**fields: Any) -> list[tuple[Topic, str, float | None]]:
        runtime = build.runtime(*(pod.uid for pod in pods))
        questions = decide(
            build.observation(*pods, runtime=runtime, **fields), known, build.POLICY, build.NOW
        ).questions
        topics = (Topic.CONFIRM_LIST, Topic.OWNER, Topic.LEASE)
        return [(q.topic, q.target, q.period) for q in questions if q.topic in topics]

    slot, target = pods[1].slot, f"kube-system/{owners[1].name}"
    assert asked() == [(Topic.OWNER, target, 300.0)]
    assert asked(owners={slot: unknown()}) == [(Topic.OWNER, target, 300.0)]
    assert asked(owners={slot: seen(OwnerWord.WANTS)}) == [(Topic.OWNER, target, 3600.0)]


def test_a_daemon_set_is_asked_for_by_its_whole_name_once_its_pod_is_gone() -> None:
    """By a cut name it would not be found, and count as deleted."""
    owner = replace(build.DAEMON_SET, name="a" * 253)
    word = build.word(build.pod("a-1", controller=owner), bound=False)
    decision = run(gone(), build.checkpoint(word, gone_since=at(900)))
    asked = next(q for q in decision.questions if q.topic is Topic.OWNER)
    assert (asked.target, asked.after) == (f"kube-system/{owner.name}", at(900))


def test_the_same_facts_are_decided_alike() -> None:
    world = build.observation(build.pod(), runtime=build.runtime(UID))
    assert run(world, KNOWN) == run(world, KNOWN)


def test_a_runtime_that_tells_nothing_is_asked_soon_and_one_that_comes_or_goes_at_once() -> None:
    alive = seen(build.processes(build.alive(UID, 1)))

    def asked(**fields: Any) -> Question:
        observation = build.observation(build.pod(), processes=alive, **fields)
        decision = run(observation, build.checkpoint())
        return next(q for q in decision.questions if q.topic is Topic.RUNTIME)

    assert asked(runtime=seen(build.runtime(UID))).period == 30.0
    assert asked(runtime=unknown()).period == 5.0
    assert asked(machine=seen(build.machine(build.kubelet()), since=990)).after == at(990)
