"""From a parent to a candidate: what is kept, dropped, rewritten and refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model.files import Candidate, FileEntry, Refused, VolumeFiles
from checkpointd.model.pods import Slot
from checkpointd.render import content
from checkpointd.render.copy import NodeFacts, manifest_of, refusals, render
from tests.builders.pods import (
    PARENT_UID,
    Object,
    config_map_volume,
    container,
    files_of,
    host_path_volume,
    mount,
    owner,
    raw_pod,
    secret_volume,
)

NODE = NodeFacts(node_name="node-1", kubelet_version="v1.33.1")


def rendered(pod: Json, *files: VolumeFiles, node: NodeFacts = NODE) -> Candidate:
    result = render(pod, {volume.volume: volume for volume in files}, node)
    assert isinstance(result, Candidate), result
    return result


def refused(pod: Json, *files: VolumeFiles) -> Mapping[str, str]:
    result = render(pod, {volume.volume: volume for volume in files}, NODE)
    assert isinstance(result, Refused), "not refused"
    assert all(refusal.reason and refusal.remedy for refusal in result.refusals)
    return {refusal.field: refusal.reason for refusal in result.refusals}


def spec_of(pod: Json, *files: VolumeFiles) -> Json:
    return json_fields.mapping(rendered(pod, *files).manifest, "spec")


def first_container(pod: Json, *files: VolumeFiles) -> Json:
    return json_fields.objects(spec_of(pod, *files), "containers")[0]


# ---- identity -----------------------------------------------------------------------------------
def test_c2_metadata_is_namespace_labels_and_the_annotations_of_others() -> None:
    pod = raw_pod(
        labels={"app": "web", "pod-template-hash": "1a2b", "controller-revision-hash": "3c4d"},
        annotations={
            "kubernetes.io/config.seen": "2026-01-01T00:00:00Z",
            "kubernetes.io/config.hash": "abc",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "checkpointer.alpha.coreos.com/checkpoint": "true",
            "checkpointd.io/activation-priority": "5",
            "example.com/kept": "yes",
        },
        owners=[owner()],
        metadata={
            "generateName": "web-",
            "selfLink": "/x",
            "managedFields": [{"manager": "m"}],
            "finalizers": ["f"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 30,
        },
    )
    manifest = rendered(pod).manifest
    assert manifest["metadata"] == {
        "namespace": "kube-system",
        "labels": {"app": "web", "pod-template-hash": "1a2b", "controller-revision-hash": "3c4d"},
        "annotations": {"example.com/kept": "yes"},
    }
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}


def test_a10_what_items_of_a_list_lack_is_in_the_copy() -> None:
    # Neither the kubelet's items nor the API server's have a TypeMeta.
    pod = raw_pod()
    assert not {"apiVersion", "kind"} & set(pod)
    manifest = rendered(pod).manifest
    assert (manifest["apiVersion"], manifest["kind"]) == ("v1", "Pod")


def test_a_candidate_says_whose_it_is() -> None:
    candidate = rendered(raw_pod(owners=[owner(name="kube-apiserver")]))
    assert candidate.slot == Slot("kube-system", "ds.kube-apiserver")
    assert (candidate.parent_name, candidate.parent_uid) == ("web", PARENT_UID)
    assert rendered(raw_pod()).slot == Slot("kube-system", "pod.web")


def test_the_hostname_is_the_parents() -> None:
    assert rendered(raw_pod("web")).hostname == "web"
    assert rendered(raw_pod("web", hostname="other")).hostname == "other"
    assert rendered(raw_pod("w" * 80, labels={})).hostname == "w" * 63
    dotted = rendered(raw_pod("web.a"))
    assert dotted.hostname == ""
    assert any("hostname" in warning for warning in dotted.warnings)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kubernetes.io/config.mirror", "abc"),
        ("kubernetes.io/config.source", "file"),
        ("kubernetes.io/config.source", "http"),
        ("checkpointer.alpha.coreos.com/checkpoint-of", "web"),
        ("checkpointd.io/slot", "ds.web"),
    ],
)
def test_c15_static_pods_mirrors_and_copies_are_never_parents(key: str, value: str) -> None:
    assert list(refused(raw_pod(annotations={key: value}))) == [f"metadata.annotations[{key}]"]


def test_names_that_cannot_be_a_path_are_refused() -> None:
    assert "metadata.uid" in refused(raw_pod(uid="../../etc"))
    assert "metadata.namespace" in refused(raw_pod(namespace=".."))
    assert "metadata.name" in refused(raw_pod("a/b"))


# ---- what is dropped ----------------------------------------------------------------------------
def test_c1_nothing_is_left_that_a_node_without_labels_would_fail() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    term = {"matchFields": [field], "matchExpressions": None}
    selector = {"nodeSelectorTerms": [term]}
    pod = raw_pod(
        nodeSelector={"node-role.kubernetes.io/master": ""},
        affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
        },
        topologySpreadConstraints=[{"maxSkew": 1}],
        schedulingGates=[{"name": "g"}],
        ephemeralContainers=[container("debug")],
        imagePullSecrets=[{"name": "registry"}],
    )
    spec = spec_of(pod)
    gone = "nodeSelector affinity topologySpreadConstraints schedulingGates nodeName schedulerName"
    gone += " ephemeralContainers imagePullSecrets serviceAccountName serviceAccount"
    assert set(gone.split()).isdisjoint(spec)
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_pull_secrets_that_are_dropped_are_warned_of_where_it_matters() -> None:
    pod = raw_pod(imagePullSecrets=[{"name": "registry"}])
    new = NodeFacts(node_name="node-1", kubelet_version="v1.35.0")
    assert not any("PullSecrets" in warning for warning in rendered(pod).warnings)
    assert any("imagePullSecrets" in warning for warning in rendered(pod, node=new).warnings)


def test_c9_images_are_pulled_only_where_they_are_not_there() -> None:
    pod = raw_pod(
        containers=[container(imagePullPolicy="Always")],
        initContainers=[container("setup", imagePullPolicy="Always")],
        volumes=[{"name": "v", "image": {"reference": "r", "pullPolicy": "Always"}}],
    )
    spec = spec_of(pod)
    for kind in ("containers", "initContainers"):
        assert json_fields.objects(spec, kind)[0]["imagePullPolicy"] == "IfNotPresent"
    assert spec["volumes"] == [
        {"name": "v", "image": {"reference": "r", "pullPolicy": "IfNotPresent"}}
    ]


def test_the_images_that_ran_are_told() -> None:
    ran = {"name": "main", "imageID": "registry.example/main@sha256:abc"}
    pod = raw_pod(status={"containerStatuses": [ran]}, initContainers=[container("setup")])
    assert rendered(pod).images == {
        "registry.example/main:1": "registry.example/main@sha256:abc",
        "registry.example/setup:1": "",
    }


# ---- volumes ------------------------------------------------------------------------------------
def test_c4_each_volume_gets_a_directory_of_its_own() -> None:
    items = [{"key": "tls.crt", "path": "a/b.crt"}]
    volumes = [
        secret_volume("one"),
        secret_volume("two", "shared", items=items),
        secret_volume("three", "shared", optional=True, defaultMode=256),
        config_map_volume("four"),
        config_map_volume("five", optional=True),
    ]
    names = [str(volume["name"]) for volume in volumes]
    mounts = [mount(name) for name in names]
    candidate = rendered(
        raw_pod(volumes=volumes, containers=[container(volumeMounts=mounts)]),
        *(files_of(name, name.encode()) for name in names),
    )
    assert json_fields.mapping(candidate.manifest, "spec")["volumes"] == [
        {"name": name, "hostPath": {"path": f"{{{name}}}", "type": "Directory"}} for name in names
    ]
    assert len(set(candidate.contents.values())) == len(names)
    assert [volume.volume for volume in candidate.files] == names


def test_our_volumes_are_mounted_read_only_and_others_as_they_were() -> None:
    mounts = [
        mount("s", mountPropagation="HostToContainer", subPath="key"),
        mount("s", "/other", readOnly=False),
        mount("e"),
    ]
    pod = raw_pod(
        volumes=[secret_volume("s"), {"name": "e", "emptyDir": {}}],
        containers=[container(volumeMounts=mounts)],
        initContainers=[container("setup", volumeMounts=[mount("s")])],
    )
    spec = spec_of(pod, files_of("s"))
    assert json_fields.objects(spec, "containers")[0]["volumeMounts"] == [
        {"name": "s", "mountPath": "/mnt/s", "subPath": "key", "readOnly": True},
        {"name": "s", "mountPath": "/other", "readOnly": True},
        {"name": "e", "mountPath": "/mnt/e"},
    ]
    (setup,) = json_fields.objects(spec, "initContainers")
    assert json_fields.objects(setup, "volumeMounts")[0]["readOnly"] is True


def test_a_volume_whose_files_were_not_read_is_refused() -> None:
    pod = raw_pod(volumes=[secret_volume("s"), config_map_volume("c")])
    assert list(refused(pod, files_of("s"))) == ["spec.volumes[c]"]
    assert refusals(pod) == ()


def test_a_volume_that_no_container_mounts_is_not_waited_for_nor_in_the_copy() -> None:
    volumes = [secret_volume("used"), secret_volume("unused"), config_map_volume("unread")]
    pod = raw_pod(volumes=volumes, containers=[container(volumeMounts=[mount("used")])])
    candidate = rendered(pod, files_of("used"))
    assert set(candidate.contents) == {"used"}
    spec = json_fields.mapping(candidate.manifest, "spec")
    assert [volume["name"] for volume in json_fields.objects(spec, "volumes")] == ["used"]


def test_projected_volumes_of_the_pods_own_fields_stay() -> None:
    item = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    volumes = [
        {"name": "p", "projected": {"sources": [{"downwardAPI": {"items": [item]}}]}},
        {"name": "d", "downwardAPI": {"items": [item]}},
    ]
    assert spec_of(raw_pod(volumes=volumes))["volumes"] == volumes


def test_c8_the_automatic_token_is_refused_with_the_remedy() -> None:
    sources: list[Object] = [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": []}},
    ]
    volume = {"name": "kube-api-access-x7v2p", "projected": {"sources": sources}}
    result = render(raw_pod(volumes=[volume]), {}, NODE)
    assert isinstance(result, Refused)
    assert [refusal.field for refusal in result.refusals] == [
        "spec.volumes[0].projected.sources[0].serviceAccountToken",
        "spec.volumes[0].projected.sources[1].configMap",
    ]
    assert all("automountServiceAccountToken" in r.remedy for r in result.refusals)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("persistentVolumeClaim", {"claimName": "c"}),
        ("csi", {"driver": "d"}),
        ("ephemeral", {"volumeClaimTemplate": {}}),
        ("azureFile", {"secretName": "s", "shareName": "s"}),
        ("glusterfs", {"endpoints": "e", "path": "p"}),
        ("gcePersistentDisk", {"pdName": "p"}),
        ("gitRepo", {"repository": "r"}),
        ("somethingNew", {}),
    ],
)
def test_c12_volumes_that_need_the_api_server_are_refused(kind: str, source: Object) -> None:
    assert f"spec.volumes[0].{kind}" in refused(raw_pod(volumes=[{"name": "v", kind: source}]))


def test_a_relative_host_path_is_refused() -> None:
    pod = raw_pod(volumes=[host_path_volume("v", "{v}")])
    assert list(refused(pod)) == ["spec.volumes[0].hostPath.path"]


def test_c6_users_and_groups_stay_those_of_the_parent() -> None:
    # Owners and modes of the files are the kubelet's (test_volumes): whoever reads them may.
    pod_wide = {"runAsUser": 65534, "fsGroup": 2000, "runAsNonRoot": True}
    other = {"runAsUser": 1000, "runAsGroup": 1000}
    pod = raw_pod(
        securityContext=pod_wide,
        containers=[container(), container("second", securityContext=other)],
        initContainers=[container("setup", securityContext={"runAsUser": 0})],
    )
    spec = spec_of(pod)
    assert spec["securityContext"] == pod_wide
    assert json_fields.objects(spec, "containers")[1]["securityContext"] == other
    assert json_fields.objects(spec, "initContainers")[0]["securityContext"] == {"runAsUser": 0}


# ---- environment --------------------------------------------------------------------------------
def field_env(name: str, field_path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field_path}}}


def test_the_parents_identity_becomes_literals() -> None:
    variables = [
        field_env("NAME", "metadata.name"),
        field_env("UID", "metadata.uid"),
        field_env("NAMESPACE", "metadata.namespace"),
        field_env("LABEL", "metadata.labels['app']"),
        field_env("ABSENT", "metadata.labels['none']"),
        field_env("ANNOTATION", "metadata.annotations['x.example/cost']"),
        field_env("ACCOUNT", "spec.serviceAccountName"),
    ]
    pod = raw_pod(
        annotations={"x.example/cost": "$5 of $(NAME)"}, containers=[container(env=variables)]
    )
    assert first_container(pod)["env"] == [
        {"name": "NAME", "value": "web"},
        {"name": "UID", "value": PARENT_UID},
        {"name": "NAMESPACE", "value": "kube-system"},
        {"name": "LABEL", "value": "web"},
        {"name": "ABSENT", "value": ""},
        # The kubelet expands literals: "$$" is its "$".
        {"name": "ANNOTATION", "value": "$$5 of $$(NAME)"},
        {"name": "ACCOUNT", "value": "default"},
    ]


def test_c17_what_is_true_of_the_copy_itself_stays_a_reference() -> None:
    variables = [
        field_env("HOST_IP", "status.hostIP"),
        field_env("POD_IP", "status.podIP"),
        field_env("NODE", "spec.nodeName"),
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "URL", "value": "https://$(HOST_IP):6443"},
    ]
    assert first_container(raw_pod(containers=[container(env=variables)]))["env"] == variables


def test_the_service_address_comes_first_and_never_replaces_the_pods_own() -> None:
    service = {"KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    node = NodeFacts(node_name="node-1", service=service)
    own = {"name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1"}
    candidate = rendered(raw_pod(containers=[container(env=[own])]), node=node)
    (only,) = json_fields.objects(candidate.manifest, "spec", "containers")
    assert only["env"] == [{"name": "KUBERNETES_SERVICE_PORT", "value": "443"}, own]


def test_c5_references_to_secrets_and_config_maps_are_refused() -> None:
    variables = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    ]
    pod = raw_pod(
        containers=[container(env=variables)],
        initContainers=[container("setup", envFrom=[{"configMapRef": {"name": "c"}}])],
    )
    assert set(refused(pod)) == {
        "spec.initContainers[0].envFrom",
        "spec.containers[0].env[0].valueFrom.secretKeyRef",
        "spec.containers[0].env[1].valueFrom.configMapKeyRef",
    }


# ---- priority, restart, what cannot be had ------------------------------------------------------
def test_c10_priority_class_and_number_stay_together() -> None:
    critical = spec_of(raw_pod(priorityClassName="system-node-critical", priority=2_000_001_000))
    assert critical["priority"] == 2_000_001_000
    assert critical["priorityClassName"] == "system-node-critical"
    assert "priority" not in spec_of(raw_pod(priority=0))


def test_c10_only_the_system_classes_are_known_without_their_number() -> None:
    spec = spec_of(raw_pod(priorityClassName="system-cluster-critical", priority=None))
    assert spec["priority"] == 2_000_000_000
    assert list(refused(raw_pod(priorityClassName="mine", priority=None))) == [
        "spec.priorityClassName"
    ]


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_b12_what_runs_to_its_end_is_refused_unless_marked(policy: str) -> None:
    assert list(refused(raw_pod(restartPolicy=policy))) == ["spec.restartPolicy"]
    marked = raw_pod(restartPolicy=policy, annotations={"checkpointd.io/restart": "true"})
    assert spec_of(marked)["restartPolicy"] == policy


def test_what_is_looked_up_in_the_api_server_is_refused() -> None:
    assert list(refused(raw_pod(runtimeClassName="gvisor"))) == ["spec.runtimeClassName"]
    assert list(refused(raw_pod(resourceClaims=[{"name": "c"}]))) == ["spec.resourceClaims"]


def test_all_reasons_are_told_at_once() -> None:
    volumes = [{"name": "v", "csi": {"driver": "d"}}]
    pod = raw_pod(runtimeClassName="x", restartPolicy="Never", volumes=volumes)
    assert len(refused(pod)) == 3


def test_a_field_of_the_wrong_type_is_refused_by_name() -> None:
    assert list(refused(raw_pod(hostNetwork="yes"))) == ["spec.hostNetwork"]
    assert list(refused({"metadata": []})) == ["metadata"]


def test_c3_what_the_gate_would_refuse_is_refused_while_the_api_server_is_up() -> None:
    assert "spec.containers[0].volumeMounts[0].name" in refused(
        raw_pod(containers=[container(volumeMounts=[mount("nowhere")])])
    )


# ---- hashes -------------------------------------------------------------------------------------
def test_the_hash_knows_nothing_of_who_the_parent_is() -> None:
    one = rendered(raw_pod("web-1", labels={"app": "web"}, owners=[owner()], hostname="a"))
    two = rendered(raw_pod("web-2", labels={"app": "web"}, owners=[owner()], uid="1-2-3"))
    assert (one.hash, one.spec_hash) == (two.hash, two.spec_hash)


def test_spec_and_content_change_hashes_apart() -> None:
    pod = raw_pod(volumes=[secret_volume("s")])
    old, new = rendered(pod, files_of("s", b"1")), rendered(pod, files_of("s", b"2"))
    assert old.spec_hash == new.spec_hash
    assert old.hash != new.hash
    other = rendered(raw_pod(volumes=[secret_volume("s")], hostIPC=True), files_of("s", b"1"))
    assert other.spec_hash != old.spec_hash
    assert other.contents == old.contents


def test_the_newest_volume_says_when_the_files_were_in_place() -> None:
    pod = raw_pod(volumes=[secret_volume("a"), secret_volume("b")])
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    assert rendered(pod, files_of("a", placed=late), files_of("b", placed=early)).placed == late
    assert rendered(raw_pod()).placed == ""


def _served(**fields: object) -> Object:
    return container(ports=[{"name": "web", "containerPort": 8443, "hostPort": 8443}], **fields)


def test_b4_the_manifest_of_a_manifest_is_the_same_byte_for_byte() -> None:
    pod = raw_pod(
        hostNetwork=True,
        volumes=[secret_volume("s"), config_map_volume("c"), host_path_volume("h", "/h")],
        containers=[_served(volumeMounts=[mount("s")], env=[field_env("NAME", "metadata.name")])],
        priorityClassName="system-node-critical",
    )
    once = manifest_of(pod, NODE)
    twice = manifest_of(once, NODE)
    assert json_fields.write_canonical(once) == json_fields.write_canonical(twice)


def test_the_grace_period_is_told() -> None:
    assert rendered(raw_pod(terminationGracePeriodSeconds=7)).grace_seconds == 7
    assert rendered(raw_pod(terminationGracePeriodSeconds=None)).grace_seconds == 30


def test_c16_labels_that_are_one_pods_own_become_shared() -> None:
    own = "system_u:object_r:container_file_t:s0:c1,c2"
    top = FileEntry(path="", data=None, mode=0o755, uid=0, gid=0, label=own)
    files = content.volume_files("s", "", (top,))
    pod = raw_pod(volumes=[secret_volume("s")])
    (shared,) = rendered(pod, files).files[0].entries
    assert shared.label == "system_u:object_r:container_file_t:s0"
    level = {"seLinuxOptions": {"level": "s0:c1,c2"}}
    (kept,) = (
        rendered(raw_pod(volumes=[secret_volume("s")], securityContext=level), files)
        .files[0]
        .entries
    )
    assert kept.label == own
