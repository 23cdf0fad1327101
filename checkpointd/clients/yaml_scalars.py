"""Read YAML's scalars as the kubelet and kubectl do: sigs.k8s.io/yaml over go-yaml v2. Pure.

Neither YAML 1.1 nor 1.2 nor PyYAML: ``y`` is a truth value, ``0o644`` and ``0644`` are octal,
``1e3`` and ``08`` are numbers, ``22:22`` and a date are text. Ported from vendor/gopkg.in/yaml.v2/
resolve.go (which goyaml.v2 in sigs.k8s.io/yaml is a copy of).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping

from checkpointd.errors import FieldError

TAG = "tag:yaml.org,2002:"
"""What ``!!`` stands for."""

_INTEGER = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)"
    r"|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))"
)
"""What strconv.ParseInt takes with base 0, but for underscores, which are gone by then."""
_BASES = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""resolve.go: yamlStyleFloat."""
_LONGEST_NUMBER = 400
"""Characters of a number: more digits than any float64 has."""
_PLAIN_FLOAT = 1e21
"""Whole numbers below this are written without an exponent (encoding/json), as integers are."""


_FIXED: Mapping[str, bool | float | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES"), True),
    **dict.fromkeys(("true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO"), False),
    **dict.fromkeys(("false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}

Scalar = str | bool | int | float | None


def resolve(text: str) -> Scalar:
    """Return what a plain scalar without a tag means."""
    if text in _FIXED:
        return _FIXED[text]
    if text[0] not in "+-.0123456789":
        return text
    number = _number(text if text[0] == "." else text.replace("_", ""))
    return text if number is None else number


def resolve_tagged(text: str, tag: str) -> Scalar:
    """Return what a scalar with a tag means; a tag that nobody knows says nothing.

    Raises FieldError, without the text, where it is not what the tag says.
    """
    kind = tag.removeprefix(TAG)
    if kind == "binary":
        return _decode(text)
    value = text if kind == "str" else resolve(text)
    fits = {
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "null": value is None,
        "timestamp": re.match(r"[0-9]{4}-[0-9]", text) is not None,
    }
    if not fits.get(kind, True):
        raise FieldError(f"not a {kind}, as its tag says")
    return value if kind in ("bool", "int", "float", "null") else text


def write_key(key: Scalar) -> str:
    """Return a key as JSON has it. Raises FieldError for null, which is none.

    sigs.k8s.io/yaml: convertToJSONableObject.
    """
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int():
            return str(key)
        case float():
            return f"{key:.8g}"
        case None:
            raise FieldError("null is no key")


def _number(text: str) -> int | float | None:
    """Return the number, None where it is none: text then."""
    if len(text) > _LONGEST_NUMBER:
        return None
    found = _INTEGER.fullmatch(text)
    if found is not None:
        kind = next(name for name in _BASES if found[name] is not None)
        whole = int(found["sign"] + found[kind], _BASES[kind])
        if -(2**63) <= whole < 2**63 or (not found["sign"] and whole < 2**64):
            return whole
    if _FLOAT.fullmatch(text) is None:
        return None
    number = float(text)
    if math.isinf(number):
        return None
    return int(number) if number.is_integer() and abs(number) < _PLAIN_FLOAT else number


def _decode(text: str) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        raise FieldError("not base64 of text, as its tag says") from None
