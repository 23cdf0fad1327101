"""The API's last trusted word on a slot, in words."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointd.decide import decide, words
from checkpointd.model.checkpoint import Phase
from tests.builders import observations as build
from tests.builders.observations import saved


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "wanted here"),
        ({"terminating": True}, "terminating"),
        ({"bound": False}, "gone"),
        ({"bound": False, "terminating": True}, "gone"),
        ({"marked": False}, "unmarked"),
        ({"phase": "Failed", "reason": "Evicted"}, "Failed: Evicted"),
        ({"phase": "Failed", "reason": "Preempting", "terminating": True}, "Failed: Preempting"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Failed", "reason": "x" * 1000}, f"Failed: {'x' * 60}"),
    ],
)
def test_why_a_pod_is_not_wanted_is_said_in_a_word(fields: dict[str, Any], says: str) -> None:
    assert words.describe_want(build.checkpoint(build.word(**fields))) == says


def test_a_successor_without_a_mark_is_what_unmarks_the_slot() -> None:
    unmarked = build.word("api-2", marked=False)
    known = build.checkpoint(build.word(bound=False), successor=unmarked)
    assert words.describe_want(known) == "unmarked"


def test_the_history_says_why_a_pod_is_not_wanted_any_more() -> None:
    evicted = build.pod(phase="Failed", reason="Evicted")
    decision = decide(
        build.observation(evicted), build.stored(build.checkpoint()), build.POLICY, build.NOW
    )
    after = saved(decision)
    assert after is not None
    assert after.phase is Phase.TOMBSTONE
    assert after.history[-1].sentence == (
        "the API server no longer wants the pod here: Failed: Evicted"
    )
    assert any("pod Failed: Evicted; runs" in reason.sentence for reason in decision.reasons)
