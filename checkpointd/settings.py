"""Read /etc/checkpointd/checkpointd.toml and its drop-ins: frozen settings, all errors at once.

One table (``KEYS``) names each option, its type, default and meaning; the shipped file, the manual
and ``checkpointd config`` are made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from checkpointd.model.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Hold the places of the host; redirected in tests only."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    state: Path = Path("/var/lib/checkpointd")
    run: Path = Path("/run/checkpointd")
    boot_id: Path = Path("/proc/sys/kernel/random/boot_id")
    manager_socket: Path = Path("/run/systemd/private")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """Hold what overrides the kubelet's own arguments and configuration; "" and 0 mean: find it."""

    manifest_dir: str = ""
    root_dir: str = ""
    cri_socket: str = ""
    kubeconfig: str = ""
    node_name: str = ""
    address: str = ""
    port: int = 0
    read_only_port: int = 0
    healthz_port: int = 0
    ca_file: str = ""
    server_certificate: str = ""
    client_certificate: str = ""
    client_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hold the whole configuration."""

    policy: Policy = field(default_factory=Policy)
    paths: Paths = field(default_factory=Paths)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    log_level: str = "info"
