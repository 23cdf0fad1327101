"""Repeat the kubelet's validation of volumes and containers, field by field.

Sources are named as in ``validation``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model import naming
from checkpointd.render import identity, ports, wire
from checkpointd.render.rules import Finding, Rule

Find = Callable[[Json], Iterator[Finding]]

HOST_PATH_TYPES = (
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
)
ENV_FIELD_PATHS = wire.words(
    """
    metadata.name metadata.namespace metadata.uid spec.nodeName spec.serviceAccountName
    status.hostIP status.hostIPs status.podIP status.podIPs
    """
)

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_ENV_NAME = re.compile(r"[\x20-\x3c\x3e-\x7e]+")
_PORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBSCRIPT = re.compile(r"metadata\.(?:labels|annotations)\['.*'\]", re.DOTALL)


def is_qualified_name(text: str) -> bool:
    """Tell whether ``text`` can be the key of a label (apimachinery: IsQualifiedName)."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or identity.is_subdomain(prefix)) and _is_short_name(name)


def is_label_value(text: str) -> bool:
    """Tell whether ``text`` can be the value of a label (apimachinery: IsValidLabelValue)."""
    return text == "" or _is_short_name(text)


def _is_short_name(text: str) -> bool:
    return len(text) <= 63 and _NAME.fullmatch(text) is not None


# ---- volumes -------------------------------------------------------------------------------------
def _volume_names(pod: Json) -> Iterator[Finding]:
    seen: set[str] = set()
    for path, volume in wire.volumes(pod):
        name = json_fields.text(volume, "name")
        if not naming.is_label(name):
            yield f"{path}.name", "not a DNS label"
        if name in seen:
            yield f"{path}.name", f"{name[:80]} is there twice"
        seen.add(name)


def _volume_types(pod: Json) -> Iterator[Finding]:
    for path, volume in wire.volumes(pod):
        kinds = wire.volume_types(volume)
        if len(kinds) > 1:
            yield path, ", ".join(kinds)


def _host_paths(pod: Json) -> Iterator[Finding]:
    for path, volume in wire.volumes(pod):
        if json_fields.has_field(volume, "hostPath"):
            host_path = json_fields.text(volume, "hostPath", "path")
            if not host_path.startswith("/") or ".." in host_path.split("/"):
                yield f"{path}.hostPath.path", "must be absolute and without '..'"
            if json_fields.optional_text(volume, "hostPath", "type") not in HOST_PATH_TYPES:
                yield f"{path}.hostPath.type", "unknown type"


def _mounts(pod: Json) -> Iterator[Finding]:
    volumes = {json_fields.text(volume, "name") for _path, volume in wire.volumes(pod)}
    for path, container in wire.containers(pod):
        mounts = json_fields.objects(container, "volumeMounts")
        paths = Counter(json_fields.optional_text(mount, "mountPath") for mount in mounts)
        for index, mount in enumerate(mounts):
            at = f"{path}.volumeMounts[{index}]"
            if json_fields.text(mount, "name") not in volumes:
                yield f"{at}.name", "no such volume"
            yield from _mount_paths(at, mount, paths)


def _mount_paths(at: str, mount: Json, paths: Counter[str]) -> Iterator[Finding]:
    mount_path = json_fields.optional_text(mount, "mountPath")
    if not mount_path:
        yield f"{at}.mountPath", "missing"
    elif paths[mount_path] > 1:
        yield f"{at}.mountPath", "must be unique in the container"
    for key in ("subPath", "subPathExpr"):
        sub_path = json_fields.optional_text(mount, key)
        if sub_path.startswith("/") or ".." in sub_path.split("/"):
            yield f"{at}.{key}", "must be relative and without '..'"
    if json_fields.optional_text(mount, "subPath") and json_fields.optional_text(
        mount, "subPathExpr"
    ):
        yield f"{at}.subPathExpr", "not together with subPath"


def _recursive_mounts(pod: Json) -> Iterator[Finding]:
    for path, container in wire.containers(pod):
        for index, mount in enumerate(json_fields.objects(container, "volumeMounts")):
            wanted = json_fields.optional_text(mount, "recursiveReadOnly")
            propagation = json_fields.optional_text(mount, "mountPropagation")
            if wanted in ("IfPossible", "Enabled") and (
                not json_fields.boolean(mount, "readOnly") or propagation not in ("", "None")
            ):
                yield f"{path}.volumeMounts[{index}].recursiveReadOnly", ""


def _devices(pod: Json) -> Iterator[Finding]:
    for path, container in wire.containers(pod):
        if json_fields.sequence(container, "volumeDevices"):
            yield f"{path}.volumeDevices", ""


# ---- containers ----------------------------------------------------------------------------------
def _containers(pod: Json) -> Iterator[Finding]:
    if not json_fields.objects(pod, "spec", "containers"):
        yield "spec.containers", "at least one is needed"
    seen: set[str] = set()
    for path, container in wire.containers(pod, "containers", "initContainers"):
        name = json_fields.text(container, "name")
        if not naming.is_label(name):
            yield f"{path}.name", "not a DNS label"
        if name in seen:
            yield f"{path}.name", f"{name[:80]} is there twice"
        seen.add(name)


def _images(pod: Json) -> Iterator[Finding]:
    for path, container in wire.containers(pod):
        image = json_fields.optional_text(container, "image")
        if not image or image != image.strip():
            yield f"{path}.image", "missing, or with white space around it"
        policy = json_fields.optional_text(container, "imagePullPolicy")
        if policy not in ("IfNotPresent", "Never"):
            yield f"{path}.imagePullPolicy", "the registry would be needed at each start"


def _environment(pod: Json) -> Iterator[Finding]:
    for path, container in wire.containers(pod):
        for index, variable in enumerate(json_fields.objects(container, "env")):
            at = f"{path}.env[{index}]"
            if not _ENV_NAME.fullmatch(json_fields.text(variable, "name")):
                yield f"{at}.name", "not printable ASCII without '='"
            json_fields.optional_text(variable, "value")
            if json_fields.has_field(variable, "valueFrom"):
                yield from _value_from(at, variable)


def _value_from(at: str, variable: Json) -> Iterator[Finding]:
    value_from = json_fields.mapping(variable, "valueFrom")
    kinds = [key for key, value in value_from.items() if value is not None]
    if len(kinds) != 1 or json_fields.optional_text(variable, "value"):
        yield f"{at}.valueFrom", "exactly one source, and no value beside it"
    if json_fields.has_field(value_from, "fieldRef"):
        field_path = json_fields.text(value_from, "fieldRef", "fieldPath")
        if field_path not in ENV_FIELD_PATHS and not _SUBSCRIPT.fullmatch(field_path):
            yield f"{at}.valueFrom.fieldRef.fieldPath", "not supported"


def _ports(pod: Json) -> Iterator[Finding]:
    for path, container in wire.containers(pod):
        names: Counter[str] = Counter()
        for index, port in enumerate(json_fields.objects(container, "ports")):
            at = f"{path}.ports[{index}]"
            name = json_fields.optional_text(port, "name")
            names[name] += 1
            if name and (not _is_port_name(name) or names[name] > 1):
                yield f"{at}.name", "no port name, or there twice"
            if not 0 < json_fields.integer(port, "containerPort") < 65536:
                yield f"{at}.containerPort", "not from 1 to 65535"
            if not 0 <= (json_fields.optional_integer(port, "hostPort") or 0) < 65536:
                yield f"{at}.hostPort", "not from 1 to 65535"


def _host_ports(pod: Json) -> Iterator[Finding]:
    seen: set[tuple[str, str, int]] = set()
    for path, container in wire.containers(pod, "containers"):
        for index, port in enumerate(json_fields.objects(container, "ports")):
            number = json_fields.optional_integer(port, "hostPort") or 0
            protocol = json_fields.optional_text(port, "protocol") or "TCP"
            key = (protocol, json_fields.optional_text(port, "hostIP"), number)
            if number and key in seen:
                yield f"{path}.ports[{index}].hostPort", str(number)
            seen.add(key)


def _handlers(pod: Json) -> Iterator[Finding]:
    for path, container in wire.containers(pod):
        for keys in ports.handler_paths():
            if json_fields.has_field(container, *keys):
                port = json_fields.mapping(container, *keys).get("port")
                if not _is_probe_port(port):
                    yield f"{path}.{'.'.join(keys)}.port", ""


def _is_probe_port(port: object) -> bool:
    if isinstance(port, str):
        return _is_port_name(port)
    return isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536


def _is_port_name(name: str) -> bool:
    """Tell whether ``name`` is an IANA service name (apimachinery: IsValidPortName)."""
    return (
        len(name) <= 15
        and _PORT_NAME.fullmatch(name) is not None
        and "--" not in name
        and any(letter.isalpha() for letter in name)
    )


def _rule(name: str, source: str, reason: str, find: Find) -> Rule:
    remedy = "correct the field"
    return Rule(name=name, source=source, reason=reason, remedy=remedy, find=find)


RULES: tuple[Rule, ...] = (
    _rule("spec.volumes.name", "V: ValidateVolumes", "malformed", _volume_names),
    _rule("spec.volumes.*", "V: validateVolumeSource", "more than one type", _volume_types),
    _rule("spec.volumes.hostPath", "V: validateHostPathVolumeSource", "malformed", _host_paths),
    _rule("spec.containers.volumeMounts", "V: ValidateVolumeMounts", "malformed", _mounts),
    _rule(
        "spec.containers.volumeMounts.recursiveReadOnly",
        "V: validateMountRecursiveReadOnly",
        "needs readOnly: true and no propagation",
        _recursive_mounts,
    ),
    _rule(
        "spec.containers.volumeDevices",
        "V: ValidateVolumeDevices",
        "devices are claims in the API server",
        _devices,
    ),
    _rule("spec.containers", "V: validateContainers", "malformed", _containers),
    _rule(
        "spec.containers.image",
        "V: validateContainerCommon; pkg/kubelet/images/image_manager.go: imagePullPrecheck",
        "not startable offline",
        _images,
    ),
    _rule("spec.containers.env", "V: ValidateEnv", "malformed", _environment),
    _rule("spec.containers.ports.containerPort", "V: validateContainerPorts", "malformed", _ports),
    _rule("spec.containers.ports.hostPort", "V: checkHostPortConflicts", "twice", _host_ports),
    _rule("spec.containers.livenessProbe.port", "V: ValidatePortNumOrName", "no port", _handlers),
)
