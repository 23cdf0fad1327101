"""Answer the two questions that a client asks of itself: what may I, and who am I.

The answers follow from ``granted`` as the requests themselves do (``api_requests``).
"""

from __future__ import annotations

from tests.fakes.api_objects import Object

ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
IDENTITY = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NODE_USER = "system:node:"


def is_granted(user: str, granted: set[str], resource: str, name: str) -> bool:
    """Tell what the Node authorizer and RBAC say; ``resource`` may be "nodes/pods"."""
    if not user.startswith(NODE_USER):
        return True
    foreign = resource.partition("/")[0] in ("nodes", "leases") and name not in (
        "",
        user.removeprefix(NODE_USER),
    )
    return resource in granted and not foreign


def answer(path: str, user: str, granted: set[str], body: Object) -> Object | None:
    """Return the review with its status, None for another path."""
    if path == IDENTITY:
        return {**body, "status": {"userInfo": {"username": user}}}
    if path != ACCESS:
        return None
    asked = body["spec"]["resourceAttributes"]
    resource = "/".join(filter(None, (asked["resource"], asked.get("subresource", ""))))
    allowed = is_granted(user, granted, resource, asked.get("name", ""))
    if resource == "pods" and user.startswith(NODE_USER):
        # AuthorizeNodeWithSelectors: a node may list its own pods alone.
        wanted = {"key": "spec.nodeName", "operator": "In"}
        (selector,) = asked.get("fieldSelector", {}).get("requirements", [{}])
        own = [user.removeprefix(NODE_USER)]
        allowed = allowed and selector == {**wanted, "values": own}
    return {**body, "status": {"allowed": allowed}}
