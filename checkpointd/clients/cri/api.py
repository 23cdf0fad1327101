"""Write down the part of the CRI that is used: messages, methods, and the shape of answers.

Source of the numbers: staging/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto of Kubernetes.
``runtime.v1alpha2`` (the folder beside v1, gone in 1.26) has the same numbers for all of this: one
table serves both. Fields that nobody reads are left out: protobuf skips them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from checkpointd.clients.messages import Field, Messages, Table

V1 = "runtime.v1"
V1ALPHA2 = "runtime.v1alpha2"

TABLE: Table = {
    "VersionRequest": (Field("version", 1),),
    "VersionResponse": (
        Field("version", 1),
        Field("runtime_name", 2),
        Field("runtime_version", 3),
        Field("runtime_api_version", 4),
    ),
    "PodSandboxMetadata": (
        Field("name", 1),
        Field("uid", 2),
        Field("namespace", 3),
        Field("attempt", 4, "uint32"),
    ),
    "PodSandboxFilter": (Field("id", 1), Field("label_selector", 3, "map")),
    "ListPodSandboxRequest": (Field("filter", 1, "PodSandboxFilter"),),
    "PodSandbox": (
        Field("id", 1),
        Field("metadata", 2, "PodSandboxMetadata"),
        Field("state", 3, "int32"),
        Field("created_at", 4, "int64"),
        Field("labels", 5, "map"),
        Field("annotations", 6, "map"),
    ),
    "ListPodSandboxResponse": (Field("items", 1, "PodSandbox", repeated=True),),
    "StopPodSandboxRequest": (Field("pod_sandbox_id", 1),),
    "StopPodSandboxResponse": (),
    "ContainerMetadata": (Field("name", 1), Field("attempt", 2, "uint32")),
    "ImageSpec": (Field("image", 1),),
    "ContainerFilter": (
        Field("id", 1),
        Field("pod_sandbox_id", 3),
        Field("label_selector", 4, "map"),
    ),
    "ListContainersRequest": (Field("filter", 1, "ContainerFilter"),),
    "Container": (
        Field("id", 1),
        Field("pod_sandbox_id", 2),
        Field("metadata", 3, "ContainerMetadata"),
        Field("image", 4, "ImageSpec"),
        Field("image_ref", 5),
        Field("state", 6, "int32"),
        Field("created_at", 7, "int64"),
        Field("labels", 8, "map"),
        Field("image_id", 10),
    ),
    "ListContainersResponse": (Field("containers", 1, "Container", repeated=True),),
    "StopContainerRequest": (Field("container_id", 1), Field("timeout", 2, "int64")),
    "StopContainerResponse": (),
    "ListImagesRequest": (),
    "Image": (
        Field("id", 1),
        Field("repo_tags", 2, repeated=True),
        Field("repo_digests", 3, repeated=True),
        Field("size", 4, "uint64"),
    ),
    "ListImagesResponse": (Field("images", 1, "Image", repeated=True),),
    "GetEventsRequest": (),
    "ContainerEventResponse": (
        Field("container_id", 1),
        Field("container_event_type", 2, "int32"),
        Field("created_at", 3, "int64"),
    ),
}

SANDBOX_READY = 0
"""PodSandboxState."""
CONTAINER_CREATED, CONTAINER_RUNNING, CONTAINER_EXITED, CONTAINER_UNKNOWN = 0, 1, 2, 3
"""ContainerState."""

POD_UID_LABEL = "io.kubernetes.pod.uid"
"""On every sandbox and container of a kubelet (pkg/kubelet/types/labels.go)."""
CONFIG_SOURCE = "kubernetes.io/config.source"
"""Annotation: ``file``, ``http`` or ``api`` (pkg/kubelet/types/pod_update.go)."""


def messages(package: str) -> Messages:
    """Return the messages of ``runtime.v1`` or ``runtime.v1alpha2``."""
    return Messages(package, TABLE)


class VersionAnswer(Protocol):
    """VersionResponse."""

    runtime_name: str
    runtime_version: str


class SandboxMetadataMessage(Protocol):
    """PodSandboxMetadata."""

    name: str
    uid: str
    namespace: str
    attempt: int


class SandboxMessage(Protocol):
    """PodSandbox."""

    id: str
    metadata: SandboxMetadataMessage
    state: int
    created_at: int
    annotations: Mapping[str, str]


class SandboxesAnswer(Protocol):
    """ListPodSandboxResponse."""

    items: Sequence[SandboxMessage]


class ContainerMetadataMessage(Protocol):
    """ContainerMetadata."""

    name: str
    attempt: int


class ImageSpecMessage(Protocol):
    """ImageSpec."""

    image: str


class ContainerMessage(Protocol):
    """Container."""

    id: str
    pod_sandbox_id: str
    metadata: ContainerMetadataMessage
    image: ImageSpecMessage
    image_ref: str
    image_id: str
    state: int
    created_at: int
    labels: Mapping[str, str]


class ContainersAnswer(Protocol):
    """ListContainersResponse."""

    containers: Sequence[ContainerMessage]


class ImageMessage(Protocol):
    """Image."""

    id: str
    repo_tags: Sequence[str]
    repo_digests: Sequence[str]


class ImagesAnswer(Protocol):
    """ListImagesResponse."""

    images: Sequence[ImageMessage]
