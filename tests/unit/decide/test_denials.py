"""Permissions that are missing are told once, with what that costs, before it matters."""

from __future__ import annotations

from typing import Any

import pytest

from checkpointd.decide import explain, fold
from checkpointd.model import permissions
from checkpointd.model.observation import NAMESPACE_ANCHOR, WorldRead
from checkpointd.model.permissions import Permission
from checkpointd.model.pods import Slot
from checkpointd.model.policy import Times
from tests.builders import observations as build
from tests.builders.observations import run, seen, unknown

UID = build.pod().uid
SLOT = Slot("kube-system", "ds.api")
OTHER = Slot("kube-system", "ds.other")


def notes(**fields: Any) -> list[str]:
    """Return what is told as a note about the node."""
    world = build.observation(build.pod(), runtime=build.runtime(UID), **fields)
    reasons = run(world, build.checkpoint()).reasons
    return [reason.sentence for reason in reasons if reason.rule == explain.NOTE]


def denied(permission: Permission) -> Any:
    """Return what a source says that was denied."""
    return unknown(f"HTTP 403: it is forbidden: {permission.explain_denial()}")


def test_nothing_is_told_where_nothing_is_denied() -> None:
    assert notes(owners={SLOT: unknown("HTTP 500")}, lease=unknown("down")) == []


@pytest.mark.parametrize("anchor", ["", NAMESPACE_ANCHOR])
def test_a_service_that_may_not_be_read_is_told_until_it_may_and_not_only_until_an_outage(
    anchor: str,
) -> None:
    denied = WorldRead(seen(build.world(anchor=anchor, anchor_uid="")))
    granted = WorldRead(seen(build.world()))
    told = [permissions.GET_SERVICE.explain_denial()]
    for facts, expected in (
        ([denied], told),
        ([denied, WorldRead(unknown())], told),
        ([denied, WorldRead(unknown()), granted], []),
    ):
        after = fold.fold(build.observation(), facts, build.NOW, Times())
        assert notes(world=after.world, service_denied=after.service_denied) == expected


def test_daemon_sets_and_leases_that_may_not_be_read_are_told_once() -> None:
    owner = denied(permissions.GET_DAEMON_SET)
    found = notes(owners={SLOT: owner, OTHER: owner}, lease=denied(permissions.GET_LEASE))
    assert found == [
        permissions.GET_LEASE.explain_denial(),
        permissions.GET_DAEMON_SET.explain_denial(),
    ]
    for permission, sentence in zip(
        (permissions.GET_LEASE, permissions.GET_DAEMON_SET), found, strict=True
    ):
        assert permission.costs in sentence
        assert permission.remedy in sentence
