"""Read operators' words from ``overrides/``: a small JSON file each, by the CLI or by hand.

A file that cannot be read is named as a problem and counts as unknown: the word that it last held
goes on (half a file must not lift a hold). The others are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from checkpointd import json_fields
from checkpointd.errors import DamagedError, FieldError, StoreError
from checkpointd.model.observation import Override, Verb
from checkpointd.store import layout
from checkpointd.store.walk import Directory

SUFFIX = ".json"
READ_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Hold the words by ``node`` or ``<namespace>.<slot>``, and a sentence for each bad file.

    ``unread`` are the names of the bad files; ``all_unread`` says that none could be looked for.
    """

    words: Mapping[str, Override]
    problems: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    all_unread: bool = False


def read_overrides(root: Path) -> Overrides:
    """Read all operators' words of the store at ``root``. Never raises: what fails is a problem."""
    words: dict[str, Override] = {}
    bad: dict[str, str] = {}
    try:
        with Directory.open(root) as top, top.descend(layout.OVERRIDES) as directory:
            if directory is not None:
                _read_all(directory, words, bad)
    except StoreError as error:
        why = f"overrides cannot be read: {error}"
        return Overrides(words={}, problems=(why,), all_unread=True)
    return Overrides(words=words, problems=tuple(bad.values()), unread=frozenset(bad))


def parse_override(content: bytes, what: str) -> Override:
    """Parse one operator's word. Raises FieldError that names ``what`` and the field."""
    fields = json_fields.parse_object(content, what)
    try:
        verb = json_fields.text(fields, "verb")
        until = json_fields.optional_text(fields, "until")
        reason = json_fields.optional_text(fields, "reason")
    except FieldError as error:
        raise FieldError(f"{what}: {error}") from error
    if verb not in {known.value for known in Verb}:
        wanted = ", ".join(known.value for known in Verb)
        raise FieldError(f"{what}: verb {verb[:40]!r} is not one of {wanted}")
    if until and not _is_time(until):
        raise FieldError(f"{what}: until {until[:40]!r} is not a time like 2026-01-31T12:00:00Z")
    return Override(verb=Verb(verb), until=until, reason=reason)


def _read_all(directory: Directory, words: dict[str, Override], bad: dict[str, str]) -> None:
    for name in directory.names():
        if name.startswith(".") or not name.endswith(SUFFIX):
            continue
        target = name.removesuffix(SUFFIX)
        try:
            words[target] = _read(directory, name)
        except (StoreError, FieldError) as error:
            bad[target] = f"override not understood: {error}"


def _read(directory: Directory, name: str) -> Override:
    content = directory.find(name, READ_LIMIT)
    if content is None:
        raise DamagedError(f"{directory.path / name}: went while it was read")
    return parse_override(content, str(directory.path / name))


def _is_time(text: str) -> bool:
    try:
        # Python 3.10 does not read the "Z" of RFC 3339.
        return datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False
