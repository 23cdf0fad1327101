"""Copy and walk untrusted JSON: what passes here can be written again, byte for byte."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import cast

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json

Object = dict[str, object]

DEPTH_LIMIT = 64
"""Deeper than any Pod, and far from Python's recursion limit."""

CONTAINER_LISTS = ("initContainers", "containers")


def plain(value: Json, what: str = "pod") -> Object:
    """Return a deep copy of ``value`` made of dict, list, str, int, float, bool and None alone.

    Raises FieldError, which names the path, for what JSON in UTF-8 cannot carry: NaN and infinity
    (Python reads them), lone surrogates, keys that are not text, and depth without end.
    """
    return cast("Object", _plain(value, what, 0))


def words(text: str) -> frozenset[str]:
    """Return the words of a table that is easier to read as running text."""
    return frozenset(text.split())


def without(value: Json, *keys: str) -> Object:
    """Return a shallow copy of ``value`` less ``keys``."""
    return {key: item for key, item in value.items() if key not in keys}


def containers(pod: Json, *lists: str) -> Iterator[tuple[str, Json]]:
    """Yield path and object of each container, init containers first. Raises FieldError."""
    for kind in lists or CONTAINER_LISTS:
        for index, container in enumerate(json_fields.objects(pod, "spec", kind)):
            yield f"spec.{kind}[{index}]", container


def volumes(pod: Json) -> Iterator[tuple[str, Json]]:
    """Yield path and object of each volume. Raises FieldError."""
    for index, volume in enumerate(json_fields.objects(pod, "spec", "volumes")):
        yield f"spec.volumes[{index}]", volume


def volume_types(volume: Json) -> tuple[str, ...]:
    """Return the sources that a volume names; none is an emptyDir (v1 defaults.go)."""
    return tuple(key for key, value in volume.items() if key != "name" and value is not None)


def mounts(pod: Json, volume: str) -> Iterator[tuple[str, Json]]:
    """Yield path and object of each mount of ``volume`` in any container. Raises FieldError."""
    for path, container in containers(pod):
        for index, mount in enumerate(json_fields.objects(container, "volumeMounts")):
            if json_fields.optional_text(mount, "name") == volume:
                yield f"{path}.volumeMounts[{index}]", mount


def is_mounted(pod: Json, volume: str) -> bool:
    """Tell whether any container mounts ``volume``. Raises FieldError."""
    return any(True for _mount in mounts(pod, volume))


def is_written_by(pod: Json, volume: str) -> bool:
    """Tell whether any container mounts ``volume`` without ``readOnly``. Raises FieldError."""
    return any(not json_fields.boolean(mount, "readOnly") for _path, mount in mounts(pod, volume))


def _plain(value: object, what: str, depth: int) -> object:
    if depth > DEPTH_LIMIT:
        raise FieldError(f"{what[:200]}: nested too deep")
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {_key(key, what): _plain(item, f"{what}.{key}", depth + 1) for key, item in items}
    if isinstance(value, list | tuple):
        listed = cast("list[object]", value)
        return [_plain(item, f"{what}[{i}]", depth + 1) for i, item in enumerate(listed)]
    return _scalar(value, what)


def _scalar(value: object, what: str) -> object:
    if isinstance(value, str):
        return _text(value, what)
    if isinstance(value, float) and not math.isfinite(value):
        raise FieldError(f"{what}: not a finite number")
    if value is None or isinstance(value, int | float):
        return value
    raise FieldError(f"{what}: not JSON")


def _key(key: object, what: str) -> str:
    if not isinstance(key, str):
        raise FieldError(f"{what}: a key is not a string")
    return _text(key, what)


def _text(value: str, what: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        shown = what.encode("ascii", "replace").decode()
        raise FieldError(f"{shown}: not Unicode text") from error
    return value
