"""The watch against a server that comes, goes and errs: facts are waited for, never times."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clock import Clock
from checkpointd.model import permissions
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import (
    ApiAnswered,
    ApiPodsRead,
    ApiRefused,
    ApiSilent,
    ApiUserRead,
    WorldRead,
)
from checkpointd.model.selection import Rule, Selection
from checkpointd.observe.api.contact import Patience
from checkpointd.observe.api.watch import ApiWatch
from tests.fakes import pki
from tests.fakes.api_access import NODE, Handed, bound_pod, hand
from tests.fakes.api_faults import Fault
from tests.fakes.api_server import ApiServer
from tests.fakes.posted import Posted

SELDOM = Patience(probe=60.0)
MARK = {"checkpointd.io/checkpoint": "true"}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(pki.shared()) as running:
        yield running


@pytest.fixture
def handed(server: ApiServer, tmp_path: Path) -> Handed:
    return hand(server, tmp_path)


class Watching:
    """Run a watch for the length of a test."""

    def __init__(self, handed: Handed, patience: Patience | None = None) -> None:
        self.posted = Posted()
        self.source = ApiWatch(
            self.posted.post, Clock(), handed.access(), patience or Patience(probe=0.1)
        )

    def __enter__(self) -> Watching:
        self.source.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.source.stop()

    def names(self, *wanted: str) -> ApiPodsRead:
        """Wait for a list with exactly these pods."""

        def has(fact: ApiPodsRead) -> bool:
            seen = fact.result
            return isinstance(seen, Seen) and tuple(pod.name for pod in seen.value) == wanted

        return self.posted.wait_for(ApiPodsRead, has)

    def unknown(self) -> Unknown:
        """Wait for a list that is Unknown."""
        fact = self.posted.wait_for(ApiPodsRead, lambda fact: isinstance(fact.result, Unknown))
        assert isinstance(fact.result, Unknown)
        return fact.result


def wait_for_watch(server: ApiServer, count: int = 1) -> None:
    """Wait until so many watches have been asked for."""
    with server.store.changed:
        assert server.store.changed.wait_for(
            lambda: server.count("/api/v1/pods", watch=True) >= count, 15
        )


def test_contact_then_the_world_then_the_list(server: ApiServer, handed: Handed) -> None:
    server.store.create("pods", bound_pod("a", annotations=MARK))
    with Watching(handed) as watching:
        watching.names("a")
        kinds = [type(fact) for fact in watching.posted.facts]
    assert kinds[:3] == [ApiAnswered, WorldRead, ApiPodsRead]
    world = watching.posted.of(WorldRead)[0].result
    assert isinstance(world, Seen)
    service = server.store.get("services", "default", "kubernetes")
    assert service is not None
    assert world.value.anchor_uid == service["metadata"]["uid"]
    assert world.value.node_found
    assert world.value.allocatable["pods"] == "110"


def test_each_change_is_told_at_once(server: ApiServer, handed: Handed) -> None:
    with Watching(handed) as watching:
        watching.names()
        server.store.create("pods", bound_pod("a"))
        watching.names("a")
        server.store.create("pods", bound_pod("b", node_name="node-2"))
        server.store.delete("pods", "kube-system", "a", 30)
        terminating = watching.names("a").result
        assert isinstance(terminating, Seen)
        assert terminating.value[0].terminating
        server.store.finalise("kube-system", "a")
        watching.names()


def test_a_server_that_dies_is_told_of_before_anything_is_asked_again(
    server: ApiServer, handed: Handed
) -> None:
    with Watching(handed) as watching:
        watching.names()
        wait_for_watch(server)
        server.stop()
        watching.posted.wait_for(ApiRefused)
        watching.posted.wait_for(ApiRefused)
        assert watching.posted.of(ApiSilent) == []
        server.start()
        watching.posted.wait_for(ApiAnswered)
        watching.names()
    assert any(isinstance(fact.result, Unknown) for fact in watching.posted.of(WorldRead))


def test_a_watch_that_ends_in_order_goes_on_without_a_word(
    server: ApiServer, handed: Handed
) -> None:
    server.store.create("pods", bound_pod("a"))
    with Watching(handed) as watching:
        watching.names("a")
        wait_for_watch(server)
        server.end_watches()
        wait_for_watch(server, 2)
        server.store.create("pods", bound_pod("b"))
        watching.names("a", "b")
    assert server.count("/api/v1/pods") == 1
    assert len(watching.posted.of(ApiPodsRead)) == 2


def test_h11_a_watch_that_breaks_leaves_the_list_unknown_until_it_is_read_anew(
    server: ApiServer, handed: Handed
) -> None:
    with Watching(handed) as watching:
        watching.names()
        wait_for_watch(server)
        server.end_watches(abruptly=True)
        watching.unknown()
        watching.names()
    assert server.count("/api/v1/pods") == 2


@pytest.mark.parametrize("as_status", [False, True])
def test_h11_a_410_makes_the_list_anew_and_is_never_a_pod(
    server: ApiServer, handed: Handed, *, as_status: bool
) -> None:
    server.too_old_is_http = as_status
    with Watching(handed) as watching:
        watching.names()
        wait_for_watch(server)
        server.store.create("pods", bound_pod("a"))
        watching.names("a")
        server.store.forget_history()
        server.end_watches()
        wait_for_watch(server, 2)
        server.store.create("pods", bound_pod("b"))
        watching.names("a", "b")
        assert watching.posted.of(ApiSilent) == []
    assert server.count("/api/v1/pods") >= 2


def test_h11_a_bookmark_that_is_overdue_causes_one_question(
    server: ApiServer, handed: Handed
) -> None:
    server.store.create("pods", bound_pod("a"))
    with Watching(handed, Patience(quiet=0.1, answers_apart=0.0, probe=0.1)) as watching:
        watching.names("a")
        wait_for_watch(server, 3)
        assert server.count("/api/v1/pods") == 1
        assert server.count(f"/api/v1/nodes/{NODE}") >= 3
        assert watching.posted.of(ApiSilent) == []
        server.break_(Fault.HANG)
        watching.posted.wait_for(ApiSilent)
        watching.unknown()


def test_bookmarks_keep_a_quiet_watch_alive(server: ApiServer, handed: Handed) -> None:
    server.bookmark_every = 0.02
    with Watching(handed, Patience(quiet=5.0, answers_apart=0.0)) as watching:
        watching.names()
        wait_for_watch(server, 1)
        server.store.create("pods", bound_pod("elsewhere", node_name="node-2"))
        watching.posted.wait_for(ApiAnswered)
    assert server.count("/api/v1/pods", watch=True) == 1


def test_after_contact_a_second_answer_is_asked_for_before_a_bookmark_could_come(
    server: ApiServer, handed: Handed
) -> None:
    with Watching(handed, Patience(quiet=60.0, answers_apart=0.5)) as watching:
        first = watching.posted.wait_for(ApiAnswered)
        second = watching.posted.wait_for(ApiAnswered)
        assert second.at.seconds_since(first.at) > 0.5
        wait_for_watch(server, 2)
    assert server.count("/api/v1/pods") == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault.UNAUTHORIZED,
        Fault.FORBIDDEN,
        Fault.INTERNAL,
        Fault.HTML,
        Fault.TRUNCATED,
        Fault.NULL_ITEMS,
        Fault.NO_VERSION,
        Fault.WRONG_KIND,
    ],
)
def test_b1_a_list_that_is_none_is_unknown_and_ends_what_was_known(
    server: ApiServer, handed: Handed, fault: Fault
) -> None:
    server.store.create("pods", bound_pod("a"))
    with Watching(handed) as watching:
        watching.names("a")
        wait_for_watch(server)
        server.break_(fault, "/api/v1/pods")
        server.end_watches(abruptly=True)
        watching.unknown()
        watching.posted.wait_for(ApiSilent)
        server.repair()
        watching.names("a")


def test_too_many_requests_is_contact_but_no_list(server: ApiServer, handed: Handed) -> None:
    server.break_(Fault.TOO_MANY, "/api/v1/pods")
    with Watching(handed) as watching:
        watching.posted.wait_for(ApiAnswered)
        server.repair()
        watching.names()
    assert watching.posted.of(ApiSilent) == []


def test_b1_a_node_that_is_gone_is_told_of_before_its_empty_list(
    server: ApiServer, handed: Handed
) -> None:
    server.store.delete("nodes", "", NODE)
    with Watching(handed) as watching:
        watching.names()
    world = watching.posted.of(WorldRead)[0].result
    assert isinstance(world, Seen)
    assert (world.value.node_found, world.value.node_uid) == (False, "")
    assert world.value.anchor_uid


def test_b1_an_etcd_that_lost_everything_is_another_world_or_none(
    server: ApiServer, handed: Handed
) -> None:
    server.store.create("pods", bound_pod("a"))
    with Watching(handed) as watching:
        watching.names("a")
        before = watching.posted.of(WorldRead)[0].result
        wait_for_watch(server)
        server.store.wipe()
        server.end_watches()
        # No Service yet: the server may be starting, and that is no world.
        watching.posted.wait_for(ApiSilent)
        server.store.make_world(NODE)
        after = watching.posted.wait_for(WorldRead, lambda fact: isinstance(fact.result, Seen))
        watching.names()
    assert isinstance(before, Seen)
    assert isinstance(after.result, Seen)
    assert before.value.anchor_uid != after.result.value.anchor_uid
    assert before.value.node_uid != after.result.value.node_uid


@pytest.mark.parametrize(
    ("granted", "anchor"),
    [({"services"}, "Service"), ({"namespaces"}, "Namespace"), (set[str](), "")],
)
def test_the_world_is_told_by_what_may_be_read(
    server: ApiServer, handed: Handed, granted: set[str], anchor: str
) -> None:
    server.granted = {"pods", "nodes"} | granted
    with Watching(handed) as watching:
        watching.names()
    world = watching.posted.of(WorldRead)[0].result
    assert isinstance(world, Seen)
    assert world.value.anchor.startswith(anchor)
    assert bool(world.value.anchor_uid) is bool(anchor)
    assert world.value.node_uid


@pytest.mark.parametrize(
    ("resource", "permission"),
    [("nodes", permissions.GET_NODE), ("pods", permissions.LIST_PODS)],
)
def test_a_permission_without_which_nothing_works_is_named_with_what_that_costs(
    server: ApiServer, handed: Handed, resource: str, permission: permissions.Permission
) -> None:
    server.granted -= {resource}
    with Watching(handed) as watching:
        silent = watching.posted.wait_for(ApiSilent)
        unknown = watching.unknown()
    for why in (silent.why, unknown.why):
        assert why.startswith("HTTP 403: ")
        assert why.endswith(permission.explain_denial())


def test_marks_are_found_anew_when_the_configuration_changed(
    server: ApiServer, handed: Handed
) -> None:
    server.store.create("pods", bound_pod("a", labels={"app": "web"}))
    with Watching(handed) as watching:
        watching.names("a")
        wait_for_watch(server)
        handed.selection = Selection(rules=(Rule(namespace="kube-system", labels={"app": "web"}),))
        watching.source.relist()
        again = watching.names("a").result
        assert isinstance(again, Seen)
        assert again.value[0].marked
    assert watching.posted.of(ApiRefused) == []
    assert not any(isinstance(fact.result, Unknown) for fact in watching.posted.of(ApiPodsRead))


def test_the_kubeconfig_and_the_nodes_name_may_come_later(
    server: ApiServer, handed: Handed
) -> None:
    handed.node_name = ""
    content = handed.kubeconfig.read_bytes()
    handed.kubeconfig.unlink()
    with Watching(handed) as watching:
        assert "name is not known" in watching.posted.wait_for(ApiSilent).why
        handed.node_name = NODE
        watching.source.relist()
        assert "No such file" in watching.posted.wait_for(ApiSilent).why
        handed.kubeconfig.write_bytes(content)
        watching.source.relist()
        watching.names()


def test_i1_stopping_ends_what_hangs_without_a_word(server: ApiServer, handed: Handed) -> None:
    server.break_(Fault.HANG, "/api/v1/pods")
    with Watching(handed) as watching:
        watching.posted.wait_for(WorldRead)
    assert "api-watch" not in [thread.name for thread in threading.enumerate()]
    assert watching.posted.of(ApiRefused) == []
    assert watching.posted.of(ApiSilent) == []


def test_a2_the_pods_that_own_the_servers_socket_are_told(
    server: ApiServer, handed: Handed
) -> None:
    handed.listeners = frozenset({"uid-of-the-api-server"})
    with Watching(handed) as watching:
        answer = watching.posted.wait_for(ApiAnswered)
    assert answer.local
    assert answer.address == f"127.0.0.1:{server.port}"
    assert answer.listening_pods == handed.listeners


def test_a_fault_of_our_own_says_nothing_of_contact(handed: Handed) -> None:
    watching = Watching(handed)
    watching.source.report_failure("a bug")
    assert {type(fact) for fact in watching.posted.facts} == {WorldRead, ApiPodsRead}


def test_h12_a_steady_state_asks_for_nothing(server: ApiServer, handed: Handed) -> None:
    server.bookmark_every = 0.02
    with Watching(handed, Patience(answers_apart=0.0)) as watching:
        watching.names()
        wait_for_watch(server, 1)
        # Bookmarks come once any pod changes, of whatever node.
        server.store.create("pods", bound_pod("elsewhere", node_name="node-2"))
        watching.posted.wait_for(ApiAnswered)
    paths = [(request.path, request.is_watch) for request in server.requests]
    assert paths == [
        (f"/api/v1/nodes/{NODE}", False),
        ("/api/v1/namespaces/default/services/kubernetes", False),
        ("/api/v1/pods", False),
        ("/api/v1/pods", True),
    ]


def test_an_api_server_that_is_expected_is_probed_sooner(server: ApiServer, handed: Handed) -> None:
    server.stop()
    with Watching(handed, SELDOM) as watching:
        watching.posted.wait_for(ApiRefused)
        server.start()
        watching.source.ask(frozenset({Question(Topic.CONTACT, period=0.1)}))
        watching.posted.wait_for(ApiAnswered)


# ---- credentials that change under an open watch ----------------------------------------------
def test_c8_a_rotated_certificate_renews_the_watch_and_nothing_becomes_unknown(
    server: ApiServer, handed: Handed
) -> None:
    renewed = server.kubeconfig(server.pki.ca.client(f"system:node:{NODE}"))
    with Watching(handed) as watching:
        watching.names()
        wait_for_watch(server)
        watching.source.check_credentials()
        handed.kubeconfig.write_bytes(renewed)
        watching.source.check_credentials()
        wait_for_watch(server, 2)
        server.store.create("pods", bound_pod("a"))
        watching.names("a")
    assert server.count("/api/v1/pods", watch=True) == 2
    assert not any(isinstance(fact, ApiRefused | ApiSilent) for fact in watching.posted.facts)
    assert all(isinstance(fact.result, Seen) for fact in watching.posted.of(ApiPodsRead))


def test_a_kubeconfig_that_cannot_be_read_for_a_moment_ends_no_watch(
    server: ApiServer, handed: Handed
) -> None:
    with Watching(handed) as watching:
        watching.names()
        wait_for_watch(server)
        handed.kubeconfig.write_text("")
        watching.source.check_credentials()
        server.store.create("pods", bound_pod("a"))
        watching.names("a")
        server.store.create("pods", bound_pod("b"))
        watching.names("a", "b")
    assert server.count("/api/v1/pods", watch=True) == 1


def test_a_kubeconfig_of_another_cluster_leads_there_and_lists_anew(
    server: ApiServer, handed: Handed
) -> None:
    with ApiServer(pki.shared()) as other:
        other.store.create("pods", bound_pod("there"))
        with Watching(handed) as watching:
            watching.names()
            handed.kubeconfig.write_bytes(other.kubeconfig())
            watching.source.check_credentials()
            watching.names("there")
    here, *_, there = (fact.result for fact in watching.posted.of(WorldRead))
    assert isinstance(here, Seen)
    assert isinstance(there, Seen)
    assert here.value.anchor_uid != there.value.anchor_uid


def test_whom_the_credentials_stand_for_is_told_also_where_that_is_refused(
    server: ApiServer, handed: Handed
) -> None:
    with Watching(handed) as watching:
        watching.posted.wait_for(ApiUserRead, lambda fact: fact.user == f"system:node:{NODE}")
        handed.kubeconfig.write_bytes(server.kubeconfig(server.pki.ca.client("system:node:other")))
        watching.source.relist()
        watching.posted.wait_for(ApiUserRead, lambda fact: fact.user == "system:node:other")
        silent = watching.posted.wait_for(ApiSilent)
        assert 'User "system:node:other" cannot get resource "nodes"' in silent.why


def test_a_401_is_silence_and_is_not_asked_more_often_than_it_is_probed(
    server: ApiServer, handed: Handed
) -> None:
    server.break_(Fault.UNAUTHORIZED, "/api/v1/")
    with Watching(handed, SELDOM) as watching:
        silent = watching.posted.wait_for(ApiSilent)
    assert f"we came as system:node:{NODE} with {handed.kubeconfig}" in silent.why
    # Once, and once more with what was read anew.
    assert server.count(f"/api/v1/nodes/{NODE}") == 2
    assert not watching.posted.of(ApiRefused)


def test_a_consistent_list_with_pods_that_ours_lacks_causes_another(
    server: ApiServer, handed: Handed
) -> None:
    uid = server.store.create("pods", bound_pod("a"))["metadata"]["uid"]
    with Watching(handed) as watching:
        watching.names("a")
        wait_for_watch(server)
        watching.source.compare(frozenset({uid}))
        watching.source.compare(frozenset())
        assert server.count("/api/v1/pods") == 1
        watching.source.compare(frozenset({uid, "another"}))
        wait_for_watch(server, 2)
        assert server.count("/api/v1/pods") == 2
