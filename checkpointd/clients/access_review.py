"""Ask the API server what it lets us do (SelfSubjectAccessReview) and for whom it takes us."""

from __future__ import annotations

from checkpointd import json_fields
from checkpointd.clients.kube import KubeClient
from checkpointd.errors import FieldError, RejectedError
from checkpointd.json_fields import Json
from checkpointd.model.permissions import Permission

ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
IDENTITY = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
"""Served since 1.28."""


def is_allowed(client: KubeClient, permission: Permission, node: str) -> bool:
    """Ask whether we have a permission. Raises SourceError where that cannot be told."""
    spec = {"resourceAttributes": permission.attributes(node)}
    asked = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": spec,
    }
    answer = client.post(ACCESS, asked)
    try:
        status = json_fields.mapping(answer, "status")
        allowed = json_fields.boolean(status, "allowed")
        denied = json_fields.boolean(status, "denied")
        problem = json_fields.optional_text(status, "evaluationError")
    except FieldError as error:
        raise RejectedError(f"the access review is none: {error}") from error
    if not status:
        raise RejectedError("the access review has no status")
    if problem and not (allowed or denied):
        raise RejectedError(f"the API server cannot tell: {problem[:200]}")
    return allowed


def read_user(client: KubeClient) -> str:
    """Return the user that the API server takes us for, "" where it does not tell."""
    asked: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = client.post(IDENTITY, asked)
        return json_fields.optional_text(answer, "status", "userInfo", "username")
    except (RejectedError, FieldError):
        return ""
