"""Hold the objects of the fake API server: resource versions, history for watches, a state file.

The state file is its etcd: a server that starts on the same file goes on where the last one ended.
"""

from __future__ import annotations

import copy
import json
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Resource, namespace ("" where there is none), name."""

KINDS = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "services": ("v1", "Service"),
    "namespaces": ("v1", "Namespace"),
    "secrets": ("v1", "Secret"),
    "configmaps": ("v1", "ConfigMap"),
    "events": ("v1", "Event"),
    "podtemplates": ("v1", "PodTemplate"),
    "daemonsets": ("apps/v1", "DaemonSet"),
    "replicasets": ("apps/v1", "ReplicaSet"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}
HISTORY = 1000
"""Changes that a watch can go back; older ones answer 410."""


@dataclass(frozen=True, slots=True)
class Change:
    """Hold one change: ``before`` and ``after`` are None where there was or is no object."""

    version: int
    resource: str
    before: Object | None
    after: Object | None


class ConflictError(Exception):
    """Say that the object exists already, or was changed in between."""


class ObjectStore:
    """Keep objects in memory and, where ``state`` names one, in a file. Safe from any thread."""

    def __init__(self, state: Path | None = None) -> None:
        self._state = state
        self._objects: dict[Key, Object] = {}
        self._history: deque[Change] = deque(maxlen=HISTORY)
        self.changed = threading.Condition(threading.RLock())
        self.version = 1
        if state is not None and state.exists():
            self._load(state)
        self.oldest = self.version
        """The version that a watch may at the least start from."""

    # ---- the world -----------------------------------------------------------------------------
    def make_world(self, node_name: str) -> None:
        """Create what every cluster has, one Node and its lease."""
        for name in ("default", "kube-system", "kube-node-lease"):
            self.create("namespaces", {"metadata": {"name": name}})
        spec = {"clusterIP": "10.96.0.1"}
        service = {"metadata": {"name": "kubernetes", "namespace": "default"}, "spec": spec}
        self.create("services", service)
        self.add_node(node_name)

    def add_node(self, name: str) -> Object:
        """Create a Node and its lease."""
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        status = {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}}
        renewed = {"holderIdentity": name, "renewTime": _now()[:-1] + ".000000Z"}
        lease = {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": renewed}
        if self.get("leases", "kube-node-lease", name) is None:
            self.create("leases", lease)
        return self.create("nodes", {"metadata": metadata, "spec": {}, "status": status})

    # ---- changes -------------------------------------------------------------------------------
    def create(self, resource: str, given: Object) -> Object:
        """Create an object with a UID of its own. Raises ConflictError."""
        with self.changed:
            made = copy.deepcopy(given)
            api_version, kind = KINDS[resource]
            made.update({"apiVersion": api_version, "kind": kind})
            metadata = made.setdefault("metadata", {})
            if "generateName" in metadata and not metadata.get("name"):
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            key = _key(resource, made)
            if key in self._objects:
                raise ConflictError
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", _now())
            self._put(key, made)
            return copy.deepcopy(made)

    def update(self, resource: str, given: Object) -> Object:
        """Replace an object. Raises KeyError; ConflictError for a stale resourceVersion or UID."""
        with self.changed:
            key = _key(resource, given)
            before = self._objects[key]
            made = copy.deepcopy(given)
            metadata = made["metadata"]
            wanted = metadata.get("resourceVersion") or before["metadata"]["resourceVersion"]
            if wanted != before["metadata"]["resourceVersion"]:
                raise ConflictError
            if metadata.setdefault("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
                raise ConflictError
            metadata.setdefault("creationTimestamp", before["metadata"]["creationTimestamp"])
            made.update({"apiVersion": before["apiVersion"], "kind": before["kind"]})
            self._put(key, made)
            return copy.deepcopy(made)

    def merge(self, resource: str, namespace: str, name: str, patch: Object) -> Object:
        """Apply a JSON merge patch (RFC 7396). Raises KeyError."""
        with self.changed:
            before = self._objects[(resource, namespace, name)]
            return self.update(resource, _merged(before, patch))

    def delete(self, resource: str, namespace: str, name: str, grace: int | None = None) -> Object:
        """Delete an object; a bound pod with a grace period is only marked. Raises KeyError.

        ``grace`` None means the pod's own; 0 is what a kubelet says once the pod is gone.
        """
        with self.changed:
            key = (resource, namespace, name)
            before = self._objects[key]
            if resource == "pods" and before.get("spec", {}).get("nodeName"):
                own: int = before["spec"].get("terminationGracePeriodSeconds", 30)
                seconds = own if grace is None else grace
                if seconds > 0:
                    return self._mark_deleted(key, before, seconds)
            return self._remove(key)

    def finalise(self, namespace: str, name: str) -> Object:
        """Remove a pod, as the kubelet does once it has ended. Raises KeyError."""
        return self.delete("pods", namespace, name, 0)

    def wipe(self) -> None:
        """Lose everything, as an etcd on an empty disk: history is gone too."""
        with self.changed:
            self._objects.clear()
            self.forget_history()
            self._save()

    def forget_history(self) -> None:
        """Let watches from the past, and from now, answer 410."""
        with self.changed:
            self.version += 1
            self.cut_history()

    def cut_history(self) -> None:
        """Let watches from the past answer 410."""
        with self.changed:
            self._history.clear()
            self.oldest = self.version
            self.changed.notify_all()

    # ---- reading -------------------------------------------------------------------------------
    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return an object."""
        with self.changed:
            found = self._objects.get((resource, namespace, name))
            return None if found is None else copy.deepcopy(found)

    def list(self, resource: str, namespace: str = "") -> tuple[list[Object], int]:
        """Return the objects of a resource, by namespace and name, and the store's version."""
        with self.changed:
            found = [
                copy.deepcopy(value)
                for key, value in sorted(self._objects.items())
                if key[0] == resource and namespace in ("", key[1])
            ]
            return found, self.version

    def last_change(self, resource: str) -> int:
        """Return the version of the last change of a resource, 0 where that is forgotten."""
        with self.changed:
            changes = (c.version for c in reversed(self._history) if c.resource == resource)
            return next(changes, 0)

    def changes_after(self, version: int) -> tuple[Change, ...] | None:
        """Return the changes after ``version``; None where the history does not reach back.

        From a version that is yet to come there is nothing to tell.
        """
        with self.changed:
            if version < self.oldest:
                return None
            return tuple(change for change in self._history if change.version > version)

    # ---- inside --------------------------------------------------------------------------------
    def _mark_deleted(self, key: Key, before: Object, grace: int) -> Object:
        if "deletionTimestamp" in before["metadata"]:
            return copy.deepcopy(before)
        made = copy.deepcopy(before)
        made["metadata"].update({"deletionTimestamp": _now(), "deletionGracePeriodSeconds": grace})
        self._put(key, made)
        return copy.deepcopy(made)

    def _put(self, key: Key, made: Object) -> None:
        before = self._objects.get(key)
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        self._objects[key] = made
        self._note(Change(self.version, key[0], before, copy.deepcopy(made)))

    def _remove(self, key: Key) -> Object:
        gone = self._objects.pop(key)
        self.version += 1
        # The event of a deletion carries the version of the deletion.
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._note(Change(self.version, key[0], gone, None))
        return copy.deepcopy(gone)

    def _note(self, change: Change) -> None:
        if len(self._history) == HISTORY:
            self.oldest = self._history[0].version
        self._history.append(change)
        self._save()
        self.changed.notify_all()

    def _save(self) -> None:
        if self._state is None:
            return
        temporary = self._state.with_name(f".{self._state.name}.{os.getpid()}")
        content = {"version": self.version, "objects": [[*k, v] for k, v in self._objects.items()]}
        temporary.write_text(json.dumps(content))
        temporary.rename(self._state)

    def _load(self, state: Path) -> None:
        content = json.loads(state.read_text())
        self.version = content["version"]
        self._objects = {(entry[0], entry[1], entry[2]): entry[3] for entry in content["objects"]}


def select(objects: list[Object], selector: str) -> Iterator[Object]:
    """Yield the objects that a field selector such as ``spec.nodeName=a`` names."""
    return (one for one in objects if is_selected(one, selector))


def is_selected(one: Object | None, selector: str) -> bool:
    """Tell whether a field selector names this object."""
    if one is None:
        return False
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.replace("==", "=").partition("=")
        value: Any = one
        for part in path.split("."):
            value = cast("Object", value).get(part, {}) if isinstance(value, dict) else {}
        if (value or "") != wanted:
            return False
    return True


def _key(resource: str, made: Object) -> Key:
    metadata = made["metadata"]
    return (resource, metadata.get("namespace", ""), metadata["name"])


def _merged(before: Object, patch: Object) -> Object:
    made: Object = dict(before)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict):
            inner = made.get(key)
            known = cast("Object", inner) if isinstance(inner, dict) else {}
            made[key] = _merged(known, cast("Object", value))
        else:
            made[key] = copy.deepcopy(value)
    return made


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
