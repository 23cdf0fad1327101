"""Wire the daemon together: settings, store, sources, cycle, signals. To be written."""

from __future__ import annotations

from pathlib import Path


def run(config_file: Path) -> int:
    """Be the daemon until SIGTERM and return the exit code."""
    raise NotImplementedError(f"the daemon is not wired yet ({config_file})")
