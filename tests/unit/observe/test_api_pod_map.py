"""A list and its events: what stays the same, and what cannot be read is never gone."""

from __future__ import annotations

import pytest

from checkpointd.clients.kube_answers import WatchEvent
from checkpointd.errors import FieldError
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.pods import ApiPod
from checkpointd.model.selection import Selection
from checkpointd.observe.api import pod_map

NOW = Instant(boot_id="b", seconds=1.0)
Object = dict[str, object]


def raw_pod(uid: str, **changes: object) -> Object:
    metadata = {"namespace": "default", "name": f"pod-{uid}", "uid": uid}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {}, **changes}


def broken(uid: str) -> Object:
    return raw_pod(uid, spec={"nodeName": "n", "containers": "none"})


def listed(*raw: Object) -> list[ApiPod | pod_map.Unreadable]:
    return [pod_map.parse(one, Selection(), "n") for one in raw]


def apply(pods: pod_map.PodMap, kind: str, raw: Object) -> None:
    pods.apply(WatchEvent(kind, raw), Selection(), "n")


def uids(pods: pod_map.PodMap) -> list[str]:
    return [pod.uid for pod in values(pods)]


def values(pods: pod_map.PodMap) -> tuple[ApiPod, ...]:
    reading = pods.read(NOW)
    assert isinstance(reading, Seen)
    return reading.value


def test_pods_that_did_not_change_stay_the_same_objects() -> None:
    pods = pod_map.PodMap()
    pods.replace(listed(raw_pod("a"), raw_pod("b")))
    before = values(pods)
    pods.replace(listed(raw_pod("a"), raw_pod("b", status={"phase": "Running"})))
    after = values(pods)
    assert after[0] is before[0]
    assert after[1] is not before[1]
    apply(pods, "MODIFIED", raw_pod("a"))
    assert values(pods) is after


def test_events_add_change_and_remove() -> None:
    pods = pod_map.PodMap()
    pods.replace(listed(raw_pod("a")))
    apply(pods, "ADDED", raw_pod("b"))
    assert uids(pods) == ["a", "b"]
    apply(pods, "DELETED", raw_pod("a"))
    assert uids(pods) == ["b"]
    apply(pods, "DELETED", raw_pod("never-known"))
    assert uids(pods) == ["b"]


def test_a_known_pod_that_cannot_be_read_any_more_stays_as_it_was() -> None:
    pods = pod_map.PodMap()
    pods.replace(listed(raw_pod("a")))
    before = values(pods)
    pods.replace(listed(broken("a")))
    assert values(pods)[0] is before[0]
    apply(pods, "MODIFIED", broken("a"))
    assert values(pods)[0] is before[0]


def test_b1_a_pod_of_which_nothing_could_be_read_makes_the_list_unknown_until_it_is_gone() -> None:
    pods = pod_map.PodMap()
    pods.replace(listed(raw_pod("a"), broken("b")))
    reading = pods.read(NOW)
    assert isinstance(reading, Unknown)
    assert "spec.containers" in reading.why
    apply(pods, "MODIFIED", raw_pod("a"))
    assert isinstance(pods.read(NOW), Unknown)
    apply(pods, "DELETED", broken("b"))
    assert uids(pods) == ["a"]


def test_a_pod_that_can_be_read_again_ends_that() -> None:
    pods = pod_map.PodMap()
    pods.replace(listed(broken("b")))
    apply(pods, "MODIFIED", raw_pod("b"))
    assert uids(pods) == ["b"]


def test_a_pod_that_cannot_be_read_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    pods = pod_map.PodMap()
    for _ in range(3):
        pods.replace(listed(broken("b")))
    assert len(caplog.records) == 1


def test_an_event_or_item_without_a_uid_is_an_error() -> None:
    pods = pod_map.PodMap()
    with pytest.raises(FieldError):
        apply(pods, "ADDED", {"metadata": {}})
    with pytest.raises(FieldError):
        pod_map.parse({"metadata": {"uid": "a_b"}}, Selection(), "n")
