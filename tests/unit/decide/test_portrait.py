"""The picture for people changes when something changed, not with each look."""

from __future__ import annotations

from checkpointd.decide import decide, portrait
from checkpointd.model.moments import Instant
from checkpointd.model.observation import Observation
from checkpointd.model.status import NodeStatus, timeless
from tests.builders import observations as build
from tests.builders.observations import at, seen, silent


def draw(observation: Observation, now: Instant, not_before: Instant | None = None) -> NodeStatus:
    """Return the picture at an instant, with one checkpoint."""
    store = build.stored(build.checkpoint(not_before=not_before))
    decision = decide(observation, store, build.POLICY, now)
    return portrait.portray(observation, store, build.POLICY, decision, now)


def test_the_picture_of_a_node_at_rest_stays_the_same() -> None:
    before = draw(build.observation(runtime=seen(build.runtime(), read=999)), at(1000))
    after = draw(build.observation(runtime=seen(build.runtime(), read=1004)), at(1005))
    assert timeless(before) == timeless(after)


def test_what_waits_for_a_deadline_says_when() -> None:
    (checkpoint,) = draw(silent(), at(1000), not_before=at(1017)).checkpoints
    assert checkpoint.next is not None
    assert checkpoint.next.at == at(1017)


def test_what_waits_for_the_world_names_no_time() -> None:
    (checkpoint,) = draw(build.observation(), at(1000)).checkpoints
    assert checkpoint.next is not None
    assert checkpoint.next.at is None
