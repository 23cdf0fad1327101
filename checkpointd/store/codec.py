"""Turn the nouns of the model into JSON and back, and seal each file with its checksum.

A sealed file is one line::

    {"checksum":"<sha256 of all that follows the comma>","schema":1,"body":{...}}

That shape is the promise to all later versions: whatever the schema, the checksum is judged first,
so that a flipped bit is damage and never "a newer schema".

Each noun is written field by field as its annotations say, and read the same way: a field that a
file of an older program lacks takes its default; one that we do not know is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import TypeVar, cast

from checkpointd import json_fields
from checkpointd.errors import DamagedError, FieldError, NewerSchemaError
from checkpointd.json_fields import Json

T = TypeVar("T")

SCHEMA = 1
"""Raised when a file's meaning changes so that an older program would misread it."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_SEAL = re.compile(rb'\{"checksum":"([0-9a-f]{64})",')


# ---- files --------------------------------------------------------------------------------------
def checksum(content: bytes) -> str:
    """Return the sha256 of ``content`` in hex."""
    return hashlib.sha256(content).hexdigest()


def write_compact(value: object) -> bytes:
    """Serialise on one line with sorted keys, ASCII only: text from the API may hold surrogates."""
    written = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return written.encode("ascii")


def seal(body: object) -> bytes:
    """Return the bytes of a file that holds ``body``."""
    rest = b'"schema":%d,"body":%b}\n' % (SCHEMA, write_compact(body))
    return b'{"checksum":"%b",%b' % (checksum(rest).encode(), rest)


def unseal(content: bytes, what: str) -> Json:
    """Return the body of a sealed file.

    Raises DamagedError if the checksum contradicts it, NewerSchemaError for a newer program's.
    """
    found = _SEAL.match(content)
    rest = content[found.end() :] if found else b""
    if found is None or checksum(rest) != found[1].decode():
        raise DamagedError(f"{what}: the checksum does not fit ({len(content)} bytes)")
    try:
        document = json_fields.parse_object(b"{" + rest, what)
        schema = json_fields.integer(document, "schema")
        if schema > SCHEMA:
            raise NewerSchemaError(
                f"{what} has schema {schema}, this program knows {SCHEMA}: install a newer one"
            )
        return json_fields.mapping(document, "body")
    except FieldError as error:
        raise DamagedError(f"{what}: {error}") from error


def unseal_as(kind: type[T], content: bytes, what: str) -> T:
    """Return the noun that a sealed file holds. Raises DamagedError, NewerSchemaError."""
    body = unseal(content, what)
    try:
        return decode(kind, body)
    except FieldError as error:
        raise DamagedError(f"{what}: {error}") from error


# ---- nouns --------------------------------------------------------------------------------------
def encode(value: object) -> object:
    """Turn a noun of the model into what JSON has."""
    kind: type = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, Enum):
        return cast("object", value.value)
    names = _names(kind)
    if names is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value)
        return {key: encode(item) for key, item in entries.items()}
    if isinstance(value, tuple):
        return [encode(item) for item in cast("tuple[object, ...]", value)]
    return value


def decode(kind: type[T], value: object, where: str = "") -> T:
    """Turn JSON back into a noun of type ``kind``. Raises FieldError that names the field."""
    return cast("T", _decode(kind, value, where or kind.__name__))


def _decode(kind: object, value: object, where: str) -> object:
    origin = cast("object", typing.get_origin(kind))
    if origin is types.UnionType or origin is typing.Union:
        inner = next(part for part in typing.get_args(kind) if part is not types.NoneType)
        return None if value is None else _decode(inner, value, where)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind)[0], value, where)
    if origin is Mapping:
        return _decode_mapping(typing.get_args(kind)[1], value, where)
    if not isinstance(kind, type):
        raise FieldError(f"{where}: nothing is known of {kind}")
    return _decode_class(cast("type[object]", kind), value, where)


def _decode_class(kind: type[object], value: object, where: str) -> object:
    if issubclass(kind, Enum):
        return _decode_enum(kind, value, where)
    if dataclasses.is_dataclass(kind):
        return _decode_noun(kind, json_fields.as_object(value, where), where)
    return _decode_scalar(kind, value, where)


def _decode_tuple(item: object, value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise FieldError(f"{where}: expected a list")
    entries = cast("list[object]", value)
    return tuple(_decode(item, entry, f"{where}[{i}]") for i, entry in enumerate(entries))


def _decode_mapping(item: object, value: object, where: str) -> Mapping[str, object]:
    entries = json_fields.as_object(value, where)
    return {key: _decode(item, entry, f"{where}.{key}") for key, entry in entries.items()}


def _decode_enum(kind: type[Enum], value: object, where: str) -> Enum:
    try:
        return kind(value)
    except ValueError as error:
        raise FieldError(f"{where}: {str(value)[:80]!r} is not one of {kind.__name__}") from error


def _decode_noun(kind: type, value: Json, where: str) -> object:
    known: dict[str, object] = {}
    for name, annotation, required in _fields(kind):
        if name in value:
            known[name] = _decode(annotation, value[name], f"{where}.{name}")
        elif required:
            raise FieldError(f"{where}.{name}: missing")
    return cast("object", kind(**known))


def _decode_scalar(kind: type, value: object, where: str) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise FieldError(f"{where}: expected {kind.__name__}, got {type(value).__name__}")
    return value


@functools.cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the names of a noun's fields, None where it is no noun; found once per noun."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, object, bool], ...]:
    """Return name, annotation and "has no default" of each field; evaluated once per noun."""
    hints = cast("Mapping[str, object]", typing.get_type_hints(kind))
    missing = dataclasses.MISSING
    return tuple(
        (f.name, hints[f.name], f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(kind)
    )
