"""Repeat the create-time validation that a static pod meets in the kubelet (K-7).

Not all of ValidatePodCreate: what an API pod has passed and rendering never touches (quantities,
capabilities, DNS options) is left to it. Sources are of kubernetes/kubernetes 1.36; `V:` stands for
pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model import naming
from checkpointd.render import fields, identity, ports, wire
from checkpointd.render.rules import Finding, Rule

CREATE = "V: ValidatePodCreate"
ANNOTATIONS_LIMIT = 256 * 1024
"""staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go: TotalAnnotationSizeLimitB."""
FILE_LIMIT = 10 * 1024 * 1024
"""pkg/kubelet/config/common.go: maxConfigLength."""

_UID = re.compile(r"[0-9a-f-]{1,64}")
_RESTART_POLICIES = ("", "Always", "OnFailure", "Never")


def rules_for(node_name: str) -> tuple[Rule, ...]:
    """Return all rules, those on names with the node's name appended (K-6)."""
    return (*METADATA, _full_name(node_name), *SPEC, *fields.RULES)


def _full_name(node_name: str) -> Rule:
    def find(pod: Json) -> Iterator[Finding]:
        name = json_fields.text(pod, "metadata", "name")
        full = f"{name}-{node_name.lower()}"
        if not identity.is_subdomain(name) or not identity.is_subdomain(full):
            yield "metadata.name", full[:300]

    return Rule(
        name="metadata.name",
        source="pkg/kubelet/config/common.go: generatePodName; V: ValidatePodName",
        reason="no DNS subdomain of 253 characters with the node's name appended",
        remedy="shorten or correct the name",
        find=find,
    )


# ---- metadata ------------------------------------------------------------------------------------
def _type_meta(pod: Json) -> Iterator[Finding]:
    for key, wanted in (("apiVersion", "v1"), ("kind", "Pod")):
        if json_fields.optional_text(pod, key) != wanted:
            yield key, f"must be {wanted}"


def _namespace(pod: Json) -> Iterator[Finding]:
    if not naming.is_label(json_fields.text(pod, "metadata", "namespace")):
        yield "metadata.namespace", ""


def _uid(pod: Json) -> Iterator[Finding]:
    # An absent UID is computed by the kubelet, and then changes with its version.
    if not _UID.fullmatch(json_fields.text(pod, "metadata", "uid")):
        yield "metadata.uid", ""


def _labels(pod: Json) -> Iterator[Finding]:
    for key, value in json_fields.texts(pod, "metadata", "labels").items():
        if not fields.is_qualified_name(key):
            yield "metadata.labels", f"the key {key[:80]!r} is no qualified name"
        elif not fields.is_label_value(value):
            yield f"metadata.labels[{key}]", "the value is no label value"


def _annotations(pod: Json) -> Iterator[Finding]:
    annotations = json_fields.texts(pod, "metadata", "annotations")
    for key in annotations:
        if not fields.is_qualified_name(key.lower()):
            yield "metadata.annotations", f"the key {key[:80]!r} is no qualified name"
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        yield "metadata.annotations", f"{size} bytes, at most {ANNOTATIONS_LIMIT}"


def _present(*keys: str) -> Rule:
    def find(pod: Json) -> Iterator[Finding]:
        if json_fields.has_field(pod, *keys):
            yield ".".join(keys), ""

    return Rule(
        name=".".join(keys),
        source=_UNWANTED[keys[-1]][0],
        reason=_UNWANTED[keys[-1]][1],
        remedy="leave it out",
        find=find,
    )


_UNWANTED = {
    "deletionTimestamp": (
        "pkg/kubelet/pod_workers.go: UpdatePod",
        "a pod that is being deleted never starts",
    ),
    "ownerReferences": (
        "pkg/kubelet/pod/mirror_client.go: CreateMirrorPod",
        "the kubelet writes the mirror's owner itself",
    ),
    "finalizers": (
        "pkg/kubelet/pod/mirror_client.go: CreateMirrorPod",
        "nobody would take them from the mirror pod",
    ),
    "resourceVersion": (
        "pkg/registry/core/pod/strategy.go: Create",
        "the API server refuses it on the mirror pod",
    ),
    "status": (
        "pkg/apis/core/v1/helper/qos/qos.go: GetPodQOS",
        "its qosClass would override the computed one",
    ),
    "nodeName": (
        "pkg/kubelet/config/common.go: applyDefaults",
        "the kubelet sets its own name",
    ),
    "runtimeClassName": (
        "pkg/kubelet/runtimeclass/runtimeclass_manager.go: LookupRuntimeHandler",
        "the class is looked up in the API server",
    ),
}


def _metadata_rule(name: str, source: str, reason: str, find: fields.Find) -> Rule:
    remedy = "correct the field"
    return Rule(name=name, source=source, reason=reason, remedy=remedy, find=find)


METADATA: tuple[Rule, ...] = (
    _metadata_rule(
        "kind",
        "pkg/kubelet/config/common.go: tryDecodeSinglePod",
        "not a Pod of v1",
        _type_meta,
    ),
    _metadata_rule("metadata.namespace", "V: ValidateNamespaceName", "not a DNS label", _namespace),
    _metadata_rule(
        "metadata.uid",
        "pkg/kubelet/cm/cgroup_manager_linux.go: NewCgroupName",
        "other than lower-case hex and '-' panics the kubelet, at each of its starts",
        _uid,
    ),
    _metadata_rule("metadata.labels", "V: ValidateLabels", "malformed", _labels),
    _metadata_rule("metadata.annotations", "V: ValidateAnnotations", "malformed", _annotations),
    _present("metadata", "deletionTimestamp"),
    _present("metadata", "ownerReferences"),
    _present("metadata", "finalizers"),
    _present("metadata", "resourceVersion"),
    _present("status"),
)


# ---- spec ----------------------------------------------------------------------------------------
def _filled(key: str, source: str, reason: str) -> Rule:
    def find(pod: Json) -> Iterator[Finding]:
        if json_fields.sequence(pod, "spec", key):
            yield f"spec.{key}", ""

    remedy = "leave it out"
    return Rule(name=f"spec.{key}", source=source, reason=reason, remedy=remedy, find=find)


def _selectors(pod: Json) -> Iterator[Finding]:
    for key in ("nodeSelector", "affinity"):
        if json_fields.mapping(pod, "spec", key):
            yield f"spec.{key}", ""


def _hostname(pod: Json) -> Iterator[Finding]:
    for key in ("hostname", "subdomain"):
        value = json_fields.optional_text(pod, "spec", key)
        if value and not naming.is_label(value):
            yield f"spec.{key}", ""


def _restart_policy(pod: Json) -> Iterator[Finding]:
    if json_fields.optional_text(pod, "spec", "restartPolicy") not in _RESTART_POLICIES:
        yield "spec.restartPolicy", ""


def _priority(pod: Json) -> Iterator[Finding]:
    number = json_fields.optional_integer(pod, "spec", "priority")
    name = json_fields.optional_text(pod, "spec", "priorityClassName")
    if (number is None) == bool(name):
        yield "spec.priority", "class and number only together"
    if number is not None and not -(2**31) <= number < 2**31:
        yield "spec.priority", "not an int32"


def _host_network_ports(pod: Json) -> Iterator[Finding]:
    if ports.has_host_network(pod):
        for path, container in wire.containers(pod):
            if json_fields.sequence(container, "ports"):
                yield f"{path}.ports", ""


def _size(pod: Json) -> Iterator[Finding]:
    if len(json_fields.write_canonical(pod)) > FILE_LIMIT:
        yield "spec", ""


SPEC: tuple[Rule, ...] = (
    _filled("ephemeralContainers", CREATE, "cannot be set on create"),
    _filled("schedulingGates", CREATE, "cannot be set together with the node's name"),
    _filled(
        "topologySpreadConstraints",
        "V: validateTopologySpreadConstraints",
        "words for a scheduler that never sees a copy",
    ),
    _present("spec", "nodeName"),
    _present("spec", "runtimeClassName"),
    Rule(
        name="spec.nodeSelector",
        source="pkg/kubelet/lifecycle/predicate.go: generalFilter",
        reason="offline the kubelet does not know its node's labels",
        remedy="leave it out",
        find=_selectors,
    ),
    _metadata_rule("spec.hostname", "V: ValidatePodSpec", "not a DNS label", _hostname),
    _metadata_rule("spec.restartPolicy", "V: validateRestartPolicy", "unknown", _restart_policy),
    _metadata_rule(
        "spec.priority",
        "plugin/pkg/admission/priority/admission.go: admitPod",
        "the API server would refuse the mirror pod",
        _priority,
    ),
    Rule(
        name="spec.containers.ports",
        source="pkg/apis/core/v1/defaults.go: defaultHostNetworkPorts",
        reason="with host network they become host ports, which the kubelet gives to one pod",
        remedy="leave them out and write numbers into probes",
        find=_host_network_ports,
    ),
    Rule(
        name="spec",
        source="pkg/kubelet/config/common.go: maxConfigLength",
        reason="the manifest is larger than the kubelet reads",
        remedy="move bulk into a volume",
        find=_size,
    ),
)
