"""Pods as the API tells them, and what namespace users and foreign servers may write into them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpointd.errors import FieldError
from checkpointd.model.pods import ApiPod, Controller, Slot
from checkpointd.model.selection import Selection
from checkpointd.observe.api import pods

Object = dict[str, object]
MARK = {"checkpointd.io/checkpoint": "true"}


def raw_pod(
    metadata: Mapping[str, object] | None = None,
    spec: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
) -> Object:
    return {
        "metadata": {"namespace": "kube-system", "name": "a", "uid": "1-2", **(metadata or {})},
        "spec": {"nodeName": "node-1", **(spec or {})},
        "status": status or {},
    }


def owner(kind: str = "DaemonSet", name: str = "web", api: str = "apps/v1") -> Object:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": "u", "controller": True}


def parse(raw: Object) -> ApiPod:
    return pods.parse_pod(raw, Selection(), "node-1")


def test_a_pod_with_nothing_but_its_name_gets_the_apis_defaults() -> None:
    pod = parse(raw_pod())
    assert (pod.restart_policy, pod.grace_seconds, pod.activation_priority) == ("Always", 30, 0)
    assert not pod.marked
    assert pod.raw is None
    assert pod.slot == Slot("kube-system", "pod.a")


def test_a_running_pod_tells_all_that_decisions_need() -> None:
    running = [
        {
            "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}},
            "containerID": "containerd://c0ffee",
            "ready": True,
        },
        {
            "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}},
            "containerID": "containerd://beef",
            "ready": False,
        },
        {
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "containerID": "containerd://dead",
            "ready": True,
        },
    ]
    pod = parse(
        raw_pod(
            {"creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [owner()]},
            {
                "containers": [{"name": "m", "image": "a:1"}, {"name": "n", "image": "a:1"}],
                "initContainers": [{"name": "i", "image": "b:1"}],
                "restartPolicy": "OnFailure",
                "terminationGracePeriodSeconds": 0,
            },
            {
                "phase": "Running",
                "reason": "NodeLost",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": running,
            },
        )
    )
    assert pod.started == "2026-01-01T00:00:09Z"
    assert pod.created == "2026-01-01T00:00:00Z"
    assert pod.images == ("b:1", "a:1")
    assert pod.init_containers == {"i"}
    assert pod.ready_containers == {"c0ffee"}
    assert (pod.phase, pod.reason, pod.ready) == ("Running", "NodeLost", True)
    assert (pod.restart_policy, pod.grace_seconds) == ("OnFailure", 0)
    assert pod.controller == Controller(
        api_version="apps/v1", kind="DaemonSet", name="web", uid="u"
    )


@pytest.mark.parametrize(
    ("owners", "slot"),
    [
        ([owner()], "ds.web"),
        ([owner("ReplicaSet")], "pod.a"),
        ([owner(api="example.com/v1")], "pod.a"),
        ([{**owner(), "controller": False}], "pod.a"),
        ([owner(name="../../etc")], "pod.a"),
        ([owner(name="a/b")], "pod.a"),
        ([owner(name="W")], "pod.a"),
    ],
)
def test_only_a_daemon_set_whose_name_can_be_one_makes_a_slot(
    owners: list[Object], slot: str
) -> None:
    assert parse(raw_pod({"ownerReferences": owners})).slot.name == slot


def test_a_marked_pod_keeps_its_raw_form_without_managed_fields_and_shows_none_of_it() -> None:
    environment = [{"name": "PASSWORD", "value": "hidden"}]
    containers = [{"name": "m", "image": "a", "env": environment}]
    metadata: Object = {"annotations": MARK, "managedFields": ["a"]}
    given_pod = raw_pod(metadata, {"containers": containers})
    pod = parse(given_pod)
    assert pod.raw is not None
    assert "managedFields" not in str(pod.raw)
    assert pod.raw["spec"] == given_pod["spec"]
    assert "hidden" not in repr(pod)


@pytest.mark.parametrize(
    "annotations",
    [
        {**MARK, "kubernetes.io/config.mirror": "h"},
        {**MARK, "kubernetes.io/config.source": "file"},
        {**MARK, "kubernetes.io/config.source": "http"},
        {**MARK, "checkpointer.alpha.coreos.com/checkpoint-of": "a"},
        {"checkpointd.io/checkpoint": "True"},
        {"checkpointd.io/checkpoint": "1"},
    ],
)
def test_c15_what_is_no_parent_is_not_marked_and_the_note_says_why(
    annotations: dict[str, str],
) -> None:
    pod = parse(raw_pod({"annotations": annotations}))
    assert not pod.marked
    assert pod.mark_note


def test_c15_a_long_value_of_a_mark_is_not_told_in_full() -> None:
    pod = parse(raw_pod({"annotations": {"checkpointd.io/checkpoint": "yes" * 50_000}}))
    assert not pod.marked
    assert len(pod.mark_note) < 200


def test_a_deletion_timestamp_means_terminating() -> None:
    assert parse(raw_pod({"deletionTimestamp": "2026-01-01T00:00:00Z"})).terminating
    assert not parse(raw_pod({"deletionTimestamp": None})).terminating


@pytest.mark.parametrize(
    ("value", "priority", "noted"),
    [("7", 7, False), ("-7", -7, False), ("1e3", 0, True), ("9999999", 0, True), ("", 0, False)],
)
def test_an_activation_priority_that_is_no_number_counts_as_none(
    value: str, priority: int, *, noted: bool
) -> None:
    annotations = {**MARK, "checkpointd.io/activation-priority": value}
    pod = parse(raw_pod({"annotations": annotations}))
    assert pod.activation_priority == priority
    assert bool(pod.mark_note) is noted


@pytest.mark.parametrize(
    "metadata",
    [
        {"uid": "a_b"},
        {"uid": "a/b"},
        {"uid": ".."},
        {"uid": ""},
        {"uid": None},
        {"uid": 7},
        {"name": "../a"},
        {"name": "A"},
        {"name": "a..b"},
        {"name": "a" * 254},
        {"namespace": "a.b"},
        {"namespace": ""},
        {"namespace": "a" * 64},
        {"name": "a\n"},
        {"labels": {"a": 1}},
        {"ownerReferences": {}},
    ],
)
def test_what_kubernetes_does_not_allow_is_refused(metadata: dict[str, object]) -> None:
    with pytest.raises(FieldError):
        parse(raw_pod(metadata))


def test_another_nodes_pod_is_refused() -> None:
    with pytest.raises(FieldError, match=r"spec\.nodeName"):
        parse(raw_pod(spec={"nodeName": "node-2"}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    part=st.sampled_from(["metadata", "spec", "status"]),
    key=st.sampled_from(
        ["containers", "initContainers", "conditions", "containerStatuses", "labels", "annotations"]
    ),
    value=json_values,
)
def test_any_json_is_a_pod_or_a_field_error(part: str, key: str, value: object) -> None:
    raw = raw_pod()
    inner = raw[part]
    assert isinstance(inner, dict)
    raw[part] = {**inner, key: value}
    try:
        assert parse(raw).uid == "1-2"
    except FieldError:
        return
