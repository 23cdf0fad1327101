"""Read the configuration's files. The only module of the package with I/O; it writes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import tomli

from checkpointd.errors import ConfigError, ConfigProblem
from checkpointd.model.pods import Slot
from checkpointd.settings import parse
from checkpointd.settings.nouns import Paths, Settings
from checkpointd.settings.parse import Document

DEFAULT_FILE = Path("/etc/checkpointd/checkpointd.toml")
MOST_BYTES = 1 << 20
"""No configuration is longer: what is, is another file by mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Carry the settings to run with; with ``problems`` they are the last good ones."""

    settings: Settings
    problems: tuple[ConfigProblem, ...] = ()

    @property
    def is_last_good(self) -> bool:
        """Tell whether the configuration is faulty, and these are an earlier one's settings."""
        return bool(self.problems)


def load(file: Path = DEFAULT_FILE) -> Settings:
    """Read ``file`` and ``file``.d/*.toml in lexical order; a later file wins per key.

    The default file may be absent: then all defaults hold. Raises ConfigError with every fault.
    """
    settings, problems = _read(file)
    if problems:
        raise ConfigError(problems)
    return settings


def load_or_last_good(file: Path = DEFAULT_FILE) -> Loaded:
    """Read the configuration; if it is faulty, what the daemon last ran with, and the faults.

    The last good one lies in the state directory (``Paths.last_good_file``); without one that can
    be read, raises ConfigError with every fault of the present one.
    """
    settings, problems = _read(file)
    if not problems:
        return Loaded(settings=settings)
    last_good = settings.paths.last_good_file
    if not last_good.is_file():
        raise ConfigError(problems)
    settings, worse = parse.build([_document(last_good)])
    if worse:
        raise ConfigError((*problems, *worse))
    return Loaded(settings=settings, problems=problems)


def read_paths(file: Path = DEFAULT_FILE) -> Paths:
    """Return the places alone, for commands that must work beside a faulty configuration.

    Raises ConfigError only for a file that was named and is not there.
    """
    settings, problems = _read(file)
    if problems and not file.exists():
        raise ConfigError(problems)
    return settings.paths


def refuses_reload(
    old: Settings, new: Settings, before: frozenset[Slot], after: frozenset[Slot]
) -> str:
    """Say why a reload is refused, "" if it is not.

    ``before`` and ``after`` are the slots whose pods are marked under the old and the new settings.
    A slip in the selection must not retire what it took long to prove; paths are open files.
    """
    if old.paths != new.paths:
        return "[paths] changes only by a restart: systemctl restart checkpointd"
    lost = sorted(before - after)
    if len(lost) * 2 <= len(before):
        return ""
    some = ", ".join(str(slot) for slot in lost[:3]) + (", ..." if len(lost) > 3 else "")
    return (
        f"it would unmark {len(lost)} of {len(before)} checkpoints ({some}); "
        "if that is meant: systemctl restart checkpointd"
    )


def _read(file: Path) -> tuple[Settings, tuple[ConfigProblem, ...]]:
    is_optional = file == DEFAULT_FILE and not file.exists()
    drop_ins = sorted(p for p in _drop_ins(file) if not p.name.startswith("."))
    return parse.build(_document(path) for path in ([] if is_optional else [file]) + drop_ins)


def _drop_ins(file: Path) -> Iterable[Path]:
    return file.with_name(file.name + ".d").glob("*.toml")


def _document(path: Path) -> Document:
    try:
        # A pipe in the place of a file would be waited for, for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return _unreadable(path, "is not a file")
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return _unreadable(path, f"is longer than {MOST_BYTES} bytes")
        return parse.parse_document(str(path), tomli.loads(content.decode()))
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        return _unreadable(path, f"line {line} is not UTF-8")
    except (tomli.TOMLDecodeError, RecursionError) as error:
        return _unreadable(path, f"not TOML: {error}")
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror}")


def _unreadable(path: Path, message: str) -> Document:
    problem = ConfigProblem(str(path), "", message)
    return Document(file=str(path), values={}, problems=(problem,))
