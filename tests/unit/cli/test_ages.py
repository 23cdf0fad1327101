"""Test how times are said."""

from __future__ import annotations

import pytest

from checkpointd.cli import ages
from checkpointd.model.moments import Instant
from tests.unit.cli.builders import NOW, before


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (12, "12 s"),
        (60, "1 min"),
        (95, "1 min 35 s"),
        (599, "9 min 59 s"),
        (615, "10 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86400 + 3 * 3600 + 59, "1 d 3 h"),
        (40 * 86400, "40 d"),
    ],
)
def test_spans_are_short_and_exact_where_it_matters(seconds: float, said: str) -> None:
    assert ages.span(seconds) == said


def test_ages_are_counted_in_boot_time() -> None:
    assert ages.ago(before(12), NOW) == "12 s ago"
    assert ages.lasting(before(180), NOW) == "for 3 min"
    assert ages.until(NOW.plus(125), NOW) == "in 2 min 5 s"
    assert ages.until(before(1), NOW) == "due now"
    assert (ages.ago(None, NOW), ages.lasting(None, NOW)) == ("never", "")


def test_over_a_boot_the_wall_clock_counts() -> None:
    earlier = Instant(boot_id="other", seconds=9e9, wall="2026-03-01T11:00:00Z")
    assert ages.ago(earlier, NOW) == "1 h ago"
    assert ages.until(earlier, NOW) == "its time runs anew after the boot"


@pytest.mark.parametrize("wall", ["", "yesterday", "2026-03-01T11:00:00"])
def test_a_time_that_cannot_be_told_is_not_made_up(wall: str) -> None:
    earlier = Instant(boot_id="other", seconds=1.0, wall=wall)
    assert ages.ago(earlier, NOW) == "before this boot"
    assert ages.lasting(earlier, NOW) == "since before this boot"
