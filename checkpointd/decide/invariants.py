"""Check a decision before anything of it is done.

Safety (design, section 3): no exclusive or blocking copy is started while its parent or successor
runs; no start while managed and API Seen but for rule 4's return and an operator's ``activate``; no
tombstone is started but by 3b and ``activate``; while the API is Unknown no checkpoint is lost.
The table has these by construction; this is the second lock, and it names the broken one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from checkpointd.decide.evidence import Findings
from checkpointd.decide.scene import Scene
from checkpointd.decide.table import Row
from checkpointd.errors import InvariantError
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.model.decision import Action, PlaceManifest, RemoveStore
from checkpointd.model.evidence import Api, Is
from checkpointd.model.files import CopyKind

STARTS_WHILE_MANAGED = frozenset({"4 back", "12 activate"})
STARTS_TOMBSTONES = frozenset({"3b", "12 activate"})


class Plan(Protocol):
    """Be what ``plan.SlotPlan`` offers to be checked."""

    @property
    def before(self) -> Checkpoint | None:
        """Return the checkpoint as stored."""
        ...

    @property
    def after(self) -> Checkpoint:
        """Return the checkpoint as wanted."""
        ...

    @property
    def row(self) -> Row | None:
        """Return the row that holds."""
        ...

    @property
    def findings(self) -> Findings | None:
        """Return the evidence."""
        ...

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the actions."""
        ...


def check(plans: Iterable[Plan], scene: Scene) -> None:
    """Check every slot. Raises InvariantError that names slot and invariant."""
    for plan in plans:
        broken = _find_broken(plan, scene)
        if broken:
            raise InvariantError(f"{plan.after.slot}: {broken}")


def _find_broken(plan: Plan, scene: Scene) -> str:
    if any(isinstance(action, RemoveStore) for action in plan.actions):
        was_removed = plan.before is not None and plan.before.phase is Phase.REMOVED
        if scene.api is not Api.TRUSTED and not was_removed:
            return "a checkpoint would be lost while the API server is not trusted"
    if scene.frozen and any(isinstance(action, PlaceManifest) for action in plan.actions):
        return "a copy would be started while the machine goes down"
    if plan.row is None or plan.findings is None or not _starts(plan):
        return ""
    return _find_broken_start(plan.before, plan.after, plan.row, plan.findings)


def _starts(plan: Plan) -> bool:
    before, after = plan.before, plan.after
    if after.activation is None or not after.phase.has_manifest:
        return False
    return (
        before is None
        or before.activation is None
        or (before.activation.uid != after.activation.uid)
    )


def _find_broken_start(
    before: Checkpoint | None, after: Checkpoint, row: Row, findings: Findings
) -> str:
    found = findings.evidence
    if after.kind is not CopyKind.SHAREABLE and found.runs is not Is.NO:
        return f"an {after.kind.value} copy would be started while its parent may run"
    seen = found.api is Api.TRUSTED and found.managed is Is.YES
    if seen and row.rule not in STARTS_WHILE_MANAGED:
        return "a copy would be started while the kubelet manages the pod and the API answers"
    tombstone = before is not None and before.phase is Phase.TOMBSTONE
    if tombstone and row.rule not in STARTS_TOMBSTONES:
        return f"a tombstone would be started by rule {row.rule}"
    return ""
