"""Rules 8 and 9: an offered copy is verified, and a copy is stopped for sure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpointd.decide import decide
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import (
    PlaceManifest,
    RemoveManifest,
    SaveCheckpoint,
    Severity,
    StopCopy,
)
from checkpointd.model.files import CopyKind
from checkpointd.model.moments import Instant
from checkpointd.model.observation import ManifestFile, Observation
from tests.builders import observations as build
from tests.builders.observations import COPY_UID, at, effects, phase_of, run, seen, unknown

UID = "uid-api-1"
PARENT = build.pod(ready=False)
YIELDING = build.checkpoint(
    phase=Phase.YIELDING, stopped_at=at(900), ended_at=at(901), stop_seconds=0.2
)


def yielding(**fields: Any) -> Checkpoint:
    return replace(YIELDING, **fields)


def after_copy(**fields: Any) -> Observation:
    """Return a node in contact from which the manifest of the copy was removed."""
    plain: dict[str, Any] = {"runtime": build.runtime(sandboxes=[build.sandbox(UID)])}
    return build.observation(PARENT, **{**plain, **fields})


def beside(**fields: Any) -> Observation:
    """Return a node in contact on which the copy runs."""
    return after_copy(**{"runtime": build.runtime(COPY_UID), **fields})


# ---- rule 9: stop for sure ----------
def test_the_kubelet_that_has_its_api_source_stops_the_copy_itself() -> None:
    before = yielding(ended_at=None, stopped_at=at(999))
    world = after_copy(runtime=build.runtime(COPY_UID))
    assert StopCopy not in effects(run(world, before))


@pytest.mark.parametrize("phase", [Phase.YIELDING, Phase.STOPPING])
@pytest.mark.parametrize(
    ("grace", "stopped", "stops"),
    [(30, 960.1, False), (30, 959.9, True), (135, 855.1, False), (135, 854.9, True)],
)
def test_e3_a_copy_is_given_its_grace_and_is_not_gone_before_it_has_ended(
    phase: Phase, grace: int, stopped: float, *, stops: bool
) -> None:
    before = yielding(
        phase=phase,
        ended_at=None,
        stopped_at=at(stopped),
        stop_seconds=None,
        activation=build.activation(grace_seconds=grace),
    )
    decision = run(after_copy(runtime=build.runtime(COPY_UID)), before)
    assert (StopCopy in effects(decision)) is stops
    assert phase_of(decision, before) is phase
    assert PlaceManifest not in effects(decision)


def test_e1_a_kubelet_without_its_api_source_is_not_waited_for() -> None:
    before = build.checkpoint(phase=Phase.STOPPING, stopped_at=at(999))
    world = build.observation(
        api=unknown(since=900),
        machine=build.machine(build.kubelet(started=950)),
        runtime=build.runtime(COPY_UID),
    )
    stops = [a for a in run(world, before).actions if isinstance(a, StopCopy)]
    assert [(a.uid, a.grace_seconds) for a in stops] == [(COPY_UID, 30)]


@pytest.mark.parametrize(("listed", "stops"), [(("static-1",), True), (("api-1",), False)])
def test_e1_a_kubelet_that_lists_no_api_pod_yet_is_not_waited_for(
    listed: tuple[str, ...], *, stops: bool
) -> None:
    before = build.checkpoint(phase=Phase.STOPPING, stopped_at=at(999))
    world = build.observation(
        build.pod(), runtime=build.runtime(COPY_UID), kubelet_list=build.listing(*listed)
    )
    assert (StopCopy in effects(run(world, before))) is stops


def test_a_kubelet_that_is_not_seen_is_given_the_time_to_stop_the_copy_itself() -> None:
    before = build.checkpoint(phase=Phase.STOPPING, stopped_at=at(999))
    world = build.observation(
        api=unknown(since=900), machine=unknown(), runtime=build.runtime(COPY_UID)
    )
    assert StopCopy not in effects(run(world, before))


@pytest.mark.parametrize(("stopped", "gone"), [(960.1, False), (959.9, True)])
def test_e1_without_its_api_source_a_copy_is_gone_once_it_was_quiet_for_40_s(
    stopped: float,
    gone: bool,
) -> None:
    before = build.checkpoint(phase=Phase.STOPPING, stopped_at=at(stopped))
    world = build.observation(
        api=unknown(since=900), machine=build.machine(build.kubelet(started=950))
    )
    assert (phase_of(run(world, before), before) is Phase.STORED) is gone


def test_without_runtime_and_api_source_no_copy_counts_as_gone() -> None:
    before = build.checkpoint(phase=Phase.STOPPING, stopped_at=at(700))
    world = build.observation(
        api=unknown(since=600),
        machine=build.machine(build.kubelet(started=650)),
        runtime=unknown(),
        processes=build.processes(build.alive(COPY_UID)),
        had_processes=frozenset({COPY_UID}),
    )
    assert phase_of(run(world, before), before) is Phase.STOPPING


def test_a_slow_copy_without_writable_host_path_is_stopped_with_1_s_of_grace() -> None:
    before = yielding(ended_at=None, stopped_at=at(999.9), stop_seconds=4.0)
    world = after_copy(runtime=build.runtime(COPY_UID))
    stops = [a for a in run(world, before).actions if isinstance(a, StopCopy)]
    assert [a.grace_seconds for a in stops] == [1]
    writes = replace(before, generations=(build.generation(writable_host_path=True),))
    assert StopCopy not in effects(run(world, writes))


@pytest.mark.parametrize(
    ("kind", "tried", "bounded"),
    [
        (CopyKind.EXCLUSIVE, 1, True),
        (CopyKind.EXCLUSIVE, 0, False),
        (CopyKind.SHAREABLE, 1, False),
        (CopyKind.BLOCKING, 1, False),
    ],
)
def test_while_the_other_sits_out_a_back_off_a_copy_that_may_be_slow_gets_1_s(
    kind: CopyKind, tried: int, bounded: bool
) -> None:
    before = yielding(
        kind=kind, ended_at=None, stopped_at=at(999.9), stop_seconds=None, attempts_at_stop=tried
    )
    found = run(after_copy(runtime=build.runtime(COPY_UID)), before).actions
    assert [a.grace_seconds for a in found if isinstance(a, StopCopy)] == [1] * bounded


def test_b8_how_long_the_copy_took_to_end_is_kept() -> None:
    before = yielding(ended_at=None, stopped_at=at(999.75), stop_seconds=None)
    after = build.saved(run(after_copy(), before))
    assert after is not None
    assert after.stop_seconds == pytest.approx(0.25)
    ready = replace(
        after_copy(runtime=build.runtime(UID)),
        api_pods=seen((build.pod(),)),
        ready_since={UID: at(1050)},
    )
    done = build.saved(run(ready, after, now=at(1060)))
    assert done is not None
    assert done.phase is Phase.STORED
    assert done.stop_seconds == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("ended", "told"),
    [
        (at(985.5), "the real pod is ready, 4.5 s after the copy ended"),
        (at(995), "the real pod is ready, without a gap"),
        (at(995, "boot-0"), "the real pod is ready"),
    ],
)
def test_b8_how_long_nobody_was_ready_at_the_hand_back_is_told(ended: Instant, told: str) -> None:
    before = yielding(ended_at=ended)
    world = replace(
        after_copy(runtime=build.runtime(UID)),
        api_pods=seen((build.pod(),)),
        ready_since={UID: at(990)},
    )
    decision = run(world, before)
    done = build.saved(decision)
    assert done is not None
    assert done.history[-1].sentence == told
    (said,) = [r.sentence for r in decision.reasons if r.changed]
    assert f"yielding → stored: {told} (" in said


# ---- rule 8: verify ----------
OFFERED = build.checkpoint(phase=Phase.OFFERED, since=at(900))


def offline(**fields: Any) -> Observation:
    """Return a node without API whose kubelet came after its loss: it manages no API pod."""
    plain: dict[str, Any] = {
        "machine": build.machine(build.kubelet(started=620)),
        "kubelet_list": build.listing(since=621),
        "manifests": build.manifests(OFFERED),
        "available": {"runtime": at(20)},
    }
    return build.observation(api=unknown(since=600), **{**plain, **fields})


def test_an_offered_copy_that_runs_serves() -> None:
    world = offline(runtime=build.runtime(COPY_UID))
    assert phase_of(run(world, OFFERED), OFFERED) is Phase.SERVING


@pytest.mark.parametrize("listed", [(), ("api-1-c0c0c0",)])
def test_a9_a_copy_that_runs_serves_whatever_the_kubelet_calls_it(listed: tuple[str, ...]) -> None:
    # Its list has names alone: a phase, for ever Pending without an API server, is not even read.
    world = offline(runtime=build.runtime(COPY_UID), kubelet_list=build.listing(*listed))
    decision = run(world, OFFERED)
    assert phase_of(decision, OFFERED) is Phase.SERVING
    assert not [r for r in decision.reasons if "not started the copy" in r.sentence]


@pytest.mark.parametrize(("since", "again"), [(880.1, False), (879.9, True)])
def test_e4_a_copy_that_the_kubelet_did_not_start_in_120_s_is_offered_again(
    since: float,
    again: bool,
) -> None:
    before = replace(OFFERED, since=at(since))
    assert (phase_of(run(offline(), before), before) is Phase.STOPPING) is again


@pytest.mark.parametrize(
    "late",
    [
        {"available": {"runtime": at(950)}},
        {"kubelet_list": build.listing(since=950)},
        {"machine": build.machine(build.kubelet(started=950))},
        {"kubelet_list": unknown()},
        {"machine": unknown()},
        {"runtime": unknown(), "available": {}},
    ],
    ids=str,
)
def test_the_start_deadline_runs_only_while_kubelet_and_runtime_are_seen(
    late: dict[str, Any],
) -> None:
    before = replace(OFFERED, since=at(700))
    assert phase_of(run(offline(**late), before), before) is Phase.OFFERED


def test_the_start_deadline_runs_only_once_the_manifest_lies_there() -> None:
    before = replace(OFFERED, since=at(700))
    missing = offline(manifests={})
    assert phase_of(run(missing, before), before) is Phase.OFFERED
    fresh = offline(manifests=seen(build.manifests(before), since=950))
    assert phase_of(run(fresh, before), before) is Phase.OFFERED


@pytest.mark.parametrize(("step", "wait"), [(0, 60), (1, 120), (4, 960), (5, 1800), (2000, 1800)])
def test_d12_e4_offers_are_repeated_after_1_min_doubling_to_30_min(step: int, wait: float) -> None:
    before = replace(OFFERED, since=at(700), retry_step=step)
    after = build.saved(run(offline(), before))
    assert after is not None
    assert after.not_before is not None
    assert after.not_before.seconds == pytest.approx(1000 + wait)
    assert after.retry_step == step + 1


def test_e2_a_copy_is_offered_again_under_a_new_name_and_uid() -> None:
    before = build.checkpoint(activations=1, retry_step=1, not_before=at(900), stopped_at=at(900))
    after = build.saved(run(offline(manifests={}), before))
    assert after is not None
    assert after.activation is not None
    assert (after.activation.number, after.activation.uid != COPY_UID) == (2, True)


def test_a_copy_that_the_runtime_lost_is_awaited_anew() -> None:
    before = build.checkpoint(phase=Phase.SERVING)
    decision = run(offline(), before)
    assert phase_of(decision, before) is Phase.OFFERED
    after = build.saved(decision)
    assert after is not None
    assert after.activation == before.activation


def test_a_copy_with_live_processes_is_not_lost_in_an_older_look_at_the_runtime() -> None:
    before = build.checkpoint(phase=Phase.SERVING)
    seen_by_kernel = build.processes(build.alive(COPY_UID, 4711))
    decision = run(offline(processes=seen_by_kernel), before)
    assert phase_of(decision, before) is Phase.SERVING


def test_e1_an_active_manifest_is_never_changed_for_newer_content() -> None:
    newer = build.generation("g2", 2)
    before = build.checkpoint(phase=Phase.SERVING, generations=(build.generation(), newer))
    decision = run(offline(runtime=build.runtime(COPY_UID)), before)
    assert not {PlaceManifest, RemoveManifest} & set(effects(decision))


def test_an_active_manifest_removed_by_hand_is_put_back() -> None:
    before = build.checkpoint(phase=Phase.SERVING)
    world = offline(runtime=build.runtime(COPY_UID), manifests={})
    placed = [a for a in run(world, before).actions if isinstance(a, PlaceManifest)]
    assert [a.activation.uid for a in placed] == [COPY_UID]


def test_an_active_manifest_edited_by_hand_is_left_with_an_alarm() -> None:
    before = build.checkpoint(phase=Phase.SERVING, sandbox_ids=(f"sandbox-{COPY_UID}",))
    edited = build.manifest(before, sha256="other")
    world = offline(runtime=build.runtime(COPY_UID), manifests={edited.name: edited})
    decision = run(world, before)
    assert effects(decision) == ()
    assert any("edited by hand" in reason.sentence for reason in decision.reasons)


def test_a_second_manifest_of_ours_for_the_slot_is_removed() -> None:
    before = build.checkpoint(phase=Phase.SERVING)
    second = build.manifest(before, name="checkpointd.kube-system.other.json")
    files = {**build.manifests(before), second.name: second}
    removed = [
        a.file
        for a in run(offline(runtime=build.runtime(COPY_UID), manifests=files), before).actions
        if isinstance(a, RemoveManifest)
    ]
    assert removed == [second.name]


def test_foreign_manifests_are_never_touched() -> None:
    foreign = build.manifest(OFFERED, name="etcd.json", ours=False, slot=None)
    decision = run(build.observation(manifests={"etcd.json": foreign}), build.checkpoint())
    assert RemoveManifest not in effects(decision)


def test_a_manifest_directory_that_cannot_be_read_hinders_no_start() -> None:
    world = offline(manifests=unknown())
    assert build.started(run(world, build.checkpoint()))


def test_a_manifest_of_ours_that_the_store_does_not_know_is_adopted() -> None:
    decision = decide(
        offline(runtime=build.runtime(COPY_UID)), build.stored(), build.POLICY, build.NOW
    )
    after = build.saved(decision)
    assert after is not None
    assert (after.phase, after.parent.uid) == (Phase.OFFERED, UID)
    assert after.activation is not None
    assert after.activation.uid == COPY_UID


def test_an_adopted_slot_is_not_stored_a_second_time_in_the_same_cycle() -> None:
    world = beside(candidates={UID: seen(build.candidate())}, manifests=build.manifests(OFFERED))
    decision = decide(world, build.stored(), build.POLICY, build.NOW)
    phases = [a.checkpoint.phase for a in decision.actions if isinstance(a, SaveCheckpoint)]
    assert phases == [Phase.OFFERED]


def stopping(file: ManifestFile) -> list[RemoveManifest]:
    """Return what is removed once a copy has been stopping for a while and that file lies there."""
    before = build.checkpoint(phase=Phase.STOPPING, stopped_at=at(999))
    world = build.observation(
        build.pod(), runtime=build.runtime(COPY_UID), manifests={file.name: file}
    )
    return [a for a in run(world, before).actions if isinstance(a, RemoveManifest)]


@pytest.mark.parametrize("fields", [{}, {"pod_name": "", "problem": "not JSON"}])
def test_an_edit_that_drops_our_annotations_does_not_keep_the_copy(fields: dict[str, str]) -> None:
    file = build.manifest(OFFERED, sha256="other", ours=False, slot=None, **fields)
    assert OFFERED.activation is not None
    wanted = RemoveManifest(OFFERED.slot, file.name, OFFERED.activation.name)
    assert stopping(file) == [wanted]


def test_another_pods_manifest_under_the_copys_name_does_not_keep_the_copy_either() -> None:
    file = build.manifest(OFFERED, sha256="other", ours=False, slot=None, pod_name="etcd")
    assert stopping(file) == []


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"ours": False, "slot": None}, "edited by hand: left as it is, and removed when"),
        ({"uid": ""}, "edited by hand, which gave the pod another UID"),
        ({"ours": False, "pod_name": "", "problem": "not JSON"}, "no pod any more (not JSON)"),
        ({"ours": False, "pod_name": "etcd"}, "another pod, kube-system/etcd: it is not touched"),
    ],
)
def test_each_kind_of_edit_is_told_with_what_to_do(fields: dict[str, Any], says: str) -> None:
    before = build.checkpoint(phase=Phase.SERVING)
    edited = build.manifest(before, sha256="other", **fields)
    world = offline(runtime=build.runtime(COPY_UID), manifests={edited.name: edited})
    decision = run(world, before)
    assert not {PlaceManifest, RemoveManifest} & set(effects(decision))
    (said,) = [r.sentence for r in decision.reasons if r.rule == "alarm"]
    assert says in said
    assert "it is put back" in said or "is put back" in said


def test_what_is_odd_about_the_static_pod_directory_is_told() -> None:
    world = replace(
        build.observation(), manifest_problem="no directory: mkdir it", manifest_notes=("a link",)
    )
    said = {(r.rule, r.severity, r.sentence) for r in run(world).reasons if r.slot is None}
    assert said == {
        ("alarm", Severity.ALARM, "no directory: mkdir it"),
        ("note", Severity.NOTICE, "a link"),
    }
