"""Parse what an API server answers: objects, pages of a LIST, events of a WATCH, Status.

Pure. What is not the answer that was asked for is a RejectedError; the server's own words in it are
cut to one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from checkpointd import json_fields
from checkpointd.errors import FieldError, RejectedError
from checkpointd.json_fields import Json

EVENT_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})
"""k8s.io/apimachinery/pkg/watch/watch.go."""
OTHER_SERVER = "what answers there is no API server (a proxy, a login page?)"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Missing:
    """Say that a Status NotFound named this very object: an answer, not a failure."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Carry a whole LIST and the resourceVersion from which to watch on."""

    items: tuple[T, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Carry one event; ``object`` is a Status where ``type`` is ERROR."""

    type: str
    object: Json


class NotFoundError(RejectedError):
    """Report a Status NotFound, with what it names."""

    def __init__(self, message: str, kind: str, name: str) -> None:
        super().__init__(message, 404)
        self.kind = kind
        self.name = name


def read_page(page: Json, items: list[T], parse: Callable[[Json], T]) -> tuple[str, str]:
    """Add a page's items; return its resourceVersion and the token of the next page.

    Raises RejectedError.
    """
    try:
        _check_page(page)
        version = json_fields.text(page, "metadata", "resourceVersion")
        following = json_fields.optional_text(page, "metadata", "continue")
        items.extend(parse(item) for item in json_fields.objects(page, "items"))
    except FieldError as error:
        raise RejectedError(f"the list of pods is not one: {error}") from error
    return version, following


def _check_page(page: Json) -> None:
    if json_fields.optional_text(page, "kind") != "PodList":
        raise FieldError('kind: expected "PodList"')
    # A server that says null has not read its store: that is not an empty list.
    if not json_fields.has_field(page, "items"):
        raise FieldError("items: missing or null")
    if not json_fields.text(page, "metadata", "resourceVersion"):
        raise FieldError("metadata.resourceVersion: empty")


def parse_answer(status: int, content_type: str, body: bytes, retry_after: str = "") -> Json:
    """Return the JSON object of an answer. Raises RejectedError."""
    if status != 200:
        raise rejection(status, body, retry_after)
    if not content_type.startswith("application/json"):
        raise RejectedError(
            f"the answer is not JSON but {content_type[:40]!r}: {OTHER_SERVER}", status
        )
    try:
        return json_fields.parse_object(body, "the answer")
    except FieldError as error:
        raise RejectedError(f"{error}: it was cut off on its way, or {OTHER_SERVER}") from error


def rejection(code: int, body: bytes, retry_after: str = "") -> RejectedError:
    """Make the error for an answer other than 200.

    ``retry_after`` is the header of that name; of its two forms (RFC 9110, 10.2.3) only seconds
    count, which is what API servers send.
    """
    wait = float(retry_after) if re.fullmatch("[0-9]{1,6}", retry_after) else 0.0
    try:
        status = json_fields.parse_object(body, "the answer")
        words = " ".join(json_fields.optional_text(status, "message").split())[:200]
        message = f"HTTP {code}: {words}" if words.isprintable() and words else f"HTTP {code}"
        if code == 404 and _is_not_found(status):
            kind = json_fields.optional_text(status, "details", "kind")
            name = json_fields.optional_text(status, "details", "name")
            return NotFoundError(message, kind, name)
    except FieldError:
        return RejectedError(f"HTTP {code}, and no Status: {OTHER_SERVER}", code, wait)
    return RejectedError(message, code, wait)


def _is_not_found(status: Json) -> bool:
    kind = json_fields.optional_text(status, "kind")
    return (kind, json_fields.optional_text(status, "reason")) == ("Status", "NotFound")


def parse_event(line: bytes) -> WatchEvent:
    """Return the event of one line. Raises RejectedError."""
    try:
        event = json_fields.parse_object(line, "a watch event")
        kind = json_fields.text(event, "type")
        carried = json_fields.mapping(event, "object")
    except FieldError as error:
        raise RejectedError(str(error)) from error
    if kind not in EVENT_TYPES or not carried:
        raise RejectedError("a watch event has no known type or no object")
    return WatchEvent(kind, carried)


def read_text(value: Json, *path: str) -> str:
    """Return the string at ``path``, "" where it is absent. Raises RejectedError."""
    try:
        return json_fields.optional_text(value, *path)
    except FieldError as error:
        raise RejectedError(str(error)) from error
