"""The one place where tests on the embedded node wait: until a condition holds, with a deadline."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tests.fakes.api_client import ApiError

T = TypeVar("T")


class NotYetError(Exception):
    """Raised by a condition that does not hold yet; its text ends up in the failure's message."""


def wait_for(
    what: str, condition: Callable[[], T | None], seconds: float = 40.0, every: float = 0.02
) -> T:
    """Return the first true value of ``condition``.

    It may raise NotYetError or a network error to say "not yet". Raises TimeoutError, which tells
    ``what`` and the condition's last word.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        try:
            value = condition()
            last = repr(value)
        except (NotYetError, OSError, http.client.HTTPException, ApiError) as error:
            value, last = None, f"{type(error).__name__}: {error}"
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what} (last seen: {last:.500})")
        pause.wait(every)


def holds_for(what: str, condition: Callable[[], bool], seconds: float) -> None:
    """Return after ``condition`` has held at every look for so long; else AssertionError."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < deadline:
        assert condition(), f"no longer: {what}"
        pause.wait(0.05)
