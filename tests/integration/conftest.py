"""Share one forking server per test process; nodes are made by the tests themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.machine.processes import Forking, Processes


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Fork the processes of all nodes of this test process."""
    with Forking() as running:
        yield running
