"""Rule 2: what is stored, when it is proven, and which generations are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from checkpointd.decide import decide
from checkpointd.model.checkpoint import Phase
from checkpointd.model.decision import (
    Decision,
    PruneGenerations,
    SaveCheckpoint,
    Topic,
    WriteGeneration,
)
from checkpointd.model.files import Refusal, Refused
from checkpointd.model.observation import Observation
from checkpointd.model.pods import ApiPod
from tests.builders import observations as build
from tests.builders.observations import (
    at,
    effects,
    run,
    saved,
    seen,
    unknown,
)

UID = "uid-api-1"


def first(*pods: ApiPod, **fields: Any) -> Decision:
    """Decide with an empty store; every pod has its rendering."""
    renderings = {pod.uid: seen(build.candidate(pod, hash=f"g-{pod.name}")) for pod in pods}
    plain: dict[str, Any] = {"candidates": renderings}
    world = build.observation(*pods, **{**plain, **fields})
    return decide(world, build.stored(), build.POLICY, build.NOW)


def test_b14_a_marked_pod_is_stored_in_one_cycle() -> None:
    decision = first(build.pod())
    assert WriteGeneration in effects(decision)
    assert saved(decision) is not None


def test_s4_the_files_are_written_before_the_state_that_names_them() -> None:
    kinds = effects(first(build.pod()))
    assert kinds[-1] is SaveCheckpoint
    assert kinds.index(WriteGeneration) < len(kinds) - 1


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a7_a_pod_that_does_not_run_at_first_sight_is_stored(phase: str) -> None:
    # It waits for its image, or crashes again and again.
    assert saved(first(build.pod(phase=phase, ready=False)))


@pytest.mark.parametrize(("since", "alarm"), [(881.0, False), (880.0, True)])
def test_b14_a_pod_that_cannot_be_stored_for_2_min_is_an_alarm(
    since: float, *, alarm: bool
) -> None:
    why = unknown("volume certs: not filled yet", since)
    said = [r.sentence for r in first(build.pod(), candidates={UID: why}).reasons]
    assert ("api-1 is not checkpointed yet: volume certs: not filled yet" in said) is alarm


def test_d9_while_a_file_cannot_be_read_the_last_whole_generation_stays() -> None:
    world = stored_world(build.pod(), "g1", candidates={UID: unknown("certs: not filled yet")})
    assert effects(run(world, KNOWN)) == ()
    asked = [q for q in run(world, KNOWN).questions if q.topic is Topic.CANDIDATE]
    assert asked


def test_a5_a_marked_pod_is_stored_once_kubelet_or_runtime_has_it() -> None:
    assert effects(first(build.pod(), kubelet_list=build.listing())) == ()
    assert saved(first(build.pod(), kubelet_list=unknown(), runtime=build.runtime(UID)))


@pytest.mark.parametrize(
    "fields",
    [{"marked": False}, {"terminating": True}, {"phase": "Succeeded"}, {"phase": "Failed"}],
    ids=str,
)
def test_c15_what_is_not_marked_or_ends_is_not_stored(fields: dict[str, Any]) -> None:
    assert effects(first(build.pod(**fields))) == ()


def test_nothing_is_stored_by_the_word_of_a_server_that_is_not_trusted() -> None:
    assert effects(first(build.pod(), world=build.world(anchor_uid="other", node_uid="x"))) == ()


def test_a_namespace_has_room_for_20_checkpoints() -> None:
    pods = [build.pod(f"web-{n:02}", controller=None) for n in range(25)]
    decision = first(*pods)
    slots = {a.slot for a in decision.actions if isinstance(a, WriteGeneration)}
    assert len(slots) == 20


def test_of_two_pods_in_a_slot_the_older_is_the_parent() -> None:
    older, newer = build.pod("api-9"), build.pod("api-1", created="2026-01-01T00:00:09Z")
    after = saved(first(newer, older))
    assert after is not None
    assert after.parent.name == "api-9"


def test_b12_a_refused_pod_is_not_stored_and_people_are_told_why() -> None:
    pod = build.pod()
    no = Refused(
        parent_uid=pod.uid,
        refusals=(Refusal(field="spec.restartPolicy", reason="Never", remedy="mark it"),),
    )
    decision = first(pod, candidates={pod.uid: seen(no)})
    assert effects(decision) == ()
    assert any("spec.restartPolicy" in reason.sentence for reason in decision.reasons)


def stored_world(pod: ApiPod, hash_: str, **fields: Any) -> Observation:
    rendering = build.candidate(pod, hash=hash_, spec_hash=f"s-{hash_}")
    plain: dict[str, Any] = {
        "candidates": {pod.uid: seen(rendering)},
        "runtime": build.runtime(pod.uid),
    }
    return build.observation(pod, **{**plain, **fields})


KNOWN = build.checkpoint(sandbox_ids=(f"sandbox-{UID}",))


def test_f1_an_unproven_generation_stands_beside_the_proven_one() -> None:
    after = saved(run(stored_world(build.pod(ready=False), "g2"), KNOWN))
    assert after is not None
    assert [(g.hash, g.is_proven) for g in after.generations] == [("g1", True), ("g2", False)]


@pytest.mark.parametrize(("ready", "proven"), [(940.1, False), (939.9, True)])
def test_a_generation_is_proven_once_its_pod_was_ready_for_60_s(
    ready: float,
    proven: bool,
) -> None:
    before = replace(KNOWN, generations=(build.generation(spec_proven=False),))
    world = stored_world(build.pod(), "g1", ready_since={UID: at(ready)})
    after = saved(run(world, before)) or before
    assert after.generations[0].is_proven is proven


def test_content_is_proven_only_by_a_container_that_started_after_it_was_placed() -> None:
    placed = "2026-01-01T00:10:00Z"
    unproven = build.generation(spec_proven=False, content_proven=False, placed=placed)
    before = replace(KNOWN, generations=(unproven,))
    for begun, proven in (("2026-01-01T00:09:59Z", False), ("2026-01-01T00:10:00Z", True)):
        pod = build.pod(started=begun)
        world = stored_world(pod, "g1", ready_since={UID: at(100)})
        after = saved(run(world, before))
        assert after is not None
        kept = after.generations[0]
        assert (kept.spec_proven, kept.content_proven) == (True, proven)


def test_kept_are_the_newest_and_the_last_proven_of_two_specs() -> None:
    several = tuple(
        build.generation(f"g{n}", n, spec_hash=f"s{n}", content_proven=n < 4) for n in range(1, 6)
    )
    decision = run(stored_world(build.pod(ready=False), "g5"), replace(KNOWN, generations=several))
    pruned = [a for a in decision.actions if isinstance(a, PruneGenerations)]
    assert [a.keep for a in pruned] == [frozenset({"g5", "g3", "g2"})]


def test_what_is_active_is_kept() -> None:
    several = tuple(build.generation(f"g{n}", n, spec_hash=f"s{n}") for n in range(1, 6))
    serving = build.checkpoint(phase=Phase.SERVING, generations=several)
    after = saved(run(stored_world(build.pod(ready=False), "g5"), serving))
    assert after is not None
    assert after.generation("g1") is not None
