"""Parse YAML that others wrote, as the kubelet and kubectl do: their files may hold anything.

The one module that imports PyYAML, and only when it is called: 0.8 MiB and 30 ms that a node with
JSON alone does not pay. PyYAML (libyaml, as go-yaml is) only tells what stands where; what it means
is ``yaml_scalars``' and go-yaml's decode.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

from checkpointd.clients import yaml_scalars
from checkpointd.clients.yaml_scalars import TAG
from checkpointd.errors import FieldError

DEPTH_LIMIT = 100
"""Deeper than anything of Kubernetes', and far from Python's recursion limit."""
ALIAS_LIMIT = 400_000
"""Values that aliases may repeat in one document: about what go-yaml allows (decode.go,
alias_ratio_range_low). A few lines could stand for more than a machine's memory."""
_MERGE = "<<"


class RepeatingObject(dict[str, object]):
    """Be an object in whose text a key stands more than once: the last one counts."""

    def __init__(self) -> None:
        super().__init__()
        self.repeated: list[str] = []


@dataclass(frozen=True, slots=True)
class Document:
    """Hold one document and the line, from 1, on which it begins."""

    value: object
    line: int


def parse_first(content: bytes, what: str) -> object:
    """Return the first document, None for an empty one. Raises FieldError that names ``what``.

    The kubelet and client-go take the first document too (sigs.k8s.io/yaml). No value of the text
    is told of: a library's message may quote the line, and a line may hold a key.
    """
    found = next(parse_all(content, what), None)
    return None if found is None else found.value


def parse_all(content: bytes, what: str) -> Iterator[Document]:
    """Yield each document as soon as it is parsed. Raises FieldError that names ``what``."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        events = cast("Iterator[_Event]", yaml.parse(content, Loader=loader))
        yield from _documents(_Reader(events), what)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        line: object = getattr(getattr(error, "problem_mark", None), "line", None)
        place = f" in line {line + 1}" if isinstance(line, int) else ""
        raise FieldError(f"{what}: neither JSON nor YAML{place} ({type(error).__name__})") from None


class _Mark(Protocol):
    line: int


class _Event(Protocol):
    """Say what of PyYAML's events (yaml/events.py) is read; each kind has some of these."""

    start_mark: _Mark
    anchor: str | None
    tag: str | None
    value: str
    implicit: tuple[bool, bool]


@dataclass(slots=True)
class _Anchored:
    """Hold what an alias stands for; ``size`` counts its values, those of aliases in it too."""

    value: object
    size: int


@dataclass(slots=True)
class _Reader:
    """Hold the events to come and what was read of the present document."""

    events: Iterator[_Event]
    anchors: dict[str, _Anchored | None] = field(default_factory=dict[str, "_Anchored | None"])
    size: int = 0
    repeated: int = 0
    depth: int = 0
    line: int = 0

    def take(self) -> tuple[str, _Event]:
        """Return the next event with the name of its kind."""
        event = next(self.events)
        self.line = event.start_mark.line + 1
        return type(event).__name__.removesuffix("Event"), event


def _documents(reader: _Reader, what: str) -> Iterator[Document]:
    while True:
        kind, _event = reader.take()
        if kind == "StreamEnd":
            return
        if kind != "DocumentStart":
            continue
        reader.anchors.clear()
        reader.repeated = 0
        try:
            kind, event = reader.take()
            line = reader.line
            value = _value(reader, kind, event)
        except FieldError as error:
            raise FieldError(f"{what}: in line {reader.line}: {error}") from None
        yield Document(value, line)


def _value(reader: _Reader, kind: str, event: _Event) -> object:
    if kind == "Alias":
        return _alias(reader, event)
    if event.anchor is not None:
        # Known, but not whole: an alias inside of it would never end.
        reader.anchors[event.anchor] = None
    before = reader.size
    reader.size += 1
    if kind == "Scalar":
        value: object = _scalar(event)
    else:
        reader.depth += 1
        if reader.depth > DEPTH_LIMIT:
            raise FieldError("nested too deep")
        value = _mapping(reader) if kind == "MappingStart" else _sequence(reader)
        reader.depth -= 1
    if event.anchor is not None:
        reader.anchors[event.anchor] = _Anchored(value, reader.size - before)
    return value


def _scalar(event: _Event) -> yaml_scalars.Scalar:
    plain, _quoted = event.implicit
    # "!" alone says as much as no tag (libyaml, yaml_parser_parse_node).
    if plain:
        return yaml_scalars.resolve(event.value)
    if event.tag in (None, "!"):
        return event.value
    return yaml_scalars.resolve_tagged(event.value, event.tag or "")


def _sequence(reader: _Reader) -> list[object]:
    found: list[object] = []
    while True:
        kind, event = reader.take()
        if kind == "SequenceEnd":
            return found
        found.append(_value(reader, kind, event))


def _mapping(reader: _Reader) -> dict[str, object]:
    found: dict[str, object] = {}
    written: set[str] = set()
    while True:
        kind, event = reader.take()
        if kind == "MappingEnd":
            return found
        is_merge = kind == "Scalar" and _is_merge(event)
        key = _value(reader, kind, event)
        value = _value(reader, *reader.take())
        if is_merge:
            _merge(found, value)
            continue
        if isinstance(key, dict | list):
            raise FieldError("a key is neither text nor a number")
        name = yaml_scalars.write_key(cast("yaml_scalars.Scalar", key))
        if name in written:
            found = _repeating(found, name)
        written.add(name)
        found[name] = value


def _repeating(found: dict[str, object], name: str) -> RepeatingObject:
    if not isinstance(found, RepeatingObject):
        plain, found = found, RepeatingObject()
        found.update(plain)
    found.repeated.append(name)
    return found


def _is_merge(event: _Event) -> bool:
    return event.value == _MERGE and (event.implicit[0] or event.tag == f"{TAG}merge")


def _merge(into: dict[str, object], value: object) -> None:
    """Put in what ``<<`` names, over what stands before it; of several the first has the last word.

    go-yaml v2, decode.go: mapping, merge.
    """
    merged = cast("list[object]", value) if isinstance(value, list) else [value]
    for one in reversed(merged):
        if not isinstance(one, dict):
            raise FieldError("<<: not an object, nor a list of objects")
        into.update(cast("dict[str, object]", one))


def _alias(reader: _Reader, event: _Event) -> object:
    name = event.anchor or ""
    if name not in reader.anchors:
        raise FieldError("an alias without an anchor")
    anchored = reader.anchors[name]
    if anchored is None:
        raise FieldError("an anchor's value contains itself")
    reader.size += anchored.size
    reader.repeated += anchored.size
    if reader.repeated > ALIAS_LIMIT:
        raise FieldError("too many aliases of aliases")
    return anchored.value
