"""Read the static-pod directory as a kubelet 1.36 does, and refuse what it refuses.

Written from the kubelet's side and apart from ``checkpointd.render``, which must please it: kubelet
facts K-1 (every entry without a leading dot is a pod), K-2 (of one full name the last file wins),
K-6 (names, UIDs), K-7 (what a static pod may not refer to).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

Pod = dict[str, Any]

_VOLUMES = frozenset({
    "configMap", "secret", "csi", "glusterfs", "persistentVolumeClaim", "ephemeral", "azureFile",
})  # fmt: skip
_PROJECTED = frozenset({
    "configMap", "secret", "serviceAccountToken", "clusterTrustBundle", "podCertificate",
})  # fmt: skip
_LONGEST = 10 << 20
"""K:config/common.go: maxConfigLength."""


class RefusedError(Exception):
    """Say why a file is no static pod."""


@dataclass(slots=True)
class ManifestDirectory:
    """Look at the directory again and again; what became unreadable stays what it was.

    ``refusals`` says why a file is not run, by name.
    """

    path: Path
    node_name: str
    lanes: Path | None = None
    """A directory of further nodes' directories: tests let one kubelet serve many daemons."""
    refusals: dict[str, str] = field(default_factory=dict[str, str])
    _known: dict[str, tuple[tuple[int, int, int], Pod | None]] = field(
        default_factory=dict[str, tuple[tuple[int, int, int], "Pod | None"]]
    )

    def look(self) -> dict[str, Pod]:
        """Return the pods by UID; of one namespace and name the last file's."""
        found: dict[str, tuple[tuple[int, int, int], Pod | None]] = {}
        for entry in sorted(self._entries()):
            before = self._known.get(str(entry))
            try:
                status = entry.stat()
            except OSError:
                continue
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if before is None or before[0] != stamp:
                before = (stamp, self._read(entry, before[1] if before else None))
            found[str(entry)] = before
        self._known = found
        self.refusals = {name: why for name, why in self.refusals.items() if name in found}
        by_name = {full_name(pod): pod for _, pod in found.values() if pod is not None}
        return {pod["metadata"]["uid"]: pod for pod in by_name.values()}

    def _entries(self) -> Iterator[Path]:
        directories = [self.path]
        if self.lanes is not None and self.lanes.is_dir():
            directories += [lane / "manifests" for lane in self.lanes.iterdir()]
        for directory in directories:
            with contextlib.suppress(OSError):
                yield from (e for e in directory.glob("[!.]*") if e.is_file())

    def _read(self, path: Path, before: Pod | None) -> Pod | None:
        try:
            pod = parse(path, self.node_name)
        except (RefusedError, OSError) as error:
            self.refusals[str(path)] = str(error)
            print(ascii(f"{path.name}: refused: {error}"), flush=True)
            return before
        self.refusals.pop(str(path), None)
        return pod


def full_name(pod: Pod) -> str:
    """Return namespace and name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def parse(path: Path, node_name: str) -> Pod:
    """Read one file as the kubelet would. Raises RefusedError, OSError."""
    if not path.is_file():
        raise RefusedError("not a regular file")
    content = path.read_bytes()
    if len(content) > _LONGEST:
        raise RefusedError("larger than 10 MiB")
    try:
        # K:config/common.go, tryDecodeSinglePod. PyYAML itself stumbles over odd scalars.
        value: object = _load(content)
    except (ValueError, LookupError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise RefusedError(f"neither JSON nor YAML: {error}") from error
    pod = cast("Pod", value)
    if not isinstance(value, dict) or pod.get("kind") != "Pod" or pod.get("apiVersion") != "v1":
        raise RefusedError("not a v1 Pod")
    if not pod.get("metadata", {}).get("name") or not pod.get("spec", {}).get("containers"):
        raise RefusedError("no name, or no containers")
    references = sorted(set(api_references(pod["spec"])))
    if references:
        raise RefusedError(f"static pods may not reference {', '.join(references)}")
    return _apply_defaults(pod, path, node_name)


def _load(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return yaml.safe_load(content)


def api_references(spec: Pod) -> Iterator[str]:
    """Yield what pkg/api/pod/util.go: HasAPIObjectReference finds."""
    for name in ("serviceAccountName", "serviceAccount", "imagePullSecrets", "resourceClaims"):
        if spec.get(name):
            yield name
    for name in ("ephemeralContainers", "schedulingGates"):
        # ValidatePodCreate: "cannot be set on create", and not beside nodeName.
        if spec.get(name):
            yield name
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        for variable in container.get("env", []):
            yield from {"secretKeyRef", "configMapKeyRef"} & set(variable.get("valueFrom", {}))
        for source in container.get("envFrom", []):
            yield from {"secretRef", "configMapRef"} & set(source)
    for volume in spec.get("volumes", []):
        yield from _VOLUMES & set(volume)
        for source in volume.get("projected", {}).get("sources", []):
            yield from (f"projected {kind}" for kind in _PROJECTED & set(source))


def _apply_defaults(given: Pod, path: Path, node_name: str) -> Pod:
    pod = copy.deepcopy(given)
    metadata = pod["metadata"]
    text = json.dumps(given, sort_keys=True) + f"host:{node_name}file:{path}"
    metadata["uid"] = metadata.get("uid") or hashlib.md5(text.encode()).hexdigest()
    metadata["name"] = f"{metadata['name']}-{node_name.lower()}"
    metadata.setdefault("namespace", "default")
    metadata["annotations"] = {
        **cast("Pod", metadata.get("annotations") or {}),
        "kubernetes.io/config.hash": metadata["uid"],
        "kubernetes.io/config.source": "file",
        "kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z",
    }
    pod["spec"]["nodeName"] = node_name
    if pod["spec"].get("hostNetwork"):
        # pkg/apis/core/v1/defaults.go: defaultHostNetworkPorts.
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", []):
                port.setdefault("hostPort", port["containerPort"])
    return pod
