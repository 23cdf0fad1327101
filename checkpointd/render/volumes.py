"""Turn secrets and configMaps into directories of the host, and say which volumes cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model.files import Refusal
from checkpointd.render import wire

STORED_TYPES = {"secret": "secret", "configMap": "configmap"}
"""Volume source -> the kubelet's directory ``kubernetes.io~<plugin>`` (K-19)."""

_NEEDS_API = {
    "persistentVolumeClaim": "a persistentVolumeClaim is looked up in the API server",
    "csi": "a CSI volume needs its CSIDriver from the API server",
    "ephemeral": "an ephemeral volume is a claim in the API server",
    "glusterfs": "a glusterfs volume names its Endpoints in the API server",
    "azureFile": "an azureFile volume names a Secret of the API server",
}
_ATTACHED = (
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "flocker",
    "gcePersistentDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "scaleIO",
    "storageos",
    "vsphereVolume",
)
"""In-tree drivers that need the attach controller, or that kubelets serve through CSI at best."""
_REMEDY = "use hostPath or emptyDir, or take the mark from the pod"
_AUTOMATIC_REMEDY = (
    "set automountServiceAccountToken: false and give the pod a kubeconfig in a secret"
)
_PROJECTED_REMEDY = "mount the secret or configMap as a volume of its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVolume:
    """Name a volume whose files a checkpoint keeps; ``plugin`` is the kubelet's directory name."""

    name: str
    plugin: str
    optional: bool


def place_holder(volume: str) -> str:
    """Return what stands for a volume's directory until a copy is placed."""
    return f"{{{volume}}}"


def stored_volumes(pod: Json) -> tuple[StoredVolume, ...]:
    """Return the volumes whose files are needed, in the pod's order. Raises FieldError.

    One that no container mounts is never set up by the kubelet, and is not waited for:
    pkg/kubelet/volumemanager/populator/desired_state_of_world_populator.go, processPodVolumes.
    """
    return tuple(
        StoredVolume(
            name=name,
            plugin=plugin,
            optional=json_fields.boolean(volume, source, "optional"),
        )
        for _path, volume in wire.volumes(pod)
        for source, plugin in STORED_TYPES.items()
        if json_fields.has_field(volume, source)
        and wire.is_mounted(pod, name := json_fields.text(volume, "name"))
    )


def rewrite_all(pod: Json) -> list[Json]:
    """Return the volumes of a copy, without those that nobody mounts. Raises FieldError."""
    stored = {volume.name for volume in stored_volumes(pod)}
    return [
        rewrite(volume)
        for _path, volume in wire.volumes(pod)
        if not _is_stored_type(volume) or json_fields.text(volume, "name") in stored
    ]


def rewrite(volume: Json) -> Json:
    """Return a secret or configMap volume as a hostPath; any other as it was. Raises FieldError.

    ``type: Directory`` makes a missing directory fail the mount: without it the kubelet would start
    the copy with an empty one (K-15). An image volume is pulled only where it is not there.
    """
    if _is_stored_type(volume):
        name = json_fields.text(volume, "name")
        return {"name": name, "hostPath": {"path": place_holder(name), "type": "Directory"}}
    if json_fields.has_field(volume, "image"):
        image = {**json_fields.mapping(volume, "image"), "pullPolicy": "IfNotPresent"}
        return {**volume, "image": image}
    return volume


def _is_stored_type(volume: Json) -> bool:
    return any(json_fields.has_field(volume, source) for source in STORED_TYPES)


def mount_read_only(container: Json, names: frozenset[str]) -> Json:
    """Return the container with the mounts of these volumes read-only. Raises FieldError.

    The kubelet forces that for secrets and configMaps; for a hostPath it does not.
    """
    if "volumeMounts" not in container:
        return container
    mounts = [
        # Nothing propagates from a volume of plain files; Bidirectional asks for privileges.
        {**wire.without(mount, "mountPropagation"), "readOnly": True}
        if json_fields.optional_text(mount, "name") in names
        else mount
        for mount in json_fields.objects(container, "volumeMounts")
    ]
    return {**container, "volumeMounts": mounts}


def fill(volume: Json, path: str) -> Json:
    """Return a volume of ours with its directory's path in the place-holder's place."""
    return {**volume, "hostPath": {**json_fields.mapping(volume, "hostPath"), "path": path}}


def is_place_holder(volume: Json) -> bool:
    """Tell whether a volume of a rendered manifest waits for its path. Raises FieldError."""
    name = json_fields.optional_text(volume, "name")
    return json_fields.optional_text(volume, "hostPath", "path") == place_holder(name)


def refusals(pod: Json) -> Iterator[Refusal]:
    """Yield which volumes cannot be had without the API server. Raises FieldError."""
    for path, volume in wire.volumes(pod):
        yield from _refuse_type(path, volume)
        if json_fields.has_field(volume, "hostPath"):
            yield from _refuse_relative(path, volume)
        if json_fields.has_field(volume, "projected"):
            yield from _refuse_projected(f"{path}.projected", volume)


def _refuse_type(path: str, volume: Json) -> Iterator[Refusal]:
    for kind in wire.volume_types(volume):
        if kind in _NEEDS_API:
            yield Refusal(field=f"{path}.{kind}", reason=_NEEDS_API[kind], remedy=_REMEDY)
        if kind in _ATTACHED:
            reason = "this kind is attached by a controller or served through CSI"
            yield Refusal(field=f"{path}.{kind}", reason=reason, remedy=_REMEDY)
        if kind == "gitRepo":
            reason = "kubelets since 1.33 do not serve gitRepo, and it needs the network"
            yield Refusal(field=f"{path}.{kind}", reason=reason, remedy=_REMEDY)


def _refuse_relative(path: str, volume: Json) -> Iterator[Refusal]:
    if not json_fields.text(volume, "hostPath", "path").startswith("/"):
        yield Refusal(
            field=f"{path}.hostPath.path",
            reason="a relative path depends on the kubelet's working directory",
            remedy="write an absolute path",
        )


def _refuse_projected(path: str, volume: Json) -> Iterator[Refusal]:
    for index, source in enumerate(json_fields.objects(volume, "projected", "sources")):
        for kind in wire.volume_types(source):
            if kind != "downwardAPI":
                yield _projected_refusal(f"{path}.sources[{index}].{kind}", kind, volume)


def _projected_refusal(path: str, kind: str, volume: Json) -> Refusal:
    is_token = kind == "serviceAccountToken"
    return Refusal(
        field=path,
        reason="tokens are not yet kept" if is_token else "projected volumes are not yet kept",
        remedy=_AUTOMATIC_REMEDY if is_token or _is_automatic(volume) else _PROJECTED_REMEDY,
    )


def _is_automatic(volume: Json) -> bool:
    # plugin/pkg/admission/serviceaccount/admission.go: ServiceAccountVolumeName.
    return json_fields.optional_text(volume, "name").startswith("kube-api-access-")
