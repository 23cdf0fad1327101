"""Asking what we may: an answer is yes or no, everything else is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import access_review
from checkpointd.errors import RefusedError, RejectedError
from checkpointd.model import permissions
from tests.fakes import pki
from tests.fakes.api_access import NODE, Handed, hand
from tests.fakes.api_faults import Fault
from tests.fakes.api_server import ApiServer


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(pki.shared()) as running:
        yield running


@pytest.fixture
def handed(server: ApiServer, tmp_path: Path) -> Iterator[Handed]:
    with hand(server, tmp_path) as made:
        yield made


def test_a_node_may_what_every_node_may_and_what_is_granted(
    server: ApiServer, handed: Handed
) -> None:
    client = handed.client()
    allowed = {p for p in permissions.ALL if access_review.is_allowed(client, p, NODE)}
    assert allowed == {p for p in permissions.ALL if p.role is None}
    server.granted |= {"daemonsets", "nodes/pods"}
    assert all(access_review.is_allowed(client, p, NODE) for p in permissions.ALL)


def test_another_node_is_not_ours_to_read(handed: Handed) -> None:
    assert not access_review.is_allowed(handed.client(), permissions.GET_NODE, "node-2")
    assert not access_review.is_allowed(handed.client(), permissions.LIST_PODS, "node-2")


def test_the_server_says_who_we_are(handed: Handed) -> None:
    assert access_review.read_user(handed.client()) == f"system:node:{NODE}"


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.INTERNAL, Fault.HTML, Fault.NOT_FOUND])
def test_no_other_answer_is_a_no(server: ApiServer, handed: Handed, fault: Fault) -> None:
    server.break_(fault)
    with pytest.raises(RejectedError):
        access_review.is_allowed(handed.client(), permissions.GET_NODE, NODE)
    assert access_review.read_user(handed.client()) == ""


def test_an_answer_without_a_status_is_none(server: ApiServer, handed: Handed) -> None:
    server.break_(Fault.EMPTY)
    with pytest.raises(RejectedError, match="no status"):
        access_review.is_allowed(handed.client(), permissions.GET_NODE, NODE)


def test_a_server_that_does_not_listen_refuses(server: ApiServer, handed: Handed) -> None:
    server.stop()
    with pytest.raises(RefusedError):
        access_review.is_allowed(handed.client(), permissions.GET_NODE, NODE)
    with pytest.raises(RefusedError):
        access_review.read_user(handed.client())
