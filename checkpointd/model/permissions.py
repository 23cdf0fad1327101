"""List what the daemon asks of the API server and of the kubelet, and what it costs not to have it.

The one source of that: ``doctor`` asks for each, the sources name it where it is denied, and the
shipped roles are written from it. Most is what Kubernetes grants to every node
(plugin/pkg/auth/authorizer/node, bootstrappolicy.NodeRules); the rest is in small roles, each
optional. ``nodes/proxy`` is in none: who holds it can run programs in every pod of a node.
"""

from __future__ import annotations

from dataclasses import dataclass

from checkpointd.json_fields import Json

SHIPPED = "/usr/share/checkpointd/rbac"
"""Where `make install` puts the roles that all nodes share."""
THIS_NODE = "{node}"
"""Stands for the node's name in ``name``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """Name a shipped ClusterRole. ``per_node`` ones are made for one node: ``doctor --rbac``.

    ``since`` is from which version on it is of any use, "" for all.
    """

    name: str
    summary: str
    per_node: bool = False
    since: str = ""
    notes: str = ""

    def name_for(self, node: str) -> str:
        """Return the name of the role, and of its binding, of one node."""
        return f"{self.name}-{node}" if self.per_node else self.name


OWNERS = Role(name="checkpointd-owners", summary="read DaemonSets, of whose pods there are copies")
KUBELET = Role(
    name="checkpointd-kubelet",
    summary="ask this node's own kubelet on port 10250 which pods it has and which run",
    per_node=True,
    since=" (kubelet 1.33 or newer)",
    notes="Kubelets before 1.33 ask for nodes/proxy instead, which must not be granted for this: "
    "who holds it runs programs in every pod of the node. There the pod-resources socket serves.",
)
ROLES = (OWNERS, KUBELET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Name one thing that the daemon may or may not do, as the API server's authorizers do.

    ``namespace`` and ``name`` are "" for all. ``of_node`` is for what only pods of this node are
    asked for (a field selector). ``role`` grants it; None: every node has it. Without a ``needed``
    one the daemon does nothing at all.
    """

    verb: str
    resource: str
    costs: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    of_node: bool = False
    role: Role | None = None
    needed: bool = False

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {resource}.{self.group}" if self.group else f"{self.verb} {resource}"

    def attributes(self, node: str) -> Json:
        """Return the resourceAttributes of an access review for this node.

        authorization.k8s.io/v1. Servers since 1.32 let a node list pods only with the selector
        (AuthorizeNodeWithSelectors); older ones drop the field.
        """
        given = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name.replace(THIS_NODE, node),
        }
        attributes: dict[str, object] = {key: value for key, value in given.items() if value}
        if self.of_node:
            wanted = {"key": "spec.nodeName", "operator": "In", "values": [node]}
            attributes["fieldSelector"] = {"requirements": [wanted]}
        return attributes

    def explain_denial(self) -> str:
        """Say what is missing, what that costs and what grants it."""
        return f'no permission "{self}": {self.costs} ({self.remedy})'

    @property
    def remedy(self) -> str:
        """Say what grants it."""
        if self.role is None:
            return "every node has it by itself: is this the node's own kubeconfig?"
        if self.role.per_node:
            return (
                f"the role {self.role.name} grants it{self.role.since}: checkpointd doctor --rbac"
            )
        return f"the role {self.role.name} grants it: {SHIPPED}/{self.role.name}.yaml"


GET_NODE = Permission(
    verb="get",
    resource="nodes",
    name=THIS_NODE,
    needed=True,
    costs="no API server is trusted; nothing is stored, and copies start as if none answered",
)
LIST_PODS = Permission(
    verb="list",
    resource="pods",
    of_node=True,
    needed=True,
    costs="it is not known which pods are wanted here: nothing is stored, no copy is handed back",
)
WATCH_PODS = Permission(
    verb="watch",
    resource="pods",
    of_node=True,
    needed=True,
    costs="it is not seen which pods come and go: nothing is stored, no copy is handed back",
)
GET_SERVICE = Permission(
    verb="get",
    resource="services",
    namespace="default",
    name="kubernetes",
    costs="another cluster's API server is told from ours by its Node alone, and copies lack "
    "KUBERNETES_SERVICE_HOST",
)
GET_LEASE = Permission(
    verb="get",
    resource="leases",
    group="coordination.k8s.io",
    namespace="kube-node-lease",
    name=THIS_NODE,
    costs="it is not seen that the kubelet is cut off from the API server: nothing starts then "
    "(rule 3c), and where the kubelet gives no list an exclusive copy is not handed back",
)
GET_DAEMON_SET = Permission(
    verb="get",
    resource="daemonsets",
    group="apps",
    role=OWNERS,
    costs="the copy of a DaemonSet's pod is not stopped when its DaemonSet is deleted or no longer "
    "wants this node: it stays, with an alarm",
)
GET_KUBELET_PODS = Permission(
    verb="get",
    resource="nodes",
    subresource="pods",
    name=THIS_NODE,
    role=KUBELET,
    costs="the kubelet's list comes from its pod-resources socket alone, and its cache is no "
    "witness where runtime and kernel do not know what runs",
)
ALL = (
    GET_NODE,
    LIST_PODS,
    WATCH_PODS,
    GET_SERVICE,
    GET_LEASE,
    GET_DAEMON_SET,
    GET_KUBELET_PODS,
)


def of_role(role: Role) -> tuple[Permission, ...]:
    """Return what a shipped role grants."""
    return tuple(permission for permission in ALL if permission.role is role)
