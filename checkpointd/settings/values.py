"""Parse one value of the configuration, and write it as TOML again. Pure."""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import cast


class Kind(Enum):
    """Name the types of values; the text says what is expected."""

    NODE_NAME = "a node's name in quotes"
    PATH = "an absolute path in quotes"
    ADDRESS = "an IP address in quotes"
    COUNT = "a whole number"
    RATIO = "a number"
    DURATION = 'a time such as "30s", "5m" or "1h30m", or seconds as a number'
    SIZE = 'a size such as "50MiB", or bytes as a number'
    SWITCH = "true or false, without quotes"
    LEVEL = '"debug", "info", "notice", "warning" or "error"'
    NAMESPACES = "a list of namespaces in quotes"
    RULES = "a list of [[selection.rule]] tables"
    """Parsed by ``parse`` itself: its faults lie deeper than one value."""


DURATIONS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
LEVELS = ("debug", "info", "notice", "warning", "error")

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+)\s*(GiB|MiB|KiB)")
# RFC 1123 as Kubernetes applies it (apimachinery/pkg/util/validation): labels and subdomains.
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def parse_value(kind: Kind, value: object) -> object:
    """Turn a value as tomli gives it into ours. Raises ValueError with a sentence for people."""
    parsed = _PARSERS[kind](value)
    if parsed is None:
        raise ValueError(f"expected {kind.value}, got {describe(value)}")
    return parsed


def format_value(kind: Kind, value: object) -> str:
    """Write a value as one TOML literal that ``parse_value`` reads back as the same."""
    if kind is Kind.DURATION and isinstance(value, float):
        return _format_duration(value)
    if kind is Kind.SIZE and isinstance(value, int):
        return _format_size(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(quote(str(item)) for item in cast("tuple[object, ...]", value)) + "]"
    return quote(str(value))


def quote(text: str) -> str:
    """Write ``text`` as a TOML basic string: JSON's escapes, and DEL, which TOML forbids bare."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def describe(value: object) -> str:
    """Say what was found instead, short: a value may be of any length."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = format_value(Kind.PATH, value)
    return text if len(text) <= 60 else text[:57] + "..."


def is_namespace(text: str) -> bool:
    """Tell whether ``text`` may be the name of a namespace (a DNS label)."""
    return _LABEL.fullmatch(text) is not None


def is_label(key: str, value: str) -> bool:
    """Tell if a pod may carry this label (apimachinery, IsQualifiedName and IsValidLabelValue)."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return _LABEL_NAME.fullmatch(name) is not None and (
        value == "" or _LABEL_NAME.fullmatch(value) is not None
    )


def _node_name(value: object) -> str | None:
    if not isinstance(value, str) or len(value) > 253:
        return None
    return value if value == "" or _SUBDOMAIN.fullmatch(value) else None


def _path(value: object) -> str | None:
    if not isinstance(value, str) or not value.isprintable():
        return None
    return value if value == "" or Path(value).is_absolute() else None


def _address(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        return value and str(ipaddress.ip_address(value))
    except ValueError:
        return None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _duration(value: object) -> float | None:
    if not isinstance(value, str):
        return _number(value)
    parts = _PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return math.fsum(float(number) * DURATIONS[unit] for number, unit in parts)


def _size(value: object) -> int | None:
    if not isinstance(value, str):
        return _count(value)
    found = _SIZE.fullmatch(value)
    return int(found[1]) * SIZES[found[2]] if found else None


def _switch(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _level(value: object) -> str | None:
    return value if isinstance(value, str) and value in LEVELS else None


def _namespaces(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    found: list[str] = []
    for item in cast("list[object]", value):
        if not isinstance(item, str) or not is_namespace(item):
            raise ValueError(f"{describe(item)} is not a namespace's name")
        if item in found:
            raise ValueError(f"namespace {quote(item)} stands there twice")
        found.append(item)
    return tuple(found)


_PARSERS: Mapping[Kind, Callable[[object], object]] = {
    Kind.NODE_NAME: _node_name,
    Kind.PATH: _path,
    Kind.ADDRESS: _address,
    Kind.COUNT: _count,
    Kind.RATIO: _number,
    Kind.DURATION: _duration,
    Kind.SIZE: _size,
    Kind.SWITCH: _switch,
    Kind.LEVEL: _level,
    Kind.NAMESPACES: _namespaces,
}


def _format_duration(seconds: float) -> str:
    for unit, factor in DURATIONS.items():
        whole = round(seconds / factor)
        # The unit in which it is a whole number, if reading it back gives the same float.
        if (whole or (seconds == 0 and unit == "s")) and whole * factor == seconds:
            return f'"{whole}{unit}"'
    return repr(seconds)


def _format_size(size: int) -> str:
    for unit, factor in SIZES.items():
        if size and size % factor == 0:
            return f'"{size // factor}{unit}"'
    return str(size)
