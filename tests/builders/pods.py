"""Build raw pods as an API server gives them: each argument states what matters to the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpointd.model.files import FileEntry, VolumeFiles
from checkpointd.render import content

Object = dict[str, object]

PARENT_UID = "0b7e2f0c-6d3a-4f0f-9f2e-3c1d5a7b9e11"
MARK = "checkpointd.io/checkpoint"


def container(name: str = "main", /, **fields: object) -> Object:
    """Return a container as the API server defaults it."""
    return {
        "name": name,
        "image": f"registry.example/{name}:1",
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {},
        **fields,
    }


def mount(volume: str, path: str = "", **fields: object) -> Object:
    """Return a volumeMount at ``/mnt/<volume>`` or ``path``."""
    return {"name": volume, "mountPath": path or f"/mnt/{volume}", **fields}


def secret_volume(name: str, secret: str = "", **fields: object) -> Object:
    """Return a volume of a secret."""
    return {"name": name, "secret": {"secretName": secret or name, "defaultMode": 420, **fields}}


def config_map_volume(name: str, config_map: str = "", **fields: object) -> Object:
    """Return a volume of a configMap."""
    return {"name": name, "configMap": {"name": config_map or name, "defaultMode": 420, **fields}}


def host_path_volume(name: str, path: str, kind: str = "") -> Object:
    """Return a volume of the host."""
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def owner(kind: str = "DaemonSet", name: str = "web", api_version: str = "apps/v1") -> Object:
    """Return an ownerReference of a controller."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": "5d3c2b1a-0000-4000-8000-000000000001",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def files_of(name: str, data: bytes = b"x", placed: str = "2026-01-01T00:00:00Z") -> VolumeFiles:
    """Return the files of a volume with one key."""
    top = FileEntry(path="", data=None, mode=0o755, uid=0, gid=0)
    file = FileEntry(path="key", data=data, mode=0o644, uid=0, gid=0)
    return content.volume_files(name, placed, (top, file))


def raw_pod(
    name: str = "web",
    *,
    namespace: str = "kube-system",
    uid: str = PARENT_UID,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owners: Sequence[Mapping[str, object]] = (),
    containers: Sequence[Mapping[str, object]] = (),
    volumes: Sequence[Mapping[str, object]] = (),
    metadata: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
    **spec: object,
) -> Object:
    """Return a bound, running, marked pod with all that an API server and a kubelet add.

    Where no containers are given, the one that it has mounts all secrets and configMaps.
    """
    mounted = [mount(str(v["name"])) for v in volumes if "secret" in v or "configMap" in v]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": "4711",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app": name} if labels is None else dict(labels),
            "annotations": {MARK: "true", **(annotations or {})},
            "ownerReferences": list(owners),
            **(metadata or {}),
        },
        "spec": {
            "containers": list(containers) or [_mounting(mounted)],
            "volumes": list(volumes),
            "nodeName": "node-1",
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 30,
            "enableServiceLinks": True,
            "securityContext": {},
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"operator": "Exists"}],
            **spec,
        },
        "status": {"phase": "Running", "qosClass": "BestEffort", **(status or {})},
    }


def _mounting(mounts: list[Object]) -> Object:
    return container(volumeMounts=mounts) if mounts else container()


def copy_pod(
    name: str = "web-1a2b3c",
    *,
    top: Mapping[str, object] | None = None,
    metadata: Mapping[str, object] | None = None,
    containers: Sequence[Mapping[str, object]] = (),
    **spec: object,
) -> Object:
    """Return a copy's manifest that every kubelet takes, with the stated fields changed."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "uid": "0123abcd-0123-4abc-8def-0123456789ab",
            "labels": {"app": "web"},
            "annotations": {"checkpointd.io/slot": "ds.web"},
            **(metadata or {}),
        },
        "spec": {
            "containers": list(containers) or [copy_container()],
            "restartPolicy": "Always",
            **spec,
        },
        **(top or {}),
    }


def copy_container(name: str = "main", /, **fields: object) -> Object:
    """Return a container as a copy has it."""
    return {
        "name": name,
        "image": "registry.example/main:1",
        "imagePullPolicy": "IfNotPresent",
        **fields,
    }
