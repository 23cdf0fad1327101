"""Say what a path of the API names, and word refusals as a real API server does.

Seen of 1.20.2; k8s.io/apimachinery/pkg/api/errors/errors.go, and for 403
k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.fakes.api_objects import KINDS, Object

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_GROUPS = frozenset(api_version for api_version, _kind in KINDS.values())


@dataclass(frozen=True, slots=True)
class Target:
    """Say which resource a path names; ``group_version`` is "v1" or "<group>/<version>"."""

    group_version: str
    resource: str
    namespace: str
    name: str
    subresource: str

    @property
    def group(self) -> str:
        """Return the API group, "" for the core."""
        return self.group_version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """Return the resource as messages name it: daemonsets.apps."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def is_served(self) -> bool:
        """Tell whether this API server has the resource."""
        return KINDS.get(self.resource, ("", ""))[0] == self.group_version

    @property
    def is_of_known_group(self) -> bool:
        """Tell whether it has others of the group."""
        return self.group_version in _GROUPS


class StatusError(Exception):
    """Carry a failure to the client as a Status; ``details`` None leaves them out."""

    def __init__(self, code: int, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details

    def body(self) -> Object:
        """Return the Status."""
        details = {} if self.details is None else {"details": self.details}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": REASONS[self.code],
            **details,
            "code": self.code,
        }


def parse_path(path: str) -> Target | None:
    """Return what a path names, None for one that is no resource's."""
    parts = [part for part in path.split("/") if part]
    if parts[:2] == ["api", "v1"]:
        group_version, rest = "v1", parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 4:
        group_version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        return None
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) >= 3:
        namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        return None
    resource, name, subresource = (*rest, "", "")[:3]
    return Target(group_version, resource, namespace, name, subresource)


def not_found(target: Target) -> StatusError:
    """Say that there is no such object."""
    message = f'{target.qualified} "{target.name}" not found'
    return StatusError(404, message, _details(target))


def not_served(target: Target) -> StatusError:
    """Say that a known group has no such resource."""
    assert not target.is_served
    return StatusError(404, "the server could not find the requested resource", {})


def bad_continue(token: str) -> StatusError:
    """Refuse the token of a list's next page: one of ours is too old, any other is none."""
    if not re.fullmatch("[0-9a-f]{32}", token):
        return StatusError(400, "invalid continue token: continue key is not valid")
    return StatusError(
        410,
        "The provided continue parameter is too old to display a consistent list result. You can"
        " start a new list without the continue parameter, or use the continue token in this"
        " response to retrieve the remainder of the results.",
    )


def forbidden(user: str, command: str, target: Target) -> StatusError:
    """Say who may not do what."""
    verb = _VERBS.get(command, "get" if target.name else "list")
    named = f'{target.qualified} "{target.name}"' if target.name else target.qualified
    namespace = target.name if target.resource == "namespaces" else target.namespace
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    resource = "/".join(filter(None, (target.resource, target.subresource)))
    message = (
        f'{named} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group '
        f'"{target.group}" {scope}'
    )
    return StatusError(403, message, _details(target))


def _details(target: Target) -> Object:
    named = {"name": target.name, "group": target.group, "kind": target.resource}
    return {key: value for key, value in named.items() if value}
