"""What checkpointd relies on in the watch of an API server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from checkpointd import json_fields
from checkpointd.clients.kube import KubeClient
from checkpointd.clients.kube_answers import WatchEvent
from checkpointd.clients.kubeconfig import Kubeconfig
from checkpointd.errors import RefusedError, RejectedError, SilentError, SourceError
from tests.contract.endpoint import Endpoint, name_of
from tests.fakes import pki
from tests.fakes.api_access import NODE, hand
from tests.fakes.api_server import ApiServer

QUIET = 10.0


def test_a_watch_tells_of_a_pods_life_from_the_lists_version_on(endpoint: Endpoint) -> None:
    client, delete = endpoint.client(), endpoint.subject.delete_pod
    listed = client.list_pods(endpoint.node_name, name_of)
    name = endpoint.create_pod()
    with client.watch_pods(endpoint.node_name, listed.resource_version, lambda: QUIET) as events:
        assert next(events).type == "ADDED"
        delete(name, 30)
        terminating = next(events)
        delete(name, 0)
        # A node that does not report is noted in its pods' conditions meanwhile.
        deleted = next(event for event in events if event.type != "MODIFIED")
    assert terminating.type == "MODIFIED"
    assert json_fields.has_field(terminating.object, "metadata", "deletionTimestamp")
    assert (
        json_fields.optional_integer(terminating.object, "metadata", "deletionGracePeriodSeconds")
        == 30
    )
    assert deleted.type == "DELETED"
    assert name_of(deleted.object) == name
    versions = [version_of(event) for event in (terminating, deleted)]
    assert versions[0] < versions[1]


def test_a_watch_goes_on_from_the_last_events_version(endpoint: Endpoint) -> None:
    client = endpoint.client()
    listed = client.list_pods(endpoint.node_name, name_of)
    endpoint.create_pod()
    with client.watch_pods(endpoint.node_name, listed.resource_version, lambda: QUIET) as events:
        version = version_of(next(events))
    second = endpoint.create_pod()
    with client.watch_pods(endpoint.node_name, str(version), lambda: QUIET) as events:
        assert name_of(next(events).object) == second


def test_bookmarks_come_for_changes_that_others_see_and_carry_a_version_to_go_on_from(
    endpoint: Endpoint,
) -> None:
    client, api = endpoint.client(), endpoint.subject.api
    listed = client.list_pods(endpoint.node_name, name_of)
    # None tells of a version that was there when the watch was opened: a pod must change since.
    elsewhere = threading.Timer(0.5, lambda: endpoint.subject.run(endpoint.subject.pod()))
    elsewhere.start()
    # At the latest 2 s before the end that was asked for; a real one looks each second.
    seconds = 8 if endpoint.subject.is_real else 3
    path = (
        f"/api/v1/pods?fieldSelector=spec.nodeName%3D{endpoint.node_name}&watch=true"
        f"&resourceVersion={listed.resource_version}&allowWatchBookmarks=true&timeoutSeconds={seconds}"
    )
    began = time.monotonic()
    found = list(api.stream(path))
    elsewhere.join()
    assert time.monotonic() - began < seconds + QUIET
    assert {event["type"] for event in found} == {"BOOKMARK"}
    carried = found[-1]["object"]
    assert (carried["kind"], carried["apiVersion"]) == ("Pod", "v1")
    assert "name" not in carried["metadata"]
    version = carried["metadata"]["resourceVersion"]
    assert int(version) >= int(listed.resource_version)
    name = endpoint.create_pod()
    with client.watch_pods(endpoint.node_name, version, lambda: QUIET) as events:
        assert name_of(next(events).object) == name


def test_a_watch_without_events_is_silent_for_as_long_as_it_may_be(endpoint: Endpoint) -> None:
    client = endpoint.client()
    listed = client.list_pods(endpoint.node_name, name_of)
    with client.watch_pods(endpoint.node_name, listed.resource_version, lambda: 0.3) as events:
        with pytest.raises(SilentError):
            next(events)


def test_a_watch_can_be_interrupted(endpoint: Endpoint) -> None:
    client = endpoint.client()
    listed = client.list_pods(endpoint.node_name, name_of)
    with client.watch_pods(endpoint.node_name, listed.resource_version, lambda: 60.0) as events:
        timer = threading.Timer(0.2, client.interrupt)
        timer.start()
        with suppress(SourceError):
            assert next(events, None) is None
        timer.join()
    assert client.list_pods(endpoint.node_name, name_of).items == ()


def test_a_watch_from_a_version_that_is_yet_to_come_says_nothing(endpoint: Endpoint) -> None:
    client = endpoint.client()
    version = int(client.list_pods(endpoint.node_name, name_of).resource_version) + 1_000_000
    with client.watch_pods(endpoint.node_name, str(version), lambda: 0.5) as events:
        endpoint.create_pod()
        with pytest.raises(SilentError):
            next(events)


def test_a_restart_ends_watches_at_once_and_forgets_what_they_may_go_back_to(
    endpoint: Endpoint,
) -> None:
    client, subject = endpoint.client(), endpoint.subject
    listed = client.list_pods(endpoint.node_name, name_of)
    endpoint.create_pod()
    endpoint.create_pod()
    newest = client.list_pods(endpoint.node_name, name_of)
    ended: list[object] = []

    def follow(client: KubeClient) -> None:
        version = newest.resource_version
        with client.watch_pods(endpoint.node_name, version, lambda: 60.0) as events:
            opened.set()
            ended.append(_end_of(lambda: next(events, None)))

    opened = threading.Event()
    watching = threading.Thread(target=follow, args=(endpoint.client(),))
    watching.start()
    assert opened.wait(10)
    subject.control.restart_api_server()
    watching.join(30)
    assert ended
    assert ended[0] is None or isinstance(ended[0], SourceError)
    # What was open is closed on our side too.
    client.drop_connections()
    first = str(int(listed.resource_version) - 1)
    with client.watch_pods(endpoint.node_name, first, lambda: QUIET) as events:
        event = next(events)
    assert event.type == "ERROR"
    assert (event.object["code"], event.object["reason"]) == (410, "Expired")
    assert str(event.object["message"]).startswith("too old resource version")


def test_nobody_listening_is_refused(endpoint: Endpoint, tmp_path: Path) -> None:
    config = json.loads(endpoint.subject.admin.read_bytes())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "elsewhere.conf"
    path.write_text(json.dumps(config))
    client = KubeClient(Kubeconfig(path).read)
    endpoint.clients.append(client)
    with pytest.raises(RefusedError):
        client.get_node(endpoint.node_name)


def version_of(event: WatchEvent) -> int:
    return int(json_fields.text(event.object, "metadata", "resourceVersion"))


def _end_of(read: Callable[[], object]) -> object:
    try:
        return read()
    except SourceError as error:
        return error


def test_h11_a_410_can_be_the_answer_itself(tmp_path: Path) -> None:
    # As servers before 1.19, and those without a watch cache, have it.
    with ApiServer(pki.shared()) as server, hand(server, tmp_path) as handed:
        server.too_old_is_http = True
        server.store.forget_history()
        with pytest.raises(RejectedError) as caught:
            with handed.client().watch_pods(NODE, "1", lambda: QUIET):
                pass
        assert caught.value.status == 410
