"""Say of workloads in files whether their pods could be checkpointed: `check FILE...`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence

from checkpointd.cli import screen, trials
from checkpointd.cli.documents import Read
from checkpointd.cli.screen import Screen, Style
from checkpointd.cli.trials import Heard, PassedOver, Trial
from checkpointd.render.trial import Outcome

HELP: str = "say whether the pods of workloads in files could be checkpointed; needs no cluster"
EPILOG: str = """\
FILE holds YAML or JSON, one document or several: Pod, PodTemplate, Deployment, DaemonSet,
StatefulSet, ReplicaSet, ReplicationController, Job, CronJob, or a List of them. Other objects are
passed over. It is read as the kubelet reads it. One line per workload: ok, ok with warnings, or
refused; under it each finding with its path, the reason and the remedy.

examples:
  checkpointd check manifests/*.yaml
  helm template chart | checkpointd check --kubernetes-version 1.35 -
  kubectl get daemonset -A -o yaml | checkpointd check --json -

exit codes: 0 all are ok, with warnings or without; 1 one is refused, a file cannot be read, or
there was nothing to read; 64 wrong usage
"""
STYLES = {
    Outcome.OK: Style.GREEN,
    Outcome.WARNED: Style.YELLOW,
    Outcome.REFUSED: Style.RED,
}
_WIDTH = max(len(outcome.value) for outcome in Outcome)


def configure(parser: ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("files", metavar="FILE", nargs="+", help='a file, "-" for standard input')
    add_version(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def add_version(parser: ArgumentParser) -> None:
    """Add the option that names the kubelet's version."""
    parser.add_argument(
        "--kubernetes-version",
        metavar="VERSION",
        default="",
        help="the version of the nodes' kubelets, as 1.35; without it what older ones lack is "
        "not told",
    )


def run(arguments: Namespace) -> int:
    """Print the verdicts; exit 0 if all workloads are ok."""
    files: list[str] = arguments.files
    version: str = arguments.kubernetes_version
    heard = list(trials.hold(files, trials.node_facts(version)))
    if arguments.json:
        screen.show([json.dumps(document(heard, version), indent=2)])
    else:
        on = screen.screen_for(sys.stdout)
        screen.show(line for one in heard for line in lines_of(one, on))
        screen.show(_summary(heard), sys.stderr)
    return 0 if is_good(heard) else 1


def is_good(heard: Sequence[Heard]) -> bool:
    """Tell whether something was read, all of it could be, and nothing is refused."""
    return bool(heard) and not any(
        isinstance(one, Read) or (isinstance(one, Trial) and one.verdict.outcome is Outcome.REFUSED)
        for one in heard
    )


def lines_of(heard: Heard, on: Screen) -> list[str]:
    """Lay out what was heard of one document or workload."""
    if isinstance(heard, PassedOver):
        return []
    if isinstance(heard, Read):
        word = on.paint("unreadable".ljust(_WIDTH), Style.BOLD, Style.RED)
        return [f"{word}  {screen.clean(f'{heard.place}: {heard.problem}')}"]
    outcome = heard.verdict.outcome
    candidate = heard.verdict.candidate
    kind = f" ({candidate.kind.value})" if candidate is not None else ""
    line = screen.clean(f"{heard.workload}{kind}  {heard.read.place}")
    lines = [f"{on.paint(outcome.value.ljust(_WIDTH), Style.BOLD, STYLES[outcome])}  {line}"]
    for finding in heard.verdict.findings:
        lines += trials.finding_lines(finding, on)
    return lines


def document(heard: Sequence[Heard], version: str) -> dict[str, object]:
    """Return all of it as ``--json`` shows it."""
    return {
        "ok": is_good(heard),
        "kubernetes_version": version,
        "workloads": [trials.trial_json(one) for one in heard if isinstance(one, Trial)],
        "unreadable": [trials.unread_json(one) for one in heard if isinstance(one, Read)],
        "passed_over": [
            {"file": one.read.file, "line": one.read.line, "kind": one.other.kind}
            for one in heard
            if isinstance(one, PassedOver)
        ],
    }


def _summary(heard: Sequence[Heard]) -> list[str]:
    if not heard:
        return ["nothing to check: no document in what was read"]
    counts = Counter(one.verdict.outcome for one in heard if isinstance(one, Trial))
    parts = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
    unread = sum(isinstance(one, Read) for one in heard)
    others = Counter(one.other.kind for one in heard if isinstance(one, PassedOver))
    parts += [f"{unread} unreadable"] if unread else []
    line = f"{sum(counts.values())} workloads"
    line += f": {', '.join(parts)}" if parts else ""
    if others:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(others.items()))
        line += f"; passed over: {kinds}"
    return [screen.clean(line)]
