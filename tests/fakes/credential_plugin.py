"""Be an exec credential plugin: a program whose answers a test sets, and which counts its runs."""

from __future__ import annotations

import json
from pathlib import Path

VERSION = "client.authentication.k8s.io/v1"
_SCRIPT = """\
#!/bin/sh
here=${0%/*}
env > "$here/environment"
for argument; do echo "$argument"; done > "$here/arguments"
echo $$ >> "$here/runs"
. "$here/behaviour"
"""


class CredentialPlugin:
    """Lie below a directory as ``bin/plugin``."""

    def __init__(self, directory: Path, name: str = "plugin") -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        self.path = self.directory / name
        self.path.write_text(_SCRIPT)
        self.path.chmod(0o755)
        self.gives(token="first")

    def gives(self, version: str = VERSION, **status: object) -> None:
        """Answer with this status: token, clientCertificateData, expirationTimestamp, ..."""
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        self.writes(json.dumps(answer))

    def writes(self, output: str) -> None:
        """Answer with these very bytes."""
        self.directory.joinpath("answer").write_text(output)
        self.behaves('cat "$here/answer"')

    def behaves(self, script: str) -> None:
        """Do as a piece of shell says."""
        new = self.directory / "behaviour.new"
        new.write_text(script + "\n")
        new.replace(self.directory / "behaviour")

    def hangs(self) -> None:
        """Hang, with a child, and with one in a session of its own."""
        self.behaves(
            'sleep 1000 & echo $! > "$here/child"; '
            'setsid sleep 1000 & echo $! > "$here/stranger"; '
            ': > "$here/hanging"; sleep 1000'
        )

    @property
    def is_hanging(self) -> bool:
        """Tell whether a run hangs, its children started."""
        return (self.directory / "hanging").exists()

    @property
    def pids(self) -> list[int]:
        """Return the process of each run so far."""
        file = self.directory / "runs"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    @property
    def runs(self) -> int:
        """Return how often it was run."""
        return len(self.pids)

    @property
    def children(self) -> list[int]:
        """Return the children of a run that hangs."""
        return [int((self.directory / name).read_text()) for name in ("child", "stranger")]

    @property
    def environment(self) -> dict[str, str]:
        """Return what the last run had for an environment."""
        lines = (self.directory / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def arguments(self) -> list[str]:
        """Return what the last run had for arguments."""
        return (self.directory / "arguments").read_text().splitlines()

    def section(self, **more: object) -> dict[str, object]:
        """Return the exec section of a kubeconfig that lies beside ``bin``."""
        return {
            "apiVersion": VERSION,
            "command": f"./bin/{self.path.name}",
            "interactiveMode": "Never",
            **more,
        }


def lives(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
