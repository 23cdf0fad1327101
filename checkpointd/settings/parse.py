"""Turn parsed TOML into Settings and problems: every fault is named, none hides another. Pure."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from checkpointd.errors import ConfigProblem
from checkpointd.model.policy import Witness
from checkpointd.model.selection import Rule
from checkpointd.settings import values
from checkpointd.settings.keys import KEYS, SECTIONS, Key
from checkpointd.settings.nouns import Settings
from checkpointd.settings.values import Kind

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

Toml = Mapping[str, object]
_BY_NAME = {key.name: key for key in KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Carry what one file says: the good values by key, and what is wrong with the others."""

    file: str
    values: Mapping[str, object]
    problems: tuple[ConfigProblem, ...]


class _Faults:
    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[ConfigProblem] = []

    def add(self, key: str, message: str) -> None:
        self.problems.append(ConfigProblem(self.file, key, message))


def parse_document(file: str, toml: Toml) -> Document:
    """Check each key of one file. ``file`` names it in the problems."""
    faults = _Faults(file)
    good: dict[str, object] = {}
    for section, table in toml.items():
        if section not in SECTIONS:
            faults.add(section, _unknown_section(section))
        elif not isinstance(table, Mapping):
            faults.add(section, f"expected the section [{section}], got {values.describe(table)}")
        else:
            for option, value in cast("Toml", table).items():
                _take(f"{section}.{option}", value, good, faults)
    return Document(file=file, values=good, problems=tuple(faults.problems))


def build(documents: Iterable[Document]) -> tuple[Settings, tuple[ConfigProblem, ...]]:
    """Merge documents, a later one wins per key, and check what only the whole can show."""
    merged: dict[str, object] = {}
    origins: dict[str, str] = {}
    problems: list[ConfigProblem] = []
    for document in documents:
        merged |= document.values
        origins |= dict.fromkeys(document.values, document.file)
        problems += document.problems
    settings = dataclasses.replace(_settings(merged), origins=origins)
    # A value that was not understood contradicts nothing.
    faulty = {problem.key.partition(".")[0] for problem in problems}
    problems += [p for p in _contradictions(settings) if p.key.partition(".")[0] not in faulty]
    return settings, tuple(problems)


def _take(name: str, value: object, good: dict[str, object], faults: _Faults) -> None:
    key = _BY_NAME.get(name)
    if key is None:
        faults.add(name, _unknown_key(name))
        return
    if key.kind is Kind.RULES:
        good[name] = _rules(value, faults)
        return
    try:
        parsed = values.parse_value(key.kind, value)
        _check_bounds(key, parsed)
    except ValueError as error:
        faults.add(name, str(error))
    else:
        good[name] = parsed


def _check_bounds(key: Key, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        if key.section == "paths" and not value:
            raise ValueError(f"expected {key.kind.value}, got nothing")
        return
    for bound, is_out, word in (
        (key.least, key.least is not None and value < key.least, "below"),
        (key.most, key.most is not None and value > key.most, "above"),
    ):
        if is_out and bound is not None:
            shown = values.format_value(key.kind, value)
            limit = values.format_value(key.kind, type(value)(bound))
            raise ValueError(f"{shown} is {word} the bound {limit}")


# ---- [[selection.rule]] ----------------------------------------------------------------------
def _rules(value: object, faults: _Faults) -> tuple[Rule, ...]:
    name = "selection.rule"
    if not isinstance(value, list):
        faults.add(name, f"expected [[selection.rule]] tables, got {values.describe(value)}")
        return ()
    rules: list[Rule] = []
    for index, item in enumerate(cast("list[object]", value), start=1):
        rule = _rule(f"{name}[{index}]", item, faults)
        if rule is not None and rule in rules:
            faults.add(f"{name}[{index}]", f"says the same as {name}[{rules.index(rule) + 1}]")
        if rule is not None:
            rules.append(rule)
    return tuple(rules)


def _rule(name: str, item: object, faults: _Faults) -> Rule | None:
    if not isinstance(item, Mapping):
        faults.add(name, f"expected a table, got {values.describe(item)}")
        return None
    table = cast("Toml", item)
    before = len(faults.problems)
    for option in table.keys() - {"namespace", "labels"}:
        faults.add(f"{name}.{option}", "unknown key: a rule has `namespace` and `labels`")
    namespace = table.get("namespace")
    if not isinstance(namespace, str) or not values.is_namespace(namespace):
        found = "nothing" if namespace is None else values.describe(namespace)
        faults.add(f"{name}.namespace", f"expected a namespace's name, got {found}")
    labels = _labels(f"{name}.labels", table.get("labels"), faults)
    if len(faults.problems) > before:
        return None
    return Rule(namespace=cast("str", namespace), labels=labels)


def _table(value: object) -> Toml:
    return cast("Toml", value) if isinstance(value, Mapping) else {}


def _labels(name: str, value: object, faults: _Faults) -> Mapping[str, str]:
    # A rule without labels would take in every pod of the namespace by a slip.
    table = _table(value)
    if not table:
        found = "nothing" if value in (None, {}) else values.describe(value)
        faults.add(name, f'expected labels such as {{ app = "web" }}, got {found}')
        return {}
    labels: dict[str, str] = {}
    for label, text in table.items():
        if isinstance(text, str) and values.is_label(label, text):
            labels[label] = text
        else:
            faults.add(f"{name}.{label}", f"no pod can carry the value {values.describe(text)}")
    return labels


# ---- names that are not there --------------------------------------------------------------------
def _unknown_section(section: str) -> str:
    home = [f"[{key.section}]" for key in KEYS if key.option == section]
    if home:
        return f"unknown section; the key `{section}` belongs into {' or '.join(home)}"
    return f"unknown section; {_nearest(section, SECTIONS)}"


def _unknown_key(name: str) -> str:
    section, _, option = name.partition(".")
    home = [f"[{key.section}]" for key in KEYS if key.option == option]
    if home:
        return f"unknown key; `{option}` belongs into {' or '.join(home)}"
    return f"unknown key; {_nearest(option, [k.option for k in KEYS if k.section == section])}"


def _nearest(word: str, choices: Iterable[str]) -> str:
    names = list(choices)
    close = difflib.get_close_matches(word.lower().replace("_", "-"), names, n=1, cutoff=0.5)
    return f"did you mean `{close[0]}`?" if close else f"known are: {', '.join(names)}"


# ---- the whole ----------------------------------------------------------------------
def _settings(merged: Mapping[str, object]) -> Settings:
    fields = {key.field: merged[key.name] for key in KEYS if key.name in merged}
    default = Settings()
    policy = dataclasses.replace(
        _changed(default.policy, _part(fields, "policy.")),
        times=_changed(default.policy.times, _part(fields, "policy.times.")),
        selection=_changed(default.policy.selection, _part(fields, "policy.selection.")),
        witnesses=frozenset(w for w in Witness if merged.get(f"witnesses.{w.value}", True)),
    )
    kubelet = _changed(default.kubelet, _part(fields, "kubelet."))
    places = {name: Path(str(value)) for name, value in _part(fields, "paths.").items()}
    return Settings(
        policy=policy,
        paths=_changed(default.paths, places),
        kubelet=dataclasses.replace(kubelet, node_name=policy.node_name),
        log_level=str(fields.get("log_level", default.log_level)),
    )


def _part(fields: Mapping[str, object], prefix: str) -> Mapping[str, object]:
    return {
        name[len(prefix) :]: value
        for name, value in fields.items()
        if name.startswith(prefix) and "." not in name[len(prefix) :]
    }


def _changed(instance: T, changes: Mapping[str, object]) -> T:
    return dataclasses.replace(instance, **changes)


def _contradictions(settings: Settings) -> list[ConfigProblem]:
    found: list[ConfigProblem] = []

    def origin(*names: str) -> str:
        return next((settings.origins[n] for n in names if n in settings.origins), "")

    times = settings.policy.times
    if times.offer_again > times.offer_again_most:
        key = "times.offer-again"
        message = "is longer than times.offer-again-most"
        found.append(ConfigProblem(origin(key, "times.offer-again-most"), key, message))
    if not settings.policy.witnesses & {Witness.RUNTIME, Witness.KERNEL}:
        message = "with runtime and kernel both off nothing could say that a pod does not run"
        key = "witnesses"
        found.append(ConfigProblem(origin("witnesses.kernel"), key, message))
    kubelet = settings.kubelet
    if bool(kubelet.client_certificate) != bool(kubelet.client_key):
        key = "kubelet.client-certificate"
        message = "client-certificate and client-key belong together: set both or none"
        found.append(ConfigProblem(origin(key, "kubelet.client-key"), key, message))
    return found
