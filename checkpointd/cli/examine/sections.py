"""Run examinations side by side, none of them beyond the time that all have together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from checkpointd.cli.examine.finding import Finding, Level, unknown
from checkpointd.cli.examine.scene import Scene
from checkpointd.errors import CheckpointdError

Examine = Callable[[Scene], Iterable[Finding]]


@dataclass(slots=True)
class Section:
    """Hold the findings of one examination, as far as it has come."""

    name: str
    findings: list[Finding] = field(default_factory=list[Finding])
    done: bool = False


def examine(scene: Scene, examinations: Sequence[tuple[str, Examine]], end: float) -> list[Section]:
    """Run all examinations until ``end`` (monotonic); of those that hang, what they have counts.

    A thread that hangs on a disk or a server is left behind: the process ends without it.
    """
    held = [Section(name) for name, _call in examinations]
    threads = [
        threading.Thread(target=_fill, args=(section, call, scene), daemon=True, name=section.name)
        for section, (_name, call) in zip(held, examinations, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return [_closed(section) for section in held]


def worst(held: Sequence[Section]) -> Level:
    """Return the worst level of all findings."""
    levels = list(Level)
    found = (levels.index(finding.level) for one in held for finding in one.findings)
    return levels[max(found, default=0)]


def _fill(section: Section, call: Examine, scene: Scene) -> None:
    try:
        for finding in call(scene):
            section.findings.append(finding)
    except (CheckpointdError, OSError) as error:
        section.findings.append(unknown(section.name, str(error)))
    section.done = True


def _closed(section: Section) -> Section:
    """Return a section to which nothing is added any more."""
    if section.done:
        return section
    late = unknown(section.name, "no answer in time: the rest of this is not known")
    return Section(section.name, [*section.findings, late])
