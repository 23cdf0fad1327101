"""A worker loses its power while its API server is out of reach: its marked pods run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import api, cluster, daemon, measure, objects, selfhosted, workloads
from tests.e2e.node.namespaces import Cable
from tests.e2e.node.report import Times
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

FILES_PORT, AGENT_PORT = 8080, 8081
BINARY = bytes(range(256)) * 5
SECRET = {"token": b"s3cret\n", "key": b"\x00\x01\xff key\n", "unused": b"not mounted\n"}


def files_pod(node: str) -> dict[str, object]:
    """Return a marked pod without controller: files of several kinds, not root, pod network."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "files",
            "annotations": workloads.MARK,
            "labels": {"k8s-app": "files"},
        },
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000},
            "containers": [
                {
                    "name": "web",
                    "image": "registry.local/busybox:1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": workloads.web_server(FILES_PORT),
                    "volumeMounts": [
                        {"name": "secret", "mountPath": "/www/secret", "readOnly": True},
                        {"name": "config", "mountPath": "/www/config"},
                        {
                            "name": "config",
                            "mountPath": "/www/single/one.bin",
                            "subPath": "blob.bin",
                        },
                    ],
                }
            ],
            "volumes": [
                {
                    "name": "secret",
                    "secret": {
                        "secretName": "files",
                        "defaultMode": 0o440,
                        "items": [
                            {"key": "token", "path": "deep/token"},
                            {"key": "key", "path": "key.pem", "mode": 0o400},
                        ],
                    },
                },
                {"name": "config", "configMap": {"name": "files", "defaultMode": 0o644}},
            ],
        },
    }


def copy_uid(checkpoint: object) -> str:
    """Return the UID of a slot's active copy."""
    return objects.text(checkpoint, "activation", "uid")


def is_serving(checkpoint: object) -> bool:
    """Say whether a slot's copy runs."""
    return objects.find(checkpoint, "phase") == "serving"


def test_marked_pods_of_a_worker_survive_a_power_cut_without_their_api_server(
    make_machine: MakeMachine, tmp_path: Path, times: Times
) -> None:
    master = make_machine("master", "10.99.0.1/24")
    worker = make_machine("worker", "10.99.0.2/24")
    kube = selfhosted.make_control_plane(master, tmp_path / "pki")
    cluster.install_base(worker)
    cable = Cable(worker.leader_file, master.leader_file)
    cable.plug()
    kube.install_kubelet(worker, "10.244.1.0/24")
    kube.wait_for_node(worker)
    kube.api.create(f"{workloads.NAMESPACE}/secrets", workloads.secret("files", SECRET))
    kube.api.create(
        f"{workloads.NAMESPACE}/configmaps",
        workloads.config_map("files", {"text": "text\n"}, {"blob.bin": BINARY}),
    )
    files = kube.api.create(api.PODS, files_pod(worker.name))
    agent = workloads.start_agent(kube, AGENT_PORT)
    checkpointd = daemon.Daemon(worker)
    checkpointd.install({"times": {"retire-store": '"20s"'}})
    for slot, pod in (("pod.files", files), ("ds.agent", agent)):
        checkpointd.wait_until_stored(slot, pod, 90)
    before = measure.files_seen_by(
        measure.only_process(worker, objects.text(files, "metadata", "uid")), "/www"
    )
    assert set(before) == {
        "secret/deep/token", "secret/key.pem", "config/text", "config/blob.bin", "single/one.bin",
    }  # fmt: skip

    # The power goes, and comes back without the API server.
    worker.power_cut()
    kube.api.delete(f"{api.PODS}/files", grace_seconds=0)
    switched_on = worker.boot()
    manifests = measure.DirectoryWatch(worker, cluster.MANIFESTS)
    prober = measure.Prober(worker, ("127.0.0.1", AGENT_PORT), "/page")
    placed = manifests.wait_for(
        f"{daemon.COPY_PREFIX}kube-system.agent", appeared=True, since=switched_on, timeout=120
    )
    served = prober.wait_for(answers=True, since=placed.at, timeout=60)
    scenario = "power cut of a worker, API out of reach"
    times.add(scenario, "kubelet's start to manifest", placed.at - worker.started_at("kubelet"))
    times.add(scenario, "manifest to served", served - placed.at)

    copy = checkpointd.wait_for_checkpoint("pod.files", "its copy runs", is_serving, 60)
    process = measure.only_process(worker, copy_uid(copy))
    assert measure.files_seen_by(process, "/www") == before
    here = ("127.0.0.1", FILES_PORT)
    assert api.fetch(process, here, "/secret/deep/token") == SECRET["token"]
    assert api.fetch(process, here, "/single/one.bin") == BINARY

    # The API server is back: it knows no pod "files" any more, and the agent as it was.
    deaths = measure.DeathWatch([process])
    cable.plug()
    plugged = measure.now()
    gone = manifests.wait_for(
        f"{daemon.COPY_PREFIX}kube-system.files", appeared=False, since=plugged, timeout=120
    )
    times.add(scenario, "API back to the deleted pod's manifest gone", gone.at - plugged)
    times.add(scenario, "API back to the deleted pod's copy gone", deaths.wait(90) - plugged)
    wait_for("its files are gone", lambda: not checkpointd.stored("pod.files"), 120)
    checkpointd.wait_until_stored("ds.agent", agent, 180)
    times.add(scenario, "hand-back: outage", sum(prober.outages(served)))
    prober.close()
    manifests.close()
    assert checkpointd.copies() == []
    assert measure.only_process(worker, objects.text(agent, "metadata", "uid"))
