"""The answers to what decide asks of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clock import Clock
from checkpointd.model import permissions
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import LeaseRead, ListConfirmed, OwnerRead, OwnerWord, WorldRead
from checkpointd.model.pods import Slot
from checkpointd.observe.api.look import ApiLook
from tests.fakes import pki
from tests.fakes.api_access import NODE, Handed, bound_pod, hand
from tests.fakes.api_faults import Fault
from tests.fakes.api_server import ApiServer
from tests.fakes.posted import Posted

CONFIRM = Question(Topic.CONFIRM_LIST)
OWNER = Question(Topic.OWNER, target="kube-system/web")
LEASE = Question(Topic.LEASE)
SLOT = Slot("kube-system", "ds.web")


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(pki.shared()) as running:
        running.granted |= {"daemonsets"}
        yield running


@pytest.fixture
def handed(server: ApiServer, tmp_path: Path) -> Handed:
    return hand(server, tmp_path)


def look_once(handed: Handed, *questions: Question) -> Posted:
    """Let the source do one round, in this thread."""
    posted = Posted()
    source = ApiLook(posted.post, Clock(), handed.access())
    source.ask(frozenset(questions))
    source.step()
    return posted


def create_daemon_set(server: ApiServer, **spec: object) -> None:
    metadata = {"name": "web", "namespace": "kube-system"}
    server.store.create("daemonsets", {"metadata": metadata, "spec": {"template": {"spec": spec}}})


def test_a_confirmed_list_has_every_uid_and_the_world_before_it(
    server: ApiServer, handed: Handed
) -> None:
    uids = {server.store.create("pods", bound_pod(name))["metadata"]["uid"] for name in "ab"}
    posted = look_once(handed, CONFIRM)
    assert [type(fact) for fact in posted.facts] == [WorldRead, ListConfirmed]
    result = posted.of(ListConfirmed)[0].result
    assert isinstance(result, Seen)
    assert result.value == uids


def test_b1_a_confirmed_list_tells_of_a_node_that_is_gone(
    server: ApiServer, handed: Handed
) -> None:
    server.store.delete("nodes", "", NODE)
    result = look_once(handed, CONFIRM).of(WorldRead)[0].result
    assert isinstance(result, Seen)
    assert not result.value.node_found


@pytest.mark.parametrize(
    "fault",
    [Fault.NULL_ITEMS, Fault.TRUNCATED, Fault.FORBIDDEN, Fault.GONE, Fault.TOO_MANY, Fault.HTML],
)
def test_b1_a_list_that_is_none_confirms_nothing(
    server: ApiServer, handed: Handed, fault: Fault
) -> None:
    server.break_(fault, "/api/v1/pods")
    posted = look_once(handed, CONFIRM)
    assert isinstance(posted.of(ListConfirmed)[0].result, Unknown)


def test_b1_a_pod_without_a_uid_confirms_nothing(server: ApiServer, handed: Handed) -> None:
    server.store.create("pods", bound_pod("a", uid="a_b"))
    posted = look_once(handed, CONFIRM)
    assert isinstance(posted.of(ListConfirmed)[0].result, Unknown)


def test_a_daemon_set_that_wants_this_node(server: ApiServer, handed: Handed) -> None:
    create_daemon_set(server)
    fact = look_once(handed, OWNER).of(OwnerRead)[0]
    assert fact.slot == SLOT
    assert isinstance(fact.result, Seen)
    assert fact.result.value is OwnerWord.WANTS


def test_a_daemon_set_that_does_not(server: ApiServer, handed: Handed) -> None:
    create_daemon_set(server, nodeSelector={"role": "elsewhere"})
    result = look_once(handed, OWNER).of(OwnerRead)[0].result
    assert isinstance(result, Seen)
    assert result.value is OwnerWord.NOT_HERE


def test_a_daemon_set_that_is_gone_by_name(handed: Handed) -> None:
    result = look_once(handed, OWNER).of(OwnerRead)[0].result
    assert isinstance(result, Seen)
    assert result.value is OwnerWord.GONE


@pytest.mark.parametrize("fault", [Fault.NOT_FOUND, Fault.FORBIDDEN, Fault.UNAVAILABLE, Fault.HTML])
def test_a_daemon_set_that_cannot_be_read_is_unknown(
    server: ApiServer, handed: Handed, fault: Fault
) -> None:
    server.break_(fault, "/apis/apps/v1")
    assert isinstance(look_once(handed, OWNER).of(OwnerRead)[0].result, Unknown)


def test_a_missing_permission_is_named_with_what_it_costs_and_what_grants_it(
    server: ApiServer, handed: Handed
) -> None:
    server.granted -= {"daemonsets", "leases"}
    posted = look_once(handed, OWNER, LEASE)
    owner, lease = posted.of(OwnerRead)[0].result, posted.of(LeaseRead)[0].result
    assert isinstance(owner, Unknown)
    assert owner.why.startswith("HTTP 403")
    assert owner.why.endswith(permissions.GET_DAEMON_SET.explain_denial())
    assert isinstance(lease, Unknown)
    assert lease.why.endswith(permissions.GET_LEASE.explain_denial())


def test_what_is_named_is_what_was_denied(server: ApiServer, handed: Handed) -> None:
    create_daemon_set(server)
    server.granted -= {"nodes"}
    owner = look_once(handed, OWNER).of(OwnerRead)[0].result
    assert isinstance(owner, Unknown)
    assert owner.why.endswith(permissions.GET_NODE.explain_denial())


def test_a_daemon_set_is_unknown_where_the_node_is_gone(server: ApiServer, handed: Handed) -> None:
    create_daemon_set(server)
    server.store.delete("nodes", "", NODE)
    assert isinstance(look_once(handed, OWNER).of(OwnerRead)[0].result, Unknown)


def test_the_slot_that_was_asked_for_is_answered(handed: Handed) -> None:
    slot = Slot("kube-system", "ds.cut-and-hashed")
    asked = Question(Topic.OWNER, target="kube-system/web", slot=slot)
    assert look_once(handed, asked).of(OwnerRead)[0].slot == slot


def test_the_lease_is_told_as_it_is_written(server: ApiServer, handed: Handed) -> None:
    renewed = "2026-01-01T00:00:00.123456Z"
    server.store.merge("leases", "kube-node-lease", NODE, {"spec": {"renewTime": renewed}})
    result = look_once(handed, LEASE).of(LeaseRead)[0].result
    assert isinstance(result, Seen)
    assert result.value == renewed


def test_a_lease_that_is_not_there_is_unknown(server: ApiServer, handed: Handed) -> None:
    server.store.delete("leases", "kube-node-lease", NODE)
    assert isinstance(look_once(handed, LEASE).of(LeaseRead)[0].result, Unknown)


def test_a_server_that_is_down_answers_each_question_with_unknown(
    server: ApiServer, handed: Handed
) -> None:
    server.stop()
    facts = look_once(handed, CONFIRM, OWNER, LEASE).facts
    assert {type(fact) for fact in facts} == {ListConfirmed, OwnerRead, LeaseRead}
    assert all(
        isinstance(fact, ListConfirmed | OwnerRead | LeaseRead) and isinstance(fact.result, Unknown)
        for fact in facts
    )


def test_h12_what_is_not_asked_is_not_read_and_each_question_costs_one_connection(
    server: ApiServer, handed: Handed
) -> None:
    assert look_once(handed).facts == []
    assert server.connections == 0
    look_once(handed, CONFIRM, LEASE)
    assert server.connections == 1


def test_a_fault_of_our_own_makes_everything_that_was_asked_unknown(handed: Handed) -> None:
    posted = Posted()
    source = ApiLook(posted.post, Clock(), handed.access())
    source.ask(frozenset({CONFIRM, OWNER, LEASE}))
    source.report_failure("a bug")
    assert len(posted.facts) == 3


def test_a_question_wakes_the_source_and_stopping_ends_a_call(
    server: ApiServer, handed: Handed
) -> None:
    posted = Posted()
    source = ApiLook(posted.post, Clock(), handed.access())
    source.start()
    source.ask(frozenset({LEASE}))
    posted.wait_for(LeaseRead)
    server.break_(Fault.HANG)
    source.ask(frozenset({CONFIRM}))
    with server.store.changed:
        path = f"/api/v1/nodes/{NODE}"
        assert server.store.changed.wait_for(lambda: server.count(path) > 0, 15)
    source.stop()
    assert posted.of(ListConfirmed) == []


def test_each_round_has_the_watchs_credentials_looked_at(handed: Handed) -> None:
    looks: list[str] = []
    source = ApiLook(Posted().post, Clock(), handed.access(), lambda: looks.append("once"))
    assert source.step() <= 30.0
    assert looks == ["once"]


def test_after_a_change_of_credentials_the_world_is_told_before_any_answer(
    server: ApiServer, handed: Handed
) -> None:
    # In another cluster our DaemonSet is missing: that must not pass for "deleted".
    create_daemon_set(server)
    posted = Posted()
    source = ApiLook(posted.post, Clock(), handed.access())
    source.ask(frozenset({OWNER}))
    source.step()
    with ApiServer(pki.shared()) as other:
        other.granted |= {"daemonsets"}
        handed.kubeconfig.write_bytes(other.kubeconfig())
        source.ask(frozenset())
        source.step()
        source.ask(frozenset({OWNER}))
        source.step()
    here, _, there, answer = posted.facts
    assert isinstance(here, WorldRead)
    assert isinstance(there, WorldRead)
    assert isinstance(here.result, Seen)
    assert isinstance(there.result, Seen)
    assert here.result.value.anchor_uid != there.result.value.anchor_uid
    assert isinstance(answer, OwnerRead)
    assert isinstance(answer.result, Seen)
    assert answer.result.value is OwnerWord.GONE


def test_a_consistent_list_is_handed_on_to_be_compared(server: ApiServer, handed: Handed) -> None:
    uid = server.store.create("pods", bound_pod("a"))["metadata"]["uid"]
    lists: list[frozenset[str]] = []
    source = ApiLook(Posted().post, Clock(), handed.access(), compare=lists.append)
    source.ask(frozenset({CONFIRM}))
    source.step()
    assert lists == [{uid}]
