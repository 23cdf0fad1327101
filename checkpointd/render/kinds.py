"""Judge whether a copy may run beside its parent: shareable, exclusive or blocking (section 6)."""

from __future__ import annotations

from collections.abc import Iterator

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model import pods
from checkpointd.model.files import CopyKind, Refusal
from checkpointd.render import identity, ports, wire

_HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")
_PRIVATE_PATHS = ("/run", "/var/run", "/dev", "/sys", "/var/log")
"""What lies there belongs to this boot or only grows: two writers do no lasting harm. /var/run is
the old name of /run (FHS 3.0)."""
_NETWORK_VOLUMES = ("nfs", "iscsi", "rbd", "fc", "cephfs", "flexVolume")


def judge(pod: Json) -> CopyKind:
    """Return the kind of the pod's copy. Raises FieldError."""
    if _blocking(pod):
        return CopyKind.BLOCKING
    return CopyKind.EXCLUSIVE if _is_exclusive(pod) else CopyKind.SHAREABLE


def refusals(pod: Json) -> Iterator[Refusal]:
    """Yield why parent and copy could do harm together. Raises FieldError."""
    controller = pods.controller_of(pod)
    for path, words in _blocking(pod):
        if controller is None:
            yield Refusal(
                field=path,
                reason=f"{words}: the kubelet would reject the pod beside its copy, and without a"
                " controller nobody makes a new one",
                remedy="let a DaemonSet or ReplicaSet make the pod",
            )
    if not identity.is_marked(pod, pods.TWO_WRITERS_MARK, "safe"):
        for path, words in _two_writers(pod, controller):
            yield Refusal(
                field=path,
                reason=f"{words}: parent and copy may overlap and both write",
                remedy=f'mark the pod {pods.TWO_WRITERS_MARK}: "safe" if it can bear that',
            )


def warnings(pod: Json) -> Iterator[str]:
    """Yield what a DaemonSet's pod is allowed but should know. Raises FieldError."""
    controller = pods.controller_of(pod)
    if controller is not None and controller.is_daemon_set:
        for path, words in _lasting_host_paths(pod):
            yield f"{path}: {words}: the copy never runs beside its parent"


def _blocking(pod: Json) -> tuple[tuple[str, str], ...]:
    """Return path and reason of all that the kubelet gives to one pod at a time (K-14)."""
    shares_network = ports.has_host_network(pod)
    found = [] if shares_network else list(_host_ports(pod))
    for path, container in wire.containers(pod):
        for key in ("requests", "limits"):
            for resource in json_fields.mapping(container, "resources", key):
                if _is_device(resource):
                    found.append((f"{path}.resources.{key}[{resource}]", "a device"))
    return tuple(found)


def _host_ports(pod: Json) -> Iterator[tuple[str, str]]:
    for path, container in wire.containers(pod):
        for index, port in enumerate(json_fields.objects(container, "ports")):
            if json_fields.optional_integer(port, "hostPort"):
                yield f"{path}.ports[{index}].hostPort", "a host port"


def _is_device(resource: str) -> bool:
    # A domain that is not kubernetes.io (v1/helper/helpers.go: IsExtendedResourceName).
    return "/" in resource and "kubernetes.io/" not in resource


def _is_exclusive(pod: Json) -> bool:
    shares_ports = identity.is_marked(pod, pods.PORT_SHARING_MARK)
    uses_host = any(json_fields.boolean(pod, "spec", key) for key in _HOST_NAMESPACES)
    controller = pods.controller_of(pod)
    return (
        (uses_host and not shares_ports)
        or (controller is not None and controller.kind == "StatefulSet")
        or any(_is_writable_host_path(pod, volume) for _path, volume in wire.volumes(pod))
        or any(_network_type(volume) for _path, volume in wire.volumes(pod))
    )


def _two_writers(pod: Json, controller: pods.Controller | None) -> Iterator[tuple[str, str]]:
    if controller is not None and controller.kind == "StatefulSet":
        yield "metadata.ownerReferences", "a StatefulSet's pod has an identity of its own"
    if controller is None or not controller.is_daemon_set:
        yield from _lasting_host_paths(pod)
    for path, volume in wire.volumes(pod):
        kind = _network_type(volume)
        name = json_fields.optional_text(volume, "name")
        is_read_only = kind != "" and json_fields.boolean(volume, kind, "readOnly")
        if kind and not is_read_only and wire.is_written_by(pod, name):
            yield f"{path}.{kind}", "a writable network volume"


def _lasting_host_paths(pod: Json) -> Iterator[tuple[str, str]]:
    for path, volume in wire.volumes(pod):
        if _is_writable_host_path(pod, volume):
            host_path = json_fields.optional_text(volume, "hostPath", "path")
            if not _is_private(host_path):
                yield f"{path}.hostPath", f"{host_path} is writable"


def _is_writable_host_path(pod: Json, volume: Json) -> bool:
    name = json_fields.optional_text(volume, "name")
    return json_fields.has_field(volume, "hostPath") and wire.is_written_by(pod, name)


def _is_private(host_path: str) -> bool:
    parts = [part for part in host_path.split("/") if part not in ("", ".")]
    clean = "/" + "/".join(parts)
    return ".." not in parts and any(
        clean == root or clean.startswith(f"{root}/") for root in _PRIVATE_PATHS
    )


def _network_type(volume: Json) -> str:
    return next((kind for kind in wire.volume_types(volume) if kind in _NETWORK_VOLUMES), "")
