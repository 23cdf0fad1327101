"""Judge a workload before it runs anywhere: would its pods get a copy, and what would that be.

Pure. It renders as the daemon does, with stand-ins for what only a node has: the files of volumes
have no content. What it says is told with the paths of the object that it was asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model import naming
from checkpointd.model.files import Candidate, Refusal, VolumeFiles
from checkpointd.render import content, copy, placing, rules, volumes, workloads
from checkpointd.render.copy import NodeFacts
from checkpointd.render.workloads import Parent, Workload

_OF_THE_OBJECT = ("metadata.name", "metadata.namespace", "metadata.uid")
"""Fields of a pod that its controller names, not its template."""
_TOKEN_SWITCH = "spec.automountServiceAccountToken"  # noqa: S105 - a field's name
EXAMPLE = "example"
"""What stands for the boot in the name of a copy that is not placed."""


class Outcome(Enum):
    """Say how a workload fares."""

    OK = "ok"
    WARNED = "ok with warnings"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Say what is wrong at a path of the object; ``refuses`` or only warns."""

    refuses: bool
    path: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """Name a volume whose files a node has and this trial has not; ``source`` is whose they are."""

    volume: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Hold what a trial found; ``candidate`` is None where the workload is refused."""

    findings: tuple[Finding, ...]
    candidate: Candidate | None = None
    stand_ins: tuple[StandIn, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Say how the workload fares."""
        if self.candidate is None or any(finding.refuses for finding in self.findings):
            return Outcome.REFUSED
        return Outcome.WARNED if self.findings else Outcome.OK


def judge(workload: Workload, node: NodeFacts) -> Verdict:
    """Render a pod of the workload. Raises nothing: what cannot be read is a finding."""
    try:
        parent = workloads.parent_of(workload)
        files = {volume: _stand_in(volume) for volume in _stored(parent.pod)}
        rendered = copy.render(parent.pod, files, node)
    except FieldError as error:
        refusal = rules.malformed(error, _join(*workload.template) or "spec")
        return Verdict(findings=(_as_is(workload, refusal),))
    if isinstance(rendered, Candidate):
        return Verdict(
            findings=tuple(_warning(workload, text) for text in rendered.warnings),
            candidate=rendered,
            stand_ins=tuple(_name_stand_ins(parent.pod)),
        )
    found = (_refusal(workload, parent, refusal) for refusal in rendered.refusals)
    return Verdict(findings=tuple(_once(found)))


def example_placement(
    candidate: Candidate, node: NodeFacts, version: str, root: str
) -> placing.Placement:
    """Return the placement of a first activation; ``root`` is the directory of the store's slot.

    Name and UID come from boot and counter: those of a real activation are others.
    """
    digest = naming.activation_digest(candidate.hash, EXAMPLE, 1)
    uid = naming.copy_uid(digest)
    return placing.Placement(
        name=naming.copy_name(candidate.parent_name, digest, node.node_name),
        uid=uid,
        hostname=candidate.hostname,
        node_name=node.node_name,
        slot=candidate.slot,
        generation=candidate.hash,
        activation=1,
        parent_name=candidate.parent_name,
        parent_uid=candidate.parent_uid,
        version=version,
        paths={volume: f"{root}/active/{uid}/{volume}" for volume in candidate.contents},
    )


# ---- stand-ins -----------------------------------------------------------------------------------
def _stored(pod: Json) -> Iterator[str]:
    """Yield the volumes of which a node keeps the files, where they can be told at all."""
    try:
        yield from (volume.name for volume in volumes.stored_volumes(pod))
    except FieldError:
        # Rendering meets the same field, and refuses it by its name.
        return


def _stand_in(volume: str) -> VolumeFiles:
    return content.volume_files(volume, "", ())


def _name_stand_ins(pod: Json) -> Iterator[StandIn]:
    for _path, volume in _volumes(pod):
        name = json_fields.text(volume, "name")
        secret = json_fields.optional_text(volume, "secret", "secretName")
        config_map = json_fields.optional_text(volume, "configMap", "name")
        source = f"secret {secret}" if secret else f"configMap {config_map}" if config_map else ""
        yield StandIn(volume=name, source=source or "several sources")


def _volumes(pod: Json) -> Iterator[tuple[str, Json]]:
    stored = set(_stored(pod))
    for index, volume in enumerate(json_fields.objects(pod, "spec", "volumes")):
        if json_fields.optional_text(volume, "name") in stored:
            yield f"spec.volumes[{index}]", volume


# ---- paths ---------------------------------------------------------------------------------------
def _refusal(workload: Workload, parent: Parent, refusal: Refusal) -> Finding:
    if refusal.field.startswith(f"spec.volumes[{parent.token_volume}]"):
        return Finding(
            refuses=True,
            path=_path_of(workload, _TOKEN_SWITCH),
            reason=f"the API server adds a volume with a token: {refusal.reason}",
            remedy=refusal.remedy,
        )
    return Finding(
        refuses=True,
        path=_path_of(workload, refusal.field),
        reason=refusal.reason,
        remedy=refusal.remedy,
    )


def _as_is(workload: Workload, refusal: Refusal) -> Finding:
    """Return the finding of a field whose path is the object's own."""
    return Finding(
        refuses=True,
        path=_join(workload.path, refusal.field),
        reason=refusal.reason,
        remedy=refusal.remedy,
    )


def _warning(workload: Workload, text: str) -> Finding:
    field, separator, reason = text.partition(": ")
    if not separator or " " in field:
        return Finding(refuses=False, path=_join(workload.path, *workload.template), reason=text)
    return Finding(refuses=False, path=_path_of(workload, field), reason=reason)


def _path_of(workload: Workload, field: str) -> str:
    """Return where a field of the pod stands in the object."""
    if field.startswith("metadata.ownerReferences"):
        return _join(workload.path, "kind")
    if field in _OF_THE_OBJECT:
        return _join(workload.path, field)
    # What cannot be copied at all is told with "pod" in front of it.
    return _join(workload.path, *workload.template, field.removeprefix("pod").lstrip("."))


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _once(found: Iterator[Finding]) -> Iterator[Finding]:
    """Yield each finding once; of those on the token's volume the first: one remedy serves all."""
    seen: set[tuple[str, str]] = set()
    for finding in found:
        key = (finding.path, "" if finding.path.endswith(_TOKEN_SWITCH) else finding.reason)
        if key not in seen:
            seen.add(key)
            yield finding
