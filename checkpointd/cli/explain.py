"""Say of one pod why it is as it is: each witness, the rule that holds, what would come next."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from checkpointd.cli import ages, choose, picture, report, screen
from checkpointd.cli.picture import Picture
from checkpointd.cli.screen import Screen, Style
from checkpointd.json_fields import Json
from checkpointd.model.status import SCHEMA, CheckpointStatus, Health, WitnessStatus

HELP: str = "say why a pod's checkpoint is as it is, and what would come next"
EPILOG: str = "POD: the name of a pod or a copy, namespace/name, or a slot (ds.kube-apiserver)"


def configure(parser: ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("pod", metavar="POD", help="the pod, its copy, or its slot")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: Namespace) -> int:
    """Print one pod in full; exit 0 if it is known, whatever its state."""
    config_file: Path = arguments.config
    pod: str = arguments.pod
    seen = picture.read(config_file)
    show_pod(seen, pod, as_json=bool(arguments.json), in_full=True)
    return 0


def show_pod(seen: Picture, pod: str, *, as_json: bool, in_full: bool) -> int:
    """Print one pod and return the exit code of its state. Raises UsageError for no such pod."""
    found = choose.find(seen.status, pod)
    on = screen.screen_for(sys.stdout)
    if as_json:
        show_json(seen, {"schema": SCHEMA, **report.document(found)})
    elif isinstance(found, CheckpointStatus):
        screen.show(pod_lines(found, seen, on, in_full=in_full))
    else:
        screen.show([*report.daemon_lines(seen, on), *report.refused_lines(found, on)])
    health = found.health if isinstance(found, CheckpointStatus) else Health.DEGRADED
    return report.exit_code(seen, health)


def show_json(seen: Picture, document: Json) -> None:
    """Print a document with what only a reader can know: is the daemon alive, how old is this."""
    age = ages.seconds_between(seen.status.written, seen.now)
    extra = {"daemon_alive": seen.alive, "seconds_since_written": age}
    screen.show([json.dumps({**document, **extra}, indent=2, sort_keys=True)])


def pod_lines(one: CheckpointStatus, seen: Picture, on: Screen, *, in_full: bool) -> list[str]:
    """Lay out one checkpoint; ``in_full`` with its witnesses and its history."""
    state = f"{one.phase.value} {ages.lasting(one.since, seen.moment)}"
    lines = [
        *report.daemon_lines(seen, on),
        on.paint(screen.clean(f"{choose.full_name(one)}: "), Style.BOLD)
        + on.paint(state, Style.BOLD, report.STYLES[one.health]),
        *on.wrap(one.sentence, f"rule {one.rule}: "),
    ]
    coming = report.next_text(one, seen) or "nothing by itself, until something changes"
    lines += on.wrap(coming, "next: ")
    if in_full:
        lines += _evidence_lines(one, seen, on)
    lines += ["", *_fact_lines(one, seen, on)]
    lines += report.bullet_lines("ALARMS", list(one.alarms), on, Style.RED)
    lines += report.bullet_lines("WARNINGS", list(one.warnings), on, Style.YELLOW)
    return lines + (_history_lines(one, seen, on) if in_full else [])


def _evidence_lines(one: CheckpointStatus, seen: Picture, on: Screen) -> list[str]:
    lines = ["", on.paint("WHAT IS KNOWN", Style.BOLD)]
    for answer in one.evidence:
        lines += on.wrap(f"{answer.question} {answer.answer}", "  ", "    ")
        for witness in answer.witnesses:
            lines += on.wrap(_witness(witness, seen), "    - ", "      ")
    return lines if one.evidence else []


def _witness(witness: WitnessStatus, seen: Picture) -> str:
    age = "" if witness.at is None else f" ({ages.ago(witness.at, seen.moment)})"
    return f"{witness.source}: {witness.says}{age}"


def _fact_lines(one: CheckpointStatus, seen: Picture, on: Screen) -> list[str]:
    lines: list[str] = []

    def add(name: str, text: str) -> None:
        lines.extend(on.wrap(text, f"{name:<12}"))

    add("slot", f"{one.namespace}/{one.slot}")
    for name, pod in (("parent", one.parent), ("successor", one.successor)):
        if pod is not None:
            add(name, f"{pod.name} (uid {pod.uid})")
    add("kind", one.kind.value + (", serves the API" if one.serves_api else ""))
    if one.generation is not None:
        stored = ages.ago(one.generation.stored, seen.moment)
        kept = f"{one.generations} kept" if one.generations else ""
        add("generation", f"{report.generation_text(one)}, stored {stored}, {kept}".rstrip(", "))
    else:
        add("generation", "none yet")
    if one.activation is not None:
        add("copy", f"{one.activation.name} (uid {one.activation.uid})")
        since = ages.lasting(one.activation.since, seen.moment)
        rule = f", by rule {one.activation.rule}" if one.activation.rule else ""
        add("manifest", f"{one.activation.file}, {since}{rule}")
    if one.order:
        add("ordered", one.order)
    if one.refusal:
        add("refused", f"as it is now: {one.refusal}")
    return lines


def _history_lines(one: CheckpointStatus, seen: Picture, on: Screen) -> list[str]:
    lines = ["", on.paint("LAST TRANSITIONS", Style.BOLD)]
    for past in one.history:
        when = past.at.wall[:19].replace("T", " ") or ages.ago(past.at, seen.moment)
        text = f"{past.before.value} -> {past.after.value}, rule {past.rule}: {past.sentence}"
        lines += on.wrap(f"{when} {text}", "  ", "    ")
    return lines if one.history else []
