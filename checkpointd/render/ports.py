"""Free a copy of host-network ports, and first turn their names in probes into numbers.

The kubelet admits no second pod with the same host port (K-14), and writing ``ports`` with host
network brings ``hostPort`` back (pkg/apis/core/v1/defaults.go: defaultHostNetworkPorts).
"""

from __future__ import annotations

from collections.abc import Iterator

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model.files import Refusal
from checkpointd.render import wire

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS = ("postStart", "preStop")
_HANDLERS = ("httpGet", "tcpSocket")


def has_host_network(pod: Json) -> bool:
    """Tell whether the pod uses the host's network. Raises FieldError."""
    return json_fields.boolean(pod, "spec", "hostNetwork")


def rewrite(container: Json) -> Json:
    """Return a host-network container without ports, its probes with numbers. Raises FieldError.

    A name that no port of the container has stays: it is refused by ``refusals``.
    """
    changed = {key: _numbered(container, key) for key in PROBES if key in container}
    if json_fields.has_field(container, "lifecycle"):
        lifecycle = json_fields.mapping(container, "lifecycle")
        hooks = {key: _numbered(container, "lifecycle", key) for key in HOOKS if key in lifecycle}
        changed["lifecycle"] = {**lifecycle, **hooks}
    return {**wire.without(container, "ports"), **changed}


def refusals(pod: Json) -> Iterator[Refusal]:
    """Yield the names that no port of a host-network container has. Raises FieldError."""
    if not has_host_network(pod):
        return
    for path, container in wire.containers(pod):
        for keys in handler_paths():
            if _unresolved(container, keys):
                yield Refusal(
                    field=f"{path}.{'.'.join(keys)}.port",
                    reason="no port of the container has this name",
                    remedy="write the port's number, or name the port",
                )


def handler_paths() -> Iterator[tuple[str, ...]]:
    """Yield where a container has handlers with a port that may be a name."""
    for handler in _HANDLERS:
        yield from ((probe, handler) for probe in PROBES)
        yield from (("lifecycle", hook, handler) for hook in HOOKS)


def _unresolved(container: Json, keys: tuple[str, ...]) -> bool:
    if not json_fields.has_field(container, *keys):
        return False
    port = json_fields.mapping(container, *keys).get("port")
    return isinstance(port, str) and _number(container, port) is None


def _numbered(container: Json, *keys: str) -> object:
    """Return the probe or hook at ``keys`` with its handlers' named ports as numbers."""
    if not json_fields.has_field(container, *keys):
        return None
    action = json_fields.mapping(container, *keys)
    handlers = {
        handler: _with_number(container, json_fields.mapping(action, handler))
        for handler in _HANDLERS
        if json_fields.has_field(action, handler)
    }
    return {**action, **handlers}


def _with_number(container: Json, handler: Json) -> Json:
    port = handler.get("port")
    number = _number(container, port) if isinstance(port, str) else None
    return handler if number is None else {**handler, "port": number}


def _number(container: Json, name: str) -> int | None:
    """Resolve as the kubelet does: by name, else as digits (pkg/probe/util.go)."""
    for port in json_fields.objects(container, "ports"):
        if json_fields.optional_text(port, "name") == name:
            return json_fields.integer(port, "containerPort")
    return int(name) if name.isascii() and name.isdigit() and len(name) <= 5 else None
