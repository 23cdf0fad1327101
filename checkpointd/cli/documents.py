"""Read files of objects as kubectl does: YAML or JSON, several documents, "-" for standard input.

A document that cannot be read is told of with its line; those before and after it are read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from checkpointd.clients import yaml_text
from checkpointd.clients.yaml_text import RepeatingObject
from checkpointd.errors import FieldError

MOST_BYTES = 64 << 20
"""Larger than any chart's output."""
STDIN = "-"
_DOCUMENT = re.compile(rb"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
"""A new document, wherever it stands (YAML 1.1, 4.1: c-forbidden)."""
_DIRECTIVES = re.compile(rb"(?:[ \t]*(?:[#%].*)?(?:\r?\n|\Z))*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Hold one document of a file; ``problem`` is why it has no value.

    ``repeated`` are the paths of the keys that stand there twice: the last one counts.
    """

    file: str
    line: int
    value: object = None
    problem: str = ""
    repeated: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Return file and line for people."""
        return f"{self.file}:{self.line}" if self.line else self.file


def read_all(file: str) -> Iterator[Read]:
    """Yield the documents of a file that have a value, and why others have none."""
    name = "standard input" if file == STDIN else file
    try:
        content = _read(file)
    except OSError as error:
        yield Read(file=name, line=0, problem=f"cannot be read: {error.strerror}")
        return
    if len(content) > MOST_BYTES:
        yield Read(file=name, line=0, problem=f"larger than {MOST_BYTES} bytes")
        return
    for read in parse(content, name):
        if read.problem or read.value is not None:
            yield read


def parse(content: bytes, name: str) -> Iterator[Read]:
    """Yield each document of a file's content."""
    if content.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        found = list(_parse_json(content, name))
        # Flow style begins like JSON: what is no JSON from its first word on may be YAML.
        if len(found) > 1 or not found[0].problem:
            yield from found
            return
    for line, chunk in _split(content):
        yield from _parse_yaml(chunk, name, line)


def _read(file: str) -> bytes:
    if file != STDIN:
        with Path(file).open("rb") as stream:
            return stream.read(MOST_BYTES + 1)
    source: BinaryIO = sys.stdin.buffer
    return source.read(MOST_BYTES + 1)


def _parse_yaml(chunk: bytes, name: str, line: int) -> Iterator[Read]:
    try:
        for document in yaml_text.parse_all(chunk, name):
            yield Read(
                file=name,
                line=line + document.line,
                value=document.value,
                repeated=tuple(_repeated(document.value)),
            )
    except FieldError as error:
        yield Read(file=name, line=line + 1, problem=_moved(str(error), name, line))


def _moved(problem: str, name: str, line: int) -> str:
    """Return a problem without the file's name, its line counted from the file's first."""
    words = problem.removeprefix(f"{name}: ")
    return re.sub(r"in line (\d+)", lambda found: f"in line {int(found[1]) + line}", words, count=1)


def _split(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each document with the number of lines before it."""
    starts = [match.start() for match in _DOCUMENT.finditer(content)]
    line = 0
    for start, end in zip([0, *starts], [*starts, len(content)], strict=True):
        chunk = content[start:end]
        # What stands before the first document: comments, or directives that are a part of it.
        if _DIRECTIVES.fullmatch(chunk) is None:
            yield line, chunk
        line += chunk.count(b"\n")


def _parse_json(content: bytes, name: str) -> Iterator[Read]:
    """Yield objects that follow each other, as kubectl takes them too."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield Read(file=name, line=1, problem="not UTF-8")
        return
    decoder = json.JSONDecoder(object_pairs_hook=_object)
    at = _skip(text, 0)
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        try:
            value, end = cast("tuple[object, int]", decoder.raw_decode(text, at))
        except (ValueError, RecursionError) as error:
            where: object = getattr(error, "lineno", line)
            yield Read(file=name, line=line, problem=f"not JSON in line {where}")
            return
        yield Read(file=name, line=line, value=value, repeated=tuple(_repeated(value)))
        at = _skip(text, end)


def _skip(text: str, at: int) -> int:
    found = re.compile(r"[ \t\r\n]*").match(text, at)
    return at if found is None else found.end()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    found = RepeatingObject()
    found.update(plain)
    names = [name for name, _value in pairs]
    found.repeated = [name for name in plain if names.count(name) > 1]
    return found


def _repeated(value: object) -> list[str]:
    """Return the paths of repeated keys; what an alias repeats is told once."""
    found: list[str] = []
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        path, one = waiting.pop()
        if not isinstance(one, dict | list) or id(cast("object", one)) in seen:
            continue
        seen.add(id(cast("object", one)))
        if isinstance(one, RepeatingObject):
            found += [f"{path}.{key}".lstrip(".") for key in dict.fromkeys(one.repeated)]
        waiting += _children(path, cast("dict[str, object] | list[object]", one))
    return sorted(found)


def _children(path: str, value: dict[str, object] | list[object]) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [(f"{path}.{key}".lstrip("."), item) for key, item in value.items()]
    return [(f"{path}[{index}]", item) for index, item in enumerate(value)]
