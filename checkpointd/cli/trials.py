"""Put the workloads of files on trial: what `check` and `render` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from checkpointd.cli import documents
from checkpointd.cli.documents import Read
from checkpointd.cli.screen import Screen
from checkpointd.errors import FieldError, UsageError
from checkpointd.json_fields import Json
from checkpointd.render import lint, trial, workloads
from checkpointd.render.copy import NodeFacts
from checkpointd.render.trial import Finding, Verdict
from checkpointd.render.workloads import Other, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Hold a workload, where it was read, and the verdict."""

    read: Read
    workload: Workload
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """Hold an object that makes no pods."""

    read: Read
    other: Other


Heard = Trial | PassedOver | Read
"""A Read is a document that could not be read: its ``problem`` says why."""


def hold(files: Iterable[str], node: NodeFacts) -> Iterator[Heard]:
    """Yield what is found in files, in their order."""
    for file in files:
        for read in documents.read_all(file):
            yield from _hold_one(read, node)


def node_facts(version: str, name: str = "node") -> NodeFacts:
    """Return the facts of a node of that Kubernetes version. Raises UsageError."""
    if version and lint.parse_version(version) is None:
        raise UsageError(f'"{version}" is no version of Kubernetes: expected, for example, 1.35')
    return NodeFacts(node_name=name, kubelet_version=version)


def _hold_one(read: Read, node: NodeFacts) -> Iterator[Heard]:
    if read.problem:
        yield read
        return
    try:
        found = list(workloads.find(read.value))
    except FieldError as error:
        yield dataclasses.replace(read, value=None, problem=f"not an object of Kubernetes: {error}")
        return
    for one in found:
        if isinstance(one, Other):
            yield PassedOver(read=read, other=one)
        else:
            verdict = trial.judge(one, node)
            repeated = tuple(_repeated(read, one, len(found)))
            heard = dataclasses.replace(verdict, findings=(*verdict.findings, *repeated))
            yield Trial(read=read, workload=one, verdict=heard)


def _repeated(read: Read, workload: Workload, others: int) -> Iterator[Finding]:
    """Yield the keys of this object that stand there twice."""
    for path in read.repeated:
        if others == 1 or path.startswith(f"{workload.path}."):
            yield Finding(
                refuses=False,
                path=path,
                reason="the key stands there more than once: the last one counts",
                remedy="leave one",
            )


def finding_lines(finding: Finding, on: Screen) -> list[str]:
    """Lay out a finding: path, reason, remedy."""
    lines = on.wrap(f"{finding.path}: {finding.reason}", "  - ", "    ")
    return lines + (on.wrap(finding.remedy, "    remedy: ") if finding.remedy else [])


def finding_json(finding: Finding) -> Json:
    """Return a finding as ``--json`` shows it."""
    return {
        "level": "refusal" if finding.refuses else "warning",
        "path": finding.path,
        "reason": finding.reason,
        "remedy": finding.remedy,
    }


def trial_json(held: Trial) -> dict[str, object]:
    """Return a workload and its verdict as ``--json`` shows them."""
    candidate = held.verdict.candidate
    return {
        "file": held.read.file,
        "line": held.read.line,
        "path": held.workload.path,
        "kind": held.workload.kind,
        "namespace": held.workload.namespace,
        "name": held.workload.name,
        "outcome": held.verdict.outcome.value,
        "copy": None if candidate is None else candidate.kind.value,
        "findings": [finding_json(finding) for finding in held.verdict.findings],
    }


def unread_json(read: Read) -> Json:
    """Return a document that could not be read as ``--json`` shows it."""
    return {"file": read.file, "line": read.line, "reason": read.problem}
