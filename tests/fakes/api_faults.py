"""Name what the fake API server can do in place of answering, and the requests that it counts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """Name what a server can do in place of answering."""

    RESET = "reset"
    CLOSE_IN_HANDSHAKE = "close in the handshake"
    HANG_IN_HANDSHAKE = "hang in the handshake"
    CLOSE = "close without an answer"
    HANG = "hang"
    DRIP = "drip bytes for ever"
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    GONE = "410"
    TOO_MANY = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    HTML = "html"
    TRUNCATED = "truncated"
    NULL_ITEMS = "items: null"
    NO_VERSION = "no resourceVersion"
    WRONG_KIND = "wrong kind"
    EMPTY = "an empty list"

    @property
    def is_of_connection(self) -> bool:
        """Tell whether it happens before a request could be read."""
        return self in (Fault.RESET, Fault.CLOSE_IN_HANDSHAKE, Fault.HANG_IN_HANDSHAKE)


@dataclass(frozen=True, slots=True)
class Request:
    """Hold one request that came, for tests to count."""

    method: str
    path: str
    query: str
    user: str
    agent: str = ""

    @property
    def is_watch(self) -> bool:
        """Tell whether it asks for a watch."""
        return "watch=true" in self.query
