"""Read typed fields of untrusted JSON; raise FieldError that names the path of the field.

This is the only module where ``Any`` may appear. It must not do I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from checkpointd.errors import FieldError

Json = Mapping[str, object]

_MISSING = object()
_KINDS: tuple[tuple[type, str], ...] = (
    (type(None), "null"),
    (bool, "a truth value"),
    (str, "a string"),
    (int, "a number"),
    (float, "a number"),
    (list, "a list"),
)


def parse_object(text: str | bytes, what: str) -> Json:
    """Parse ``text`` as one JSON object.

    ``what`` names the source in the error. Raises FieldError for anything but an object.
    """
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError(f"{what}: not JSON: {error}") from error
    return as_object(value, what)


def as_object(value: object, what: str) -> Json:
    """Take ``value`` as a JSON object. Raises FieldError."""
    if not isinstance(value, Mapping):
        raise FieldError(f"{what}: expected an object, got {_kind(value)}")
    return cast("Json", value)


def as_text(value: object, what: str) -> str:
    """Take ``value`` as a string. Raises FieldError."""
    if not isinstance(value, str):
        raise FieldError(f"{what}: expected a string, got {_kind(value)}")
    return value


def mapping(parent: Json, *path: str) -> Json:
    """Return the object at ``path``; an absent or null one is empty. Raises FieldError."""
    value = _walk(parent, path)
    return {} if value is None or value is _MISSING else as_object(value, _name(path))


def objects(parent: Json, *path: str) -> tuple[Json, ...]:
    """Return the list of objects at ``path``; an absent or null one is empty. Raises FieldError."""
    name = _name(path)
    return tuple(as_object(item, f"{name}[{i}]") for i, item in enumerate(sequence(parent, *path)))


def sequence(parent: Json, *path: str) -> Sequence[object]:
    """Return the list at ``path``; an absent or null one is empty. Raises FieldError."""
    value = _walk(parent, path)
    if value is None or value is _MISSING:
        return ()
    if not isinstance(value, list | tuple):
        raise FieldError(f"{_name(path)}: expected a list, got {_kind(value)}")
    return cast("Sequence[object]", value)


def text(parent: Json, *path: str) -> str:
    """Return the string at ``path``. Raises FieldError if it is absent."""
    value = _walk(parent, path)
    if value is _MISSING or value is None:
        raise FieldError(f"{_name(path)}: missing")
    return as_text(value, _name(path))


def optional_text(parent: Json, *path: str) -> str:
    """Return the string at ``path``, "" where it is absent or null. Raises FieldError."""
    value = _walk(parent, path)
    return "" if value is _MISSING or value is None else as_text(value, _name(path))


def texts(parent: Json, *path: str) -> Mapping[str, str]:
    """Return the object of strings at ``path``, empty where absent. Raises FieldError."""
    found = mapping(parent, *path)
    return {key: as_text(value, f"{_name(path)}.{key}") for key, value in found.items()}


def integer(parent: Json, *path: str) -> int:
    """Return the whole number at ``path``. Raises FieldError if it is absent."""
    value = _walk(parent, path)
    if value is _MISSING or value is None:
        raise FieldError(f"{_name(path)}: missing")
    if isinstance(value, bool) or not isinstance(value, int):
        raise FieldError(f"{_name(path)}: expected a whole number, got {_kind(value)}")
    return value


def optional_integer(parent: Json, *path: str) -> int | None:
    """Return the whole number at ``path``, None where absent or null. Raises FieldError."""
    value = _walk(parent, path)
    return None if value is _MISSING or value is None else integer(parent, *path)


def number(parent: Json, *path: str) -> float:
    """Return the number at ``path``. Raises FieldError if it is absent."""
    value = _walk(parent, path)
    if value is _MISSING or value is None:
        raise FieldError(f"{_name(path)}: missing")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(f"{_name(path)}: expected a number, got {_kind(value)}")
    return float(value)


def boolean(parent: Json, *path: str) -> bool:
    """Return the truth value at ``path``, False where absent or null. Raises FieldError."""
    value = _walk(parent, path)
    if value is _MISSING or value is None:
        return False
    if not isinstance(value, bool):
        raise FieldError(f"{_name(path)}: expected true or false, got {_kind(value)}")
    return value


def has_field(parent: Json, *path: str) -> bool:
    """Tell whether ``path`` is there and not null. Raises FieldError for a wrong type on it."""
    value = _walk(parent, path)
    return value is not _MISSING and value is not None


def write_canonical(value: object) -> bytes:
    """Serialise with sorted keys and a final newline: the same value gives the same bytes.

    In ASCII, so that lone surrogates of hostile JSON can be written as well.
    """
    written = json.dumps(value, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)
    return written.encode() + b"\n"


def _walk(parent: Json, path: tuple[str, ...]) -> object:
    value: object = parent
    for index, key in enumerate(path):
        if value is None:
            return _MISSING
        value = as_object(value, _name(path[:index]) or "object").get(key, _MISSING)
        if value is _MISSING:
            return _MISSING
    return value


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path)


def _kind(value: object) -> str:
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    return "an object"
