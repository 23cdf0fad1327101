"""Read the items of a Kubernetes list from a stream, one at a time: the whole is never in memory.

A list of 110 pods is a megabyte of JSON and ten times that as objects. What is not a complete list
is an error: a truncated answer must not look like a shorter one.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator

from checkpointd import json_fields
from checkpointd.errors import FieldError, RejectedError
from checkpointd.json_fields import Json

LARGEST_ITEM = 4 * 1024 * 1024
"""Characters of one item; etcd takes 1.5 MiB by default (--max-request-bytes)."""
_SPACE = " \t\r\n"


def read_items(chunks: Iterable[bytes], what: str) -> Iterator[Json]:
    """Yield each object of the list's ``items``.

    ``what`` names the source in errors. Raises RejectedError, maybe after some items were yielded,
    for anything but one whole JSON object with a list ``items`` (null and absent are empty).
    """
    try:
        yield from _Reader(chunks).items()
    except (ValueError, RecursionError, FieldError) as error:
        kind = "is cut short" if isinstance(error, _TruncatedError) else "is not a list of objects"
        raise RejectedError(f"{what}: the answer {kind}") from error


class _TruncatedError(ValueError):
    """Say that the stream ended inside of a value."""


class _Reader:
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._ended = False

    def items(self) -> Iterator[Json]:
        self._expect("{")
        if not self._take("}"):
            while True:
                yield from self._member()
                if not self._take(","):
                    break
            self._expect("}")
        if self._peek():
            raise ValueError("something follows")

    def _member(self) -> Iterator[Json]:
        name = self._value()
        self._expect(":")
        if name == "items" and self._peek() == "[":
            yield from self._array()
            return
        value = self._value()
        if name == "items" and value is not None:
            raise ValueError("items is no list")

    def _array(self) -> Iterator[Json]:
        self._expect("[")
        if self._take("]"):
            return
        while True:
            yield json_fields.as_object(self._value(), "item")
            if not self._take(","):
                break
        self._expect("]")

    def _value(self) -> object:
        """Parse one value, reading on until it is whole and something follows it."""
        self._peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
                is_whole = end < len(self._text) or self._ended
            except ValueError:
                if self._ended:
                    raise _TruncatedError("ends in a value") from None
                value, end, is_whole = None, self._at, False
            if is_whole:
                self._at = end
                return value
            if len(self._text) - self._at > LARGEST_ITEM:
                raise ValueError("a value is too large")
            self._read_on()

    def _expect(self, character: str) -> None:
        if not self._take(character):
            raise ValueError(f"expected {character}")

    def _take(self, character: str) -> bool:
        found = self._peek() == character
        self._at += found
        return found

    def _peek(self) -> str:
        """Return the next character that is no white space, "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_on()

    def _read_on(self) -> None:
        chunk = next(self._chunks, b"")
        self._ended = not chunk
        self._text = self._text[self._at :] + self._utf8.decode(chunk, final=self._ended)
        self._at = 0
