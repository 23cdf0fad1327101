"""The gate as a table: one refused and one allowed case for each of its rows."""

from __future__ import annotations

import pytest

from checkpointd.render import gate, validation
from checkpointd.render.gate import check_manifest
from checkpointd.render.rules import Rule
from tests.builders.pods import Object, copy_container, copy_pod, host_path_volume, mount

NODE = "node-1"
ROWS: tuple[Rule, ...] = (*gate.REFERENCES, *validation.rules_for(NODE))


def volume(kind: str, **source: object) -> Object:
    return copy_pod(volumes=[{"name": "v", kind: source}])


def projected(kind: str, **source: object) -> Object:
    return volume("projected", sources=[{kind: source}])


def env(**value_from: object) -> Object:
    return with_container(env=[{"name": "A", "valueFrom": value_from}])


def with_container(**fields: object) -> Object:
    return copy_pod(containers=[copy_container(**fields)])


def mounted(*mounts: Object) -> Object:
    return copy_pod(
        containers=[copy_container(volumeMounts=list(mounts))],
        volumes=[host_path_volume("a", "/var/a"), host_path_volume("b", "/var/b")],
    )


def named(**fields: object) -> Object:
    return copy_pod(metadata=fields)


SECRET = {"name": "s"}
EMPTY = {"name": ""}
DOWNWARD = projected("downwardAPI", items=[])

CASES: dict[str, tuple[Object, Object]] = {
    # pkg/api/pod/util.go: HasAPIObjectReference
    "spec.serviceAccountName": (
        copy_pod(serviceAccountName="default"),
        copy_pod(serviceAccountName=""),
    ),
    "spec.serviceAccount": (copy_pod(serviceAccount="default"), copy_pod(serviceAccount=None)),
    "spec.imagePullSecrets": (
        copy_pod(imagePullSecrets=[SECRET]),
        copy_pod(imagePullSecrets=[EMPTY]),
    ),
    "spec.containers.envFrom.secretRef": (
        with_container(envFrom=[{"secretRef": {**SECRET, "optional": True}}]),
        with_container(envFrom=[]),
    ),
    "spec.containers.env.valueFrom.secretKeyRef": (
        env(secretKeyRef={**SECRET, "key": "k", "optional": True}),
        env(resourceFieldRef={"resource": "limits.cpu"}),
    ),
    "spec.volumes.cephfs.secretRef": (
        volume("cephfs", monitors=["m"], secretRef=SECRET),
        volume("cephfs", monitors=["m"]),
    ),
    "spec.volumes.cinder.secretRef": (
        volume("cinder", volumeID="v", secretRef=SECRET),
        volume("cinder", volumeID="v"),
    ),
    "spec.volumes.flexVolume.secretRef": (
        volume("flexVolume", driver="d", secretRef=SECRET),
        volume("flexVolume", driver="d"),
    ),
    "spec.volumes.rbd.secretRef": (
        volume("rbd", image="i", secretRef=SECRET),
        volume("rbd", image="i", secretRef=EMPTY),
    ),
    "spec.volumes.scaleIO.secretRef": (
        volume("scaleIO", system="s", secretRef=SECRET),
        volume("scaleIO", system="s", secretRef=EMPTY),
    ),
    "spec.volumes.iscsi.secretRef": (
        volume("iscsi", iqn="q", secretRef=SECRET),
        volume("iscsi", iqn="q"),
    ),
    "spec.volumes.storageos.secretRef": (
        volume("storageos", volumeName="v", secretRef=SECRET),
        volume("storageos", volumeName="v"),
    ),
    "spec.volumes.csi.nodePublishSecretRef": (
        volume("csi", driver="d", nodePublishSecretRef=SECRET),
        volume("emptyDir"),
    ),
    "spec.volumes.azureFile.secretName": (
        volume("azureFile", secretName="s"),
        volume("emptyDir"),
    ),
    "spec.containers.envFrom.configMapRef": (
        with_container(envFrom=[{"configMapRef": {"name": "c", "optional": True}}]),
        with_container(envFrom=None),
    ),
    "spec.containers.env.valueFrom.configMapKeyRef": (
        env(configMapKeyRef={"name": "c", "key": "k"}),
        env(fieldRef={"apiVersion": "v1", "fieldPath": "status.podIP"}),
    ),
    "spec.resourceClaims": (copy_pod(resourceClaims=[{"name": "c"}]), copy_pod(resourceClaims=[])),
    "spec.volumes.configMap": (volume("configMap", name="c"), volume("downwardAPI", items=[])),
    "spec.volumes.secret": (
        volume("secret", secretName="s", optional=True),
        volume("hostPath", path="/v", type="Directory"),
    ),
    "spec.volumes.csi": (volume("csi", driver="d"), volume("image", reference="i")),
    "spec.volumes.glusterfs": (volume("glusterfs", path="v"), volume("nfs", path="/v")),
    "spec.volumes.persistentVolumeClaim": (
        volume("persistentVolumeClaim", claimName="c"),
        volume("fc", lun=1),
    ),
    "spec.volumes.ephemeral": (volume("ephemeral"), volume("emptyDir", medium="Memory")),
    "spec.volumes.azureFile": (volume("azureFile", shareName="s"), volume("azureDisk")),
    "spec.volumes.projected.sources.configMap": (projected("configMap", name="c"), DOWNWARD),
    "spec.volumes.projected.sources.secret": (projected("secret", name="s"), DOWNWARD),
    "spec.volumes.projected.sources.serviceAccountToken": (
        projected("serviceAccountToken", path="token"),
        DOWNWARD,
    ),
    "spec.volumes.projected.sources.clusterTrustBundle": (
        projected("clusterTrustBundle", path="p"),
        DOWNWARD,
    ),
    "spec.volumes.projected.sources.podCertificate": (
        projected("podCertificate", signerName="s"),
        DOWNWARD,
    ),
    "spec.volumes.projected.sources": (projected("somethingNew"), DOWNWARD),
    "spec.volumes": (volume("somethingNew"), copy_pod(volumes=[{"name": "v"}])),
    # ValidatePodCreate and what else a kubelet does with a manifest
    "metadata.name": (copy_pod("a" * 247), copy_pod("a" * 246)),
    "kind": (copy_pod(top={"kind": "PodList"}), copy_pod()),
    "metadata.namespace": (named(namespace="a.b"), named(namespace="a-b")),
    "metadata.uid": (named(uid="pod_1"), named(uid="0a1b-2c")),
    "metadata.labels": (named(labels={"a/b/c": "x"}), named(labels={"x.example/a_b.c": ""})),
    "metadata.annotations": (
        named(annotations={"a b": "x"}),
        named(annotations={"X.example/A": "any\ntext"}),
    ),
    "metadata.deletionTimestamp": (
        named(deletionTimestamp="2026-01-01T00:00:00Z"),
        named(deletionTimestamp=None),
    ),
    "metadata.ownerReferences": (named(ownerReferences=[{"kind": "X"}]), named()),
    "metadata.finalizers": (named(finalizers=["x"]), named()),
    "metadata.resourceVersion": (named(resourceVersion="1"), named()),
    "status": (copy_pod(top={"status": {"qosClass": "Guaranteed"}}), copy_pod()),
    "spec.ephemeralContainers": (
        copy_pod(ephemeralContainers=[copy_container("debug")]),
        copy_pod(ephemeralContainers=[]),
    ),
    "spec.schedulingGates": (copy_pod(schedulingGates=[{"name": "g"}]), copy_pod()),
    "spec.topologySpreadConstraints": (
        copy_pod(topologySpreadConstraints=[{"maxSkew": 1}]),
        copy_pod(),
    ),
    "spec.nodeName": (copy_pod(nodeName="other"), copy_pod()),
    "spec.runtimeClassName": (copy_pod(runtimeClassName="gvisor"), copy_pod()),
    "spec.nodeSelector": (copy_pod(nodeSelector={"a": "b"}), copy_pod(affinity={})),
    "spec.hostname": (copy_pod(hostname="a.b"), copy_pod(hostname="a-b", subdomain="c")),
    "spec.restartPolicy": (copy_pod(restartPolicy="Sometimes"), copy_pod(restartPolicy="Never")),
    "spec.priority": (
        copy_pod(priorityClassName="system-node-critical"),
        copy_pod(priorityClassName="system-node-critical", priority=2_000_001_000),
    ),
    "spec.containers.ports": (
        copy_pod(hostNetwork=True, containers=[copy_container(ports=[{"containerPort": 80}])]),
        with_container(ports=[{"containerPort": 80}]),
    ),
    "spec": (
        with_container(args=["x" * validation.FILE_LIMIT]),
        with_container(args=["x" * 1000]),
    ),
    "spec.volumes.name": (
        copy_pod(volumes=[host_path_volume("a", "/a"), host_path_volume("a", "/b")]),
        copy_pod(volumes=[host_path_volume("a", "/a"), host_path_volume("b", "/a")]),
    ),
    "spec.volumes.*": (
        copy_pod(volumes=[{**host_path_volume("v", "/v"), "emptyDir": Object()}]),
        copy_pod(volumes=[{**host_path_volume("v", "/v"), "emptyDir": None}]),
    ),
    "spec.volumes.hostPath": (
        volume("hostPath", path="/a/../b"),
        volume("hostPath", path="/a/..b", type="DirectoryOrCreate"),
    ),
    "spec.containers.volumeMounts": (
        mounted(mount("a", "/m"), mount("b", "/m")),
        mounted(mount("a", "/m", subPath="x/y"), mount("b", "/n")),
    ),
    "spec.containers.volumeMounts.recursiveReadOnly": (
        mounted(mount("a", recursiveReadOnly="Enabled")),
        mounted(mount("a", recursiveReadOnly="Enabled", readOnly=True)),
    ),
    "spec.containers.volumeDevices": (
        with_container(volumeDevices=[{"name": "a", "devicePath": "/dev/x"}]),
        with_container(volumeDevices=[]),
    ),
    "spec.containers": (
        copy_pod(initContainers=[copy_container("main")]),
        copy_pod(initContainers=[copy_container("setup")]),
    ),
    "spec.containers.image": (
        with_container(imagePullPolicy="Always"),
        with_container(imagePullPolicy="Never"),
    ),
    "spec.containers.env": (
        with_container(env=[{"name": "A=B", "value": "x"}]),
        with_container(env=[{"name": "a.b-c", "value": "$(A)"}]),
    ),
    "spec.containers.ports.containerPort": (
        with_container(ports=[{"containerPort": 65536}]),
        with_container(ports=[{"containerPort": 65535, "name": "web"}]),
    ),
    "spec.containers.ports.hostPort": (
        with_container(ports=[{"containerPort": p, "hostPort": 80} for p in (1, 2)]),
        with_container(ports=[{"containerPort": p, "hostPort": p} for p in (1, 2)]),
    ),
    "spec.containers.livenessProbe.port": (
        with_container(livenessProbe={"httpGet": {"path": "/", "port": "8080"}}),
        with_container(livenessProbe={"httpGet": {"path": "/", "port": "http"}}),
    ),
}


def test_each_row_of_the_gate_has_a_case_and_a_name_of_its_own() -> None:
    names = [row.name for row in ROWS]
    assert sorted(names) == sorted(CASES)
    assert len(names) == len(set(names))


def test_each_row_names_its_source() -> None:
    assert all(row.source.startswith(("pkg/", "V: ", "plugin/")) for row in ROWS)
    assert all(row.reason and row.remedy for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_c3_a_refused_case_is_refused_by_its_row_with_field_and_reason(row: Rule) -> None:
    refused, _allowed = CASES[row.name]
    found = list(row.refusals(refused))
    assert found
    assert all(refusal.field and refusal.reason and refusal.remedy for refusal in found)
    assert set(found) <= set(check_manifest(refused, NODE))


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_c3_an_allowed_case_passes_its_row(row: Rule) -> None:
    _refused, allowed = CASES[row.name]
    assert list(row.refusals(allowed)) == []


@pytest.mark.parametrize("name", [n for n in CASES if n != "spec"])
def test_c3_an_allowed_case_passes_the_whole_gate(name: str) -> None:
    assert check_manifest(CASES[name][1], NODE) == ()


def test_init_and_ephemeral_containers_are_looked_at_too() -> None:
    secret = copy_container("x", envFrom=[{"secretRef": SECRET}])
    for kind, pod in (
        ("initContainers", copy_pod(initContainers=[secret])),
        ("ephemeralContainers", copy_pod(ephemeralContainers=[secret])),
    ):
        fields = [refusal.field for refusal in check_manifest(pod, NODE)]
        assert f"spec.{kind}[0].envFrom[0].secretRef" in fields


@pytest.mark.parametrize("uid", ["", "ABC", "a_b", "a/b", "..", "pod", "0b7e-pod", "0" * 65, "0\n"])
def test_a_uid_that_panics_the_kubelet_is_refused(uid: str) -> None:
    fields = {refusal.field for refusal in check_manifest(named(uid=uid), NODE)}
    assert fields == {"metadata.uid"}


def test_a_field_of_the_wrong_type_is_a_refusal_and_no_error() -> None:
    refusals = check_manifest(copy_pod(containers=[], hostNetwork="yes"), NODE)
    assert "spec.hostNetwork" in {refusal.field for refusal in refusals}


def test_what_json_cannot_carry_is_refused() -> None:
    for value in (float("nan"), "\ud800", {1: "a"}, {"a", "b"}):
        assert check_manifest(copy_pod(terminationGracePeriodSeconds=value), NODE)


def test_the_nodes_name_counts_in_lower_case() -> None:
    assert check_manifest(copy_pod(), "NODE-1") == ()
    assert check_manifest(copy_pod(), "no_de") != ()


def test_a_place_holder_that_was_not_filled_is_refused() -> None:
    refusals = check_manifest(volume("hostPath", path="{v}", type="Directory"), NODE)
    assert [refusal.field for refusal in refusals] == ["spec.volumes[0].hostPath.path"]
