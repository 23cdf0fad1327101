"""Tell which permissions the API server denies, and what that costs: once, before it matters."""

from __future__ import annotations

from collections.abc import Iterator

from checkpointd.decide import explain
from checkpointd.decide.scene import Scene
from checkpointd.model import permissions
from checkpointd.model.decision import Reason, Severity
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import Observation
from checkpointd.model.permissions import Permission

TOLD_BY_WHY = (permissions.GET_LEASE, permissions.GET_DAEMON_SET)
"""Optional ones, of whose denial the failed reading's own words tell.

Without a needed one the API server is Unknown, and ``status`` says why; of the kubelet's
``observe.kubelet`` tells.
"""


def reasons(scene: Scene) -> Iterator[Reason]:
    """Return a note for each permission that is known to be missing."""
    for permission in _find_denied(scene.observation):
        yield Reason(None, explain.NOTE, permission.explain_denial(), Severity.NOTICE)


def _find_denied(observation: Observation) -> Iterator[Permission]:
    if observation.service_denied:
        yield permissions.GET_SERVICE
    failures = [reading.why for reading in _readings(observation) if isinstance(reading, Unknown)]
    for permission in TOLD_BY_WHY:
        denial = permission.explain_denial()
        if any(denial in why for why in failures):
            yield permission


def _readings(observation: Observation) -> Iterator[Seen[object] | Unknown]:
    yield observation.lease
    yield from observation.owners.values()
