"""Actions become outcomes: what was done, or why not, and nothing half."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from checkpointd.act.perform import Actor, Host
from checkpointd.clock import Clock
from checkpointd.json_fields import Json
from checkpointd.model import decision
from checkpointd.model.checkpoint import Activation
from checkpointd.model.files import Candidate
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk
from tests.builders import stored
from tests.fakes.faulty_disk import FullDisk, ReadOnlyDisk


def host_path(name: str) -> Json:
    return {"name": name, "hostPath": {"path": f"{{{name}}}", "type": "Directory"}}


def mount(name: str) -> Json:
    return {"name": name, "mountPath": f"/mnt/{name}", "readOnly": True}


MANIFEST: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"namespace": "kube-system"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "registry.example/api:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "volumeMounts": [mount("certs"), mount("config")],
            }
        ],
        "volumes": [host_path("certs"), host_path("config")],
        "hostNetwork": True,
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30,
    },
}
CANDIDATE = stored.candidate(manifest=MANIFEST)
ACTIVATION = stored.activation(CANDIDATE)


class Site:
    """An actor on a store and a manifest directory of its own."""

    def __init__(self, top: Path, disk: Disk | None = None) -> None:
        (top / "boot_id").write_text("boot-1\n")
        self.manifests = top / "kubernetes" / "manifests"
        self.candidates: dict[str, Candidate] = {"parent-1": CANDIDATE}
        self.store = stored.open_store(top / "store", disk)
        host = Host(
            manifest_dir=lambda: self.manifests,
            node_name=lambda: "node-1",
            candidates=self.candidates.get,
            runtime=lambda: None,
            wake=lambda: None,
        )
        self.actor = Actor(self.store, disk or Disk(), Clock(top / "boot_id"), host)

    def do(self, *actions: decision.Action) -> list[str]:
        return [self.actor.perform(action).error for action in actions]


def start(site: Site) -> None:
    write = decision.WriteGeneration(stored.SLOT, "parent-1", CANDIDATE.hash)
    save = decision.SaveCheckpoint(stored.SLOT, stored.checkpoint(CANDIDATE))
    assert site.do(write, save) == ["", ""]


def place(activation: Activation = ACTIVATION) -> decision.PlaceManifest:
    return decision.PlaceManifest(stored.SLOT, activation)


def test_an_activation_places_a_manifest_that_names_files_that_are_there(tmp_path: Path) -> None:
    site = Site(tmp_path)
    start(site)
    outcome = site.actor.perform(place())
    assert outcome.error == ""
    content = (site.manifests / ACTIVATION.file).read_bytes()
    assert outcome.sha256 == hashlib.sha256(content).hexdigest()
    pod = json.loads(content)
    assert pod["metadata"]["name"] == ACTIVATION.name
    assert pod["metadata"]["uid"] == ACTIVATION.uid
    paths = {volume["name"]: Path(volume["hostPath"]["path"]) for volume in pod["spec"]["volumes"]}
    assert (paths["certs"] / "tls.key").read_bytes() == b"key 1"
    assert (paths["config"] / "config.json").read_bytes() == b"{}"
    assert all(path.is_absolute() for path in paths.values())


def test_d1_placing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    site = Site(tmp_path)
    start(site)
    first = site.actor.perform(place())
    before = (site.manifests / ACTIVATION.file).stat()
    assert site.actor.perform(place()).sha256 == first.sha256
    assert (site.manifests / ACTIVATION.file).stat().st_ino == before.st_ino


def test_s15_b7_after_a_removal_nothing_is_left(tmp_path: Path) -> None:
    site = Site(tmp_path)
    start(site)
    assert (
        site.do(
            place(),
            decision.RemoveManifest(stored.SLOT, ACTIVATION.file),
            decision.RemoveActive(stored.SLOT, ACTIVATION.uid),
            decision.PruneGenerations(stored.SLOT, frozenset({CANDIDATE.hash})),
            decision.RemoveStore(stored.SLOT),
        )
        == [""] * 5
    )
    assert stored.tree(site.manifests) == {}
    assert stored.tree(site.store.root / "checkpoints") == {}


def test_s4_d5_a_damaged_generation_is_not_placed_and_told_with_what_is_left(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    start(site)
    (stored.slot_path(site.store) / "content/certs" / stored.CERTS.hash / "tls.key").unlink()
    outcome = site.actor.perform(place())
    assert "tls.key" in outcome.error
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.generations == ()
    assert not site.manifests.exists()


def test_c3_d15_a_refused_copy_is_never_written(tmp_path: Path) -> None:
    site = Site(tmp_path)
    start(site)
    outcome = site.actor.perform(place(replace(ACTIVATION, uid="under_score")))
    assert "refused" in outcome.error
    assert not site.manifests.exists()


def test_d2_a_collision_is_an_outcome(tmp_path: Path) -> None:
    site = Site(tmp_path)
    start(site)
    site.manifests.mkdir(parents=True)
    foreign = {"metadata": {"name": ACTIVATION.name, "namespace": "kube-system"}}
    (site.manifests / "foreign.yaml.bak").write_text(json.dumps(foreign))
    assert "foreign.yaml.bak" in site.do(place())[0]


@pytest.mark.parametrize("change", ["gone", "other"])
def test_d6_files_that_are_no_longer_those_that_were_decided_on_are_not_written(
    tmp_path: Path, change: str
) -> None:
    site = Site(tmp_path)
    if change == "gone":
        site.candidates.clear()
    else:
        site.candidates["parent-1"] = stored.candidate(stored.CONFIG)
    write = decision.WriteGeneration(stored.SLOT, "parent-1", CANDIDATE.hash)
    assert "no longer at hand" in site.do(write)[0]
    assert not (site.store.root / "checkpoints").exists()


def test_d11_on_a_full_disk_the_reserve_carries_an_activation(tmp_path: Path) -> None:
    disk = FullDisk()
    site = Site(tmp_path, disk)
    start(site)
    disk.free = 0
    assert site.do(place()) == [""]
    assert (site.manifests / ACTIVATION.file).exists()
    assert not (site.store.root / "reserve").exists()


def test_d11_a_failed_action_is_an_outcome_and_keeps_everything(tmp_path: Path) -> None:
    site = Site(tmp_path)
    start(site)
    broken = Site(tmp_path, ReadOnlyDisk())
    errors = broken.do(
        place(),
        decision.RemoveStore(stored.SLOT),
        decision.PruneGenerations(stored.SLOT, frozenset()),
        decision.SaveNode(stored.node_record()),
    )
    assert all("read-only" in error for error in errors)
    found = CheckpointStore(site.store.root, Disk()).load()
    assert found.checkpoints == {stored.SLOT: stored.checkpoint(CANDIDATE)}


def test_node_and_stop_are_performed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    stop = decision.StopCopy(stored.SLOT, "uid", 0)
    assert site.do(decision.SaveNode(stored.node_record()), stop) == ["", ""]
    assert site.actor.stops.wait("uid", 10.0)
    assert "no access to the container runtime" in site.do(stop)[0]
    assert site.actor.stops.wait("uid", 10.0)


def test_nothing_stored_means_nothing_placed(tmp_path: Path) -> None:
    assert "nothing is stored" in Site(tmp_path).do(place())[0]
