"""Wait for what a source posts, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from checkpointd.model.observation import Fact
from checkpointd.observe.source import Mailbox

F = TypeVar("F")


def wait_for(
    mailbox: Mailbox,
    kind: type[F],
    wanted: Callable[[F], bool] = lambda _: True,
    seconds: float = 15,
) -> F:
    """Return the first posted fact of ``kind`` that is ``wanted``; others are dropped."""
    deadline = time.monotonic() + seconds
    last: list[Fact] = []
    while time.monotonic() < deadline:
        for fact in mailbox.drain(deadline - time.monotonic()):
            if isinstance(fact, kind) and wanted(fact):
                return fact
            last.append(fact)
    raise AssertionError(f"no wanted {kind.__name__}; the last facts were {last[-3:]}")
