"""A procfs of links to the real one: only the processes that are put into it exist.

Leaving it gives psutil its own place back.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import TracebackType

import psutil

REAL = Path("/proc")
_ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
_WAY_OUT = "eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"


class ProcTree:
    """Hold processes below ``root``; ``net/tcp`` and ``net/tcp6`` are the real ones."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._psutil_path: str = psutil.PROCFS_PATH
        (root / "net").mkdir(parents=True)
        # psutil 5.9 reads the time of the boot there.
        (root / "stat").symlink_to(REAL / "stat")
        for name in ("tcp", "tcp6"):
            (root / "net" / name).symlink_to(REAL / "net" / name)
        self.set_default_route(exists=True)

    def __enter__(self) -> ProcTree:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        psutil.PROCFS_PATH = self._psutil_path

    def add(self, pid: int, *, cgroup: str = "0::/system.slice\n", seen_as: int = 0) -> None:
        """Let a real process be seen (as PID ``seen_as``), in the cgroup that ``cgroup`` tells."""
        directory = self.root / str(seen_as or pid)
        directory.mkdir()
        for file in (REAL / str(pid)).iterdir():
            if file.name != "cgroup":
                # root, cwd and exe are links themselves: who reads one must get what it says.
                target = file.readlink() if file.is_symlink() else file
                (directory / file.name).symlink_to(target)
        (directory / "cgroup").write_text(cgroup, encoding="utf-8")

    def remove(self, pid: int) -> None:
        """Let a process be seen no more."""
        shutil.rmtree(self.root / str(pid))

    def set_default_route(self, *, exists: bool) -> None:
        """Write net/route."""
        table = _ROUTES + (_WAY_OUT if exists else "")
        (self.root / "net" / "route").write_text(table, encoding="ascii")
