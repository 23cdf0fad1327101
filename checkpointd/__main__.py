"""Start the program: the command line, or the daemon as one of its verbs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from checkpointd.cli import arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code (sysexits.h; ``status`` has its own)."""
    return arguments.main(argv, _run_daemon)


def _run_daemon(config_file: Path) -> int:
    # Imported here: a command that only reads a file should not wait for gRPC and requests.
    from checkpointd import daemon

    return daemon.run(config_file)


if __name__ == "__main__":
    sys.exit(main())
