"""Find the pods that an object would make: its template becomes a parent as the API server has it.

Pure. What only a cluster knows (the class of a priority, what a ServiceAccount says) is not
invented: what is added here is what admission adds to every pod.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.render import wire

TEMPLATES: Mapping[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "Pod": ((), frozenset({"v1"})),
    "PodTemplate": (("template",), frozenset({"v1"})),
    "ReplicationController": (("spec", "template"), frozenset({"v1"})),
    "Deployment": (("spec", "template"), frozenset({"apps", "extensions"})),
    "DaemonSet": (("spec", "template"), frozenset({"apps", "extensions"})),
    "ReplicaSet": (("spec", "template"), frozenset({"apps", "extensions"})),
    "StatefulSet": (("spec", "template"), frozenset({"apps"})),
    "Job": (("spec", "template"), frozenset({"batch"})),
    "CronJob": (("spec", "jobTemplate", "spec", "template"), frozenset({"batch"})),
}
"""Kind -> where its pod template lies, and the groups of its API."""

DEEPEST_LIST = 3
"""How deep lists may lie in lists; kubectl makes none of them."""

_OWNERS = {
    "Deployment": ("apps/v1", "ReplicaSet"),
    "CronJob": ("batch/v1", "Job"),
    # There is one on this node, as of a DaemonSet: no scheduler places a second one.
    "PodTemplate": ("apps/v1", "DaemonSet"),
}
"""What controls the pods, where it is not the object itself."""

TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_TOKEN_VOLUME = "kube-api-access-xxxxx"  # noqa: S105 - a name
"""plugin/pkg/admission/serviceaccount/admission.go."""
_SUFFIX = "xxxxx"
"""What stands for the five letters that the API server makes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Name one object that makes pods.

    ``path`` leads to it within its document ("items[2]", "" for the document itself), ``template``
    from it to its pod template. ``document`` is the object.
    """

    kind: str
    namespace: str
    name: str
    path: str
    template: tuple[str, ...]
    document: Json

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Name an object that makes no pods."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """Hold a pod of a workload as the API server would have it.

    ``token_volume`` is the index of the volume that admission added, -1 where it added none.
    """

    pod: Json
    token_volume: int


def find(document: object, path: str = "") -> Iterator[Workload | Other]:
    """Yield the objects of a document, those of a List one by one. Raises FieldError."""
    if path.count("items[") > DEEPEST_LIST:
        raise FieldError("items: lists of lists of lists")
    found = json_fields.as_object(document, path or "the document")
    kind = json_fields.text(found, "kind")
    if kind.endswith("List") and json_fields.has_field(found, "items"):
        for index, item in enumerate(json_fields.objects(found, "items")):
            # Items of a typed list need not say what they are.
            typed = {"kind": kind.removesuffix("List"), **item} if kind != "List" else item
            try:
                yield from find(typed, f"{path}.items[{index}]".lstrip("."))
            except FieldError as error:
                raise FieldError(f"items[{index}].{error}") from error
        return
    template, groups = TEMPLATES.get(kind, ((), frozenset[str]()))
    group = json_fields.optional_text(found, "apiVersion").partition("/")[0]
    # An item of a list may have no apiVersion of its own either.
    if group not in ({*groups, ""} if groups else groups):
        yield Other(kind=kind, path=path)
        return
    yield Workload(
        kind=kind,
        namespace=json_fields.optional_text(found, "metadata", "namespace") or "default",
        name=_name(found),
        path=path,
        template=template,
        document=found,
    )


def parent_of(workload: Workload) -> Parent:
    """Return a pod of the workload. Raises FieldError."""
    document, template = workload.document, workload.template
    if template and not json_fields.mapping(document, *template):
        raise FieldError(f"{'.'.join(template)}: missing")
    metadata = json_fields.mapping(document, *template, "metadata")
    pod: wire.Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **_identity(workload)},
        "spec": json_fields.mapping(document, *template, "spec"),
    }
    if workload.kind == "Pod" and _was_admitted(document):
        return Parent(pod={**pod, "status": document.get("status")}, token_volume=-1)
    try:
        return _with_token(pod)
    except FieldError:
        # A field is of the wrong type: rendering refuses it by its name.
        return Parent(pod=pod, token_volume=-1)


def _name(found: Json) -> str:
    name = json_fields.optional_text(found, "metadata", "name")
    prefix = json_fields.optional_text(found, "metadata", "generateName")
    return name or (f"{prefix}{_SUFFIX}" if prefix else "")


def _identity(workload: Workload) -> wire.Object:
    """Return what names the pod: of a Pod its own words, else what its controller writes."""
    uid = json_fields.optional_text(workload.document, "metadata", "uid")
    named = {"namespace": workload.namespace, "uid": uid or _made_up_uid(workload)}
    if workload.kind == "Pod":
        return {**named, "name": workload.name}
    version, kind = _OWNERS.get(
        workload.kind,
        (json_fields.optional_text(workload.document, "apiVersion") or "apps/v1", workload.kind),
    )
    owner = {
        "apiVersion": version.replace("extensions/", "apps/"),
        "kind": kind,
        "name": workload.name,
        "uid": _made_up_uid(workload),
        "controller": True,
    }
    suffix = "0" if workload.kind == "StatefulSet" else _SUFFIX
    return {**named, "name": f"{workload.name}-{suffix}", "ownerReferences": [owner]}


def _made_up_uid(workload: Workload) -> str:
    digest = hashlib.sha256(str(workload).encode("utf-8", "surrogatepass")).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def _was_admitted(pod: Json) -> bool:
    """Tell whether a Pod comes from an API server, which has added all that it adds."""
    return json_fields.optional_text(pod, "metadata", "uid") != ""


def _with_token(pod: wire.Object) -> Parent:
    """Return the pod with the token that admission mounts unless the pod says no.

    What its ServiceAccount says is not known; by default it says nothing.
    """
    spec = dict(json_fields.mapping(pod, "spec"))
    lacking = [path for path, container in wire.containers(pod) if not _mounts_token(container)]
    declined = json_fields.has_field(spec, "automountServiceAccountToken") and not (
        json_fields.boolean(spec, "automountServiceAccountToken")
    )
    if declined or not lacking:
        return Parent(pod=pod, token_volume=-1)
    mount = {"name": _TOKEN_VOLUME, "mountPath": TOKEN_PATH, "readOnly": True}
    for kind in wire.CONTAINER_LISTS:
        if kind in spec:
            spec[kind] = [
                container if _mounts_token(container) else _with_mount(container, mount)
                for container in json_fields.objects(spec, kind)
            ]
    present = json_fields.objects(spec, "volumes")
    spec["volumes"] = [*present, _token_volume()]
    return Parent(pod={**pod, "spec": spec}, token_volume=len(present))


def _mounts_token(container: Json) -> bool:
    return any(
        json_fields.optional_text(mount, "mountPath") == TOKEN_PATH
        for mount in json_fields.objects(container, "volumeMounts")
    )


def _with_mount(container: Json, mount: Json) -> Json:
    return {
        **container,
        "volumeMounts": [*json_fields.objects(container, "volumeMounts"), mount],
    }


def _token_volume() -> wire.Object:
    """Return the volume as admission writes it (admission.go: TokenVolumeSource)."""
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "name": _TOKEN_VOLUME,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
            ],
        },
    }
