"""Show the manifest that the daemon would place for workloads in a file: `render FILE`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import checkpointd
from checkpointd import json_fields, settings
from checkpointd.cli import check, screen, trials
from checkpointd.cli.documents import Read
from checkpointd.cli.trials import Trial
from checkpointd.errors import UsageError
from checkpointd.render import placing, trial
from checkpointd.render.copy import NodeFacts
from checkpointd.render.trial import Verdict
from checkpointd.store import layout

HELP: str = "show the static pod that a pod of a file would get as its copy; needs no cluster"
EPILOG: str = """\
It prints the manifest as the daemon would place it, in JSON, one after the other where FILE holds
several workloads. What only a node has is left open, and named on standard error: the files of
volumes, the copy's own suffix and UID, the variables of the service default/kubernetes. No content
of a secret is ever read or printed.

examples:
  checkpointd render pod.yaml
  kubectl get pod -n kube-system kube-proxy-x7k2p -o yaml | checkpointd render -

exit codes: 0 rendered; 1 refused (the reasons stand on standard error), or nothing to render;
64 wrong usage
"""


def configure(parser: ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("file", metavar="FILE", help='a file as for `check`, "-": standard input')
    parser.add_argument(
        "--node-name", metavar="NAME", default="node", help="the node's name (default: node)"
    )
    check.add_version(parser)
    parser.add_argument(
        "--json", action="store_true", help="print manifests, findings and what is left open"
    )


def run(arguments: Namespace) -> int:
    """Print the manifests of the file's workloads; exit 1 where one is refused."""
    config_file: Path = arguments.config
    file: str = arguments.file
    version: str = arguments.kubernetes_version
    node = trials.node_facts(version, str(arguments.node_name))
    heard = list(trials.hold([file], node))
    held = [one for one in heard if isinstance(one, Trial)]
    unread = [one for one in heard if isinstance(one, Read)]
    store = str(settings.read_paths(config_file).state)
    placed = [(one, _place(one.verdict, node, store)) for one in held]
    if arguments.json:
        screen.show([json.dumps(_document(placed, unread), indent=2)])
    else:
        _print(placed, unread)
    return 0 if placed and check.is_good(heard) else 1


Placed = Sequence[tuple[Trial, bytes | None]]


def _place(verdict: Verdict, node: NodeFacts, store: str) -> bytes | None:
    """Return the manifest, None where the workload is refused. Raises UsageError.

    A manifest that passed on trial fails here only for the node's name or the store's path.
    """
    candidate = verdict.candidate
    if candidate is None:
        return None
    slot = f"{candidate.slot.namespace}/{layout.slot_directory(candidate.slot)}"
    root = f"{store}/{layout.CHECKPOINTS}/{slot}"
    placement = trial.example_placement(candidate, node, checkpointd.__version__, root)
    content = placing.place(candidate.manifest, placement)
    if not isinstance(content, bytes):
        raise UsageError("; ".join(str(refusal) for refusal in content))
    return content


def _print(placed: Placed, unread: Sequence[Read]) -> None:
    on = screen.screen_for(sys.stderr)
    for held, content in placed:
        lines = check.lines_of(held, on)
        if content is not None:
            sys.stdout.write(content.decode())
            lines += [line for text in _left_open(held) for line in on.wrap(text, "  - ", "    ")]
        screen.show(lines, sys.stderr)
    screen.show((line for read in unread for line in check.lines_of(read, on)), sys.stderr)
    if not placed and not unread:
        screen.show(["nothing to render: no workload in what was read"], sys.stderr)


def _left_open(held: Trial) -> list[str]:
    """Say what stands in the manifest for what only a node has."""
    open_ = [
        f"volume {one.volume}: the files of {one.source} are not read; the path is where a node "
        "would put them"
        for one in held.verdict.stand_ins
    ]
    open_.append(
        "name, UID and generation are examples: those of a real copy come from the node, its boot "
        "and the files"
    )
    open_.append("KUBERNETES_SERVICE_HOST and _PORT are added on the node, as its pods have them")
    return open_


def _document(placed: Placed, unread: Sequence[Read]) -> dict[str, object]:
    return {
        "workloads": [
            {
                **trials.trial_json(held),
                "manifest": None
                if content is None
                else json_fields.parse_object(content, "manifest"),
                "left_open": _left_open(held) if content is not None else [],
            }
            for held, content in placed
        ],
        "unreadable": [trials.unread_json(read) for read in unread],
    }
