"""Rule 3: a copy is started only when the pod certainly does not run and nobody will start it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpointd.decide import decide, timers
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import PlaceManifest, SaveCheckpoint, Topic
from checkpointd.model.files import CopyKind
from checkpointd.model.observation import (
    ContainerState,
    Observation,
)
from checkpointd.model.policy import Times
from tests.builders import observations as build
from tests.builders.observations import NODE, at, effects, run, seen, silent, started, unknown

UID = "uid-api-1"
REBOOTED = "boot-0"
TIMES = Times()
GONE = build.word(terminating=True, bound=False)


# ---- 3a ----------
def test_a_pod_that_ran_in_this_boot_is_started_at_once_when_the_api_is_silent() -> None:
    decision = run(silent(), build.checkpoint())
    assert effects(decision) == (SaveCheckpoint, PlaceManifest)


def test_the_intent_is_saved_before_the_manifest_is_placed() -> None:
    decision = run(silent(), build.checkpoint())
    saved, placed = decision.actions[:2]
    assert isinstance(saved, SaveCheckpoint)
    assert isinstance(placed, PlaceManifest)
    assert saved.checkpoint.activation == placed.activation
    assert saved.checkpoint.phase is Phase.OFFERED


def test_a1_a_pod_of_which_the_runtime_has_nothing_is_started_in_one_cycle() -> None:
    # bootkube#262: the machine was restarted, and what the kubelet said of the pod was of before.
    decision = run(silent(), build.checkpoint(serves_api=True, ran_in_boot=REBOOTED))
    assert started(decision)


@pytest.mark.parametrize("ready", [False, True])
def test_a2_another_masters_answer_does_not_start_what_the_kubelet_manages(*, ready: bool) -> None:
    # Managed and API Seen: the kubelet restarts it; a copy would only take its port.
    here = build.pod(ready=ready)
    assert not started(run(build.observation(here), build.checkpoint()))


@pytest.mark.parametrize("ready", [False, True])
def test_a2_a_dead_pod_is_started_though_the_api_answers_where_its_kubelet_is_cut_off(
    *, ready: bool
) -> None:
    # What another master calls Ready is what it heard last.
    here = build.pod(ready=ready)
    world = build.observation(
        here,
        kubelet_list=build.listing(),
        lease=seen("renewed at 880", since=890, read=995),
    )
    assert started(run(world, build.checkpoint(serves_api=True)))


@pytest.mark.parametrize("since", [896.0, 930.0])
def test_3c_a_lease_that_is_not_known_to_stand_still_for_100_s_starts_nothing(since: float) -> None:
    world = build.observation(
        build.pod(ready=False),
        kubelet_list=build.listing(),
        lease=seen("renewed", since=since, read=995),
    )
    assert not started(run(world, build.checkpoint()))


@pytest.mark.parametrize("why", ["Unimplemented", "timeout", "connection refused"])
def test_a3a_a_runtime_error_alone_starts_nothing(why: str) -> None:
    assert not started(run(silent(runtime=unknown(why)), build.checkpoint()))
    assert not started(
        run(build.observation(build.pod(), runtime=unknown(why)), build.checkpoint())
    )


def test_a3_an_empty_cgroup_alone_tells_that_a_pod_ended_when_the_runtime_is_silent() -> None:
    world = silent(
        runtime=unknown(),
        processes=build.processes(build.alive(UID)),
        had_processes=frozenset({UID}),
    )
    assert started(run(world, build.checkpoint()))


def test_a_cgroup_in_which_no_process_was_ever_seen_says_nothing() -> None:
    world = silent(runtime=unknown(), processes=build.processes(build.alive(UID)))
    assert not started(run(world, build.checkpoint()))


def test_a4_an_error_of_the_kubelet_does_not_hinder_a_start_after_its_offline_restart() -> None:
    assert started(run(silent(kubelet_list=unknown("401")), build.checkpoint()))


def test_a4_an_error_of_the_kubelet_is_no_word_on_what_is_wanted() -> None:
    # Neither here, where all is well, nor where everything is Unknown: nothing is deleted by it.
    before = build.checkpoint(sandbox_ids=(f"sandbox-{UID}",))
    well = build.observation(build.pod(), kubelet_list=unknown("403"), runtime=build.runtime(UID))
    assert effects(run(well, before)) == ()
    dark = silent(kubelet_list=unknown("timeout"), running_pods=unknown(), runtime=unknown())
    assert effects(run(dark, before)) == ()


def test_a_kubelet_that_had_the_api_and_does_not_answer_may_still_restart_the_pod() -> None:
    world = silent(kubelet_list=unknown("401"), machine=build.machine(build.kubelet(10)))
    assert not started(run(world, build.checkpoint()))


@pytest.mark.parametrize(("listed_since", "starts"), [(989.1, False), (988.9, True)])
def test_a_kubelet_must_not_have_listed_the_pod_for_10_s(listed_since: float, starts: bool) -> None:
    # A kubelet that has just started lists an API pod only once its API source has answered.
    world = silent(kubelet_list=build.listing(since=listed_since))
    assert bool(started(run(world, build.checkpoint()))) is starts


def test_a_list_from_before_the_loss_does_not_tell_that_a_newer_pod_is_not_managed() -> None:
    # It may have come to the kubelet between that look and the loss.
    world = silent(
        machine=build.machine(build.kubelet(10)), kubelet_list=seen(build.listing(), read=899)
    )
    decision = run(world, build.checkpoint())
    assert not started(decision)
    asked = [q for q in decision.questions if q.topic is Topic.KUBELET_LIST]
    assert [question.after for question in asked] == [at(900)]


def test_a13c_s9_a_sandbox_alone_is_not_a_running_pod() -> None:
    world = silent(runtime=build.runtime(sandboxes=[build.sandbox(UID)]))
    assert started(run(world, build.checkpoint()))


def test_a13a_an_ended_container_in_a_dead_sandbox_does_not_run() -> None:
    dead = build.runtime(
        sandboxes=[build.sandbox(UID, ready=False)],
        containers=[build.container(UID, ContainerState.EXITED)],
    )
    assert started(run(silent(runtime=dead), build.checkpoint()))


def test_a13b_a_running_container_in_a_dead_sandbox_runs() -> None:
    odd = build.runtime(
        sandboxes=[build.sandbox(UID, ready=False)], containers=[build.container(UID)]
    )
    assert not started(run(silent(runtime=odd), build.checkpoint()))


def test_a13d_another_pod_of_the_same_name_is_not_taken_for_the_parent() -> None:
    other = build.runtime(
        sandboxes=[build.sandbox("older-uid", name="api-1")],
        containers=[build.container("older-uid")],
    )
    assert started(run(silent(runtime=other), build.checkpoint()))


def test_an_empty_cgroup_outranks_the_runtimes_running() -> None:
    world = silent(
        runtime=build.runtime(UID),
        processes=build.processes(build.alive(UID)),
        had_processes=frozenset({UID}),
    )
    assert started(run(world, build.checkpoint()))


def test_an_old_look_at_the_cgroup_does_not_outrank_a_newer_look_at_the_runtime() -> None:
    world = silent(
        runtime=build.runtime(UID),
        processes=seen(build.processes(build.alive(UID)), read=995),
        had_processes=frozenset({UID}),
    )
    assert not started(run(world, build.checkpoint()))


def test_a_live_process_outranks_the_runtimes_nothing() -> None:
    world = silent(processes=build.processes(build.alive(UID, 4711)))
    assert not started(run(world, build.checkpoint()))


def test_a_pause_process_in_an_unknown_container_says_nothing() -> None:
    world = silent(
        runtime=unknown(), processes=build.processes(build.alive(UID, 1, only_pause=True))
    )
    assert not started(run(world, build.checkpoint()))


# ---- the hold ----------
def boot_world(**fields: object) -> Observation:
    """Return a node booted just now: nothing ran yet in this boot, the API never answered."""
    plain: dict[str, object] = {
        "machine": build.machine(build.kubelet(started=905)),
        "kubelet_list": build.listing(since=906),
    }
    world = silent(**{**plain, **fields})
    return replace(world, started=at(900))


def hold_of(before: Checkpoint, hold: float) -> float:
    return hold + timers.jitter(NODE, before.slot, hold, TIMES.jitter)


@pytest.mark.parametrize(("kind", "hold"), [(CopyKind.EXCLUSIVE, 30.0), (CopyKind.BLOCKING, 120.0)])
@pytest.mark.parametrize("late", [-0.1, 0.1])
def test_after_a_boot_the_hold_runs_from_the_kubelets_start(
    kind: CopyKind, hold: float, late: float
) -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED, kind=kind)
    end = 905 + hold_of(before, hold)
    early = replace(boot_world(), started=at(end - 89))
    decision = run(_listed_at(early, end + late), before, now=at(end + late))
    assert bool(started(decision)) is (late > 0)


def _listed_at(world: Observation, seconds: float) -> Observation:
    return replace(world, kubelet_list=seen(build.listing(since=906), read=seconds))


def test_the_hold_asks_for_a_default_route() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED)
    for route in (seen(False), unknown()):
        world = _listed_at(boot_world(default_route=route), 980)
        assert not started(run(world, before, now=at(980)))


def test_the_hold_ends_90_s_after_our_start_without_any_route() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED)
    world = boot_world(default_route=seen(False))
    assert not started(run(_listed_at(world, 989), before, now=at(989.9)))
    assert started(run(_listed_at(world, 990), before, now=at(990.1)))


def test_the_hold_asks_for_two_failed_tries() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED)
    world = boot_world()
    once = replace(world, api_contact=replace(world.api_contact, failures=1))
    assert started(run(world, before))
    assert not started(run(once, before))


def test_an_answer_in_between_makes_the_hold_run_anew() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED)
    world = boot_world()
    broken = replace(world, api_contact=replace(world.api_contact, unknown_since=at(990)))
    assert not started(run(broken, before))


def test_a_pod_that_serves_the_api_waits_for_nothing_after_a_boot() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED, serves_api=True)
    world = replace(
        build.observation(
            api=unknown(since=900),
            machine=build.machine(None, runtime=False),
            kubelet_list=unknown(),
            runtime=unknown(),
            kubelet_in_boot=False,
            available={},
        ),
        started=at(900),
    )
    assert started(run(world, before, now=at(900)))


def test_i1_no_answer_of_anybody_is_needed_after_a_boot_but_the_kubelets_process() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED)
    world = boot_world(kubelet_list=unknown(), running_pods=unknown())
    assert started(run(world, before))


def test_a3_after_a_boot_without_kubelet_and_runtime_nothing_runs_for_certain() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED)
    world = boot_world(
        machine=build.machine(None, runtime=False),
        kubelet_list=unknown(),
        runtime=unknown(),
        kubelet_in_boot=False,
        available={},
    )
    assert started(run(world, before))


def test_a3_a_kubelet_that_was_there_in_this_boot_leaves_it_open_what_runs() -> None:
    before = build.checkpoint(ran_in_boot=REBOOTED)
    world = boot_world(
        machine=build.machine(None, runtime=False),
        kubelet_list=unknown(),
        runtime=unknown(),
        kubelet_in_boot=True,
        available={},
    )
    assert not started(run(world, before))


def test_b9_only_the_missing_one_is_started() -> None:
    missing = build.checkpoint(build.word(build.pod("kcm-1", controller=build.REPLICA_SET)))
    running = build.checkpoint(build.word(build.pod("scheduler-1", controller=build.REPLICA_SET)))
    world = silent(runtime=build.runtime("uid-scheduler-1"))
    assert started(run(world, missing, running)) == {missing.slot}


def test_b9_all_three_are_started_in_one_cycle_those_that_serve_the_api_first() -> None:
    names = ("api-1", "kcm-1", "scheduler-1")
    three = [
        build.checkpoint(
            build.word(build.pod(name, controller=build.REPLICA_SET)),
            serves_api=name == "api-1",
            activation_priority=5 if name == "scheduler-1" else 0,
        )
        for name in names
    ]
    decision = run(silent(), *three)
    order = [a.slot.name for a in decision.actions if isinstance(a, PlaceManifest)]
    assert order == ["pod.api-1", "pod.scheduler-1", "pod.kcm-1"]


# ---- what is not wanted ----------
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_b12_a_finished_pod_is_not_started(phase: str) -> None:
    done = build.word(phase=phase)
    assert not started(run(silent(), build.checkpoint(done)))


def test_a_finished_pod_that_is_marked_for_restart_is_started() -> None:
    done = build.word(phase="Succeeded")
    assert started(run(silent(), build.checkpoint(done, restart_marked=True)))


@pytest.mark.parametrize("reason", ["Terminated", "NodeShutdown", "Shutdown"])
def test_e9_a_pod_that_a_node_shutdown_ended_is_started(reason: str) -> None:
    ended = build.word(phase="Failed", reason=reason)
    assert started(run(silent(), build.checkpoint(ended)))


def test_e9_a_pod_that_failed_by_itself_is_not_started() -> None:
    ended = build.word(phase="Failed", reason="Evicted")
    assert not started(run(silent(), build.checkpoint(ended)))


# ---- nobody starts anything ----------
UNTRUSTED: dict[str, dict[str, Any]] = {
    "foreign": {"world": build.world(anchor_uid="other", node_uid="other")},
    "node deleted": {"world": build.world(node_found=False)},
    "list refused": {"api_pods": unknown("429")},
    "world not read": {"world": unknown("403")},
}


@pytest.mark.parametrize("name", UNTRUSTED)
@pytest.mark.parametrize(
    "before",
    [
        build.checkpoint(serves_api=True),
        build.checkpoint(GONE, phase=Phase.TOMBSTONE, serves_api=True),
    ],
    ids=lambda before: before.phase.value,
)
def test_b1_an_answer_that_is_not_trusted_starts_nothing(name: str, before: Checkpoint) -> None:
    world = build.observation(kubelet_list=build.listing(), **UNTRUSTED[name])
    assert not started(run(world, before))


def test_without_any_known_world_nothing_is_started() -> None:
    # First run, or node.json lost: nothing is started before a first trusted contact (section 2).
    for node in (None, build.node_record(node_uid="", anchor_uid="")):
        store = replace(build.stored(build.checkpoint(serves_api=True)), node=node)
        decision = decide(silent(), store, build.POLICY, build.NOW)
        assert not started(decision)
