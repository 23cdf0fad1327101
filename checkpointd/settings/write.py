"""Write settings as text: TOML that reads back as the same, the shipped file, what holds. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from checkpointd.model.selection import Rule
from checkpointd.settings import values
from checkpointd.settings.keys import KEYS, SECTIONS, Key
from checkpointd.settings.nouns import Settings
from checkpointd.settings.values import Kind

HEADING = """\
# Configuration of checkpointd, the daemon that keeps marked pods of this node alive while no API
# server answers. All values below are the defaults: uncomment what you change. Better, leave this
# file alone and put what you change into /etc/checkpointd/checkpointd.toml.d/*.toml: drop-ins are
# read in lexical order, and a later file wins per key.
#
# Show what holds, and every fault:  checkpointd config
# Take over a change:                systemctl reload checkpointd   (whole or not at all)
#
# Times are "500ms", "30s", "5m", "1h30m", "2d", or seconds as a number."""

RULE_EXAMPLE = """\
# [[selection.rule]]
# namespace = "kube-system"
# labels = { k8s-app = "kube-dns" }"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """Say what holds for one key: ``value`` as TOML, ``origin`` a file's path or "default"."""

    key: str
    value: str
    origin: str


def effective(settings: Settings) -> tuple[Effective, ...]:
    """List every key with its value and where that comes from, in the order of the table."""
    return tuple(
        Effective(
            key=key.name,
            value=_literal(key, key.value_in(settings)),
            origin=settings.origins.get(key.name, "default"),
        )
        for key in KEYS
    )


def dump(settings: Settings) -> str:
    """Write ``settings`` as TOML that reads back as equal; defaults are left out."""
    lines = ["# The last configuration without a fault, as checkpointd understood it."]
    for section, keys in _by_section().items():
        changed = [key for key in keys if key.value_in(settings) != key.default]
        if changed:
            lines += ["", f"[{section}]"]
            lines += [f"{key.option} = {_literal(key, key.value_in(settings))}" for key in changed]
    return "\n".join(lines) + "\n"


def shipped() -> str:
    """Write etc/checkpointd.toml: every key, its meaning, bounds and default, commented out."""
    lines = [HEADING]
    for section, keys in _by_section().items():
        lines += ["", f"# {SECTIONS[section]}", f"[{section}]"]
        for key in keys:
            lines += _shipped_key(key)
    return "\n".join(lines) + "\n"


def _shipped_key(key: Key) -> Iterator[str]:
    meaning = f"{key.meaning}{_bounds(key)}"
    yield from textwrap.wrap(meaning, 98, initial_indent="# ", subsequent_indent="# ")
    yield RULE_EXAMPLE if key.kind is Kind.RULES else f"# {key.option} = {_default(key)}"


def _default(key: Key) -> str:
    return _literal(key, key.default)


def _bounds(key: Key) -> str:
    if key.least is None or key.most is None:
        return ""
    of = float if key.kind in (Kind.DURATION, Kind.RATIO) else int
    least, most = (values.format_value(key.kind, of(bound)) for bound in (key.least, key.most))
    return f" ({least} to {most})".replace('"', "")


def _by_section() -> Mapping[str, list[Key]]:
    return {section: [key for key in KEYS if key.section == section] for section in SECTIONS}


def _literal(key: Key, value: object) -> str:
    if key.kind is not Kind.RULES:
        return values.format_value(key.kind, value)
    return "[" + ", ".join(_rule(rule) for rule in cast("tuple[Rule, ...]", value)) + "]"


def _rule(rule: Rule) -> str:
    labels = ", ".join(f"{values.quote(k)} = {values.quote(v)}" for k, v in rule.labels.items())
    return f"{{ namespace = {values.quote(rule.namespace)}, labels = {{ {labels} }} }}"
