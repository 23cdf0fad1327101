"""Read which world answers: is it the cluster that we know."""

from __future__ import annotations

from dataclasses import replace

from checkpointd import json_fields
from checkpointd.clients.kube import KubeClient
from checkpointd.clients.kube_answers import Missing
from checkpointd.errors import FieldError, RejectedError
from checkpointd.json_fields import Json
from checkpointd.model.observation import NAMESPACE_ANCHOR, World

SERVICE = "Service default/kubernetes"


def read_world(client: KubeClient, node: Json | Missing, node_name: str) -> World:
    """Return the world of a server that has just answered with ``node``.

    Where the Service may not be read, the Namespace; where neither may be, the Node alone. Only a
    403 says "may not": anything else raises, as a server that is starting lacks the Service for a
    moment and must not pass for another world. Raises SourceError.
    """
    try:
        anchor = _read_anchor(client)
        if isinstance(node, Missing):
            return replace(anchor, node_found=False)
        return replace(
            anchor,
            node_uid=json_fields.text(node, "metadata", "uid"),
            allocatable=json_fields.texts(node, "status", "allocatable"),
            kubelet_version=json_fields.optional_text(node, "status", "nodeInfo", "kubeletVersion"),
        )
    except FieldError as error:
        raise RejectedError(f"Node {node_name} or its world: {error}") from error


def _read_anchor(client: KubeClient) -> World:
    try:
        return _read_service(client)
    except RejectedError as error:
        if error.status != 403:
            raise
    try:
        uid = _uid(client.get_namespace("kube-system"))
    except RejectedError as error:
        if error.status != 403:
            raise
        return World(anchor="", anchor_uid="", node_uid="", node_found=True)
    return World(anchor=NAMESPACE_ANCHOR, anchor_uid=uid, node_uid="", node_found=True)


def _read_service(client: KubeClient) -> World:
    service = client.get_service("default", "kubernetes")
    world = World(anchor=SERVICE, anchor_uid=_uid(service), node_uid="", node_found=True)
    if isinstance(service, Missing):
        return world
    ports = json_fields.objects(service, "spec", "ports")
    return replace(
        world,
        service_host=json_fields.optional_text(service, "spec", "clusterIP"),
        service_port=str(json_fields.integer(ports[0], "port")) if ports else "",
    )


def _uid(found: Json | Missing) -> str:
    if isinstance(found, Missing):
        raise RejectedError(f"{found.kind} {found.name} is missing: the server may be starting")
    try:
        uid = json_fields.text(found, "metadata", "uid")
    except FieldError as error:
        raise RejectedError(str(error)) from error
    if not uid:
        raise RejectedError("metadata.uid: empty")
    return uid
