"""Say what this node lacks for checkpointd, what that costs, and what to do: `doctor`.

The one verb that asks others than the disk: kubelet, runtime, PID 1 and API server. It waits for
none of them beyond its time.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

HELP: str = "look at this node: what is missing, what it costs, what to do"
EPILOG: str = """\
Run it as root. It changes nothing, and works while the daemon is dead and while no API server
answers: what cannot be looked at is unknown.

examples:
  checkpointd doctor
  checkpointd doctor --json | jq '.sections[].findings[] | select(.level == "warning")'
  checkpointd doctor --rbac > checkpointd-rbac.yaml    # then, with an admin's kubeconfig:
  kubectl apply -f checkpointd-rbac.yaml

exit codes: 0 all is well; 1 something is missing, or could not be looked at; 2 something keeps
checkpointd from its work; 64 wrong usage
"""
SECONDS = 20.0
"""Seconds for all of it. The longest honest wait is a plugin that gives credentials: 10."""


def configure(parser: ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=SECONDS,
        help=f"wait no longer than this for all of it (default {SECONDS:g})",
    )
    parser.add_argument(
        "--rbac",
        action="store_true",
        help="print the RBAC objects for this node alone, and nothing else",
    )
    parser.add_argument(
        "--node-name", metavar="NAME", default="", help="with --rbac: the node (default: this one)"
    )


def run(arguments: Namespace) -> int:
    """Look at the node; the exit code is that of the worst finding. Raises CheckpointdError."""
    # Imported here: a verb that only reads a file should not wait for gRPC and requests.
    from checkpointd.cli.examine import visit

    return visit.run(arguments)
