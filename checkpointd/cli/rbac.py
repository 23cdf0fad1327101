"""Write the RBAC objects of the shipped roles, from the one table of permissions.

YAML by hand, since its comments are half of what it says. Names are checked before they come here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from checkpointd.model import permissions
from checkpointd.model.permissions import THIS_NODE, Permission, Role

NODES = "system:nodes"
"""The group of all nodes (kubelet TLS bootstrapping)."""
_HEAD = "# Made by `make rbac` from checkpointd/model/permissions.py.\n"


def shipped(role: Role) -> str:
    """Return the file of a role that all nodes share."""
    assert not role.per_node, role
    return _HEAD + "".join(
        (
            _comment(role),
            "# Optional, once per cluster: kubectl apply -f on this file.\n",
            _role(role, ""),
            "---\n",
            _binding(role, "", "Group", NODES),
        )
    )


def for_node(node: str, user: str) -> str:
    """Return the objects of the roles that are made for one node alone.

    ``user`` is whom the API server takes the node's credentials for. Never the group of all nodes:
    one stolen node certificate would reach every kubelet.
    """
    objects: list[str] = []
    for role in permissions.ROLES:
        if role.per_node:
            head = f"{_comment(role)}# For node {node} alone. Optional.\n"
            objects.append(f"{head}{_role(role, node)}---\n{_binding(role, node, 'User', user)}")
    return "---\n".join(objects)


def write_shipped(directory: str) -> None:
    """Write the file of each shared role: `make rbac`."""
    for role in permissions.ROLES:
        if not role.per_node:
            (Path(directory) / f"{role.name}.yaml").write_text(shipped(role), encoding="utf-8")


def _comment(role: Role) -> str:
    lines = [f"# {role.name}: {role.summary}."]
    for permission in permissions.of_role(role):
        lines += _wrap(f"Without {permission}: {permission.costs}.")
    lines += _wrap(role.notes) if role.notes else ()
    return "\n".join(lines) + "\n"


def _wrap(text: str) -> Iterator[str]:
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > 100:
            yield line
            line = "#"
        line += f" {word}"
    yield line


def _role(role: Role, node: str) -> str:
    rules = "".join(_rule(permission, node) for permission in permissions.of_role(role))
    return (
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: ClusterRole\n"
        f"metadata:\n  name: {_quote(role.name_for(node))}\n"
        f"rules:\n{rules}"
    )


def _rule(permission: Permission, node: str) -> str:
    resource = permission.resource
    if permission.subresource:
        resource += f"/{permission.subresource}"
    rule = (
        f"  - apiGroups: [{_quote(permission.group)}]\n"
        f"    resources: [{_quote(resource)}]\n"
        f"    verbs: [{_quote(permission.verb)}]\n"
    )
    if permission.name:
        name = permission.name.replace(THIS_NODE, node)
        rule += f"    resourceNames: [{_quote(name)}]\n"
    return rule


def _binding(role: Role, node: str, kind: str, subject: str) -> str:
    name = _quote(role.name_for(node))
    return (
        "apiVersion: rbac.authorization.k8s.io/v1\n"
        "kind: ClusterRoleBinding\n"
        f"metadata:\n  name: {name}\n"
        "roleRef:\n"
        "  apiGroup: rbac.authorization.k8s.io\n"
        "  kind: ClusterRole\n"
        f"  name: {name}\n"
        "subjects:\n"
        "  - apiGroup: rbac.authorization.k8s.io\n"
        f"    kind: {kind}\n"
        f"    name: {_quote(subject)}\n"
    )


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
