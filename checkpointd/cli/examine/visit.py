"""Visit the node: run all examinations, print what they found, or the RBAC objects."""

from __future__ import annotations

import json
import platform
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import checkpointd
from checkpointd.cli import rbac, screen
from checkpointd.cli.examine import (
    cluster,
    daemon,
    disk,
    identity,
    kubelet,
    manifests,
    sections,
)
from checkpointd.cli.examine import scene as scenes
from checkpointd.cli.examine.finding import Finding, Level, note, unknown
from checkpointd.cli.examine.scene import Scene
from checkpointd.cli.examine.sections import Examine, Section
from checkpointd.cli.screen import Screen, Style
from checkpointd.clients import certificates
from checkpointd.clients import kubelet as kubelet_client
from checkpointd.clients.tls_words import NODE_USER
from checkpointd.errors import CheckpointdError, FieldError, SourceError, UsageError
from checkpointd.render import identity as names

SCHEMA = 1
STYLES = {
    Level.OK: Style.GREEN,
    Level.NOTE: Style.DIM,
    Level.UNKNOWN: Style.YELLOW,
    Level.WARNING: Style.YELLOW,
    Level.FAULT: Style.RED,
}
_WIDTH = max(len(level.value) for level in Level)


def _versions(scene: Scene) -> Iterator[Finding]:
    yield note("checkpointd", f"{checkpointd.__version__} on Python {platform.python_version()}")
    yield note("kernel", platform.release())
    if scene.record is not None:
        for name in ("kubelet", "runtime"):
            version = scene.record.discovered.get(f"{name}_version", "")
            if version:
                yield note(name, f"{version}, as last found")


EXAMINATIONS: tuple[tuple[str, Examine], ...] = (
    ("configuration", daemon.examine_configuration),
    ("daemon", daemon.examine_daemon),
    ("kubelet", kubelet.examine_kubelet),
    ("container runtime", kubelet.examine_runtime),
    ("store", disk.examine_store),
    ("static-pod directory", manifests.examine_manifests),
    ("credentials", identity.examine_credentials),
    ("API server", cluster.examine_api),
    ("permissions", cluster.examine_permissions),
    ("versions", _versions),
)


def run(arguments: Namespace) -> int:
    """Look at the node; the exit code is that of the worst finding."""
    config_file: Path = arguments.config
    seconds: float = arguments.timeout
    if not 0 < seconds <= 3600:
        raise UsageError("--timeout: expected seconds, at most an hour")
    end = time.monotonic() + seconds
    if arguments.rbac:
        return _print_rbac(config_file, str(arguments.node_name), end)
    found = _look(config_file, end)
    if isinstance(found, Scene):
        node, held = found.node_name.value, sections.examine(found, EXAMINATIONS, end)
    else:
        node, held = "", [Section("node", [unknown("node", found)])]
    if arguments.json:
        screen.show([json.dumps(document(held, node), indent=2)])
    else:
        on = screen.screen_for(sys.stdout)
        screen.show(line for section in held for line in section_lines(section, on))
        screen.show(_summary(held, node))
    return sections.worst(held).exit_code


def _look(config_file: Path, end: float) -> Scene | str:
    """Return the scene, or why there is none in time. Raises CheckpointdError."""
    found: list[Scene] = []
    failed: list[CheckpointdError] = []

    def look() -> None:
        try:
            found.append(scenes.look(config_file))
        except CheckpointdError as error:
            failed.append(error)

    thread = threading.Thread(target=look, daemon=True, name="scene")
    thread.start()
    thread.join(max(0.0, end - time.monotonic()))
    if failed:
        raise failed[0]
    return found[0] if found else "its files and processes cannot be read in time"


# ---- output --------------------------------------------------------------------------------------
def section_lines(section: Section, on: Screen) -> list[str]:
    """Lay out one section."""
    lines = [on.paint(section.name.upper(), Style.BOLD)]
    indent = " " * (_WIDTH + 4)
    for finding in section.findings:
        word = finding.level.value.ljust(_WIDTH)
        wrapped = on.wrap(f"{finding.subject}: {finding.says}", indent, indent)
        first = wrapped[0].removeprefix(indent)
        lines += [f"  {on.paint(word, STYLES[finding.level])}  {first}", *wrapped[1:]]
        for title, text in (("costs", finding.costs), ("do", finding.remedy)):
            if text:
                lines += on.wrap(text, f"{indent}{title}: ", f"{indent}  ")
    return [*lines, ""]


def document(held: Sequence[Section], node: str) -> dict[str, object]:
    """Return all of it as ``--json`` shows it."""
    return {
        "schema": SCHEMA,
        "node": node,
        "worst": sections.worst(held).value,
        "sections": [
            {
                "name": section.name,
                "findings": [
                    {
                        "level": finding.level.value,
                        "subject": finding.subject,
                        "says": finding.says,
                        "costs": finding.costs,
                        "remedy": finding.remedy,
                    }
                    for finding in section.findings
                ],
            }
            for section in held
        ],
    }


def _summary(held: Sequence[Section], node: str) -> list[str]:
    counts = [
        f"{count} {level.value}"
        for level in Level
        if (count := sum(f.level is level for one in held for f in one.findings))
    ]
    return [screen.clean(f"node {node or '(name not known)'}: {', '.join(counts)}")]


# ---- RBAC ----------------------------------------------------------------------------------------
def _print_rbac(config_file: Path, named: str, end: float) -> int:
    """Print the objects of one node. Raises UsageError where its name is not known."""
    found = None if named else _look(config_file, end)
    node = named or (found.node_name.value if isinstance(found, Scene) else "")
    if not node:
        raise UsageError("the node's name is not known: name it with --node-name")
    if not names.is_subdomain(node):
        raise UsageError(f'"{node}" cannot be the name of a node')
    user = _find_user(found) if isinstance(found, Scene) else ""
    text = rbac.for_node(node, user or f"{NODE_USER}{node}")
    screen.show(text.splitlines())
    return 0


def _find_user(scene: Scene) -> str:
    """Return the user of the certificate that the kubelet is shown, "" where there is none."""
    find = kubelet_client.choose_credentials(scene.settings.kubelet, scene.credentials_or_none)
    try:
        credentials = find()
        pair = b"" if credentials is None else credentials.read_known().pair
        return certificates.parse_first(pair).user if pair else ""
    except (SourceError, FieldError):
        return ""
