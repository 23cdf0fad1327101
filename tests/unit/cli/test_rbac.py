"""The shipped roles: as the table says, no more, and never for all kubelets."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from checkpointd import json_fields
from checkpointd.cli import rbac
from checkpointd.clients import yaml_text
from checkpointd.json_fields import Json
from checkpointd.model import permissions
from checkpointd.model.permissions import KUBELET, Permission, Role

ROOT = Path(__file__).resolve().parents[3]
SHARED = [role for role in permissions.ROLES if not role.per_node]


def objects(text: str) -> list[Json]:
    """Return the objects of a YAML text."""
    return [cast("Json", one.value) for one in yaml_text.parse_all(text.encode(), "roles")]


def granted(role: Json) -> set[tuple[str, str, str, str]]:
    """Return (group, resource, verb, name) of all that a ClusterRole grants."""
    found: set[tuple[str, str, str, str]] = set()
    for rule in json_fields.objects(role, "rules"):
        lists = [
            [json_fields.as_text(one, key) for one in json_fields.sequence(rule, key)] or [""]
            for key in ("apiGroups", "resources", "verbs", "resourceNames")
        ]
        groups, resources, verbs, names = lists
        found |= {(g, r, v, n) for g in groups for r in resources for v in verbs for n in names}
    return found


def wanted(permission: Permission, node: str) -> tuple[str, str, str, str]:
    attributes = permission.attributes(node)
    resource = json_fields.text(attributes, "resource")
    part = json_fields.optional_text(attributes, "subresource")
    return (
        json_fields.optional_text(attributes, "group"),
        f"{resource}/{part}" if part else resource,
        json_fields.text(attributes, "verb"),
        json_fields.optional_text(attributes, "name"),
    )


@pytest.mark.parametrize("role", SHARED, ids=lambda role: role.name)
def test_each_shipped_file_is_the_one_that_the_table_makes(role: Role) -> None:
    file = ROOT / "packaging/rbac" / f"{role.name}.yaml"
    assert file.read_text(encoding="utf-8") == rbac.shipped(role), "make rbac"
    assert permissions.SHIPPED + f"/{file.name}" in permissions.of_role(role)[0].remedy


def test_no_other_file_is_shipped() -> None:
    names = {path.name for path in (ROOT / "packaging/rbac").iterdir()}
    assert names == {f"{role.name}.yaml" for role in SHARED}


@pytest.mark.parametrize("role", SHARED, ids=lambda role: role.name)
def test_a_shared_role_grants_what_the_daemon_uses_to_all_nodes(role: Role) -> None:
    made, binding = objects(rbac.shipped(role))
    assert granted(made) == {wanted(one, "n") for one in permissions.of_role(role)}
    assert json_fields.text(binding, "roleRef", "name") == role.name
    (subject,) = json_fields.objects(binding, "subjects")
    assert (subject["kind"], subject["name"]) == ("Group", "system:nodes")


def test_a11_the_kubelets_pods_are_granted_for_one_node_to_one_user() -> None:
    made, binding = objects(rbac.for_node("node-1", "system:node:node-1"))
    assert granted(made) == {("", "nodes/pods", "get", "node-1")}
    assert made["metadata"] == binding["metadata"] == {"name": "checkpointd-kubelet-node-1"}
    assert json_fields.text(binding, "roleRef", "name") == KUBELET.name_for("node-1")
    assert binding["subjects"] == [
        {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "User",
            "name": "system:node:node-1",
        }
    ]


def test_a11_nothing_of_nodes_is_for_all_nodes_and_no_proxy_is_for_anybody() -> None:
    for permission in permissions.ALL:
        assert "proxy" not in (permission.resource, permission.subresource)
        if permission.resource == "nodes" and permission.role is not None:
            assert permission.role.per_node
            assert permission.name == permissions.THIS_NODE
    text = "".join(rbac.shipped(role) for role in SHARED) + rbac.for_node("n", "u")
    rules = [one for made in objects(text) for one in granted(made)]
    assert not [one for one in rules if "proxy" in one[1] or "*" in one]


def test_a_user_is_quoted() -> None:
    (_role, binding) = objects(rbac.for_node("n", 'a"b\\: #'))
    (subject,) = json_fields.objects(binding, "subjects")
    assert subject["name"] == 'a"b\\: #'


def test_every_permission_says_what_it_costs_and_what_grants_it() -> None:
    for permission in permissions.ALL:
        assert permission.costs
        assert permission.remedy
        assert permission.costs in permission.explain_denial()
        assert permission.role is None or permission.role in permissions.ROLES
        assert not (permission.needed and permission.role)


def test_a_node_asks_for_its_own_pods_alone() -> None:
    assert permissions.LIST_PODS.attributes("n1") == {
        "verb": "list",
        "resource": "pods",
        "fieldSelector": {
            "requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]
        },
    }
