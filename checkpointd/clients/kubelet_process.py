"""Find out how the running kubelet is set up: arguments, configuration file, defaults.

Paths are the host's: those of a kubelet in a root of its own are prefixed with it, relative ones
are taken from its working directory. A kubelet inside another program (k3s, RKE2) is not found; its
paths are for the settings to tell.
"""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from checkpointd import json_fields
from checkpointd.clients import proc, yaml_text
from checkpointd.errors import FieldError, SourceError
from checkpointd.json_fields import Json
from checkpointd.model.observation import KubeletProcess

CONFIG_LIMIT = 1 << 20
_FLAGS = frozenset({
    "kubeconfig", "config", "config-dir", "pod-manifest-path", "hostname-override",
    "container-runtime-endpoint", "root-dir", "read-only-port", "port", "healthz-port", "address",
    "cgroup-root",
})  # fmt: skip
_CONFIG_KEYS: Mapping[str, str] = {
    "staticPodPath": "pod-manifest-path",
    "port": "port",
    "readOnlyPort": "read-only-port",
    "healthzPort": "healthz-port",
    "address": "address",
    "cgroupRoot": "cgroup-root",
    "containerRuntimeEndpoint": "container-runtime-endpoint",
}
_RUNTIME_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/var/run/dockershim.sock",
)
"""Where runtimes listen: cmd/kubeadm/app/constants/constants.go, and dockershim's."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Hold where a process stands: its root ("" for the host's) and its working directory."""

    root: str
    directory: str

    def resolve(self, path: str, base: str = "") -> str:
        """Return ``path`` as the host sees it; "" stays ""."""
        if not path:
            return ""
        return self.root + os.path.normpath(Path(base or self.directory) / path)


def read_kubelet(procfs: proc.Procfs, process: proc.Process, boot_id: str) -> KubeletProcess:
    """Read the set-up of the kubelet ``process``.

    ``version`` stays "": a process does not tell it. Raises SourceError where the configuration
    file cannot be read or parsed: what is not known must not be guessed.
    """
    flags = parse_flags(procfs.read_arguments(process.pid))
    place = _read_place(procfs, process.pid)
    config = _read_config(place, flags)
    # Flags go over the file: cmd/kubelet/app/server.go, kubeletConfigFlagPrecedence.
    merged = {**_defaults(has_config="config" in flags), **config, **flags}
    return KubeletProcess(
        pid=process.pid,
        started=process.started(boot_id),
        version="",
        node_name=_node_name(merged["hostname-override"]),
        manifest_dir=place.resolve(merged["pod-manifest-path"]),
        root_dir=place.resolve(merged["root-dir"]),
        cri_socket=_socket_path(place, merged["container-runtime-endpoint"]),
        kubeconfig=place.resolve(merged["kubeconfig"]),
        read_only_port=_port(merged, "read-only-port"),
        port=_port(merged, "port"),
        healthz_port=_port(merged, "healthz-port"),
        address=merged["address"],
        cgroup_root=merged["cgroup-root"],
    )


def parse_flags(arguments: tuple[str, ...]) -> dict[str, str]:
    """Return the flags that matter, by name, the last one winning.

    ``--a=b`` and ``--a b`` are both pflag's; so is ``_`` for ``-`` (WordSepNormalizeFunc).
    """
    flags: dict[str, str] = {}
    rest = iter(arguments[1:])
    for argument in rest:
        name, equals, value = argument.partition("=")
        name = name.removeprefix("--").replace("_", "-")
        if not argument.startswith("--") or name not in _FLAGS:
            continue
        flags[name] = value if equals else next(rest, "")
    return flags


def parse_config(content: bytes, name: str) -> dict[str, str]:
    """Return the fields of a KubeletConfiguration that matter, by the flag that they stand for.

    Raises SourceError that names the file.
    """
    try:
        config = _parse_mapping(content, name)
        present = {key: flag for key, flag in _CONFIG_KEYS.items() if config.get(key) is not None}
        return {flag: _scalar(config, key) for key, flag in present.items()}
    except FieldError as error:
        raise SourceError(f"{name}: {error}") from error


def _parse_mapping(content: bytes, name: str) -> Json:
    if content.lstrip().startswith(b"{"):
        return json_fields.parse_object(content, name)
    value = yaml_text.parse_first(content, name)
    return {} if value is None else json_fields.as_object(value, name)


def _scalar(config: Json, key: str) -> str:
    if key.endswith(("Port", "port")):
        return str(json_fields.integer(config, key))
    return json_fields.text(config, key)


def _defaults(*, has_config: bool) -> dict[str, str]:
    """Return what the kubelet takes for what nobody set.

    The read-only port is open by default only for a kubelet without a configuration file:
    cmd/kubelet/app/options/options.go, applyLegacyDefaults. The rest:
    pkg/kubelet/apis/config/v1beta1/defaults.go.
    """
    return {
        "kubeconfig": "",
        "pod-manifest-path": "",
        "hostname-override": "",
        "container-runtime-endpoint": "",
        "root-dir": "/var/lib/kubelet",
        "read-only-port": "0" if has_config else "10255",
        "port": "10250",
        "healthz-port": "10248",
        "address": "0.0.0.0",  # noqa: S104 - read, not bound
        "cgroup-root": "",
    }


def _read_config(place: _Place, flags: Mapping[str, str]) -> dict[str, str]:
    """Read the file, then the drop-ins (*.conf, in lexical order) over it."""
    merged: dict[str, str] = {}
    paths = [Path(place.resolve(flags["config"]))] if flags.get("config") else []
    if flags.get("config-dir"):
        paths += sorted(Path(place.resolve(flags["config-dir"])).glob("*.conf"))
    for path in paths:
        fields = parse_config(_read_limited(path), str(path))
        if "pod-manifest-path" in fields:
            # Relative to the file: pkg/kubelet/kubeletconfig/configfiles, resolveRelativePaths.
            base = str(path.parent).removeprefix(place.root)
            fields["pod-manifest-path"] = str(Path(base) / fields["pod-manifest-path"])
        merged.update(fields)
    return merged


def _read_limited(path: Path) -> bytes:
    try:
        # A pipe in the place of a file would be waited for, for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SourceError(f"{path}: not a file")
            content = file.read(CONFIG_LIMIT + 1)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    if len(content) > CONFIG_LIMIT:
        raise SourceError(f"{path}: over {CONFIG_LIMIT} bytes")
    return content


def _read_place(procfs: proc.Procfs, pid: int) -> _Place:
    """Read root and working directory; without CAP_SYS_PTRACE both are taken for the host's."""
    root = _read_link(f"{procfs.root}/{pid}/root")
    directory = _read_link(f"{procfs.root}/{pid}/cwd")
    return _Place("" if root == "/" else root, directory.removeprefix(root.rstrip("/")) or "/")


def _read_link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return "/"


def _socket_path(place: _Place, endpoint: str) -> str:
    """Return the path of a ``unix://`` endpoint; without one, that of the first runtime found."""
    if endpoint:
        return place.resolve(endpoint.removeprefix("unix://"))
    found = (path for path in _RUNTIME_SOCKETS if _exists(place.resolve(path)))
    return place.resolve(next(found, _RUNTIME_SOCKETS[0]))


def _exists(path: str) -> bool:
    """Tell whether ``path`` is there; what may not be looked at counts as absent."""
    try:
        Path(path).stat()
    except OSError:
        return False
    return True


def _port(merged: Mapping[str, str], name: str) -> int:
    try:
        port = int(merged[name])
    except ValueError as error:
        raise SourceError(f"kubelet: --{name} is not a number") from error
    if not 0 <= port <= 65535:
        raise SourceError(f"kubelet: --{name} is no port: {port}")
    return port


def _node_name(override: str) -> str:
    """Return the Node's name: staging/.../component-helpers/node/util/hostname.go."""
    return (override or platform.node()).strip().lower()
