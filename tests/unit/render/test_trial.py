"""Workloads on trial: which pods an object makes, and what is told of them, where."""

from __future__ import annotations

import pytest

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.model.files import CopyKind
from checkpointd.render import placing, trial, workloads
from checkpointd.render.copy import NodeFacts
from checkpointd.render.trial import Outcome, Verdict
from checkpointd.render.workloads import Other, Workload
from tests.builders.pods import Object, container, host_path_volume, mount, secret_volume

NODE = NodeFacts(node_name="node")
APPS = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")


def spec_of(**more: object) -> Object:
    """Return a pod's spec without a token."""
    return {"automountServiceAccountToken": False, "containers": [container()], **more}


def workload(kind: str = "DaemonSet", *, api: str = "apps/v1", **spec: object) -> Object:
    """Return an object whose template lies at spec.template."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec_of(**spec)}
    metadata = {"name": "web", "namespace": "kube-system"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": {"template": template}}


def pod(**spec: object) -> Object:
    """Return a Pod as a file has it."""
    metadata = {"name": "web"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec_of(**spec)}


def only(document: object) -> Workload:
    """Return the one workload of a document."""
    (found,) = workloads.find(document)
    assert isinstance(found, Workload)
    return found


def judge(document: object) -> Verdict:
    """Return the verdict on a document's one workload."""
    return trial.judge(only(document), NODE)


def paths(verdict: Verdict) -> list[str]:
    """Return where the findings are."""
    return [finding.path for finding in verdict.findings]


# ---- which objects make pods -------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet", "ReplicaSet"])
def test_a_workload_is_judged_by_its_template(kind: str) -> None:
    verdict = judge(workload(kind))
    assert verdict.outcome is Outcome.OK
    assert verdict.candidate is not None
    assert verdict.candidate.kind is CopyKind.SHAREABLE


@pytest.mark.parametrize(("kind", "api"), [("Job", "batch/v1"), ("ReplicationController", "v1")])
def test_older_and_finite_workloads_are_judged_too(kind: str, api: str) -> None:
    verdict = judge(workload(kind, api=api, restartPolicy="Never"))
    assert paths(verdict) == ["spec.template.spec.restartPolicy"]


def test_a_cron_jobs_template_lies_deeper() -> None:
    job = workload("Job", api="batch/v1", restartPolicy="OnFailure")
    cron = {**job, "kind": "CronJob", "spec": {"jobTemplate": {"spec": job["spec"]}}}
    assert paths(judge(cron)) == ["spec.jobTemplate.spec.template.spec.restartPolicy"]


def test_a_pod_template_is_like_a_daemon_sets_pod() -> None:
    template = {"spec": spec_of(volumes=[host_path_volume("d", "/var/lib/d")])}
    template["spec"]["containers"] = [container(volumeMounts=[mount("d")])]
    verdict = judge(
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
    )
    assert verdict.outcome is Outcome.WARNED
    assert paths(verdict) == ["template.spec.volumes[0].hostPath"]


def test_a_stateful_set_is_refused_at_its_kind() -> None:
    verdict = judge(workload("StatefulSet"))
    assert verdict.outcome is Outcome.REFUSED
    assert paths(verdict) == ["kind"]
    assert "two-writers" in verdict.findings[0].remedy


def test_an_old_daemon_set_is_one() -> None:
    found = judge(workload(api="extensions/v1beta1")).candidate
    assert found is not None
    assert found.slot.name == "ds.web"


def test_a_pod_has_a_slot_of_its_own_and_the_default_namespace() -> None:
    found = judge(pod()).candidate
    assert found is not None
    assert str(found.slot) == "default/pod.web"


def test_a_list_is_judged_item_by_item() -> None:
    items = [workload("StatefulSet"), {"apiVersion": "v1", "kind": "Service"}, pod()]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    first, second, third = workloads.find(document)
    assert isinstance(first, Workload)
    assert paths(trial.judge(first, NODE)) == ["items[0].kind"]
    assert second == Other(kind="Service", path="items[1]")
    assert isinstance(third, Workload)
    assert trial.judge(third, NODE).outcome is Outcome.OK


def test_the_items_of_a_typed_list_need_no_kind() -> None:
    bare = {key: value for key, value in workload().items() if key not in ("kind", "apiVersion")}
    found = only({"apiVersion": "apps/v1", "kind": "DaemonSetList", "items": [bare]})
    assert (found.kind, found.path) == ("DaemonSet", "items[0]")
    assert trial.judge(found, NODE).outcome is Outcome.OK


def test_a_kind_of_the_same_name_in_another_group_is_not_judged() -> None:
    assert list(workloads.find(workload(api="apps.example/v1"))) == [
        Other(kind="DaemonSet", path="")
    ]


@pytest.mark.parametrize("document", [None, [], "text", 7, {}, {"kind": 7}])
def test_what_is_no_object_is_a_field_error(document: object) -> None:
    with pytest.raises(FieldError):
        list(workloads.find(document))


def test_lists_in_lists_have_an_end() -> None:
    document: Object = pod()
    for _ in range(100):
        document = {"apiVersion": "v1", "kind": "List", "items": [document]}
    with pytest.raises(FieldError):
        list(workloads.find(document))


# ---- the token that admission adds --------------------------------------------------------------
def test_the_token_that_nobody_wrote_is_told_at_its_switch_and_once() -> None:
    document = {**workload(), "spec": {"template": {"spec": {"containers": [container()]}}}}
    verdict = judge(document)
    if verdict.outcome is Outcome.REFUSED:
        assert paths(verdict) == ["spec.template.spec.automountServiceAccountToken"]
        assert verdict.findings[0].reason.startswith("the API server adds a volume with a token")


def test_admission_adds_the_token_to_the_containers_that_lack_it() -> None:
    own = mount("mine", workloads.TOKEN_PATH)
    empty: Object = {}
    spec: Object = {
        "containers": [container("a", volumeMounts=[own]), container("b")],
        "initContainers": [container("i")],
        "volumes": [{"name": "mine", "emptyDir": empty}],
    }
    found = workloads.parent_of(only({**pod(), "spec": spec}))
    assert found.token_volume == 1
    counts = [
        len(json_fields.objects(one, "volumeMounts"))
        for kind in ("initContainers", "containers")
        for one in json_fields.objects(found.pod, "spec", kind)
    ]
    assert counts == [1, 1, 1]
    (_, added) = json_fields.objects(found.pod, "spec", "volumes")
    assert json_fields.text(added, "name").startswith("kube-api-access-")


@pytest.mark.parametrize(
    "fields",
    [
        {"automountServiceAccountToken": False},
        {"containers": [container(volumeMounts=[mount("v", workloads.TOKEN_PATH)])]},
    ],
)
def test_admission_adds_no_token_where_the_pod_declines_or_has_one(fields: Object) -> None:
    spec = {"containers": [container()], **fields}
    assert workloads.parent_of(only({**pod(), "spec": spec})).token_volume == -1


def test_a_pod_from_an_api_server_is_taken_as_it_is() -> None:
    document = pod(automountServiceAccountToken=None)
    document["metadata"] = {"name": "web", "namespace": "edge", "uid": "1b2c"}
    document["status"] = {"containerStatuses": [{"name": "main", "imageID": "sha256:1"}]}
    verdict = judge(document)
    assert verdict.candidate is not None
    assert verdict.candidate.parent_uid == "1b2c"
    assert verdict.candidate.images == {"registry.example/main:1": "sha256:1"}


# ---- what is told, where -------------------------------------------------------------------------
def test_a_refusal_has_the_path_of_the_object_that_was_read() -> None:
    verdict = judge(workload("Deployment", runtimeClassName="kata"))
    (finding,) = verdict.findings
    assert finding.refuses
    assert finding.path == "spec.template.spec.runtimeClassName"
    assert finding.reason
    assert finding.remedy


def test_a_warning_has_the_path_of_the_object_that_was_read() -> None:
    verdict = judge(workload(shceduler="x"))
    assert verdict.outcome is Outcome.WARNED
    assert paths(verdict) == ["spec.template.spec.shceduler"]


def test_a_name_that_cannot_be_is_the_objects_own() -> None:
    document = {**workload(), "metadata": {"name": "Web"}}
    assert paths(judge(document)) == ["metadata.name"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"spec": {}}, "spec.template"),
        ({"spec": {"template": []}}, "spec.template"),
        ({"spec": {"template": {"spec": []}}}, "spec.template.spec"),
        ({"spec": {"template": {"spec": {"containers": 7}}}}, "spec.template.spec.containers"),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_its_path(change: Object, path: str) -> None:
    verdict = judge({**workload(), **change})
    assert verdict.outcome is Outcome.REFUSED
    assert paths(verdict) == [path]


def test_an_object_that_cannot_even_be_named_is_a_field_error_with_its_path() -> None:
    document = {"kind": "List", "items": [pod(), {**workload(), "metadata": 7}]}
    with pytest.raises(FieldError, match=r"^items\[1\]\.metadata: expected an object"):
        list(workloads.find(document))


def test_a_kubelet_that_is_too_old_for_a_field_is_warned_of() -> None:
    found = only(workload(hostUsers=False))
    assert trial.judge(found, NODE).outcome is Outcome.OK
    old = trial.judge(found, NodeFacts(node_name="node", kubelet_version="1.28"))
    assert paths(old) == ["spec.template.spec.hostUsers"]


# ---- the example of a copy -----------------------------------------------------------------------
def test_files_are_stood_in_for_and_named() -> None:
    mounted = container(volumeMounts=[mount("certs"), mount("c")])
    volumes = [secret_volume("certs", "apiserver"), {"name": "c", "configMap": {"name": "cm"}}]
    verdict = judge(workload(volumes=volumes, containers=[mounted]))
    assert [(one.volume, one.source) for one in verdict.stand_ins] == [
        ("certs", "secret apiserver"),
        ("c", "configMap cm"),
    ]
    assert verdict.candidate is not None
    placement = trial.example_placement(verdict.candidate, NODE, "0.1", "/store/ns/slot")
    content = placing.place(verdict.candidate.manifest, placement)
    assert isinstance(content, bytes)
    placed = json_fields.objects(json_fields.parse_object(content, "copy"), "spec", "volumes")
    assert [json_fields.text(one, "hostPath", "path") for one in placed] == [
        f"/store/ns/slot/active/{placement.uid}/certs",
        f"/store/ns/slot/active/{placement.uid}/c",
    ]


def test_the_same_workload_gives_the_same_example() -> None:
    first, second = judge(workload()), judge(workload())
    assert first == second
