"""Write the lines that `status` and `explain` share. Pure: a picture in, lines out."""

from __future__ import annotations

from checkpointd.cli import ages, choose
from checkpointd.cli.choose import Found, Missing
from checkpointd.cli.picture import Picture
from checkpointd.cli.screen import Screen, Style, clean
from checkpointd.json_fields import Json
from checkpointd.model.status import (
    CheckpointStatus,
    Health,
    IgnoredStatus,
    RefusedStatus,
    WaitingStatus,
)
from checkpointd.store import codec

STYLES = {
    Health.HEALTHY: Style.GREEN,
    Health.DEGRADED: Style.YELLOW,
    Health.SERVING: Style.RED,
}


def daemon_lines(picture: Picture, screen: Screen) -> list[str]:
    """Say so plainly if the daemon is dead, and how old the picture is; nothing if it lives."""
    if picture.alive:
        return []
    age = ages.ago(picture.status.written, picture.now)
    text = (
        f"THE DAEMON IS NOT RUNNING. This is what it saw {age}; what has changed since then is "
        "not shown. Copies that run go on running. Start it: systemctl start checkpointd"
    )
    return [*(screen.paint(line, Style.BOLD, Style.RED) for line in screen.wrap(text)), ""]


def bullet_lines(title: str, texts: list[str], screen: Screen, style: Style) -> list[str]:
    """List texts under a title; nothing if there are none."""
    if not texts:
        return []
    lines = [line for text in texts for line in screen.wrap(text, "  - ", "    ")]
    return ["", screen.paint(title, Style.BOLD, style), *lines]


def refused_lines(found: Missing, screen: Screen) -> list[str]:
    """Say why a pod that carries a mark has no checkpoint."""
    name = choose.full_name(found)
    if isinstance(found, IgnoredStatus):
        return screen.wrap(f"{name}: its mark does not count: {found.note}")
    if isinstance(found, WaitingStatus):
        return screen.wrap(f"{name}: marked, no checkpoint yet: {found.why}")
    lines = screen.wrap(f"{name}: marked, but NOT checkpointed:")
    for refusal in found.refusals:
        lines += screen.wrap(f"{refusal.field}: {refusal.reason}", "  - ", "    ")
        lines += screen.wrap(refusal.remedy, "    remedy: ")
    return lines


def next_text(checkpoint: CheckpointStatus, picture: Picture) -> str:
    """Say what would happen next and when."""
    coming = checkpoint.next
    if coming is None:
        return ""
    if coming.at is None:
        return clean(coming.what)
    return f"{clean(coming.what)} ({ages.until(coming.at, picture.moment)})"


def generation_text(checkpoint: CheckpointStatus) -> str:
    """Name the generation, short, and say whether it is proven."""
    generation = checkpoint.generation
    if generation is None:
        return "none yet"
    word = "failed" if generation.failed else "proven" if generation.proven else "unproven"
    return f"{generation.hash[:8]} {word}"


def document(found: Found) -> Json:
    """Return one pod as ``--json`` shows it, under a key that says what it is."""
    kind = {
        CheckpointStatus: "checkpoint",
        RefusedStatus: "refused",
        WaitingStatus: "waiting",
        IgnoredStatus: "ignored",
    }
    return {kind[type(found)]: codec.encode(found)}


def exit_code(picture: Picture, health: Health) -> int:
    """Return the exit code for ``health``; a picture that a dead daemon left is never healthy."""
    return health.exit_code if picture.alive else max(Health.DEGRADED.exit_code, health.exit_code)
