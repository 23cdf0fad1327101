"""Render a parent into a candidate: drop and rewrite what design section 6 says.

Each part (identity, volumes, environment, ports, kinds, priority) rewrites its own fields and says
what it refuses; this module joins them. ``placing`` makes one copy of the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model import naming, pods
from checkpointd.model.files import Candidate, Refusal, Refused, VolumeFiles
from checkpointd.render import (
    content,
    environment,
    identity,
    kinds,
    lint,
    placing,
    ports,
    priority,
    rules,
    volumes,
    wire,
)

DROPPED_SPEC = (
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "imagePullSecrets",
    "ephemeralContainers",
    "schedulingGates",
    "nodeSelector",
    "affinity",
    "topologySpreadConstraints",
    # Set by the kubelet for every static pod (K-6).
    "nodeName",
    # Words for the scheduler, which never sees a copy.
    "schedulerName",
    "workloadRef",
    "schedulingGroup",
    # The copy's own is set when it is placed.
    "hostname",
)
DEFAULT_GRACE_SECONDS = 30
"""pkg/apis/core/v1/types.go: DefaultTerminationGracePeriodSeconds."""

_TRIAL = "trial"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Hold what rendering may know of this node.

    ``kubelet_version`` is "" where unknown; it only adds warnings. ``service`` are the variables
    KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT that pods of this cluster get, empty where
    unknown.
    """

    node_name: str
    kubelet_version: str = ""
    service: Mapping[str, str] = field(default_factory=dict[str, str])


def render(pod: Json, files: Mapping[str, VolumeFiles], node: NodeFacts) -> Candidate | Refused:
    """Render a raw API pod and the files of its volumes.

    ``files`` has an entry per stored volume (``volumes.stored_volumes``). Raises nothing: a field
    of the wrong type is a refusal that names it.
    """
    try:
        parent = wire.plain(pod)
        refused = (*_refusals(parent), *_refuse_unread(parent, files))
        return _refused(pod, refused) if refused else _candidate(parent, files, node)
    except FieldError as error:
        return _refused(pod, (rules.malformed(error, "spec"),))


def refusals(pod: Json) -> tuple[Refusal, ...]:
    """Return why the pod is refused whatever its files are; reading them can be spared."""
    try:
        return tuple(_refusals(wire.plain(pod)))
    except FieldError as error:
        return (rules.malformed(error, "spec"),)


def manifest_of(parent: Json, node: NodeFacts) -> wire.Object:
    """Return the copy's Pod without name, UID, hostname and our annotations. Raises FieldError.

    Idempotent: the manifest of a manifest is the same.
    """
    stored = frozenset(volume.name for volume in volumes.stored_volumes(parent))
    spec = dict(priority.rewrite(wire.without(json_fields.mapping(parent, "spec"), *DROPPED_SPEC)))
    for kind in wire.CONTAINER_LISTS:
        listed = json_fields.objects(spec, kind)
        if kind in spec:
            spec[kind] = [_container(container, parent, stored, node) for container in listed]
    if "volumes" in spec:
        spec["volumes"] = volumes.rewrite_all(parent)
    # Requests stay as given, the policy `keep`: `fit` and `zero` would change `spec` here.
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": identity.metadata(parent),
        "spec": spec,
    }


def _container(container: Json, parent: Json, stored: frozenset[str], node: NodeFacts) -> Json:
    rewritten = environment.rewrite(container, parent, node.service)
    rewritten = volumes.mount_read_only(rewritten, stored)
    if ports.has_host_network(parent):
        rewritten = ports.rewrite(rewritten)
    # Always would need the registry at each start (K-11).
    return {**rewritten, "imagePullPolicy": "IfNotPresent"}


def _candidate(
    parent: Json, files: Mapping[str, VolumeFiles], node: NodeFacts
) -> Candidate | Refused:
    manifest = manifest_of(parent, node)
    stored = volumes.stored_volumes(parent)
    kept = tuple(content.share_labels(files[volume.name], parent) for volume in stored)
    contents = {volume.volume: volume.hash for volume in kept}
    candidate = _finished(parent, manifest, kept, contents, node)
    # The refusal comes while the API server is up, not when the copy is needed.
    trial = placing.place(manifest, _trial_placement(candidate, node))
    return candidate if isinstance(trial, bytes) else _refused(parent, trial)


def _finished(
    parent: Json,
    manifest: Json,
    kept: tuple[VolumeFiles, ...],
    contents: Mapping[str, str],
    node: NodeFacts,
) -> Candidate:
    name = json_fields.text(parent, "metadata", "name")
    namespace = json_fields.text(parent, "metadata", "namespace")
    grace = json_fields.optional_integer(parent, "spec", "terminationGracePeriodSeconds")
    hostname = naming.copy_hostname(json_fields.optional_text(parent, "spec", "hostname"), name)
    return Candidate(
        slot=pods.slot_for(namespace, name, pods.controller_of(parent)),
        parent_uid=json_fields.text(parent, "metadata", "uid"),
        parent_name=name,
        hash=_hash({"manifest": manifest, "contents": contents}),
        spec_hash=_hash(manifest),
        manifest=manifest,
        contents=contents,
        files=kept,
        placed=max((volume.placed for volume in kept), default=""),
        kind=kinds.judge(parent),
        images=images(parent),
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else max(0, grace),
        hostname=hostname,
        warnings=tuple(_warnings(parent, manifest, hostname, node)),
    )


def _refusals(parent: Json) -> Iterator[Refusal]:
    for part in (identity, volumes, environment, ports, kinds, priority):
        yield from part.refusals(parent)
    yield from _refuse_spec(parent)


def _refuse_unread(parent: Json, files: Mapping[str, VolumeFiles]) -> Iterator[Refusal]:
    for volume in volumes.stored_volumes(parent):
        if volume.name not in files:
            yield Refusal(
                field=f"spec.volumes[{volume.name}]",
                reason="its files were not read",
                remedy="wait until the kubelet has set the volume up",
            )


def _refuse_spec(parent: Json) -> Iterator[Refusal]:
    policy = json_fields.optional_text(parent, "spec", "restartPolicy") or "Always"
    if policy != "Always" and not identity.is_marked(parent, pods.RESTART_MARK):
        yield Refusal(
            field="spec.restartPolicy",
            reason=f"a pod with {policy} may have done its work: a copy would do it again",
            remedy=f'mark the pod {pods.RESTART_MARK}: "true" if it may run again',
        )
    if json_fields.optional_text(parent, "spec", "runtimeClassName"):
        yield Refusal(
            field="spec.runtimeClassName",
            reason="the kubelet looks the class up in the API server",
            remedy="use the runtime's default handler",
        )
    if json_fields.sequence(parent, "spec", "resourceClaims"):
        yield Refusal(
            field="spec.resourceClaims",
            reason="claims are looked up in the API server",
            remedy="use a device plugin's resource",
        )


def _warnings(parent: Json, manifest: Json, hostname: str, node: NodeFacts) -> Iterator[str]:
    if not hostname:
        yield "spec.hostname: the parent's name is no DNS label, the copy has its own name there"
    if json_fields.sequence(parent, "spec", "imagePullSecrets"):
        yield from lint.lint_pull_secrets(node.kubelet_version)
    if json_fields.sequence(parent, "spec", "readinessGates"):
        yield "spec.readinessGates: nobody sets these conditions while no API server answers"
    yield from kinds.warnings(parent)
    yield from lint.lint(manifest, node.kubelet_version)


def images(parent: Json) -> Mapping[str, str]:
    """Return image as the spec names it → id that ran, "" where unknown. Raises FieldError."""
    ran = {
        json_fields.optional_text(status, "name"): json_fields.optional_text(status, "imageID")
        for key in ("initContainerStatuses", "containerStatuses")
        for status in json_fields.objects(parent, "status", key)
    }
    return {
        json_fields.optional_text(container, "image"): ran.get(
            json_fields.optional_text(container, "name"), ""
        )
        for _path, container in wire.containers(parent)
    }


def _trial_placement(candidate: Candidate, node: NodeFacts) -> placing.Placement:
    digest = naming.activation_digest(candidate.hash, _TRIAL, 0)
    return placing.Placement(
        name=naming.copy_name(candidate.parent_name, digest, node.node_name),
        uid=naming.copy_uid(digest),
        hostname=candidate.hostname,
        node_name=node.node_name,
        slot=candidate.slot,
        generation=candidate.hash,
        activation=0,
        parent_name=candidate.parent_name,
        parent_uid=candidate.parent_uid,
        version=_TRIAL,
        paths={volume: f"/{_TRIAL}/{volume}" for volume in candidate.contents},
    )


def _refused(pod: Json, why: tuple[Refusal, ...]) -> Refused:
    try:
        uid = json_fields.optional_text(pod, "metadata", "uid")
    except FieldError:
        uid = ""
    return Refused(parent_uid=uid, refusals=why)


def _hash(value: object) -> str:
    return hashlib.sha256(json_fields.write_canonical(value)).hexdigest()
