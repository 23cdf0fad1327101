"""Show what the configuration says, each key with its file, or every fault: `config`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from checkpointd import settings
from checkpointd.cli import screen

HELP: str = "check the configuration and show what holds"
EPILOG: str = "exit codes: 0 good, 78 faulty; every fault is printed, with its file and key"


def configure(parser: ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: Namespace) -> int:
    """Print every key, its value and where that comes from. Raises ConfigError."""
    config_file: Path = arguments.config
    entries = settings.effective(settings.load(config_file))
    if arguments.json:
        found = {entry.key: {"toml": entry.value, "origin": entry.origin} for entry in entries}
        screen.show([json.dumps(found, indent=2)])
    else:
        rows = [(entry.key, entry.value, entry.origin) for entry in entries]
        screen.show(screen.screen_for(sys.stdout).table([("KEY", "VALUE", "FROM"), *rows]))
    return 0
