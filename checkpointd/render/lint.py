"""Warn of what a kubelet of this version would not do, while the API server is still up.

Refusals are the gate's; what is said here never keeps a pod from being checkpointed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.render import ports, wire

Version = tuple[int, int]

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Name a field that kubelets older than ``since`` drop without a word.

    ``since`` is the first version that serves it by default (pkg/features/kube_features.go).
    """

    field: str
    since: Version
    find: Callable[[Json], Iterator[str]]


def parse_version(kubelet_version: str) -> Version | None:
    """Return major and minor of "v1.30.2+k3s1" and the like; None where that is not one."""
    found = _VERSION.match(kubelet_version)
    return (int(found[1]), int(found[2])) if found else None


def lint(manifest: Json, kubelet_version: str) -> tuple[str, ...]:
    """Return warnings, each beginning with the field. Raises FieldError."""
    return (*_too_new(manifest, kubelet_version), *unknown_fields(manifest))


def lint_pull_secrets(kubelet_version: str) -> Iterator[str]:
    """Yield what becomes of a private image without its pull secrets (K-11)."""
    version = parse_version(kubelet_version)
    # KubeletEnsureSecretPulledImages is on by default since 1.35.
    if version is None or version >= (1, 35):
        yield (
            "spec.imagePullSecrets: kubelets since 1.35 pull an image again that they pulled with a"
            " secret: without the registry the copy does not start (an allow-list in"
            " imagePullCredentialsVerificationPolicy helps)"
        )


def unknown_fields(manifest: Json) -> Iterator[str]:
    """Yield fields that no kubelet knows: it drops them without a word (K-7). Raises FieldError."""
    for path, value, known in _levels(manifest):
        for key in value:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f", did you mean {near[0]}?" if near else ""
                yield f"{path}{key}: no kubelet that we know has this field{hint}"


def _too_new(manifest: Json, kubelet_version: str) -> Iterator[str]:
    version = parse_version(kubelet_version)
    if version is None:
        return
    for feature in FEATURES:
        if version < feature.since:
            for path in feature.find(manifest):
                major, minor = feature.since
                yield f"{path}: kubelets before {major}.{minor} ignore {feature.field}"


def _grpc_probes(manifest: Json) -> Iterator[str]:
    for path, container in wire.containers(manifest):
        for probe in ports.PROBES:
            if json_fields.has_field(container, probe, "grpc"):
                yield f"{path}.{probe}.grpc"


def _sidecars(manifest: Json) -> Iterator[str]:
    for path, container in wire.containers(manifest, "initContainers"):
        if json_fields.optional_text(container, "restartPolicy") == "Always":
            yield f"{path}.restartPolicy"


def _image_volumes(manifest: Json) -> Iterator[str]:
    for path, volume in wire.volumes(manifest):
        if json_fields.has_field(volume, "image"):
            yield f"{path}.image"


def _recursive_mounts(manifest: Json) -> Iterator[str]:
    for path, container in wire.containers(manifest):
        for index, mount in enumerate(json_fields.objects(container, "volumeMounts")):
            if json_fields.has_field(mount, "recursiveReadOnly"):
                yield f"{path}.volumeMounts[{index}].recursiveReadOnly"


def _spec_field(name: str) -> Callable[[Json], Iterator[str]]:
    def find(manifest: Json) -> Iterator[str]:
        if json_fields.has_field(manifest, "spec", name):
            yield f"spec.{name}"

    return find


FEATURES = (
    Feature(field="grpc probes", since=(1, 24), find=_grpc_probes),
    Feature(field="restartable init containers", since=(1, 29), find=_sidecars),
    Feature(field="recursiveReadOnly", since=(1, 31), find=_recursive_mounts),
    Feature(field="image volumes", since=(1, 35), find=_image_volumes),
    Feature(field="hostUsers", since=(1, 33), find=_spec_field("hostUsers")),
    Feature(field="pod-level resources", since=(1, 34), find=_spec_field("resources")),
    Feature(field="os", since=(1, 24), find=_spec_field("os")),
)

# staging/src/k8s.io/api/core/v1/types.go, 1.36. What newer versions add is only warned of.
_TOP = frozenset({"apiVersion", "kind", "metadata", "spec"})
_SPEC = wire.words(
    """
    activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy
    enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers
    hostname hostnameOverride imagePullSecrets initContainers nodeName nodeSelector os
    overhead preemptionPolicy priority priorityClassName readinessGates resourceClaims
    resources restartPolicy runtimeClassName schedulerName schedulingGates schedulingGroup
    securityContext serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace
    subdomain terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes
    workloadRef
    """
)
_CONTAINER = wire.words(
    """
    args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports
    readinessProbe resizePolicy resources restartPolicy restartPolicyRules securityContext
    startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty
    volumeDevices volumeMounts workingDir
    """
)
_MOUNT = wire.words(
    """
    mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr
    """
)
_PROBE = wire.words(
    """
    exec failureThreshold grpc httpGet initialDelaySeconds periodSeconds successThreshold
    tcpSocket terminationGracePeriodSeconds timeoutSeconds
    """
)


def _levels(manifest: Json) -> Iterator[tuple[str, Json, frozenset[str]]]:
    yield "", manifest, _TOP
    yield "spec.", json_fields.mapping(manifest, "spec"), _SPEC
    for path, container in wire.containers(manifest):
        yield f"{path}.", container, _CONTAINER
        for index, mount in enumerate(json_fields.objects(container, "volumeMounts")):
            yield f"{path}.volumeMounts[{index}].", mount, _MOUNT
        for probe in ports.PROBES:
            yield f"{path}.{probe}.", json_fields.mapping(container, probe), _PROBE
