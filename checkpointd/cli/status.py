"""Show in one screen what the daemon sees and thinks: `checkpointd status [POD]`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from checkpointd.cli import ages, choose, explain, picture, report, screen
from checkpointd.cli.picture import Picture
from checkpointd.cli.screen import Screen, Style
from checkpointd.model.checkpoint import Phase
from checkpointd.model.evidence import Is
from checkpointd.model.status import CheckpointStatus, SourceState, SourceStatus
from checkpointd.store import status as status_file

HELP: str = "show the node, its sources and its checkpoints"
EPILOG: str = (
    "exit codes: 0 healthy, 1 degraded or the daemon is dead, 2 a copy is active; "
    "64 wrong usage or no such pod, 69 no picture to read"
)
NEWS_FOR = 3600.0
"""Seconds for which the screen tells of what has happened and is not a state."""
HEADER = ("POD", "STATE", "FOR", "KIND", "GENERATION")


def configure(parser: ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("pod", metavar="POD", nargs="?", default="", help="show one pod only")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def run(arguments: Namespace) -> int:
    """Print the picture, or one pod of it; the exit code tells how it stands."""
    config_file: Path = arguments.config
    pod: str = arguments.pod
    seen = picture.read(config_file)
    if pod:
        return explain.show_pod(seen, pod, as_json=bool(arguments.json), in_full=False)
    if arguments.json:
        explain.show_json(seen, status_file.to_json(seen.status))
    else:
        screen.show(node_lines(seen, screen.screen_for(sys.stdout)))
    return report.exit_code(seen, seen.status.health)


def node_lines(seen: Picture, on: Screen) -> list[str]:
    """Lay out the whole node."""
    status = seen.status
    health = status.health
    title = f"checkpointd {status.version} on node {status.node or '(name not known yet)'}: "
    return [
        *report.daemon_lines(seen, on),
        on.paint(screen.clean(title), Style.BOLD)
        + on.paint(health.value, Style.BOLD, report.STYLES[health]),
        *on.wrap(status.summary),
        "",
        *_world_lines(seen, on),
        *_checkpoint_lines(seen, on),
        *report.bullet_lines("ALARMS", _alarms(seen), on, Style.RED),
        *_refused_lines(seen, on),
        *report.bullet_lines(_waiting_title(seen), _waiting(seen), on, Style.YELLOW),
        *report.bullet_lines(
            "MARKS THAT DO NOT COUNT",
            [f"{each.namespace}/{each.name}: {each.note}" for each in status.ignored],
            on,
            Style.YELLOW,
        ),
        *report.bullet_lines("OPERATORS' ORDERS", _orders(seen), on, Style.YELLOW),
        *report.bullet_lines("NOTES", [*status.notes], on, Style.DIM),
    ]


def _world_lines(seen: Picture, on: Screen) -> list[str]:
    status, now = seen.status, seen.moment
    lines: list[str] = []

    def add(name: str, *parts: str) -> None:
        lines.extend(on.wrap(", ".join(part for part in parts if part), f"{name:<10}"))

    if seen.alive:
        uptime = f"running {ages.lasting(status.started, now)} (pid {status.pid})"
        add("daemon", uptime, f"last change {ages.ago(status.written, now)}")
    where = f" ({status.api.address})" if status.api.address else ""
    add("API", f"{status.api.state.value} {ages.lasting(status.api.since, now)}{where}")
    if status.api.why:
        lines += on.wrap(status.api.why, " " * 10)
    renewed = status.api.node_renewed
    if renewed is not None and (ages.seconds_between(renewed, now) or 0.0) < NEWS_FOR:
        told = f"our Node was made anew {ages.ago(renewed, now)}: another UID, the same cluster"
        lines += on.wrap(told, " " * 10)
    add("kubelet", *_kubelet(seen))
    runtime = status.runtime
    idle = {each.name for each in status.sources if each.state is SourceState.IDLE}
    unknown = "not asked yet" if "runtime" in idle else "not known"
    add("runtime", runtime.version or unknown, runtime.api, runtime.socket)
    for state, name in ((SourceState.UNKNOWN, "unknown"), (SourceState.OFF, "off")):
        for source in (each for each in status.sources if each.state is state):
            add(name, _source(source, seen))
    if status.frozen:
        add("frozen", status.frozen)
    return lines


def _kubelet(seen: Picture) -> list[str]:
    kubelet = seen.status.kubelet
    since = ages.lasting(kubelet.since, seen.moment)
    if kubelet.present is Is.NO:
        return ["no kubelet process", kubelet.why]
    if kubelet.present is Is.UNKNOWN:
        return ["unknown", kubelet.why]
    answer = {Is.YES: "answers", Is.NO: "gives NO LIST of its pods", Is.UNKNOWN: "not asked yet"}
    running = " ".join(part for part in ("running", since, f"(pid {kubelet.pid})") if part)
    return [kubelet.version, running, answer[kubelet.answers]]


def _source(source: SourceStatus, seen: Picture) -> str:
    since = ages.lasting(source.since, seen.moment)
    text = " ".join(part for part in (source.name, since) if part)
    optional = "" if source.needed else " (optional)"
    return f"{text}: {source.why}{optional}" if source.why else f"{text}{optional}"


def _checkpoint_lines(seen: Picture, on: Screen) -> list[str]:
    each = seen.status.checkpoints
    if not each:
        return ["", "No checkpoints: no pod of this node is marked and stored (README, Mark a pod)"]
    header, *rows = on.table([HEADER, *(_row(one, seen) for one in each)])
    lines = ["", on.paint(header, Style.BOLD)]
    for one, row in zip(each, rows, strict=True):
        colour = report.STYLES[one.health]
        lines.append(row if colour is Style.GREEN else on.paint(row, colour))
        coming = report.next_text(one, seen)
        lines += on.wrap(coming, "    next: ") if coming else []
    return lines


def _row(one: CheckpointStatus, seen: Picture) -> tuple[str, ...]:
    kind = f"{one.kind.value}, API" if one.serves_api else one.kind.value
    state = f"{one.phase.value}, {one.order}" if one.order else one.phase.value
    since = ages.lasting(one.since, seen.moment).removeprefix("for ")
    name = choose.full_name(one)
    return name, state, since, kind, report.generation_text(one)


def _alarms(seen: Picture) -> list[str]:
    status = seen.status
    return [
        *status.alarms,
        *(f"{choose.full_name(one)}: {text}" for one in status.checkpoints for text in one.alarms),
    ]


def _refused_lines(seen: Picture, on: Screen) -> list[str]:
    status = seen.status
    stale = [
        f"{choose.full_name(one)}: as it is now it cannot be stored, an older generation stays: "
        f"{one.refusal}"
        for one in status.checkpoints
        if one.refusal
    ]
    lines = report.bullet_lines("REFUSED AS THEY ARE NOW", stale, on, Style.YELLOW)
    if status.refused:
        lines += ["", on.paint("REFUSED", Style.BOLD, Style.YELLOW)]
    return lines + [line for each in status.refused for line in report.refused_lines(each, on)]


def _waiting_title(seen: Picture) -> str:
    gone = (Phase.TOMBSTONE, Phase.REMOVED)
    stored = sum(each.phase not in gone for each in seen.status.checkpoints)
    marked = stored + len(seen.status.refused) + len(seen.status.waiting)
    return f"WAITING: {stored} of {marked} marked pods have a checkpoint"


def _waiting(seen: Picture) -> list[str]:
    return [f"{each.namespace}/{each.name}: {each.why}" for each in seen.status.waiting]


def _orders(seen: Picture) -> list[str]:
    return [
        f"{each.target}: {each.order.verb.value}"
        + (f" until {each.order.until}" if each.order.until else " without an end")
        + (f" ({each.order.reason})" if each.order.reason else "")
        for each in seen.status.orders
    ]
