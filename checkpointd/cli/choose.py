"""Find what an operator means by POD: a name, namespace/name, or a slot. Pure."""

from __future__ import annotations

import difflib

from checkpointd.errors import UsageError
from checkpointd.model.status import (
    CheckpointStatus,
    IgnoredStatus,
    NodeStatus,
    RefusedStatus,
    WaitingStatus,
)

Missing = RefusedStatus | WaitingStatus | IgnoredStatus
"""A pod that carries a mark and has no checkpoint."""
Found = CheckpointStatus | Missing


def find(status: NodeStatus, wanted: str) -> Found:
    """Return the one thing that ``wanted`` names. Raises UsageError with the choices."""
    namespace, slash, name = wanted.rpartition("/")
    found = [
        each
        for each in _all(status)
        if name in names(each) and (not slash or each.namespace == namespace)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        choices = "".join(f"\n  {full_name(each)}" for each in found)
        raise UsageError(f'"{wanted}" may mean:{choices}')
    raise UsageError(_nothing(status, wanted, name))


def names(each: Found) -> tuple[str, ...]:
    """Return the names under which it may be asked for, the best one first."""
    return each.names if isinstance(each, CheckpointStatus) else (each.name,)


def full_name(each: Found) -> str:
    """Return namespace/name; of a checkpoint the parent's name, else the slot's."""
    if isinstance(each, CheckpointStatus) and each.parent is None:
        return f"{each.namespace}/{each.slot}"
    return f"{each.namespace}/{names(each)[0]}"


def _all(status: NodeStatus) -> list[Found]:
    known = {(each.namespace, name) for each in status.checkpoints for name in each.names}
    # A pod that is refused now may have a checkpoint of earlier: that one tells of both.
    others: tuple[Missing, ...] = (*status.refused, *status.waiting, *status.ignored)
    return [*status.checkpoints, *(o for o in others if (o.namespace, o.name) not in known)]


def _nothing(status: NodeStatus, wanted: str, name: str) -> str:
    choices = {n: full_name(each) for each in _all(status) for n in names(each)}
    close = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    message = f'nothing is known of "{wanted}": no marked pod of this node has that name'
    if close:
        likely = dict.fromkeys(choices[n] for n in close)
        return f"{message}\nDid you mean {' or '.join(likely)}?"
    return f"{message}\nAll that is known: checkpointd status"
