"""The picture for people changes when something changed, not with each look."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointd.decide import plan, portrait
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.evidence import Api
from checkpointd.model.moments import Instant
from checkpointd.model.observation import Observation, Override, Verb
from checkpointd.model.status import Health, NextStatus, NodeStatus
from tests.builders import observations as build
from tests.builders.observations import at, seen, silent, unknown


def draw(observation: Observation, now: Instant, not_before: Instant | None = None) -> NodeStatus:
    """Return the picture at an instant, with one checkpoint."""
    store = build.stored(build.checkpoint(not_before=not_before))
    return portrait.portray(plan.make(observation, store, build.POLICY, now), store).status


def test_the_picture_of_a_node_at_rest_stays_the_same() -> None:
    before = draw(build.observation(runtime=seen(build.runtime(), read=999)), at(1000))
    after = draw(build.observation(runtime=seen(build.runtime(), read=1004)), at(1005))
    assert before == after


def test_what_waits_for_a_deadline_says_when() -> None:
    (checkpoint,) = draw(silent(), at(1000), not_before=at(1017)).checkpoints
    assert checkpoint.next is not None
    assert checkpoint.next.at == at(1017)


def test_what_waits_for_the_world_names_no_time() -> None:
    (checkpoint,) = draw(build.observation(), at(1000)).checkpoints
    assert checkpoint.next is not None
    assert checkpoint.next.at is None


def coming(observation: Observation, checkpoint: Checkpoint) -> NextStatus:
    """Return what comes next for one checkpoint."""
    store = build.stored(checkpoint)
    made = plan.make(observation, store, build.POLICY, at(1000))
    (drawn,) = portrait.portray(made, store).status.checkpoints
    assert drawn.next is not None
    return drawn.next


def test_a_serving_copy_names_no_time_though_its_grace_runs() -> None:
    serving = build.checkpoint(phase=Phase.SERVING, gone_since=at(990))
    assert coming(build.observation(), serving).at is None


def test_what_runs_promises_no_start_at_a_time() -> None:
    runs = build.observation(
        lease=build.unknown(since=990), runtime=build.runtime(build.word().uid)
    )
    assert "nothing while it runs" in coming(runs, build.checkpoint()).what
    assert coming(runs, build.checkpoint()).at is None


def test_a_tombstone_says_that_a_copy_may_still_start_and_when_it_goes() -> None:
    ending = build.checkpoint(
        build.word(terminating=True), phase=Phase.TOMBSTONE, serves_api=True, gone_since=at(990)
    )
    said = coming(build.observation(), ending)
    assert "a copy starts if the API server is lost too" in said.what
    assert said.at is not None


def test_a_held_slot_promises_nothing() -> None:
    held = build.observation(overrides={"node": Override(verb=Verb.HOLD, until="", reason="Kim")})
    assert coming(held, build.checkpoint()).what == "nothing until the operator's hold ends"


def test_a_refused_pod_is_told_of_once() -> None:
    pod = build.pod("api-2", controller=None)
    observation = build.observation(
        api_pods=seen((pod,)), candidates={pod.uid: seen(build.refused(pod))}
    )
    store = build.stored()
    drawn = portrait.portray(plan.make(observation, store, build.POLICY, at(1000)), store).status
    assert [each.name for each in drawn.refused] == ["api-2"]
    assert drawn.alarms == ()
    assert drawn.health is Health.DEGRADED


def test_a_foreign_world_lasts_since_it_answered_not_since_the_server_did() -> None:
    foreign = seen(build.world(anchor_uid="other"), since=980)
    drawn = draw(build.observation(world=foreign), at(1000))
    assert (drawn.api.state, drawn.api.since) == (Api.FOREIGN, at(980))


def test_what_is_wrong_with_the_api_server_is_told_of_each_slot_too() -> None:
    (checkpoint,) = draw(silent(), at(1000)).checkpoints
    assert [w.says for w in checkpoint.evidence[0].witnesses] == ["unknown: down"]


def test_a_node_that_was_made_anew_is_in_the_picture() -> None:
    record = build.node_record(node_renewed=at(900))
    store = build.stored(build.checkpoint(), node=record)
    made = plan.make(build.observation(), store, build.POLICY, at(1000))
    assert portrait.portray(made, store).status.api.node_renewed == at(900)


RENDERED = seen(build.candidate(build.pod()))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"candidates": {"uid-api-1": unknown("volume certs: not filled yet")}}, "not filled yet"),
        ({}, "not yet read"),
        (
            {"candidates": {"uid-api-1": RENDERED}, "kubelet_list": build.listing()},
            "neither the kubelet nor the runtime has it yet",
        ),
    ],
)
def test_b14_a_marked_pod_that_has_no_checkpoint_yet_is_in_the_picture(
    fields: dict[str, Any], why: str
) -> None:
    pod = build.pod()
    world = build.observation(pod, **fields)
    store = build.stored()
    status = portrait.portray(plan.make(world, store, build.POLICY, at(1000)), store).status
    (waiting,) = status.waiting
    assert (waiting.namespace, waiting.name) == (pod.namespace, pod.name)
    assert why in waiting.why
    assert status.health is Health.DEGRADED
