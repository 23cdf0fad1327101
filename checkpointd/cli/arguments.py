"""Parse the command line, call the verb, and turn what it raises into words and an exit code."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Protocol

from checkpointd import settings
from checkpointd.cli import check, config, doctor, explain, render, screen, status, version
from checkpointd.errors import CheckpointdError, UsageError

DESCRIPTION = "Keep marked pods of this Kubernetes node alive while no API server answers."
EPILOG = "What it does and why: journalctl -u checkpointd. More on a verb: checkpointd help VERB."

RunDaemon = Callable[[Path], int]


class Verb(Protocol):
    """Say what a verb's module offers."""

    HELP: str
    EPILOG: str

    def configure(self, parser: argparse.ArgumentParser, /) -> None:
        """Add the verb's arguments."""
        ...

    def run(self, arguments: argparse.Namespace, /) -> int:
        """Do it and return the exit code."""
        ...


VERBS: Mapping[str, Verb] = {
    "status": status,
    "explain": explain,
    "check": check,
    "render": render,
    "config": config,
    "doctor": doctor,
    "version": version,
}


class _Formatter(argparse.HelpFormatter):
    """Wrap text as ever, but keep the lines of one that has several: examples, exit codes."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in text.splitlines())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse would exit with 2, which says that a copy is active.
        self.print_usage(sys.stderr)
        self.exit(UsageError.exit_code, f"{self.prog}: {message}\n")


def main(argv: Sequence[str] | None, run_daemon: RunDaemon) -> int:
    """Run one command and return its exit code.

    ``run_daemon`` takes the configuration's file; it is passed in because it stands on a floor of
    its own. Errors are printed without a traceback, with the exit code of their class (sysexits.h).
    """
    parser = build_parser(run_daemon)
    arguments = parser.parse_args(argv)
    call: Callable[[argparse.Namespace], int] | None = arguments.call
    if call is None:
        parser.print_help()
        return 0
    try:
        code = call(arguments)
        sys.stdout.flush()
    except CheckpointdError as error:
        lines = f"checkpointd: {error}".splitlines()
        screen.show((screen.clean(line) for line in lines), sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # `checkpointd status | head`: nobody reads on. Python would complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def build_parser(run_daemon: RunDaemon) -> argparse.ArgumentParser:
    """Make the parser of all verbs."""
    parser = _Parser(prog="checkpointd", description=DESCRIPTION, epilog=EPILOG)
    _add_config(parser, settings.DEFAULT_FILE)
    parser.set_defaults(call=None)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", parser_class=_Parser)
    known: dict[str, argparse.ArgumentParser] = {}
    daemon_help = "be the daemon; systemd calls this"
    daemon = verbs.add_parser("run", help=daemon_help, description=daemon_help)
    daemon.set_defaults(call=functools.partial(_run, run_daemon))
    _add_config(daemon, argparse.SUPPRESS)
    known["run"] = daemon
    for name, verb in VERBS.items():
        child = verbs.add_parser(
            name,
            help=verb.HELP,
            description=verb.HELP,
            epilog=verb.EPILOG,
            formatter_class=_Formatter,
        )
        verb.configure(child)
        _add_config(child, argparse.SUPPRESS)
        child.set_defaults(call=verb.run)
        known[name] = child
    help_text = "explain a verb, with examples"
    helper = verbs.add_parser("help", help=help_text, description=help_text)
    helper.add_argument("verb", metavar="VERB", nargs="?", choices=sorted(known), help="which one")
    helper.set_defaults(call=functools.partial(_help, parser, known))
    return parser


def _help(
    parser: argparse.ArgumentParser,
    known: Mapping[str, argparse.ArgumentParser],
    arguments: argparse.Namespace,
) -> int:
    verb: str | None = arguments.verb
    (parser if verb is None else known[verb]).print_help()
    return 0


def _run(run_daemon: RunDaemon, arguments: argparse.Namespace) -> int:
    config_file: Path = arguments.config
    return run_daemon(config_file)


def _add_config(parser: argparse.ArgumentParser, default: Path | str) -> None:
    text = f"the configuration (default {settings.DEFAULT_FILE})"
    parser.add_argument("--config", metavar="FILE", type=Path, default=default, help=text)
