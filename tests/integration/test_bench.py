"""The benchmark still runs: each figure once, on the smallest node."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import main

# With the real node's tests, not with `make test`: it needs no root, but its windows take a minute.
pytestmark = pytest.mark.e2e


def test_the_benchmark_prints_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pods", "3", "--smoke"]) == 0
    printed = capsys.readouterr().out
    for figure in ("3a", "3b", "boot", "start", "idle", "memory", "event", "floor"):
        assert figure in printed
