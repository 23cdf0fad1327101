"""Hold the frozen settings: what the configuration says, with every default filled in.

Nothing here reads a file. The defaults of these classes are the defaults of the table (``keys``).
"""

from __future__ import annotations

from collections.abc import Mapping
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

    @property
    def status_file(self) -> Path:
        """Return where the daemon writes what it sees and thinks."""
        return self.run / "status.json"

    @property
    def last_good_file(self) -> Path:
        """Return where the last configuration without a fault is kept (``write.dump``)."""
        return self.state / "settings.last-good.toml"


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
    """Hold the whole configuration.

    ``origins`` names the file that set a key ("times.boot-hold"); what is not in it is a default.
    Two settings are equal if they say the same, wherever it was written.
    """

    policy: Policy = field(default_factory=Policy)
    paths: Paths = field(default_factory=Paths)
    kubelet: KubeletSettings = field(default_factory=KubeletSettings)
    log_level: str = "info"
    origins: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
