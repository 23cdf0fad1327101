"""Print the version: `checkpointd version`."""

from __future__ import annotations

import json
import platform
from argparse import ArgumentParser, Namespace

import checkpointd
from checkpointd.cli import screen
from checkpointd.model.status import SCHEMA

HELP: str = "print the version"
EPILOG: str = ""


def configure(parser: ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: Namespace) -> int:
    """Print the version of the program."""
    python = platform.python_version()
    if arguments.json:
        found = {"version": checkpointd.__version__, "python": python, "status_schema": SCHEMA}
        screen.show([json.dumps(found, indent=2, sort_keys=True)])
    else:
        screen.show([f"checkpointd {checkpointd.__version__} (Python {python})"])
    return 0
