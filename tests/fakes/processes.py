"""Run real processes under names of our choice."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

SLEEP = "/bin/sleep"


@contextmanager
def running(
    directory: Path,
    name: str,
    *arguments: str,
    program: str = SLEEP,
    called: str = "",
    pass_fds: Sequence[int] = (),
) -> Generator[subprocess.Popen[bytes]]:
    """Run ``program`` in ``directory`` with ``name`` as its comm, ``called`` as its argument 0.

    It runs once it has its name: an exec is over for the parent a moment before that.
    """
    link = directory / name
    if not link.is_symlink():
        link.symlink_to(program)
    command = [called or str(link), *(arguments or ("600",))]
    with subprocess.Popen(command, executable=link, cwd=directory, pass_fds=pass_fds) as process:
        try:
            _wait_for_name(process.pid, name[:15], command)
            yield process
        finally:
            process.kill()


def _wait_for_name(pid: int, name: str, command: Sequence[str]) -> None:
    deadline = time.monotonic() + 10
    directory = Path("/proc") / str(pid)
    arguments = "".join(f"{argument}\0" for argument in command)
    while time.monotonic() < deadline:
        named = (directory / "comm").read_text(encoding="utf-8").rstrip("\n") == name
        if named and (directory / "cmdline").read_text(encoding="utf-8") == arguments:
            return
    raise AssertionError(f"{name} did not start")
