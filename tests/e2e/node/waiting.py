"""The one place where the tests wait: until a condition holds, never for a time."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotYetError(Exception):
    """Raised by a condition that does not hold yet; its text ends up in the time-out's message."""


def wait_for(
    what: str, condition: Callable[[], T | None], timeout: float, interval: float = 0.05
) -> T:
    """Return the first value of `condition` that is neither None nor False.

    `timeout` and `interval` are in seconds. A condition may raise NotYetError or a network error
    to say "not yet". Raises TimeoutError, which tells `what` and the condition's last word.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            value = condition()
            last = repr(value)
        except (NotYetError, OSError, http.client.HTTPException) as error:
            value, last = None, f"{type(error).__name__}: {error}"
        if value is not None and value is not False:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what} (last seen: {last})")
        time.sleep(interval)


def holds_for(what: str, condition: Callable[[], bool], seconds: float) -> None:
    """Return after `condition` has held at every look for that long; AssertionError if it ends."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition(), f"no longer: {what}"
        time.sleep(0.1)
