from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients.credentials import Credentials
from checkpointd.clients.key_files import Part
from checkpointd.clock import Clock
from checkpointd.model.decision import Question, Topic
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import (
    Fact,
    KubeletListRead,
    KubeletProcess,
    RunningPodsRead,
)
from checkpointd.observe.kubelet import ClientFinder, KubeletSource
from checkpointd.settings import KubeletSettings
from tests.fakes import pki
from tests.fakes.kubelet_http import Authorization, FakeKubelet, FakePod
from tests.fakes.pod_resources import FakePodResources

WEB = FakePod(namespace="default", name="web", uid="u2")


class Node:
    """Hold a kubelet's two sides and a source that reads them."""

    def __init__(self, root: Path) -> None:
        self.http = FakeKubelet(root)
        self.http.pods = self.http.running = [WEB]
        self.pod_resources = FakePodResources(root)
        self.pod_resources.pods = {("default", "by-socket")}
        self.facts: list[Fact] = []
        self.process: KubeletProcess | None = None
        self.finder = ClientFinder(
            KubeletSettings(), lambda: self.process, node_credentials, timeout=2.0
        )
        self.source = KubeletSource(self.facts.append, Clock(), self.finder)

    def start(self, *, read_only: bool = False, sockets: bool = True) -> None:
        self.http.start(read_only=read_only)
        if sockets:
            self.pod_resources.start()
        self.process = KubeletProcess(
            pid=1,
            started=Instant(boot_id="b", seconds=1.0),
            version="",
            node_name="node1",
            manifest_dir="",
            root_dir=str(self.http.root_dir),
            cri_socket="",
            kubeconfig="",
            read_only_port=self.http.read_only_port,
            port=self.http.port,
            healthz_port=self.http.healthz_port,
            address="127.0.0.1",
            cgroup_root="/",
        )

    def look(self, topic: Topic = Topic.KUBELET_LIST) -> Seen[frozenset[object]] | Unknown:
        """Ask once and return what was posted."""
        self.source.ask(frozenset())
        self.source.step()
        self.source.ask(frozenset({Question(topic, period=30.0)}))
        self.facts.clear()
        self.source.step()
        (fact,) = self.facts
        assert isinstance(fact, KubeletListRead | RunningPodsRead)
        result = fact.result
        return (
            result
            if isinstance(result, Unknown)
            else Seen(frozenset[object](result.value), result.at, result.since)
        )


def node_credentials() -> Credentials:
    cluster = pki.shared()
    return Credentials(
        host="127.0.0.1",
        port=6443,
        prefix="",
        verify_name="",
        insecure=False,
        ca=Part(key="ca", embedded=cluster.ca.certificate),
        client_certificate=Part(key="certificate", embedded=cluster.node.certificate),
        client_key=Part(key="key", embedded=cluster.node.key),
    )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.http.stop()
    made.pod_resources.stop()


def test_the_pod_resources_socket_is_asked_first(node: Node) -> None:
    node.start(read_only=True)

    result = node.look()

    assert isinstance(result, Seen)
    assert result.value == {("default", "by-socket")}
    assert node.http.requests == []


def test_a5_the_secure_port_is_asked_where_there_is_no_socket(node: Node) -> None:
    node.start(sockets=False, read_only=True)

    result = node.look()

    assert isinstance(result, Seen)
    assert result.value == {("default", "web")}
    assert node.http.requests == ["/pods"]


def test_a5_the_read_only_port_is_asked_last(node: Node) -> None:
    node.start(sockets=False, read_only=True)
    node.http.authorization = Authorization.FORBIDDEN

    result = node.look()

    assert isinstance(result, Seen)
    assert result.value == {("default", "web")}


@pytest.mark.parametrize("authorization", [a for a in Authorization if a.value != 200])
def test_a4_without_any_answer_the_list_is_unknown_and_says_why(
    node: Node, authorization: Authorization
) -> None:
    node.start(sockets=False)
    node.http.authorization = authorization

    for topic in (Topic.KUBELET_LIST, Topic.RUNNING_PODS):
        result = node.look(topic)

        assert isinstance(result, Unknown)
        assert f"HTTP {authorization.value}" in result.why


@pytest.mark.parametrize("lives", [True, False])
def test_a_kubelet_that_lives_without_a_list_is_told_from_one_that_does_not(
    node: Node, lives: bool
) -> None:
    node.start(sockets=False)
    node.http.authorization = Authorization.FORBIDDEN
    if not lives:
        node.http.stop()

    result = node.look()

    assert isinstance(result, Unknown)
    assert ("says that it is healthy" in result.why) is lives


def test_without_a_kubelet_process_nothing_is_asked(node: Node) -> None:
    node.start()
    node.process = None

    assert isinstance(node.look(), Unknown)
    assert node.http.requests == []


def test_running_pods_are_uids(node: Node) -> None:
    node.start()

    result = node.look(Topic.RUNNING_PODS)

    assert isinstance(result, Seen)
    assert result.value == {"u2"}


def test_a4_a_way_that_failed_is_passed_over_for_a_while_but_never_given_up(node: Node) -> None:
    node.start()
    node.pod_resources.stop()
    by_port = node.look()
    node.pod_resources.start()
    still_by_port = node.look()
    node.http.authorization = Authorization.BROKEN
    by_socket = node.look()

    values = [r.value for r in (by_port, still_by_port, by_socket) if isinstance(r, Seen)]
    web, socket = {("default", "web")}, {("default", "by-socket")}
    assert values == [web, web, socket]


def test_a5_which_way_is_used_is_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "checkpointd")
    node.start()
    for _look in range(3):
        node.look()
    node.pod_resources.stop()
    for _look in range(3):
        node.look()

    assert [record.getMessage() for record in caplog.records] == [
        "the kubelet's list of pods: read from the pod-resources socket",
        "the kubelet's list of pods: read from the secure port",
    ]


def test_clients_stay_the_same_until_the_kubelet_changes(node: Node) -> None:
    node.start()
    first = node.finder()

    assert node.finder() is first
    node.http.pki.serve_signed_by_cluster("node1")  # takes the pinned certificate away
    assert node.finder() is not first
