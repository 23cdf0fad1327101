"""Set up what all tests share: Hypothesis, and a guard that no test leaves a process behind.

Fakes are in tests/fakes, builders of values beside the tests that use them; nothing here hides what
a test depends on.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

# No deadline per example: the machine may be busy with other tests. In CI the examples are the same
# at each run, so that a red run can be had again; at a desk each run looks somewhere else.
hypothesis.settings.register_profile("desk", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


@pytest.fixture(autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail a test that ends while a process that it started still runs, and end that process."""
    me = psutil.Process()
    # By PID: psutil takes the time of a start from the wall clock, which may have been set since.
    before = {child.pid for child in me.children(recursive=True)}
    yield
    left = [child for child in me.children(recursive=True) if child.pid not in before]
    lines: list[str] = []
    for child in left:
        try:
            lines.append(f"{child.pid} {child.status()} {' '.join(child.cmdline())}")
            child.kill()
        except psutil.NoSuchProcess:
            continue
    if lines:
        pytest.fail("processes left behind:\n" + "\n".join(lines), pytrace=False)


LONGEST_FIRST = ("test_crashes.py", "test_faults.py", "integration", "test_linters.py", "property")
"""Names in a test's path: the long tests start first, so that none is left over at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long tests first, the others after them as they come."""
    items.sort(key=lambda item: _length_rank(item.path))


def _length_rank(path: Path) -> int:
    ranks = (i for i, name in enumerate(LONGEST_FIRST) if name in path.parts)
    return next(ranks, len(LONGEST_FIRST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted with record_property(what, number), summed over all that passed."""
    counts: collections.Counter[str] = collections.Counter()
    for report in terminalreporter.getreports("passed"):
        counts.update({name: n for name, n in report.user_properties if isinstance(n, int)})
    for what, count in counts.items():
        terminalreporter.write_line(f"{count:5} times {what}")
