"""Have the last word on every manifest: what a kubelet would refuse is refused here, with reasons.

``REFERENCES`` is our own port of HasAPIObjectReference; the kubelet applies it to each static pod
(gate PreventStaticPodAPIReferences, on since 1.34, K-7). Its order is the source's. Create-time
validation is in ``validation``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model.files import Refusal
from checkpointd.render import rules, validation, wire
from checkpointd.render.rules import Finding, Rule

ALL_CONTAINERS = (*wire.CONTAINER_LISTS, "ephemeralContainers")

ALLOWED_VOLUMES = wire.words(
    """
    awsElasticBlockStore azureDisk cephfs cinder downwardAPI emptyDir fc flexVolume flocker
    gcePersistentDisk gitRepo hostPath image iscsi nfs photonPersistentDisk portworxVolume
    quobyte rbd scaleIO storageos vsphereVolume projected
    """
)
REFUSED_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
REFUSED_SOURCES = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}
SECRET_FIELDS = {
    "cephfs": ("secretRef", "name"),
    "cinder": ("secretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "scaleIO": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "storageos": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
    "azureFile": ("secretName",),
}

_UTIL = "pkg/api/pod/util.go: "
_REFERENCE = _UTIL + "HasAPIObjectReference"
_SECRETS = _UTIL + "VisitPodSecretNames"
_CONFIG_MAPS = _UTIL + "VisitPodConfigmapNames"
_REMEDY = "a copy has files and literals instead: render the pod anew"

Find = Callable[[Json], Iterator[Finding]]


def check_manifest(manifest: Json, node_name: str) -> tuple[Refusal, ...]:
    """Return why a kubelet of this node would not take the manifest; empty where it would."""
    try:
        wire.plain(manifest)
    except FieldError as error:
        return (rules.malformed(error, "manifest"),)
    return rules.refuse_all((*REFERENCES, *validation.rules_for(node_name)), manifest)


def _text_at(*keys: str) -> Find:
    def find(pod: Json) -> Iterator[Finding]:
        if json_fields.optional_text(pod, *keys):
            yield ".".join(keys), ""

    return find


def _items_at(*keys: str) -> Find:
    def find(pod: Json) -> Iterator[Finding]:
        if json_fields.sequence(pod, *keys):
            yield ".".join(keys), ""

    return find


def _named(value: Json, *keys: str) -> bool:
    """Tell whether a reference names something: the source skips empty names."""
    return json_fields.optional_text(value, *keys) != ""


def _pull_secrets(pod: Json) -> Iterator[Finding]:
    for index, secret in enumerate(json_fields.objects(pod, "spec", "imagePullSecrets")):
        if _named(secret, "name"):
            yield f"spec.imagePullSecrets[{index}]", ""


def _env_reference(kind: str) -> Find:
    def find(pod: Json) -> Iterator[Finding]:
        for path, container in wire.containers(pod, *ALL_CONTAINERS):
            for index, variable in enumerate(json_fields.objects(container, "env")):
                if _named(variable, "valueFrom", kind, "name"):
                    yield f"{path}.env[{index}].valueFrom.{kind}", ""

    return find


def _env_from_reference(kind: str) -> Find:
    def find(pod: Json) -> Iterator[Finding]:
        for path, container in wire.containers(pod, *ALL_CONTAINERS):
            for index, source in enumerate(json_fields.objects(container, "envFrom")):
                if _named(source, kind, "name"):
                    yield f"{path}.envFrom[{index}].{kind}", ""

    return find


def _volume_secret(kind: str, keys: tuple[str, ...]) -> Find:
    def find(pod: Json) -> Iterator[Finding]:
        for path, volume in wire.volumes(pod):
            if _named(volume, kind, *keys):
                yield ".".join((path, kind, keys[0])), ""

    return find


def _volume(kind: str) -> Find:
    def find(pod: Json) -> Iterator[Finding]:
        for path, volume in wire.volumes(pod):
            if json_fields.has_field(volume, kind):
                yield f"{path}.{kind}", ""

    return find


def _projected(kind: str) -> Find:
    def find(pod: Json) -> Iterator[Finding]:
        for path, source in _sources(pod):
            if json_fields.has_field(source, kind):
                yield f"{path}.{kind}", ""

    return find


def _sources(pod: Json) -> Iterator[tuple[str, Json]]:
    for path, volume in wire.volumes(pod):
        for index, source in enumerate(json_fields.objects(volume, "projected", "sources")):
            yield f"{path}.projected.sources[{index}]", source


def _unknown_sources(pod: Json) -> Iterator[Finding]:
    for path, source in _sources(pod):
        if set(wire.volume_types(source)).isdisjoint({"downwardAPI", *REFUSED_SOURCES}):
            yield path, ""


def _unknown_volumes(pod: Json) -> Iterator[Finding]:
    # The kubelet's decoder drops an unknown type and its defaulting makes an emptyDir of the rest
    # (v1 defaults.go: SetDefaults_Volume): worse than a refusal.
    known = ALLOWED_VOLUMES | REFUSED_VOLUMES.keys()
    for path, volume in wire.volumes(pod):
        for kind in wire.volume_types(volume):
            if kind not in known:
                yield f"{path}.{kind}", ""


def _rule(name: str, source: str, resource: str, find: Find) -> Rule:
    reason = f"static pods may not reference {resource}"
    return Rule(name=name, source=source, reason=reason, remedy=_REMEDY, find=find)


REFERENCES: tuple[Rule, ...] = (
    _rule(
        "spec.serviceAccountName",
        _REFERENCE,
        "serviceaccounts",
        _text_at("spec", "serviceAccountName"),
    ),
    _rule(
        "spec.serviceAccount",
        "pkg/apis/core/v1/conversion.go: Convert_v1_PodSpec_To_core_PodSpec",
        "serviceaccounts",
        _text_at("spec", "serviceAccount"),
    ),
    _rule("spec.imagePullSecrets", _SECRETS, "secrets", _pull_secrets),
    _rule(
        "spec.containers.envFrom.secretRef",
        _SECRETS,
        "secrets",
        _env_from_reference("secretRef"),
    ),
    _rule(
        "spec.containers.env.valueFrom.secretKeyRef",
        _SECRETS,
        "secrets",
        _env_reference("secretKeyRef"),
    ),
    *(
        _rule(
            ".".join(("spec.volumes", kind, keys[0])),
            _SECRETS,
            "secrets",
            _volume_secret(kind, keys),
        )
        for kind, keys in SECRET_FIELDS.items()
    ),
    _rule(
        "spec.containers.envFrom.configMapRef",
        _CONFIG_MAPS,
        "configmaps",
        _env_from_reference("configMapRef"),
    ),
    _rule(
        "spec.containers.env.valueFrom.configMapKeyRef",
        _CONFIG_MAPS,
        "configmaps",
        _env_reference("configMapKeyRef"),
    ),
    _rule("spec.resourceClaims", _REFERENCE, "resourceclaims", _items_at("spec", "resourceClaims")),
    *(
        _rule(f"spec.volumes.{kind}", _REFERENCE, resource, _volume(kind))
        for kind, resource in REFUSED_VOLUMES.items()
    ),
    *(
        _rule(f"spec.volumes.projected.sources.{kind}", _REFERENCE, resource, _projected(kind))
        for kind, resource in REFUSED_SOURCES.items()
    ),
    Rule(
        name="spec.volumes.projected.sources",
        source=_REFERENCE,
        reason="unknown source of a projected volume",
        remedy="use one that Kubernetes has",
        find=_unknown_sources,
    ),
    Rule(
        name="spec.volumes",
        source=_REFERENCE,
        reason="unknown type of volume",
        remedy="use one that Kubernetes has",
        find=_unknown_volumes,
    ),
)
