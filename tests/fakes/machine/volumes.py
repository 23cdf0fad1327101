"""Materialise a pod's volumes as the kubelet does (kubelet facts K-19).

Written from pkg/volume/util/atomic_writer.go: ``..data`` names the directory that holds one
consistent generation, each user-visible name is a link through it.
"""

from __future__ import annotations

import base64
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fakes.api_client import ApiError
from tests.fakes.api_objects import Object
from tests.fakes.machine.static_pods import Pod

Files = dict[str, tuple[bytes, int]]
"""Bytes and mode by name."""


class MissingError(Exception):
    """Say that a volume cannot be set up now."""


def needs_api(pod: Pod) -> bool:
    """Tell whether a volume's content comes from the API server."""
    return any({"secret", "configMap"} & set(v) for v in pod["spec"].get("volumes", []))


def set_up(root: Path, pod: Pod, get: Callable[[str], Object]) -> None:
    """Write a pod's volumes. Raises MissingError, and what ``get`` of an object raises."""
    namespace = pod["metadata"]["namespace"]
    for volume in _mounted(pod):
        if "secret" in volume:
            source = volume["secret"]
            found = _get(get, f"{namespace}/secrets/{source['secretName']}", source)
            files = read_files(found.get("data", {}), {}, source)
        elif "configMap" in volume:
            source = volume["configMap"]
            found = _get(get, f"{namespace}/configmaps/{source['name']}", source)
            files = read_files(found.get("binaryData", {}), found.get("data", {}), source)
        else:
            continue
        write_atomically(host_directory(root, pod, volume), files)


def _mounted(pod: Pod) -> list[Pod]:
    """Return the volumes that a container mounts: others are never set up.

    K:volumemanager/populator/desired_state_of_world_populator.go, processPodVolumes.
    """
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    used = {mount["name"] for one in containers for mount in one.get("volumeMounts", [])}
    return [volume for volume in pod["spec"].get("volumes", []) if volume["name"] in used]


def _get(get: Callable[[str], Object], path: str, source: Pod) -> Object:
    try:
        return get(f"/api/v1/namespaces/{path}")
    except ApiError as error:
        if error.status == 404 and source.get("optional"):
            return {}
        raise


def set_up_local(root: Path, pod: Pod) -> None:
    """Make what needs no API server. Raises MissingError for a hostPath that is not there."""
    for volume in _mounted(pod):
        if "emptyDir" in volume:
            host_directory(root, pod, volume).mkdir(parents=True, exist_ok=True)
        if volume.get("hostPath", {}).get("type") == "Directory":
            path = Path(volume["hostPath"]["path"])
            if not path.is_dir():
                raise MissingError(f"hostPath type check failed: {path} is not a directory")


def read_files(binary: Mapping[str, str], text: Mapping[str, str], source: Pod) -> Files:
    """Choose keys and modes as ``items`` and ``defaultMode`` say."""
    content = {key: base64.b64decode(value) for key, value in binary.items()}
    content.update({key: value.encode() for key, value in text.items()})
    default = source.get("defaultMode", 0o644)
    if "items" not in source:
        return {key: (value, default) for key, value in content.items()}
    files: Files = {}
    for item in source["items"]:
        if item["key"] in content:
            files[item["path"]] = (content[item["key"]], item.get("mode", default))
        elif not source.get("optional"):
            raise MissingError(f"references non-existent key: {item['key']}")
    return files


def host_directory(root: Path, pod: Pod, volume: Pod) -> Path:
    """Return where the host has a volume."""
    if "hostPath" in volume:
        return Path(str(volume["hostPath"]["path"]))
    plugins = {"secret": "secret", "configMap": "configmap", "emptyDir": "empty-dir"}
    plugin = next((name for key, name in plugins.items() if key in volume), "other")
    below = root / "pods" / str(pod["metadata"]["uid"]) / "volumes"
    return below / f"kubernetes.io~{plugin}" / str(volume["name"])


def mounts(root: Path, pod: Pod, container: Pod) -> dict[str, str]:
    """Return the paths of the host by those of the container."""
    volumes = {v["name"]: host_directory(root, pod, v) for v in pod["spec"].get("volumes", [])}
    return {
        m["mountPath"]: str(volumes[m["name"]] / m.get("subPath", ""))
        for m in container.get("volumeMounts", [])
        if m["name"] in volumes
    }


def write_atomically(directory: Path, files: Files) -> None:
    """Bring a volume to these files at once; nothing is touched where it has them already."""
    directory.mkdir(parents=True, exist_ok=True)
    if _read(directory) == files:
        return
    before = directory / "..data"
    old = before.readlink().name if before.is_symlink() else ""
    name = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime()) + uuid.uuid4().hex[:9]
    for path, (content, mode) in files.items():
        target = directory / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    (directory / name).mkdir(exist_ok=True)
    fresh = directory / "..data_tmp"
    fresh.symlink_to(name)
    fresh.rename(before)
    _link_names(directory, {path.split("/")[0] for path in files})
    if old:
        shutil.rmtree(directory / old, ignore_errors=True)


def _link_names(directory: Path, wanted: set[str]) -> None:
    present = {entry.name for entry in directory.iterdir() if not entry.name.startswith("..")}
    for name in wanted - present:
        (directory / name).symlink_to(f"..data/{name}")
    for name in present - wanted:
        (directory / name).unlink()


def _read(directory: Path) -> Files | None:
    data = directory / "..data"
    if not data.is_dir():
        return None
    found = [path for path in data.resolve().rglob("*") if path.is_file()]
    base = data.resolve()
    return {
        str(path.relative_to(base)): (path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in found
    }
